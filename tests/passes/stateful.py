"""Random modules with variables, control edges and nested `if`, `while` and `scan`.

`generate(seed)` gives a module of three functions, which share its variables, and calls of them to
be made in turn on one state. The module is written as text, with ops that nothing needs too; every
loop ends, and numbers stay small.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

import tfc.ops  # noqa: F401  registers the ops
from tfc.interpret import interpret, state_of
from tfc.ir.core import Module
from tfc.text import parse_module

VECTOR, ROWS, NUMBER = "tensor<4xf32>", "tensor<3x4xf32>", "tensor<f32>"
COUNT, FLAG = "tensor<i64>", "tensor<bool>"
UNARY = ("tanh", "sin", "neg", "abs", "relu", "sigmoid", "softsign")
BINARY = ("add", "sub", "maximum", "minimum")
VARIABLES = {"v": VECTOR, "w": VECTOR, "s": NUMBER, "n": COUNT}
INPUTS = {"x": VECTOR, "r": ROWS, "a": NUMBER, "k": COUNT, "p": FLAG}
MOST_DEPTH = 3

Inputs = dict[str, Any]
Calls = list[tuple[str, Inputs]]


@dataclass
class Scope:
    """What may be used at a place: values by type, and ops to wait for, inner ones last."""

    values: dict[str, list[str]] = field(default_factory=dict[str, "list[str]"])
    ops: list[str] = field(default_factory=list[str])
    effects: list[str] = field(default_factory=list[str])  # of this block alone

    def inner(self) -> Scope:
        return Scope({t: list(names) for t, names in self.values.items()}, list(self.ops))


class Writer:
    """Writes one function."""

    def __init__(self, random: Random, size: int) -> None:
        self.random = random
        self.left = size  # of ops that are to be drawn
        self.lines: list[str] = []
        self.count = 0
        self.indent = 2
        self.depth = 0
        self.scope = Scope()

    # ---- text

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def name(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def after(self, chance: float = 0.2) -> str:
        """Random control edges."""
        if not self.scope.ops or self.random.random() > chance:
            return ""
        count = self.random.randint(1, 3)
        names = dict.fromkeys(self.random.choice(self.scope.ops) for _ in range(count))
        return f" after({', '.join(names)})"

    def op(self, kind: str, text: str, attributes: str = "", chance: float = 0.2) -> str:
        """Writes an op of one result."""
        name = self.name()
        written = f" {{{attributes}}}" if attributes else ""
        self.line(f"{name} = {text}{written}{self.after(chance)} : {kind}")
        return self.made(name, kind)

    def made(self, name: str, kind: str) -> str:
        self.scope.values.setdefault(kind, []).append(name)
        self.scope.ops.append(name)
        return name

    # ---- values

    def any(self, kind: str) -> str:
        """A value of a type: mostly a late one."""
        known = self.scope.values.get(kind, [])
        if known and self.random.random() < 0.9:
            return known[-1 - min(int(self.random.expovariate(0.4)), len(known) - 1)]
        return self.constant(kind)

    def constant(self, kind: str) -> str:
        drawn = {
            COUNT: str(self.random.randint(0, 3)),
            FLAG: self.random.choice(("true", "false")),
        }.get(kind, str(self.random.choice((0.0, 0.5, 1.0, -0.25, 2.0))))
        return self.op(kind, "constant", f"value = dense<{drawn}>", 0)

    # ---- ops

    def draw(self) -> None:
        self.left -= 1
        choices = [self.unary, self.binary, self.scaled, self.flag, self.reduced, self.row]
        weights = [3, 4, 1, 1, 1, 1]
        choices += [self.read, self.assign, self.change, self.barrier, self.counter]
        weights += [4, 3, 2, 1, 1]
        if self.depth < MOST_DEPTH:
            choices += [self.branch, self.loop, self.scan]
            weights += [2, 2, 1]
        self.random.choices(choices, weights)[0]()

    def unary(self) -> None:
        kind = self.random.choice((VECTOR, VECTOR, ROWS, NUMBER))
        self.op(kind, f"{self.random.choice(UNARY)}({self.any(kind)})")

    def binary(self) -> None:
        kind = self.random.choice((VECTOR, VECTOR, ROWS, NUMBER))
        other = self.random.choice([kind, NUMBER] + [VECTOR] * (kind == ROWS))
        x, y = self.any(kind), self.any(other)
        made = self.op(kind, f"{self.random.choice(BINARY)}({x}, {y})")
        if self.random.random() < 0.5:
            self.op(kind, f"tanh({made})")  # keeps numbers small

    def scaled(self) -> None:
        half = self.op(NUMBER, "constant", "value = dense<0.5>", 0)
        self.op(VECTOR, f"mul({self.any(VECTOR)}, {half})")

    def flag(self) -> None:
        self.op(FLAG, f"less({self.any(NUMBER)}, {self.any(NUMBER)})")

    def reduced(self) -> None:
        if self.random.random() < 0.5:
            self.op(NUMBER, f"reduce_mean({self.any(VECTOR)})", "axes = [0], keepdims = false")
        else:
            self.op(VECTOR, f"softmax({self.any(VECTOR)})", "axis = 0")

    def row(self) -> None:
        """The row of a matrix at an index that is in range."""
        two = self.op(COUNT, "constant", "value = dense<2>", 0)
        zero = self.op(COUNT, "constant", "value = dense<0>", 0)
        low = self.op(COUNT, f"maximum({self.any(COUNT)}, {zero})")
        index = self.op(COUNT, f"minimum({low}, {two})")
        self.op(VECTOR, f"gather({self.any(ROWS)}, {index})", "axis = 0")

    def counter(self) -> None:
        one = self.op(COUNT, "constant", "value = dense<1>", 0)
        self.op(COUNT, f"{self.random.choice(('add', 'minimum'))}({self.any(COUNT)}, {one})")

    # ---- state

    def variable(self) -> tuple[str, str]:
        return self.random.choice(list(VARIABLES.items()))

    def read(self) -> None:
        name, kind = self.variable()
        self.op(kind, f"read(@{name})", "", 0.4)

    def assign(self) -> None:
        name, kind = self.variable()
        value = self.any(kind)
        if kind == COUNT:  # an iteration count: it must stay small
            three = self.op(COUNT, "constant", "value = dense<3>", 0)
            value = self.op(COUNT, f"minimum({value}, {three})")
        self.scope.effects.append(self.op(kind, f"assign(@{name}, {value})", "", 0.4))

    def change(self) -> None:
        name = self.random.choice("vws")
        kind = VARIABLES[name]
        value = self.op(kind, f"tanh({self.any(kind)})")
        update = self.random.choice(("assign_add", "assign_sub"))
        self.scope.effects.append(self.op(kind, f"{update}(@{name}, {value})", "", 0.4))

    def barrier(self) -> None:
        if self.scope.ops:
            self.count += 1
            label = f"^b{self.count}"
            self.line(f"{label}: no_op(){self.after(1.0)}")
            self.scope.ops.append(label)

    # ---- regions

    @contextmanager
    def region(self, arguments: list[tuple[str, str]]) -> Generator[None]:
        outer, self.scope = self.scope, self.scope.inner()
        for name, kind in arguments:
            self.scope.values.setdefault(kind, []).append(name)
        self.indent += 1
        self.depth += 1
        yield
        self.indent -= 1
        self.depth -= 1
        self.scope = outer

    def body(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            if self.left > 0:
                self.draw()

    def give(self, values: list[str], end: str = "yield") -> None:
        """Ends a block; most of its effects become needed."""
        needed = [e for e in self.scope.effects if self.random.random() < 0.8]
        after = f" after({', '.join(needed)})" if needed else ""
        self.line(f"{end} {', '.join(values)}{after}")

    def types(self) -> list[str]:
        return [
            self.random.choice((VECTOR, NUMBER, ROWS)) for _ in range(self.random.randint(1, 3))
        ]

    def head(self, names: list[str], text: str, types: list[str], attributes: str = "") -> None:
        written = f" {{{attributes}}}" if attributes else ""
        self.line(f"{', '.join(names)} = {text}{written}{self.after(0.3)} : {', '.join(types)}")

    def branch(self) -> None:
        types = self.types()
        names = [self.name() for _ in types]
        condition = self.any(FLAG)
        self.head(names, f"if({condition})", types)
        for keyword, closing in (("then {", ""), ("} else {", "}")):
            self.line(keyword)
            with self.region([]):
                self.body()
                self.give([self.any(t) for t in types])
            if closing:
                self.line(closing)
        self.defined(names, types)

    def defined(self, names: list[str], types: list[str]) -> None:
        for name, kind in zip(names, types, strict=True):
            self.scope.values.setdefault(kind, []).append(name)
        self.scope.ops.append(names[0])
        self.scope.effects.append(names[0])

    def loop(self) -> None:
        """A counter that goes up to a small number, and more values."""
        types = [COUNT, *self.types()]
        names = [self.name() for _ in types]
        three = self.op(COUNT, "constant", "value = dense<3>", 0)
        bound = self.op(COUNT, f"minimum({self.any(COUNT)}, {three})")
        zero = self.op(COUNT, "constant", "value = dense<0>", 0)
        initial = [zero, *(self.any(t) for t in types[1:])]
        self.head(names, f"while({', '.join(initial)})", types)
        inner = self.arguments(types)
        self.line(f"cond({_listed(inner)}) {{")
        with self.region(inner):
            if self.random.random() < 0.2:
                self.body()
            self.give([self.op(FLAG, f"less({inner[0][0]}, {bound})")])
        inner = self.arguments(types)
        self.line(f"}} do({_listed(inner)}) {{")
        with self.region(inner):
            self.body()
            one = self.op(COUNT, "constant", "value = dense<1>", 0)
            following = self.op(COUNT, f"add({inner[0][0]}, {one})")
            self.give([following, *self.carried(inner[1:])])
        self.line("}")
        self.defined(names, types)

    def arguments(self, types: list[str]) -> list[tuple[str, str]]:
        return [(self.name(), t) for t in types]

    def carried(self, arguments: list[tuple[str, str]]) -> list[str]:
        """What a loop carries on: some of it never changes."""
        return [a if self.random.random() < 0.2 else self.any(t) for a, t in arguments]

    def scan(self) -> None:
        types = [VECTOR, ROWS]
        names = [self.name() for _ in types]
        operands = f"{self.any(VECTOR)}, {self.any(ROWS)}"
        reverse = ", reverse = true" if self.random.random() < 0.3 else ""
        self.head(names, f"scan({operands})", types, f"carries = 1, length = 3{reverse}")
        inner = self.arguments([VECTOR, VECTOR])
        self.line(f"do({_listed(inner)}) {{")
        with self.region(inner):
            self.body()
            self.give([*self.carried(inner[:1]), self.any(VECTOR)])
        self.line("}")
        self.defined(names, types)


def _listed(arguments: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in arguments)


def _function(name: str, random: Random, size: int) -> list[str]:
    writer = Writer(random, size)
    for argument, kind in INPUTS.items():
        writer.scope.values[kind] = [f"%{argument}"]
    while writer.left > 0:
        writer.draw()
    results = [(writer.any(kind), kind) for kind in (VECTOR, ROWS, NUMBER)]
    writer.give([value for value, _ in results], "return")
    inputs = _listed([(f"%{n}", kind) for n, kind in INPUTS.items()])
    outputs = _listed([(f"%y{i}", kind) for i, (_, kind) in enumerate(results)])
    return [f"  func @{name}({inputs}) -> ({outputs}) {{", *writer.lines, "  }"]


INIT = """  func @init(%x: tensor<4xf32>, %a: tensor<f32>, %k: tensor<i64>) -> () {
    %v = assign(@v, %x) : tensor<4xf32>
    %h = sin(%x) : tensor<4xf32>
    %w = assign(@w, %h) : tensor<4xf32>
    %s = assign(@s, %a) : tensor<f32>
    %n = assign(@n, %k) : tensor<i64>
    return after(%v, %w, %s, %n)
  }"""


def text_of(seed: int, size: int = 12) -> str:
    random = Random(seed)
    lines = ["module {", *(f"  variable @{n} : {kind}" for n, kind in VARIABLES.items()), INIT]
    lines += _function("main", random, size)
    lines += _function("other", random, max(size // 2, 1))
    return "\n".join([*lines, "}"])


def generate(seed: int, size: int = 12) -> tuple[Module, Inputs, Calls]:
    """A module, inputs of @main, and calls of its functions to be made in turn.

    `size` is about the number of ops of @main, before those that regions repeat.
    """
    drawn = np.random.Generator(np.random.PCG64(seed))
    module = parse_module(text_of(seed, size))
    known = [_inputs(drawn) for _ in range(4)]
    first = {name: known[0][name] for name in ("x", "a", "k")}
    names = ("main", "other", "main")
    calls: Calls = [("init", first), *zip(names, known[1:], strict=True)]
    return module, known[1], calls


def _inputs(drawn: np.random.Generator) -> Inputs:
    return {
        "x": drawn.standard_normal(4).astype(np.float32),
        "r": drawn.standard_normal((3, 4)).astype(np.float32),
        "a": np.float32(drawn.standard_normal()),
        "k": np.int64(drawn.integers(0, 4)),
        "p": np.bool_(drawn.integers(0, 2)),
    }


def outcome(module: Module, calls: Calls) -> list[dict[str, Any]]:
    """What each call gives, and the variables after it as `@name`."""
    state = state_of(module)
    found: list[dict[str, Any]] = []
    for function, inputs in calls:
        outputs = interpret(module, inputs, function, state=state)
        left = {f"@{n}": a for n, a in state.variables.items() if a is not None}
        found.append(outputs | left)
    return found
