"""Reads and writes registers of tiles: vectors where lanes are neighbours, else lane by lane.

No access leaves its buffer. What is out of bounds is masked where the processor can; else its
address is exchanged for that of a spare place, so that no branch is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tfc.backends.llvm.indices import LANE_SYMBOL, lane_stride, without_lane
from tfc.backends.llvm.registers import Register, element_type, literal, memory_type
from tfc.ir.core import Value
from tfc.ir.expr import Call, Dim, Expr, as_expr, normal
from tfc.ir.types import BOOL, DType
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.bounds import Bound
    from tfc.backends.llvm.lowering import Lowering

Coordinate: TypeAlias = "tuple[Dim, Dim]"
"""Row and column of the first element of a register: integers, or expressions of loop counters."""


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


def _count(lo: Lowering, place: Place, at: Coordinate, lane: int | None) -> int:
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


def _at(lo: Lowering, e: Expr, at: Coordinate, lane: int | None) -> Expr:
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
    return lane_stride(_at(lo, place.at, (0, 0), axis))


def _pointer(lo: Lowering, place: Place, e: Expr, offset: str | None = None) -> str:
    """The constant part of an address comes last: the registers of a tile share one base."""
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
    if constant:
        pointer = lo.writer.pure(f"getelementptr {kind}, ptr {pointer}, i64 {constant}")
    return pointer


def _offsets(
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


def _clamped(lo: Lowering, place: Place, at: Coordinate, lane: int | None) -> Coordinate:
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


def _guard(lo: Lowering, place: Place, at: Coordinate, lane: int | None, count: int) -> Guard:
    """The conditions of an access of `count` lanes."""
    condition: str | None = None
    mask: str | None = None
    skipped = {b for a, bounds in place.clamps.items() if a != lane for b in bounds}
    for b in place.bounds:
        if not lo.is_active(b) or b in skipped:
            continue
        for side in (b.value - b.low, b.high - 1 - b.value):
            e = _at(lo, side, at, lane)
            stride = lane_stride(e)
            if stride == 0:
                condition = _both(lo, condition, _scalar_test(lo, e), "i1")
            else:
                kind = lo.vectors.type_text("i1", True)
                mask = _both(lo, mask, _lane_test(lo, e, stride), kind)
    if lane is not None and count < lo.lanes and mask is not None:
        kind = lo.vectors.type_text("i1", True)
        mask = _both(lo, mask, lo.vectors.first_lanes(count), kind)
    return Guard(condition, mask)


def inside(
    lo: Lowering, bounds: Sequence[Bound], shape: tuple[int, int], at: Coordinate, lane: int | None
) -> str | None:
    """Where bounds hold and the tile has elements, as a mask or (without lanes) a condition."""
    place = Place("", BOOL, shape, as_expr(0), tuple(bounds))
    count = lo.valid_lanes(shape, at, lane)
    guard = _guard(lo, place, at, lane, count)
    if lane is None:
        return guard.condition
    if guard.mask is None and count < lo.lanes:
        guard = Guard(guard.condition, lo.vectors.first_lanes(count))
    return _lanes_mask(lo, guard)


def _both(lo: Lowering, x: str | None, y: str | None, kind: str) -> str | None:
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


# ---- reads


def read(lo: Lowering, place: Place, at: Coordinate, lane: int | None) -> Register:
    """One register of a tile; lanes beyond its extent hold anything."""
    at = _clamped(lo, place, at, lane)
    count = _count(lo, place, at, lane)
    guard = _guard(lo, place, at, lane, count)
    address = _at(lo, place.at, at, lane)
    scalar, vector = _offsets(lo, place, at, lane)
    stride = lane_stride(address) if lane is not None and vector is None else None
    if lane is None or stride == 0:
        return _read_scalar(lo, place, _pointer(lo, place, without_lane(address), scalar), guard)
    if stride == 1:
        pointer = _pointer(lo, place, without_lane(address), scalar)
        return _read_vector(lo, place, pointer, guard, count)
    return _read_lanes(lo, place, address, scalar, vector, guard, count)


def _load_scalar(lo: Lowering, dtype: DType, pointer: str) -> str:
    kind = memory_type(dtype)
    text = lo.writer.value(f"load {kind}, ptr {pointer}, align {dtype.bytes}")
    return lo.writer.value(f"icmp ne i8 {text}, 0") if dtype == BOOL else text


def _read_scalar(lo: Lowering, place: Place, pointer: str, guard: Guard) -> Register:
    """A scalar; with a mask of lanes it is read if any lane counts."""
    condition = guard.condition
    if guard.mask is not None:
        condition = _both(lo, condition, lo.vectors.any(guard.mask), "i1")
    if condition is not None:
        pointer = lo.writer.value(f"select i1 {condition}, ptr {pointer}, ptr {lo.spare_zeros()}")
    text = _load_scalar(lo, place.dtype, pointer)
    other = literal(place.other, place.dtype)
    kind = element_type(place.dtype)
    if guard.condition is not None:
        text = lo.vectors.select(guard.condition, kind, text, other, False)
    if guard.mask is None:
        return Register(text, place.dtype, False)
    return _or_other(lo, place, lo.vectors.splat_text(text, kind), guard.mask)


def _or_other(lo: Lowering, place: Place, text: str, mask: str) -> Register:
    kind = lo.vectors.type(place.dtype, True)
    other = lo.vectors.constant(place.other, place.dtype, True)
    return Register(lo.vectors.select(mask, kind, text, other, True), place.dtype, True)


def _read_vector(lo: Lowering, place: Place, pointer: str, guard: Guard, count: int) -> Register:
    dtype, kind = place.dtype, memory_type(place.dtype)
    mask = guard.mask
    if guard.condition is not None:
        spare = lo.spare_zeros()
        pointer = lo.writer.value(f"select i1 {guard.condition}, ptr {pointer}, ptr {spare}")
    if mask is None and count < lo.lanes and count & (count - 1) and lo.can_mask(dtype):
        mask = lo.vectors.first_lanes(count)
    if mask is None:
        text = _load_first(lo, kind, pointer, count, dtype.bytes)
    elif lo.can_mask(dtype):
        text = _masked_load(lo, dtype, pointer, mask, place.other)
    else:
        lanes = [
            lo.writer.pure(f"getelementptr {kind}, ptr {pointer}, i64 {i}") for i in range(count)
        ]
        return _read_pointers(lo, place, lanes, Guard(guard.condition, mask))
    if dtype == BOOL:
        text = lo.writer.value(f"icmp ne <{lo.lanes} x i8> {text}, zeroinitializer")
    if guard.condition is None:
        return Register(text, dtype, True)
    return _or_other(lo, place, text, lo.vectors.splat_text(guard.condition, "i1"))


def _load_first(lo: Lowering, kind: str, pointer: str, count: int, align: int) -> str:
    """The first lanes of a vector; LLVM's passes do not know vectors of one lane."""
    if count == 1:
        scalar = lo.writer.value(f"load {kind}, ptr {pointer}, align {align}")
        return lo.vectors.gather([scalar], kind)
    text = lo.writer.value(f"load <{count} x {kind}>, ptr {pointer}, align {align}")
    return lo.vectors.widened(text, kind, count)


