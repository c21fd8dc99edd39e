"""Which bounds of a kernel's accesses hold by proof, in which programs and which iterations.

A bound lo <= e < hi is dropped where it holds for all programs. Else the body of the kernel is
emitted twice: for full programs, in which every test of the table is >= 0, and for edge programs.
A loop whose last iteration may be partial is peeled if a bound holds only in its whole
iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tfc.ir.core import Block, Kernel, Op
from tfc.ir.expr import ZERO, Expr, as_expr, extreme, is_nonnegative
from tfc.tile import ops as t

Ranges = dict[str, tuple[Expr, Expr]]


@dataclass(frozen=True)
class Bound:
    """lo <= e < hi; where it is known to hold.

    `full`: only in full programs; `whole`: only in whole iterations of these loops; `open`: it
    cannot be proved and always stays.
    """

    low: Expr
    value: Expr
    high: Expr
    full: bool = False
    whole: frozenset[str] = frozenset()
    open: bool = False


@dataclass(frozen=True)
class LoopRange:
    """The values of a loop variable: of all iterations, and of those that are whole."""

    every: tuple[Expr, Expr]
    whole: tuple[Expr, Expr]
    ragged: bool


class BoundTable:
    """The bounds of each access that are not proved for all programs; the tests of full ones."""

    def __init__(self, kernel: Kernel) -> None:
        self.grid: Ranges = {name: (ZERO, as_expr(n) - 1) for name, n in kernel.grid}
        self.tests: dict[Expr, None] = {}
        self.bounds: dict[Op, list[Bound]] = {}
        self.peeled: set[str] = set()
        for op, loops in _walk(kernel.body, {}):
            where = getattr(op, "where", ())
            shape = op.value.tile.shape if isinstance(op, t.Store) else None
            if where:
                shape = shape or op.result.tile.shape
                kept = (self._classify(b, shape, loops) for b in t.bounds(where))
                self.bounds[op] = [b for b in kept if b is not None]

    def of(self, op: Op) -> list[Bound]:
        return self.bounds.get(op, [])

    def _classify(
        self, triple: tuple[object, ...], shape: tuple[int, int], loops: dict[str, LoopRange]
    ) -> Bound | None:
        low, value, high = (as_expr(x) for x in triple)  # type: ignore[arg-type]
        bound = Bound(low, value, high)
        tile: Ranges = {
            t.ROW: (ZERO, as_expr(shape[0] - 1)),
            t.COLUMN: (ZERO, as_expr(shape[1] - 1)),
        }
        every = tile | {name: r.every for name, r in loops.items()}
        whole = tile | {name: r.whole for name, r in loops.items()}
        ragged = {name for name, r in loops.items() if r.ragged}
        for side in (value - low, high - 1 - value):
            if self._holds(extreme(side, every, False)):
                continue
            needed = frozenset(ragged.intersection(side.symbols()))
            test = extreme(side, whole if needed else every, False)
            bound = replace(bound, whole=bound.whole | needed)
            if not self._holds(test):
                bound = self._in_full_programs(bound, test)
        if not (bound.full or bound.whole or bound.open):
            return None
        if not bound.open:
            self.peeled |= bound.whole
        return bound

    def _holds(self, test: Expr) -> bool:
        return is_nonnegative(test, self.grid)

    def _in_full_programs(self, bound: Bound, test: Expr) -> Bound:
        best = extreme(test, self.grid, True).constant
        inner = any(s not in self.grid and not s[:1].isupper() for s in test.symbols())
        if inner or (best is not None and best < 0):
            return replace(bound, open=True)
        self.tests[test] = None
        return replace(bound, full=True)


def _walk(block: Block, loops: dict[str, LoopRange]) -> Iterator[tuple[Op, dict[str, LoopRange]]]:
    for op in block:
        yield op, loops
        if isinstance(op, t.For):
            yield from _walk(op.do, {**loops, op.index: loop_range(op)})


def loop_range(op: t.For) -> LoopRange:
    start, stop = as_expr(op.start), as_expr(op.stop)
    span = (stop - start).constant
    if span is not None:
        last = start + max(0, -(-span // op.step) - 1) * op.step
        whole_last = start + max(0, span // op.step - 1) * op.step
        return LoopRange((start, last), (start, whole_last), span % op.step != 0)
    if ((stop - start) % op.step).constant == 0:
        return LoopRange((start, stop - op.step), (start, stop - op.step), False)
    return LoopRange((start, stop - 1), (start, stop - op.step), True)
