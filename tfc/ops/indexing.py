"""Ops that read a tensor at indices which are themselves a tensor.

Indices are i32 or i64. A negative one counts from the end of its axis; one out of range is an error
when the op runs, which names the op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute, operand, result
from tfc.ir.expr import ZERO, Dim, Expr, as_expr, product
from tfc.ir.types import I64, TensorType, Type
from tfc.ops.base import INDICES, Array, Composite, GraphOp, static

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ops.calculus import Calculus
    from tfc.tile.nest import Nest


def wrapped(op: GraphOp, indices: Array, size: int, axis: int) -> Array:
    """The indices of an axis counted from its start; an error of the op if one is out of range."""
    wide = indices.astype(np.int64)
    outside = (wide < -size) | (wide >= size)
    if outside.any():
        worst = int(wide[outside].flat[0])
        raise op.error(f"index {worst} is out of range of axis {axis}, whose size is {size}")
    return np.where(wide < 0, wide + size, wide)


class Indexing(GraphOp):
    """An op that reads `x` at `indices`."""

    exact = True
    may_fail = True
    x: Value = operand()
    indices: Value = operand()
    output: Value = result()

    def wrapped(self, indices: Array, size: int, axis: int) -> Array:
        """The indices of an axis counted from its start, all in range."""
        return wrapped(self, indices, size, axis)

    def position(self, nest: Nest, place: list[Expr], axis: int) -> tuple[Value, Dim]:
        """The index tile read at a place of the indices, and the stride of its axis in x."""
        shape = self.x.tensor.shape
        found = nest.cast(nest.pull(self.indices, place), I64)
        node = ", ".join(self.location.nodes)  # no place in a file: equal kernels are one
        wrapped = nest.wrap_index(found, shape[axis], nest.bounds(*place), node)
        return wrapped, product(shape[axis + 1 :])


class Gather(Indexing, name="gather"):
    """The slices of x at the indices along `axis`, whose place the axes of the indices take.

    C1: the indices are i32 or i64.
    C2: `axis` is an axis of x.

    Source: ONNX Gather-13.

    ```mlir
    func @main(%x: tensor<100x8xf32>, %i: tensor<BxSxi64>) -> (%y: tensor<BxSx8xf32>) {
      %y = gather(%x, %i) {axis = 0} : tensor<BxSx8xf32>
      return %y
    }
    ```
    """

    axis: int = attribute("int", default=0)

    def infer(self) -> list[Type]:
        self.check_dtype(self.indices, INDICES, "C1", "the indices")
        given = self.x.tensor
        axis = self.check_axis(self.axis, given.rank, "C2")
        places = self.indices.tensor.shape
        return [TensorType(given.dtype, (*given.shape[:axis], *places, *given.shape[axis + 1 :]))]

    def reference(self, x: Array, indices: Array) -> Array:
        return np.take(x, self.wrapped(indices, x.shape[self.axis], self.axis), self.axis)

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        axis, rank = self.axis, self.indices.tensor.rank
        position = self.position(nest, index[axis : axis + rank], axis)
        return nest.read(self.x, [*index[:axis], ZERO, *index[axis + rank :]], [position])

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        from tfc.ops.scatter import added_slices

        axis = self.axis
        return [added_slices(do, g, self.indices, axis, self.x.tensor.shape[axis]), None]


class GatherElements(Indexing, name="gather_elements"):
    """For each place of the indices, the element of x there, but at the index along `axis`.

    C1: the indices are i32 or i64.
    C2: both operands have the same rank, and `axis` is an axis of it.
    C3: along the other axes the indices are not larger than x.

    Source: ONNX GatherElements-13.

    ```mlir
    func @main(%x: tensor<Bx8xf32>, %i: tensor<Bx3xi64>) -> (%y: tensor<Bx3xf32>) {
      %y = gather_elements(%x, %i) {axis = 1} : tensor<Bx3xf32>
      return %y
    }
    ```
    """

    axis: int = attribute("int", default=0)

    def infer(self) -> list[Type]:
        self.check_dtype(self.indices, INDICES, "C1", "the indices")
        given = self.x.tensor
        places = self.check_rank(self.indices, given.rank, "C2", "the indices").shape
        self.check_axis(self.axis, given.rank, "C2")
        for axis, (n, size) in enumerate(zip(places, given.shape, strict=True)):
            if axis != self.axis:
                self.at_most(n, size, "C3", f"the indices exceed the operand along axis {axis}")
        return [TensorType(given.dtype, places)]

    def reference(self, x: Array, indices: Array) -> Array:
        places = list(np.indices(indices.shape, np.int64))
        places[self.axis] = self.wrapped(indices, x.shape[self.axis], self.axis)
        return x[tuple(places)]

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        place = [ZERO if a == self.axis else e for a, e in enumerate(index)]
        return nest.read(self.x, place, [self.position(nest, index, self.axis)])

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        zeros = do.zeros(self.x.tensor)
        added = do("scatter_elements", zeros, self.indices, g, axis=self.axis, reduction="add")
        return [added, None]


class GatherNd(Indexing, name="gather_nd"):
    """The slices of x at index vectors, which lie along the last axis of the indices.

    The first `batch_dims` axes of both operands go together; a vector indexes the axes after them.
    The result has the shape of the indices without the last axis, then that of a slice.

    C1: the indices are i32 or i64, of rank 1 or more.
    C2: 0 <= batch_dims < rank of the indices, and batch_dims <= rank of x.
    C3: the batch dimensions are the same.
    C4: the length of the vectors is static and at most the rank of x without the batch axes.

    Source: ONNX GatherND-13.

    ```mlir
    func @main(%x: tensor<Bx4x8xf32>, %i: tensor<BxSx1xi64>) -> (%y: tensor<BxSx8xf32>) {
      %y = gather_nd(%x, %i) {batch_dims = 1} : tensor<BxSx8xf32>
      return %y
    }
    ```
    """

    batch_dims: int = attribute("int", default=0)

    def infer(self) -> list[Type]:
        self.check_dtype(self.indices, INDICES, "C1", "the indices")
        given, places = self.x.tensor, self.indices.tensor
        self.require(places.rank > 0, "C1", "the indices have rank 0")
        batch = self.batch_dims
        fits = 0 <= batch < places.rank and batch <= given.rank
        self.require(fits, "C2", f"{batch} batch axes of ranks {given.rank} and {places.rank}")
        message = "the batch dimensions differ"
        shared = self.same_shape(given.shape[:batch], places.shape[:batch], "C3", message)
        length = places.shape[-1]
        if not isinstance(length, int):
            raise self.error(f"C4: the length {length} of the index vectors is not static")
        indexed = f"{length} indices into {given.rank - batch} axes"
        self.require(length <= given.rank - batch, "C4", indexed)
        rest = given.shape[batch + length :]
        return [TensorType(given.dtype, (*shared, *places.shape[batch:-1], *rest))]

    def reference(self, x: Array, indices: Array) -> Array:
        batch = self.batch_dims
        lead = np.indices(indices.shape[:-1], np.int64)[:batch]
        axes = range(batch, batch + indices.shape[-1])
        vectors = [self.wrapped(indices[..., a - batch], x.shape[a], a) for a in axes]
        places = (*lead, *vectors)
        shape = static(self.result.tensor.shape)
        return (x[places] if places else np.broadcast_to(x, shape)).copy().reshape(shape)

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        batch, lead = self.batch_dims, self.indices.tensor.rank - 1
        (length,) = static(self.indices.tensor.shape[-1:])
        positions = [
            self.position(nest, [*index[:lead], as_expr(i)], batch + i) for i in range(length)
        ]
        return nest.read(self.x, [*index[:batch], *[ZERO] * length, *index[lead:]], positions)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        zeros = do.zeros(self.x.tensor)
        return [do("scatter_nd", zeros, self._vectors(do), g, reduction="add"), None]

    def _vectors(self, do: Calculus) -> Value:
        """The index vectors with the places along the batch axes in front."""
        shape = self.indices.tensor.shape
        dtype = self.indices.tensor.dtype
        column = (*shape[:-1], 1)
        lead = [do("iota", shape=column, axis=a, dtype=dtype) for a in range(self.batch_dims)]
        parts = [*lead, self.indices]
        return do("concat", parts, axis=len(shape) - 1) if lead else self.indices


class OneHot(Composite, name="one_hot"):
    """`values[1]` where the place along the new axis is the index, else `values[0]`.

    A negative index counts from the end; one out of range gives a line of `values[0]`.

    C1: the indices are i32 or i64.
    C2: `values` is a vector of two elements.
    C3: `axis` is an axis of the result, where the new axis of size `depth` stands.

    Source: ONNX OneHot-11.

    ```mlir
    func @main(%i: tensor<Sxi64>, %values: tensor<2xf32>) -> (%y: tensor<Sx10xf32>) {
      %y = one_hot(%i, %values) {depth = 10, axis = 1} : tensor<Sx10xf32>
      return %y
    }
    ```
    """

    exact = True
    indices: Value = operand()
    values: Value = operand()
    depth: Dim = attribute("dim")
    axis: int = attribute("int")
    output: Value = result()

    def infer(self) -> list[Type]:
        self.check_dtype(self.indices, INDICES, "C1", "the indices")
        given = self.check_rank(self.values, 1, "C2", "values")
        self.same(given.shape[0], 2, "C2", "the number of values")
        shape = list(self.indices.tensor.shape)
        self.check_axis(self.axis, len(shape) + 1, "C3")
        shape.insert(self.axis, self.depth)
        return [TensorType(given.dtype, tuple(shape))]

    def reference(self, indices: Array, values: Array) -> Array:
        (depth,) = static((self.depth,))
        wide = indices.astype(np.int64)
        wrapped = np.where(wide < 0, wide + depth, wide)
        line = np.arange(depth).reshape([-1] + [1] * (indices.ndim - self.axis))
        return values[(np.expand_dims(wrapped, self.axis) == line).astype(np.int64)]

    def decompose(self, b: Builder) -> list[Value]:
        from tfc.ops.arithmetic import Add
        from tfc.ops.cast import Cast
        from tfc.ops.constant import DimValue, Iota, scalar
        from tfc.ops.elementwise import Where
        from tfc.ops.logic import Equal, Less
        from tfc.ops.view import Reshape, Slice, Unsqueeze

        shape = self.result.tensor.shape
        wide = self.indices
        if wide.tensor.dtype != I64:
            wide = b.value(Cast(wide, I64))
        from_end = b.value(Add(wide, b.value(DimValue(self.depth))))
        wrapped = b.value(Where(b.value(Less(wide, scalar(b, 0, I64))), from_end, wide))
        column = b.value(Unsqueeze(wrapped, (self.axis,)))
        line = b.value(Iota((self.depth, *(1,) * (len(shape) - 1 - self.axis)), 0, I64))
        off, on = (
            b.value(Reshape(b.value(Slice(self.values, (k,), (k + 1,), (1,))), ())) for k in (0, 1)
        )
        return [b.value(Where(b.value(Equal(column, line)), on, off))]