def _masked_load(lo: Lowering, dtype: DType, pointer: str, mask: str, other: Any) -> str:
    element = memory_type(dtype)
    kind = f"<{lo.lanes} x {element}>"
    name = f"llvm.masked.load.{lo.vectors.suffix(element, True)}.p0"
    lo.writer.declare(f"{kind} @{name}(ptr, i32, <{lo.lanes} x i1>, {kind})")
    passed = "zeroinitializer"
    if other:
        text = "1" if dtype == BOOL else literal(other, dtype)
        passed = lo.vectors.fill(text, element, True)
    return lo.writer.value(
        f"call {kind} @{name}(ptr {pointer}, i32 {dtype.bytes}, "
        f"<{lo.lanes} x i1> {mask}, {kind} {passed})"
    )


def _lane_pointers(
    lo: Lowering, place: Place, address: Expr, scalar: str | None, vector: str | None, count: int
) -> list[str]:
    """The address of each lane."""
    stride = lane_stride(address)
    if vector is None and stride is not None:
        first = without_lane(address)
        return [_pointer(lo, place, first + as_expr(stride) * i, scalar) for i in range(count)]
    kind = lo.vectors.type_text("i64", True)
    index = lo.indices.vector(address)
    if vector is not None:
        index = lo.writer.pure(f"add {kind} {index}, {vector}")
    base = place.pointer
    element = memory_type(place.dtype)
    if scalar is not None:
        base = lo.writer.pure(f"getelementptr {element}, ptr {base}, i64 {scalar}")
    out: list[str] = []
    for i in range(count):
        offset = lo.writer.pure(f"extractelement {kind} {index}, i64 {i}")
        out.append(lo.writer.pure(f"getelementptr {element}, ptr {base}, i64 {offset}"))
    return out


def _read_lanes(
    lo: Lowering,
    place: Place,
    address: Expr,
    scalar: str | None,
    vector: str | None,
    guard: Guard,
    count: int,
) -> Register:
    pointers = _lane_pointers(lo, place, address, scalar, vector, count)
    return _read_pointers(lo, place, pointers, guard)


def _read_pointers(lo: Lowering, place: Place, pointers: list[str], guard: Guard) -> Register:
    """Lane by lane; a lane out of bounds reads a spare place."""
    mask = _lanes_mask(lo, guard)
    scalars: list[str] = []
    for i, pointer in enumerate(pointers):
        if mask is not None:
            pointer = _select_pointer(lo, mask, i, pointer, lo.spare_zeros())
        scalars.append(_load_scalar(lo, place.dtype, pointer))
    text = lo.vectors.gather(scalars, element_type(place.dtype))
    if mask is None:
        return Register(text, place.dtype, True)
    return _or_other(lo, place, text, mask)


