"""Primitive reductions over axes, positions of extremes, running sums.

Floats are folded in at least f32 (by the references in f64) and rounded once. An empty reduction
gives the identity of its function. The composites are in `reduction_composite.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tfc.ir.core import Value, attribute, operand, result
from tfc.ir.types import BOOL, I64, DType, TensorType, Type
from tfc.ops.base import NUMERIC, Array, GraphOp, Shape, narrow, widen

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ir.core import Block, Kernel
    from tfc.ops.calculus import Calculus
    from tfc.tile.nests.reduction import Reduction as Folding


class Reduction(GraphOp):
    """Folds all elements along `axes` into one; the other axes stay.

    `keepdims` leaves each folded axis with size 1; else it goes. No axes: nothing is folded.
    """

    dtypes: ClassVar[tuple[DType, ...]] = NUMERIC

    x: Value = operand()
    axes: tuple[int, ...] = attribute("ints")
    keepdims: bool = attribute("bool", default=False)
    output: Value = result()

    def infer(self) -> list[Type]:
        dtype = self.check_dtype(self.x, self.dtypes)
        self.check_axes(self.axes, self.x.tensor.rank, "C2")
        return [TensorType(dtype, reduced_shape(self.x.tensor.shape, self.axes, self.keepdims))]

    @property
    def folded(self) -> Shape:
        """The sizes of the axes that are folded."""
        return tuple(self.x.tensor.shape[a] for a in self.axes)

    def _fold(self, function: Any, x: Array, **options: Any) -> Array:
        return function(x, axis=self.axes, keepdims=self.keepdims, **options)

    def spread(self, do: Calculus, value: Value) -> Value:
        """A value of the result's shape as one that broadcasts to the operand."""
        return do.unreduced(value, self.x.tensor.shape, self.axes)


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """The shape that is left of one when axes are folded."""
    if keepdims:
        return tuple(1 if a in axes else n for a, n in enumerate(shape))
    return tuple(n for a, n in enumerate(shape) if a not in axes)


def lowest(dtype: DType) -> Any:
    """The identity of the maximum: minus infinity, the smallest integer, or False."""
    if dtype.is_float:
        return -np.inf
    return False if dtype.is_bool else np.iinfo(dtype.numpy).min


def highest(dtype: DType) -> Any:
    """The identity of the minimum: infinity, the largest integer, or True."""
    if dtype.is_float:
        return np.inf
    return True if dtype.is_bool else np.iinfo(dtype.numpy).max


# ---- primitives


class PrimitiveReduction(Reduction):
    """A reduction that becomes a kernel; `combine` is the tile function of two elements."""

    hero = "reduction"

    combine: ClassVar[str] = ""

    def identity(self) -> Any:
        """What folding no element gives."""
        raise NotImplementedError(f"{self.name} has no identity")

    def folding(self) -> Folding:
        """This reduction as the kernel builders take it."""
        from tfc.tile.nests.reduction import Reduction as Folding

        function = self.name.removeprefix("reduce_")
        return Folding(self.result, self.x, function, self.axes, self.keepdims)

    def to_extremes(self, do: Calculus, g: Value) -> Value:
        """The gradient by the operand of an extreme: equal ones share it, as PyTorch's amax."""
        hit = do("equal", self.x, self.spread(do, self.result))
        ones = do("cast", hit, to=g.tensor.dtype)
        count = do("reduce_sum", ones, axes=self.axes, keepdims=True)
        return do("mul", ones, do("div", self.spread(do, g), count))


