"""Comparisons, logic and operations on bits, elementwise."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfc.ir.types import INTEGERS
from tfc.ops.base import ANY, BOOLS, Array, Binary, Comparison, Unary


class Equal(Comparison, name="equal"):
    """Whether x = y; NaN equals nothing.

    C1: both operands have one type.
    C2: their shapes broadcast.

    Source: ONNX Equal-19.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xbool>) {
      %z = equal(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    commutative = True
    dtypes = ANY

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x == y)


class NotEqual(Comparison, name="not_equal"):
    """Whether x differs from y; NaN differs from everything.

    C1: both operands have one type.
    C2: their shapes broadcast.

    Source: StableHLO compare NE.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xbool>) {
      %z = not_equal(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    commutative = True
    dtypes = ANY

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x != y)


class Less(Comparison, name="less"):
    """Whether x < y; false where either is NaN.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Less-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xbool>) {
      %z = less(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x < y)


class LessEqual(Comparison, name="less_equal"):
    """Whether x <= y; false where either is NaN.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX LessOrEqual-16.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xbool>) {
      %z = less_equal(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x <= y)


class Greater(Comparison, name="greater"):
    """Whether x > y; false where either is NaN.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX Greater-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xbool>) {
      %z = greater(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x > y)


class GreaterEqual(Comparison, name="greater_equal"):
    """Whether x >= y; false where either is NaN.

    C1: both operands are numbers of one type.
    C2: their shapes broadcast.

    Source: ONNX GreaterOrEqual-16.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<3xf32>) -> (%z: tensor<Sx3xbool>) {
      %z = greater_equal(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x >= y)


class LogicalAnd(Binary, name="logical_and"):
    """Whether both hold.

    C1: both operands are bool.
    C2: their shapes broadcast.

    Source: ONNX And-7.

    ```mlir
    func @main(%x: tensor<Sx3xbool>, %y: tensor<3xbool>) -> (%z: tensor<Sx3xbool>) {
      %z = logical_and(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    differentiable = False
    exact = True
    commutative = True
    dtypes = BOOLS
    function = "and"

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x & y)


class LogicalOr(Binary, name="logical_or"):
    """Whether at least one holds.

    C1: both operands are bool.
    C2: their shapes broadcast.

    Source: ONNX Or-7.

    ```mlir
    func @main(%x: tensor<Sx3xbool>, %y: tensor<3xbool>) -> (%z: tensor<Sx3xbool>) {
      %z = logical_or(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    differentiable = False
    exact = True
    commutative = True
    dtypes = BOOLS
    function = "or"

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x | y)


class LogicalXor(Binary, name="logical_xor"):
    """Whether exactly one holds.

    C1: both operands are bool.
    C2: their shapes broadcast.

    Source: ONNX Xor-7.

    ```mlir
    func @main(%x: tensor<Sx3xbool>, %y: tensor<3xbool>) -> (%z: tensor<Sx3xbool>) {
      %z = logical_xor(%x, %y) : tensor<Sx3xbool>
      return %z
    }
    ```
    """

    differentiable = False
    exact = True
    commutative = True
    dtypes = BOOLS
    function = "xor"

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x ^ y)


class BitwiseAnd(Binary, name="bitwise_and"):
    """The bits that x and y both have.

    C1: both operands are integers of one type.
    C2: their shapes broadcast.

    Source: ONNX BitwiseAnd-18.

    ```mlir
    func @main(%x: tensor<Sx3xi32>, %y: tensor<3xi32>) -> (%z: tensor<Sx3xi32>) {
      %z = bitwise_and(%x, %y) : tensor<Sx3xi32>
      return %z
    }
    ```
    """

    differentiable = False
    exact = True
    commutative = True
    dtypes = INTEGERS
    function = "and"

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x & y)


