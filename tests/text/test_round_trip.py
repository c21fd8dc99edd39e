"""What is printed reads back as the same module, bit by bit, and prints the same again."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfc.ops
import tfc.tile.ops
from tests.text.generate import Generator
from tfc.ir.core import OPS, Block, Colocate, Module, Op, Value
from tfc.text import parse_module, print_module

assert tfc.ops and tfc.tile.ops
REGISTERED = sorted(n for n, c in OPS.items() if c.__module__.startswith("tfc."))


def exact(value: Any) -> Any:
    """A value that compares by bits: -0.0 is not 0.0, and a NaN is itself."""
    if isinstance(value, tuple):
        return tuple(map(exact, value))
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    return type(value).__name__ if isinstance(value, bool) else "", value


class Snapshot:
    """What a module says, without its identities: values and ops by number."""

    def __init__(self, module: Module) -> None:
        self.numbers: dict[Any, int] = {}
        self.parts: list[Any] = [
            (module.name, module.weights.file, exact(tuple(module.attributes.items()))),
            (module.dims, module.variables),
        ]
        for function in module.functions.values():
            head = function.name, function.output_names, function.location.nodes
            self.parts.append((*head, [a.name for a in function.body.args]))
            self.block(function.body)
        for kernel in module.kernels.values():
            head = kernel.name, kernel.grid, kernel.attributes, kernel.location.nodes
            self.parts.append((*head, [a.name for a in kernel.body.args]))
            self.block(kernel.body)

    def number(self, thing: Any) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))

    def types(self, values: list[Value]) -> list[Any]:
        return [(self.number(v), v.type) for v in values]

    def block(self, block: Block) -> None:
        self.parts.append(self.types(block.args))
        for op in block:
            self.op(op)

    def op(self, op: Op) -> None:
        device = self.number(op.device.op) if isinstance(op.device, Colocate) else op.device
        operands = [None if v is None else self.number(v) for v in op.operands]
        while operands and operands[-1] is None:
            operands.pop()
        attributes = {n: self.attribute(op, n, v) for n, v in op.attributes.items()}
        after = [self.number(o) for o in op.after]
        self.number(op)
        self.parts.append((op.name, operands, attributes, after, device, op.location.nodes))
        for region in op.regions:
            self.block(region)
        self.parts.append(self.types(op.results))

    def attribute(self, op: Op, name: str, value: Any) -> Any:
        """Where a float is declared, the text does not tell 1 from 1.0."""
        kind = op.attribute_fields[name].kind
        if kind == "float":
            return exact(float(value))
        return exact(tuple(map(float, value))) if kind == "floats" else exact(value)


def check(module: Module) -> None:
    text = print_module(module)
    again = parse_module(text)
    assert print_module(again) == text
    before, after = Snapshot(module).parts, Snapshot(again).parts
    for old, new in zip(before, after, strict=True):
        assert old == new


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_modules(seed: int) -> None:
    check(Generator(seed).module())


@pytest.mark.parametrize("name", REGISTERED)
def test_every_op(name: str) -> None:
    for seed in range(4):
        check(Generator(seed).module(only=OPS[name]))
