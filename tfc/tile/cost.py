"""What tile ops cost in cycles: an estimate that decides what is worth a thread or straight code.

It counts the vectors that an op handles; what matters is the order of magnitude.
"""

from __future__ import annotations

from tfc.ir.core import Block, Op
from tfc.ir.expr import Dim, as_expr
from tfc.ir.types import TileType
from tfc.tile import ops as t
from tfc.tile.nest import coefficient

USUAL_SIZE = 64  # what a symbolic trip count is taken for
ACCESS = 2  # of a vector of neighbours
APART = 3  # of an element that lies apart from its neighbours
FUNCTIONS = {
    **{"exp": 8, "expm1": 12, "log": 12, "log1p": 14, "erf": 24, "tanh": 22, "sigmoid": 16},
    **{"softplus": 20, "pow": 40, "sin": 20, "cos": 20, "fmod": 30, "mod": 10},
    **{"div": 8, "sqrt": 8, "rsqrt": 8, "reciprocal": 4},
}
"""Of functions that take more than an instruction."""


def block_cycles(block: Block, lanes: int) -> float:
    """One run of a block, with all iterations of its loops."""
    return sum(op_cycles(op, lanes) for op in block)


def op_cycles(op: Op, lanes: int) -> float:
    """An op where it is computed once; views, positions and constants are free."""
    match op:
        case t.For():
            return _usual_trips(op) * block_cycles(op.do, lanes)
        case t.Dot():
            return op.a.tile.cols * vectors(op.output.tile, lanes) / 2
        case t.Load():
            return _access_cycles(op, op.output.tile, lanes)
        case t.Store():
            return _access_cycles(op, op.value.tile, lanes)
        case t.Map():
            return vectors(op.output.tile, lanes) * FUNCTIONS.get(op.function, 1)
        case t.Reduce():
            return vectors(op.x.tile, lanes)
        case t.Select() | t.TileCast():
            return vectors(op.output.tile, lanes)
        case _:
            return 0.0


def vectors(tile: TileType, lanes: int) -> int:
    """How many vectors a tile is, its lanes along the columns."""
    return tile.rows * -(-tile.cols // lanes)


def trip_count(loop: t.For) -> int | None:
    """How often the body of a loop runs; None where that depends on a symbol."""
    start, stop = as_expr(loop.start).constant, as_expr(loop.stop).constant
    return None if start is None or stop is None else max(0, -(-(stop - start) // loop.step))


def _usual_trips(loop: t.For) -> int:
    start, stop = _usual(loop.start), _usual(loop.stop)
    return max(0, -(-(stop - start) // loop.step))


def _usual(dim: Dim) -> int:
    e = as_expr(dim)
    return e.evaluate(dict.fromkeys(e.symbols(), USUAL_SIZE))


def _access_cycles(op: t.Load | t.Store, tile: TileType, lanes: int) -> float:
    """Vectors where neighbours lie side by side, or are one; else each element by itself."""
    if isinstance(op, t.Load) and op.indices:
        return APART * tile.rows * tile.cols
    lane = t.COLUMN if tile.cols > 1 else t.ROW
    stride = coefficient(as_expr(op.at), lane)
    if tile.cols > 1 and (stride is None or stride.constant not in (0, 1)):
        return APART * tile.rows * tile.cols
    return ACCESS * vectors(tile, lanes)
