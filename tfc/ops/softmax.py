"""Softmax and its logarithm: composites of reductions and elementwise ops.

They are computed in at least f32 and rounded once, at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, result
from tfc.ops.arithmetic import Mul, Sub
from tfc.ops.base import Array
from tfc.ops.compose import FloatComposite, raised
from tfc.ops.elementwise import Reciprocal
from tfc.ops.reduction import ReduceMax, ReduceSum
from tfc.ops.transcendental import Exp, Log

if TYPE_CHECKING:
    from tfc.ir.builder import Builder


class Softmax(FloatComposite, name="softmax"):
    """exp(x) / sum(exp(x)) along `axis`, without overflow.

    A row that holds NaN or infinity, or only minus infinity, gives NaN throughout.

    C1: the operand is a float.
    C2: `axis` is an axis of x.

    Source: ONNX Softmax-13.

    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<BxSxf32>) {
      %y = softmax(%x) {axis = 1} : tensor<BxSxf32>
      return %y
    }
    ```
    """

    axis: int = attribute("int")
    output: Value = result()

    def check(self) -> None:
        self.check_axis(self.axis, self.x.tensor.rank, "C2")

    def formula(self, x: Array, *rest: Array | None) -> Array:
        return softmax(x, self.axis)

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        powers = b.value(Exp(_below_largest(b, x, self.axis)))
        total = b.value(ReduceSum(powers, (self.axis,), True))
        return b.value(Mul(powers, b.value(Reciprocal(total))))

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """(g - sum(g * y)) * y."""
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        y, wide = raised(b, self.result), raised(b, g)
        mean = do("reduce_sum", do("mul", wide, y), axes=(self.axis,), keepdims=True)
        return [do.cast(do("mul", do("sub", wide, mean), y), self.x)]


def _below_largest(b: Builder, x: Value, axis: int) -> Value:
    """x minus the largest element along an axis."""
    return b.value(Sub(x, b.value(ReduceMax(x, (axis,), True))))


def softmax(x: Array, axis: int) -> Array:
    """The softmax of an array of f64 along an axis."""
    powers = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return powers / powers.sum(axis, keepdims=True)


class LogSoftmax(FloatComposite, name="log_softmax"):
    """x - log(sum(exp(x))) along `axis`, without overflow.

    A row that holds NaN or infinity, or only minus infinity, gives NaN throughout.

    C1: the operand is a float.
    C2: `axis` is an axis of x.

    Source: ONNX LogSoftmax-13.

    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<BxSxf32>) {
      %y = log_softmax(%x) {axis = 1} : tensor<BxSxf32>
      return %y
    }
    ```
    """

    axis: int = attribute("int")
    output: Value = result()

    def check(self) -> None:
        self.check_axis(self.axis, self.x.tensor.rank, "C2")

    def formula(self, x: Array, *rest: Array | None) -> Array:
        below = x - x.max(self.axis, keepdims=True, initial=-np.inf)
        return below - np.log(np.exp(below).sum(self.axis, keepdims=True))

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        below = _below_largest(b, x, self.axis)
        total = b.value(ReduceSum(b.value(Exp(below)), (self.axis,), True))
        return b.value(Sub(below, b.value(Log(total))))

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """g - exp(y) * sum(g)."""
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        y, wide = raised(b, self.result), raised(b, g)
        total = do("reduce_sum", wide, axes=(self.axis,), keepdims=True)
        return [do.cast(do("sub", wide, do("mul", do("exp", y), total)), self.x)]
