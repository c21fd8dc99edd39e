"""Contractions: matrix multiplication as numpy's, and the scaled form with an addend.

Floats accumulate in at least f32 (references: f64) and are rounded once; integers wrap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, operand, optional, result
from tfc.ir.expr import product as elements
from tfc.ir.types import TensorType, Type
from tfc.ops.arithmetic import Add, Mul
from tfc.ops.base import NUMERIC, Array, Composite, GraphOp, Shape, narrow, widen
from tfc.ops.compose import cast, raised
from tfc.ops.constant import scalar
from tfc.ops.view import Transpose

if TYPE_CHECKING:
    from typing import Any

    from tfc.ir.builder import Builder
    from tfc.ir.core import Block, Kernel
    from tfc.ops.calculus import Calculus


class MatMul(GraphOp, name="matmul"):
    """The matrix product [..., M, K] x [..., K, N] -> [..., M, N]; the axes in front broadcast.

    A first operand of rank 1 is one row, a second one is one column; that axis is not in the
    result. With K = 0 every element is 0.

    C1: both operands hold numbers of one element type.
    C2: neither has rank 0.
    C3: the last axis of `a` and the one before the last of `b` (the only one, at rank 1) have one
        size.
    C4: the axes in front of the matrices broadcast.

    Source: ONNX MatMul-13; numpy.matmul.

    ```mlir
    func @main(%a: tensor<BxMx3xf32>, %b: tensor<3x4xf32>) -> (%y: tensor<BxMx4xf32>) {
      %y = matmul(%a, %b) : tensor<BxMx4xf32>
      return %y
    }
    ```
    """

    hero = "contraction"

    a: Value = operand()
    b: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        dtype = self.check_same_dtype((self.a, self.b))
        self.check_dtype(self.a, NUMERIC)
        a, b = self.a.tensor.shape, self.b.tensor.shape
        self.require(
            bool(a and b), "C2", "an operand has rank 0", "multiply by a scalar with `mul`"
        )
        self.same(a[-1], b[max(len(b) - 2, 0)], "C3", "the sizes to contract")
        batch = self.broadcast((a[:-2], b[:-2]), "C4")
        rows = a[-2:-1]
        columns: Shape = b[-1:] if len(b) > 1 else ()
        return [TensorType(dtype, (*batch, *rows, *columns))]

    def reference(self, a: Array, b: Array) -> Array:
        return narrow(product(a, b), a.dtype)

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.contraction import contraction

        return contraction(name, group, self.result, self.a, self.b, schedule)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """Each operand's is the gradient times the other, transposed."""
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None, None]
        a, c = _as_row(do, self.a), _as_column(do, self.b)
        g = do.reshape(g, self._matrix_shape(a, c))
        by_a = do.sum_to(do("matmul", g, do.flipped(c)), a.tensor.shape)
        by_b = _shared_columns(do, a, g) if c.tensor.rank == 2 else do("matmul", do.flipped(a), g)
        by_b = do.sum_to(by_b, c.tensor.shape)
        return [do.reshape(by_a, self.a.tensor.shape), do.reshape(by_b, self.b.tensor.shape)]

    def _matrix_shape(self, a: Value, b: Value) -> Shape:
        """The shape of the result with the axes that operands of rank 1 leave out."""
        batch = self.result.tensor.shape
        rank = len(batch) - (self.a.tensor.rank > 1) - (self.b.tensor.rank > 1)
        return (*batch[:rank], a.tensor.shape[-2], b.tensor.shape[-1])


def _as_row(do: Calculus, x: Value) -> Value:
    return x if x.tensor.rank > 1 else do.reshape(x, (1, *x.tensor.shape))


def _as_column(do: Calculus, x: Value) -> Value:
    return x if x.tensor.rank > 1 else do.reshape(x, (*x.tensor.shape, 1))