def _lanes_mask(lo: Lowering, guard: Guard) -> str | None:
    """Both conditions as a mask of lanes."""
    if guard.condition is None:
        return guard.mask
    whole = lo.vectors.splat_text(guard.condition, "i1")
    return _both(lo, whole, guard.mask, lo.vectors.type_text("i1", True))


def _select_pointer(lo: Lowering, mask: str, lane: int, pointer: str, spare: str) -> str:
    kind = lo.vectors.type_text("i1", True)
    inside = lo.writer.pure(f"extractelement {kind} {mask}, i64 {lane}")
    return lo.writer.value(f"select i1 {inside}, ptr {pointer}, ptr {spare}")


# ---- writes


def write(lo: Lowering, place: Place, r: Register, at: Coordinate, lane: int | None) -> None:
    """Stores the lanes of a register that are in bounds."""
    count = _count(lo, place, at, lane)
    guard = _guard(lo, place, at, lane, count)
    address = _at(lo, place.at, at, lane)
    if lane is None:
        pointer = _pointer(lo, place, address)
        if guard.condition is not None:
            spare = lo.spare_room()
            pointer = lo.writer.value(f"select i1 {guard.condition}, ptr {pointer}, ptr {spare}")
        _store_scalar(lo, place.dtype, r.text, pointer)
    elif lane_stride(address) == 1:
        pointer = _pointer(lo, place, without_lane(address))
        _write_vector(lo, place, lo.vectors.splat(r), pointer, guard, count)
    else:
        pointers = _lane_pointers(lo, place, address, None, None, count)
        whole = Register(lo.vectors.splat(r), r.dtype, True)
        _write_pointers(lo, place.dtype, whole, pointers, guard)


def _store_scalar(lo: Lowering, dtype: DType, text: str, pointer: str) -> None:
    if dtype == BOOL:
        text = lo.writer.pure(f"zext i1 {text} to i8")
    lo.writer.do(f"store {memory_type(dtype)} {text}, ptr {pointer}, align {dtype.bytes}")


def _write_vector(
    lo: Lowering, place: Place, text: str, pointer: str, guard: Guard, count: int
) -> None:
    dtype, kind = place.dtype, memory_type(place.dtype)
    if dtype == BOOL:
        text = lo.writer.pure(f"zext <{lo.lanes} x i1> {text} to <{lo.lanes} x i8>")
    if guard.condition is not None:
        spare = lo.spare_room()
        pointer = lo.writer.value(f"select i1 {guard.condition}, ptr {pointer}, ptr {spare}")
    mask = guard.mask
    if mask is None and count < lo.lanes and count & (count - 1) and lo.can_mask(dtype):
        mask = lo.vectors.first_lanes(count)
    if mask is None:
        narrow = f"<{count} x {kind}>" if count > 1 else kind
        text = lo.vectors.narrowed(text, kind, count)
        lo.writer.do(f"store {narrow} {text}, ptr {pointer}, align {dtype.bytes}")
    elif lo.can_mask(dtype):
        whole = f"<{lo.lanes} x {kind}>"
        name = f"llvm.masked.store.{lo.vectors.suffix(kind, True)}.p0"
        lo.writer.declare(f"void @{name}({whole}, ptr, i32, <{lo.lanes} x i1>)")
        lo.writer.do(
            f"call void @{name}({whole} {text}, ptr {pointer}, i32 {dtype.bytes}, "
            f"<{lo.lanes} x i1> {mask})"
        )
    else:
        lanes = [
            lo.writer.pure(f"getelementptr {kind}, ptr {pointer}, i64 {i}") for i in range(count)
        ]
        _write_elements(lo, kind, dtype, text, lanes, mask)


def _write_pointers(
    lo: Lowering, dtype: DType, r: Register, pointers: list[str], guard: Guard
) -> None:
    text, kind = r.text, memory_type(dtype)
    if dtype == BOOL:
        text = lo.writer.pure(f"zext <{lo.lanes} x i1> {text} to <{lo.lanes} x i8>")
    _write_elements(lo, kind, dtype, text, pointers, _lanes_mask(lo, guard))


def _write_elements(
    lo: Lowering, kind: str, dtype: DType, text: str, pointers: list[str], mask: str | None
) -> None:
    """Lane by lane; a lane out of bounds goes to a spare place."""
    for i, pointer in enumerate(pointers):
        if mask is not None:
            pointer = _select_pointer(lo, mask, i, pointer, lo.spare_room())
        element = lo.writer.pure(f"extractelement <{lo.lanes} x {kind}> {text}, i64 {i}")
        lo.writer.do(f"store {kind} {element}, ptr {pointer}, align {dtype.bytes}")
