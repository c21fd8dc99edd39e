"""Elementwise ops that every processor computes exactly: signs, rounding, roots, choice.

The binary ones are in `arithmetic.py` and `logic.py`, the functions that are approximated in
`transcendental.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ir.core import Value, attribute, operand, result
from tfc.ir.types import BOOL, FLOATS, DType, Type
from tfc.ops.base import (
    ANY,
    NUMERIC,
    SIGNED,
    Array,
    Composite,
    Elementwise,
    Unary,
    broadcast_index,
    narrow,
    widen,
)

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ir.expr import Expr
    from tfc.ops.calculus import Calculus
    from tfc.tile.nest import Nest


class NumberFunction(Unary):
    """A unary op whose `compute` works on float64 and on every integer type; one rounding."""

    exact = True
    dtypes = NUMERIC

    def compute(self, x: Array) -> Any:
        raise NotImplementedError(self.name)

    def reference(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return narrow(self.compute(widen(x)), x.dtype)


class FloatFunction(NumberFunction):
    """A unary op of floats."""

    exact = False
    dtypes = FLOATS


class Neg(NumberFunction, name="neg"):
    """-x; the smallest integer is its own negative.

    C1: the operand is a float or a signed integer. Source: ONNX Neg-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = neg(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    dtypes = SIGNED

    def compute(self, x: Array) -> Array:
        return np.negative(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("neg", g)]


class Abs(NumberFunction, name="abs"):
    """The absolute value; that of the smallest integer is itself.

    C1: the operand is a number. Source: ONNX Abs-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = abs(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def compute(self, x: Array) -> Array:
        return np.abs(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, do("sign", self.x))]


class Sign(NumberFunction, name="sign"):
    """1 where x > 0, -1 where x < 0, 0 where x is 0, NaN where it is NaN.

    C1: the operand is a number. Source: ONNX Sign-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = sign(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    differentiable = False

    def compute(self, x: Array) -> Array:
        return np.sign(x)


class Floor(FloatFunction, name="floor"):
    """The largest integer that is not above x.

    C1: the operand is a float. Source: ONNX Floor-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = floor(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True

    def compute(self, x: Array) -> Array:
        return np.floor(x)


class Ceil(FloatFunction, name="ceil"):
    """The smallest integer that is not below x.

    C1: the operand is a float. Source: ONNX Ceil-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = ceil(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True

    def compute(self, x: Array) -> Array:
        return np.ceil(x)


class Round(FloatFunction, name="round"):
    """The nearest integer, the even one of two that are equally near.

    C1: the operand is a float. Source: ONNX Round-22.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = round(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True

    def compute(self, x: Array) -> Array:
        return np.rint(x)


class Sqrt(FloatFunction, name="sqrt"):
    """The square root; NaN below 0.

    C1: the operand is a float. Source: ONNX Sqrt-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = sqrt(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    exact = True

    def compute(self, x: Array) -> Array:
        return np.sqrt(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("div", do("mul", g, 0.5), self.output)]


class Rsqrt(FloatFunction, name="rsqrt"):
    """1 / sqrt(x); an infinity of its sign at 0, NaN below.

    C1: the operand is a float. Source: TensorFlow Rsqrt.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = rsqrt(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    exact = True

    def compute(self, x: Array) -> Array:
        return 1 / np.sqrt(x)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        cube = do("mul", self.output, do("mul", self.output, self.output))
        return [do("mul", do("mul", g, -0.5), cube)]


class Reciprocal(FloatFunction, name="reciprocal"):
    """1 / x; an infinity of its sign at 0.

    C1: the operand is a float. Source: ONNX Reciprocal-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = reciprocal(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    exact = True

    def compute(self, x: Array) -> Array:
        return 1 / x

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("neg", do("mul", g, do("mul", self.output, self.output)))]


class IsNan(Unary, name="is_nan"):
    """Whether x is no number.

    C1: the operand is a float. Source: ONNX IsNaN-20.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xbool>) {
      %y = is_nan(%x) : tensor<Sx3xbool>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True
    dtypes = FLOATS

    def result_dtype(self, dtype: DType) -> DType:
        return BOOL

    def reference(self, x: Array) -> Array:
        return np.asarray(np.isnan(widen(x)))


class IsInf(Composite, Unary, name="is_inf"):
    """Whether x is an infinity: the positive one if `positive`, the negative one if `negative`.

    C1: the operand is a float. Source: ONNX IsInf-20.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xbool>) {
      %y = is_inf(%x) {negative = false} : tensor<Sx3xbool>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True
    dtypes = FLOATS
    positive: bool = attribute("bool", default=True)
    negative: bool = attribute("bool", default=True)

    def result_dtype(self, dtype: DType) -> DType:
        return BOOL

    def reference(self, x: Array) -> Array:
        wide = widen(x)
        above, below = np.isposinf(wide), np.isneginf(wide)
        return np.asarray((above & self.positive) | (below & self.negative))

    def decompose(self, b: Builder) -> list[Value]:
        from tfc.ops.constant import scalar
        from tfc.ops.logic import Equal, NotEqual

        dtype = self.x.tensor.dtype
        if not (self.positive or self.negative):
            return [b.value(NotEqual(whole := b.value(IsNan(self.x)), whole))]
        x = b.value(Abs(self.x)) if self.positive and self.negative else self.x
        limit = float("inf") if self.positive else float("-inf")
        return [b.value(Equal(x, scalar(b, limit, dtype)))]


class Where(Elementwise, name="where"):
    """x where the condition holds, else y.

    C1: x and y have the same element type.
    C2: the three shapes broadcast.
    C3: the condition is bool.

    Source: ONNX Where-16.

    ```mlir
    func @main(%c: tensor<3xbool>, %x: tensor<Sx3xf32>, %y: tensor<f32>) -> (%z: tensor<Sx3xf32>) {
      %z = where(%c, %x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    exact = True
    dtypes = ANY
    condition: Value = operand()
    x: Value = operand()
    y: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        self.check_dtype(self.condition, (BOOL,), "C3", "the condition")
        return [self.broadcast_type(self.check_same_dtype((self.x, self.y)))]

    def reference(self, condition: Array, x: Array, y: Array) -> Array:
        return np.asarray(np.where(condition, x, y), x.dtype)

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        tiles = [nest.pull(v, broadcast_index(index, v.tensor.shape)) for v in self.inputs]
        return nest.select(*tiles)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [None, do.where(self.condition, g, 0), do.where(self.condition, 0, g)]
