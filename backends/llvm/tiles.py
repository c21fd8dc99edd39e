"""Computes whole tiles: into memory (`write_tile`) or into registers (`keep`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.backends.llvm import memory, scratch, walks
from tfc.backends.llvm.blocks import prime, transpose
from tfc.backends.llvm.places import Place, stride_along
from tfc.backends.llvm.registers import Register, element_type
from tfc.ir.core import Value
from tfc.ir.expr import Dim

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering

KEPT = 16
"""Registers of a tile that is kept in registers rather than in scratch."""


def write_tile(lo: Lowering, value: Value, place: Place) -> None:
    """Computes a tile and writes it to its place, across the lanes if its neighbours lie there."""
    shape = value.tile.shape
    lane, costly = walks.natural_lane(lo, walks.survey(lo, value), shape)
    target = _lane_of_place(lo, place, lane)
    if not costly and target is not None:
        lane = target
    found = walks.prepare(lo, value, lane, whole=True)
    if target is not None and target != lane and lane is not None:
        p = walks.Plan(lo.lanes, 1, shape[1 - lane] > 2 * lo.lanes, shape[lane] > 2 * lo.lanes)
        walks.free_lines(lo, found, p, lane)
        walks.walk(lo, shape, lane, p, lambda r, c: _write_turned(lo, value, place, lane, r, c))
    else:
        extra = 1.0 if lane is None else walks.access_cost(lo, place, lane)
        p = walks.plan(lo, found, shape, lane, extra)
        walks.free_lines(lo, found, p, lane)
        walks.walk(lo, shape, lane, p, lambda r, c: _write_block(lo, value, place, lane, r, c))
    walks.finish(lo, value)


def _lane_of_place(lo: Lowering, place: Place, preferred: int | None) -> int | None:
    """The axis along which neighbours of a place lie in memory."""
    axes = [a for a in (0, 1) if place.shape[a] > 1 and stride_along(lo, place, a) == 1]
    if preferred in axes or not axes:
        return preferred if axes else None
    return axes[0]


def _write_block(
    lo: Lowering,
    value: Value,
    place: Place,
    lane: int | None,
    rows: list[Dim],
    cols: list[Dim],
) -> None:
    prime(lo, value, rows, cols, lane)
    for r in rows:
        for c in cols:
            memory.write(lo, place, lo.pull(value, (r, c), lane), (r, c), lane)


def _write_turned(
    lo: Lowering, value: Value, place: Place, lane: int, rows: list[Dim], cols: list[Dim]
) -> None:
    """Registers for as many lines as there are lanes, transposed and written along the lines."""
    prime(lo, value, rows, cols, lane)
    lines, chunks = (rows, cols) if lane == 1 else (cols, rows)
    for chunk in chunks:
        ats = [(i, chunk) if lane == 1 else (chunk, i) for i in lines]
        vectors = [lo.vector(value, at, lane).text for at in ats]
        count = lo.valid_lanes(value.tile.shape, ats[0], lane)
        texts = transpose(lo, vectors, element_type(value.tile.dtype))
        for i in range(count):
            at = (lines[0], chunk + i) if lane == 1 else (chunk + i, lines[0])
            memory.write(lo, place, Register(texts[i], value.tile.dtype, True), at, 1 - lane)


def keep(lo: Lowering, value: Value) -> None:
    """Computes a tile now and keeps it, in registers if it is small."""
    layout = lo.layout_of(value)
    if len(lo.coordinates(value, layout)) > KEPT:
        scratch.materialise(lo, value)
        return
    walks.prepare(lo, value, layout, whole=False)
    lo.pin(value, layout, registers_of(lo, value, layout))


def registers_of(lo: Lowering, value: Value, layout: int | None) -> list[Register]:
    """All registers of a tile, computed now."""
    rows = list(dict.fromkeys(r for r, _ in lo.coordinates(value, layout)))
    cols = list(dict.fromkeys(c for _, c in lo.coordinates(value, layout)))
    prime(lo, value, rows, cols, layout)
    return [lo.vector(value, at, layout) for at in lo.coordinates(value, layout)]
