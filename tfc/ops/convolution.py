"""Convolution and pools over one to three spatial axes: tensors are N, C, then the spatial axes.

A window is a list of taps along each spatial axis. Floats accumulate in at least f32 (references:
f64) and are rounded once; integers wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tfc.ir.core import Value, attribute, operand, optional, result
from tfc.ir.expr import Dim, as_expr, normal
from tfc.ir.types import FLOATS, DType, Layout, TensorType, Type
from tfc.ops.base import NUMERIC, Array, Composite, GraphOp, Shape, narrow, static, widen
from tfc.ops.linalg import exact_operand
from tfc.ops.reduction import ReduceMax, lowest
from tfc.ops.reduction_composite import ReduceMean

if TYPE_CHECKING:
    from typing import Any

    from tfc.ir.builder import Builder
    from tfc.ir.core import Block, Kernel
    from tfc.tile.nests.window import Taps


@dataclass(frozen=True)
class Window:
    """How windows lie along one spatial axis.

    `low` and `high` are declared padding; `overhang` is how far beyond it the last window may
    reach.
    """

    taps: int
    stride: int = 1
    dilation: int = 1
    low: int = 0
    high: int = 0
    overhang: int = 0

    @property
    def reach(self) -> int:
        """The number of places from the first tap to the last."""
        return (self.taps - 1) * self.dilation + 1

    def count(self, extent: Dim) -> Dim:
        """How many windows an axis of this size has."""
        room = as_expr(extent) + (self.low + self.high + self.overhang - self.reach)
        return normal(room // self.stride + 1)


WINDOW_LISTS = {"strides": 1, "dilations": 1, "low_pads": 0, "high_pads": 0, "overhang": 0}
"""The lists of a windowed op, in the order of `Window`; the smallest value is also the default."""


class Windowed(GraphOp):
    """An op that reads windows of its operand's spatial axes.

    Each list has one entry for each spatial axis; an empty one means 1 (strides, dilations) or 0
    (pads) throughout. An axis of size H has (H + low_pads + high_pads - dilations * (taps - 1) - 1)
    floordiv strides + 1 windows.
    """

    x: Value = operand()

    @property
    def taps(self) -> tuple[int, ...]:
        """The number of taps along each spatial axis."""
        raise NotImplementedError(f"{self.name} has no taps")

    def _list(self, name: str, default: int) -> tuple[int, ...]:
        return getattr(self, name, ()) or (default,) * len(self.spatial)

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows along each spatial axis."""
        lists = [self._list(name, least) for name, least in WINDOW_LISTS.items()]
        return tuple(Window(*w) for w in zip(self.taps, *lists, strict=True))

    def window_taps(self) -> list[Taps]:
        """The windows as the kernel builders take them."""
        from tfc.tile.nests.window import Taps

        return [
            Taps(w.taps, w.stride, w.dilation, w.low, size)
            for w, size in zip(self.windows, self.spatial, strict=True)
        ]

    def check_windows(self) -> Shape:
        """The number of windows along each spatial axis; checks C2 to C4."""
        n = len(self.spatial)
        self.require(1 <= n <= 3, "C2", f"x has {n} spatial axes", "1 to 3 are possible")
        for name, least in WINDOW_LISTS.items():
            values = self._list(name, least)
            self.require(len(values) == n, "C3", f"{name} {values} for {n} spatial axes")
            self.require(min(values) >= least, "C3", f"{name} {values}", f"at least {least}")
        self.require(min(self.taps) >= 1, "C3", f"a window of {self.taps} elements")
        return tuple(self._count(w, n) for w, n in zip(self.windows, self.spatial, strict=True))

    @property
    def spatial(self) -> Shape:
        """The sizes of the spatial axes."""
        return self.x.tensor.shape[2:]

    def _count(self, window: Window, size: Dim) -> Dim:
        padding = window.low + window.high + window.overhang
        message = f"a window reaches over {window.reach} places, more than the padded axis has"
        needed = window.reach if window.reach > 1 else 0
        self.at_most(needed, as_expr(size) + padding, "C4", message)
        return window.count(size)


