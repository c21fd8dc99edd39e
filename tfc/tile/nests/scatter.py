"""Updates at computed places: each element of the output looks through the updates, in order.

So no two programs write one element, and the order in which updates are applied is that of the
text. What it costs grows with the elements of a slice times the updates that may go there.
"""

from __future__ import annotations

from collections.abc import Callable

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr
from tfc.tile.build import C
from tfc.tile.nest import Index, Nest
from tfc.tile.nests.runs import split_extent
from tfc.tile.nests.schedule import MapSchedule

COMBINE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}
Look = Callable[[Nest, Expr, Index], tuple[Value, Value]]


def scatter(
    name: str,
    group: Block,
    hero: Value,
    x: Value,
    count: Dim,
    look: Look,
    reduction: str,
    schedule: MapSchedule,
) -> Kernel:
    """hero[index] = x[index] combined with each of `count` updates that goes there.

    `look` gives, for the axis that counts the updates and an index of the output, a bool tile that
    says where the update goes there, and its tile.
    """
    nest = Nest(name, group)
    shape = hero.tensor.shape
    index = [nest.axis(f"y{i}", n) for i, n in enumerate(shape)]
    number = nest.axis("u", count)
    cols = schedule.cols if shape else 1
    nest.tile(1, cols)
    for i, n in enumerate(shape):
        size = cols if i == len(shape) - 1 else 1
        # Where the output is empty one program looks all the same: an index may be out of range.
        program = nest.over_grid(as_expr(split_extent(n, size)).max(1))
        nest.place(**{f"y{i}": program * size + (C if size > 1 else 0)})

    def step(i: Expr, total: Value) -> list[Value]:
        with nest.ranged(i, 0, count), nest.placed_inside(u=i):
            here, update = look(nest, number, index)
            if reduction != "none":
                update = nest.map(COMBINE[reduction], total, update)
            return [nest.spread(nest.select(here, update, total), (1, cols))]

    start = nest.spread(nest.pull(x, index), (1, cols))
    (total,) = nest.loop(0, count, 1, [start], step)
    nest.finish(hero, index, total)
    return nest.kernel
