"""Normalisations: composites of reductions and elementwise ops.

All of them are computed in at least f32, the variance in two passes, and rounded once, at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, operand, optional, result
from tfc.ir.expr import product
from tfc.ops.arithmetic import Add, Div, Mul, Pow, Sub
from tfc.ops.base import Array, Shape
from tfc.ops.compose import FloatComposite, per_channel, raised
from tfc.ops.constant import scalar
from tfc.ops.convolution import AveragePool
from tfc.ops.elementwise import Rsqrt, Sqrt
from tfc.ops.reduction_composite import ReduceMean
from tfc.ops.view import Reshape, Slice

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ops.calculus import Calculus


class Normalization(FloatComposite):
    """A normalisation of x with parameters for its channels or elements."""

    def check_channels(self, vector: Value | None, role: str) -> None:
        """C3: a vector of one element for each channel."""
        if vector is not None:
            kind = self.check_rank(vector, 1, "C3", role)
            self.same(kind.shape[0], self.x.tensor.shape[1], "C3", f"{role} and the channels of x")

    def check_stretch(self, value: Value | None, role: str) -> None:
        """C3: an operand that broadcasts to x."""
        shape = self.x.tensor.shape
        own = value.tensor.shape if value is not None else ()
        self.require(len(own) <= len(shape), "C3", f"{role} has rank {len(own)}")
        for n, whole in zip(own[::-1], shape[::-1], strict=False):
            if n != 1:
                self.same(n, whole, "C3", f"{role} does not broadcast to x")


def _centered(b: Builder, x: Value, axes: tuple[int, ...]) -> Value:
    return b.value(Sub(x, b.value(ReduceMean(x, axes, True))))


def _normalised(b: Builder, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """x / sqrt(mean(x * x) + epsilon) along axes."""
    power = b.value(ReduceMean(b.value(Mul(x, x)), axes, True))
    shifted = b.value(Add(power, scalar(b, epsilon, x.tensor.dtype)))
    return b.value(Mul(x, b.value(Rsqrt(shifted))))


def _standardised(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    """(x - mean) / sqrt(variance + epsilon) along axes, in two passes."""
    centered = x - _mean(x, axes)
    return centered / np.sqrt(_mean(centered * centered, axes) + epsilon)


def _mean(x: Array, axes: tuple[int, ...]) -> Array:
    count = np.float64(np.prod([x.shape[a] for a in axes]))
    return x.sum(axes, keepdims=True) / count


def _affine(b: Builder, x: Value, scale: Value | None, bias: Value | None) -> Value:
    y = x if scale is None else b.value(Mul(x, scale))
    return y if bias is None else b.value(Add(y, bias))


def _columns(vector: Array, rank: int) -> Array:
    """A vector of one element a channel, shaped to broadcast to N, C and the axes behind."""
    return vector.reshape(-1, *[1] * (rank - 2))


class BatchNorm(Normalization, name="batch_norm"):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias for each channel, with given statistics.

    It decomposes into x * a + b, where a and b are computed on the vectors and so fold where those
    are constants.

    C1: the operands are floats of one element type.
    C2: x has a batch and a channel axis.
    C3: the other operands are vectors of one element for each channel.

    Source: ONNX BatchNormalization-15, its form for inference.

    ```mlir
    func @main(
      %x: tensor<Nx2x4x4xf32>, %s: tensor<2xf32>, %b: tensor<2xf32>, %m: tensor<2xf32>,
      %v: tensor<2xf32>
    ) -> (%y: tensor<Nx2x4x4xf32>) {
      %y = batch_norm(%x, %s, %b, %m, %v) {epsilon = 0.001} : tensor<Nx2x4x4xf32>
      return %y
    }
    ```
    """

    scale: Value = operand()
    bias: Value = operand()
    mean: Value = operand()
    variance: Value = operand()
    epsilon: float = attribute("float", default=1e-5)
    output: Value = result()

    def check(self) -> None:
        self.require(self.x.tensor.rank >= 2, "C2", f"x has rank {self.x.tensor.rank}")
        for role in ("scale", "bias", "mean", "variance"):
            self.check_channels(getattr(self, role), role)

    def formula(self, x: Array, *rest: Array | None) -> Array:
        scale, bias, mean, variance = (_columns(r, x.ndim) for r in rest if r is not None)
        return (x - mean) / np.sqrt(variance + self.epsilon) * scale + bias

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        scale, bias, mean, variance = (r for r in rest if r is not None)
        epsilon = scalar(b, self.epsilon, x.tensor.dtype)
        deviation = b.value(Sqrt(b.value(Add(variance, epsilon))))
        factor = b.value(Div(scale, deviation))
        shift = b.value(Sub(bias, b.value(Mul(mean, factor))))
        rank = x.tensor.rank
        return _affine(b, x, per_channel(b, factor, rank), per_channel(b, shift, rank))

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """By the standardised x, whose sums do not cancel."""
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        x, wide = raised(b, self.x), raised(b, g)
        scale, mean, variance = (
            per_channel(b, raised(b, v), x.tensor.rank)
            for v in (self.scale, self.mean, self.variance)
        )
        inverse = do("rsqrt", do("add", variance, self.epsilon))
        factor = do("mul", scale, inverse)
        centered = do("mul", do("sub", x, mean), inverse)
        total, along = self._sums(do, wide), self._sums(do, do("mul", wide, centered))
        factors, inverses = (do.reshape(v, total.tensor.shape) for v in (factor, inverse))
        slope = do("mul", do("mul", along, do("mul", factors, inverses)), -0.5)
        found = [do("mul", wide, factor), along, total, do("neg", do("mul", total, factors)), slope]
        return [do.cast(v, self.x) for v in found]

    def _sums(self, do: Calculus, x: Value) -> Value:
        """The sum of each channel."""
        return do("reduce_sum", x, axes=tuple(a for a in range(x.tensor.rank) if a != 1))