def gather_windows(x: Array, windows: Sequence[Window], fill: float | int) -> Array:
    """Every window of x as a view: N, C, the windows' places, then their taps."""
    spatial = tuple(range(2, x.ndim))
    widths = [(0, 0), (0, 0), *((w.low, w.high + w.overhang) for w in windows)]
    padded = np.pad(x, widths, constant_values=fill)
    if 0 in padded.shape[2:]:
        counts = [w.count(n) for w, n in zip(windows, x.shape[2:], strict=True)]
        shape = (*x.shape[:2], *static(tuple(counts)), *(w.taps for w in windows))
        return np.zeros(shape, x.dtype)
    reach = tuple(w.reach for w in windows)
    every = np.lib.stride_tricks.sliding_window_view(padded, reach, spatial)
    places = tuple(slice(None, None, w.stride) for w in windows)
    taps = tuple(slice(None, None, w.dilation) for w in windows)
    return every[(slice(None), slice(None), *places, *taps)]


class Conv(Windowed, name="conv"):
    """A convolution (in truth a correlation): N, C, ... by O, C/groups, ... gives N, O, ...

    Group g of the output's channels sees only group g of the input's. Padding holds zeros, whose
    product with a weight that is NaN or infinite may be left out. `layout` is the result's layout
    in memory, which a pass chooses.

    C1: the operands hold numbers of one element type.
    C2: x has 1 to 3 spatial axes; weight has the same rank as x.
    C3: each list has one entry for each spatial axis, or none; strides and dilations are at least
        1.
    C4: a window of several places is no larger than the padded axis.
    C5: `groups` is positive and divides the input's and the output's channels; weight has C/groups
        in.
    C6: `bias` is a vector of one element for each output channel.

    Source: ONNX Conv-22 (auto_pad is made explicit when it is imported).

    ```mlir
    func @main(%x: tensor<Nx2xHx5xf32>, %w: tensor<4x1x3x3xf32>) -> (%y: tensor<Nx4xHx3xf32>) {
      %y = conv(%x, %w) {strides = [1, 2], low_pads = [1, 1], high_pads = [1, 1], groups = 2}
        : tensor<Nx4xHx3xf32>
      return %y
    }
    ```
    """

    hero = "convolution"

    weight: Value = operand()
    bias: Value | None = optional(default=None)
    strides: tuple[int, ...] = attribute("ints", default=())
    low_pads: tuple[int, ...] = attribute("ints", default=())
    high_pads: tuple[int, ...] = attribute("ints", default=())
    dilations: tuple[int, ...] = attribute("ints", default=())
    groups: int = attribute("int", default=1)
    layout: Layout | None = attribute("any", default=None)
    output: Value = result()

    @property
    def taps(self) -> tuple[int, ...]:
        sizes = self.weight.tensor.shape[2:]
        known = all(isinstance(n, int) for n in sizes)
        self.require(known, "C3", f"the weight's spatial sizes {sizes} are not constant")
        return tuple(n for n in sizes if isinstance(n, int))

    def infer(self) -> list[Type]:
        dtype = self.check_same_dtype(self.inputs)
        self.check_dtype(self.x, NUMERIC)
        x, weight = self.x.tensor, self.weight.tensor
        self.require(x.rank == weight.rank, "C2", f"x has rank {x.rank}, weight {weight.rank}")
        places = self.check_windows()
        self._check_channels(x.shape[1], weight.shape[0], weight.shape[1])
        if self.bias is not None:
            bias = self.check_rank(self.bias, 1, "C6", "bias")
            self.same(bias.shape[0], weight.shape[0], "C6", "bias and output channels")
        return [TensorType(dtype, (x.shape[0], weight.shape[0], *places), self.layout)]

    def _check_channels(self, into: Dim, out: Dim, each: Dim) -> None:
        groups = self.groups
        self.require(groups >= 1, "C5", f"{groups} groups")
        for role, n in (("input", into), ("output", out)):
            whole = groups == 1 or (isinstance(n, int) and n % groups == 0)
            self.require(whole, "C5", f"{groups} groups do not divide {n} {role} channels")
        self.same(
            normal(as_expr(each) * groups), into, "C5", "the weight's and the input's channels"
        )

    def reference(self, x: Array, weight: Array, bias: Array | None = None) -> Array:
        y = correlate(exact_operand(x), exact_operand(weight), self.windows, self.groups)
        if bias is not None:
            y = y + exact_operand(bias).reshape(-1, *[1] * (x.ndim - 2))
        return narrow(y, x.dtype)

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.convolution import convolution
        from tfc.tile.nests.implicit_product import implicit_product
        from tfc.tile.nests.schedule import ConvolutionSchedule
        from tfc.tile.nests.schedule_gpu import ImplicitProduct
        from tfc.tile.nests.window import convolution_by_windows

        assert self.bias is None, "a bias is added by an op of its own"
        builders = {ConvolutionSchedule: convolution, ImplicitProduct: implicit_product}
        build: Any = builders.get(type(schedule), convolution_by_windows)
        taps = self.window_taps()
        return build(name, group, self.result, self.x, self.weight, taps, self.groups, schedule)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        lists: Any = {name: self._list(name, least) for name, least in WINDOW_LISTS.items()}
        del lists["overhang"]
        groups = self.groups
        by_x = do("conv_input_gradient", g, self.weight, size=self.spatial, groups=groups, **lists)
        by_weight = do("conv_weight_gradient", self.x, g, kernel=self.taps, groups=groups, **lists)
        others = tuple(a for a in range(g.tensor.rank) if a != 1)
        by_bias = do("reduce_sum", g, axes=others) if self.bias is not None else None
        return [by_x, by_weight, by_bias][: len(self.operands)]


