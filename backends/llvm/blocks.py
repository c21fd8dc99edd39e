"""Blocks of registers: what is better computed several registers at a time than one by one.

`prime` computes the products and the transposing loads that a block of registers needs; `pull`
then finds their registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfc.backends.llvm import arithmetic, dots, memory
from tfc.backends.llvm.places import Coordinate, Place, stride_along
from tfc.backends.llvm.registers import Register, element_type
from tfc.ir.core import Value
from tfc.ir.expr import Dim, normal
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering

INTERLEAVED = 4
"""Of the processor's registers that exp takes at once: what it computes with fits the others."""


def prime(
    lo: Lowering, value: Value, rows: Sequence[Dim], cols: Sequence[Dim], lane: int | None
) -> None:
    """Prepares the registers that start at these rows and columns; the lines are neighbours."""
    shape = value.tile.shape
    rows = [0] if shape[0] == 1 else rows
    cols = [0] if shape[1] == 1 else cols
    if lane is not None and shape[lane] == 1:
        lane = None
    if value in lo.ready:
        _prime_read(lo, value, lo.places[value], rows, cols, lane)
        return
    op = value.producer
    if value in lo.pinned or op is None:
        return
    match op:
        case t.Load():
            for index in op.indices:
                prime(lo, index, rows, cols, lane)
            _prime_read(lo, value, lo.place_of(op), rows, cols, lane)
        case t.Map() | t.Select() | t.TileCast() | t.Stage():
            for v in op.inputs:
                prime(lo, v, rows, cols, lane)
            if isinstance(op, t.Map) and lane is not None:
                _prime_function(lo, op, [(r, c) for r in rows for c in cols], lane)
        case t.Transpose():
            prime(lo, op.x, cols, rows, None if lane is None else 1 - lane)
        case t.Dot():
            lines, chunks = (cols, rows) if lane == 0 else (rows, cols)
            if lo.writer.get((value, rows[0], cols[0], lane)) is None:
                dots.compute(lo, op, lines, chunks, lane)
        case _:
            pass


def _prime_function(lo: Lowering, op: t.Map, places: Sequence[Coordinate], lane: int) -> None:
    """exp of several registers in one call, so that their instructions take turns.

    One after another, each a chain of instructions that wait for each other, they would fill the
    processor's scheduler: softmax 1537x128 123 us, so 107. AVX-512's exp is short, and left alone.
    """
    together = INTERLEAVED // lo.registers_of(op.output.tile.dtype)
    if op.function != "exp" or lo.target.avx512 or together < 2:
        return
    for start in range(0, len(places) - together + 1, together):
        part = places[start : start + together]
        operands = [lo.pull(op.operand_values[0], at, lane) for at in part]
        found = arithmetic.apply_together(lo.vectors, lo.function_of(op), operands, needed=lo.math)
        for at, r in zip(part, found, strict=True):
            lo.remember(op.output, at, lane, r)


def turns(lo: Lowering, place: Place, lane: int) -> bool:
    """Whether neighbours in memory lie along the other axis than the lanes."""
    if place.offsets or min(place.shape) == 1:
        return False
    return stride_along(lo, place, lane) != 1 and stride_along(lo, place, 1 - lane) == 1


def _prime_read(
    lo: Lowering,
    value: Value,
    place: Place,
    rows: Sequence[Dim],
    cols: Sequence[Dim],
    lane: int | None,
) -> None:
    """Reads along the other axis and transposes in registers."""
    if lane is None or not turns(lo, place, lane):
        return
    lines, chunks = (cols, rows) if lane == 0 else (rows, cols)
    if len(lines) < 2:
        return
    for start in range(0, len(lines), lo.lanes):
        part = lines[start : start + lo.lanes]
        for chunk in chunks:
            found = _transposed(lo, place, part[0], chunk, lane)
            for line, r in zip(part, found, strict=False):
                lo.remember(value, _at(lane, line, chunk), lane, r)


def _at(lane: int, line: Dim, chunk: Dim) -> Coordinate:
    return (line, chunk) if lane == 1 else (chunk, line)


def _transposed(lo: Lowering, place: Place, line: Dim, chunk: Dim, lane: int) -> list[Register]:
    """Registers for as many lines as there are lanes, from vectors that lie across them."""
    count = lo.valid_lanes(place.shape, _at(lane, line, chunk), lane)
    vectors = [
        memory.read(lo, place, _at(lane, line, normal(chunk + i)), 1 - lane) for i in range(count)
    ]
    texts = transpose(lo, [lo.vectors.splat(r) for r in vectors], element_type(place.dtype))
    return [Register(text, place.dtype, True) for text in texts]


def transpose(lo: Lowering, vectors: list[str], element: str) -> list[str]:
    """Lane j of vector i becomes lane i of vector j, in rounds of pairwise interleaving."""
    n = lo.lanes
    kind = f"<{n} x {element}>"
    current = vectors + ["zeroinitializer"] * (n - len(vectors))
    width = 1
    while width < n:
        low = [j + n - width if j & width else j for j in range(n)]
        high = [j + n if j & width else j + width for j in range(n)]
        following = list(current)
        for i in range(n):
            if i & width:
                continue
            a, b = current[i], current[i | width]
            for target, lanes in ((i, low), (i | width, high)):
                mask = ", ".join(f"i32 {j}" for j in lanes)
                following[target] = lo.writer.pure(
                    f"shufflevector {kind} {a}, {kind} {b}, <{n} x i32> <{mask}>"
                )
        current = following
        width *= 2
    return current
