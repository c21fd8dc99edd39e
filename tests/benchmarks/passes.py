"""How the cost of each pass grows with the graph: python tests/benchmarks/passes.py [OPS...]

Prints microseconds of processor time an op for each size, and how much that grew from the smallest
to the largest; 1.0 is linear. Every op of the graph gives a pass something to do: equal ops, dead
ops, composites, constants to fold, rules that fire, branches to put in order.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Function, Location, Module, Value
from tfc.ir.types import F32, TensorType
from tfc.ir.verifier import verify
from tfc.ir.weights import Dense, Weights
from tfc.ops.arithmetic import Add, Mul
from tfc.ops.constant import Constant
from tfc.ops.control import Return
from tfc.ops.elementwise import Neg
from tfc.ops.piecewise import Relu
from tfc.ops.transcendental import Exp, Tanh
from tfc.passes.base import PassContext
from tfc.passes.graph.arena import Interval, plan
from tfc.passes.manager import parse_pipeline
from tfc.report.table import table
from tfc.text import parse_module, print_module

SIZES = (1_000, 10_000, 100_000)
PASSES = (
    *("prune", "entry-checks", "constant-folding", "canonicalize", "cse", "dce", "decompose"),
    *("raise-idioms", "kernel-forms", "layout", "control-scheduling", "fusion"),
)


def graph(ops: int) -> Module:
    """A chain of blocks of 10 ops, each with something for every pass."""
    body = Block()
    b = Builder(body)
    x = body.add_arg(TensorType(F32, (64, 8)), "x")
    for number in range(ops // 10):
        b.location = Location((f"node{number}",))
        x = _link(b, x, number)
    b.add(Return([x]))
    module = Module(Weights())
    module.functions["main"] = Function("main", body, ["y"])
    return module


def _link(b: Builder, x: Value, number: int) -> Value:
    zero, half = (_scalar(b, n) for n in (-0.0, 0.5 + number))
    scale = b.value(Add(half, half))
    left, right = b.value(Exp(x)), b.value(Exp(x))
    b.value(Tanh(left))  # dead
    scaled = b.value(Mul(left, scale))
    total = b.value(Add(scaled, b.value(Neg(right))))
    return b.value(Relu(b.value(Add(total, zero))))


def _scalar(b: Builder, number: float) -> Value:
    dense = Dense(np.array(number, np.float32))
    return b.value(Constant(dense, dense.type))


def seconds(action: Callable[[], object]) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


def measure(ops: int) -> dict[str, float]:
    """Microseconds an op of each step, by name."""
    module = graph(ops)
    text = print_module(module)
    found = {
        "print": seconds(lambda: print_module(module)),
        "parse": seconds(lambda: parse_module(text)),
        "verify": seconds(lambda: verify(module)),
    }
    for name in PASSES:
        copy = graph(ops)
        if name in ("fusion", "layout", "control-scheduling"):
            for first in parse_pipeline("decompose,kernel-forms"):
                first.run(copy, PassContext())
        (transform,) = parse_pipeline(name)
        found[name] = seconds(lambda t=transform, m=copy: t.run(m, PassContext()))
        verify(copy)
    intervals: list[Interval] = [(i, i + 3, 64 * (1 + i % 7)) for i in range(ops)]
    found["memory-planning (intervals)"] = seconds(lambda: plan(intervals))
    return {name: s / ops * 1e6 for name, s in found.items()}


def main() -> None:
    sizes = [int(n) for n in sys.argv[1:]] or list(SIZES)
    columns = [measure(n) for n in sizes]
    rows = [
        (name, *(c[name] for c in columns), columns[-1][name] / columns[0][name])
        for name in columns[0]
    ]
    print(table(("us an op", *(f"{n} ops" for n in sizes), "growth"), rows))


if __name__ == "__main__":
    main()
