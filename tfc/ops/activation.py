"""Smooth activations: elementwise composites of one tensor, which `decompose` into primitives.

References compute in float64 and round once. The piecewise linear ones are in `piecewise.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ir.core import Value, attribute
from tfc.ir.types import FLOATS, DType, Type
from tfc.ops.arithmetic import Add, Div, Maximum, Minimum, Mul
from tfc.ops.base import Array, Composite, Unary, narrow, widen
from tfc.ops.compose import cast, compute_dtype, raised
from tfc.ops.constant import scalar
from tfc.ops.elementwise import Abs, Where
from tfc.ops.logic import Greater, Less
from tfc.ops.transcendental import Erf, Expm1, Sigmoid, Softplus, Tanh, erf, sigmoid, softplus

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ops.calculus import Calculus

_GELU_SCALE = math.sqrt(2 / math.pi)
_GELU_CUBE = 0.044715


class Steps:
    """Inserts elementwise ops; a number becomes a scalar of the element type to compute in."""

    def __init__(self, b: Builder, dtype: DType) -> None:
        self.builder = b
        self.dtype = dtype

    def __call__(self, kind: type[Any], *operands: Value | float) -> Value:
        values = [v if isinstance(v, Value) else self.number(v) for v in operands]
        return self.builder.value(kind(*values))

    def number(self, value: float) -> Value:
        return scalar(self.builder, value, self.dtype)


class Activation(Composite, Unary):
    """`compute` gives the numbers in float64 (or integers), `steps` the same as ops."""

    dtypes = FLOATS

    def compute(self, x: Array) -> Any:
        raise NotImplementedError(self.name)

    def steps(self, do: Steps, x: Value) -> Value:
        raise NotImplementedError(self.name)

    def reference(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return narrow(self.compute(widen(x)), x.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        x = raised(b, self.x)
        return [cast(b, self.steps(Steps(b, x.tensor.dtype), x), self.x.tensor.dtype)]

    def number(self, value: float) -> float:
        """An attribute as the element type that is computed in holds it."""
        kind = compute_dtype(self.x.tensor.dtype).numpy
        return float(narrow(np.float64(value), kind))


class Elu(Activation, name="elu"):
    """x where it is not below 0, else alpha * (e^x - 1).

    C1: the operand is a float. Source: ONNX Elu-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = elu(%x) {alpha = 0.5} : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    alpha: float = attribute("float", default=1.0)

    def compute(self, x: Array) -> Array:
        return np.where(x < 0, self.alpha * np.expm1(x), x)

    def steps(self, do: Steps, x: Value) -> Value:
        return do(Where, do(Less, x, 0), do(Mul, do(Expm1, x), self.alpha), x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        # The power overflows on the other side: it is chosen last.
        below = do("mul", do("mul", g, do("exp", self.x)), self.alpha)
        return [do.where(do("less", self.x, 0), below, g)]

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        return self.summed_slopes(b, gradients)


class Selu(Activation, name="selu"):
    """gamma * x above 0, else gamma * alpha * (e^x - 1).

    C1: the operand is a float. Source: ONNX Selu-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = selu(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    alpha: float = attribute("float", default=1.6732632423543772)
    gamma: float = attribute("float", default=1.0507009873554805)

    def compute(self, x: Array) -> Array:
        below = self.gamma * self.alpha * np.expm1(x)
        return np.where(x > 0, self.gamma * x, below)

    def steps(self, do: Steps, x: Value) -> Value:
        below = do(Mul, do(Expm1, x), self.gamma * self.alpha)
        return do(Where, do(Greater, x, 0), do(Mul, x, self.gamma), below)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        below = do("mul", do("mul", g, do("exp", self.x)), self.gamma * self.alpha)
        return [do.where(do("greater", self.x, 0), do("mul", g, self.gamma), below)]

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        return self.summed_slopes(b, gradients)


class Celu(Activation, name="celu"):
    """max(0, x) + min(0, alpha * (e^(x / alpha) - 1)).

    C1: the operand is a float.
    C2: alpha is not 0.

    Source: ONNX Celu-12.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = celu(%x) {alpha = 2.0} : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    alpha: float = attribute("float", default=1.0)

    def infer(self) -> list[Type]:
        self.require(self.alpha != 0, "C2", "alpha is 0")
        return super().infer()

    def compute(self, x: Array) -> Array:
        below = self.alpha * np.expm1(x / self.alpha)
        return np.maximum(x, 0) + np.minimum(below, 0)

    def steps(self, do: Steps, x: Value) -> Value:
        below = do(Mul, do(Expm1, do(Div, x, self.alpha)), self.alpha)
        return do(Add, do(Maximum, x, 0), do(Minimum, below, 0))

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        below = do("mul", g, do("exp", do("div", self.x, self.alpha)))
        return [do.where(do("less", self.x, 0), below, g)]

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        return self.summed_slopes(b, gradients)


class Gelu(Activation, name="gelu"):
    """x times the standard normal distribution at x: x / 2 * (1 + erf(x / sqrt 2)).

    `approximate` = "tanh" takes tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)) for the erf.

    C1: the operand is a float.
    C2: `approximate` is "none" or "tanh".

    Source: ONNX Gelu-20.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = gelu(%x) {approximate = "tanh"} : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    approximate: str = attribute("str", default="none")

    def infer(self) -> list[Type]:
        known = self.approximate in ("none", "tanh")
        self.require(known, "C2", f"no approximation is {self.approximate!r}")
        return super().infer()

    def compute(self, x: Array) -> Array:
        if self.approximate == "tanh":
            return 0.5 * x * (1 + np.tanh(_GELU_SCALE * (x + _GELU_CUBE * x * x * x)))
        return 0.5 * x * (1 + erf(x / math.sqrt(2)))

    def steps(self, do: Steps, x: Value) -> Value:
        if self.approximate == "tanh":
            cube = do(Mul, do(Mul, do(Mul, x, x), x), _GELU_CUBE)
            bell = do(Tanh, do(Mul, do(Add, x, cube), _GELU_SCALE))
        else:
            bell = do(Erf, do(Mul, x, math.sqrt(0.5)))
        return do(Mul, do(Mul, x, 0.5), do(Add, bell, 1))


class Silu(Activation, name="silu"):
    """x * sigmoid(alpha * x); NaN at the infinity that the sigmoid takes to 0.

    C1: the operand is a float. Source: ONNX Swish-24.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = silu(%x) {alpha = 1.5} : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    alpha: float = attribute("float", default=1.0)

    def compute(self, x: Array) -> Array:
        return x * sigmoid(self.alpha * x)

    def steps(self, do: Steps, x: Value) -> Value:
        inner = x if self.alpha == 1 else do(Mul, x, self.alpha)
        return do(Mul, x, do(Sigmoid, inner))


class Mish(Activation, name="mish"):
    """x * tanh(log(1 + e^x)).

    C1: the operand is a float. Source: ONNX Mish-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = mish(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return x * np.tanh(softplus(x))

    def steps(self, do: Steps, x: Value) -> Value:
        return do(Mul, x, do(Tanh, do(Softplus, x)))


class Softsign(Activation, name="softsign"):
    """x / (1 + |x|).

    C1: the operand is a float. Source: ONNX Softsign-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = softsign(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return x / (1 + np.abs(x))

    def steps(self, do: Steps, x: Value) -> Value:
        return do(Div, x, do(Add, do(Abs, x), 1))
