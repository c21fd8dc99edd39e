"""Runs a kernel in numpy: what compiled kernels are compared with.

Each op is computed a tile at a time, each program of the grid one after another. Accesses are
checked: one outside of its buffer, a read of an output and (`exclusive`) two programs that touch
one element of an output are mistakes of the kernel and raise a TfcError.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tfc.ir.core import Block, Kernel, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import Call, Dim, as_expr
from tfc.ir.types import DType
from tfc.tile import ops as t
from tfc.tile.reference import apply_function, cast_array, reduce_array

Array: TypeAlias = "np.ndarray[Any, Any]"


def kernel_symbols(kernel: Kernel) -> list[str]:
    """The dimension symbols that a kernel uses, in the order in which it takes their values."""
    known = {name for name, _ in kernel.grid} | {t.ROW, t.COLUMN}
    found: set[str] = set()
    for dim in _dims_of(kernel):
        found.update(as_expr(dim).symbols())
    for op in kernel.body.walk():
        if isinstance(op, t.For):
            known.add(op.index)
    return sorted(found - known)


def _dims_of(kernel: Kernel) -> Iterator[Dim]:
    for arg in kernel.body.args:
        yield arg.buffer.elements
    for _, extent in kernel.grid:
        yield extent
    for op in kernel.body.walk():
        for name, f in op.attribute_fields.items():
            if f.kind == "dim":
                yield op.attributes.get(name, f.default)
            elif f.kind == "dims":
                yield from op.attributes.get(name, f.default)


def run_kernel(
    kernel: Kernel,
    buffers: Sequence[Array],
    symbols: Mapping[str, int],
    *,
    exclusive: bool = False,
) -> None:
    """Runs every program; writes the output buffers, which are flat arrays like the others.

    Raises TfcError where `wrap_index` meets an index out of range.
    """
    for arg, array in zip(kernel.body.args, buffers, strict=True):
        elements = as_expr(arg.buffer.elements).evaluate(symbols)
        assert array.shape == (elements,), f"{arg.name} has shape {array.shape}, not ({elements},)"
        assert array.dtype == arg.buffer.dtype.numpy, f"{arg.name} holds {array.dtype}"
    extents = [max(0, as_expr(n).evaluate(symbols)) for _, n in kernel.grid]
    names = [name for name, _ in kernel.grid]
    owners = _owners(kernel, buffers) if exclusive else {}
    for number, point in enumerate(itertools.product(*map(range, extents))):
        variables = dict(symbols) | dict(zip(names, point, strict=True))
        program = _Program(variables, dict(zip(kernel.body.args, buffers, strict=True)))
        program.number, program.owners = number, owners
        with np.errstate(all="ignore"):
            program.run(kernel.body)


def _owners(kernel: Kernel, buffers: Sequence[Array]) -> dict[Value, Array]:
    """For each buffer that is written, the program that touched an element first, or -1."""
    pairs = zip(kernel.body.args, buffers, strict=True)
    return {arg: np.full(a.shape, -1) for arg, a in pairs if arg.buffer.mode != "in"}


class _Program:
    """One program of the grid: the values of its variables and tiles."""

    def __init__(self, variables: dict[str, int], buffers: dict[Value, Array]) -> None:
        self.variables = variables
        self.buffers = buffers
        self.tiles: dict[Value, Array] = {}
        self.number = 0
        self.owners: dict[Value, Array] = {}

    def run(self, block: Block) -> None:
        for op in block:
            getattr(self, f"_{op.name}")(op)

    # ---- expressions

    def _evaluate(self, dim: Dim, shape: tuple[int, int]) -> Any:
        rows = np.arange(shape[0])[:, None]
        cols = np.arange(shape[1])[None, :]
        return _evaluate(as_expr(dim), {**self.variables, t.ROW: rows, t.COLUMN: cols})

    def _inside(self, where: tuple[Dim, ...], shape: tuple[int, int]) -> Array:
        inside = np.ones(shape, bool)
        for lo, e, hi in t.bounds(where):
            value = self._evaluate(e, shape)
            inside &= (self._evaluate(lo, shape) <= value) & (value < self._evaluate(hi, shape))
        return inside

    def _positions(self, op: Op, buffer: Value, at: Any, inside: Array) -> Array:
        """The indices of the elements in bounds, checked."""
        found = np.broadcast_to(at, inside.shape)[inside]
        size = len(self.buffers[buffer])
        good = found.size == 0 or (found.min() >= 0 and found.max() < size)
        if not good:
            reach = f"{found.min()}..{found.max()}"
            raise TfcError(f"{op.name} reaches {reach} of {buffer.name}[{size}]", where=op.name)
        return found

    def _claim(self, op: Op, buffer: Value, positions: Array) -> None:
        if buffer not in self.owners:
            return
        owner = self.owners[buffer]
        taken = (owner[positions] != -1) & (owner[positions] != self.number)
        if taken.any():
            raise TfcError(f"programs share elements of {buffer.name}", where=op.name)
        owner[positions] = self.number

    # ---- memory

    def _load(self, op: t.Load) -> None:
        mode = op.buffer.buffer.mode
        if mode == "out":
            raise TfcError(f"an output is read: {op.buffer.name}", where=op.name)
        shape = op.output.tile.shape
        at = self._evaluate(op.at, shape)
        for index, stride in zip(op.indices, op.strides, strict=True):
            at = at + self.tiles[index] * self._evaluate(stride, (1, 1))
        inside = self._inside(op.where, shape)
        positions = self._positions(op, op.buffer, at, inside)
        self._claim(op, op.buffer, positions)
        tile = np.full(shape, op.other, op.output.tile.dtype.numpy)
        tile[inside] = self.buffers[op.buffer][positions]
        self.tiles[op.output] = tile

    def _store(self, op: t.Store) -> None:
        assert op.buffer.buffer.mode != "in", f"an input is written: {op.buffer.name}"
        shape = op.value.tile.shape
        inside = self._inside(op.where, shape)
        positions = self._positions(op, op.buffer, self._evaluate(op.at, shape), inside)
        self._claim(op, op.buffer, positions)
        self.buffers[op.buffer][positions] = self.tiles[op.value][inside]

    # ---- values

    def _tile_full(self, op: t.Full) -> None:
        kind = op.output.tile
        self.tiles[op.output] = np.full(kind.shape, op.value, kind.dtype.numpy)

    def _in_bounds(self, op: t.InBounds) -> None:
        self.tiles[op.output] = self._inside(op.where, op.output.tile.shape)

    def _index(self, op: t.Index) -> None:
        shape = op.output.tile.shape
        value = np.broadcast_to(self._evaluate(op.value, shape), shape)
        self.tiles[op.output] = value.astype(np.int64)

    def _map(self, op: t.Map) -> None:
        arrays = [self.tiles[v] for v in op.operand_values]
        self.tiles[op.output] = apply_function(op.function, *arrays)

    def _select(self, op: t.Select) -> None:
        condition, x, y = self.tiles[op.condition], self.tiles[op.x], self.tiles[op.y]
        self.tiles[op.output] = np.where(condition, x, y)

    def _tile_cast(self, op: t.TileCast) -> None:
        self.tiles[op.output] = cast_array(self.tiles[op.x], op.to)

    def _reduce(self, op: t.Reduce) -> None:
        self.tiles[op.output] = reduce_array(op.function, self.tiles[op.x], op.axis)

    def _dot(self, op: t.Dot) -> None:
        dtype = op.output.tile.dtype
        total = _contract(self.tiles[op.a], self.tiles[op.b], dtype)
        if op.accumulator is not None:
            total = total + self.tiles[op.accumulator]
        self.tiles[op.output] = total.astype(dtype.numpy)

    def _tile_transpose(self, op: t.Transpose) -> None:
        self.tiles[op.output] = self.tiles[op.x].T

    def _stage(self, op: t.Stage) -> None:
        self.tiles[op.output] = self.tiles[op.x]

    def _wrap_index(self, op: t.WrapIndex) -> None:
        index = self.tiles[op.x]
        size = self._evaluate(op.size, (1, 1))
        wrapped = np.where(index < 0, index + size, index)
        checked = self._inside(op.where, index.shape)
        wrong = checked & ((wrapped < 0) | (wrapped >= size))
        if wrong.any():
            first = int(index[wrong][0])
            raise TfcError(
                f"index {first} is out of range of an axis of {int(size)}", where=op.name
            )
        self.tiles[op.output] = np.where(checked, wrapped, 0)

    # ---- control

    def _for(self, op: t.For) -> None:
        start, stop = (as_expr(d).evaluate(self.variables) for d in (op.start, op.stop))
        carried = [self.tiles[v] for v in op.inits]
        outer = self.variables.get(op.index)
        for i in range(start, stop, op.step):
            self.variables[op.index] = i
            self.tiles.update(zip(op.do.args, carried, strict=True))
            self.run(op.do)
            carried = [self.tiles[v] for v in op.do.terminator.inputs]
        if outer is None:
            self.variables.pop(op.index, None)
        self.tiles.update(zip(op.results, carried, strict=True))

    def _next(self, op: t.TileYield) -> None:
        """The values are read by the loop."""


def _contract(a: Array, b: Array, dtype: DType) -> Array:
    """a @ b; floats in float64 (rounded by the caller), integers in the accumulator's type."""
    wide = np.float64 if dtype.is_float else dtype.numpy
    return a.astype(wide) @ b.astype(wide)


def _evaluate(e: Any, values: Mapping[str, Any]) -> Any:
    """The value of an expression whose symbols may be arrays."""
    total: Any = 0
    for monomial, factor in e.terms.items():
        part: Any = factor
        for atom in monomial:
            part = part * (_call(atom, values) if isinstance(atom, Call) else values[atom])
        total = total + part
    return total


_NUMPY: dict[str, Any] = {
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
}


def _call(atom: Call, values: Mapping[str, Any]) -> Any:
    """A function of expressions; a divisor of 0 gives 0, for elements that are out of bounds."""
    return _NUMPY[atom.op](_evaluate(atom.lhs, values), _evaluate(atom.rhs, values))
