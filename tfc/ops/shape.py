"""Ops that join, split, pad and reorder tensors without computing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tfc.ir.core import Value, attribute, operand, optional, result, variadic
from tfc.ir.expr import ZERO, Dim, Expr, as_expr, normal
from tfc.ir.types import I64, Layout, TensorType, Type
from tfc.ops.base import Array, Composite, GraphOp, static

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ir.core import Block, Kernel
    from tfc.ops.calculus import Calculus
    from tfc.tile.nest import Nest


class Concat(GraphOp, name="concat"):
    """The operands one after the other along `axis`.

    C1: there is an operand, and all have the same element type.
    C2: all have the same rank, and `axis` is an axis of it.
    C3: the other dimensions are the same.

    `layout` is the result's layout in memory, which a pass chooses. Source: ONNX Concat-13.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %y: tensor<Sx5xf32>) -> (%z: tensor<Sx8xf32>) {
      %z = concat(%x, %y) {axis = 1} : tensor<Sx8xf32>
      return %z
    }
    ```
    """

    hero = "concat"

    exact = True
    parts: list[Value] = variadic()
    axis: int = attribute("int")
    layout: Layout | None = attribute("any", default=None)
    output: Value = result()

    def infer(self) -> list[Type]:
        self.require(bool(self.parts), "C1", "there is nothing to join")
        dtype = self.check_same_dtype(self.parts)
        shape = list(self.parts[0].tensor.shape)
        self.check_axis(self.axis, len(shape), "C2")
        total = as_expr(shape[self.axis])
        for part in self.parts[1:]:
            other = self.check_rank(part, len(shape), "C2", "an operand").shape
            total = total + other[self.axis]
            for axis in range(len(shape)):
                if axis != self.axis:
                    message = f"the operands differ along axis {axis}"
                    shape[axis] = self.same(shape[axis], other[axis], "C3", message)
        shape[self.axis] = normal(total)
        return [TensorType(dtype, tuple(shape), self.layout)]

    def reference(self, *parts: Array) -> Array:
        return np.concatenate(parts, self.axis)

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        tile: Value | None = None
        start: Dim = 0
        for part in self.parts:
            at = list(index)
            at[self.axis] = at[self.axis] - start
            size = as_expr(part.tensor.shape[self.axis])
            inside = (ZERO, at[self.axis], size)
            with nest.guarded(inside):
                piece = nest.pull(part, at)
            mask = nest.mask([inside])
            tile = piece if tile is None or mask is None else nest.select(mask, piece, tile)
            start = normal(size + start)
        assert tile is not None
        return tile

    def lower(self, name: str, group: Block, schedule: Any) -> Kernel:
        from tfc.tile.nests.concat import concat

        return concat(name, group, self.parts, self.axis, schedule)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        pieces: list[Value | None] = []
        start: Dim = 0
        for part in self.parts:
            limit = normal(as_expr(start) + part.tensor.shape[self.axis])
            pieces.append(do.slice(g, self.axis, start, limit))
            start = limit
        return pieces


class Split(Composite, name="split"):
    """The operand cut along `axis` into pieces of `sizes`: as many results, each a `slice`.

    C1: `axis` is an axis of the operand.
    C2: `sizes` add up to its size, and none is negative.

    Source: ONNX Split-18, with equal pieces worked out when it is imported.

    ```mlir
    func @main(%x: tensor<Sx8xf32>) -> (%y: tensor<Sx3xf32>, %z: tensor<Sx5xf32>) {
      %y, %z = split(%x) {axis = 1, sizes = [3, 5]} : tensor<Sx3xf32>, tensor<Sx5xf32>
      return %y, %z
    }
    ```
    """

    exact = True
    x: Value = operand()
    axis: int = attribute("int")
    sizes: tuple[Dim, ...] = attribute("dims")
    outputs: list[Value] = result(variadic=True)

    def infer(self) -> list[Type]:
        given = self.x.tensor
        axis = self.check_axis(self.axis, given.rank, "C1")
        total = normal(sum((as_expr(n) for n in self.sizes), ZERO))
        self.same(total, given.shape[axis], "C2", f"the sizes along axis {axis} do not add up")
        for n in self.sizes:
            self.at_most(0, n, "C2", "the size of a piece")
        before, after = given.shape[:axis], given.shape[axis + 1 :]
        return [TensorType(given.dtype, (*before, n, *after)) for n in self.sizes]

    def reference(self, x: Array) -> tuple[Array, ...]:
        places = np.cumsum(static(self.sizes))[:-1]
        return tuple(part.copy() for part in np.split(x, places, self.axis)[: len(self.sizes)])

    def decompose(self, b: Builder) -> list[Value]:
        from tfc.ops.view import Slice

        shape = self.x.tensor.shape
        pieces: list[Value] = []
        start: Dim = 0
        for n in self.sizes:
            limit = normal(as_expr(start) + n)
            starts: list[Dim] = [0] * len(shape)
            limits = list(shape)
            starts[self.axis], limits[self.axis] = start, limit
            pieces.append(b.value(Slice(self.x, tuple(starts), tuple(limits), (1,) * len(shape))))
            start = limit
        return pieces

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        do = Calculus(b)
        pairs = zip(gradients, self.results, strict=True)
        return [
            do("concat", [do.zeros(v.tensor) if g is None else g for g, v in pairs], axis=self.axis)
        ]


class Pad(GraphOp, name="pad"):
    """The operand with `low` elements before and `high` after it along each axis.

    What is added is `value` (0 where absent) in the mode "constant", and else elements of the
    operand: "edge" repeats the outermost, "reflect" mirrors at it without repeating it, "wrap"
    starts over at the other end. Negative amounts crop, in the mode "constant" alone.

    C1: `low` and `high` have an entry for each axis.
    C2: `mode` is "constant", "reflect", "edge" or "wrap".
    C3: `value` has rank 0 and the element type of the operand; only "constant" takes one.
    C4: no size of the result is negative, and only "constant" takes negative amounts.
    C5: what other modes pad is not empty.

    Source: ONNX Pad-21.

    ```mlir
    func @main(%x: tensor<Sx3xf32>, %value: tensor<f32>) -> (%y: tensor<(S+1)x4xf32>) {
      %y = pad(%x, %value) {low = [1, -1], high = [0, 2]} : tensor<(S+1)x4xf32>
      return %y
    }
    ```
    """

    MODES: ClassVar[tuple[str, ...]] = ("constant", "reflect", "edge", "wrap")
    exact = True
    x: Value = operand()
    value: Value | None = optional()
    low: tuple[Dim, ...] = attribute("dims")
    high: tuple[Dim, ...] = attribute("dims")
    mode: str = attribute("str", default="constant")
    output: Value = result()

    def infer(self) -> list[Type]:
        given = self.x.tensor
        complete = len(self.low) == len(self.high) == given.rank
        self.require(complete, "C1", f"the operand has {given.rank} axes")
        self.require(
            self.mode in self.MODES, "C2", f"no mode is {self.mode!r}", f"one of {self.MODES}"
        )
        if self.value is not None:
            self.require(self.mode == "constant", "C3", f"the mode {self.mode} takes no value")
            self.check_rank(self.value, 0, "C3", "the value")
            self.check_dtype(self.value, (given.dtype,), "C3", "the value")
        return [TensorType(given.dtype, tuple(map(self._size, range(given.rank))))]

    def _size(self, axis: int) -> Dim:
        size, low, high = self.x.tensor.shape[axis], self.low[axis], self.high[axis]
        total = normal(as_expr(size) + low + high)
        message = f"axis {axis} is padded by {low} and {high}"
        self.at_most(0, total, "C4", message)
        if self.mode != "constant" and (low, high) != (0, 0):
            self.at_most(0, low, "C4", message)
            self.at_most(0, high, "C4", message)
            self.at_most(1, size, "C5", message)
        return total

    def reference(self, x: Array, value: Array | None) -> Array:
        shape = static(self.result.tensor.shape)
        if self.mode != "constant":
            amounts = list(zip(static(self.low), static(self.high), strict=True))
            return np.pad(x, amounts, mode=self.mode)  # type: ignore[call-overload]
        out = np.full(shape, 0 if value is None else value, x.dtype)
        here, there = [], []
        for n, m, low in zip(x.shape, shape, static(self.low), strict=True):
            begin, end = max(0, -low), max(min(n, m - low), max(0, -low))
            there.append(slice(begin, end))
            here.append(slice(begin + low, end + low))
        out[tuple(here)] = x[tuple(there)]
        return out

    def source(self, index: list[Expr]) -> list[Expr]:
        """The index of the operand that is read at an index of the result.

        In the mode "constant" it may be out of range: there the value stands.
        """
        return [self._place(i, axis) for axis, i in enumerate(index)]

    def _place(self, index: Dim, axis: int) -> Expr:
        size = self.x.tensor.shape[axis]
        i = as_expr(index) - self.low[axis]
        if self.mode == "constant" or (self.low[axis], self.high[axis]) == (0, 0):
            return i
        last = as_expr(size) - 1
        match self.mode:
            case "edge":
                return i.max(0).min(last)
            case "wrap":
                return i % size
            case _:
                # Mirroring at both ends repeats every 2 * last, of which the second half runs back.
                period = last * 2 if isinstance(size, int) and size > 1 else (last * 2).max(1)
                folded = i % period
                return folded.min(last * 2 - folded)

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        at = self.source(index)
        if self.mode != "constant":
            return nest.pull(self.x, at)
        inside = [
            (ZERO, e, as_expr(size))
            for e, size, low, high in zip(at, self.x.tensor.shape, self.low, self.high, strict=True)
            if (low, high) != (0, 0)
        ]
        with nest.guarded(*inside):
            tile = nest.pull(self.x, at)
        mask = nest.mask(inside)
        if mask is None:
            return tile
        fill = nest.pull(self.value, []) if self.value else nest.splat(0, self.x.tensor.dtype)
        return nest.select(mask, tile, fill)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        from tfc.ops.calculus import Calculus

        (g,), do = gradients, Calculus(b)
        if g is None:
            return [None] * len(self.operands)
        if self.mode != "constant":
            return [self._folded(do, g), None]
        inner = do.pad(g, [-as_expr(n) for n in self.low], [-as_expr(n) for n in self.high])
        return [inner, None if self.value is None else self._of_value(do, g)]

    def _of_value(self, do: Calculus, g: Value) -> Value:
        """The sum of what stands where nothing of x does."""
        nothing = do.zeros(TensorType(g.tensor.dtype, self.x.tensor.shape))
        one = do.filled(1, TensorType(g.tensor.dtype, ()))
        around = do("pad", nothing, one, low=self.low, high=self.high)
        return do.total(do("mul", g, around))

    def _folded(self, do: Calculus, g: Value) -> Value:
        """Each element of g is added to that of x which it repeats, one axis after the other."""
        for axis, amounts in enumerate(zip(self.low, self.high, strict=True)):
            if amounts != (0, 0):
                g = self._folded_along(do, g, axis)
        return g

    def _folded_along(self, do: Calculus, g: Value, axis: int) -> Value:
        from tfc.ops.scatter import added_slices

        size = self.x.tensor.shape[axis]
        line = do("iota", shape=(g.tensor.shape[axis],), axis=0, dtype=I64)
        places = self._places(do, do("sub", line, do.size(self.low[axis])), do.size(size))
        return added_slices(do, g, places, axis, size)

    def _places(self, do: Calculus, line: Value, size: Value) -> Value:
        """The indices along an axis of x that indices of the result, less `low`, read."""
        last = do("sub", size, 1)
        if self.mode == "edge":
            return do("minimum", do("maximum", line, 0), last)
        if self.mode == "wrap":
            return do("mod", line, size)
        period = do("maximum", do("mul", last, 2), 1)
        folded = do("mod", line, period)
        return do("minimum", folded, do("sub", do("mul", last, 2), folded))
