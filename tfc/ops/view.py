"""Views: ops that only rename the places of elements, by an index map."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.core import Value, attribute
from tfc.ir.expr import ZERO, Dim, Expr, as_expr, ceildiv, normal, product
from tfc.ir.types import TensorType, Type
from tfc.ops.base import Array, Composite, Shape, View, broadcast_index, static

if TYPE_CHECKING:
    from tfc.ir.builder import Builder


class Reshape(View, name="reshape"):
    """The elements, in row-major order, in another shape.

    C1: both shapes have the same number of elements.
    C2: no dimension of `shape` is negative.

    Source: ONNX Reshape-21, where 0 and -1 are resolved when it is imported.

    ```mlir
    func @main(%x: tensor<BxSx8xf32>) -> (%y: tensor<BxSx2x4xf32>) {
      %y = reshape(%x) {shape = [(B), (S), 2, 4]} : tensor<BxSx2x4xf32>
      return %y
    }
    ```
    """

    level = "any"  # below the graph it gives memory another type
    shape: tuple[Dim, ...] = attribute("dims")

    def infer(self) -> list[Type]:
        given = self.x.tensor
        for n in self.shape:
            self.at_most(0, n, "C2", "the size of a dimension")
        message = f"{given} has another number of elements than ({', '.join(map(str, self.shape))})"
        self.same(given.elements, product(self.shape), "C1", message)
        return [TensorType(given.dtype, self.shape)]

    def reference(self, x: Array) -> Array:
        return x.reshape(static(self.shape))

    def source(self, index: list[Expr]) -> list[Expr]:
        return reshape_index(index, self.shape, self.x.tensor.shape)

    def target(self, index: list[Expr]) -> list[Expr]:
        return reshape_index(index, self.x.tensor.shape, self.shape)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        return [do.reshape(g, self.x.tensor.shape)]


def reshape_index(index: list[Expr], shape: Shape, other: Shape) -> list[Expr]:
    """The index in `other` of the element at an index of `shape`, both in row-major order.

    Runs of dimensions whose products agree are mapped apart, so that only what is split or joined
    shows divisions.
    """
    out: list[Expr] = [ZERO] * len(other)
    for mine, theirs in matched_groups(shape, other):
        linear = ZERO
        for axis in mine:
            linear = linear * shape[axis] + index[axis]
        for axis in reversed(theirs):
            first = axis == theirs[0]
            size = _at_least_1(other[axis])
            out[axis] = linear if first else linear % size
            linear = ZERO if first else linear // size
    return out


def matched_groups(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]]:
    """The axes of two shapes of as many elements in runs of equal products, as short as may be.

    A static 1 is in no run: its index is 0.
    """
    left = [i for i, n in enumerate(a) if n != 1]
    right = [i for i, n in enumerate(b) if n != 1]
    groups: list[tuple[list[int], list[int]]] = []
    tail: list[tuple[list[int], list[int]]] = []
    while left and right:
        sizes = _shortest_run([a[i] for i in left], [b[i] for i in right])
        if sizes is None:
            break
        m, n = sizes
        groups.append((left[:m], right[:n]))
        left, right = left[m:], right[n:]
    # What does not match from the front (an entry check says it does) may still end alike.
    while len(left) > 1 and len(right) > 1 and a[left[-1]] == b[right[-1]]:
        tail.append(([left.pop()], [right.pop()]))
    if left or right:
        groups.append((left, right))
    return groups + tail[::-1]


def _shortest_run(a: list[Dim], b: list[Dim]) -> tuple[int, int] | None:
    """How many leading dimensions of each have the same product; None if only all of them might."""
    products = {normal(product(b[: n + 1])): n + 1 for n in reversed(range(len(b)))}
    for m in range(1, len(a) + 1):
        found = products.get(product(a[:m]))
        if found:
            return m, found
    return None


class Transpose(View, name="transpose"):
    """Dimension i of the result is dimension `permutation[i]` of the operand.

    C1: `permutation` holds each axis of the operand once.

    Source: ONNX Transpose-21.

    ```mlir
    func @main(%x: tensor<BxSx12x32xf32>) -> (%y: tensor<Bx12xSx32xf32>) {
      %y = transpose(%x) {permutation = [0, 2, 1, 3]} : tensor<Bx12xSx32xf32>
      return %y
    }
    ```
    """

    permutation: tuple[int, ...] = attribute("ints")

    def infer(self) -> list[Type]:
        given = self.x.tensor
        complete = sorted(self.permutation) == list(range(given.rank))
        self.require(complete, "C1", f"{self.permutation} does not permute {given.rank} axes")
        return [TensorType(given.dtype, tuple(given.shape[i] for i in self.permutation))]

    def reference(self, x: Array) -> Array:
        return np.transpose(x, self.permutation).copy()

    def source(self, index: list[Expr]) -> list[Expr]:
        return [index[self.permutation.index(axis)] for axis in range(len(index))]

    def target(self, index: list[Expr]) -> list[Expr]:
        return [index[axis] for axis in self.permutation]

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        inverse = [self.permutation.index(axis) for axis in range(len(self.permutation))]
        return [do.transpose(g, inverse)]


class Slice(View, name="slice"):
    """Along each axis the elements start, start + step, ... before `limits` is reached.

    All three attributes have an entry for each axis. With a positive step 0 <= start <= limit <=
    size; with a negative one the elements run down to above the limit: -1 <= limit <= start < size.

    C1: `starts`, `limits` and `steps` have an entry for each axis.
    C2: no step is 0.
    C3: the bounds are ordered as said above.

    Source: ONNX Slice-13, with negative and too large bounds resolved when it is imported.

    ```mlir
    func @main(%x: tensor<Sx8xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = slice(%x) {starts = [0, 1], limits = [(S), 7], steps = [1, 2]} : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    starts: tuple[Dim, ...] = attribute("dims")
    limits: tuple[Dim, ...] = attribute("dims")
    steps: tuple[int, ...] = attribute("ints")

    def infer(self) -> list[Type]:
        given = self.x.tensor
        complete = len(self.starts) == len(self.limits) == len(self.steps) == given.rank
        self.require(complete, "C1", f"the operand has {given.rank} axes")
        return [TensorType(given.dtype, tuple(map(self._size, range(given.rank))))]

    def _size(self, axis: int) -> Dim:
        start, limit, step = self.starts[axis], self.limits[axis], self.steps[axis]
        size = self.x.tensor.shape[axis]
        self.require(step != 0, "C2", f"the step of axis {axis} is 0")
        if step > 0:
            self._ordered(axis, 0, start, limit, size)
            return normal(ceildiv(as_expr(limit) - start, step))
        self._ordered(axis, -1, limit, start, as_expr(size) - 1)
        return normal(ceildiv(as_expr(start) - limit, -step))

    def _ordered(self, axis: int, *bounds: Dim) -> None:
        message = f"the bounds of axis {axis} are out of order"
        for low, high in pairwise(bounds):
            self.at_most(low, high, "C3", message)

    def reference(self, x: Array) -> Array:
        shape = static(self.result.tensor.shape)
        places = [
            start + np.arange(n) * step
            for start, n, step in zip(static(self.starts), shape, self.steps, strict=True)
        ]
        return x[np.ix_(*places)] if places else x.copy()

    def source(self, index: list[Expr]) -> list[Expr]:
        return [s + i * k for s, i, k in zip(self.starts, index, self.steps, strict=True)]

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        backwards = [axis for axis, step in enumerate(self.steps) if step < 0]
        if backwards:
            g = do.reverse(g, backwards)
        wide = do.spread(g, [abs(step) for step in self.steps])
        low = [self._lowest(axis) for axis in range(len(self.steps))]
        sizes = zip(self.x.tensor.shape, low, wide.tensor.shape, strict=True)
        return [do.pad(wide, low, [as_expr(n) - first - m for n, first, m in sizes])]

    def _lowest(self, axis: int) -> Dim:
        """The first element along an axis that is taken, counted from the front."""
        start, step = self.starts[axis], self.steps[axis]
        count = as_expr(self.result.tensor.shape[axis])
        return start if step > 0 else normal(as_expr(start) + (count - 1) * step)


class Expand(View, name="expand"):
    """The operand repeated along its dimensions of size 1 and along new leading ones.

    C1: the rank of `shape` is at least that of the operand.
    C2: aligned at the last axis, each dimension of the operand is a static 1 or that of `shape`.

    Source: ONNX Expand-13, with the common shape computed when it is imported.

    ```mlir
    func @main(%x: tensor<Bx1xf32>) -> (%y: tensor<2xBx(B+1)xf32>) {
      %y = expand(%x) {shape = [2, (B), (B+1)]} : tensor<2xBx(B+1)xf32>
      return %y
    }
    ```
    """

    shape: tuple[Dim, ...] = attribute("dims")

    def infer(self) -> list[Type]:
        given = self.x.tensor
        self.require(
            len(self.shape) >= given.rank, "C1", f"{given} has a higher rank than {self.shape}"
        )
        message = f"{given} does not expand to ({', '.join(map(str, self.shape))})"
        for mine, wanted in zip(given.shape[::-1], self.shape[::-1], strict=False):
            if mine != 1:
                self.same(mine, wanted, "C2", message)
        return [TensorType(given.dtype, self.shape)]

    def reference(self, x: Array) -> Array:
        return np.broadcast_to(x, static(self.shape)).copy()

    def source(self, index: list[Expr]) -> list[Expr]:
        return broadcast_index(index, self.x.tensor.shape)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        return [do.sum_to(g, self.x.tensor.shape)]


class Tile(View, name="tile"):
    """The operand repeated `repeats[i]` times along each axis i, whole after whole.

    C1: `repeats` has an entry for each axis.
    C2: no entry is negative.

    Source: ONNX Tile-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx6xf32>) {
      %y = tile(%x) {repeats = [1, 2]} : tensor<Sx6xf32>
      return %y
    }
    ```
    """

    repeats: tuple[Dim, ...] = attribute("dims")

    def infer(self) -> list[Type]:
        given = self.x.tensor
        self.require(len(self.repeats) == given.rank, "C1", f"{self.repeats} for {given.rank} axes")
        for n in self.repeats:
            self.at_most(0, n, "C2", "the repeats of an axis")
        shape = [normal(as_expr(n) * k) for n, k in zip(given.shape, self.repeats, strict=True)]
        return [TensorType(given.dtype, tuple(shape))]

    def reference(self, x: Array) -> Array:
        return np.tile(x, static(self.repeats))

    def source(self, index: list[Expr]) -> list[Expr]:
        sizes = self.x.tensor.shape
        return [
            i if k == 1 else as_expr(i) % _at_least_1(n)
            for i, n, k in zip(index, sizes, self.repeats, strict=True)
        ]

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        shape = self.x.tensor.shape
        split = [d for n, k in zip(shape, self.repeats, strict=True) for d in (k, n)]
        axes = tuple(range(0, len(split), 2))
        return [do("reduce_sum", do.reshape(g, split), axes=axes) if axes else g]


def _at_least_1(size: Dim) -> Dim:
    """A size to divide by: where it is 0 nothing is read, but dividing must not trap."""
    return size or 1


class Identity(View, Composite, name="identity"):
    """The operand itself.

    Source: ONNX Identity-21.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = identity(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def infer(self) -> list[Type]:
        return [self.x.tensor]

    def reference(self, x: Array) -> Array:
        return x

    def decompose(self, b: Builder) -> list[Value]:
        return [self.x]

    def source(self, index: list[Expr]) -> list[Expr]:
        return index

    def target(self, index: list[Expr]) -> list[Expr]:
        return index

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        return gradients


class StopGradient(Identity, name="stop_gradient"):
    """The operand itself, through which no gradient passes: it counts as constant.

    Source: TensorFlow StopGradient.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = stop_gradient(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    differentiable = False


class OptimizationBarrier(View, name="optimization_barrier"):
    """The operand itself, as a value that passes take for another one; it costs nothing.

    What is computed of it is so not merged with what was computed of the operand; see the pass
    `recompute`. Source: StableHLO optimization_barrier.

    ```mlir
    func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
      %y = optimization_barrier(%x) : tensor<Sx3xf32>
      return %y
    }
    ```
    """

    def infer(self) -> list[Type]:
        return [self.x.tensor]

    def reference(self, x: Array) -> Array:
        return x

    def source(self, index: list[Expr]) -> list[Expr]:
        return index

    def target(self, index: list[Expr]) -> list[Expr]:
        return index

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        return gradients


class ReshapeLike(View, Composite):
    """A view that is a `reshape` to the shape that `infer` gives."""

    def reference(self, x: Array) -> Array:
        return x.reshape(static(self.result.tensor.shape))

    def decompose(self, b: Builder) -> list[Value]:
        return [b.value(Reshape(self.x, self.result.tensor.shape))]

    def source(self, index: list[Expr]) -> list[Expr]:
        return reshape_index(index, self.result.tensor.shape, self.x.tensor.shape)

    def target(self, index: list[Expr]) -> list[Expr]:
        return reshape_index(index, self.x.tensor.shape, self.result.tensor.shape)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        return [do.reshape(g, self.x.tensor.shape)]


class Squeeze(ReshapeLike, name="squeeze"):
    """The operand without the dimensions `axes`, which have size 1.

    C1: `axes` are axes of the operand, ascending.
    C2: each has size 1.

    Source: ONNX Squeeze-21.

    ```mlir
    func @main(%x: tensor<1xSx1xf32>) -> (%y: tensor<Sxf32>) {
      %y = squeeze(%x) {axes = [0, 2]} : tensor<Sxf32>
      return %y
    }
    ```
    """

    axes: tuple[int, ...] = attribute("ints")

    def infer(self) -> list[Type]:
        given = self.x.tensor
        for axis in self.check_axes(self.axes, given.rank, "C1"):
            self.same(given.shape[axis], 1, "C2", f"axis {axis} of {given} has not size 1")
        kept = [n for axis, n in enumerate(given.shape) if axis not in self.axes]
        return [TensorType(given.dtype, tuple(kept))]


class Unsqueeze(ReshapeLike, name="unsqueeze"):
    """The operand with new dimensions of size 1, which are the axes `axes` of the result.

    C1: `axes` are axes of the result, ascending.

    Source: ONNX Unsqueeze-21.

    ```mlir
    func @main(%x: tensor<Sxf32>) -> (%y: tensor<1xSx1xf32>) {
      %y = unsqueeze(%x) {axes = [0, 2]} : tensor<1xSx1xf32>
      return %y
    }
    ```
    """

    axes: tuple[int, ...] = attribute("ints")

    def infer(self) -> list[Type]:
        given = self.x.tensor
        shape = list(given.shape)
        for axis in self.check_axes(self.axes, given.rank + len(self.axes), "C1"):
            shape.insert(axis, 1)
        return [TensorType(given.dtype, tuple(shape))]


class Flatten(ReshapeLike, name="flatten"):
    """A matrix: the dimensions before `axis` as rows, the others as columns.

    C1: 0 <= axis <= rank.

    Source: ONNX Flatten-21.

    ```mlir
    func @main(%x: tensor<BxSx4xf32>) -> (%y: tensor<Bx(S*4)xf32>) {
      %y = flatten(%x) {axis = 1} : tensor<Bx(S*4)xf32>
      return %y
    }
    ```
    """

    axis: int = attribute("int", default=1)

    def infer(self) -> list[Type]:
        given = self.x.tensor
        self.check_axis(self.axis, given.rank + 1, "C1")
        rows, columns = product(given.shape[: self.axis]), product(given.shape[self.axis :])
        return [TensorType(given.dtype, (rows, columns))]
