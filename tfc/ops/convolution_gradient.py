"""The gradients of convolutions, as ops of their own: composites of what has kernels.

A window is described as in `conv`. Floats accumulate in at least f32 and are rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as places_of
from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, operand, result
from tfc.ir.expr import Dim, as_expr, ceildiv, normal, product
from tfc.ir.types import FLOATS, TensorType, Type
from tfc.ops.base import Array, Composite, Shape, narrow, static, widen
from tfc.ops.calculus import Calculus
from tfc.ops.convolution import WINDOW_LISTS, Window, gather_windows

if TYPE_CHECKING:
    from tfc.ir.builder import Builder


class WindowGradient(Composite):
    """An op over windows of spatial axes of sizes `spatial`, of `taps` elements each."""

    @property
    def spatial(self) -> Shape:
        """The sizes of the spatial axes that the windows lie in."""
        raise NotImplementedError(self.name)

    @property
    def taps(self) -> tuple[int, ...]:
        raise NotImplementedError(self.name)

    @property
    def windows(self) -> tuple[Window, ...]:
        """The windows along each spatial axis."""
        rank = len(self.taps)
        lists = [getattr(self, name, ()) or (least,) * rank for name, least in WINDOW_LISTS.items()]
        complete = all(len(values) == rank for values in lists)
        self.require(complete, "C2", f"a list has not {rank} entries")
        return tuple(Window(*w) for w in zip(self.taps, *lists, strict=True))

    def check_places(self, found: Shape) -> None:
        """C2: the spatial axes of the gradient are the windows' places."""
        fits = len(found) == len(self.spatial) == len(self.taps)
        self.require(fits, "C2", f"{len(self.taps)} axes of windows in {len(self.spatial)}")
        counts = tuple(w.count(n) for w, n in zip(self.windows, self.spatial, strict=True))
        self.same_shape(found, counts, "C2", "the places of the windows")


def tap_slice(do: Calculus, padded: Value, windows: Sequence[Window], tap: Sequence[int]) -> Value:
    """What one tap of each window reads of a padded tensor, at the places of the windows."""
    shape = padded.tensor.shape
    starts, steps = [0, 0], [1, 1]
    limits: list[Dim] = list(shape[:2])
    for w, k, n in zip(windows, tap, shape[2:], strict=True):
        count = Window(w.taps, w.stride, w.dilation).count(n)
        starts.append(k * w.dilation)
        last = (as_expr(count) - 1) * w.stride + k * w.dilation
        limits.append(normal(last + 1))
        steps.append(w.stride)
    return do("slice", padded, starts=tuple(starts), limits=tuple(limits), steps=tuple(steps))


def padded_for(do: Calculus, x: Value, windows: Sequence[Window]) -> Value:
    """x with zeros around it, as far as windows reach."""
    low = [0, 0, *(w.low for w in windows)]
    return do.pad(x, low, [0, 0, *(w.high + w.overhang for w in windows)])


