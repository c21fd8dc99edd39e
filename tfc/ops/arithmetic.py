"""Binary arithmetic, elementwise. Integers wrap; nothing traps, whatever the operands.

Floats are computed in float64 and rounded once, which for + - * / is the correctly rounded result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ops.base import NUMERIC, Array, Binary, is_float_array, narrow, widen

if TYPE_CHECKING:
    from tfc.ir.core import Value
    from tfc.ops.calculus import Calculus


class Arithmetic(Binary):
    """A binary op whose `compute` works on float64 and on every integer type; one rounding."""

    exact = True
    dtypes = NUMERIC

    def compute(self, x: Array, y: Array) -> Any:
        raise NotImplementedError(self.name)

    def reference(self, x: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            return narrow(self.compute(widen(x), widen(y)), x.dtype)


class Add(Arithmetic, name="add"):
    """x + y.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Add-14.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = add(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    commutative = True

    def compute(self, x: Array, y: Array) -> Any:
        return x + y

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [g, g]


class Sub(Arithmetic, name="sub"):
    """x - y.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Sub-14.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = sub(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    def compute(self, x: Array, y: Array) -> Any:
        return x - y

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [g, do("neg", g)]


class Mul(Arithmetic, name="mul"):
    """x * y.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Mul-14.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = mul(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    commutative = True

    def compute(self, x: Array, y: Array) -> Any:
        return x * y

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do("mul", g, self.y), do("mul", g, self.x)]


class Div(Arithmetic, name="div"):
    """x / y; of integers the quotient without its fraction (rounded toward 0).

    An integer divided by 0 gives 0, the smallest integer divided by -1 itself.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Div-14.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = div(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    def compute(self, x: Array, y: Array) -> Any:
        if is_float_array(x):
            return x / y
        return _truncated(x, y)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        quotient = do("div", do("mul", g, self.output), self.y)
        return [do("div", g, self.y), do("neg", quotient)]


class Mod(Arithmetic, name="mod"):
    """The remainder of the division that rounds down, with the sign of y (a zero too).

    An integer modulo 0 is 0, a float modulo 0 NaN.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Mod-13 (fmod = 0), numpy.mod.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = mod(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    def compute(self, x: Array, y: Array) -> Any:
        if is_float_array(x):
            return np.mod(x, y)
        return np.where(y == 0, x.dtype.type(0), np.mod(x, _divisor(y)))

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        quotient = do("floor", do("div", self.x, self.y))
        return [g, do("neg", do("mul", g, quotient))]


class Fmod(Arithmetic, name="fmod"):
    """The remainder of the division that rounds toward 0, with the sign of x (a zero too).

    An integer modulo 0 is 0, a float modulo 0 NaN.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Mod-13 (fmod = 1), C fmod.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = fmod(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    def compute(self, x: Array, y: Array) -> Any:
        if is_float_array(x):
            return np.fmod(x, y)
        return np.where(y == 0, x.dtype.type(0), x - _truncated(x, y) * y)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        quotient = do("div", self.x, self.y)
        positive = do("greater", quotient, 0)
        whole = do.where(positive, do("floor", quotient), do("ceil", quotient))
        return [g, do("neg", do("mul", g, whole))]


class Pow(Arithmetic, name="pow"):
    """x to the power of y; of floats as IEEE 754 defines pow.

    Of integers the product wraps, and a negative power is 1 / x^-y without its fraction: 0 unless x
    is 1 or -1, and 0 for x = 0.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Pow-15, with both operands of one type.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = pow(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    exact = False

    def compute(self, x: Array, y: Array) -> Any:
        if is_float_array(x):
            return np.power(x, y)
        x, y = np.broadcast_arrays(x, y)
        inverse = np.where(np.abs(x) == 1, x, 0) if x.dtype.kind == "i" else x
        # Of -1 only the lowest bit of the power counts, which is the same for y and -y.
        return _integer_power(np.where(y < 0, inverse, x).astype(x.dtype), y)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        # A power of 0 is constant in x; 0 to a power is constant in y, whatever its logarithm.
        lower = do("pow", self.x, do("sub", self.y, 1))
        by_x = do.where(do("equal", self.y, 0), 0, do("mul", self.y, lower))
        by_y = do("mul", self.output, do("log", self.x))
        by_y = do.where(do("equal", self.x, 0), 0, by_y)
        return [do("mul", g, by_x), do("mul", g, by_y)]


class Maximum(Arithmetic, name="maximum"):
    """The larger of x and y; NaN where either is. Of two zeros it may be any.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Max-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = maximum(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    commutative = True

    def compute(self, x: Array, y: Array) -> Any:
        return np.where((x >= y) | (x != x), x, y)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return _chosen(do, g, do("greater", self.x, self.y), do("less", self.x, self.y))


class Minimum(Arithmetic, name="minimum"):
    """The smaller of x and y; NaN where either is. Of two zeros it may be any.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Min-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xf32>) {
      %z = minimum(%x, %y) : tensor<Sx3xf32>
      return %z
    }
    ```
    """

    commutative = True

    def compute(self, x: Array, y: Array) -> Any:
        return np.where((x <= y) | (x != x), x, y)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return _chosen(do, g, do("less", self.x, self.y), do("greater", self.x, self.y))


def _chosen(do: Calculus, g: Value, first: Value, second: Value) -> list[Value | None]:
    """The gradient goes to the operand that is chosen; equal ones share it."""
    half = do("mul", g, 0.5)
    by_x = do.where(first, g, do.where(second, 0, half))
    return [by_x, do.where(second, g, do.where(first, 0, half))]


def _divisor(y: Array) -> Array:
    """y without zeros."""
    return np.where(y == 0, y.dtype.type(1), y)


def _truncated(x: Array, y: Array) -> Array:
    """The quotient rounded toward 0, and 0 where y is 0."""
    divisor = _divisor(y)
    floor = x // divisor
    if x.dtype.kind == "i":
        below = (x - floor * divisor != 0) & ((x < 0) != (divisor < 0))
        floor = floor + below.astype(x.dtype)
    return np.where(y == 0, x.dtype.type(0), floor)


def _integer_power(x: Array, y: Array) -> Array:
    """By squaring, over the bits of y."""
    total, square = np.ones_like(x), x.copy()
    bits = y.copy()
    for _ in range(x.dtype.itemsize * 8):
        total = np.where(bits & 1, total * square, total)
        square, bits = square * square, bits >> 1
    return total
