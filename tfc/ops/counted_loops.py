"""`while` loops whose number of iterations is known, as `scan`, which has a gradient.

Known is a counter: a carried integer that starts at a constant or a dimension, to which each
iteration adds a constant, and that `cond` alone compares with one. A counter may be a float too,
between constants; it is run here to see when it ends, since floats round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Effect, Op, Value
from tfc.ir.expr import Dim, Expr, as_expr, ceildiv, normal
from tfc.ir.types import BOOL, F32, F64, TensorType
from tfc.ops.arithmetic import Add, Sub
from tfc.ops.constant import Constant, DimValue
from tfc.ops.control import If, Yield
from tfc.ops.logic import Greater, GreaterEqual, Less, LessEqual
from tfc.ops.loops import Scan, While
from tfc.ops.view import Identity


@dataclass(frozen=True)
class Counter:
    """An integer that runs from `start` by `step` while it is below `stop` (above, if negative)."""

    start: Dim
    stop: Dim
    step: int

    @property
    def count(self) -> Dim:
        """The number of iterations."""
        span, step = as_expr(self.stop) - self.start, self.step
        whole = ceildiv(span if step > 0 else -span, abs(step))
        return normal(as_expr(whole).max(0))


Comparison: TypeAlias = Less | LessEqual | Greater | GreaterEqual
MOST_FLOATS = 100_000  # trips of a float counter, which are counted one by one


def trip_count(op: While) -> Dim | None:
    """How often a loop runs; None where that is not known."""
    (test,) = op.cond.terminator.inputs
    compare = test.producer
    if any(inner.effects is not Effect.NONE for inner in op.cond.walk()):
        return None
    if not isinstance(compare, Comparison):
        return None
    sides = [_carried(op.cond, compare.x), _carried(op.cond, compare.y)]
    place = sides[0] if sides[0] is not None else sides[1]
    if place is None or None not in sides:
        return None
    first = sides[0] is not None
    limit, start = compare.y if first else compare.x, op.carried[place]
    if compare.x.tensor.dtype in (F32, F64):
        return _float_count(compare, first, start, limit, _stepped(op.do, place))
    counter = _counter(compare, first, _number(start), _number(limit), _step(op.do, place))
    return None if counter is None else counter.count


def _counter(
    compare: Comparison, first: bool, start: Dim | None, limit: Dim | None, step: int
) -> Counter | None:
    if limit is None or start is None or not step:
        return None
    return _bounded(compare, first, start, limit, step)


def _float_count(
    compare: Comparison, first: bool, start: Value, limit: Value, step: tuple[Op, Value] | None
) -> int | None:
    """How often a loop runs that compares a float with a constant; a NaN ends it."""
    by = _float(step[1]) if step is not None else None
    value, end = _float(start), _float(limit)
    if step is None or value is None or end is None or by is None:
        return None
    for count in range(MOST_FLOATS):
        if not compare.reference(*((value, end) if first else (end, value))):
            return count
        value = value + by if isinstance(step[0], Add) else value - by
    return None


def _float(value: Value) -> Any:
    """A float that is known when the module is compiled, in its own type."""
    maker = _same(value).producer
    if not isinstance(maker, Constant) or maker.splat is None or maker.result.tensor.rank:
        return None
    return maker.result.tensor.dtype.numpy.type(maker.splat)


def _bounded(compare: Op, first: bool, start: Dim, limit: Dim, step: int) -> Counter | None:
    """The counter of a comparison in which it stands first, or second."""
    upward = isinstance(compare, Less | LessEqual) == first
    if upward != (step > 0):
        return None  # runs for ever, or not at all
    reached = isinstance(compare, LessEqual | GreaterEqual)
    stop = as_expr(limit) + (0 if not reached else 1 if step > 0 else -1)
    return Counter(start, normal(stop), step)


def _carried(block: Block, value: Value) -> int | None:
    """Which argument of a block a value is."""
    value = _same(value)
    return value.index if value.owner is block else None


def _same(value: Value) -> Value:
    while isinstance(value.producer, Identity):
        value = value.producer.x
    return value


def _number(value: Value) -> Dim | None:
    """An integer that is known when the module is compiled."""
    maker = _same(value).producer
    if isinstance(maker, DimValue):
        return maker.value
    if isinstance(maker, Constant) and maker.result.tensor.dtype.is_integer:
        return None if maker.splat is None or maker.result.tensor.rank else int(maker.splat)
    return None


def _step(block: Block, place: int) -> int:
    """What each iteration adds to a carried integer; 0 where that is not known."""
    found = _stepped(block, place)
    step = _number(found[1]) if found is not None else None
    if found is None or step is None or isinstance(step, Expr):
        return 0
    return step if isinstance(found[0], Add) else -step


def _stepped(block: Block, place: int) -> tuple[Op, Value] | None:
    """The op, `add` or `sub`, that makes the next of a carried value, and what it adds or takes."""
    maker = _same(block.terminator.inputs[place]).producer
    if not isinstance(maker, Add | Sub):
        return None
    x, y = _same(maker.x), _same(maker.y)
    if isinstance(maker, Add) and y is block.args[place]:
        x, y = y, x
    return (maker, y) if x is block.args[place] else None


def as_scan(op: While) -> Scan:
    """Replaces a loop by a scan, of whose iterations each does the same.

    Raises TfcError where the number of iterations is neither known nor bounded by `maximum`.
    """
    count = trip_count(op)
    b = Builder.before_op(op)
    if count is not None:
        body, op.regions[1] = op.do, Block()
        if op.maximum >= 0:
            count = normal(as_expr(count).min(op.maximum))
    elif op.maximum >= 0:
        count, body = op.maximum, _guarded(op)
    else:
        raise op.error(
            "the number of iterations is not known, so that the backward loop cannot save values",
            "count with a constant step up to a constant or a dimension, "
            "or bound the loop, as in {maximum = 100}",
        )
    types = [v.type for v in op.results]
    scan = Scan(list(op.carried), carries=len(types), length=count, types=types, do=body)
    b.add(scan)
    scan.take_place(op)
    return scan


def _guarded(op: While) -> Block:
    """The body of a scan that does nothing more once `cond` is false."""
    if any(inner.effects & Effect.WRITE for inner in op.cond.walk()):
        raise op.error(
            "`cond` has effects, which a backward loop would repeat after the last iteration",
            "move what writes from `cond` to `do`",
        )
    block = Block([a.type for a in op.do.args], [a.name for a in op.do.args])
    mapping: dict[Value, Value] = dict(zip(op.cond.args, block.args, strict=True))
    known: dict[Op, Op] = {}
    for inner in op.cond:
        if not inner.terminator:
            block.append(inner.clone(mapping, known))
    (test,) = op.cond.terminator.inputs
    waits = [known.get(o, o) for o in op.cond.terminator.after]
    then = Block()
    inside: dict[Value, Value] = dict(zip(op.do.args, block.args, strict=True))
    for inner in op.do:
        then.append(inner.clone(inside, known))
    other = Block()
    other.append(Yield(list(block.args)))
    assert mapping.get(test, test).type == TensorType(BOOL, ()), "C2 of while holds"
    types = [a.type for a in block.args]
    chosen = If(mapping.get(test, test), types=types, then=then, else_=other)
    block.append(chosen)
    end = block.append(Yield(list(chosen.results)))
    for earlier in waits:
        end.add_after(earlier)
    return block