class ConvInputGradient(WindowGradient, name="conv_input_gradient"):
    """The gradient of `conv` by its input, for that by its output: a transposed convolution.

    `size` are the input's spatial sizes; the other attributes are those of the `conv`.

    C1: both operands are floats of one element type, of one rank from 3 to 5.
    C2: the gradient's spatial sizes are the numbers of windows, and its channels the weight's.
    C3: `groups` is positive and divides the output channels.

    ```mlir
    func @main(%g: tensor<Nx4x3x3xf32>, %w: tensor<4x2x3x3xf32>) -> (%y: tensor<Nx2x5x5xf32>) {
      %y = conv_input_gradient(%g, %w) {size = [5, 5]} : tensor<Nx2x5x5xf32>
      return %y
    }
    ```
    """

    g: Value = operand()
    weight: Value = operand()
    size: tuple[Dim, ...] = attribute("dims")
    strides: tuple[int, ...] = attribute("ints", default=())
    low_pads: tuple[int, ...] = attribute("ints", default=())
    high_pads: tuple[int, ...] = attribute("ints", default=())
    dilations: tuple[int, ...] = attribute("ints", default=())
    groups: int = attribute("int", default=1)
    output: Value = result()

    @property
    def spatial(self) -> Shape:
        return self.size

    @property
    def taps(self) -> tuple[int, ...]:
        return static(self.weight.tensor.shape[2:])

    def infer(self) -> list[Type]:
        dtype = self.check_same_dtype(self.inputs)
        self.check_dtype(self.g, FLOATS)
        g, weight = self.g.tensor.shape, self.weight.tensor.shape
        self.require(len(g) == len(weight) and 3 <= len(g) <= 5, "C1", f"ranks of {g}, {weight}")
        self.check_places(g[2:])
        out = self.same(g[1], weight[0], "C2", "the output channels")
        whole = self.groups == 1 or (isinstance(out, int) and self.groups > 0)
        self.require(whole and as_expr(out) % self.groups == as_expr(0), "C3", "the groups")
        return [TensorType(dtype, (g[0], normal(as_expr(weight[1]) * self.groups), *self.size))]

    def reference(self, g: Array, weight: Array) -> Array:
        n, out, *counts = g.shape
        each, groups = weight.shape[1], self.groups
        wide = widen(g).reshape(n, groups, out // groups, -1)
        columns = widen(weight).reshape(groups, out // groups, -1).swapaxes(1, 2)
        with np.errstate(all="ignore"):
            seen = np.matmul(columns, wide)
        seen = seen.reshape(n, groups * each, *self.taps, *counts)
        sizes = static(self.size)
        total = np.zeros((n, groups * each, *padded_sizes(sizes, self.windows)))
        for tap in places_of(*map(range, self.taps)):
            total[reads_of(tap, self.windows, counts)] += seen[(slice(None), slice(None), *tap)]
        inner = [slice(w.low, w.low + s) for w, s in zip(self.windows, sizes, strict=True)]
        return narrow(total[(slice(None), slice(None), *inner)], g.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        """A convolution of the gradient with the weight turned around.

        With strides one for each phase, whose taps are those that such places of the input meet;
        with dilations too the gradient's elements are set apart by zeros instead.
        """
        do, windows = Calculus(b), self.windows
        if all(w.stride == 1 or w.dilation == 1 for w in windows):
            return [self._by_phases(do) if any(w.stride > 1 for w in windows) else self._apart(do)]
        return [self._apart(do)]

    def _apart(self, do: Calculus) -> Value:
        windows = self.windows
        wide = do.spread(self.g, [1, 1, *(w.stride for w in windows)])
        low, high = [0, 0], list[Dim]([0, 0])
        for w, n, own in zip(windows, self.size, wide.tensor.shape[2:], strict=True):
            low.append(w.reach - 1 - w.low)
            high.append(normal(as_expr(n) + w.reach - 1 - own - low[-1]))
        turned = self._turned(do, self.weight)
        padded, groups = do.pad(wide, low, high), self.groups
        return do("conv", padded, turned, dilations=self.dilations, groups=groups)

    def _by_phases(self, do: Calculus) -> Value:
        """Place stride * q + phase of the padded input meets the taps phase + stride * j."""
        windows, rank = self.windows, len(self.windows)
        strides = [w.stride for w in windows]
        counts = [
            normal(ceildiv(as_expr(n) + w.low, w.stride))
            for n, w in zip(self.size, windows, strict=True)
        ]
        n, channels = self.result.tensor.shape[:2]
        parts = [self._phase(do, phase, counts) for phase in places_of(*map(range, strides))]
        rows = [do.reshape(part, (n, channels, 1, *counts)) for part in parts]
        joined = do.reshape(do("concat", rows, axis=2), (n, channels, *strides, *counts))
        order = [axis for a in range(rank) for axis in (2 + rank + a, 2 + a)]
        sizes = [normal(as_expr(q) * s) for q, s in zip(counts, strides, strict=True)]
        whole = do.reshape(do.transpose(joined, (0, 1, *order)), (n, channels, *sizes))
        low = [0, 0, *(-w.low for w in windows)]
        ends = zip(self.size, windows, sizes, strict=True)
        return do.pad(whole, low, [0, 0, *(as_expr(m) + w.low - own for m, w, own in ends)])

    def _phase(self, do: Calculus, phase: Sequence[int], counts: Sequence[Dim]) -> Value:
        windows = self.windows
        n, channels = self.result.tensor.shape[:2]
        if any(r >= w.taps for r, w in zip(phase, windows, strict=True)):
            return do.zeros(TensorType(self.g.tensor.dtype, (n, channels, *counts)))
        taps, steps = self.weight.tensor.shape, (1, 1, *(w.stride for w in windows))
        weight = do("slice", self.weight, starts=(0, 0, *phase), limits=taps, steps=steps)
        met = static(weight.tensor.shape[2:])
        high = [as_expr(q) - own for q, own in zip(counts, self.g.tensor.shape[2:], strict=True)]
        low = [(m - 1) * w.dilation for m, w in zip(met, windows, strict=True)]
        padded = do.pad(self.g, [0, 0, *low], [0, 0, *high])
        turned, groups = self._turned(do, weight), self.groups
        return do("conv", padded, turned, dilations=self.dilations, groups=groups)

    def _turned(self, do: Calculus, weight: Value) -> Value:
        """A weight with input and output channels of each group exchanged, taps reversed."""
        out, each, *taps = weight.tensor.shape
        groups = self.groups
        weight = do.reverse(weight, [a + 2 for a, n in enumerate(taps) if n != 1])
        split = do.reshape(weight, (groups, as_expr(out) // groups, each, *taps))
        swapped = do.transpose(split, (0, 2, 1, *range(3, 3 + len(taps))))
        return do.reshape(swapped, (as_expr(each) * groups, as_expr(out) // groups, *taps))


class ConvWeightGradient(WindowGradient, name="conv_weight_gradient"):
    """The gradient of `conv` by its weight, for that by its output.

    One matrix product a group: the output's gradient by what each tap reads, over all places of the
    batch. `taps` are the weight's spatial sizes; the other attributes are those of the `conv`.

    C1: both operands are floats of one element type, of one rank from 3 to 5.
    C2: the gradient's spatial sizes are the numbers of windows.
    C3: `groups` is positive and divides both operands' channels.

    ```mlir
    func @main(%x: tensor<Nx2x5x5xf32>, %g: tensor<Nx4x3x3xf32>) -> (%y: tensor<4x2x3x3xf32>) {
      %y = conv_weight_gradient(%x, %g) {kernel = [3, 3]} : tensor<4x2x3x3xf32>
      return %y
    }
    ```
    """

    x: Value = operand()
    g: Value = operand()
    kernel: tuple[int, ...] = attribute("ints")
    strides: tuple[int, ...] = attribute("ints", default=())
    low_pads: tuple[int, ...] = attribute("ints", default=())
    high_pads: tuple[int, ...] = attribute("ints", default=())
    dilations: tuple[int, ...] = attribute("ints", default=())
    groups: int = attribute("int", default=1)
    output: Value = result()

    @property
    def spatial(self) -> Shape:
        return self.x.tensor.shape[2:]

    @property
    def taps(self) -> tuple[int, ...]:
        return self.kernel

    def infer(self) -> list[Type]:
        dtype = self.check_same_dtype(self.inputs)
        self.check_dtype(self.g, FLOATS)
        x, g = self.x.tensor.shape, self.g.tensor.shape
        self.require(len(g) == len(x) and 3 <= len(g) <= 5, "C1", f"ranks of {x} and {g}")
        self.check_places(g[2:])
        self.same(x[0], g[0], "C2", "the batch")
        for n in (x[1], g[1]):
            whole = self.groups == 1 or (isinstance(n, int) and self.groups > 0)
            self.require(whole and as_expr(n) % self.groups == as_expr(0), "C3", "the groups")
        each = normal(as_expr(x[1]) // self.groups)
        return [TensorType(dtype, (g[1], each, *self.kernel))]

    def reference(self, x: Array, g: Array) -> Array:
        seen = gather_windows(widen(x), self.windows, 0)
        n, channels, *rest = seen.shape
        rank, groups, out = len(self.kernel), self.groups, g.shape[1]
        count = int(np.prod(rest[:rank]))
        left = widen(g).reshape(n, groups, out // groups, count)
        right = seen.reshape(n, groups, channels // groups, count, -1)
        with np.errstate(all="ignore"):
            found = np.einsum("ngop,ngcpt->goct", left, right)
        return narrow(found.reshape(out, channels // groups, *self.kernel), x.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        do, windows = Calculus(b), self.windows
        padded = padded_for(do, self.x, windows)
        taps = list(places_of(*map(range, self.kernel)))
        n, out, *counts = self.g.tensor.shape
        each = self.result.tensor.shape[1]
        groups, place = self.groups, product([n, *counts])
        seen = [self._columns(do, tap_slice(do, padded, windows, tap)) for tap in taps]
        columns = self._laid_out(do, seen[0]) if len(seen) == 1 else do("concat", seen, axis=3)
        depth = normal(as_expr(each) * len(taps))
        right = do.reshape(columns, (groups, place, depth))
        rows = self._laid_out(do, self._rows(do, self.g))
        left = do.reshape(rows, (groups, as_expr(out) // groups, place))
        found = do("matmul", left, right)
        split = do.reshape(found, (groups, as_expr(out) // groups, len(taps), each))
        moved = do.transpose(split, (0, 1, 3, 2))
        return [do.reshape(moved, self.result.tensor.shape)]

    def _laid_out(self, do: Calculus, x: Value) -> Value:
        """x in memory in its own order: a product would follow a view over batch and places slowly.

        A sum has a kernel of its own, which a view has not; it only makes -0 a 0.
        """
        return do("add", x, 0)

    def _split(self, do: Calculus, x: Value) -> Value:
        """N, C, ... as N, groups, members of a group, places."""
        n, channels, *spatial = x.tensor.shape
        groups = self.groups
        return do.reshape(x, (n, groups, as_expr(channels) // groups, product(spatial)))

    def _rows(self, do: Calculus, x: Value) -> Value:
        """Groups, members, batch, places."""
        return do.transpose(self._split(do, x), (1, 2, 0, 3))

    def _columns(self, do: Calculus, x: Value) -> Value:
        """Groups, batch, places, members."""
        return do.transpose(self._split(do, x), (1, 0, 3, 2))


def padded_sizes(sizes: Sequence[int], windows: Sequence[Window]) -> list[int]:
    return [n + w.low + w.high + w.overhang for n, w in zip(sizes, windows, strict=True)]


def reads_of(
    tap: Sequence[int], windows: Sequence[Window], counts: Sequence[int]
) -> tuple[slice, ...]:
    """The places of the padded operand that one tap of each window reads."""
    places = [
        slice(k * w.dilation, k * w.dilation + (count - 1) * w.stride + 1, w.stride)
        if count
        else slice(0, 0)
        for k, w, count in zip(tap, windows, counts, strict=True)
    ]
    return (slice(None), slice(None), *places)