class ReduceSum(PrimitiveReduction, name="reduce_sum"):
    """The sum of the elements along axes; of none it is 0. Integers wrap.

    C1: the operand holds numbers.
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceSum-13; StableHLO reduce.

    ```mlir
    func @main(%x: tensor<2xSxf32>) -> (%y: tensor<2xf32>) {
      %y = reduce_sum(%x) {axes = [1]} : tensor<2xf32>
      return %y
    }
    ```
    """

    combine = "add"

    def identity(self) -> Any:
        return 0

    def reference(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return narrow(self._fold(np.sum, widen(x)), x.dtype)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        return [do.expand(self.spread(do, g), self.x.tensor.shape)]


class ReduceProd(PrimitiveReduction, name="reduce_prod"):
    """The product of the elements along axes; of none it is 1. Integers wrap.

    C1: the operand holds numbers.
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceProd-18.

    ```mlir
    func @main(%x: tensor<2x3xi32>) -> (%y: tensor<2x1xi32>) {
      %y = reduce_prod(%x) {axes = [1], keepdims = true} : tensor<2x1xi32>
      return %y
    }
    ```
    """

    combine = "mul"

    def identity(self) -> Any:
        return 1

    def reference(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return narrow(self._fold(np.prod, widen(x)), x.dtype)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """The product of the others; of a row with one 0 only that has a gradient."""
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        zero = do("equal", self.x, 0)
        zeros = do("reduce_sum", do("cast", zero, to=g.tensor.dtype), axes=self.axes, keepdims=True)
        others = do("reduce_prod", do.where(zero, 1, self.x), axes=self.axes, keepdims=True)
        alone = do.where(do("equal", zeros, 1), others, 0)
        whole = do("div", do.where(do("equal", zeros, 0), others, 0), do.where(zero, 1, self.x))
        return [do("mul", self.spread(do, g), do.where(zero, alone, whole))]


class ReduceMax(PrimitiveReduction, name="reduce_max"):
    """The largest element along axes, NaN where one is NaN; of none the type's smallest value.

    C1: the operand holds numbers or bools (where it means "any").
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceMax-20.

    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<f32>) {
      %y = reduce_max(%x) {axes = [0, 1]} : tensor<f32>
      return %y
    }
    ```
    """

    exact = True
    combine = "maximum"
    dtypes = (*NUMERIC, BOOL)

    def identity(self) -> Any:
        return lowest(self.x.tensor.dtype)

    def reference(self, x: Array) -> Array:
        return narrow(self._fold(np.max, widen(x), initial=self.identity()), x.dtype)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        return [self.to_extremes(do, g)]


class ReduceMin(PrimitiveReduction, name="reduce_min"):
    """The smallest element along axes, NaN where one is NaN; of none the type's largest value.

    C1: the operand holds numbers or bools (where it means "all").
    C2: `axes` ascend and are axes of the operand.

    Source: ONNX ReduceMin-20.

    ```mlir
    func @main(%x: tensor<BxSxbool>) -> (%y: tensor<Bx1xbool>) {
      %y = reduce_min(%x) {axes = [1], keepdims = true} : tensor<Bx1xbool>
      return %y
    }
    ```
    """

    exact = True
    combine = "minimum"
    dtypes = (*NUMERIC, BOOL)

    def identity(self) -> Any:
        return highest(self.x.tensor.dtype)

    def reference(self, x: Array) -> Array:
        return narrow(self._fold(np.min, widen(x), initial=self.identity()), x.dtype)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        return [self.to_extremes(do, g)]


# ---- positions and running sums


class ArgReduction(GraphOp):
    """The index of an extreme element along `axis`, the first of several or the last.

    NaN beats every number. Along an axis of size 0 the index is 0, which names no element.
    """

    differentiable = False
    hero = "reduction"

    exact = True

    x: Value = operand()
    axis: int = attribute("int")
    keepdims: bool = attribute("bool", default=False)
    select_last: bool = attribute("bool", default=False)
    output: Value = result()

    def infer(self) -> list[Type]:
        self.check_dtype(self.x, NUMERIC)
        self.check_axis(self.axis, self.x.tensor.rank, "C2")
        return [TensorType(I64, reduced_shape(self.x.tensor.shape, (self.axis,), self.keepdims))]

    def _position(self, x: Array, function: Any) -> Array:
        size = x.shape[self.axis]
        if not size:
            shape = reduced_shape(x.shape, (self.axis,), self.keepdims)
            return np.zeros(shape, np.int64)  # type: ignore[arg-type]
        wide = np.flip(widen(x), self.axis) if self.select_last else widen(x)
        found = function(wide, axis=self.axis, keepdims=self.keepdims)
        return np.asarray(size - 1 - found if self.select_last else found, np.int64)

    def folding(self) -> Folding:
        """This reduction as the kernel builders take it."""
        from tfc.tile.nests.reduction import Reduction as Folding

        axes = (self.axis,)
        return Folding(self.result, self.x, self.name, axes, self.keepdims, self.select_last)


class ArgMax(ArgReduction, name="argmax"):
    """The index of the largest element along an axis; the first of several, or the last.

    C1: the operand holds numbers.
    C2: `axis` is an axis of the operand.

    NaN beats every number, so a row of NaN gives its first index. Along an axis of size 0 the index
    is 0. Source: ONNX ArgMax-13.

    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<Bxi64>) {
      %y = argmax(%x) {axis = 1} : tensor<Bxi64>
      return %y
    }
    ```
    """

    def reference(self, x: Array) -> Array:
        return self._position(x, np.argmax)


class ArgMin(ArgReduction, name="argmin"):
    """The index of the smallest element along an axis; the first of several, or the last.

    C1: the operand holds numbers.
    C2: `axis` is an axis of the operand.

    NaN beats every number, so a row of NaN gives its first index. Along an axis of size 0 the index
    is 0. Source: ONNX ArgMin-13.

    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<Bx1xi64>) {
      %y = argmin(%x) {axis = 1, keepdims = true, select_last = true} : tensor<Bx1xi64>
      return %y
    }
    ```
    """

    def reference(self, x: Array) -> Array:
        return self._position(x, np.argmin)


class CumSum(GraphOp, name="cumsum"):
    """The running sums along an axis: each element and those before it.

    `exclusive` leaves the element itself out; `reverse` sums those behind instead. Integers wrap.

    C1: the operand holds numbers.
    C2: `axis` is an axis of the operand.

    Source: ONNX CumSum-14.

    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<BxSxf32>) {
      %y = cumsum(%x) {axis = 1, exclusive = true} : tensor<BxSxf32>
      return %y
    }
    ```
    """

    hero = "scan"

    x: Value = operand()
    axis: int = attribute("int")
    exclusive: bool = attribute("bool", default=False)
    reverse: bool = attribute("bool", default=False)
    output: Value = result()

    def infer(self) -> list[Type]:
        dtype = self.check_dtype(self.x, NUMERIC)
        self.check_axis(self.axis, self.x.tensor.rank, "C2")
        return [TensorType(dtype, self.x.tensor.shape)]

    def reference(self, x: Array) -> Array:
        ordered = np.flip(widen(x), self.axis) if self.reverse else widen(x)
        with np.errstate(all="ignore"):
            sums = np.cumsum(ordered, self.axis)
        if self.exclusive:
            sums = _shifted(sums, self.axis)
        return narrow(np.flip(sums, self.axis) if self.reverse else sums, x.dtype)

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.scan import cumulative_sum

        x, axis = self.x, self.axis
        return cumulative_sum(
            name, group, self.result, x, axis, self.exclusive, self.reverse, schedule
        )

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        sums = do("cumsum", g, axis=self.axis, exclusive=self.exclusive, reverse=not self.reverse)
        return [sums]

    @property
    def beside(self) -> Shape:
        """The sizes of the axes that the kernel computes side by side."""
        shape = self.x.tensor.shape
        return tuple(n for axis, n in enumerate(shape) if axis != self.axis)


def _shifted(x: Array, axis: int) -> Array:
    """x moved by one along an axis, with 0 in front."""
    widths = [(1, 0) if a == axis else (0, 0) for a in range(x.ndim)]
    return np.pad(x, widths).take(range(x.shape[axis]), axis)
