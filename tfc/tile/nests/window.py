"""Folds over windows of spatial axes, in any layout: pools, and convolutions of any kind.

Output axes are placed as in an elementwise kernel; the taps are loops. What a window reads outside
of the operand is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr, normal
from tfc.tile.build import C, R
from tfc.tile.nest import Index, Nest, computed_in, padding_bounds, physical_index
from tfc.tile.nests.identity import identity
from tfc.tile.nests.reduction import COMBINE
from tfc.tile.nests.runs import split_extent
from tfc.tile.nests.schedule import WindowSchedule


@dataclass(frozen=True)
class Taps:
    """The windows along one spatial axis of an operand of `size`."""

    taps: int
    stride: int
    dilation: int
    low: int
    size: Dim

    def place(self, output: Expr, tap: Expr) -> Expr:
        """The index of the operand that a tap of an output's window reads."""
        return output * self.stride + tap * self.dilation - self.low


Fold = Callable[[list[Expr], list[Value]], Sequence[Value]]


def pool(
    name: str,
    group: Block,
    hero: Value,
    x: Value,
    function: str,
    windows: Sequence[Taps],
    counted: Sequence[tuple[int, int]] | None,
    schedule: WindowSchedule,
) -> Kernel:
    """`function` is max or sum; a sum is divided by the number of counted elements of the window.

    `counted` gives for each axis how far beyond the operand elements count, low and high.
    """
    nest, index = _start(name, group, hero, schedule)
    kind = computed_in(hero.tensor.dtype)
    start = identity(function, hero.tensor.dtype)
    shape = nest.shape(*(nest.settle(e) for e in index))
    inits = [nest.full(shape, start, kind)]
    if counted is not None:
        inits.append(nest.full(shape, 0, kind))

    def fold(taps: list[Expr], carried: list[Value]) -> list[Value]:
        places = [w.place(e, k) for w, e, k in zip(windows, index[2:], taps, strict=True)]
        element = _element(nest, x, [*index[:2], *places], windows, start)
        out = [nest.map(COMBINE[function], carried[0], nest.spread(element, shape))]
        if counted is not None:
            out.append(_count(nest, carried[1], places, windows, counted, shape))
        return out

    done = _taps(nest, [w.taps for w in windows], inits, fold)
    total = done[0] if counted is None else nest.map("div", done[0], done[1])
    nest.finish(hero, index, total)
    return nest.kernel


def _element(
    nest: Nest, x: Value, index: list[Expr], windows: Sequence[Taps], outside: float
) -> Value:
    """The elements of x at an index that may lie outside of it: there they are a number."""
    inside = [(as_expr(0), e, as_expr(w.size)) for w, e in zip(windows, index[2:], strict=True)]
    with nest.guarded(*inside):
        element = nest.pull(x, index)
    mask = nest.mask(inside)
    if mask is None:
        return element
    return nest.select(mask, element, nest.full((1, 1), outside, element.tile.dtype))


def _count(
    nest: Nest,
    count: Value,
    places: Sequence[Expr],
    windows: Sequence[Taps],
    counted: Sequence[tuple[int, int]],
    shape: tuple[int, int],
) -> Value:
    triples = [
        (as_expr(-low), e, as_expr(w.size) + high)
        for e, w, (low, high) in zip(places, windows, counted, strict=True)
    ]
    mask = nest.mask(triples)
    kind = count.tile.dtype
    one = nest.full((1, 1), 1, kind)
    if mask is not None:
        one = nest.select(mask, one, nest.full((1, 1), 0, kind))
    return nest.map("add", count, nest.spread(one, shape))


def convolution_by_windows(
    name: str,
    group: Block,
    hero: Value,
    x: Value,
    weight: Value,
    windows: Sequence[Taps],
    groups: int,
    schedule: WindowSchedule,
) -> Kernel:
    """hero[n, o, ...] = sum over c and taps of x[n, g*C + c, ...] * weight[o, c, ...]."""
    nest, index = _start(name, group, hero, schedule)
    kind = computed_in(hero.tensor.dtype)
    shape = nest.shape(*(nest.settle(e) for e in index))
    channels, outputs = weight.tensor.shape[1], hero.tensor.shape[1]
    first = index[1] // (as_expr(outputs) // groups) * channels if groups > 1 else as_expr(0)
    if groups > 1 and channels == 1 and outputs == groups:
        first = index[1]
    channel = nest.axis("k0", channels)
    taps_of = [nest.axis(f"k{i + 1}", w.taps) for i, w in enumerate(windows)]

    def fold(taps: list[Expr], carried: list[Value]) -> list[Value]:
        places = {"k0": taps[0]} | {f"k{i + 1}": k for i, k in enumerate(taps[1:])}
        with nest.placed_inside(**places):
            at = [w.place(e, k) for w, e, k in zip(windows, index[2:], taps_of, strict=True)]
            element = _element(nest, x, [index[0], first + channel, *at], windows, 0)
            factor = nest.pull(weight, [index[1], channel, *taps_of])
            return [nest.spread(nest.multiply_add(factor, element, carried[0]), shape)]

    extents = [channels, *(w.taps for w in windows)]
    (total,) = _taps(nest, extents, [nest.full(shape, 0, kind)], fold)
    nest.finish(hero, index, total)
    return nest.kernel


def _start(name: str, group: Block, hero: Value, schedule: WindowSchedule) -> tuple[Nest, Index]:
    """A nest whose output axes are placed: the last on the columns, one more on the rows.

    In a blocked layout the rows are the last spatial axis, else the channels.
    """
    nest = Nest(name, group)
    kind = hero.tensor
    sizes = kind.physical
    coordinates = [nest.axis(f"y{i}", n) for i, n in enumerate(sizes)]
    index = physical_index(kind, coordinates)
    nest.tile(schedule.rows, schedule.cols)
    last = len(sizes) - 1
    row_axis = last - 1 if kind.layout else min(1, last - 1)
    for axis, extent in enumerate(sizes):
        lane = {last: (C, schedule.cols), row_axis: (R, schedule.rows)}.get(axis)
        size = lane[1] if lane else 1
        program = nest.over_grid(split_extent(extent, size))
        offset = lane[0] if lane and size > 1 else as_expr(0)
        nest.place(**{f"y{axis}": program * size + offset})
    nest.guards.extend(padding_bounds(kind, index))
    return nest, index


def _taps(nest: Nest, extents: Sequence[Dim], inits: Sequence[Value], fold: Fold) -> list[Value]:
    """Loops over all taps."""

    def nested(level: int, taps: list[Expr], carried: list[Value]) -> list[Value]:
        if level == len(extents):
            with nest.scope():
                return list(fold(taps, carried))

        def inner(i: Expr, *values: Value) -> list[Value]:
            with nest.ranged(i, 0, extents[level]):
                return nested(level + 1, [*taps, i], list(values))

        return nest.loop(0, extents[level], 1, carried, inner)

    return nested(0, [], list(inits))


__all__ = ["Taps", "convolution_by_windows", "normal", "pool"]
