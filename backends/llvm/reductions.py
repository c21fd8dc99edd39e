"""Reductions of tiles: across the lanes into scalars, or along the lines into vectors.

max and min ignore NaN while they run and note where one passed: two instructions a register
instead of three, and right whatever the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfc.backends.llvm import memory, scratch, walks
from tfc.backends.llvm.blocks import prime
from tfc.backends.llvm.dots import horizontal_sum
from tfc.backends.llvm.registers import Register, element_type
from tfc.ir.errors import UnsupportedError
from tfc.ir.expr import Dim, normal
from tfc.ir.types import BOOL, F32, DType
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering

State = list[str]
"""The registers of one accumulator: the value, and for max and min of floats where a NaN was."""

KEPT_LINES = 16
"""Results that stay in registers; more go to scratch."""


@dataclass(frozen=True)
class Fold:
    """One kind of reduction in one element type."""

    lo: Lowering
    function: str
    dtype: DType

    @property
    def notes_nan(self) -> bool:
        return self.function in ("max", "min") and self.dtype.is_float

    @property
    def _mask_type(self) -> str:
        # Masks have registers of their own on AVX-512 only.
        return "i1" if self.lo.target.avx512 else f"i{self.dtype.bits}"

    def identity(self) -> float | int | bool:
        if self.function in ("sum", "prod"):
            return 0 if self.function == "sum" else 1
        top = self.function == "min"
        if self.dtype.is_float:
            return float("inf") if top else float("-inf")
        if self.dtype == BOOL:
            return top
        bits = self.dtype.bits - (self.dtype.kind == "int")
        low = -(1 << bits) if self.dtype.kind == "int" else 0
        return (1 << bits) - 1 if top else low

    def start(self) -> State:
        first = self.lo.vectors.constant(self.identity(), self.dtype, True)
        return [first, "zeroinitializer"] if self.notes_nan else [first]

    def types(self) -> list[str]:
        kinds = [self.lo.vectors.type(self.dtype, True)]
        if self.notes_nan:
            kinds.append(self.lo.vectors.type_text(self._mask_type, True))
        return kinds

    def _combine(self, x: str, y: str) -> str:
        """x is a new register, y the accumulator; a NaN in x leaves y."""
        o, kind = self.lo.writer, self.lo.vectors.type(self.dtype, True)
        if self.dtype == BOOL:
            name = "or" if self.function == "max" else "and"
            return o.pure(f"{name} {kind} {x}, {y}")
        if self.function in ("sum", "prod"):
            name = {"sum": "add", "prod": "mul"}[self.function]
            return o.pure(f"{'f' if self.dtype.is_float else ''}{name} {kind} {x}, {y}")
        if not self.dtype.is_float:
            sign = "s" if self.dtype.kind == "int" else "u"
            name = f"{sign}{self.function}"
            return self.lo.vectors.intrinsic(name, element_type(self.dtype), True, x, y)
        test = o.pure(f"fcmp {'ogt' if self.function == 'max' else 'olt'} {kind} {x}, {y}")
        return self.lo.vectors.select(test, kind, x, y, True)

    def step(self, state: State, registers: Sequence[str]) -> State:
        """Folds registers into an accumulator."""
        value = state[0]
        for x in registers:
            value = self._combine(x, value)
        if not self.notes_nan:
            return [value]
        nan = state[1]
        for i in range(0, len(registers), 2):
            pair = registers[i], registers[min(i + 1, len(registers) - 1)]
            nan = self._note(nan, *pair)
        return [value, nan]

    def _note(self, nan: str, x: str, y: str) -> str:
        o, kind = self.lo.writer, self.lo.vectors.type(self.dtype, True)
        found = o.pure(f"fcmp uno {kind} {x}, {y}")
        mask = self.lo.vectors.type_text(self._mask_type, True)
        if self._mask_type != "i1":
            bits = self.lo.vectors.type_text("i1", True)
            found = o.pure(f"sext {bits} {found} to {mask}")
        return found if nan == "zeroinitializer" else o.pure(f"or {mask} {nan}, {found}")

    def merge(self, states: Sequence[State]) -> State:
        """Several accumulators as one."""
        current = list(states)
        while len(current) > 1:
            a, b = current[0], current[1]
            merged = [self._combine(a[0], b[0])]
            if self.notes_nan:
                mask = self.lo.vectors.type_text(self._mask_type, True)
                merged.append(self.lo.writer.pure(f"or {mask} {a[1]}, {b[1]}"))
            current = [*current[2:], merged]
        return current[0]

    def _nan_mask(self, nan: str) -> str:
        if self._mask_type == "i1":
            return nan
        mask = self.lo.vectors.type_text(self._mask_type, True)
        return self.lo.writer.pure(f"icmp ne {mask} {nan}, zeroinitializer")

    def vector(self, state: State) -> str:
        """The result in each lane."""
        if not self.notes_nan:
            return state[0]
        kind = self.lo.vectors.type(self.dtype, True)
        nan = self.lo.vectors.constant(float("nan"), self.dtype, True)
        return self.lo.vectors.select(self._nan_mask(state[1]), kind, nan, state[0], True)

    def scalar(self, state: State) -> str:
        """The result over all lanes."""
        text = self._across(state[0])
        if not self.notes_nan:
            return text
        # In all lanes: for a choice of scalars x86 has a branch, around all that led to them.
        any_nan = self.lo.vectors.splat_text(self.lo.vectors.any(self._nan_mask(state[1])), "i1")
        number = self.lo.vectors.splat_text(text, element_type(self.dtype))
        kind = self.lo.vectors.type(self.dtype, True)
        nan = self.lo.vectors.constant(float("nan"), self.dtype, True)
        chosen = self.lo.vectors.select(any_nan, kind, nan, number, True)
        return self.lo.writer.pure(f"extractelement {kind} {chosen}, i64 0")

    def _across(self, text: str) -> str:
        element, kind = element_type(self.dtype), self.lo.vectors.type(self.dtype, True)
        suffix, writer = self.lo.vectors.suffix(element, True), self.lo.writer
        if self.function == "sum":
            return horizontal_sum(self.lo, self.dtype, text)
        if self.function == "prod" and self.dtype.is_float:
            name = f"llvm.vector.reduce.fmul.{suffix}"
            writer.declare(f"{element} @{name}({element}, {kind})")
            one = self.lo.vectors.constant(1, self.dtype, False)
            arguments = f"{element} {one}, {kind} {text}"
            return writer.value(f"call reassoc {element} @{name}({arguments})")
        if self.dtype.is_float:
            name = f"llvm.vector.reduce.f{self.function}.{suffix}"
            writer.declare(f"{element} @{name}({kind})")
            return writer.value(f"call nnan {element} @{name}({kind} {text})")
        sign = "s" if self.dtype.kind == "int" else "u"
        name = {"prod": "mul", "max": f"{sign}max", "min": f"{sign}min"}[self.function]
        if self.dtype == BOOL:
            name = "or" if self.function == "max" else "and"
        return writer.call(element, f"llvm.vector.reduce.{name}.{suffix}", f"{kind} {text}")


# ---- a reduce op


def reduce(lo: Lowering, op: t.Reduce) -> None:
    """Computes a reduction now; its result is kept in registers or scratch."""
    x, dtype = op.x, op.x.tile.dtype
    if dtype == BOOL and op.function in ("sum", "prod"):
        raise UnsupportedError(f"reduce: a {op.function} of bool is not defined")
    shape = x.tile.shape
    lane, _ = walks.natural_lane(lo, walks.survey(lo, x), shape)
    found = walks.prepare(lo, x, lane, whole=True)
    fold = Fold(lo, op.function, F32 if dtype.is_float and dtype.bits == 16 else dtype)
    if lane is None or shape[op.axis] == 1:
        _copy(lo, op, lane)
    elif lane == op.axis:
        _across_lanes(lo, op, fold, found, lane)
    else:
        _along_lines(lo, op, fold, found, lane)
    walks.finish(lo, x)


def _copy(lo: Lowering, op: t.Reduce, lane: int | None) -> None:
    """Nothing to reduce: the result is the operand."""
    from tfc.backends.llvm.tiles import registers_of

    if len(lo.coordinates(op.output, lane)) > KEPT_LINES:
        place = scratch.place_for(lo, op.output)
        found = walks.survey(lo, op.x)
        p = walks.plan(lo, found, op.x.tile.shape, lane)
        walks.free_lines(lo, found, p, lane)

        def visit(rows: list[Dim], cols: list[Dim]) -> None:
            prime(lo, op.x, rows, cols, lane)
            for r in rows:
                for c in cols:
                    memory.write(lo, place, lo.pull(op.x, (r, c), lane), (r, c), lane)

        walks.walk(lo, op.x.tile.shape, lane, p, visit)
        lo.ready.add(op.output)
        return
    lo.pin(op.output, lane, registers_of(lo, op.x, lane))


def _across_lanes(lo: Lowering, op: t.Reduce, fold: Fold, found: walks.Survey, lane: int) -> None:
    """Each line becomes a scalar."""
    shape = op.x.tile.shape
    lines = shape[1 - lane]
    chunks = -(-shape[lane] // lo.lanes)
    base = walks.plan(lo, found, shape, lane, 2.0)
    high = base.lines if found.dots else min(lines, 4 if found.total_cost(lo, lane) <= 8 else 1)
    wide, looped = base.chunks, base.loop_chunks
    if fold.notes_nan and chunks > wide:  # else LLVM keeps all until it looks for NaN
        looped = True
    p = walks.Plan(high, wide, lines > KEPT_LINES, looped)
    walks.free_lines(lo, found, p, lane)
    place = scratch.place_for(lo, op.output) if p.loop_lines else None
    # Enough accumulators that no step waits for the one before; none more, they take registers.
    waiting = math.ceil(8 / found.total_cost(lo, lane))
    sets = max(1, min(8 // high, p.chunks, chunks, 4, waiting))

    def over_lines(block: list[Dim]) -> None:
        states = _fold_lines(lo, op, fold, p, block, lane, sets)
        for line, group in zip(block, states, strict=True):
            text = fold.scalar(fold.merge(group))
            r = lo.converter.convert(Register(text, fold.dtype, False), op.output.tile.dtype)
            at = (line, 0) if lane == 1 else (0, line)
            if place is None:
                results[at] = r
            else:
                memory.write(lo, place, r, at, None)

    results: dict[tuple[Dim, Dim], Register] = {}
    walks.blocks(lo, lines, p.lines, 1, p.loop_lines, over_lines)
    if place is not None:
        lo.ready.add(op.output)
    else:
        lo.pin(op.output, None, [results[at] for at in lo.coordinates(op.output, None)])


def _fold_lines(
    lo: Lowering, op: t.Reduce, fold: Fold, p: walks.Plan, block: list[Dim], lane: int, sets: int
) -> list[list[State]]:
    """Accumulators of a block of lines: `sets` for each line, which chunks use in turn."""
    extent = op.x.tile.shape[lane]

    def visit(chunks: list[Dim], states: list[State]) -> list[State]:
        rows, cols = (block, chunks) if lane == 1 else (chunks, block)
        prime(lo, op.x, rows, cols, lane)
        out: list[State] = []
        for i, line in enumerate(block):
            texts = _registers(lo, op, fold, [(line, c) for c in chunks], lane)
            pairs = zip(chunks, texts, strict=True)
            whole = [_without_tail(lo, fold, extent, c, text) for c, text in pairs]
            group = states[i * sets : (i + 1) * sets]
            out.extend(fold.step(state, whole[j::sets]) for j, state in enumerate(group))
        return out

    states = [fold.start() for _ in range(len(block) * sets)]
    count = extent // lo.lanes if p.loop_chunks else -(-extent // lo.lanes)
    states = _fold_blocks(lo, fold, count, p.chunks, lo.lanes, p.loop_chunks, states, visit)
    if p.loop_chunks and extent % lo.lanes:
        with lo.writer.forgetting():
            states = visit([count * lo.lanes], states)
    return [states[i : i + sets] for i in range(0, len(states), sets)]


def _registers(
    lo: Lowering, op: t.Reduce, fold: Fold, places: Sequence[tuple[Dim, Dim]], lane: int
) -> list[str]:
    """The registers at (line, chunk) pairs, in the type of the accumulators."""
    ats = [(line, chunk) if lane == 1 else (chunk, line) for line, chunk in places]
    pulled = [lo.converter.convert(lo.vector(op.x, at, lane), fold.dtype) for at in ats]
    return [r.text for r in pulled]


def _without_tail(lo: Lowering, fold: Fold, extent: int, chunk: Dim, text: str) -> str:
    """Lanes beyond the tile's extent count as the identity."""
    if not isinstance(chunk, int) or extent - chunk >= lo.lanes:
        return text
    identity = lo.vectors.constant(fold.identity(), fold.dtype, True)
    inside = lo.vectors.first_lanes(extent - chunk)
    return lo.vectors.select(inside, lo.vectors.type(fold.dtype, True), text, identity, True)