def correlate(x: Array, weight: Array, windows: Sequence[Window], groups: int) -> Array:
    """The convolution as one matrix product a group: [places, taps] x [taps, output channels]."""
    seen = gather_windows(x, windows, 0)
    n, channels, out = x.shape[0], x.shape[1], weight.shape[0]
    spatial = len(windows)
    places, taps = seen.shape[2 : 2 + spatial], seen.shape[2 + spatial :]
    depth = channels // groups * int(np.prod(taps))
    seen = seen.reshape(n, groups, channels // groups, *places, *taps)
    order = (0, 1, *range(3, 3 + spatial), 2, *range(3 + spatial, 3 + 2 * spatial))
    rows = seen.transpose(order).reshape(n, groups, int(np.prod(places)), depth)
    columns = weight.reshape(groups, out // groups, depth).swapaxes(1, 2)
    with np.errstate(all="ignore"):
        return np.matmul(rows, columns).swapaxes(2, 3).reshape(n, out, *places)


# ---- pools


class Pool(Windowed):
    """A fold of each window of each channel.

    `overhang` lets the last window reach that many places beyond the declared padding; such places
    never count. It is how a number of windows that is rounded up is said: with `overhang` = stride
    - 1 the count is ceildiv(H + low_pads + high_pads - reach, stride) + 1, also for a symbolic H.
    An importer that must leave out a window which would start in the high padding makes `overhang`
    smaller; where the rounded count fits the padded axis anyway, 0 says the same.
    """

    hero = "pool"

    dtypes: ClassVar[tuple[DType, ...]] = NUMERIC

    kernel: tuple[int, ...] = attribute("ints")
    strides: tuple[int, ...] = attribute("ints", default=())
    low_pads: tuple[int, ...] = attribute("ints", default=())
    high_pads: tuple[int, ...] = attribute("ints", default=())
    dilations: tuple[int, ...] = attribute("ints", default=())
    overhang: tuple[int, ...] = attribute("ints", default=())
    output: Value = result()

    @property
    def taps(self) -> tuple[int, ...]:
        return self.kernel

    def infer(self) -> list[Type]:
        dtype = self.check_dtype(self.x, self.dtypes)
        x = self.x.tensor
        fits = len(self.kernel) == x.rank - 2
        self.require(fits, "C3", f"kernel {self.kernel} for {x.rank - 2} spatial axes")
        return [TensorType(dtype, (*x.shape[:2], *self.check_windows()), x.layout)]

    @property
    def tap_axes(self) -> tuple[int, ...]:
        """The axes of the taps in what `gather_windows` gives."""
        rank = self.x.tensor.rank
        return tuple(range(rank, 2 * rank - 2))


class MaxPool(Pool, name="max_pool"):
    """The largest element of each window; NaN where one is NaN. Padding holds the smallest value.

    C1: the operand holds numbers.
    C2: x has 1 to 3 spatial axes.
    C3: each list has one entry for each spatial axis, or none; kernel, strides, dilations are at
        least 1.
    C4: a window of several places is no larger than the padded axis.

    `overhang`: see `Pool`. Source: ONNX MaxPool-22 (without its second output).

    ```mlir
    func @main(%x: tensor<Nx2x5x5xf32>) -> (%y: tensor<Nx2x3x3xf32>) {
      %y = max_pool(%x) {kernel = [3, 3], strides = [2, 2], low_pads = [1, 1], high_pads = [1, 1]}
        : tensor<Nx2x3x3xf32>
      return %y
    }
    ```
    """

    exact = True

    def reference(self, x: Array) -> Array:
        least = lowest(self.x.tensor.dtype)
        return narrow(gather_windows(widen(x), self.windows, least).max(self.tap_axes), x.dtype)

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.window import pool

        taps = self.window_taps()
        return pool(name, group, self.result, self.x, "max", taps, None, schedule)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        lists: Any = {name: self._list(name, least) for name, least in WINDOW_LISTS.items()}
        y, kernel = self.result, self.kernel
        return [do("max_pool_gradient", self.x, y, g, kernel=kernel, **lists)]


class AveragePool(Pool, name="average_pool"):
    """The mean of each window; with `count_include_pad` declared padding counts, as zeros.

    What overhangs the declared padding never counts. A window with nothing to count gives NaN.

    C1: the operand holds floats.
    C2: x has 1 to 3 spatial axes.
    C3: each list has one entry for each spatial axis, or none; kernel, strides, dilations are at
        least 1.
    C4: a window of several places is no larger than the padded axis.

    `overhang`: see `Pool`. Source: ONNX AveragePool-22.

    ```mlir
    func @main(%x: tensor<Nx2x5x5xf32>) -> (%y: tensor<Nx2x3x3xf32>) {
      %y = average_pool(%x) {kernel = [3, 3], strides = [2, 2], low_pads = [1, 1],
                             high_pads = [1, 1]}
        : tensor<Nx2x3x3xf32>
      return %y
    }
    ```
    """

    dtypes = FLOATS
    count_include_pad: bool = attribute("bool", default=False)

    def reference(self, x: Array) -> Array:
        total = gather_windows(widen(x), self.windows, 0).sum(self.tap_axes)
        with np.errstate(all="ignore"):
            return narrow(total / self.counts(x.shape[2:]), x.dtype)

    def counts(self, sizes: tuple[int, ...]) -> Array:
        """How many elements each window counts, of shape 1, 1 and the windows' places."""
        counted = np.ones((1, 1, *sizes))
        windows = self.windows
        if self.count_include_pad:
            counted = np.pad(
                counted, [(0, 0), (0, 0), *((w.low, w.high) for w in windows)], constant_values=1
            )
            windows = [Window(w.taps, w.stride, w.dilation, 0, 0, w.overhang) for w in windows]
        return gather_windows(counted, windows, 0).sum(self.tap_axes)

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.window import pool

        included = self.count_include_pad
        beyond = [(w.low, w.high) if included else (0, 0) for w in self.windows]
        taps = self.window_taps()
        return pool(name, group, self.result, self.x, "sum", taps, beyond, schedule)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        from tfc.ops.pool_gradient import average_pool_gradient

        return [average_pool_gradient(do, self, g)]


class GlobalPool(Composite):
    """A fold of all elements of each channel; the spatial axes stay, with size 1."""

    dtypes: ClassVar[tuple[DType, ...]] = NUMERIC

    x: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        dtype = self.check_dtype(self.x, self.dtypes)
        x = self.x.tensor
        self.require(x.rank >= 2, "C2", f"x has rank {x.rank}")
        return [TensorType(dtype, (*x.shape[:2], *[1] * (x.rank - 2)))]

    @property
    def axes(self) -> tuple[int, ...]:
        """The spatial axes."""
        return tuple(range(2, self.x.tensor.rank))


class GlobalAveragePool(GlobalPool, name="global_average_pool"):
    """The mean of all elements of each channel.

    C1: the operand holds floats.
    C2: x has a batch and a channel axis.

    Source: ONNX GlobalAveragePool-22.

    ```mlir
    func @main(%x: tensor<Nx2x5x5xf32>) -> (%y: tensor<Nx2x1x1xf32>) {
      %y = global_average_pool(%x) : tensor<Nx2x1x1xf32>
      return %y
    }
    ```
    """

    dtypes = FLOATS

    def reference(self, x: Array) -> Array:
        count = np.float64(np.prod(x.shape[2:]))
        with np.errstate(all="ignore"):
            return narrow(widen(x).sum(self.axes, keepdims=True) / count, x.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        return [b.value(ReduceMean(self.x, self.axes, True))]


class GlobalMaxPool(GlobalPool, name="global_max_pool"):
    """The largest element of each channel; NaN where one is NaN.

    C1: the operand holds numbers.
    C2: x has a batch and a channel axis.

    Source: ONNX GlobalMaxPool-22.

    ```mlir
    func @main(%x: tensor<Nx2x5x5xf32>) -> (%y: tensor<Nx2x1x1xf32>) {
      %y = global_max_pool(%x) : tensor<Nx2x1x1xf32>
      return %y
    }
    ```
    """

    exact = True

    def reference(self, x: Array) -> Array:
        least = lowest(self.x.tensor.dtype)
        return narrow(widen(x).max(self.axes, keepdims=True, initial=least), x.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        return [b.value(ReduceMax(self.x, self.axes, True))]
