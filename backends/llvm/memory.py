"""Reads and writes registers of tiles: vectors where lanes are neighbours, else lane by lane.

No access leaves its buffer. What is out of bounds is masked where the processor can; else its
address is exchanged for that of a spare place, so that no branch is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfc.backends.llvm import strided
from tfc.backends.llvm.indices import lane_stride, without_lane
from tfc.backends.llvm.places import (
    Coordinate,
    Guard,
    Place,
    address_at,
    both,
    clamped,
    count_of,
    guard_of,
    lanes_mask,
    offsets_of,
    pointer_to,
)
from tfc.backends.llvm.registers import Register, element_type, literal, memory_type
from tfc.ir.expr import Expr, as_expr
from tfc.ir.types import BOOL, DType

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering

# ---- reads


def read(lo: Lowering, place: Place, at: Coordinate, lane: int | None) -> Register:
    """One register of a tile; lanes beyond its extent hold anything."""
    at = clamped(lo, place, at, lane)
    count = count_of(lo, place, at, lane)
    guard = guard_of(lo, place, at, lane, count)
    address = address_at(lo, place.at, at, lane)
    scalar, vector = offsets_of(lo, place, at, lane)
    stride = lane_stride(address) if lane is not None and vector is None else None
    if lane is None or stride == 0:
        return _read_scalar(lo, place, without_lane(address), scalar, guard)
    if stride == 1:
        spare = lo.spare_zeros()
        first = without_lane(address)
        pointer = pointer_to(lo, place, first, scalar, guard.condition, spare)
        return _read_vector(lo, place, pointer, guard, count)
    if isinstance(stride, int) and strided.can_read(lo, place.dtype, stride, count, guard.mask):
        return _read_strided(lo, place, address, scalar, stride, guard, count)
    return _read_lanes(lo, place, address, scalar, vector, guard, count)


def _load_scalar(lo: Lowering, dtype: DType, pointer: str) -> str:
    kind = memory_type(dtype)
    text = lo.writer.value(f"load {kind}, ptr {pointer}, align {dtype.bytes}")
    return lo.writer.value(f"icmp ne i8 {text}, 0") if dtype == BOOL else text


def _read_scalar(
    lo: Lowering, place: Place, address: Expr, offset: str | None, guard: Guard
) -> Register:
    """A scalar; with a mask of lanes it is read if any lane counts."""
    condition = guard.condition
    if guard.mask is not None:
        condition = both(lo, condition, lo.vectors.any(guard.mask), "i1")
    pointer = pointer_to(lo, place, address, offset, condition, lo.spare_zeros())
    text = _load_scalar(lo, place.dtype, pointer)
    kind = element_type(place.dtype)
    if guard.mask is not None:
        return _or_other(lo, place, lo.vectors.splat_text(text, kind), lanes_mask(lo, guard))
    if guard.condition is not None and not _is_zero(place.other):
        other = literal(place.other, place.dtype)
        text = lo.vectors.select(guard.condition, kind, text, other, False)
    return Register(text, place.dtype, False)


def _is_zero(other: float | int | bool) -> bool:
    """Whether spare memory holds the value already: zero, and not -0.0."""
    return str(other) in ("0", "0.0", "False")


def _or_other(lo: Lowering, place: Place, text: str, mask: str | None) -> Register:
    """A vector with the place's other value in the lanes that do not count."""
    if mask is None:
        return Register(text, place.dtype, True)
    kind = lo.vectors.type(place.dtype, True)
    other = lo.vectors.constant(place.other, place.dtype, True)
    return Register(lo.vectors.select(mask, kind, text, other, True), place.dtype, True)


def _read_vector(lo: Lowering, place: Place, pointer: str, guard: Guard, count: int) -> Register:
    dtype, kind = place.dtype, memory_type(place.dtype)
    mask = guard.mask
    if mask is None and count < lo.lanes and count & (count - 1) and lo.can_mask(dtype):
        mask = lo.vectors.first_lanes(count)
    if mask is None:
        text = _load_first(lo, kind, pointer, count, dtype.bytes)
    elif lo.can_mask(dtype):
        text = masked_load(lo, dtype, pointer, mask, place.other)
    else:
        lanes = [
            lo.writer.pure(f"getelementptr {kind}, ptr {pointer}, i64 {i}") for i in range(count)
        ]
        return _read_pointers(lo, place, lanes, Guard(guard.condition, mask))
    if dtype == BOOL:
        text = lo.writer.value(f"icmp ne <{lo.lanes} x i8> {text}, zeroinitializer")
    if guard.condition is None or _is_zero(place.other):
        return Register(text, dtype, True)
    return _or_other(lo, place, text, lo.vectors.splat_text(guard.condition, "i1"))


