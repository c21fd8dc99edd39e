"""The gradients of pools: an op of its own, and one made of a transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as places_of
from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, operand, result
from tfc.ir.expr import as_expr
from tfc.ir.types import FLOATS, I64, TensorType, Type
from tfc.ops.base import Array, Shape, narrow, widen
from tfc.ops.calculus import Calculus
from tfc.ops.convolution import AveragePool, gather_windows
from tfc.ops.convolution_gradient import (
    WindowGradient,
    padded_for,
    padded_sizes,
    reads_of,
    tap_slice,
)

if TYPE_CHECKING:
    from tfc.ir.builder import Builder


class MaxPoolGradient(WindowGradient, name="max_pool_gradient"):
    """The gradient of `max_pool` by its input: to the first largest element of each window.

    `x` and `y` are the pool's operand and result, the attributes those of the pool.

    C1: the operands are floats of one element type; x has rank 3 to 5.
    C2: y and g have the windows' places as spatial axes.

    Source: PyTorch max_pool2d, as for which element of equal ones gets it.

    ```mlir
    func @main(
      %x: tensor<Nx2x5x5xf32>, %y: tensor<Nx2x3x3xf32>, %g: tensor<Nx2x3x3xf32>
    ) -> (%z: tensor<Nx2x5x5xf32>) {
      %z = max_pool_gradient(%x, %y, %g) {kernel = [3, 3]} : tensor<Nx2x5x5xf32>
      return %z
    }
    ```
    """

    x: Value = operand()
    y: Value = operand()
    g: Value = operand()
    kernel: tuple[int, ...] = attribute("ints")
    strides: tuple[int, ...] = attribute("ints", default=())
    low_pads: tuple[int, ...] = attribute("ints", default=())
    high_pads: tuple[int, ...] = attribute("ints", default=())
    dilations: tuple[int, ...] = attribute("ints", default=())
    overhang: tuple[int, ...] = attribute("ints", default=())
    output: Value = result()

    @property
    def spatial(self) -> Shape:
        return self.x.tensor.shape[2:]

    @property
    def taps(self) -> tuple[int, ...]:
        return self.kernel

    def infer(self) -> list[Type]:
        dtype = self.check_same_dtype(self.inputs)
        self.check_dtype(self.x, FLOATS)
        shape = self.x.tensor.shape
        self.require(3 <= len(shape) <= 5, "C1", f"x has rank {len(shape)}")
        for value in (self.y, self.g):
            self.check_places(value.tensor.shape[2:])
            self.same_shape(value.tensor.shape[:2], shape[:2], "C2", "batch and channels")
        return [TensorType(dtype, shape)]

    def reference(self, x: Array, y: Array, g: Array) -> Array:
        windows, wide = self.windows, widen(x)
        seen = gather_windows(wide, windows, np.nan)
        inside = gather_windows(np.ones(x.shape, bool), windows, 0)
        counts, rank = y.shape[2:], y.ndim
        hit = inside & ((seen == widen(y)[(..., *[None] * (rank - 2))]) | np.isnan(seen))
        flat = hit.reshape(*y.shape, -1)
        first = flat & (np.cumsum(flat, -1) == 1)
        first = first.reshape(hit.shape)
        sizes = x.shape[2:]
        total = np.zeros((*x.shape[:2], *padded_sizes(sizes, windows)))
        for tap in places_of(*map(range, self.taps)):
            chosen = first[(..., *tap)]
            total[reads_of(tap, windows, list(counts))] += np.where(chosen, widen(g), 0)
        inner = [slice(w.low, w.low + s) for w, s in zip(windows, sizes, strict=True)]
        return narrow(total[(slice(None), slice(None), *inner)], x.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        do, windows = Calculus(b), self.windows
        padded = padded_for(do, self.x, windows)
        ones = do.filled(1, self.x.tensor)
        marked = padded_for(do, ones, windows)
        free: Value | None = None  # where no tap of the window was the largest so far
        total: Value | None = None
        for tap in places_of(*map(range, self.kernel)):
            seen = tap_slice(do, padded, windows, tap)
            hit = do("logical_or", do("equal", seen, self.y), do("is_nan", seen))
            if marked is not ones:
                real = do("equal", tap_slice(do, marked, windows, tap), 1)
                hit = do("logical_and", hit, real)
            if free is not None:
                hit = do("logical_and", hit, free)
            rest = do("logical_not", hit)
            free = rest if free is None else do("logical_and", free, rest)
            part = self._returned(do, do.where(hit, self.g, 0), padded.tensor.shape, tap)
            total = part if total is None else do("add", total, part)
        assert total is not None, "a window has a tap"
        low = [0, 0, *(-w.low for w in windows)]
        return [do.pad(total, low, [0, 0, *(-w.high - w.overhang for w in windows)])]

    def _returned(self, do: Calculus, part: Value, shape: Shape, tap: Sequence[int]) -> Value:
        """What a tap gives back, at the places where it reads the padded operand."""
        wide = do.spread(part, [1, 1, *(w.stride for w in self.windows)])
        low = [0, 0, *(k * w.dilation for k, w in zip(tap, self.windows, strict=True))]
        sizes = zip(shape, low, wide.tensor.shape, strict=True)
        return do.pad(wide, low, [as_expr(n) - first - own for n, first, own in sizes])


def average_pool_gradient(do: Calculus, pool: AveragePool, g: Value) -> Value:
    """The gradient of `average_pool` by its input: each window's share to all that it counts."""
    share = do("div", g, _counted(do, pool, g))
    n, channels, *counts = share.tensor.shape
    plane = do.reshape(share, (as_expr(n) * channels, 1, *counts))
    windows = pool.windows
    ones = do.filled(1, TensorType(g.tensor.dtype, (1, 1, *pool.taps)))
    spread = do(
        "conv_input_gradient",
        plane,
        ones,
        size=pool.spatial,
        strides=tuple(w.stride for w in windows),
        dilations=tuple(w.dilation for w in windows),
        low_pads=tuple(w.low for w in windows),
        high_pads=tuple(w.high + w.overhang for w in windows),
    )
    return do.reshape(spread, (n, channels, *pool.spatial))


def _counted(do: Calculus, pool: AveragePool, g: Value) -> Value:
    """How many elements each window counts, a factor for each axis."""
    total: Value | None = None
    rank = len(pool.taps)
    for axis, (w, n) in enumerate(zip(pool.windows, pool.spatial, strict=True)):
        beyond = (w.low, w.high) if pool.count_include_pad else (0, 0)
        count = g.tensor.shape[2 + axis]
        first = do("iota", shape=(count, 1), axis=0, dtype=I64)
        tap = do("iota", shape=(1, w.taps), axis=1, dtype=I64)
        place = do("add", do("mul", first, w.stride), do("mul", tap, w.dilation))
        place = do("sub", place, w.low)
        end = do("add", do.size(n), beyond[1])
        below, above = do("less", place, end), do("greater_equal", place, -beyond[0])
        inside = do("cast", do("logical_and", below, above), to=g.tensor.dtype)
        line = do("reduce_sum", inside, axes=(1,))
        line = do.reshape(line, (count, *[1] * (rank - 1 - axis)))
        total = line if total is None else do("mul", total, line)
    assert total is not None, "a pool has a spatial axis"
    return total
