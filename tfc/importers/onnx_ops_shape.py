"""ONNX operators that view, join, cut and repeat tensors, and those that ask for their shape."""

from __future__ import annotations

import numpy as np

from tfc.importers.onnx_context import Context, Known, Result
from tfc.importers.onnx_forms import (
    axes_of,
    broadcast_shapes,
    reshape_target,
    slice_bounds,
    split_sizes,
)
from tfc.importers.onnx_known import make as known_elements
from tfc.importers.onnx_ops_elementwise import as_scalar
from tfc.importers.onnx_registry import importer
from tfc.ir.core import Value
from tfc.ir.expr import Dim, product
from tfc.ir.types import I64


@importer("Shape", 1, 13, 15, 19, 21, 23, 24, 25)
def _(n: Context) -> Known:
    shape, rank = n.type(0).shape, n.rank
    start = n.int("start", 0) if n.version >= 15 else 0
    end = n.int("end", rank) if n.version >= 15 else rank
    return known_elements(I64, list(shape[slice(start, end)]))


@importer("Size", 1, 13, 19, 21, 23, 24, 25)
def _(n: Context) -> Known:
    return known_elements(I64, product(n.type(0).shape))


@importer("Identity", 1, 13, 14, 16, 19, 21, 23, 24, 25)
def _(n: Context) -> Value:
    return n.value(0)


@importer("Reshape", 5, 13, 14, 19, 21, 23, 24, 25)
def _(n: Context) -> Value:
    zero = n.version >= 14 and n.flag("allowzero")
    shape = reshape_target(n, n.type(0).shape, n.known(1, "target shape"), zero)
    return n.make("reshape", n.value(0), shape=shape)


@importer("Flatten", 1, 9, 11, 13, 21, 23, 24, 25)
def _(n: Context) -> Value:
    axis, rank = n.int("axis", 1), n.rank
    n.require(-rank <= axis <= rank, f"axis {axis} is out of range for rank {rank}")
    return n.make("flatten", n.value(0), axis=axis + rank if axis < 0 else axis)


@importer("Transpose", 1, 13, 21, 23, 24, 25)
def _(n: Context) -> Value:
    order = n.ints("perm", tuple(range(n.rank))[::-1])
    return n.make("transpose", n.value(0), permutation=order)


@importer("Squeeze", 1, 11, 13, 21, 23, 24, 25)
def _(n: Context) -> Value:
    axes, shape = axes_of(n, 13), n.type(0).shape
    if not axes:  # none named: all of size 1
        if not all(isinstance(size, int) for size in shape):
            raise n.unsupported("it names no axes, and whether a symbolic one has size 1 is open")
        axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return n.make("squeeze", n.value(0), axes=n.axes(axes, n.rank))


@importer("Unsqueeze", 1, 11, 13, 21, 23, 24, 25)
def _(n: Context) -> Value:
    axes = axes_of(n, 13)
    if axes is None:
        raise n.error("it has no axes")
    return n.make("unsqueeze", n.value(0), axes=n.axes(axes, n.rank + len(axes)))


@importer("Concat", 4, 11, 13)
def _(n: Context) -> Value:
    values = n.values()
    n.require(bool(values), "needs an input")
    axis = n.axis(n.int("axis"), n.rank)
    return n.make("concat", values, axis=axis) if len(values) > 1 else values[0]


@importer("Split", 2, 11, 13, 18)
def _(n: Context) -> Result:
    axis = n.axis(n.int("axis", 0), n.rank)
    sizes = split_sizes(n, n.type(0).shape[axis])
    return [*n.make_all("split", n.value(0), axis=axis, sizes=sizes)]


@importer("Slice", 1, 10, 11, 13)
def _(n: Context) -> Value:
    bounds = slice_bounds(n, n.type(0).shape)
    return n.make(
        "slice", n.value(0), starts=bounds.starts, limits=bounds.limits, steps=bounds.steps
    )


@importer("Expand", 8, 13)
def _(n: Context) -> Value:
    shape = broadcast_shapes(n.type(0).shape, n.known(1, "target shape"))
    return n.make("expand", n.value(0), shape=shape)


@importer("Tile", 6, 13)
def _(n: Context) -> Value:
    return n.make("tile", n.value(0), repeats=tuple(n.known(1, "repeats")))


@importer("Pad", 2)
def _(n: Context) -> Value:
    value = n.float("value", 0.0)
    x, mode = n.value(0), n.string("mode", "constant")
    filling = n.scalar(value, x.tensor.dtype) if value and mode == "constant" else None
    return _pad(n, x, mode, list(n.ints("pads")), tuple(range(n.rank)), filling)