class LayerNorm(Normalization, name="layer_norm"):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over the axes from `axis` to the last.

    The variance is that of the values themselves (divided by their number), in two passes.

    C1: the operands are floats of one element type.
    C2: `axis` is an axis of x.
    C3: `scale` and `bias` broadcast to x.

    Source: ONNX LayerNormalization-17; arXiv 1607.06450.

    ```mlir
    func @main(
      %x: tensor<BxSx8xf32>, %s: tensor<8xf32>, %b: tensor<8xf32>
    ) -> (%y: tensor<BxSx8xf32>) {
      %y = layer_norm(%x, %s, %b) {axis = 2, epsilon = 1e-12} : tensor<BxSx8xf32>
      return %y
    }
    ```
    """

    scale: Value | None = optional()
    bias: Value | None = optional()
    axis: int = attribute("int")
    epsilon: float = attribute("float", default=1e-5)
    output: Value = result()

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that are normalised together."""
        return tuple(range(self.axis, self.x.tensor.rank))

    def check(self) -> None:
        self.check_axis(self.axis, self.x.tensor.rank, "C2")
        self.check_stretch(self.scale, "scale")
        self.check_stretch(self.bias, "bias")

    def formula(self, x: Array, *rest: Array | None) -> Array:
        scale, bias = (*rest, None, None)[:2]
        y = _standardised(x, self.axes, self.epsilon)
        return y * (1 if scale is None else scale) + (0 if bias is None else bias)

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        scale, bias = rest
        return _affine(
            b, _normalised(b, _centered(b, x, self.axes), self.axes, self.epsilon), scale, bias
        )


