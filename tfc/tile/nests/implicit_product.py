"""Convolution as one product of matrices, for large tiles: pixels by output channels.

The pixels of all images are one run, so that small images fill a tile too. The inner axis is every
tap of the kernel's window and every input channel, in one loop; what a window reads outside of an
image is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr, normal, product
from tfc.tile.build import C, R
from tfc.tile.nest import Bound, Nest, computed_in
from tfc.tile.nests.runs import split_extent
from tfc.tile.nests.schedule import check_fit
from tfc.tile.nests.schedule_gpu import ImplicitProduct
from tfc.tile.nests.window import Taps


def implicit_product(
    name: str,
    group: Block,
    hero: Value,
    x: Value,
    weight: Value,
    windows: Sequence[Taps],
    groups: int,
    schedule: ImplicitProduct,
) -> Kernel:
    """hero[n, o, ...] = the sum over c and taps of x[n, g*C + c, ...] * weight[o, c, ...]."""
    return _ImplicitProduct(name, group, hero, x, weight, windows, groups, schedule).build()


class _ImplicitProduct:
    def __init__(
        self,
        name: str,
        group: Block,
        hero: Value,
        x: Value,
        weight: Value,
        windows: Sequence[Taps],
        groups: int,
        schedule: ImplicitProduct,
    ) -> None:
        self.nest = Nest(name, group)
        self.hero, self.x, self.weight = hero, x, weight
        self.windows, self.groups, self.schedule = windows, groups, schedule
        self.kind = computed_in(hero.tensor.dtype)
        self.outputs = _in_blocks(hero, 1)
        self.channels = min(_in_blocks(weight, 1), _in_blocks(x, 1) // groups)
        each = self.outputs // groups
        fits = groups == 1 or each % schedule.channels == 0
        check_fit(fits, f"{schedule.channels} channels of a tile are not of one group")

    def build(self) -> Kernel:
        nest, schedule = self.nest, self.schedule
        shape = self.hero.tensor.shape
        pixels = product([shape[0], *shape[2:]])
        o, pixel = nest.axis("y0", self.outputs), nest.axis("y1", pixels)
        n, *places = _unravel(pixel, [shape[0], *shape[2:]])
        self.index = [n, o, *places]
        self.channel = nest.axis("k0", self.channels)
        self.taps = [nest.axis(f"k{i + 1}", w.taps) for i, w in enumerate(self.windows)]
        self.panel = nest.over_grid(split_extent(self.outputs, schedule.channels))
        strip = nest.over_grid(split_extent(pixels, schedule.pixels))
        nest.tile(schedule.pixels, schedule.channels)
        nest.place(y0=self.panel * schedule.channels + C, y1=strip * schedule.pixels + R)
        if as_expr(shape[1]) != self.outputs:
            nest.guards.append((as_expr(0), o, as_expr(shape[1])))
        acc = nest.full((schedule.pixels, schedule.channels), 0, self.kind)
        blocks = -(-self.channels // schedule.depth)
        trips = int(str(product([w.taps for w in self.windows]))) * blocks

        def step(i: Expr, acc: Value) -> list[Value]:
            return [self._step(i, trips, blocks, acc)]

        (acc,) = nest.loop(0, trips, 1, [acc], step)
        nest.finish(self.hero, self.index, acc)
        return nest.kernel

    def _step(self, i: Expr, trips: int, blocks: int, acc: Value) -> Value:
        """Adds the products of one tap and one block of input channels."""
        nest, depth = self.nest, self.schedule.depth
        rows, cols = acc.tile.shape
        first = i % blocks * depth
        taps = _unravel(i // blocks, [w.taps for w in self.windows])
        places = dict(zip(map(str, self.taps), taps, strict=True))
        with nest.ranged(i, 0, trips), nest.placed_inside(**places):
            nest.tile(rows, depth)
            with nest.placed(k0=first + (C if depth > 1 else 0)):
                a = nest.spread(self._operand(), (rows, depth))
            nest.tile(depth, cols)
            with nest.placed(k0=first + (R if depth > 1 else 0)):
                b = nest.pull(self.weight, [self.index[1], self.channel, *self.taps])
                b = nest.spread(b, (depth, cols))
            nest.tile(rows, cols)
            return nest.dot(nest.cast(a, self.kind), nest.cast(b, self.kind), acc)

    def _operand(self) -> Value:
        """The pixels that one tap reads: 0 outside of the image, also where x is computed here."""
        nest = self.nest
        at = [
            w.place(e, k) for w, e, k in zip(self.windows, self.index[2:], self.taps, strict=True)
        ]
        inside: list[Bound] = [
            (as_expr(0), e, as_expr(w.size)) for w, e in zip(self.windows, at, strict=True)
        ]
        with nest.guarded(*inside):
            a = nest.pull(self.x, [self.index[0], self._group() + self.channel, *at])
        if self.x.producer is None:
            return a
        inside.append((as_expr(0), self.channel, as_expr(self.channels)))
        mask = nest.mask(inside)
        return a if mask is None else nest.select(mask, a, nest.full((1, 1), 0, self.kind))

    def _group(self) -> Expr:
        """The first input channel of the group of this program's output channels."""
        if self.groups == 1:
            return as_expr(0)
        tiles = self.outputs // self.groups // self.schedule.channels
        return self.panel // tiles * self.channels


def _in_blocks(value: Value, axis: int) -> int:
    """The size of an axis; whole blocks of it, if it is blocked, since their padding is zero."""
    n = value.tensor.shape[axis]
    assert isinstance(n, int), "channels are static"
    layout = value.tensor.layout
    block = layout.blocks.get(axis, 1) if layout else 1
    return -(-n // block) * block


def _unravel(index: Expr, sizes: Sequence[Dim]) -> list[Expr]:
    """The coordinates of a number in row-major order."""
    out: list[Expr] = []
    for size in reversed(sizes[1:]):
        out.insert(0, index % size if size != 1 else as_expr(0))
        index = index // size
    return [index if normal(sizes[0]) != 1 else as_expr(0), *out]
