"""The ops of a block in program order, and loops with carried tiles.

Carried tiles that fit the registers stay there; larger ones live in scratch. A loop whose last
iteration may be partial is peeled where bounds are known to hold in whole iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfc.backends.llvm import errors, reductions, scratch, tiles, walks
from tfc.backends.llvm.registers import Register
from tfc.ir.core import Block, Op, Value
from tfc.ir.errors import UnsupportedError
from tfc.ir.expr import Expr, as_expr
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering

UNROLLED = 256
"""Iterations that `unroll` may write out."""


def block(lo: Lowering, ops: Block) -> None:
    """Emits the ops that do something; the others are computed where they are used."""
    for op in ops:
        match op:
            case t.Store():
                store(lo, op)
            case t.Reduce():
                reductions.reduce(lo, op)
            case t.For():
                loop(lo, op)
            case t.Stage():
                lo.pending.append(op)
            case t.WrapIndex():
                errors.wrap_index(lo, op)
            case t.Load() if op.buffer.buffer.mode == "inout":
                # A later store may change what it reads.
                tiles.keep(lo, op.output)
            case t.Dot() if _used_in_several_walks(op.output):
                scratch.materialise(lo, op.output)
            case _:
                pass


def store(lo: Lowering, op: t.Store) -> None:
    tiles.write_tile(lo, op.value, lo.place_of(op))


def _used_in_several_walks(value: Value) -> bool:
    """Whether more than one store, reduction, stage, product or loop computes with a value."""
    ends: set[Op] = set()
    pending, seen = [value], {value}
    while pending:
        for user in pending.pop().users:
            if isinstance(user, t.Map | t.Select | t.TileCast | t.Transpose):
                if user.result not in seen:
                    seen.add(user.result)
                    pending.append(user.result)
            else:
                ends.add(user)
    return len(ends) > 1


# ---- loops


def loop(lo: Lowering, op: t.For) -> None:
    for stage in list(lo.pending):
        if _is_used_in(stage.output, op):
            scratch.materialise(lo, stage.output)
    layouts = [lo.layout_of(v) for v in op.inits]
    if _fits(lo, op.inits):
        carried = [r for v, at in zip(op.inits, layouts, strict=True) for r in _pull(lo, v, at)]
        finals = _iterate(lo, op, [r.text for r in carried], _InRegisters(lo, op))
        start = 0
        for v, layout in zip(op.results, layouts, strict=True):
            count = len(lo.coordinates(v, layout))
            lo.pin(v, layout, _registers(v, layout, finals[start : start + count]))
            start += count
        return
    body = _InScratch(lo, op)
    _iterate(lo, op, [], body)
    for value, arg in zip(op.results, op.do.args, strict=True):
        lo.places[value] = lo.places[arg]
        lo.ready.add(value)


def _is_used_in(value: Value, loop: t.For) -> bool:
    """Whether the body of a loop computes with a value, at any depth of lazy ops."""
    pending, seen = [value], {value}
    while pending:
        for user in pending.pop().users:
            place = user.parent
            while place is not None:
                if place is loop.do:
                    return True
                owner = place.parent
                place = owner.parent if isinstance(owner, Op) else None
            for r in user.results:
                if r not in seen:
                    seen.add(r)
                    pending.append(r)
    return False


def _fits(lo: Lowering, values: Sequence[Value]) -> bool:
    """Whether carried tiles fit the registers, with one left for work."""
    needed = 0
    for v in values:
        layout = lo.layout_of(v)
        units = lo.registers_of(v.tile.dtype) if layout is not None else 1
        needed += len(lo.coordinates(v, layout)) * units
    return needed < lo.target.vector_registers or all(v.tile.shape == (1, 1) for v in values)


def _pull(lo: Lowering, value: Value, layout: int | None) -> list[Register]:
    walks.prepare(lo, value, layout, whole=False)
    return tiles.registers_of(lo, value, layout)


def _registers(value: Value, layout: int | None, texts: Sequence[str]) -> list[Register]:
    return [Register(text, value.tile.dtype, layout is not None) for text in texts]


class _InRegisters:
    """Carries tiles in registers."""

    def __init__(self, lo: Lowering, op: t.For) -> None:
        self.lo = lo
        self.op = op
        self.layouts = [lo.layout_of(v) for v in op.inits]
        self.counts = [
            len(lo.coordinates(v, layout)) for v, layout in zip(op.inits, self.layouts, strict=True)
        ]
        self.kinds = [
            lo.vectors.type(v.tile.dtype, layout is not None)
            for v, layout, n in zip(op.inits, self.layouts, self.counts, strict=True)
            for _ in range(n)
        ]

    def run(self, carried: Sequence[str]) -> list[str]:
        start = 0
        for arg, layout, n in zip(self.op.do.args, self.layouts, self.counts, strict=True):
            self.lo.pin(arg, layout, _registers(arg, layout, carried[start : start + n]))
            start += n
        block(self.lo, self.op.do)
        out: list[str] = []
        for value, layout in zip(self.op.do.terminator.inputs, self.layouts, strict=True):
            out.extend(r.text for r in _pull(self.lo, value, layout))
        return out


class _InScratch:
    """Carries tiles in scratch memory: each iteration computes all next ones, then moves them."""

    def __init__(self, lo: Lowering, op: t.For) -> None:
        self.lo = lo
        self.op = op
        self.kinds: list[str] = []
        for arg, value in zip(op.do.args, op.inits, strict=True):
            tiles.write_tile(lo, value, scratch.place_for(lo, arg))

    def run(self, carried: Sequence[str]) -> list[str]:
        lo, args = self.lo, self.op.do.args
        lo.ready |= set(args)
        block(lo, self.op.do)
        pairs = list(zip(args, self.op.do.terminator.inputs, strict=True))
        moved: list[tuple[Value, Value]] = []
        for arg, value in pairs:
            if len(pairs) == 1 and _in_place(arg, self.op):
                tiles.write_tile(lo, value, lo.places[arg])
            elif value is not arg:
                if value not in lo.ready:
                    scratch.materialise(lo, value)
                moved.append((arg, value))
        for arg, value in moved:
            tiles.write_tile(lo, value, lo.places[arg])
        return []


def _in_place(arg: Value, loop: t.For) -> bool:
    """Whether each element of the next tile needs that same element of the last one only."""
    current = arg
    while True:
        if len(current.uses) != 1:
            return False
        ((user, number),) = current.uses
        if isinstance(user, t.TileYield):
            return user.parent is loop.do
        same = isinstance(user, t.Map | t.Select | t.TileCast)
        if not same and not (isinstance(user, t.Dot) and number == 2):
            return False
        if user.parent is not loop.do or user.result.tile.shape != arg.tile.shape:
            return False
        current = user.result


def _iterate(
    lo: Lowering, op: t.For, carried: list[str], body: _InRegisters | _InScratch
) -> list[str]:
    """Runs all iterations; the last one apart if it may be partial."""
    start, span = lo.indices.settle(op.start), lo.indices.settle(as_expr(op.stop) - op.start)
    step = op.step
    trips = (span + (step - 1)).max(0) // step if span.constant is None else None
    count = as_expr(max(0, -(-(span.constant or 0) // step))) if trips is None else trips
    whole = span.max(0) // step
    if op.unroll and count.constant is not None and count.constant <= UNROLLED:
        for i in range(count.constant):
            carried = _straight(lo, op, start + i * step, carried, body, whole, i)
        return carried
    if op.index not in lo.bounds.peeled:
        return _counted(lo, op, as_expr(0), count, start, carried, body)
    outer = op.index in lo.whole
    lo.whole.add(op.index)
    carried = _counted(lo, op, as_expr(0), whole, start, carried, body)
    if not outer:
        lo.whole.discard(op.index)
    if whole.constant is not None and count.constant is not None:
        if whole.constant < count.constant:
            carried = _straight(lo, op, start + whole * step, carried, body, whole, whole.constant)
        return carried
    return _counted(lo, op, whole, count, start, carried, body)


def _straight(
    lo: Lowering,
    op: t.For,
    index: Expr,
    carried: list[str],
    body: _InRegisters | _InScratch,
    whole: Expr,
    number: int,
) -> list[str]:
    """One iteration, written out."""
    is_whole = whole.constant is not None and number < whole.constant
    if is_whole:
        lo.whole.add(op.index)
    with lo.writer.forgetting(), lo.inner(), lo.indices.replacing(op.index, index):
        carried = body.run(carried)
    if is_whole:
        lo.whole.discard(op.index)
    return carried


def _counted(
    lo: Lowering,
    op: t.For,
    first: Expr,
    last: Expr,
    start: Expr,
    carried: list[str],
    body: _InRegisters | _InScratch,
) -> list[str]:
    """A loop over the iterations from `first` below `last`."""

    def iteration(counter: str, texts: list[str]) -> list[str]:
        number = lo.indices.counter(counter, 0, last - 1)
        with lo.inner(), lo.indices.replacing(op.index, start + number * op.step):
            out = body.run(texts)
        lo.indices.release(counter)
        return out

    low, high = lo.indices.value(first), lo.indices.value(last)
    pairs = list(zip(body.kinds, carried, strict=True))
    return lo.writer.loop(low, high, 1, pairs, iteration)


__all__ = ["UnsupportedError", "block", "loop", "store"]
