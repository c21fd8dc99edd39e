"""Activations made of pieces of lines: elementwise composites, which `decompose` into primitives.

NaN goes through, except where a specification says that what does not compare is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, operand, optional, result
from tfc.ir.types import TensorType, Type
from tfc.ops.activation import Activation, Steps
from tfc.ops.arithmetic import Add, Maximum, Minimum, Mul, Sub
from tfc.ops.base import NUMERIC, Array, Composite, Elementwise, narrow, widen
from tfc.ops.elementwise import Where
from tfc.ops.logic import Greater, Less

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ops.calculus import Calculus


class Relu(Activation, name="relu"):
    """The larger of x and 0.

    C1: the operand is a number. Source: ONNX Relu-14.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = relu(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    exact = True
    dtypes = NUMERIC

    def compute(self, x: Array) -> Array:
        return np.maximum(x, x.dtype.type(0))

    def steps(self, do: Steps, x: Value) -> Value:
        return do(Maximum, x, 0)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        # 0 at 0, as everywhere: PyTorch and TensorFlow agree.
        return [do.where(do("greater", self.x, 0), g, 0)]

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        return self.summed_slopes(b, gradients)


class LeakyRelu(Activation, name="leaky_relu"):
    """x where it is not below 0, else alpha * x.

    C1: the operand is a float. Source: ONNX LeakyRelu-16.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = leaky_relu(%x) {alpha = 0.1} : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    alpha: float = attribute("float", default=0.01)

    def compute(self, x: Array) -> Array:
        return np.where(x < 0, self.alpha * x, x)

    def steps(self, do: Steps, x: Value) -> Value:
        return do(Where, do(Less, x, 0), do(Mul, x, self.alpha), x)


class HardSigmoid(Activation, name="hard_sigmoid"):
    """alpha * x + beta, cut off at 0 and 1.

    C1: the operand is a float. Source: ONNX HardSigmoid-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = hard_sigmoid(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    alpha: float = attribute("float", default=0.2)
    beta: float = attribute("float", default=0.5)

    def compute(self, x: Array) -> Array:
        return np.maximum(0, np.minimum(1, self.alpha * x + self.beta))

    def steps(self, do: Steps, x: Value) -> Value:
        line = do(Add, do(Mul, x, self.alpha), self.beta)
        return do(Maximum, do(Minimum, line, 1), 0)


class HardSwish(Activation, name="hard_swish"):
    """x * (x / 6 + 1/2 cut off at 0 and 1).

    C1: the operand is a float. Source: ONNX HardSwish-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = hard_swish(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return x * np.maximum(0, np.minimum(1, x / 6 + 0.5))

    def steps(self, do: Steps, x: Value) -> Value:
        line = do(Add, do(Mul, x, 1 / 6), 0.5)
        return do(Mul, x, do(Maximum, do(Minimum, line, 1), 0))


class ThresholdedRelu(Activation, name="thresholded_relu"):
    """x where it is above alpha, else 0 (where it is NaN too).

    C1: the operand is a float. Source: ONNX ThresholdedRelu-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = thresholded_relu(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    alpha: float = attribute("float", default=1.0)

    def compute(self, x: Array) -> Array:
        return np.where(x > self.number(self.alpha), x, 0)

    def steps(self, do: Steps, x: Value) -> Value:
        return do(Where, do(Greater, x, self.alpha), x, 0)


class Shrink(Activation, name="shrink"):
    """x + bias below -lambd, x - bias above lambd, else 0 (where it is NaN too).

    C1: the operand is a float. Source: ONNX Shrink-9.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = shrink(%x) {bias = 0.5, lambd = 1.0} : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    bias: float = attribute("float", default=0.0)
    lambd: float = attribute("float", default=0.5)

    def compute(self, x: Array) -> Array:
        lambd = self.number(self.lambd)
        above = np.where(x > lambd, x - self.bias, 0)
        return np.where(x < -lambd, x + self.bias, above)

    def steps(self, do: Steps, x: Value) -> Value:
        above = do(Where, do(Greater, x, self.lambd), do(Sub, x, self.bias), 0)
        return do(Where, do(Less, x, -self.lambd), do(Add, x, self.bias), above)


class Prelu(Composite, Elementwise, name="prelu"):
    """x where it is not below 0, else slope * x; the slope broadcasts.

    C1: both operands are numbers of one type.
    C2: the slope broadcasts to the shape of x, which is that of the result.

    Source: ONNX PRelu-16.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %slope: tensor<3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = prelu(%x, %slope) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    x: Value = operand()
    slope: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        (found,) = super().infer()
        given = self.x.tensor
        assert isinstance(found, TensorType)
        text = f"{self.slope.tensor} does not broadcast to {given}"
        self.require(found.rank == given.rank, "C2", text)
        self.same_shape(found.shape, given.shape, "C2", text)
        return [given]

    def reference(self, x: Array, slope: Array) -> Array:
        with np.errstate(all="ignore"):
            wide = widen(x)
            return narrow(np.where(wide < 0, wide * widen(slope), wide), x.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        do = Steps(b, self.x.tensor.dtype)
        return [do(Where, do(Less, self.x, 0), do(Mul, self.x, self.slope), self.x)]


class Clip(Composite, name="clip"):
    """x, but not below `low` nor above `high`, each of which may be absent; NaN wins.

    Where the bounds cross, every element is `high`.

    C1: x is a number, and the bounds have its element type.
    C2: the bounds have rank 0.

    Source: ONNX Clip-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %low: tensor<f32>) -> (%y: tensor<Sx3xf32>) {
      %y = clip(%x, %low, _) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    exact = True
    x: Value = operand()
    low: Value | None = optional()
    high: Value | None = optional()
    output: Value = result()

    def infer(self) -> list[Type]:
        self.check_dtype(self.x, NUMERIC, "C1")
        for bound in (self.low, self.high):
            if bound is not None:
                self.check_rank(bound, 0, "C2", "a bound")
        self.check_same_dtype(self.inputs, "C1")
        return [self.x.tensor]

    def reference(self, x: Array, low: Array | None, high: Array | None) -> Array:
        wide = widen(x)
        if low is not None:
            wide = np.maximum(wide, widen(low))
        if high is not None:
            wide = np.minimum(wide, widen(high))
        return narrow(wide, x.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        value = self.x
        if self.low is not None:
            value = b.value(Maximum(value, self.low))
        if self.high is not None:
            value = b.value(Minimum(value, self.high))
        return [value]

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """To what is chosen: a bound that x is equal to gets nothing."""
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * 3
        found: list[Value | None] = [None, None, None]
        raised = self.x if self.low is None else do("maximum", self.x, self.low)
        if self.high is not None:
            above = do("greater", raised, self.high)
            found[2] = do.total(do.where(above, g, 0))
            g = do.where(above, 0, g)
        if self.low is not None:
            below = do("less", self.x, self.low)
            found[1] = do.total(do.where(below, g, 0))
            g = do.where(below, 0, g)
        found[0] = g
        return found
