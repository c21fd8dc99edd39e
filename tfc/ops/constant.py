"""Ops that make tensors from nothing, from one element, or from the sizes of dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ir.core import SymbolRef, Value, attribute, operand, optional, result, result_type
from tfc.ir.expr import Dim, Expr, as_expr, normal
from tfc.ir.types import I64, DType, TensorType, Type
from tfc.ir.weights import Dense, Weights
from tfc.ops.base import NUMERIC, Array, Composite, GraphOp, narrow, static

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.tile.nest import Nest


class Constant(GraphOp, name="constant"):
    """A tensor that is known when the module is compiled.

    `value` is the elements (`dense<...>`, small ones) or the name of a weight of the module.

    C1: `value` is elements or the name of a weight.
    C2: the elements have the type that is given, which is plain and static.

    Source: ONNX Constant-13, initializers.

    ```mlir
    func @main() -> (%y: tensor<2xf32>) {
      %y = constant {value = dense<[1.0, 2.0]>} : tensor<2xf32>
      return %y
    }
    ```
    """

    differentiable = False
    level = "any"
    exact = True
    value: Any = attribute("any")
    type: TensorType = result_type()
    output: Value = result()

    def verify(self) -> None:
        self.require(
            isinstance(self.value, Dense | SymbolRef),
            "C1",
            f"value is {self.value!r}",
            "write elements, as in dense<[1.0, 2.0]>, or the name of a weight, as in @w0",
        )
        given = self.output.tensor
        self.require(given.is_static, "C2", f"{given} has symbolic dimensions")
        if isinstance(self.value, Dense):
            plain = TensorType(given.dtype, given.shape)
            found = self.value.type
            self.require(found == plain, "C2", f"the elements are {found}, the type is {given}")

    def array(self, weights: Weights) -> Array:
        """The elements, wherever they are."""
        if isinstance(self.value, Dense):
            return self.value.array
        return weights.array(self.value.name)

    def reference(self) -> Array:
        assert isinstance(self.value, Dense), "a weight needs its module: use `array`"
        return self.value.array

    @property
    def splat(self) -> Any:
        """The one number that all elements are, bit by bit; None where there is no such."""
        if not isinstance(self.value, Dense) or not self.value.array.size:
            return None
        flat = self.value.array.reshape(-1)
        first = flat[:1].tobytes()
        return flat[0].item() if flat.tobytes() == first * flat.size else None

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        assert self.splat is not None, "only a constant of one number is part of a kernel"
        return nest.splat(self.splat, self.result.tensor.dtype)


def constant(b: Builder, array: Any) -> Value:
    """Inserts a constant of an array, which should be small; large ones belong into the weights."""
    dense = Dense(np.asarray(array))
    return b.value(Constant(dense, dense.type))


def scalar(b: Builder, number: float, dtype: DType) -> Value:
    """Inserts a constant of rank 0 and an element type: the number rounded to it."""
    return constant(b, narrow(np.array(number), dtype.numpy))


class Full(Composite, name="full"):
    """A tensor of a shape whose elements all are `value`: `expand` of it.

    C1: `value` has rank 0.

    Source: ONNX ConstantOfShape-9; TensorFlow Fill.

    ```mlir
    func @main(%value: tensor<f32>) -> (%y: tensor<2x3xf32>) {
      %y = full(%value) {shape = [2, 3]} : tensor<2x3xf32>
      return %y
    }
    ```
    """

    exact = True
    value: Value = operand()
    shape: tuple[Dim, ...] = attribute("dims")
    output: Value = result()

    def infer(self) -> list[Type]:
        given = self.check_rank(self.value, 0, "C1", "value")
        return [TensorType(given.dtype, self.shape)]

    def reference(self, value: Array) -> Array:
        return np.full(static(self.result.tensor.shape), value, value.dtype)

    def decompose(self, b: Builder) -> list[Value]:
        from tfc.ops.view import Expand

        return [b.value(Expand(self.value, self.shape))]


class Iota(GraphOp, name="iota"):
    """A tensor of a shape whose elements are their own index along `axis`, from 0.

    C1: `dtype` is a number type.
    C2: `axis` is an axis of the shape.

    An index that an integer type cannot hold wraps; a float type rounds it. Source: StableHLO iota.

    ```mlir
    func @main() -> (%y: tensor<2x3xi32>) {
      %y = iota {shape = [2, 3], axis = 1, dtype = i32} : tensor<2x3xi32>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True
    shape: tuple[Dim, ...] = attribute("dims")
    axis: int = attribute("int")
    dtype: DType = attribute("dtype")
    output: Value = result()

    def infer(self) -> list[Type]:
        self.require(self.dtype in NUMERIC, "C1", f"{self.dtype} counts nothing")
        self.check_axis(self.axis, len(self.shape), "C2")
        return [TensorType(self.dtype, self.shape)]

    def reference(self) -> Array:
        shape = static(self.shape)
        line = narrow(np.arange(shape[self.axis]), self.dtype.numpy)
        column = [-1 if a == self.axis else 1 for a in range(len(shape))]
        return np.broadcast_to(line.reshape(column), shape).copy()

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        return nest.promote(nest.cast(nest.index_tile(index[self.axis]), self.dtype))


class Range(Composite, name="range"):
    """The vector start + step * [0, 1, ..., size - 1]; `start` is 0 and `step` 1 where absent.

    C1: `start` and `step` have rank 0 and the element type `dtype`, a number type.

    Each element is the rounded sum of `start` and the rounded product, so errors do not add up;
    integers wrap. Source: ONNX Range-11, whose `limit` becomes `size` when it is imported.

    ```mlir
    func @main(%start: tensor<i64>, %step: tensor<i64>) -> (%y: tensor<5xi64>) {
      %y = range(%start, %step) {size = 5, dtype = i64} : tensor<5xi64>
      return %y
    }
    ```
    """

    start: Value | None = optional()
    step: Value | None = optional()
    size: Dim = attribute("dim")
    dtype: DType = attribute("dtype")
    output: Value = result()

    def infer(self) -> list[Type]:
        self.require(self.dtype in NUMERIC, "C1", f"{self.dtype} counts nothing")
        for role, value in (("start", self.start), ("step", self.step)):
            if value is not None:
                self.check_rank(value, 0, "C1", role)
                self.check_dtype(value, (self.dtype,), "C1", role)
        return [TensorType(self.dtype, (self.size,))]

    def reference(self, start: Array | None, step: Array | None) -> Array:
        kind = self.dtype.numpy
        line = narrow(np.arange(*static((self.size,))), kind)
        with np.errstate(all="ignore"):
            line = line if step is None else line * step
            return (line if start is None else start + line).astype(kind)

    def decompose(self, b: Builder) -> list[Value]:
        from tfc.ops.arithmetic import Add, Mul

        line = b.value(Iota((self.size,), 0, self.dtype))
        if self.step is not None:
            line = b.value(Mul(line, self.step))
        return [line if self.start is None else b.value(Add(self.start, line))]


class DimValue(GraphOp, name="dim_value"):
    """A dimension, or an expression of dimensions, as a scalar tensor of type i64.

    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%n: tensor<i64>) {
      %n = dim_value {value = (B*S)} : tensor<i64>
      return %n
    }
    ```
    """

    differentiable = False
    exact = True
    value: Dim = attribute("dim")
    output: Value = result()

    def infer(self) -> list[Type]:
        return [TensorType(I64, ())]

    def reference(self) -> Array:
        return np.array(static((self.value,))[0], np.int64)

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        return nest.index_tile(as_expr(self.value))


class ShapeOf(Composite, name="shape_of"):
    """The sizes of the dimensions `start` to `end` (exclusive) of the operand, as a vector of i64.

    C1: 0 <= start <= end <= rank.

    Source: ONNX Shape-15, with `start` and `end` made positive and clamped.

    ```mlir
    func @main(%x: tensor<2xSx4xf32>) -> (%y: tensor<2xi64>) {
      %y = shape_of(%x) {start = 0, end = 2} : tensor<2xi64>
      return %y
    }
    ```
    """

    differentiable = False
    exact = True
    x: Value = operand()
    start: int = attribute("int")
    end: int = attribute("int")
    output: Value = result()

    def infer(self) -> list[Type]:
        rank = self.x.tensor.rank
        ordered = 0 <= self.start <= self.end <= rank
        self.require(
            ordered, "C1", f"dimensions {self.start} to {self.end} of a tensor of rank {rank}"
        )
        return [TensorType(I64, (self.end - self.start,))]

    def reference(self, x: Array) -> Array:
        return np.array(x.shape[self.start : self.end], np.int64)

    def decompose(self, b: Builder) -> list[Value]:
        from tfc.ops.shape import Concat
        from tfc.ops.view import Reshape

        sizes = self.x.tensor.shape[self.start : self.end]
        fixed = [n for n in sizes if isinstance(n, int)]
        if len(fixed) == len(sizes):
            return [constant(b, np.array(fixed, np.int64))]
        parts = [b.value(Reshape(b.value(DimValue(normal(n))), (1,))) for n in sizes]
        return [parts[0] if len(parts) == 1 else b.value(Concat(parts, 0))]