class BitwiseOr(Binary, name="bitwise_or"):
    """The bits that x or y has.

    C1: both operands are integers of one type.
    C2: their shapes broadcast.

    Source: ONNX BitwiseOr-18.

    ```mlir
    func @main(%x: tensor<Sx3xi32>, %y: tensor<3xi32>) -> (%z: tensor<Sx3xi32>) {
      %z = bitwise_or(%x, %y) : tensor<Sx3xi32>
      return %z
    }
    ```
    """

    differentiable = False
    exact = True
    commutative = True
    dtypes = INTEGERS
    function = "or"

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x | y)


class BitwiseXor(Binary, name="bitwise_xor"):
    """The bits in which x and y differ.

    C1: both operands are integers of one type.
    C2: their shapes broadcast.

    Source: ONNX BitwiseXor-18.

    ```mlir
    func @main(%x: tensor<Sx3xi32>, %y: tensor<3xi32>) -> (%z: tensor<Sx3xi32>) {
      %z = bitwise_xor(%x, %y) : tensor<Sx3xi32>
      return %z
    }
    ```
    """

    differentiable = False
    exact = True
    commutative = True
    dtypes = INTEGERS
    function = "xor"

    def reference(self, x: Array, y: Array) -> Array:
        return np.asarray(x ^ y)


class ShiftLeft(Binary, name="shift_left"):
    """The bits of x moved up by y places; 0 where y is negative or all are moved out.

    C1: both operands are integers of one type.
    C2: their shapes broadcast.

    Source: ONNX BitShift-11, widened to signed integers.

    ```mlir
    func @main(%x: tensor<Sx3xu32>, %y: tensor<3xu32>) -> (%z: tensor<Sx3xu32>) {
      %z = shift_left(%x, %y) : tensor<Sx3xu32>
      return %z
    }
    ```
    """

    differentiable = False
    exact = True
    dtypes = INTEGERS

    def reference(self, x: Array, y: Array) -> Array:
        return _shift(np.left_shift, x, y)


class ShiftRight(Binary, name="shift_right"):
    """The bits of x moved down by y places; 0 where y is negative or all are moved out.

    The bits that come in are the sign of a signed x, 0 for an unsigned one.

    C1: both operands are integers of one type.
    C2: their shapes broadcast.

    Source: ONNX BitShift-11, widened to signed integers.

    ```mlir
    func @main(%x: tensor<Sx3xu32>, %y: tensor<3xu32>) -> (%z: tensor<Sx3xu32>) {
      %z = shift_right(%x, %y) : tensor<Sx3xu32>
      return %z
    }
    ```
    """

    differentiable = False
    exact = True
    dtypes = INTEGERS

    def reference(self, x: Array, y: Array) -> Array:
        return _shift(np.right_shift, x, y)


class LogicalNot(Unary, name="logical_not"):
    """Whether x does not hold.

    C1: the operand is bool. Source: ONNX Not-1.

    ```mlir
    func @main(%x: tensor<Sx3xbool>) -> (%y: tensor<Sx3xbool>) {
      %y = logical_not(%x) : tensor<Sx3xbool>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True
    dtypes = BOOLS
    function = "not"

    def reference(self, x: Array) -> Array:
        return np.asarray(~x)


class BitwiseNot(Unary, name="bitwise_not"):
    """Every bit of x turned over.

    C1: the operand is an integer. Source: ONNX BitwiseNot-18.

    ```mlir
    func @main(%x: tensor<Sx3xi32>) -> (%y: tensor<Sx3xi32>) {
      %y = bitwise_not(%x) : tensor<Sx3xi32>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True
    dtypes = INTEGERS
    function = "not"

    def reference(self, x: Array) -> Array:
        return np.asarray(~x)


def _shift(move: Any, x: Array, y: Array) -> Array:
    bits = x.dtype.itemsize * 8
    inside = (y >= 0) & (y < bits)
    amount = np.where(inside, y, 0).astype(x.dtype)
    return np.asarray(np.where(inside, move(x, amount), 0), x.dtype)
