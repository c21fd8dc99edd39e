"""Conversion between element types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ir.core import attribute
from tfc.ir.types import BOOL, DType
from tfc.ops.base import ANY, Array, Unary, is_float_array, narrow, widen

if TYPE_CHECKING:
    from tfc.ir.core import Value
    from tfc.ir.expr import Expr
    from tfc.ops.calculus import Calculus
    from tfc.tile.nest import Nest


class Cast(Unary, name="cast"):
    """The operand converted to the element type `to`.

    Float to integer drops the fraction; out of range gives the nearest limit, and NaN
    becomes 0 (the specification leaves both open). Integer to integer keeps the low bits. Anything
    to bool is x != 0, bool to a number 0 or 1. To a float: the nearest, the even one of two, an
    infinity beyond the largest.

    Source: ONNX Cast-21.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xi8>) {
      %y = cast(%x) {to = i8} : tensor<Sx3xi8>
      return %y
    }
    ```
    """

    exact = True
    dtypes = ANY
    to: DType = attribute("dtype")

    def result_dtype(self, dtype: DType) -> DType:
        return self.to

    def reference(self, x: Array) -> Array:
        if self.to == BOOL:
            return np.asarray(x != np.zeros((), x.dtype))
        if self.to.is_integer and is_float_array(x):
            return _saturate(widen(x), self.to.numpy)
        if self.to.is_float and self.to.bits == 16 and x.dtype.kind in "iu":
            return narrow(_round_to_odd(x), self.to.numpy)
        return narrow(x, self.to.numpy)

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        rounded = nest.cast(nest.pull(self.x, index), self.to)
        return nest.promote(rounded)

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        return [do.cast(g, self.x) if self.x.tensor.dtype.is_float else None]


def _saturate(x: Array, kind: np.dtype[Any]) -> Array:
    limits = np.iinfo(kind)
    # The largest 64-bit integers are no float64: their limits round up, so compare and do not clip.
    above, below = x >= float(limits.max), x <= float(limits.min)
    inside = np.where(above | below | np.isnan(x), 0, x)
    whole = np.trunc(inside).astype(kind)
    low = np.where(below, kind.type(limits.min), whole)
    return np.where(above, kind.type(limits.max), low)


def _round_to_odd(x: Array) -> Array:
    """Integers as float64, the last bit set where bits are lost: rounding again is right."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    lost = x & x.dtype.type(0x7FF)
    kept = (x - lost) | np.where(lost != 0, 0x800, 0).astype(x.dtype)
    huge = (x >= 1 << 53) | ((x <= -(1 << 53)) if x.dtype.kind == "i" else False)
    return np.where(huge, kept.astype(np.float64), x.astype(np.float64))
