"""Elementwise functions that a processor has no instruction for: exponentials, logarithms, angles.

Each computes in float64 and rounds once, so that it is what compiled code is compared with. A value
outside of a function's domain gives NaN, a pole an infinity; nothing warns or traps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tfc.ops.base import Array
from tfc.ops.elementwise import FloatFunction

if TYPE_CHECKING:
    from tfc.ir.core import Value
    from tfc.ops.calculus import Calculus


class Exp(FloatFunction, name="exp"):
    """e to the power of x.

    C1: the operand is a float. Source: ONNX Exp-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = exp(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.exp(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, self.output)]


class Expm1(FloatFunction, name="expm1"):
    """e to the power of x, minus 1, exact near 0.

    C1: the operand is a float. Source: TensorFlow Expm1.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = expm1(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.expm1(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("exp", self.x))]


class Log(FloatFunction, name="log"):
    """The natural logarithm; -inf at 0, NaN below.

    C1: the operand is a float. Source: ONNX Log-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = log(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.log(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("div", g, self.x)]


class Log1p(FloatFunction, name="log1p"):
    """The natural logarithm of 1 + x, exact near 0; -inf at -1, NaN below.

    C1: the operand is a float. Source: TensorFlow Log1p.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = log1p(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.log1p(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("div", g, do("add", self.x, 1))]


class Erf(FloatFunction, name="erf"):
    """The error function.

    C1: the operand is a float. Source: ONNX Erf-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = erf(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return erf(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        bell = do("exp", do("neg", do("mul", self.x, self.x)))
        return [do("mul", g, do("mul", bell, 2 / math.sqrt(math.pi)))]


class Sin(FloatFunction, name="sin"):
    """The sine of an angle in radians; NaN at the infinities.

    C1: the operand is a float. Source: ONNX Sin-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = sin(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.sin(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("cos", self.x))]


class Cos(FloatFunction, name="cos"):
    """The cosine of an angle in radians; NaN at the infinities.

    C1: the operand is a float. Source: ONNX Cos-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = cos(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.cos(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("neg", do("mul", g, do("sin", self.x)))]


class Tan(FloatFunction, name="tan"):
    """The tangent of an angle in radians; NaN at the infinities.

    C1: the operand is a float. Source: ONNX Tan-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = tan(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.tan(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("add", do("mul", self.output, self.output), 1))]


class Asin(FloatFunction, name="asin"):
    """The arc sine, from -pi/2 to pi/2; NaN outside of [-1, 1].

    C1: the operand is a float. Source: ONNX Asin-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = asin(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.arcsin(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("rsqrt", _below_one(do, self.x)))]


class Acos(FloatFunction, name="acos"):
    """The arc cosine, from 0 to pi; NaN outside of [-1, 1].

    C1: the operand is a float. Source: ONNX Acos-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = acos(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.arccos(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("neg", do("mul", g, do("rsqrt", _below_one(do, self.x))))]


class Atan(FloatFunction, name="atan"):
    """The arc tangent, from -pi/2 to pi/2.

    C1: the operand is a float. Source: ONNX Atan-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = atan(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.arctan(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("div", g, do("add", do("mul", self.x, self.x), 1))]


class Sinh(FloatFunction, name="sinh"):
    """The hyperbolic sine.

    C1: the operand is a float. Source: ONNX Sinh-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = sinh(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.sinh(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("cosh", self.x))]


class Cosh(FloatFunction, name="cosh"):
    """The hyperbolic cosine.

    C1: the operand is a float. Source: ONNX Cosh-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = cosh(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.cosh(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("sinh", self.x))]


class Asinh(FloatFunction, name="asinh"):
    """The inverse hyperbolic sine.

    C1: the operand is a float. Source: ONNX Asinh-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = asinh(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.arcsinh(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("rsqrt", do("add", do("mul", self.x, self.x), 1)))]


class Acosh(FloatFunction, name="acosh"):
    """The inverse hyperbolic cosine; NaN below 1.

    C1: the operand is a float. Source: ONNX Acosh-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = acosh(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.arccosh(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        above_one = do("mul", do("sub", self.x, 1), do("add", self.x, 1))
        return [do("mul", g, do("rsqrt", above_one))]


class Atanh(FloatFunction, name="atanh"):
    """The inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.

    C1: the operand is a float. Source: ONNX Atanh-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = atanh(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.arctanh(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("div", g, _below_one(do, self.x))]


class Tanh(FloatFunction, name="tanh"):
    """The hyperbolic tangent.

    C1: the operand is a float. Source: ONNX Tanh-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = tanh(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.tanh(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, _below_one(do, self.output))]


class Sigmoid(FloatFunction, name="sigmoid"):
    """1 / (1 + e^-x).

    C1: the operand is a float. Source: ONNX Sigmoid-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = sigmoid(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return sigmoid(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        falling = do("mul", self.output, do("sub", 1, self.output))
        return [do("mul", g, falling)]


class Softplus(FloatFunction, name="softplus"):
    """log(1 + e^x), which does not overflow.

    C1: the operand is a float. Source: ONNX Softplus-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = softplus(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return softplus(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("sigmoid", self.x))]


def _below_one(do: Calculus, x: Value) -> Value:
    """1 - x * x, which keeps its precision near 1."""
    return do("mul", do("sub", 1, x), do("add", x, 1))


def erf(x: Array) -> Array:
    """numpy has no erf, and scipy is no dependency."""
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def sigmoid(x: Array) -> Array:
    # The form for negative x keeps what lies below the smallest 1 / (1 + e^-x).
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay))


def softplus(x: Array) -> Array:
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)
