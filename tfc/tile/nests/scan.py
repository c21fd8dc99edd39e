"""Running sums along an axis: a loop along it, the other axes side by side."""

from __future__ import annotations

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Expr, as_expr
from tfc.tile.build import C
from tfc.tile.nest import Nest, computed_in
from tfc.tile.nests.runs import split_extent
from tfc.tile.nests.schedule import MapSchedule


def cumulative_sum(
    name: str,
    group: Block,
    hero: Value,
    x: Value,
    axis: int,
    exclusive: bool,
    reverse: bool,
    schedule: MapSchedule,
) -> Kernel:
    """hero[..., i, ...] = the sum of x[..., j, ...] over j <= i.

    Over j < i if exclusive; from the end if reverse.
    """
    nest = Nest(name, group)
    shape = hero.tensor.shape
    index = [nest.axis(f"y{i}", n) for i, n in enumerate(shape)]
    others = [i for i in range(len(shape)) if i != axis]
    cols = schedule.cols if others else 1
    nest.tile(1, cols)
    for i in others:
        size = cols if i == others[-1] else 1
        program = nest.over_grid(split_extent(shape[i], size))
        nest.place(**{f"y{i}": program * size + (C if size > 1 else 0)})
    kind = computed_in(hero.tensor.dtype)
    length = shape[axis]

    def step(i: Expr, total: Value) -> list[Value]:
        place = as_expr(length) - 1 - i if reverse else i
        with nest.ranged(i, 0, length), nest.placed_inside(**{f"y{axis}": place}):
            element = nest.spread(nest.pull(x, index), (1, cols))
            after = nest.map("add", total, element)
            nest.finish(hero, index, total if exclusive else after)
        return [after]

    nest.loop(0, length, 1, [nest.full((1, cols), 0, kind)], step)
    return nest.kernel
