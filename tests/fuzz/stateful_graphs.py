"""Random modules with variables, queues, control edges and nested regions, and calls to be made.

A module has several functions over the same variables, and a row of calls of them on one state:
some variables are not assigned at first, some indices are out of range, dimensions are symbols that
may be 0. Every loop ends, and a queue holds what is taken out of it. Of the kind `loops` half are
nested loops in primitive form (`tests/dataflow/random_control.py`), the others have more loops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

import tfc.ops  # noqa: F401  registers the ops
from tests.dataflow.random_control import VARIABLES, Program
from tests.fuzz import data
from tests.fuzz.stateful_ops import Writer
from tests.fuzz.stateful_text import COUNT, FLAG, SEED, Dims, Kind, Plan, signature
from tfc.interpret import evaluated_type
from tfc.ir.core import Module
from tfc.text import parse_module

KINDS = ("stateful", "loops")
FLOATS = ("f32", "f32", "f32", "f64", "f16", "bf16")
INTEGERS = ("i64", "i32", "u8", "i8")
SHAPES: tuple[Dims, ...] = ((), ("4",), ("3", "4"), ("4", "4"), ("B", "4"), ("B",))
CALLS = 5


@dataclass(frozen=True)
class Call:
    """A function and its inputs."""

    function: str
    inputs: Mapping[str, Any]


@dataclass
class StatefulCase:
    """A module, and calls of its functions to be made in turn on one state."""

    seed: int
    module: Module
    calls: list[Call]


def generate(seed: int, kind: str = "stateful", size: int = 14) -> StatefulCase:
    """A case; `size` is about the number of ops of its larger function, but for loops' parts."""
    primitive = kind == "loops" and seed % 2 == 1
    text = primitive_text(seed) if primitive else text_of(seed, kind == "loops", size)
    module = parse_module(text)
    drawn = np.random.default_rng(seed)
    names = [n for n in module.functions if n != "init"]
    row = ["init", *(names[int(drawn.integers(len(names)))] for _ in range(CALLS - 1))]
    return StatefulCase(seed, module, [_call(module, name, drawn) for name in row])


# ---- structured


def text_of(seed: int, loops: bool = False, size: int = 14) -> str:
    random = Random(seed)
    plan = _plan(random, loops)
    lines = [f"  variable @{n} : {kind}" for n, kind in plan.variables.items()]
    if plan.queue is not None:
        kind = random.choice(("fifo_queue", "random_shuffle_queue"))
        seeded = "" if kind == "fifo_queue" else f", seed = {random.randint(0, 9)}"
        lines.append(f'  resource @q : {plan.queue} {{kind = "{kind}", capacity = 4000{seeded}}}')
    lines += _init(random, plan)
    for name, part in (("main", size), ("other", max(size // 2, 1))):
        lines += _function(name, random, plan, part)
    return "\n".join(["module {", *lines, "}"])


def _plan(random: Random, loops: bool) -> Plan:
    floats = [random.choice(FLOATS) for _ in range(random.choice((1, 1, 2)))]
    dtypes = [*floats, *floats, random.choice(INTEGERS), "bool"]
    shapes = random.sample(SHAPES, 4)
    drawn = [Kind(random.choice(dtypes), shape) for shape in (*shapes, *shapes)]
    kinds = list(dict.fromkeys([Kind(floats[0], shapes[0]), *drawn]))
    if any("B" in k.dims for k in kinds):
        kinds.append(Kind(floats[0], ("B",)))  # which tells B
    kinds = list(dict.fromkeys(kinds))
    inputs = {f"x{i}": k for i, k in enumerate(kinds) if k not in (COUNT, FLAG)}
    inputs |= {"k": COUNT, "p": FLAG}
    held = [k for k in kinds if k.is_static] or [Kind(floats[0])]
    names = [random.choice([*held, *held, COUNT]) for _ in range(random.randint(2, 4))]
    variables = {f"v{i}": k for i, k in enumerate([*names, random.choice(held)])}
    if random.random() < 0.4:
        variables["seed"] = SEED
    queue = random.choice(held) if random.random() < 0.2 else None
    return Plan(inputs, variables, queue, loops)


def _init(random: Random, plan: Plan) -> list[str]:
    """Assigns most variables, once in a while not all."""
    writer = Writer(random, plan, 0)
    all_of_them = random.random() < 0.75
    for name, kind in plan.variables.items():
        if all_of_them or random.random() < 0.7:
            writer.effect(kind, f"assign(@{name}, {writer.value_for(kind)})")
    end = f" after({', '.join(writer.scope.effects)})" if writer.scope.effects else ""
    inputs = signature([(f"%{n}", kind) for n, kind in plan.inputs.items()])
    return [f"  func @init({inputs}) -> () {{", *writer.lines, f"    return{end}", "  }"]


def _function(name: str, random: Random, plan: Plan, size: int) -> list[str]:
    writer = Writer(random, plan, size)
    while writer.left > 0:
        writer.draw()
    given = [random.choice(plan.kinds) for _ in range(random.randint(1, 4))]
    writer.give([writer.any(kind) for kind in given], "return")
    inputs = signature([(f"%{n}", kind) for n, kind in plan.inputs.items()])
    outputs = signature([(f"%y{i}", kind) for i, kind in enumerate(given)])
    return [f"  func @{name}({inputs}) -> ({outputs}) {{", *writer.lines, "  }"]


# ---- primitive


def primitive_text(seed: int) -> str:
    """Branches and loops as switch, merge, enter, exit; half in another order of the text."""
    random = Random(seed)
    dtype = random.choice(("f32", "f32", "f64", "f16", "bf16"))
    text = Program(seed).text(shuffled=random.random() < 0.5)
    assigned = [f"    %{v} = assign(@{v}, %{n})" for v, n in zip(VARIABLES, "ab", strict=True)]
    names = [f"%{v}" for v in VARIABLES]
    head = "  func @init(%a: tensor<f32>, %b: tensor<f32>) -> () {"
    init = "\n".join([head, *assigned, f"    return after({', '.join(names)})", "  }", ""])
    text = text.replace("  func @main", f"{init}  func @main")
    return text.replace("tensor<f32>", f"tensor<{dtype}>").replace("to = f32", f"to = {dtype}")


# ---- data


def _call(module: Module, name: str, drawn: np.random.Generator) -> Call:
    """Usual numbers, small whole ones, edge cases now and then; counts are from 0 to 4."""
    kind = str(drawn.choice(["usual", "ties", "usual", "ties", "edges"]))
    symbols = {"B": int(drawn.choice([0, 1, 2, 3, 5]))}
    inputs: dict[str, Any] = {}
    for arg in module.functions[name].body.args:
        tensor = evaluated_type(arg.type, symbols)
        shape = tuple(int(str(n)) for n in tensor.shape)
        if arg.name == "k":
            inputs[arg.name] = np.asarray(drawn.integers(0, 5), np.int64)
        else:
            inputs[arg.name] = np.asarray(data.draw(drawn, tensor.dtype, shape, kind))
    return Call(name, inputs)
