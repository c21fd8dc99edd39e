"""Direct convolution over two spatial axes into channels in blocks: lanes are output channels.

The rows of a register tile are pixels of an output row, its columns output channels. Rows of the
kernel's window that fall outside of the image are left out of the loop; the tiles at the left and
right border are built apart, with constant positions, so that only their own taps are bounded and
the tiles between need no mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Expr, as_expr, ceildiv, normal, symbol
from tfc.tile.build import C, R
from tfc.tile.nest import Nest, computed_in
from tfc.tile.nests.runs import expressions_of, find_runs, split_extent
from tfc.tile.nests.schedule import ConvolutionSchedule, check_fit
from tfc.tile.nests.window import Taps

BLOCK = 16  # channels of a block, and of a step of the inner loop


class Convolution:
    """The pieces of one direct convolution."""

    def __init__(
        self,
        nest: Nest,
        hero: Value,
        x: Value,
        weight: Value,
        windows: Sequence[Taps],
        groups: int,
        schedule: ConvolutionSchedule,
    ) -> None:
        self.nest, self.hero, self.x, self.weight = nest, hero, x, weight
        self.vertical, self.horizontal = windows
        self.merged = False
        self.groups = groups
        self.schedule = schedule
        outputs = hero.tensor.shape[1]
        self.outputs = -(-int(str(outputs)) // BLOCK) * BLOCK
        self.channels = int(str(weight.tensor.shape[1]))
        self.kind = computed_in(hero.tensor.dtype)
        packed = weight.tensor.layout is not None and 1 in weight.tensor.layout.blocks
        depths = (BLOCK,) if packed else range(min(BLOCK, self.channels), 0, -1)
        self.depth = next(d for d in depths if packed or self.channels % d == 0)
        self.steps = -(-self.channels // self.depth)

    def build(self, merged: bool) -> None:
        """`merged`: rows of the image are one run, as for 1x1 without stride and padding."""
        nest, schedule = self.nest, self.schedule
        n, _, height, width = self.hero.tensor.shape
        self.n, self.o = nest.axis("y0", n), nest.axis("y1", self.outputs)
        self.oh, self.ow = nest.axis("y2", height), nest.axis("y3", width)
        if merged:
            height, width = 1, normal(as_expr(height) * width)
            nest.join(["y2", "y3"], width)
            self.merged = True
        for name, size in (("k0", self.steps * self.depth), ("k1", self.vertical.taps)):
            nest.axis(name, size)
        nest.axis("k2", self.horizontal.taps)
        block = nest.over_grid(split_extent(self.outputs, schedule.channels))
        image = nest.over_grid(n)
        line = nest.over_grid(height)
        nest.tile(schedule.pixels, schedule.channels)
        nest.place(y0=image, y1=block * schedule.channels + C)
        if not merged:
            nest.place(y2=line)
        if as_expr(self.hero.tensor.shape[1]) != self.outputs:
            nest.guards.append((as_expr(0), self.o, as_expr(self.hero.tensor.shape[1])))
        self._pixels(width)

    # ---- tiles of pixels along an output row

    def _pixels(self, width: object) -> None:
        tile = self.schedule.pixels
        if not isinstance(width, int) or not isinstance(self.horizontal.size, int):
            self._loop_of_tiles(as_expr(0), as_expr(width), tile)  # type: ignore[arg-type]
            return
        starts = list(range(0, width - tile + 1, tile))
        free = [s for s in starts if not self._at_border(s, tile)]
        low = free[0] if free else width
        for s in (s for s in starts if s < low):
            self._border_tile(s, tile)
        if free:
            self._loop_of_tiles(as_expr(free[0]), as_expr(free[-1] + tile), tile)
        for s in (s for s in starts if free and s > free[-1]):
            self._border_tile(s, tile)
        done = starts[-1] + tile if starts else 0
        if done < width:
            self._border_tile(done, width - done)

    def _at_border(self, start: int, tile: int) -> bool:
        if self.merged:
            return False
        w = self.horizontal
        first = start * w.stride - w.low
        last = (start + tile - 1) * w.stride + (w.taps - 1) * w.dilation - w.low
        return first < 0 or last >= int(str(w.size))

    def _border_tile(self, start: int, tile: int) -> None:
        nest = self.nest
        nest.tile(tile, self.schedule.channels)
        with nest.placed(y3=start + R if tile > 1 else start):
            self._tile(tile, unroll=self._at_border(start, tile))
        nest.tile(self.schedule.pixels, self.schedule.channels)

    def _loop_of_tiles(self, start: Expr, stop: Expr, tile: int) -> None:
        nest = self.nest

        def step(i: Expr) -> None:
            with nest.ranged(i, start, stop, tile), nest.placed(y3=i + R if tile > 1 else i):
                self._tile(tile, unroll=False)

        nest.loop(start, stop, tile, [], step)

    # ---- one register tile

    def _window_rows(self) -> tuple[Expr, Expr]:
        """The rows of the window that lie in the image: from the first to past the last."""
        nest, taps = self.nest, self.vertical
        row = self.oh * taps.stride
        inside = (as_expr(0), row, as_expr(taps.size))
        if self.merged or ((taps.taps, taps.low) == (1, 0) and nest.holds(inside)):
            return as_expr(0), as_expr(1)
        first, past = taps.low - row, as_expr(taps.size) + taps.low - row
        start = ceildiv(nest.settle(first).max(0), taps.dilation)
        return start, ceildiv(nest.settle(past).max(0), taps.dilation).min(taps.taps)

    def _tile(self, tile: int, unroll: bool) -> None:
        nest = self.nest
        acc = nest.full((tile, self.schedule.channels), 0, self.kind)
        start, stop = self._window_rows()

        def over_channels(acc: Value, taps: Callable[[Expr, Value], list[Value]]) -> Value:
            """Sums over the input channels and the rows of the window."""

            def channel(i: Expr, acc: Value) -> list[Value]:
                def row(k: Expr, acc: Value) -> list[Value]:
                    with nest.placed_inside(k1=k):
                        return taps(i, acc)

                return nest.loop(start, stop, 1, [acc], row)

            return nest.loop(0, self.steps, 1, [acc], channel)[0]

        if unroll:
            # The taps apart, each in loops of its own: together they would share operands over
            # so many registers that accumulators spill.
            for j in range(self.horizontal.taps):
                acc = over_channels(acc, lambda i, a, j=j: [self._tap(i, as_expr(j), a)])
        else:

            def columns(i: Expr, acc: Value) -> list[Value]:
                def tap(j: Expr, acc: Value) -> list[Value]:
                    return [self._tap(i, j, acc)]

                return nest.loop(0, self.horizontal.taps, 1, [acc], tap)

            acc = over_channels(acc, columns)
        if self.schedule.stage_output:
            acc = nest.stage(acc)
        nest.finish(self.hero, [self.n, self.o, self.oh, self.ow], acc)

    def _tap(self, i: Expr, j: Expr, acc: Value) -> Value:
        """Adds the products of one tap and one block of input channels."""
        nest = self.nest
        depth = self.depth
        rows, cols = acc.tile.shape
        k, kh, kw = symbol("k0"), symbol("k1"), symbol("k2")
        across = self.horizontal.place(self.ow, kw)
        down = self.vertical.place(self.oh, kh)
        inside = [] if self.merged else [(as_expr(0), across, as_expr(self.horizontal.size))]
        group = self._group_channels()
        with nest.ranged(j, 0, self.horizontal.taps), nest.ranged(i, 0, self.steps):
            nest.tile(rows, depth)
            with (
                nest.placed_inside(k0=i * depth + (C if depth > 1 else 0), k2=j),
                nest.guarded(*inside),
            ):
                a = nest.pull(self.x, [self.n, group + k, down, across])
                a = nest.spread(nest.zero_outside(a, *inside), (rows, depth))
            nest.tile(depth, cols)
            with nest.placed_inside(k0=i * depth + (R if depth > 1 else 0), k2=j):
                b = nest.pull(self.weight, [self.o, k, kh, kw])
                b = nest.spread(b, (depth, cols))
            nest.tile(rows, cols)
            return nest.dot(nest.cast(a, self.kind), nest.cast(b, self.kind), acc)

    def _group_channels(self) -> Expr:
        """The first input channel of the group that the block of output channels belongs to."""
        if self.groups == 1:
            return as_expr(0)
        each = self.outputs // self.groups
        fits = each % self.schedule.channels == 0
        check_fit(fits, f"{self.schedule.channels} channels of a tile are not of one group")
        block = symbol(self.nest.kernel.grid[0][0])
        return block // (each // self.schedule.channels) * self.channels


def convolution(
    name: str,
    group: Block,
    hero: Value,
    x: Value,
    weight: Value,
    windows: Sequence[Taps],
    groups: int,
    schedule: ConvolutionSchedule,
) -> Kernel:
    """hero (N, O, H, W in the layout aBcd16b) = conv(x, weight packed in blocks of channels)."""
    nest = Nest(name, group)
    conv = Convolution(nest, hero, x, weight, windows, groups, schedule)
    conv.build(_merges(name, group, hero, x, windows))
    return nest.kernel


def _merges(name: str, group: Block, hero: Value, x: Value, windows: Sequence[Taps]) -> bool:
    """Whether output rows follow each other in every access, so that pixels form one run."""
    if any((w.taps, w.stride, w.low) != (1, 1, 0) for w in windows):
        return False
    if any(w.size != n for w, n in zip(windows, hero.tensor.shape[2:], strict=True)):
        return False
    nest = Nest(name, group)
    index = [nest.axis(f"y{i}", n) for i, n in enumerate(hero.tensor.shape)]
    k = nest.axis("k0", x.tensor.shape[1])
    nest.pull(x, [index[0], k, *index[2:]])
    nest.finish(hero, index, nest.full((1, 1), 0, computed_in(hero.tensor.dtype)))
    runs = find_runs(nest, hero.tensor.shape, expressions_of(nest))
    return any(2 in run.axes and 3 in run.axes for run in runs)
