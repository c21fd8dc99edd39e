"""Composites that move blocks between channels and space, or keep a triangle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, operand, result
from tfc.ir.expr import Dim, as_expr
from tfc.ir.types import I64, TensorType, Type
from tfc.ops.base import Array, Composite, static

if TYPE_CHECKING:
    from tfc.ir.builder import Builder


class DepthToSpace(Composite, name="depth_to_space"):
    """Blocks of channels laid out in space: (N, C*b*b, H, W) to (N, C, H*b, W*b), b being `block`.

    In the mode "DCR" the block's place is the outer part of the channel, in "CRD" the inner part.

    C1: the operand has rank 4.
    C2: `block` is positive and its square divides the channels.
    C3: `mode` is "DCR" or "CRD".

    Source: ONNX DepthToSpace-13.

    ```mlir
    func @main(%x: tensor<Bx8x2x3xf32>) -> (%y: tensor<Bx2x4x6xf32>) {
      %y = depth_to_space(%x) {block = 2} : tensor<Bx2x4x6xf32>
      return %y
    }
    ```
    """

    exact = True
    x: Value = operand()
    block: int = attribute("int")
    mode: str = attribute("str", default="DCR")
    output: Value = result()

    def infer(self) -> list[Type]:
        given = self.check_rank(self.x, 4, "C1", "the operand")
        n, c, h, w = map(as_expr, given.shape)
        area = self.block * self.block
        self.require(self.block > 0, "C2", f"the block is {self.block}")
        self.same(c % area, 0, "C2", f"{area} does not divide {c} channels")
        self.require(self.mode in ("DCR", "CRD"), "C3", f"no mode is {self.mode!r}")
        shape = (n, c // area, h * self.block, w * self.block)
        return [TensorType(given.dtype, shape)]

    def _plan(self) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
        """The operand's shape with blocks apart, and the permutation that lays them out."""
        n, _, h, w = self.x.tensor.shape
        channels, b = self.result.tensor.shape[1], self.block
        if self.mode == "DCR":
            return (n, b, b, channels, h, w), (0, 3, 4, 1, 5, 2)
        return (n, channels, b, b, h, w), (0, 1, 4, 2, 5, 3)

    def reference(self, x: Array) -> Array:
        split, order = self._plan()
        parts = x.reshape(static(split)).transpose(order)
        return parts.reshape(static(self.result.tensor.shape))

    def decompose(self, b: Builder) -> list[Value]:
        return _permuted(b, self, *self._plan())


class SpaceToDepth(Composite, name="space_to_depth"):
    """Blocks of space laid out in channels: (N, C, H*b, W*b) to (N, b*b*C, H, W), b being `block`.

    C1: the operand has rank 4.
    C2: `block` is positive and divides height and width.

    Source: ONNX SpaceToDepth-13.

    ```mlir
    func @main(%x: tensor<Bx2x4x6xf32>) -> (%y: tensor<Bx8x2x3xf32>) {
      %y = space_to_depth(%x) {block = 2} : tensor<Bx8x2x3xf32>
      return %y
    }
    ```
    """

    exact = True
    x: Value = operand()
    block: int = attribute("int")
    output: Value = result()

    def infer(self) -> list[Type]:
        given = self.check_rank(self.x, 4, "C1", "the operand")
        n, c, h, w = map(as_expr, given.shape)
        self.require(self.block > 0, "C2", f"the block is {self.block}")
        for size in (h, w):
            self.same(size % self.block, 0, "C2", f"{self.block} does not divide {size}")
        shape = (n, c * self.block * self.block, h // self.block, w // self.block)
        return [TensorType(given.dtype, shape)]

    def _plan(self) -> tuple[tuple[Dim, ...], tuple[int, ...]]:
        n, c, _, _ = self.x.tensor.shape
        _, _, h, w = self.result.tensor.shape
        return (n, c, h, self.block, w, self.block), (0, 3, 5, 1, 2, 4)

    def reference(self, x: Array) -> Array:
        split, order = self._plan()
        parts = x.reshape(static(split)).transpose(order)
        return parts.reshape(static(self.result.tensor.shape))

    def decompose(self, b: Builder) -> list[Value]:
        return _permuted(b, self, *self._plan())


def _permuted(
    b: Builder, op: DepthToSpace | SpaceToDepth, split: tuple[Dim, ...], order: tuple[int, ...]
) -> list[Value]:
    from tfc.ops.view import Reshape, Transpose

    parts = b.value(Transpose(b.value(Reshape(op.x, split)), order))
    return [b.value(Reshape(parts, op.result.tensor.shape))]


class Trilu(Composite, name="trilu"):
    """The upper (or lower) triangle of each matrix of the last two axes; zeros elsewhere.

    Kept are the elements whose column minus row is at least `k` (upper) or at most `k` (lower).

    C1: the operand has rank 2 or more.

    Source: ONNX Trilu-14.

    ```mlir
    func @main(%x: tensor<BxSxSxf32>) -> (%y: tensor<BxSxSxf32>) {
      %y = trilu(%x) {k = 1, upper = false} : tensor<BxSxSxf32>
      return %y
    }
    ```
    """

    exact = True
    x: Value = operand()
    k: int = attribute("int", default=0)
    upper: bool = attribute("bool", default=True)
    output: Value = result()

    def infer(self) -> list[Type]:
        given = self.x.tensor
        self.require(given.rank >= 2, "C1", f"the operand has rank {given.rank}")
        return [TensorType(given.dtype, given.shape)]

    def reference(self, x: Array) -> Array:
        rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
        kept = columns >= rows + self.k if self.upper else columns <= rows + self.k
        return np.where(kept, x, np.zeros((), x.dtype))

    def decompose(self, b: Builder) -> list[Value]:
        from tfc.ops.arithmetic import Add
        from tfc.ops.constant import Iota, scalar
        from tfc.ops.elementwise import Where
        from tfc.ops.logic import GreaterEqual, LessEqual

        given = self.x.tensor
        matrix = given.shape[-2:]
        rows, columns = (b.value(Iota(matrix, axis, I64)) for axis in (0, 1))
        bound = b.value(Add(rows, scalar(b, self.k, I64)))
        compare = GreaterEqual if self.upper else LessEqual
        kept = b.value(compare(columns, bound))
        return [b.value(Where(kept, self.x, scalar(b, 0, given.dtype)))]
