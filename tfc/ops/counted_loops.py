"""`while` loops whose number of iterations is known, as `scan`, which has a gradient.

Known is a counter: a carried integer that starts at a constant or a dimension, to which each
iteration adds a constant, and that `cond` alone compares with one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Effect, Op, Value
from tfc.ir.expr import Dim, Expr, as_expr, ceildiv, normal
from tfc.ir.types import BOOL, TensorType
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


def trip_count(op: While) -> Dim | None:
    """How often a loop runs; None where that is not known."""
    counter = _counter(op)
    return None if counter is None else counter.count


def _counter(op: While) -> Counter | None:
    (test,) = op.cond.terminator.inputs
    compare = test.producer
    if any(inner.effects is not Effect.NONE for inner in op.cond.walk()):
        return None
    if not isinstance(compare, Less | LessEqual | Greater | GreaterEqual):
        return None
    sides = [_carried(op.cond, compare.x), _carried(op.cond, compare.y)]
    place = sides[0] if sides[0] is not None else sides[1]
    if place is None or None not in sides:
        return None
    limit = _number(compare.y if sides[0] is not None else compare.x)
    start, step = _number(op.carried[place]), _step(op.do, place)
    if limit is None or start is None or not step:
        return None
    return _bounded(compare, sides[0] is not None, start, limit, step)


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
    maker = _same(block.terminator.inputs[place]).producer
    if not isinstance(maker, Add | Sub):
        return 0
    x, y = _same(maker.x), _same(maker.y)
    if isinstance(maker, Add) and y is block.args[place]:
        x, y = y, x
    step = _number(y) if x is block.args[place] else None
    if step is None or isinstance(step, Expr):
        return 0
    return step if isinstance(maker, Add) else -step


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
    block = Block([a.type for a in op.do.args], [a.name for a in op.do.args])
    mapping: dict[Value, Value] = dict(zip(op.cond.args, block.args, strict=True))
    for inner in op.cond:
        if not inner.terminator:
            block.append(inner.clone(mapping))
    (test,) = op.cond.terminator.inputs
    then = Block()
    inside: dict[Value, Value] = dict(zip(op.do.args, block.args, strict=True))
    for inner in op.do:
        then.append(inner.clone(inside))
    other = Block()
    other.append(Yield(list(block.args)))
    assert mapping.get(test, test).type == TensorType(BOOL, ()), "C2 of while holds"
    types = [a.type for a in block.args]
    chosen = If(mapping.get(test, test), types=types, then=then, else_=other)
    block.append(chosen)
    block.append(Yield(list(chosen.results)))
    return block
