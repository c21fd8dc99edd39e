"""Ops that write slices or elements of a tensor at indices which are themselves a tensor.

Indices are i32 or i64. A negative one counts from the end of its axis; one out of range is an error
when the op runs, which names the op. Updates at one place are applied in their row-major order, so
that the result is the same each time; without a reduction the last one stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tfc.ir.core import Value, attribute, operand, result
from tfc.ir.expr import ZERO, Dim, Expr, as_expr, product
from tfc.ir.types import BOOL, I64, TensorType, Type
from tfc.ops.base import INDICES, Array, GraphOp, Shape, narrow, widen
from tfc.ops.indexing import wrapped
from tfc.ops.view import reshape_index

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ir.core import Block, Kernel
    from tfc.ops.calculus import Calculus
    from tfc.tile.nest import Nest


class Scatter(GraphOp):
    """A copy of x in which the elements at indices are combined with updates."""

    REDUCTIONS: ClassVar[dict[str, Any]] = {
        "none": None,
        "add": np.add,
        "mul": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
    }
    hero = "scan"
    may_fail = True
    x: Value = operand()
    indices: Value = operand()
    updates: Value = operand()
    output: Value = result()
    reduction: str

    @property
    def beside(self) -> Shape:
        """The sizes of the axes that the kernel computes side by side."""
        return self.x.tensor.shape

    def check_parts(self) -> TensorType:
        """C1 and C2; the type of the result."""
        self.check_dtype(self.indices, INDICES, "C1", "the indices")
        dtype = self.check_same_dtype((self.x, self.updates), "C1")
        known = ", ".join(self.REDUCTIONS)
        self.require(
            self.reduction in self.REDUCTIONS,
            "C2",
            f"no reduction is {self.reduction!r}",
            f"one of {known}",
        )
        summed = dtype != BOOL or self.reduction == "none"
        self.require(summed, "C2", f"bool has no {self.reduction}")
        return TensorType(dtype, self.x.tensor.shape)

    def applied(self, x: Array, places: tuple[Array, ...], updates: Array) -> Array:
        """x with the updates at places, in order."""
        function = self.REDUCTIONS[self.reduction]
        if function is None:
            out = x.copy()
            for place in np.ndindex(places[0].shape if places else ()):
                out[tuple(p[place] for p in places)] = updates[place]
            return out
        out = widen(x).copy()
        with np.errstate(all="ignore"):
            function.at(out, places, widen(updates))
        return narrow(out, x.dtype)

    def gathered(self, do: Calculus, value: Value) -> Value:
        """What stands in a tensor of the result's shape where each update goes."""
        raise NotImplementedError(f"{self.name} does not say what stands at its places")

    def scattered(self, do: Calculus, x: Value, updates: Value, reduction: str) -> Value:
        """The same places of x with other updates."""
        raise NotImplementedError(f"{self.name} is not made again")

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """By x and the updates; equal extremes share it.

        Where several updates without a reduction go to one place, each gets the gradient, and where
        a product holds a 0 it is NaN.
        """
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None, None, None]
        if self.reduction == "none":
            nothing = do.zeros(self.updates.tensor)
            return [self.scattered(do, g, nothing, "none"), None, self.gathered(do, g)]
        if self.reduction == "add":
            return [g, None, self.gathered(do, g)]
        if self.reduction == "mul":
            along = do("mul", g, self.result)
            by_updates = do("div", self.gathered(do, along), self.updates)
            return [self.scattered(do, g, self.updates, "mul"), None, by_updates]
        return self._to_extremes(do, g)

    def at(self, nest: Nest, place: list[Expr], axis: int, index: list[Expr]) -> Value:
        """Where the index that is read at a place of the indices is that of the result."""
        found = nest.cast(nest.pull(self.indices, place), I64)
        node = ", ".join(self.location.nodes)  # no place in a file: equal kernels are one
        size = self.x.tensor.shape[axis]
        wrapped = nest.wrap_index(found, size, nest.bounds(*place), node)
        return nest.map("equal", wrapped, nest.index_tile(index[axis]))

    def _to_extremes(self, do: Calculus, g: Value) -> list[Value | None]:
        dtype = g.tensor.dtype
        stays = do("cast", do("equal", self.x, self.result), to=dtype)
        chosen = do("equal", self.updates, self.gathered(do, self.result))
        ones = do("cast", chosen, to=dtype)
        share = do("div", g, self.scattered(do, stays, ones, "add"))
        return [do("mul", stays, share), None, do("mul", ones, self.gathered(do, share))]


