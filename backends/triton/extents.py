"""How far the axes of tiles are padded: to powers of two, and to what a dot needs along its inner
axis.

Axes of values that ops join (operands and results of elementwise ops, the inner axes of a dot, what
a loop carries) are one class and have one padded extent. Axes of extent 1 broadcast and stay 1.
"""

from __future__ import annotations

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.types import I8, DType, TileType
from tfc.tile import ops as t

Axis = tuple[Value, int]
ROW, COLUMN = 0, 1


def power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


def smallest_depth(dtype: DType) -> int:
    """The least inner extent of a dot on tensor cores, for operands of a type."""
    return 32 if dtype.bits == 8 else 16


class Extents:
    """The padded extents of the tiles of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._parent: dict[Axis, Axis] = {}
        self._least: dict[Axis, int] = {}
        self._block(kernel.body)

    def padded(self, value: Value) -> tuple[int, int]:
        """The rows and columns of a value as the GPU holds it."""
        rows, cols = (self._extent((value, axis)) for axis in (ROW, COLUMN))
        return rows, cols

    def _extent(self, axis: Axis) -> int:
        n = axis[0].tile.shape[axis[1]]
        return max(power_of_two(n), self._least.get(self._find(axis), 1))

    def _find(self, axis: Axis) -> Axis:
        while axis in self._parent:
            axis = self._parent[axis]
        return axis

    def _join(self, a: Axis, b: Axis) -> None:
        """Makes two axes one class; a class of extent 1 has no needs."""
        if a[0].tile.shape[a[1]] != b[0].tile.shape[b[1]]:
            return
        a, b = self._find(a), self._find(b)
        if a != b:
            self._parent[b] = a
            self._need(a, self._least.pop(b, 1))

    def _need(self, axis: Axis, least: int) -> None:
        root = self._find(axis)
        self._least[root] = max(self._least.get(root, 1), least)

    def _same(self, a: Value, b: Value) -> None:
        self._join((a, ROW), (b, ROW))
        self._join((a, COLUMN), (b, COLUMN))

    def _block(self, block: Block) -> None:
        for op in block:
            if isinstance(op, t.Dot):
                self._dot(op)
            elif isinstance(op, t.Transpose):
                self._join((op.x, ROW), (op.output, COLUMN))
                self._join((op.x, COLUMN), (op.output, ROW))
            elif isinstance(op, t.Reduce):
                kept = ROW if op.axis == 1 else COLUMN
                self._join((op.x, kept), (op.output, kept))
            elif isinstance(op, t.For):
                self._loop(op)
            elif len(op.results) == 1:
                for value in op.inputs:
                    if isinstance(value.type, TileType):
                        self._same(value, op.result)

    def _dot(self, op: t.Dot) -> None:
        self._join((op.a, ROW), (op.output, ROW))
        self._join((op.b, COLUMN), (op.output, COLUMN))
        self._join((op.a, COLUMN), (op.b, ROW))
        if op.accumulator is not None:
            self._same(op.accumulator, op.output)
        if op.a.tile.cols > 1 and (op.a.tile.dtype.is_float or op.a.tile.dtype == I8):
            self._need((op.a, COLUMN), smallest_depth(op.a.tile.dtype))

    def _loop(self, op: t.For) -> None:
        self._block(op.do)
        yielded = op.do.terminator.inputs
        for init, arg, value, result in zip(op.inits, op.do.args, yielded, op.results, strict=True):
            for other in (arg, value, result):
                self._same(init, other)
