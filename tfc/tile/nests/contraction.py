"""Contractions: sums of products over one inner axis, batched, with prologue and epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr, symbol
from tfc.ir.types import DType
from tfc.tile.build import C, R
from tfc.tile.nest import Nest, computed_in
from tfc.tile.nests.runs import expressions_of, find_runs, join_runs, split_extent
from tfc.tile.nests.schedule import ContractionSchedule, check_fit


def contraction(
    name: str, group: Block, hero: Value, lhs: Value, rhs: Value, schedule: ContractionSchedule
) -> Kernel:
    """hero[b..., m, n] = sum over k of lhs[b..., m, k] * rhs[b..., k, n], numpy.matmul's batches.

    Both operands have rank 2 or more. Leading axes that all accesses walk as one merge with m.
    """
    shape = hero.tensor.shape
    depth = lhs.tensor.shape[-1]
    runs = find_runs(Nest(name, group), shape[:-1], _accesses(name, group, hero, lhs, rhs))
    nest = Nest(name, group)
    index = [nest.axis(f"y{i}", n) for i, n in enumerate(shape)]
    names = join_runs(nest, runs)
    nest.axis("k0", depth)
    _build(nest, hero, lhs, rhs, index, names, [r.extent for r in runs], schedule)
    return nest.kernel


def _operand_index(value: Value, index: Sequence[Expr], last: Sequence[Expr]) -> list[Expr]:
    """The index of an operand whose leading axes broadcast against those of the output."""
    batch = value.tensor.rank - 2
    leading = index[len(index) - 2 - batch : len(index) - 2]
    sizes = value.tensor.shape[:batch]
    return [as_expr(0) if n == 1 else e for n, e in zip(sizes, leading, strict=True)] + list(last)


def _accesses(name: str, group: Block, hero: Value, lhs: Value, rhs: Value) -> list[Expr]:
    nest = Nest(name, group)
    shape = hero.tensor.shape
    index = [nest.axis(f"y{i}", n) for i, n in enumerate(shape)]
    k = nest.axis("k0", lhs.tensor.shape[-1])
    nest.pull(lhs, _operand_index(lhs, index, [index[-2], k]))
    nest.pull(rhs, _operand_index(rhs, index, [k, index[-1]]))
    nest.finish(hero, index, nest.full((1, 1), 0, computed_in(hero.tensor.dtype)))
    return expressions_of(nest)


def _build(
    nest: Nest,
    hero: Value,
    lhs: Value,
    rhs: Value,
    index: list[Expr],
    names: list[str],
    extents: list[Dim],
    schedule: ContractionSchedule,
) -> None:
    rows, cols, depth = schedule.rows, schedule.cols, schedule.depth
    column = str(index[-1])
    programs = [nest.over_grid(n) for n in extents[:-1]]
    panel = nest.over_grid(split_extent(hero.tensor.shape[-1], cols))
    strip = schedule.strip or rows
    block = nest.over_grid(split_extent(extents[-1], strip)) if extents else as_expr(0)
    nest.tile(rows, cols)
    nest.place(**dict(zip(names[:-1], programs, strict=True)))
    nest.place(**{column: panel * cols + C})
    k_extent = lhs.tensor.shape[-1]
    whole: Value | None = None
    if schedule.stage_rhs:
        whole = _staged_panel(nest, rhs, index, k_extent)

    def tile_of_rows(i: Expr) -> None:
        with nest.placed(**({names[-1]: block * strip + i + R} if names else {})):
            acc = _multiply(nest, hero, lhs, rhs, index, k_extent, depth, whole)
            if schedule.stage_output:
                acc = nest.stage(acc)
            nest.finish(hero, index, acc)

    def step(i: Expr) -> None:
        with nest.ranged(i, 0, strip, rows):
            tile_of_rows(i)

    nest.loop(0, strip, rows, [], step)


def _staged_panel(nest: Nest, rhs: Value, index: list[Expr], extent: Dim) -> Value:
    """The right operand's panel of all k, transposed where it must be, in scratch."""
    check_fit(isinstance(extent, int), "a panel can be staged only if its depth is a number")
    assert isinstance(extent, int)
    saved = nest.rows
    nest.tile(extent, nest.cols)
    with nest.placed(k0=R):
        panel = nest.pull(rhs, _operand_index(rhs, index, [symbol("k0"), index[-1]]))
        panel = nest.stage(nest.spread(panel, (extent, nest.cols)))
    nest.tile(saved, nest.cols)
    return panel


def _multiply(
    nest: Nest,
    hero: Value,
    lhs: Value,
    rhs: Value,
    index: list[Expr],
    extent: Dim,
    depth: int,
    whole: Value | None,
) -> Value:
    """The accumulators of one register tile."""
    rows, cols = nest.rows, nest.cols
    kind = accumulator_type(hero.tensor.dtype)
    zero = nest.full((rows, cols), 0, kind)
    product = _Product(nest, lhs, rhs, index, kind)
    if whole is not None:
        assert isinstance(extent, int)
        return product.add(as_expr(0), extent, zero, whole)
    if isinstance(extent, int):
        return product.whole_steps(extent, depth, zero)
    return product.ragged_steps(extent, depth, zero)


@dataclass
class _Product:
    """Adds to an accumulator the products of some of the inner axis."""

    nest: Nest
    lhs: Value
    rhs: Value
    index: list[Expr]
    kind: DType

    def whole_steps(self, extent: int, depth: int, acc: Value) -> Value:
        """All of an inner axis of known size: what is left of the last step stands alone."""

        def step(i: Expr, acc: Value) -> list[Value]:
            with self.nest.ranged(i, 0, extent // depth):
                return [self.add(i * depth, depth, acc)]

        if extent >= depth:
            (acc,) = self.nest.loop(0, extent // depth, 1, [acc], step)
        rest = extent % depth
        return self.add(as_expr(extent - rest), rest, acc) if rest else acc

    def ragged_steps(self, extent: Dim, depth: int, acc: Value) -> Value:
        """All of an inner axis of which the call knows the size: each step is bounded."""

        def step(i: Expr, acc: Value) -> list[Value]:
            with self.nest.ranged(i, 0, extent, depth):
                return [self.add(i, depth, acc)]

        return self.nest.loop(0, extent, depth, [acc], step)[0]

    def add(self, start: Expr, depth: int, acc: Value, whole: Value | None = None) -> Value:
        """`depth` products from `start`; `whole` is the right operand's tile if it is there."""
        nest, k = self.nest, symbol("k0")
        rows, cols = acc.tile.shape
        inside = (as_expr(0), k, as_expr(self.lhs.tensor.shape[-1]))
        nest.tile(rows, depth)
        with nest.placed(k0=start + C if depth > 1 else start):
            a = nest.pull(self.lhs, _operand_index(self.lhs, self.index, [self.index[-2], k]))
            a = nest.spread(nest.zero_outside(a, inside), (rows, depth))
        nest.tile(depth, cols)
        b = whole
        if b is None:
            with nest.placed(k0=start + R if depth > 1 else start):
                b = nest.pull(self.rhs, _operand_index(self.rhs, self.index, [k, self.index[-1]]))
                b = nest.spread(nest.zero_outside(b, inside), (depth, cols))
        nest.tile(rows, cols)
        return nest.dot(nest.cast(a, self.kind), nest.cast(b, self.kind), acc)


def accumulator_type(dtype: DType) -> DType:
    """f32 for f16 and bf16; small integers accumulate in their own width, since they wrap."""
    return computed_in(dtype)
