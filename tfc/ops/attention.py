"""Scaled dot-product attention as one op, which becomes one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, operand, optional, result
from tfc.ir.types import FLOATS, TensorType, Type
from tfc.ops.arithmetic import Add, Mul
from tfc.ops.base import Array, GraphOp, Shape, narrow, widen
from tfc.ops.compose import cast, raised
from tfc.ops.constant import scalar
from tfc.ops.linalg import MatMul
from tfc.ops.softmax import Softmax, softmax
from tfc.ops.view import Transpose

if TYPE_CHECKING:
    from typing import Any

    from tfc.ir.builder import Builder
    from tfc.ir.core import Block, Kernel


class Attention(GraphOp, name="attention"):
    """softmax(scale * query x transposed(key) + mask) x value, along the keys.

    [..., T, D] by [..., S, D] by [..., S, E] gives [..., T, E]; the axes in front broadcast. A
    query whose keys are all masked by minus infinity gives NaN; with S = 0 the result is 0.

    C1: the operands are floats of one element type.
    C2: query, key and value have rank 2 or more.
    C3: query and key have one D; key and value one S.
    C4: the axes in front broadcast.
    C5: the mask broadcasts to [..., T, S].

    A pass makes it of the ops that exporters spell it with. `decompose` gives them back, for
    whoever has no kernel for it. Source: ONNX Attention-23; arXiv 1706.03762.

    ```mlir
    func @main(
      %q: tensor<BxTx8xf32>, %k: tensor<BxSx8xf32>, %v: tensor<BxSx4xf32>, %m: tensor<Bx1xSxf32>
    ) -> (%y: tensor<BxTx4xf32>) {
      %y = attention(%q, %k, %v, %m) {scale = 0.5} : tensor<BxTx4xf32>
      return %y
    }
    ```
    """

    hero = "attention"

    query: Value = operand()
    key: Value = operand()
    value: Value = operand()
    mask: Value | None = optional(default=None)
    scale: float = attribute("float", default=1.0)
    output: Value = result()

    def infer(self) -> list[Type]:
        dtype = self.check_same_dtype(self.inputs)
        self.check_dtype(self.query, FLOATS)
        query, key, value = (v.tensor.shape for v in (self.query, self.key, self.value))
        for role, shape in (("query", query), ("key", key), ("value", value)):
            self.require(len(shape) >= 2, "C2", f"{role} has rank {len(shape)}")
        self.same(query[-1], key[-1], "C3", "the depth of query and key")
        keys = self.same(key[-2], value[-2], "C3", "the number of keys and values")
        batch = self.broadcast((query[:-2], key[:-2], value[:-2]), "C4")
        if self.mask is not None:
            self._check_mask(self.mask.tensor.shape, (*batch, query[-2], keys))
        return [TensorType(dtype, (*batch, query[-2], value[-1]))]

    def _check_mask(self, mask: Shape, scores: Shape) -> None:
        self.require(len(mask) <= len(scores), "C5", f"the mask has rank {len(mask)}")
        for own, whole in zip(mask[::-1], scores[::-1], strict=False):
            if own != 1:
                self.same(own, whole, "C5", "the mask does not broadcast to the scores")

    @property
    def has_kernel(self) -> bool:
        """Whether the kernel can be built: the widths of queries and values are its tiles."""
        shapes = [v.tensor.shape for v in (self.query, self.key, self.value)]
        widths = all(isinstance(s[-1], int) and s[-1] > 0 for s in shapes)
        return widths and shapes[1][-2] != 0

    def reference(self, query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        q, k, v = widen(query), widen(key), widen(value)
        with np.errstate(all="ignore"):
            scores = np.matmul(q, k.swapaxes(-1, -2)) * self.scale
            if mask is not None:
                scores = scores + widen(mask)
            return narrow(np.matmul(softmax(scores, -1), v), query.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        """The same as matmul, softmax, matmul."""
        query, key, value = (raised(b, v) for v in (self.query, self.key, self.value))
        rank, dtype = key.tensor.rank, query.tensor.dtype
        flipped = b.value(Transpose(key, (*range(rank - 2), rank - 1, rank - 2)))
        scores = b.value(MatMul(query, flipped))
        if self.scale != 1:
            scores = b.value(Mul(scores, scalar(b, self.scale, dtype)))
        if self.mask is not None:
            scores = b.value(Add(scores, raised(b, self.mask)))
        weights = b.value(Softmax(scores, scores.tensor.rank - 1))
        return [cast(b, b.value(MatMul(weights, value)), self.query.tensor.dtype)]

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.attention import Operands, attention

        operands = Operands(self.query, self.key, self.value, self.mask, self.scale)
        return attention(name, group, self.result, operands, schedule)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """Those of matmul, softmax, matmul."""
        from tfc.ops.backward import through

        return through(self, self.decompose, b, gradients)
