"""Reads of lanes that lie a few elements apart: whole vectors, and shuffles that pick the lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.backends.llvm.places import SPARE_BYTES, SPARE_REACH
from tfc.backends.llvm.registers import memory_type

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering
    from tfc.ir.types import DType

FARTHEST = 4
"""Elements between lanes up to which whole vectors are read."""


def can_read(lo: Lowering, dtype: DType, stride: int, count: int, mask: str | None) -> bool:
    """Whether `read` may be used: it must not touch what lies beyond the first and last lane."""
    reach = (SPARE_REACH + abs(stride) * lo.lanes) * dtype.bytes
    if not (stride == -1 or 2 <= abs(stride) <= FARTHEST) or reach > SPARE_BYTES:
        return False
    if mask is not None:
        return lo.can_mask(dtype)
    return abs(stride) * (count - 1) + 1 >= lo.lanes


def read(
    lo: Lowering, dtype: DType, pointer: str, stride: int, count: int, mask: str | None
) -> str:
    """`count` lanes from a pointer to the lane at the lowest address; the others hold anything.

    The result has the type that elements have in memory.
    """
    span = abs(stride) * (count - 1) + 1
    element = memory_type(dtype)
    starts = list(range(0, span, lo.lanes))
    if mask is None:
        starts[-1] = span - lo.lanes
    places = [abs(stride) * (i if stride > 0 else count - 1 - i) for i in range(count)]
    vectors: list[str] = []
    for start in starts:
        at = pointer
        if start:
            at = lo.writer.pure(f"getelementptr {element}, ptr {pointer}, i64 {start}")
        vectors.append(_vector(lo, dtype, at, mask, [p - start for p in places]))
    return _merged(lo, element, vectors, starts, places)


def _vector(lo: Lowering, dtype: DType, pointer: str, mask: str | None, places: list[int]) -> str:
    """One vector; with a mask, only the elements that are lanes that count."""
    from tfc.backends.llvm.memory import masked_load

    kind = f"<{lo.lanes} x {memory_type(dtype)}>"
    if mask is None:
        return lo.writer.value(f"load {kind}, ptr {pointer}, align {dtype.bytes}")
    lane_of = {place: lane for lane, place in enumerate(places)}
    picked = ", ".join(f"i32 {lane_of.get(i, lo.lanes)}" for i in range(lo.lanes))
    bits = f"<{lo.lanes} x i1>"
    wanted = lo.writer.pure(
        f"shufflevector {bits} {mask}, {bits} zeroinitializer, <{lo.lanes} x i32> <{picked}>"
    )
    return masked_load(lo, dtype, pointer, wanted, 0)


def _merged(
    lo: Lowering, element: str, vectors: list[str], starts: list[int], places: list[int]
) -> str:
    """The lanes, each from the vector that holds its place."""
    kind = f"<{lo.lanes} x {element}>"
    current = "zeroinitializer"
    done: set[int] = set()
    for vector, start in zip(vectors, starts, strict=True):
        picked = list(range(lo.lanes))
        for lane, place in enumerate(places):
            if lane not in done and 0 <= place - start < lo.lanes:
                picked[lane] = lo.lanes + place - start
                done.add(lane)
        lanes = ", ".join(f"i32 {i}" for i in picked)
        text = f"{kind} {current}, {kind} {vector}, <{lo.lanes} x i32> <{lanes}>"
        current = lo.writer.pure(f"shufflevector {text}")
    return current
