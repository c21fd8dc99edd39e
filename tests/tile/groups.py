"""Groups for tests of kernel builders: random shapes, and the kernel run in the interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from tfc.interpret import evaluated_type, interpret
from tfc.ir.builder import Builder
from tfc.ir.core import Block, Function, Module, Value
from tfc.ir.expr import Dim, symbol
from tfc.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, DType, Layout, TensorType
from tfc.ir.weights import Weights
from tfc.ops.base import static
from tfc.ops.control import Fusion, Return, Yield
from tfc.passes.lower.lower import build
from tfc.passes.validate import difference
from tfc.tile.interpret import run_kernel
from tfc.tile.nests.schedule import Schedule

Array = np.ndarray[Any, Any]
S, T = symbol("S"), symbol("T")
FLOATS = (F32, F32, F64, F16, BF16)
NUMBERS = (*FLOATS, I32, I64, I8, U8)
CHANNELS = Layout("aBcd16b")


@dataclass
class Group:
    """A function that holds one group, its inputs, and what it gives for them."""

    module: Module
    fused: Fusion
    symbols: dict[str, int]
    inputs: dict[str, Array]
    expected: list[Array]

    def check(self, *schedules: Schedule) -> None:
        """Builds the kernel by each schedule, runs it, and compares every element."""
        for schedule in schedules:
            self.fused.set_attribute("schedule", str(schedule))
            try:
                self._check()
            except AssertionError as error:
                raise AssertionError(f"{schedule}: {error}\n{self}") from error

    def _check(self) -> None:
        kernel = build(self.fused, "tested")
        types = [evaluated_type(v.type, self.symbols) for v in self.fused.inputs]
        buffers = [
            _flat(kind, self.inputs[v.name])
            for kind, v in zip(types, self.fused.inputs, strict=True)
        ]
        results = [evaluated_type(v.type, self.symbols) for v in self.fused.results]
        buffers += [_unwritten(kind) for kind in results]
        run_kernel(kernel, buffers, self.symbols, exclusive=True)
        outputs = buffers[len(types) :]
        for kind, flat, wanted in zip(results, outputs, self.expected, strict=True):
            found = flat.reshape(static(kind.physical))
            if kind.layout:
                plain = kind.layout.unpack(found, static(kind.shape))
                padded = kind.layout.pack(plain)
                assert np.array_equal(padded, found, equal_nan=True), "the padding is not zero"
                found = plain
            wrong = difference(wanted, found)
            assert not wrong, wrong

    def __str__(self) -> str:
        from tfc.text import print_module

        return f"{print_module(self.module)}{self.symbols}"


def _flat(kind: TensorType, array: Array) -> Array:
    packed = kind.layout.pack(array) if kind.layout else array
    return np.ascontiguousarray(packed).reshape(-1)


def _unwritten(kind: TensorType) -> Array:
    """Memory in which an element that the kernel leaves out shows."""
    count = int(np.prod(static(kind.physical)))
    return np.full(count, True if kind.dtype.is_bool else 77, kind.dtype.numpy)


def group(
    random: Random,
    kind: str,
    types: Sequence[TensorType],
    body: Callable[..., Value | Sequence[Value]],
    *,
    symbols: dict[str, int] | None = None,
    draw: Callable[[np.random.Generator, TensorType], Array] | None = None,
) -> Group:
    """A group of a kind over operands of these types; `body(builder, *operands)` gives its results.

    `draw` makes the data instead of `numbers`.
    """
    bound = symbols if symbols is not None else {"S": random.choice((0, 1, 3, 6)), "T": 5}
    inner = Block(types)
    builder = Builder(inner)
    made = body(builder, *inner.args)
    yielded = [made] if isinstance(made, Value) else list(made)
    inner.append(Yield(yielded))
    names = [f"x{i}" for i in range(len(types))]
    outer = Block(types, names)
    fused = Fusion(outer.args, kind=kind, types=[v.type for v in yielded], do=inner)
    outer.append(fused)
    outer.append(Return(fused.results))
    outputs = [f"y{i}" for i in range(len(yielded))]
    module = Module(Weights(), functions={"main": Function("main", outer, outputs)})
    generator = np.random.default_rng(random.randrange(1 << 30))
    inputs = {
        name: (draw or numbers)(generator, evaluated_type(t, bound))
        for name, t in zip(names, types, strict=True)
    }
    # Symbols that no input binds are told by one more.
    outer.add_arg(TensorType(BOOL, tuple(map(symbol, bound))), "bound")
    given = inputs | {"bound": np.zeros(tuple(bound.values()), np.bool_)}
    expected = interpret(module, given)
    return Group(module, fused, bound, inputs, list(expected.values()))


def numbers(generator: np.random.Generator, kind: TensorType) -> Array:
    """Data around 0, a few elements alike."""
    shape = static(kind.shape)
    if kind.dtype.is_bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if kind.dtype.is_float:
        return (generator.integers(-16, 17, shape) / 8).astype(kind.dtype.numpy)
    low = 0 if kind.dtype.kind == "uint" else -5
    return generator.integers(low, 6, shape).astype(kind.dtype.numpy)


def shape(random: Random, rank: int, sizes: Sequence[Dim] = (1, 2, 3, 5, 7, 0, S, T)) -> list[Dim]:
    return [random.choice(sizes) for _ in range(rank)]


def typed(dtype: DType, *dims: Dim, layout: Layout | None = None) -> TensorType:
    return TensorType(dtype, tuple(dims), layout)