class RmsNorm(Normalization, name="rms_norm"):
    """x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` to the last.

    C1: the operands are floats of one element type.
    C2: `axis` is an axis of x.
    C3: `scale` broadcasts to x.

    Source: ONNX RMSNormalization-23; arXiv 1910.07467.

    ```mlir
    func @main(%x: tensor<BxSx8xf32>, %s: tensor<8xf32>) -> (%y: tensor<BxSx8xf32>) {
      %y = rms_norm(%x, %s) {axis = 2} : tensor<BxSx8xf32>
      return %y
    }
    ```
    """

    scale: Value | None = optional()
    axis: int = attribute("int")
    epsilon: float = attribute("float", default=1e-5)
    output: Value = result()

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that are normalised together."""
        return tuple(range(self.axis, self.x.tensor.rank))

    def check(self) -> None:
        self.check_axis(self.axis, self.x.tensor.rank, "C2")
        self.check_stretch(self.scale, "scale")

    def formula(self, x: Array, *rest: Array | None) -> Array:
        y = x / np.sqrt(_mean(x * x, self.axes) + self.epsilon)
        return y if not rest or rest[0] is None else y * rest[0]

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        return _affine(b, _normalised(b, x, self.axes, self.epsilon), rest[0], None)


class InstanceNorm(Normalization, name="instance_norm"):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over the spatial axes of each channel.

    C1: the operands are floats of one element type.
    C2: x has a batch, a channel and at least one spatial axis.
    C3: `scale` and `bias` are vectors of one element for each channel.

    Source: ONNX InstanceNormalization-22; arXiv 1607.08022.

    ```mlir
    func @main(
      %x: tensor<Nx2x4x4xf32>, %s: tensor<2xf32>, %b: tensor<2xf32>
    ) -> (%y: tensor<Nx2x4x4xf32>) {
      %y = instance_norm(%x, %s, %b) : tensor<Nx2x4x4xf32>
      return %y
    }
    ```
    """

    scale: Value = operand()
    bias: Value = operand()
    epsilon: float = attribute("float", default=1e-5)
    output: Value = result()

    @property
    def axes(self) -> tuple[int, ...]:
        """The spatial axes."""
        return tuple(range(2, self.x.tensor.rank))

    def check(self) -> None:
        self.require(self.x.tensor.rank >= 3, "C2", f"x has rank {self.x.tensor.rank}")
        self.check_channels(self.scale, "scale")
        self.check_channels(self.bias, "bias")

    def formula(self, x: Array, *rest: Array | None) -> Array:
        scale, bias = (_columns(r, x.ndim) for r in rest if r is not None)
        return _standardised(x, self.axes, self.epsilon) * scale + bias

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        scale, bias = (per_channel(b, r, x.tensor.rank) for r in rest if r is not None)
        return _affine(
            b, _normalised(b, _centered(b, x, self.axes), self.axes, self.epsilon), scale, bias
        )