def _fold_blocks(
    lo: Lowering,
    fold: Fold,
    count: int,
    size: int,
    step: int,
    looped: bool,
    states: list[State],
    visit: Callable[[list[Dim], list[State]], list[State]],
) -> list[State]:
    """Cuts `count` things, `step` apart, into blocks and folds one after another."""
    start = 0
    kinds = fold.types()
    if looped and count >= 2 * size:
        whole = count // size

        def body(counter: str, carried: list[str]) -> list[str]:
            index = lo.indices.counter(counter, 0, whole - 1)
            with lo.inner():
                places = [normal((index * size + i) * step) for i in range(size)]
                out = visit(places, _grouped(carried, len(kinds)))
            lo.indices.release(counter)
            return [text for state in out for text in state]

        first = [(k, x) for state in states for k, x in zip(kinds, state, strict=True)]
        states = _grouped(lo.writer.loop("0", str(whole), 1, first, body), len(kinds))
        start = whole * size
    while start < count:
        places: list[Dim] = [i * step for i in range(start, min(count, start + size))]
        with lo.writer.forgetting():
            states = visit(places, states)
        start += size
    return states


def _grouped(texts: Sequence[str], size: int) -> list[State]:
    return [list(texts[i : i + size]) for i in range(0, len(texts), size)]