class ScatterNd(Scatter, name="scatter_nd"):
    """x with the slices at index vectors, which lie along the last axis of the indices, combined.

    `reduction` says how an update and what is there become one: "none" (the update stays), "add",
    "mul", "max" or "min". The updates have the shape of the indices without the last axis, then
    that of a slice.

    C1: the indices are i32 or i64, of rank 1 or more; x and the updates have one element type.
    C2: `reduction` is one of those; bools have "none" alone.
    C3: the length of the vectors is static and at most the rank of x.
    C4: the updates have the shape that is said above.

    Source: ONNX ScatterND-18.

    ```mlir
    func @main(
      %x: tensor<8x4xf32>, %i: tensor<Sx1xi64>, %u: tensor<Sx4xf32>
    ) -> (%y: tensor<8x4xf32>) {
      %y = scatter_nd(%x, %i, %u) {reduction = "add"} : tensor<8x4xf32>
      return %y
    }
    ```
    """

    reduction: str = attribute("str", default="none")

    @property
    def length(self) -> int:
        """The length of the index vectors."""
        length = self.indices.tensor.shape[-1]
        if not isinstance(length, int):
            raise self.error(f"C3: the length {length} of the index vectors is not static")
        return length

    def infer(self) -> list[Type]:
        kind = self.check_parts()
        places = self.indices.tensor
        self.require(places.rank > 0, "C1", "the indices have rank 0")
        fits = self.length <= kind.rank
        self.require(fits, "C3", f"{self.length} indices into {kind.rank} axes")
        wanted = (*places.shape[:-1], *kind.shape[self.length :])
        self.same_shape(self.updates.tensor.shape, wanted, "C4", "the updates")
        return [kind]

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        places = tuple(
            wrapped(self, indices[..., a], x.shape[a], a) for a in range(indices.shape[-1])
        )
        if places:
            return self.applied(x, places, updates)
        flat = updates.reshape(-1, *x.shape)
        zeros = np.zeros(flat.shape[0], np.int64)
        return self.applied(x[None], (zeros,), flat)[0]

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.scatter import scatter

        lead = self.indices.tensor.shape[:-1]
        count = product(lead)

        def look(nest: Nest, number: Expr, index: list[Expr]) -> tuple[Value, Value]:
            place = reshape_index([number], (count,), lead)
            here = nest.full((1, 1), True, BOOL)
            for axis in range(self.length):
                hit = self.at(nest, [*place, as_expr(axis)], axis, index)
                here = hit if axis == 0 else nest.map("and", here, hit)
            return here, nest.pull(self.updates, [*place, *index[self.length :]])

        x, reduction = self.x, self.reduction
        return scatter(name, group, self.result, x, count, look, reduction, schedule)

    def gathered(self, do: Calculus, value: Value) -> Value:
        return do("gather_nd", value, self.indices)

    def scattered(self, do: Calculus, x: Value, updates: Value, reduction: str) -> Value:
        return do("scatter_nd", x, self.indices, updates, reduction=reduction)


class ScatterElements(Scatter, name="scatter_elements"):
    """x with each update combined into the element at its own place, but at the index along `axis`.

    `reduction` says how, as in `scatter_nd`.

    C1: the indices are i32 or i64; x and the updates have one element type.
    C2: `reduction` is one of those of `scatter_nd`; bools have "none" alone.
    C3: the three have one rank, and `axis` is an axis of it.
    C4: indices and updates have one shape, which is not larger than x along the other axes.

    Source: ONNX ScatterElements-18.

    ```mlir
    func @main(
      %x: tensor<Bx8xf32>, %i: tensor<Bx3xi64>, %u: tensor<Bx3xf32>
    ) -> (%y: tensor<Bx8xf32>) {
      %y = scatter_elements(%x, %i, %u) {axis = 1} : tensor<Bx8xf32>
      return %y
    }
    ```
    """

    axis: int = attribute("int", default=0)
    reduction: str = attribute("str", default="none")

    def infer(self) -> list[Type]:
        kind = self.check_parts()
        places = self.check_rank(self.indices, kind.rank, "C3", "the indices").shape
        self.check_rank(self.updates, kind.rank, "C3", "the updates")
        self.check_axis(self.axis, kind.rank, "C3")
        self.same_shape(self.updates.tensor.shape, places, "C4", "the updates and the indices")
        for axis, (n, size) in enumerate(zip(places, kind.shape, strict=True)):
            if axis != self.axis:
                self.at_most(n, size, "C4", f"the indices exceed the operand along axis {axis}")
        return [kind]

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        places = list(np.indices(indices.shape, np.int64))
        places[self.axis] = wrapped(self, indices, x.shape[self.axis], self.axis)
        return self.applied(x, tuple(places), updates)

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.scatter import scatter

        axis, sizes = self.axis, self.indices.tensor.shape

        def look(nest: Nest, number: Expr, index: list[Expr]) -> tuple[Value, Value]:
            place = [number if a == axis else e for a, e in enumerate(index)]
            inside = [
                (ZERO, index[a], as_expr(n))
                for a, n in enumerate(sizes)
                if a != axis and n != self.x.tensor.shape[a]
            ]
            with nest.guarded(*inside):
                here = self.at(nest, place, axis, index)
                update = nest.pull(self.updates, place)
            mask = nest.mask(inside)
            return here if mask is None else nest.map("and", mask, here), update

        x, count, reduction = self.x, sizes[axis], self.reduction
        return scatter(name, group, self.result, x, count, look, reduction, schedule)

    def gathered(self, do: Calculus, value: Value) -> Value:
        return do("gather_elements", value, self.indices, axis=self.axis)

    def scattered(self, do: Calculus, x: Value, updates: Value, reduction: str) -> Value:
        return do("scatter_elements", x, self.indices, updates, axis=self.axis, reduction=reduction)


def added_slices(do: Calculus, g: Value, places: Value, axis: int, size: Dim) -> Value:
    """What `gather` along an axis of `size` read is added up there: the reverse of it.

    The axes of `places` stand in g from `axis` on.
    """
    rank, count = g.tensor.rank, places.tensor.rank
    inner = range(axis, axis + count)
    others = [a for a in range(rank) if a not in inner]
    front = do.transpose(g, (*inner, *others))
    shape: Shape = (size, *(g.tensor.shape[a] for a in others))
    vectors = do.reshape(places, (*places.tensor.shape, 1))
    zeros = do.zeros(TensorType(g.tensor.dtype, shape))
    added = do("scatter_nd", zeros, vectors, front, reduction="add")
    return do.transpose(added, (*range(1, axis + 1), 0, *range(axis + 1, len(shape))))