@importer("Pad", 11, 13, 18, 19, 21, 23, 24, 25)
def _(n: Context) -> Value:
    mode = n.string("mode", "constant")
    filling = as_scalar(n, n.value(2)) if n.has(2) and mode == "constant" else None
    axes = tuple(range(n.rank))
    if n.version >= 18 and n.has(3):
        axes = tuple(n.axis(axis, n.rank) for axis in n.known_ints(3, "axes"))
    return _pad(n, n.value(0), mode, n.known(1, "pads"), axes, filling)


def _pad(
    n: Context,
    x: Value,
    mode: str,
    pads: list[Dim],
    axes: tuple[int, ...],
    filling: Value | None,
) -> Value:
    n.require(len(pads) == 2 * len(axes), f"{len(pads)} pads for {len(axes)} axes")
    n.require(len(set(axes)) == len(axes), f"axes {list(axes)} name one axis twice")
    low: list[Dim] = [0] * x.tensor.rank
    high: list[Dim] = [0] * x.tensor.rank
    for place, axis in enumerate(axes):
        low[axis], high[axis] = pads[place], pads[place + len(axes)]
    return n.make("pad", x, filling, low=tuple(low), high=tuple(high), mode=mode)


@importer("DepthToSpace", 1, 11, 13, 28)
def _(n: Context) -> Value:
    mode = n.string("mode", "DCR") if n.version >= 11 else "DCR"
    return n.make("depth_to_space", n.value(0), block=n.int("blocksize"), mode=mode)


@importer("SpaceToDepth", 1, 13, 28)
def _(n: Context) -> Value:
    mode = n.string("mode", "DCR") if n.version >= 28 else "DCR"
    n.require(mode in ("DCR", "CRD"), f"mode {mode} is not DCR or CRD")
    x, block = n.value(0), n.int("blocksize")
    found = n.make("space_to_depth", x, block=block)
    if mode == "DCR":
        return found
    # The channels of one place of a block lie together: blocks become the inner axis.
    batch, channels, *sizes = found.tensor.shape
    each = x.tensor.shape[1]
    split = n.make("reshape", found, shape=(batch, block * block, each, *sizes))
    turned = n.make("transpose", split, permutation=(0, 2, 1, *range(3, 3 + len(sizes))))
    return n.make("reshape", turned, shape=(batch, channels, *sizes))


@importer("Trilu", 14)
def _(n: Context) -> Value:
    diagonal = n.known_ints(1, "k") if n.has(1) else (0,)
    n.require(len(diagonal) == 1, f"k has {len(diagonal)} elements")
    k = max(-(2**31), min(diagonal[0], 2**31))  # beyond every axis; larger ones would wrap
    return n.make("trilu", n.value(0), k=k, upper=n.flag("upper", True))


# ---- indexing


@importer("Gather", 1, 11, 13)
def _(n: Context) -> Value:
    axis = n.axis(n.int("axis", 0), n.rank)
    return n.make("gather", n.value(0), n.value(1), axis=axis)


@importer("GatherElements", 11, 13)
def _(n: Context) -> Value:
    axis = n.axis(n.int("axis", 0), n.rank)
    return n.make("gather_elements", n.value(0), n.value(1), axis=axis)


@importer("GatherND", 11, 12, 13)
def _(n: Context) -> Value:
    batch = n.int("batch_dims", 0) if n.version >= 12 else 0
    return n.make("gather_nd", n.value(0), n.value(1), batch_dims=batch)


@importer("Scatter", 9)
@importer("ScatterElements", 11, 13, 16, 18)
def _(n: Context) -> Value:
    axis = n.axis(n.int("axis", 0), n.rank)
    x, indices, updates = (n.value(i) for i in range(3))
    reduction = _reduction(n)
    return n.make("scatter_elements", x, indices, updates, axis=axis, reduction=reduction)


@importer("ScatterND", 11, 13, 16, 18)
def _(n: Context) -> Value:
    x, indices, updates = (n.value(i) for i in range(3))
    return n.make("scatter_nd", x, indices, updates, reduction=_reduction(n))


def _reduction(n: Context) -> str:
    """How an update and what is there become one; before opset 16 the update stays."""
    return n.string("reduction", "none") if n.version >= 16 else "none"


@importer("OneHot", 9, 11, 28)
def _(n: Context) -> Value:
    indices, rank = n.value(0), n.rank
    depth = _depth(n)
    if indices.tensor.dtype != I64:
        indices = n.make("cast", indices, to=I64)
    if n.version < 11:  # negative indices do not count from the end yet: they name nothing
        outside = n.make("less", indices, n.scalar(0, I64))
        indices = n.make("where", outside, n.scalar(depth, I64), indices)
    axis = n.axis(n.int("axis", -1), rank + 1)
    return n.make("one_hot", indices, n.value(2), depth=depth, axis=axis)


def _depth(n: Context) -> int:
    depth = np.asarray(n.constant(1, "depth")).reshape(-1)
    n.require(len(depth) == 1, f"depth has {len(depth)} elements")
    number = float(depth[0])
    n.require(0 <= number < 2**31, f"depth is {number:g}")
    return int(number)