def _along_lines(lo: Lowering, op: t.Reduce, fold: Fold, found: walks.Survey, lane: int) -> None:
    """Each chunk of lanes becomes one register."""
    shape = op.x.tile.shape
    base = walks.plan(lo, found, shape, lane, 2.0)
    chunks, lines = -(-shape[lane] // lo.lanes), shape[1 - lane]
    wide = base.chunks if found.dots else min(chunks, 4)
    each = found.total_cost(lo, lane)
    high = base.lines if found.dots else max(1, min(lines, int(walks.BLOCK / each) // wide))
    cost = 1.0 if found.dots else lines * chunks * (each + 2)
    loop_lines = base.loop_lines if found.dots else cost > walks.STRAIGHT and lines > high
    p = walks.Plan(high, wide, loop_lines, chunks > KEPT_LINES)
    walks.free_lines(lo, found, p, lane)
    place = scratch.place_for(lo, op.output) if p.loop_chunks else None
    results: list[Register] = []

    def over_chunks(block: list[Dim]) -> None:
        for chunk, text in zip(block, _fold_chunk(lo, op, fold, p, block, lane), strict=True):
            r = lo.converter.convert(Register(text, fold.dtype, True), op.output.tile.dtype)
            if place is None:
                results.append(r)
            else:
                memory.write(lo, place, r, (0, chunk) if lane == 1 else (chunk, 0), lane)

    walks.walk_chunks(lo, shape, lane, p, over_chunks)
    if place is not None:
        lo.ready.add(op.output)
    else:
        lo.pin(op.output, lane, results)


def _fold_chunk(
    lo: Lowering, op: t.Reduce, fold: Fold, p: walks.Plan, block: list[Dim], lane: int
) -> list[str]:
    """The results of a block of chunks over all lines, which use `sets` accumulators in turn."""
    lines = op.x.tile.shape[1 - lane]
    sets = max(1, min(4, 8 // len(block), p.lines))

    def visit(rows: list[Dim], states: list[State]) -> list[State]:
        prime(lo, op.x, *((rows, block) if lane == 1 else (block, rows)), lane)
        out: list[State] = []
        for i, chunk in enumerate(block):
            texts = _registers(lo, op, fold, [(line, chunk) for line in rows], lane)
            group = states[i * sets : (i + 1) * sets]
            out.extend(fold.step(state, texts[j::sets]) for j, state in enumerate(group))
        return out

    states = [fold.start() for _ in range(len(block) * sets)]
    states = _fold_blocks(lo, fold, lines, p.lines, 1, p.loop_lines, states, visit)
    groups = [states[i : i + sets] for i in range(0, len(states), sets)]
    return [fold.vector(fold.merge(group)) for group in groups]
