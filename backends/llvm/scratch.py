"""Scratch memory of a kernel: tiles that are staged or do not fit the registers.

Tiles of a program lie on the thread's stack; if all of them together are large, in memory that
the caller of the kernel provides for each task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.backends.llvm import memory
from tfc.backends.llvm.places import Place
from tfc.ir.core import Value
from tfc.ir.expr import as_expr, symbol
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering
    from tfc.backends.llvm.writer import Writer

STACK_LIMIT = 48 << 10
"""Bytes of scratch that a kernel may take from the stack, which an executor may have made small."""


class Allocator:
    """Gives out scratch memory; whether it is on the stack is decided at the end."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.blocks: list[tuple[str, int, int]] = []  # name, offset, bytes
        self.bytes = 0

    def allocate(self, size: int) -> str:
        name = self.writer.fresh("%s")
        self.blocks.append((name, self.bytes, size))
        self.bytes += -(-size // 64) * 64
        return name

    @property
    def external(self) -> bool:
        return self.bytes > STACK_LIMIT

    def definitions(self) -> list[str]:
        """The instructions at the entry of the function that name the blocks."""
        if self.external:
            return [
                f"  {name} = getelementptr i8, ptr %scratch, i64 {offset}"
                for name, offset, _ in self.blocks
            ]
        return [f"  {name} = alloca [{size} x i8], align 64" for name, _, size in self.blocks]


def place_for(lo: Lowering, value: Value) -> Place:
    """Scratch for a tile: rows one after another, each padded to whole registers."""
    if value in lo.places:
        return lo.places[value]
    kind = value.tile
    layout = lo.layout_of(value)
    line = -(-max(kind.shape) // lo.lanes) * lo.lanes if layout == 0 else _pitch(lo, value)
    lines = 1 if layout == 0 else kind.rows
    pointer = lo.scratch.allocate(line * lines * kind.dtype.bytes)
    at = symbol(t.ROW) if layout == 0 else symbol(t.ROW) * line + symbol(t.COLUMN)
    if layout is None:
        at = as_expr(0)
    lo.places[value] = Place(pointer, kind.dtype, kind.shape, at, padded=layout)
    return lo.places[value]


def _pitch(lo: Lowering, value: Value) -> int:
    """Elements from row to row. Rows whole multiples of 512 bytes apart share few cache sets."""
    kind = value.tile
    pitch = -(-kind.cols // lo.lanes) * lo.lanes
    if kind.rows > 8 and pitch * kind.dtype.bytes % 512 == 0:
        pitch += lo.lanes
    return pitch


def spill(lo: Lowering, value: Value) -> None:
    """Writes a tile from registers to scratch, where any part of it can be read."""
    layout = lo.pinned[value]
    place = place_for(lo, value)
    for at in lo.coordinates(value, layout):
        r = lo.vector(value, at, layout)
        memory.write(lo, place, r, at, layout)
    lo.ready.add(value)


def duplicate(lo: Lowering, value: Value) -> Value:
    """A copy of a tile in memory of its own."""
    from tfc.backends.llvm.tiles import write_tile

    copy = Value(value.type, value.owner, value.index)
    write_tile(lo, value, place_for(lo, copy))
    lo.ready.add(copy)
    return copy


def materialise(lo: Lowering, value: Value) -> None:
    """Computes a tile now, into scratch."""
    from tfc.backends.llvm.tiles import write_tile

    op = value.producer
    place = place_for(lo, value)
    write_tile(lo, op.x if isinstance(op, t.Stage) else value, place)
    lo.ready.add(value)
    lo.pending = [s for s in lo.pending if s.output is not value]
