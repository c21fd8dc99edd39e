"""Makes the ops of gradients: what the `gradient` methods of the graph ops share.

Ops are made by their name in the text. Gradients have the type of what they are taken by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfc.ir.core import OPS, Value
from tfc.ir.expr import Dim, as_expr, normal
from tfc.ir.types import TensorType

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ops.base import Shape


class Calculus:
    """Inserts ops at a builder's place.

    `do("mul", x, 2)`: a number becomes a scalar of the element type of the last tensor beside it.
    """

    def __init__(self, b: Builder) -> None:
        self.builder = b

    def __call__(self, name: str, *operands: Any, **attributes: Any) -> Value:
        return self.builder.value(OPS[name](*self._values(operands), **attributes))

    def _values(self, operands: Sequence[Any]) -> list[Any]:
        from tfc.ops.constant import scalar

        tensors = [v for v in operands if isinstance(v, Value)]
        return [
            scalar(self.builder, v, tensors[-1].tensor.dtype) if isinstance(v, int | float) else v
            for v in operands
        ]

    def where(self, condition: Value, x: Value | float, y: Value | float) -> Value:
        """x where the condition holds, else y; one of them is a tensor."""
        return self("where", condition, *self._values([x, y]))

    # ---- shapes

    def sum_to(self, g: Value, shape: Shape) -> Value:
        """Summed over the axes along which a tensor of this shape is stretched to that of g."""
        found = g.tensor.shape
        lead = len(found) - len(shape)
        own = found[lead:]
        stretched = [
            lead + i for i, (n, m) in enumerate(zip(shape, own, strict=True)) if n == 1 and m != 1
        ]
        axes = (*range(lead), *stretched)
        return self.reshape(self("reduce_sum", g, axes=axes) if axes else g, shape)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """x in another shape; x itself where it has it."""
        wanted = tuple(normal(n) for n in shape)
        return x if x.tensor.shape == wanted else self("reshape", x, shape=wanted)

    def expand(self, x: Value, shape: Sequence[Dim]) -> Value:
        """x stretched to a shape; x itself where it has it."""
        wanted = tuple(normal(n) for n in shape)
        return x if x.tensor.shape == wanted else self("expand", x, shape=wanted)

    def unreduced(self, x: Value, shape: Shape, axes: Sequence[int]) -> Value:
        """What is left of a shape when axes are folded, with those axes of size 1."""
        return self.reshape(x, [1 if a in axes else n for a, n in enumerate(shape)])

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """x with its axes in another order; x itself where it is the same."""
        order = tuple(permutation)
        same = order == tuple(range(len(order)))
        return x if same else self("transpose", x, permutation=order)

    def flipped(self, x: Value) -> Value:
        """The matrices of the last two axes, transposed."""
        rank = x.tensor.rank
        return self.transpose(x, (*range(rank - 2), rank - 1, rank - 2))

    def slice(self, x: Value, axis: int, start: Dim, limit: Dim) -> Value:
        """The elements from `start` before `limit` along an axis."""
        rank = x.tensor.rank
        starts: list[Dim] = [0] * rank
        limits = list(x.tensor.shape)
        starts[axis], limits[axis] = normal(start), normal(limit)
        return self("slice", x, starts=tuple(starts), limits=tuple(limits), steps=(1,) * rank)

    def reverse(self, x: Value, axes: Sequence[int]) -> Value:
        """x from its end to its start along axes."""
        shape = x.tensor.shape
        last = [as_expr(n) - 1 for n in shape]
        return self(
            "slice",
            x,
            starts=tuple(normal(last[a]) if a in axes else 0 for a in range(len(shape))),
            limits=tuple(-1 if a in axes else n for a, n in enumerate(shape)),
            steps=tuple(-1 if a in axes else 1 for a in range(len(shape))),
        )

    def pad(self, x: Value, low: Sequence[Dim], high: Sequence[Dim]) -> Value:
        """x with zeros around it, or without its border where an amount is negative."""
        low, high = tuple(map(normal, low)), tuple(map(normal, high))
        nothing = not any(n != 0 for n in (*low, *high))
        return x if nothing else self("pad", x, None, low=low, high=high)

    def spread(self, x: Value, steps: Sequence[int]) -> Value:
        """x with `step - 1` zeros behind each element along each axis."""
        shape = x.tensor.shape
        if all(step == 1 for step in steps):
            return x
        split = [d for n in shape for d in (n, 1)]
        high = [d for step in steps for d in (0, step - 1)]
        wide = self.pad(self.reshape(x, split), [0] * len(split), high)
        return self.reshape(wide, [as_expr(n) * k for n, k in zip(shape, steps, strict=True)])

    # ---- numbers

    def zeros(self, kind: TensorType) -> Value:
        """A tensor of zeros."""
        return self.filled(0, kind)

    def filled(self, number: float, kind: TensorType) -> Value:
        """A tensor of one number."""
        from tfc.ops.constant import scalar

        return self.expand(scalar(self.builder, number, kind.dtype), kind.shape)

    def size(self, dim: Dim) -> Value:
        """A dimension as a scalar of type i64."""
        from tfc.ir.types import I64
        from tfc.ops.compose import size_scalar

        return size_scalar(self.builder, (dim,), I64)

    def cast(self, x: Value, like: Value) -> Value:
        """x in the element type of another value."""
        dtype = like.tensor.dtype
        return x if x.tensor.dtype == dtype else self("cast", x, to=dtype)

    def total(self, x: Value) -> Value:
        """The sum of all elements."""
        rank = x.tensor.rank
        return self("reduce_sum", x, axes=tuple(range(rank))) if rank else x
