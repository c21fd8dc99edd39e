"""Which rows (or columns) of a load may hold anything where they are out of bounds.

Where an axis of a tile stays apart on every way to a store, and the store has the same bound,
what is loaded out of bounds is never stored: the load may take a valid row again instead of
masking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.ir.core import Block, Kernel, Op, Value
from tfc.ir.expr import Call, Expr, as_expr, symbol
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.bounds import Bound

_NAMES = (t.ROW, t.COLUMN)


def clampable(kernel: Kernel, load: t.Load, bound: Bound, axis: int) -> bool:
    """Whether an index of this axis may be clamped to the bound's upper end instead of masked.

    The bound must count along the axis (e = axis + rest) and its set must not be empty. Indices
    in tiles are checked by masks, which the same clamp would not fit.
    """
    if load.indices:
        return False
    other = _NAMES[1 - axis]
    rest = bound.value - symbol(_NAMES[axis])
    inner = (*rest.symbols(), *bound.low.symbols(), *bound.high.symbols())
    if _NAMES[axis] in inner or other in inner or bound.low != 0:
        return False
    if not _is_positive(bound.high, kernel):
        return False
    return _stays_apart(load.output, axis, bound)


def _is_positive(extent: Expr, kernel: Kernel) -> bool:
    """Whether extent >= 1 follows from the grid having a program."""
    if extent.constant is not None:
        return extent.constant > 0
    return any(_implies_positive(as_expr(n), extent) for _, n in kernel.grid)


def _implies_positive(grid: Expr, extent: Expr) -> bool:
    """grid >= 1 implies extent >= 1: it is the extent, or ceildiv of it, times other factors."""
    if grid == extent:
        return True
    if len(grid.terms) != 1:
        return False
    (monomial,) = grid.terms
    for atom in monomial:
        if extent == Expr({(atom,): 1}):
            return True
        if isinstance(atom, Call) and atom.op == "floordiv":
            divisor = atom.rhs.constant
            if divisor is not None and atom.lhs == extent + (divisor - 1):
                return True
    return False


def _stays_apart(value: Value, axis: int, bound: Bound) -> bool:
    pending = [(value, axis)]
    seen: set[tuple[Value, int]] = set()
    while pending:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        for op, number in current[0].uses:
            following = _through(op, number, current[1], bound, value, axis)
            if following is None:
                return False
            pending.extend(following)
    return True


def _through(
    op: Op, number: int, axis: int, bound: Bound, origin: Value, origin_axis: int
) -> list[tuple[Value, int]] | None:
    """Where the axis of an operand goes in an op; None if it mixes or a store lacks the bound."""
    operand = op.operands[number]
    assert operand is not None
    match op:
        case t.Store():
            return [] if _bounded_alike(op, axis, bound, origin_axis) else None
        case t.Transpose():
            return [(op.output, 1 - axis)]
        case t.Reduce():
            return None if op.axis == axis else [(op.output, axis)]
        case t.Dot():
            mixes = (number == 0 and axis == 1) or (number == 1 and axis == 0)
            return None if mixes else [(op.output, axis)]
        case t.For():
            return [(op.do.args[number], axis), (op.results[number], axis)]
        case t.TileYield():
            assert isinstance(op.parent, Block) and isinstance(op.parent.parent, t.For)
            loop = op.parent.parent
            if loop.index in bound.value.symbols():
                return None  # the next iteration has another bound
            return [(loop.do.args[number], axis), (loop.results[number], axis)]
        case t.Map() | t.Select() | t.TileCast() | t.Stage() | t.WrapIndex() | t.Load():
            spread = operand.tile.shape[axis] != op.result.tile.shape[axis]
            return None if spread else [(op.result, axis)]
        case _:
            return None


def _bounded_alike(store: t.Store, axis: int, bound: Bound, origin_axis: int) -> bool:
    renamed = bound.value.substitute({_NAMES[origin_axis]: symbol(_NAMES[axis])})
    return any(
        lo == bound.low and as_expr(e) == renamed and hi == bound.high
        for lo, e, hi in t.bounds(store.where)
    )
