"""Walks over the registers of a tile: in which order, how many at once, straight or in loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfc.backends.llvm import dots, scratch, strided
from tfc.backends.llvm.blocks import turns
from tfc.backends.llvm.places import Place, stride_along
from tfc.ir.core import Value
from tfc.ir.expr import Dim, normal
from tfc.tile import ops as t
from tfc.tile.signs import never_positive

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering

STRAIGHT = 320
"""Instructions (roughly) of a walk that are written out rather than put in a loop."""
BLOCK = 96
"""Instructions (roughly) of the body of such a loop."""

Visit = Callable[[list[Dim], list[Dim]], None]
"""Handles a block of registers, which start at these rows and columns."""

_CHEAP = {
    **dict.fromkeys(("maximum", "minimum", "sign", "rsqrt", "is_infinite"), 3.0),
    **dict.fromkeys(("div", "sqrt", "reciprocal"), 4.0),
    **dict.fromkeys(
        (
            *("add", "sub", "mul", "neg", "abs", "floor", "ceil", "round", "fma", "not", "and"),
            *("or", "xor", "equal", "not_equal", "less", "less_equal", "greater"),
            *("greater_equal", "is_nan", "shift_left", "shift_right"),
        ),
        1.0,
    ),
}
_LIBRARY = 28.0
_EXP_OF_NEGATIVE = 16.0


@dataclass
class Survey:
    """What computing one register of a value involves; `turned`: seen through a transposition."""

    cost: float = 0.0
    dots: list[tuple[t.Dot, bool]] = field(default_factory=list)
    places: list[tuple[Place, bool]] = field(default_factory=list)
    pinned: list[tuple[Value, bool]] = field(default_factory=list)
    stages: list[tuple[t.Stage, bool]] = field(default_factory=list)

    def total_cost(self, lo: Lowering, lane: int) -> float:
        """Instructions a register, its lanes along an axis."""
        turns_too = self.has_transposing(lo, lane)
        reads = (access_cost(lo, p, lane ^ turned, turns_too) for p, turned in self.places)
        return max(1.0, self.cost + sum(reads))

    def has_transposing(self, lo: Lowering, lane: int) -> bool:
        return any(turns(lo, p, lane ^ turned) for p, turned in self.places)


def access_cost(lo: Lowering, place: Place, lane: int, turned: bool = False) -> float:
    """Instructions to read or write a register of a place; `turned`: in transposed blocks."""
    if place.shape[lane] == 1 or (turned and turns(lo, place, lane)):
        return 4.0 if turned else 1.0
    stride = stride_along(lo, place, lane)
    if stride in (0, 1):
        return 1.0
    if isinstance(stride, int) and abs(stride) <= strided.FARTHEST:
        return 3.0 * abs(stride)
    return lo.lanes * (3.0 if lo.full or not place.bounds else 5.0)


def survey(lo: Lowering, value: Value) -> Survey:
    """Looks through lazy ops down to memory, registers and products."""
    found = Survey()
    pending = [(value, False)]
    seen: set[tuple[Value, bool]] = set()
    while pending:
        v, turned = pending.pop()
        if (v, turned) in seen:
            continue
        seen.add((v, turned))
        pending.extend(_survey_one(lo, found, v, turned))
    return found


def _survey_one(lo: Lowering, found: Survey, v: Value, turned: bool) -> list[tuple[Value, bool]]:
    if v in lo.ready:
        found.places.append((lo.places[v], turned))
        return []
    if v in lo.pinned:
        found.pinned.append((v, turned))
        return []
    op = v.producer
    match op:
        case t.Load():
            found.places.append((lo.place_of(op), turned))
            found.cost += 4 * len(op.indices)
            return [(i, turned) for i in op.indices]
        case t.Transpose():
            return [(op.x, not turned)]
        case t.Dot():
            found.dots.append((op, turned))
            return [(op.accumulator, turned)] if op.accumulator is not None else []
        case t.Stage():
            found.stages.append((op, turned))
            found.cost += 1
            return [(op.x, turned)]
        case t.Map():
            found.cost += function_cost(op)
        case t.Select() | t.Index():
            found.cost += 1
        case t.TileCast():
            found.cost += 6 if op.to.bits == 16 or op.x.tile.dtype.bits == 16 else 2
        case _:
            pass
    return [(x, turned) for x in op.inputs] if op is not None else []


def function_cost(op: t.Map) -> float:
    if op.output.tile.shape == (1, 1):
        return 0.0
    if op.function == "exp" and never_positive(op.operand_values[0]):
        return _EXP_OF_NEGATIVE
    integer = op.operand_values[0].tile.dtype.is_integer
    if integer and op.function in ("div", "mod", "fmod", "pow"):
        return 4.0 * _LIBRARY
    return _CHEAP.get(op.function, _LIBRARY)


def natural_lane(lo: Lowering, found: Survey, shape: tuple[int, int]) -> tuple[int | None, bool]:
    """The axis along which lanes lie best, and whether another one would be costly."""
    if shape[0] == 1 or shape[1] == 1:
        return (1 if shape[1] > 1 else 0 if shape[0] > 1 else None), False
    votes = [0.0, 0.5]
    for op, turned in found.dots:
        if op.output.tile.cols > 1:
            votes[1 ^ turned] += 100
    for value, turned in found.pinned:
        if min(value.tile.shape) > 1:
            votes[1 ^ turned] += 100
    for place, turned in found.places:
        for axis in (0, 1):
            if place.shape[axis] > 1 and stride_along(lo, place, axis) == 1:
                votes[axis ^ turned] += 1
    return (1 if votes[1] >= votes[0] else 0), max(votes) >= 100


# ---- what must be in memory before a walk


def prepare(lo: Lowering, value: Value, lane: int | None, *, whole: bool) -> Survey:
    """Makes all that a walk over a value needs; a `whole` walk computes its stages as it goes."""
    for v in _needed_in_memory(lo, value):
        scratch.materialise(lo, v)
    found = survey(lo, value)
    for stage, turned in found.stages:
        direct = not turned and stage.output.tile.shape == value.tile.shape
        if stage.output in lo.writing or stage.output in lo.ready:
            continue
        if whole and direct and lane == lo.layout_of(stage.output):
            scratch.place_for(lo, stage.output)
            lo.writing.add(stage.output)
        else:
            scratch.materialise(lo, stage.output)
            found = survey(lo, value)
    return found


def finish(lo: Lowering, value: Value) -> None:
    """After a whole walk: the stages that were computed on the way are ready."""
    done = {s.output for s, _ in survey(lo, value).stages} & lo.writing
    lo.writing -= done
    lo.ready |= done


def _needed_in_memory(lo: Lowering, value: Value) -> list[Value]:
    """Operands of products that are products themselves, or stages; innermost first."""
    out: list[Value] = []
    for op, _ in reversed(survey(lo, value).dots):
        for operand in (op.a, op.b):
            found = survey(lo, operand)
            for v, _ in found.pinned:
                if v.tile.shape != (1, 1):
                    scratch.spill(lo, v)
            out.extend(s.output for s, _ in reversed(found.stages))
            out.extend(d.output for d, _ in reversed(found.dots))
            if operand is op.a and any(_is_guarded(lo, p, 1 ^ at) for p, at in found.places):
                out.append(operand)
    return [v for v in dict.fromkeys(out) if v not in lo.ready]


def _is_guarded(lo: Lowering, place: Place, axis: int) -> bool:
    """Whether each step along an axis needs a test: a copy in scratch is faster to read again."""
    names = (t.ROW, t.COLUMN)
    clamped = place.clamps.get(axis, ())
    return any(
        lo.is_active(b) and b not in clamped and names[axis] in b.value.symbols()
        for b in place.bounds
    )


# ---- the walk


@dataclass(frozen=True)
class Plan:
    """How many lines and chunks a block has; whether lines and chunks are walked by loops."""

    lines: int
    chunks: int
    loop_lines: bool
    loop_chunks: bool


def plan(
    lo: Lowering, found: Survey, shape: tuple[int, int], lane: int | None, extra: float = 1.0
) -> Plan:
    """A plan for a walk whose visit costs `extra` instructions a register."""
    if lane is None:
        return Plan(1, 1, False, False)
    lines, chunks = shape[1 - lane], -(-shape[lane] // lo.lanes)
    cost = found.total_cost(lo, lane) + extra
    if found.dots:
        high, wide = _dot_block(lo, found, shape, lane)
        blocks = -(-lines // high) * -(-chunks // wide)
        straight = blocks <= 1 or lines * chunks * cost <= STRAIGHT
        return Plan(high, wide, not straight and lines > high, not straight and chunks > wide)
    if found.has_transposing(lo, lane):
        high, wide = min(lines, lo.lanes), 1
        straight = lines * chunks * cost <= 2 * STRAIGHT
    else:
        size = max(1, int(BLOCK / cost))
        wide = min(chunks, size, 8)
        high = min(lines, max(1, min(8, size) // wide)) if wide == chunks else 1
        straight = lines * chunks * cost <= STRAIGHT
    return Plan(high, wide, not straight and lines > high, not straight and chunks > wide)


def _dot_block(lo: Lowering, found: Survey, shape: tuple[int, int], lane: int) -> tuple[int, int]:
    op = found.dots[0][0]
    return dots.block(lo, shape, lane, op.output.tile.dtype)


def free_lines(lo: Lowering, found: Survey, p: Plan, lane: int | None) -> None:
    """Moves tiles from registers to scratch that a loop of the plan will index."""
    if lane is None:
        return
    for value, turned in found.pinned:
        extents = value.tile.shape[::-1] if turned else value.tile.shape
        looped = (p.loop_lines and extents[1 - lane] > 1) or (p.loop_chunks and extents[lane] > 1)
        if looped and value not in lo.ready:
            scratch.spill(lo, value)


def walk(lo: Lowering, shape: tuple[int, int], lane: int | None, p: Plan, visit: Visit) -> None:
    """Visits every register of a tile once, a block at a time."""
    if lane is None:
        visit([0], [0])
        return
    extent = shape[1 - lane]

    def over_lines(lines: Sequence[Dim]) -> None:
        walk_chunks(lo, shape, lane, p, lambda chunks: _visit(lo, visit, lane, lines, chunks))

    blocks(lo, extent, p.lines, 1, p.loop_lines, over_lines)


def walk_chunks(
    lo: Lowering,
    shape: tuple[int, int],
    lane: int,
    p: Plan,
    visit: Callable[[list[Dim]], None],
) -> None:
    """Visits the chunks of the lane axis."""
    whole = shape[lane] // lo.lanes if p.loop_chunks else -(-shape[lane] // lo.lanes)
    blocks(lo, whole, p.chunks, lo.lanes, p.loop_chunks, visit)
    if p.loop_chunks and shape[lane] % lo.lanes:
        with lo.writer.forgetting():
            visit([whole * lo.lanes])


def blocks(
    lo: Lowering,
    count: int,
    size: int,
    step: int,
    looped: bool,
    visit: Callable[[list[Dim]], None],
) -> None:
    """Cuts `count` things, `step` apart, into blocks; the whole ones in a loop if asked."""
    start = 0
    if looped and count >= 2 * size:
        whole = count // size

        def body(counter: str, _: list[str]) -> list[str]:
            index = lo.indices.counter(counter, 0, whole - 1)
            with lo.inner():
                visit([normal((index * size + i) * step) for i in range(size)])
            lo.indices.release(counter)
            return []

        lo.writer.loop("0", str(whole), 1, [], body)
        start = whole * size
    while start < count:
        with lo.writer.forgetting():
            visit([i * step for i in range(start, min(count, start + size))])
        start += size


def _visit(
    lo: Lowering, visit: Visit, lane: int, lines: Sequence[Dim], chunks: Sequence[Dim]
) -> None:
    rows, cols = (lines, chunks) if lane == 1 else (chunks, lines)
    with lo.writer.forgetting():
        visit(list(rows), list(cols))