class GroupNorm(Normalization, name="group_norm"):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over each group of channels.

    C1: the operands are floats of one element type.
    C2: x has a batch and a channel axis; `groups` is positive and divides the channels.
    C3: `scale` and `bias` are vectors of one element for each channel.

    Source: ONNX GroupNormalization-21; arXiv 1803.08494.

    ```mlir
    func @main(
      %x: tensor<Nx4x3x3xf32>, %s: tensor<4xf32>, %b: tensor<4xf32>
    ) -> (%y: tensor<Nx4x3x3xf32>) {
      %y = group_norm(%x, %s, %b) {groups = 2} : tensor<Nx4x3x3xf32>
      return %y
    }
    ```
    """

    scale: Value = operand()
    bias: Value = operand()
    groups: int = attribute("int")
    epsilon: float = attribute("float", default=1e-5)
    output: Value = result()

    def check(self) -> None:
        x = self.x.tensor
        self.require(x.rank >= 2, "C2", f"x has rank {x.rank}")
        channels = x.shape[1]
        whole = self.groups >= 1 and isinstance(channels, int) and channels % self.groups == 0
        self.require(whole, "C2", f"{self.groups} groups do not divide {channels} channels")
        self.check_channels(self.scale, "scale")
        self.check_channels(self.bias, "bias")

    @property
    def split(self) -> Shape:
        """The shape of x with the channels as groups and members."""
        n, channels, *spatial = self.x.tensor.shape
        assert isinstance(channels, int), "C2 holds"
        return (n, self.groups, channels // self.groups, *spatial)

    def formula(self, x: Array, *rest: Array | None) -> Array:
        scale, bias = (_columns(r, x.ndim) for r in rest if r is not None)
        members = x.reshape(x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:])
        y = _standardised(members, tuple(range(2, members.ndim)), self.epsilon)
        return y.reshape(x.shape) * scale + bias

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        scale, bias = (per_channel(b, r, x.tensor.rank) for r in rest if r is not None)
        members = b.value(Reshape(x, self.split))
        axes = tuple(range(2, members.tensor.rank))
        y = _normalised(b, _centered(b, members, axes), axes, self.epsilon)
        return _affine(b, b.value(Reshape(y, x.tensor.shape)), scale, bias)


class Lrn(Normalization, name="lrn"):
    """x / (bias + alpha / size * s) ** beta; s sums the squares of `size` neighbouring channels.

    The neighbours of channel c are c - floor((size - 1) / 2) to c + ceil((size - 1) / 2), as far as
    they exist.

    C1: the operand is a float.
    C2: x has a batch and a channel axis.
    C3: `size` is positive.

    Source: ONNX LRN-13.

    ```mlir
    func @main(%x: tensor<Nx5x3x3xf32>) -> (%y: tensor<Nx5x3x3xf32>) {
      %y = lrn(%x) {size = 3} : tensor<Nx5x3x3xf32>
      return %y
    }
    ```
    """

    size: int = attribute("int")
    alpha: float = attribute("float", default=1e-4)
    beta: float = attribute("float", default=0.75)
    bias: float = attribute("float", default=1.0)
    output: Value = result()

    def check(self) -> None:
        self.require(self.x.tensor.rank >= 2, "C2", f"x has rank {self.x.tensor.rank}")
        self.require(self.size >= 1, "C3", f"size {self.size}")

    def formula(self, x: Array, *rest: Array | None) -> Array:
        total = np.zeros_like(x)
        below, above = (self.size - 1) // 2, self.size // 2
        for c in range(x.shape[1]):
            near = x[:, max(c - below, 0) : c + above + 1]
            total[:, c] = (near * near).sum(1)
        return x / (self.bias + self.alpha / self.size * total) ** self.beta

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        shape, dtype = x.tensor.shape, x.tensor.dtype
        if shape[1] == 0:
            return x
        mean = b.value(Reshape(self._mean_square(b, x), shape))
        slope = b.value(Mul(mean, scalar(b, self.alpha, dtype)))
        base = b.value(Add(slope, scalar(b, self.bias, dtype)))
        return b.value(Div(x, b.value(Pow(base, scalar(b, self.beta, dtype)))))

    def _mean_square(self, b: Builder, x: Value) -> Value:
        """The squares' mean over the neighbours, as a pool along the channels."""
        n, channels, *spatial = x.tensor.shape
        plane = b.value(Reshape(b.value(Mul(x, x)), (n, 1, channels, product(spatial))))
        low, high = ((self.size - 1) // 2, 0), (self.size // 2, 0)
        # Where there may be no channel, a window more, which is cut off, keeps the pool valid.
        spare = 0 if isinstance(channels, int) else 1
        pool = AveragePool(
            plane,
            kernel=(self.size, 1),
            low_pads=low,
            high_pads=high,
            overhang=(spare, 0),
            count_include_pad=True,
        )
        mean = b.value(pool)
        if not spare:
            return mean
        shape = plane.tensor.shape
        return b.value(Slice(mean, (0,) * 4, shape, (1,) * 4))