def _read_strided(
    lo: Lowering,
    place: Place,
    address: Expr,
    offset: str | None,
    stride: int,
    guard: Guard,
    count: int,
) -> Register:
    """Lanes a few elements apart, from the one at the lowest address on."""
    lowest = without_lane(address) + min(0, stride * (count - 1))
    pointer = pointer_to(lo, place, lowest, offset, guard.condition, lo.spare_zeros())
    text = strided.read(lo, place.dtype, pointer, stride, count, guard.mask)
    if place.dtype == BOOL:
        text = lo.writer.value(f"icmp ne <{lo.lanes} x i8> {text}, zeroinitializer")
    return _or_other(lo, place, text, None if _is_zero(place.other) else lanes_mask(lo, guard))


def _load_first(lo: Lowering, kind: str, pointer: str, count: int, align: int) -> str:
    """The first lanes of a vector; LLVM's passes do not know vectors of one lane."""
    if count == 1:
        scalar = lo.writer.value(f"load {kind}, ptr {pointer}, align {align}")
        return lo.vectors.gather([scalar], kind)
    text = lo.writer.value(f"load <{count} x {kind}>, ptr {pointer}, align {align}")
    return lo.vectors.widened(text, kind, count)


def masked_load(lo: Lowering, dtype: DType, pointer: str, mask: str, other: Any) -> str:
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
        return [pointer_to(lo, place, first + as_expr(stride) * i, scalar) for i in range(count)]
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
    mask = lanes_mask(lo, guard)
    scalars: list[str] = []
    for i, pointer in enumerate(pointers):
        if mask is not None:
            pointer = _select_pointer(lo, mask, i, pointer, lo.spare_zeros())
        scalars.append(_load_scalar(lo, place.dtype, pointer))
    text = lo.vectors.gather(scalars, element_type(place.dtype))
    return _or_other(lo, place, text, mask)


def _select_pointer(lo: Lowering, mask: str, lane: int, pointer: str, spare: str) -> str:
    kind = lo.vectors.type_text("i1", True)
    inside = lo.writer.pure(f"extractelement {kind} {mask}, i64 {lane}")
    return lo.writer.value(f"select i1 {inside}, ptr {pointer}, ptr {spare}")


# ---- writes


def write(lo: Lowering, place: Place, r: Register, at: Coordinate, lane: int | None) -> None:
    """Stores the lanes of a register that are in bounds."""
    count = count_of(lo, place, at, lane)
    guard = guard_of(lo, place, at, lane, count)
    address = address_at(lo, place.at, at, lane)
    spare = lo.spare_room() if guard.condition is not None else ""
    if lane is None:
        pointer = pointer_to(lo, place, address, None, guard.condition, spare)
        _store_scalar(lo, place.dtype, r.text, pointer)
    elif lane_stride(address) == 1:
        first = without_lane(address)
        pointer = pointer_to(lo, place, first, None, guard.condition, spare)
        _write_vector(lo, place, lo.vectors.splat(r), pointer, guard.mask, count)
    else:
        pointers = _lane_pointers(lo, place, address, None, None, count)
        whole = Register(lo.vectors.splat(r), r.dtype, True)
        _write_pointers(lo, place.dtype, whole, pointers, guard)


def _store_scalar(lo: Lowering, dtype: DType, text: str, pointer: str) -> None:
    if dtype == BOOL:
        text = lo.writer.pure(f"zext i1 {text} to i8")
    lo.writer.do(f"store {memory_type(dtype)} {text}, ptr {pointer}, align {dtype.bytes}")


def _write_vector(
    lo: Lowering, place: Place, text: str, pointer: str, mask: str | None, count: int
) -> None:
    dtype, kind = place.dtype, memory_type(place.dtype)
    if dtype == BOOL:
        text = lo.writer.pure(f"zext <{lo.lanes} x i1> {text} to <{lo.lanes} x i8>")
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
    _write_elements(lo, kind, dtype, text, pointers, lanes_mask(lo, guard))


def _write_elements(
    lo: Lowering, kind: str, dtype: DType, text: str, pointers: list[str], mask: str | None
) -> None:
    """Lane by lane; a lane out of bounds goes to a spare place."""
    for i, pointer in enumerate(pointers):
        if mask is not None:
            pointer = _select_pointer(lo, mask, i, pointer, lo.spare_room())
        element = lo.writer.pure(f"extractelement <{lo.lanes} x {kind}> {text}, i64 {i}")
        lo.writer.do(f"store {kind} {element}, ptr {pointer}, align {dtype.bytes}")
