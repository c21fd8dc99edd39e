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
from tfc.ir.expr import Expr, as_expr
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering

UNROLLED = 256
"""Iterations that `unroll` may write out."""
SHORT, SMALL = 4, 256
"""Iterations, and instructions of all together, that are written out unasked."""


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
    body = _Carried(lo, op)
    body.finish(_iterate(lo, op, body.start(), body))


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


def _kept_in_registers(lo: Lowering, values: Sequence[Value]) -> list[int]:
    """The carried tiles that fit the registers together, one left for work; small ones first."""

    def size(number: int) -> int:
        layout = lo.layout_of(values[number])
        units = lo.registers_of(values[number].tile.dtype) if layout is not None else 0
        return len(lo.coordinates(values[number], layout)) * units

    kept: list[int] = []
    free = lo.target.vector_registers - 1
    for number in sorted(range(len(values)), key=size):
        if size(number) <= free:
            kept.append(number)
            free -= size(number)
    return sorted(kept)


def _pull(lo: Lowering, value: Value, layout: int | None) -> list[Register]:
    walks.prepare(lo, value, layout, whole=False)
    return tiles.registers_of(lo, value, layout)


def _registers(value: Value, layout: int | None, texts: Sequence[str]) -> list[Register]:
    return [Register(text, value.tile.dtype, layout is not None) for text in texts]


class _Carried:
    """The carried tiles of a loop: some in registers, the others in scratch memory.

    A tile in scratch is replaced in place where each element needs its last value only; else all
    next tiles are computed first, and then moved.
    """

    def __init__(self, lo: Lowering, op: t.For) -> None:
        self.lo = lo
        self.op = op
        self.registers = _kept_in_registers(lo, op.inits)
        self.scratch = [i for i in range(len(op.inits)) if i not in self.registers]
        self.kinds: list[str] = []
        for i in self.registers:
            layout = lo.layout_of(op.inits[i])
            kind = lo.vectors.type(op.inits[i].tile.dtype, layout is not None)
            self.kinds += [kind] * len(lo.coordinates(op.inits[i], layout))

    def start(self) -> list[str]:
        """The registers before the first iteration."""
        lo = self.lo
        for i in self.scratch:
            tiles.write_tile(lo, self.op.inits[i], scratch.place_for(lo, self.op.do.args[i]))
        return self._pulled(self.op.inits)

    def _pulled(self, values: Sequence[Value]) -> list[str]:
        out: list[str] = []
        for i in self.registers:
            out.extend(r.text for r in _pull(self.lo, values[i], self.lo.layout_of(values[i])))
        return out

    def _pin(self, values: Sequence[Value], texts: Sequence[str]) -> None:
        start = 0
        for i in self.registers:
            layout = self.lo.layout_of(values[i])
            count = len(self.lo.coordinates(values[i], layout))
            self.lo.pin(
                values[i], layout, _registers(values[i], layout, texts[start : start + count])
            )
            start += count

    def run(self, carried: Sequence[str]) -> list[str]:
        """One iteration: gives the next registers."""
        lo, args = self.lo, self.op.do.args
        self._pin(args, carried)
        lo.ready |= {args[i] for i in self.scratch}
        block(lo, self.op.do)
        following = self.op.do.terminator.inputs
        out = self._pulled(following)
        moved = {i: following[i] for i in self.scratch if following[i] is not args[i]}
        in_place = [i for i in moved if _in_place(args[i], self.op, i)]
        apart = {i: self._apart(value) for i, value in moved.items() if i not in in_place}
        for i in in_place:  # first: they may read the last values of the others
            tiles.write_tile(lo, moved[i], lo.places[args[i]])
        for i, value in apart.items():
            tiles.write_tile(lo, value, lo.places[args[i]])
        return out

    def _apart(self, value: Value) -> Value:
        """A next tile in memory that the other carried tiles do not share."""
        if value in self.op.do.args and value in self.lo.ready:
            return scratch.duplicate(self.lo, value)
        if value not in self.lo.ready:
            scratch.materialise(self.lo, value)
        return value

    def finish(self, carried: Sequence[str]) -> None:
        """After the last iteration: the results of the loop."""
        self._pin(self.op.results, carried)
        for i in self.scratch:
            self.lo.places[self.op.results[i]] = self.lo.places[self.op.do.args[i]]
            self.lo.ready.add(self.op.results[i])


def _in_place(arg: Value, loop: t.For, place: int) -> bool:
    """Whether each element of the next tile needs that same element of the last one only."""
    current = arg
    while True:
        if len(current.uses) != 1:
            return False
        ((user, number),) = current.uses
        if isinstance(user, t.TileYield):
            return user.parent is loop.do and number == place
        same = isinstance(user, t.Map | t.Select | t.TileCast)
        if not same and not (isinstance(user, t.Dot) and number == 2):
            return False
        if user.parent is not loop.do or user.result.tile.shape != arg.tile.shape:
            return False
        current = user.result


def _iterate(lo: Lowering, op: t.For, carried: list[str], body: _Carried) -> list[str]:
    """Runs all iterations; the last one apart if it may be partial."""
    start, span = lo.indices.settle(op.start), lo.indices.settle(as_expr(op.stop) - op.start)
    step = op.step
    trips = (span + (step - 1)).max(0) // step if span.constant is None else None
    count = as_expr(max(0, -(-(span.constant or 0) // step))) if trips is None else trips
    whole = span.max(0) // step
    if count.constant is not None and _is_written_out(lo, op, count.constant):
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


def _is_written_out(lo: Lowering, op: t.For, trips: int) -> bool:
    """Whether a loop becomes straight code: it asks for it, or is short and small."""
    if op.unroll:
        return trips <= UNROLLED
    return trips <= SHORT and trips * _size(lo, op.do) <= SMALL


def _size(lo: Lowering, body: Block) -> float:
    """Roughly how many instructions the body of a loop has."""
    total = 0.0
    for op in body:
        for value in op.results:
            layout = lo.layout_of(value)
            registers = len(lo.coordinates(value, layout))
            total += registers * (op.a.tile.cols if isinstance(op, t.Dot) else 2)
        if isinstance(op, t.For):
            trips = (as_expr(op.stop) - op.start).constant
            total += SMALL if trips is None else max(0, -(-trips // op.step)) * _size(lo, op.do)
        elif isinstance(op, t.Map) and op.output.tile.shape != (1, 1):
            total += walks.function_cost(op)
    return total


def _straight(
    lo: Lowering,
    op: t.For,
    index: Expr,
    carried: list[str],
    body: _Carried,
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
    body: _Carried,
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
