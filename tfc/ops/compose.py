"""What composites share: the element type they compute in, sizes as scalars, shapes.

f16 and bf16 are computed in f32 and rounded once, at the end; so are the references, from f64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Value, operand
from tfc.ir.expr import Dim, product
from tfc.ir.types import BF16, F16, F32, FLOATS, DType, TensorType, Type
from tfc.ops.base import Array, Composite, narrow, widen
from tfc.ops.cast import Cast
from tfc.ops.constant import DimValue, scalar
from tfc.ops.view import Reshape


def compute_dtype(dtype: DType) -> DType:
    """The element type in which a composite computes."""
    return F32 if dtype in (F16, BF16) else dtype


def cast(b: Builder, x: Value, dtype: DType) -> Value:
    """x as another element type; x itself where it has it."""
    return x if x.tensor.dtype == dtype else b.value(Cast(x, dtype))


def raised(b: Builder, x: Value) -> Value:
    """x in the element type in which a composite computes."""
    return cast(b, x, compute_dtype(x.tensor.dtype))


def size_scalar(b: Builder, dims: Sequence[Dim], dtype: DType) -> Value:
    """The product of dimensions as a scalar, a constant where all are known."""
    size = product(list(dims))
    if isinstance(size, int):
        return scalar(b, size, dtype)
    return cast(b, b.value(DimValue(size)), dtype)


def per_channel(b: Builder, vector: Value, rank: int) -> Value:
    """A vector of one element a channel, shaped to broadcast to N, C and the axes behind."""
    if rank == 2:
        return vector
    return b.value(Reshape(vector, (vector.tensor.shape[0], *[1] * (rank - 2))))


class FloatComposite(Composite):
    """An op of one float tensor whose result has the same type.

    Subclasses say what they compute twice: `formula` on f64 arrays, `compose` on values in the type
    to compute in.
    """

    x: Value = operand()

    def infer(self) -> list[Type]:
        self.check_same_dtype(self.inputs)
        self.check_dtype(self.x, FLOATS)
        self.check()
        return [TensorType(self.x.tensor.dtype, self.x.tensor.shape)]

    def check(self) -> None:
        """Checks the constraints from C2 on."""

    def formula(self, x: Array, *rest: Array | None) -> Array:
        raise NotImplementedError(f"{self.name} has no formula")

    def compose(self, b: Builder, x: Value, *rest: Value | None) -> Value:
        raise NotImplementedError(f"{self.name} does not decompose")

    def reference(self, x: Array, *rest: Array | None) -> Array:
        wide = [None if r is None else widen(r) for r in rest]
        with np.errstate(all="ignore"):
            return narrow(self.formula(widen(x), *wide), x.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        wide = [None if v is None else raised(b, v) for v in self.operands[1:]]
        y = self.compose(b, raised(b, self.x), *wide)
        return [cast(b, y, self.x.tensor.dtype)]
