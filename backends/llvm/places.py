"""Where the elements of tiles lie in memory: addresses of registers, and what guards an access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tfc.backends.llvm.indices import LANE_SYMBOL, lane_stride, without_lane
from tfc.backends.llvm.registers import memory_type
from tfc.ir.core import Value
from tfc.ir.expr import Call, Dim, Expr, as_expr, normal
from tfc.ir.types import BOOL, DType
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.bounds import Bound
    from tfc.backends.llvm.lowering import Lowering

Coordinate: TypeAlias = "tuple[Dim, Dim]"
"""Row and column of the first element of a register: integers, or expressions of loop counters."""


SPARE_BYTES = 1024
"""Memory for accesses that are out of bounds: 64 elements and a register of the widest kind."""
SPARE_REACH = 64
"""Elements of spare memory that constant parts of addresses may go over, besides one register."""


@dataclass(frozen=True, eq=False)
class Place:
    """Where the elements of a tile lie: element (r, c) is `pointer[at(r, c) + offsets]`.

    `padded`: the axis along which whole registers may be read and written beyond the tile's
    extent (scratch). `clamps`: the bounds that edge programs meet by clamping the index of an
    axis.
    """

    pointer: str
    dtype: DType
    shape: tuple[int, int]
    at: Expr
    bounds: tuple[Bound, ...] = ()
    other: Any = 0
    offsets: tuple[tuple[Value, Expr], ...] = ()
    padded: int | None = None
    clamps: Mapping[int, tuple[Bound, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Guard:
    """What must hold for an access: of the register as a whole, and of each lane."""

    condition: str | None
    mask: str | None


def count_of(lo: Lowering, place: Place, at: Coordinate, lane: int | None) -> int:
    """How many lanes of a register may be touched."""
    if lane is not None and place.padded == lane:
        return lo.lanes
    return lo.valid_lanes(place.shape, at, lane)


# ---- addresses


def linear_parts(e: Expr) -> tuple[Expr, Expr, Expr] | None:
    """e = base + rows * r + columns * c, or None where it is not of that form."""
    parts: tuple[dict[Any, int], ...] = ({}, {}, {})
    for monomial, factor in e.terms.items():
        names = [a for a in monomial if a in (t.ROW, t.COLUMN)]
        inside = any(isinstance(a, Call) and not _free(a) for a in monomial)
        if inside or len(names) > 1:
            return None
        which = 0 if not names else 1 if names[0] == t.ROW else 2
        parts[which][tuple(a for a in monomial if a not in names)] = factor
    return Expr(parts[0]), Expr(parts[1]), Expr(parts[2])


def _free(call: Call) -> bool:
    return all(a not in (t.ROW, t.COLUMN) for e in (call.lhs, call.rhs) for a in e.atoms())


def address_at(lo: Lowering, e: Expr, at: Coordinate, lane: int | None) -> Expr:
    """An expression over r and c at a coordinate; over LANE if the register is a vector."""
    key = ("settled", e)
    found = lo.writer.get(key)
    if found is None:
        settled = lo.indices.settle(e)
        found = lo.writer.put(key, (settled, linear_parts(settled)))
    settled, parts = found
    if parts is not None:
        base, rows, columns = parts
        moved = base
        for axis, stride in ((0, rows), (1, columns)):
            if stride.terms:
                moved = moved + stride * at[axis]
                if axis == lane:
                    moved = moved + stride * LANE_SYMBOL
        return moved
    places: list[Dim] = list(at)
    if lane is not None:
        places[lane] = LANE_SYMBOL + places[lane]
    return lo.indices.settle(settled, {t.ROW: places[0], t.COLUMN: places[1]})


def stride_along(lo: Lowering, place: Place, axis: int) -> int | Expr | None:
    """How far apart neighbours along an axis lie, by the first register; None if irregular."""
    if any(v.tile.shape[axis] > 1 for v, _ in place.offsets):
        return None
    return lane_stride(address_at(lo, place.at, (0, 0), axis))


def pointer_to(
    lo: Lowering,
    place: Place,
    e: Expr,
    offset: str | None = None,
    condition: str | None = None,
    spare: str = "",
) -> str:
    """The address of an element, or one in spare memory where the condition fails.

    The constant part comes last: the registers of a tile share one base, and one choice of it.
    """
    constant = e.terms.get((), 0)
    variable = e - constant
    kind = memory_type(place.dtype)
    pointer = place.pointer
    if variable.terms:
        index = lo.indices.value(variable)
        text = f"getelementptr {kind}, ptr {pointer}, i64 {index}"
        pointer = lo.writer.value_at(lo.indices.depth(variable), text)
    if offset is not None:
        pointer = lo.writer.pure(f"getelementptr {kind}, ptr {pointer}, i64 {offset}")
    if condition is not None:
        far, constant = constant - constant % SPARE_REACH, constant % SPARE_REACH
        if far:
            pointer = lo.writer.pure(f"getelementptr {kind}, ptr {pointer}, i64 {far}")
        pointer = lo.writer.pure(f"select i1 {condition}, ptr {pointer}, ptr {spare}")
    if constant:
        pointer = lo.writer.pure(f"getelementptr {kind}, ptr {pointer}, i64 {constant}")
    return pointer


def offsets_of(
    lo: Lowering, place: Place, at: Coordinate, lane: int | None
) -> tuple[str | None, str | None]:
    """The sum of index tiles times strides: a scalar, and a vector of what differs by lane."""
    scalar: str | None = None
    vector: str | None = None
    for value, stride in place.offsets:
        r = lo.pull(value, at, lane)
        factor = lo.indices.value(lo.indices.settle(stride))
        if r.vector:
            kind = lo.vectors.type_text("i64", True)
            part = lo.writer.pure(f"mul {kind} {r.text}, {lo.vectors.splat_text(factor, 'i64')}")
            vector = part if vector is None else lo.writer.pure(f"add {kind} {vector}, {part}")
        else:
            part = lo.writer.pure(f"mul i64 {r.text}, {factor}")
            scalar = part if scalar is None else lo.writer.pure(f"add i64 {scalar}, {part}")
    return scalar, vector


# ---- bounds


def clamped(lo: Lowering, place: Place, at: Coordinate, lane: int | None) -> Coordinate:
    """The coordinate with rows that are out of bounds exchanged for the last valid one."""
    places: list[Dim] = list(at)
    for axis, bounds in place.clamps.items():
        if axis == lane:
            continue
        for b in bounds:
            if lo.is_active(b):
                name = (t.ROW, t.COLUMN)[axis]
                limit = lo.indices.settle(b.high - 1 - b.value.substitute({name: 0}))
                places[axis] = normal(as_expr(places[axis]).min(limit))
    return places[0], places[1]


def guard_of(lo: Lowering, place: Place, at: Coordinate, lane: int | None, count: int) -> Guard:
    """The conditions of an access of `count` lanes."""
    condition: str | None = None
    mask: str | None = None
    skipped = {b for a, bounds in place.clamps.items() if a != lane for b in bounds}
    for b in place.bounds:
        if not lo.is_active(b) or b in skipped:
            continue
        for side in (b.value - b.low, b.high - 1 - b.value):
            e = address_at(lo, side, at, lane)
            stride = lane_stride(e)
            if stride == 0:
                condition = both(lo, condition, _scalar_test(lo, e), "i1")
            else:
                kind = lo.vectors.type_text("i1", True)
                mask = both(lo, mask, _lane_test(lo, e, stride), kind)
    if lane is not None and count < lo.lanes and mask is not None:
        kind = lo.vectors.type_text("i1", True)
        mask = both(lo, mask, lo.vectors.first_lanes(count), kind)
    return Guard(condition, mask)


def inside(
    lo: Lowering, bounds: Sequence[Bound], shape: tuple[int, int], at: Coordinate, lane: int | None
) -> str | None:
    """Where bounds hold and the tile has elements, as a mask or (without lanes) a condition."""
    place = Place("", BOOL, shape, as_expr(0), tuple(bounds))
    count = lo.valid_lanes(shape, at, lane)
    guard = guard_of(lo, place, at, lane, count)
    if lane is None:
        return guard.condition
    if guard.mask is None and count < lo.lanes:
        guard = Guard(guard.condition, lo.vectors.first_lanes(count))
    return lanes_mask(lo, guard)


def both(lo: Lowering, x: str | None, y: str | None, kind: str) -> str | None:
    if x is None or y is None:
        return y if x is None else x
    return lo.writer.pure(f"and {kind} {x}, {y}")


def _scalar_test(lo: Lowering, e: Expr) -> str | None:
    """e >= 0, or None where it always holds."""
    if lo.indices.at_least(e, 0):
        return None
    value = lo.indices.value(e)
    return lo.writer.value_at(lo.indices.depth(e), f"icmp sge i64 {value}, 0")


def _lane_test(lo: Lowering, e: Expr, stride: int | Expr | None) -> str | None:
    """The lanes in which e >= 0."""
    if not isinstance(stride, int):
        kind = lo.vectors.type_text("i64", True)
        return lo.writer.pure(f"icmp sge {kind} {lo.indices.vector(e)}, zeroinitializer")
    # e grows (or falls) by the stride from lane to lane: the lanes form a run.
    first = without_lane(e)
    if lo.indices.at_least(first + min(0, stride * (lo.lanes - 1)), 0):
        return None
    if stride > 0:
        start = lo.indices.settle((-first + (stride - 1)) // stride)
        return _run_test(lo, "uge", start)
    return _run_test(lo, "ult", lo.indices.settle(first // -stride + 1))


def _run_test(lo: Lowering, predicate: str, end: Expr) -> str:
    """Compares the number of each lane with an end, which is first brought into 0..lanes."""
    depth = lo.indices.depth(end)
    count = lo.indices.value(end.max(0).min(lo.lanes))
    narrow = lo.writer.value_at(depth, f"trunc i64 {count} to i32") if count[0] == "%" else count
    kind = lo.vectors.type_text("i32", True)
    ends = lo.vectors.splat_text(narrow, "i32")
    return lo.writer.pure(f"icmp {predicate} {kind} {lo.vectors.iota('i32')}, {ends}")


def lanes_mask(lo: Lowering, guard: Guard) -> str | None:
    """Both conditions as a mask of lanes."""
    if guard.condition is None:
        return guard.mask
    whole = lo.vectors.splat_text(guard.condition, "i1")
    return both(lo, whole, guard.mask, lo.vectors.type_text("i1", True))