def _shared_columns(do: Calculus, a: Value, g: Value) -> Value:
    """Of a matrix that all share: one product over all rows, not a sum of many."""
    rows = elements(g.tensor.shape[:-1])
    left = do.expand(a, (*g.tensor.shape[:-1], a.tensor.shape[-1]))
    left = do.reshape(left, (rows, a.tensor.shape[-1]))
    return do("matmul", do.flipped(left), do.reshape(g, (rows, g.tensor.shape[-1])))


def product(a: Array, b: Array) -> Array:
    """The matrix product of floats in f64, of integers modulo 2**64."""
    with np.errstate(all="ignore"):
        return np.matmul(exact_operand(a), exact_operand(b))


def exact_operand(x: Array) -> Array:
    """An operand of a contraction: floats in f64, integers in i64, which wraps as any width."""
    wide = widen(x)
    return wide if wide.dtype.kind == "f" else wide.astype(np.int64)


class Gemm(Composite, name="gemm"):
    """alpha * A x B + beta * C, where A and B may be transposed first and C broadcasts.

    C1: the operands hold numbers of one element type; for integers `alpha` and `beta` are whole.
    C2: `a` and `b` have rank 2.
    C3: A has as many columns as B has rows.
    C4: `c` broadcasts to the result's shape.

    Source: ONNX Gemm-13.

    ```mlir
    func @main(
      %a: tensor<Mx3xf32>, %b: tensor<4x3xf32>, %c: tensor<4xf32>
    ) -> (%y: tensor<Mx4xf32>) {
      %y = gemm(%a, %b, %c) {trans_b = true} : tensor<Mx4xf32>
      return %y
    }
    ```
    """

    a: Value = operand()
    b: Value = operand()
    c: Value | None = optional(default=None)
    alpha: float = attribute("float", default=1.0)
    beta: float = attribute("float", default=1.0)
    trans_a: bool = attribute("bool", default=False)
    trans_b: bool = attribute("bool", default=False)
    output: Value = result()

    def infer(self) -> list[Type]:
        dtype = self.check_same_dtype(self.inputs)
        self.check_dtype(self.a, NUMERIC)
        whole = float(self.alpha).is_integer() and float(self.beta).is_integer()
        self.require(dtype.is_float or whole, "C1", f"{dtype} cannot be scaled by a fraction")
        a = self.check_rank(self.a, 2, "C2", "a").shape
        b = self.check_rank(self.b, 2, "C2", "b").shape
        rows, inner = reversed(a) if self.trans_a else a
        depth, columns = reversed(b) if self.trans_b else b
        self.same(inner, depth, "C3", "the sizes to contract")
        if self.c is not None:
            self._check_addend(self.c.tensor.shape, (rows, columns))
        return [TensorType(dtype, (rows, columns))]

    def _check_addend(self, c: Shape, shape: Shape) -> None:
        self.require(len(c) <= 2, "C4", f"c has rank {len(c)}")
        for own, whole in zip(c[::-1], shape[::-1], strict=False):
            if own != 1:
                self.same(own, whole, "C4", "c does not broadcast to the result")

    def reference(self, a: Array, b: Array, c: Array | None = None) -> Array:
        y = product(a.T if self.trans_a else a, b.T if self.trans_b else b)
        scale = y.dtype.type
        with np.errstate(all="ignore"):
            y = y * scale(self.alpha)
            if c is not None:
                y = y + exact_operand(c) * scale(self.beta)
        return narrow(y, a.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        left = self._matrix(b, self.a, self.trans_a)
        right = self._matrix(b, self.b, self.trans_b)
        y = _scaled(b, b.value(MatMul(left, right)), self.alpha)
        if self.c is not None:
            y = b.value(Add(y, _scaled(b, raised(b, self.c), self.beta)))
        return [cast(b, y, self.a.tensor.dtype)]

    def _matrix(self, b: Builder, x: Value, transposed: bool) -> Value:
        wide = raised(b, x)
        return b.value(Transpose(wide, (1, 0))) if transposed else wide


def _scaled(b: Builder, x: Value, factor: float) -> Value:

    return x if factor == 1 else b.value(Mul(x, scalar(b, factor, x.tensor.dtype)))
