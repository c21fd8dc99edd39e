"""Makers of convolutions and pools."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.graphs import Graph, Made
from tests.fuzz.makers import makes
from tfc.ir.core import OPS, Value
from tfc.ir.expr import Dim, as_expr
from tfc.ir.types import FLOATS, DType
from tfc.ops.base import NUMERIC
from tfc.ops.convolution import Conv


def _windows(g: Graph, x: Value, taps: list[int]) -> dict[str, Any] | None:
    """Strides, pads and dilations whose windows fit."""
    lists: dict[str, list[int]] = {n: [] for n in ("strides", "low_pads", "high_pads", "dilations")}
    for size, count in zip(x.tensor.shape[2:], taps, strict=True):
        dilation = g.pick([1, 1, 1, 2, 3]) if count > 1 else 1
        reach = (count - 1) * dilation + 1
        smallest = min(g.at(size, i) for i in range(len(g.bindings)))
        low, high = (g.some(0, min(reach, 3)) if g.chance(0.6) else 0 for _ in range(2))
        if smallest + low + high < reach:
            missing = reach - smallest - low - high
            if missing > 4:
                return None
            high += missing
        lists["strides"].append(g.pick([1, 1, 1, 2, 2, 3]))
        lists["low_pads"].append(low)
        lists["high_pads"].append(high)
        lists["dilations"].append(dilation)
    return {k: tuple(v) for k, v in lists.items()}


def _image(g: Graph, dtypes: tuple[DType, ...]) -> Value:
    """A tensor of channels and one to three spatial axes; the channels are static."""

    def fits(t: Any) -> bool:
        return isinstance(t.shape[1], int)

    old = [v for v in g.values if 3 <= v.tensor.rank <= 5 and v.tensor.dtype in dtypes]
    if g.chance(0.6) and any(fits(v.tensor) for v in old):
        return g.operand(dtypes, 3, 5, fits)  # one of the old ones, mostly
    spatial = g.pick([1, 2, 2, 2, 2, 3])
    channels = g.pick([1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 20, 32, 48])
    sizes: list[Dim] = [g.size(9) for _ in range(spatial)]
    batch: Dim = g.pick([1, 1, 2, 3, g.size(3)])
    if not g.fits((batch, channels, *sizes)):
        sizes, batch = [g.some(1, 5 if spatial < 3 else 3) for _ in range(spatial)], 1
    return g.leaf(g.dtype(dtypes), (batch, channels, *sizes))


@makes("conv", weight=2.5)
def conv(g: Graph, name: str) -> Made:
    x = _image(g, FLOATS if g.chance(0.85) else NUMERIC)
    channels = x.tensor.shape[1]
    assert isinstance(channels, int)
    if channels == 0:
        return None
    taps = [g.pick([1, 1, 2, 3, 3, 4, 5]) for _ in x.tensor.shape[2:]]
    if g.chance(0.25):
        taps = [1] * len(taps)
    windows = _windows(g, x, taps)
    if windows is None:
        return None
    divisors = [n for n in range(1, channels + 1) if channels % n == 0]
    groups = g.pick(divisors) if g.chance(0.35) else 1
    groups = channels if g.chance(0.15) else groups
    each = g.pick([1, 1, 2, 3]) if groups > 1 else g.pick([1, 2, 3, 5, 7, 8, 9, 16, 17, 24, 32])
    outputs = groups * (16 if channels // groups % 16 == 0 and g.chance(0.4) else each)
    work = outputs * channels // groups
    for n in taps:
        work *= n
    places = [w.count(n) for w, n in zip(_trial(x, taps, windows), x.tensor.shape[2:], strict=True)]
    shape = (x.tensor.shape[0], outputs, *places)
    if not g.fits(shape) or not g.fits((x.tensor.shape[0], *places, work), g.work):
        return None
    weight = _weight(g, x.tensor.dtype, (outputs, channels // groups, *taps))
    bias = g.like(x.tensor.dtype, (outputs,)) if g.chance(0.5) else None
    return g.add(Conv(x, weight, bias, groups=groups, **windows))


def _trial(x: Value, taps: list[int], windows: dict[str, Any]) -> Any:
    from tfc.ops.convolution import Window

    names = ("strides", "dilations", "low_pads", "high_pads")
    return [Window(*w) for w in zip(taps, *(windows[n] for n in names), strict=True)]


def _weight(g: Graph, dtype: DType, shape: tuple[int, ...]) -> Value:
    """Mostly a constant, which passes may pack."""
    if g.chance(0.75):
        return g.constant(np.asarray(g.numbers(dtype, shape)))
    return g.like(dtype, shape)


@makes("max_pool", "average_pool", weight=1.2)
def pool(g: Graph, name: str) -> Made:
    x = _image(g, FLOATS if name == "average_pool" or g.chance(0.8) else NUMERIC)
    taps = [g.pick([1, 2, 2, 3, 3]) for _ in x.tensor.shape[2:]]
    windows = _windows(g, x, taps)
    if windows is None:
        return None
    if g.chance(0.4):
        windows["overhang"] = tuple(g.pick([0, s - 1]) for s in windows["strides"])
    if name == "average_pool":
        windows["count_include_pad"] = g.chance(0.5)
    op = OPS[name](x, kernel=tuple(taps), **windows)
    if g.fits(op.results[0].tensor.shape):
        return g.add(op)
    op.set_operands(())
    return None


@makes("global_average_pool", "global_max_pool", weight=0.5)
def global_pool(g: Graph, name: str) -> Made:
    x = g.operand(FLOATS if name == "global_average_pool" else NUMERIC, low=2)
    return g.add(OPS[name](x))


__all__ = ["as_expr"]
