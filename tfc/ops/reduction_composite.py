"""Reductions that are made of the primitive ones: means, norms, logarithms of sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value
from tfc.ir.types import FLOATS, I32, I64, U32, U64
from tfc.ops.arithmetic import Add, Div, Mul, Sub
from tfc.ops.base import Array, Composite, narrow, widen
from tfc.ops.compose import cast, raised, size_scalar
from tfc.ops.constant import scalar
from tfc.ops.elementwise import Abs, IsInf, Sqrt, Where
from tfc.ops.reduction import ReduceMax, ReduceSum, Reduction
from tfc.ops.transcendental import Exp, Log
from tfc.ops.view import Reshape

if TYPE_CHECKING:
    from tfc.ir.builder import Builder


class CompositeReduction(Reduction, Composite):
    """A reduction that is made of primitive ones and elementwise ops."""

    def reference(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return narrow(self.formula(widen(x)), x.dtype)

    def formula(self, x: Array) -> Array:
        """The reduction of integers, or of floats in f64."""
        raise NotImplementedError(f"{self.name} has no formula")

    def decompose(self, b: Builder) -> list[Value]:
        return [cast(b, self.compose(b, raised(b, self.x)), self.x.tensor.dtype)]

    def compose(self, b: Builder, x: Value) -> Value:
        """The reduction of x, which is the operand in the type to compute in."""
        raise NotImplementedError(f"{self.name} does not decompose")

    def _sum(self, b: Builder, x: Value) -> Value:
        return b.value(ReduceSum(x, self.axes, self.keepdims))


class ReduceMean(CompositeReduction, name="reduce_mean"):
    """The sum along axes divided by the number of elements; of none NaN (0 for integers).

    C1: the operand holds floats, or integers of 32 or 64 bits, whose mean is truncated toward zero.
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceMean-18.

    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<Bxf32>) {
      %y = reduce_mean(%x) {axes = [1]} : tensor<Bxf32>
      return %y
    }
    ```
    """

    dtypes = (*FLOATS, I32, I64, U32, U64)

    def formula(self, x: Array) -> Array:
        count = int(np.prod([x.shape[a] for a in self.axes], dtype=np.int64))
        total = narrow(self._fold(np.sum, x), x.dtype)
        if x.dtype.kind == "f":
            return total / np.float64(count)
        return _truncated_quotient(total, count)

    def compose(self, b: Builder, x: Value) -> Value:
        return b.value(Div(self._sum(b, x), size_scalar(b, self.folded, x.tensor.dtype)))


def _truncated_quotient(x: Array, count: int) -> Array:
    if not count:
        return np.zeros_like(x)
    divisor = x.dtype.type(count)
    quotient = x // divisor
    return quotient + ((x % divisor != 0) & (x < 0)).astype(x.dtype)


class ReduceL1(CompositeReduction, name="reduce_l1"):
    """The sum of the absolute values along axes.

    C1: the operand holds numbers.
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceL1-18.

    ```mlir
    func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2xf32>) {
      %y = reduce_l1(%x) {axes = [1]} : tensor<2xf32>
      return %y
    }
    ```
    """

    def formula(self, x: Array) -> Array:
        return self._fold(np.sum, np.abs(x))

    def compose(self, b: Builder, x: Value) -> Value:
        unsigned = x.tensor.dtype.kind == "uint"
        return self._sum(b, x if unsigned else b.value(Abs(x)))


class ReduceL2(CompositeReduction, name="reduce_l2"):
    """The square root of the sum of squares along axes.

    C1: the operand holds floats.
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceL2-18.

    ```mlir
    func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2xf32>) {
      %y = reduce_l2(%x) {axes = [1]} : tensor<2xf32>
      return %y
    }
    ```
    """

    dtypes = FLOATS

    def formula(self, x: Array) -> Array:
        return np.sqrt(self._fold(np.sum, x * x))

    def compose(self, b: Builder, x: Value) -> Value:
        return b.value(Sqrt(self._sum(b, b.value(Mul(x, x)))))

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """0 where all is 0, as in PyTorch."""
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        norm = self.spread(do, self.result)
        slope = do("div", do("mul", self.x, self.spread(do, g)), norm)
        return [do.where(do("equal", norm, 0), 0, slope)]


class ReduceSumSquare(CompositeReduction, name="reduce_sum_square"):
    """The sum of squares along axes. Integers wrap.

    C1: the operand holds numbers.
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceSumSquare-18.

    ```mlir
    func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2xf32>) {
      %y = reduce_sum_square(%x) {axes = [1]} : tensor<2xf32>
      return %y
    }
    ```
    """

    def formula(self, x: Array) -> Array:
        return self._fold(np.sum, x * x)

    def compose(self, b: Builder, x: Value) -> Value:
        return self._sum(b, b.value(Mul(x, x)))


class ReduceLogSum(CompositeReduction, name="reduce_log_sum"):
    """The natural logarithm of the sum along axes.

    C1: the operand holds floats.
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceLogSum-18.

    ```mlir
    func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2xf32>) {
      %y = reduce_log_sum(%x) {axes = [1]} : tensor<2xf32>
      return %y
    }
    ```
    """

    dtypes = FLOATS

    def formula(self, x: Array) -> Array:
        return np.log(self._fold(np.sum, x))

    def compose(self, b: Builder, x: Value) -> Value:
        return b.value(Log(self._sum(b, x)))


class ReduceLogSumExp(CompositeReduction, name="reduce_log_sum_exp"):
    """log(sum(exp(x))) along axes, without overflow; of none it is minus infinity.

    C1: the operand holds floats.
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceLogSumExp-18.

    ```mlir
    func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2xf32>) {
      %y = reduce_log_sum_exp(%x) {axes = [1]} : tensor<2xf32>
      return %y
    }
    ```
    """

    dtypes = FLOATS

    def formula(self, x: Array) -> Array:
        largest = np.max(x, axis=self.axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isinf(largest), 0.0, largest)
        total = np.log(np.sum(np.exp(x - shift), axis=self.axes, keepdims=True)) + shift
        return total if self.keepdims else total.squeeze(self.axes)

    def compose(self, b: Builder, x: Value) -> Value:
        shift = self._shift(b, x)
        powers = b.value(Exp(b.value(Sub(x, shift))))
        logarithm = b.value(Log(self._sum(b, powers)))
        if not self.keepdims:
            shift = b.value(Reshape(shift, logarithm.tensor.shape))
        return b.value(Add(logarithm, shift))

    def _shift(self, b: Builder, x: Value) -> Value:
        """The largest element, or 0 where that is infinite, since inf - inf would be NaN."""
        largest = b.value(ReduceMax(x, self.axes, True))
        zero = scalar(b, 0.0, x.tensor.dtype)
        return b.value(Where(b.value(IsInf(largest)), zero, largest))

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """The softmax, which does not overflow."""
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        below = do("sub", self.x, self.spread(do, self.result))
        return [do("mul", do("exp", below), self.spread(do, g))]
