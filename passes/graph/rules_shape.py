"""The rules of `canonicalize` on ops that move elements: none of them computes anything."""

from __future__ import annotations

import numpy as np

from tfc.ir.core import Op, Value
from tfc.ir.expr import Dim, as_expr, normal
from tfc.ir.rewriting import Pattern, Rewriter, pattern
from tfc.ops.base import Elementwise, View
from tfc.ops.constant import ShapeOf, constant
from tfc.ops.reduction import ReduceMax, ReduceMin, Reduction
from tfc.ops.shape import Concat, Pad, Split
from tfc.ops.view import (
    Expand,
    Flatten,
    Identity,
    Reshape,
    Slice,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
)

NO_OPS = (Reshape, Transpose, Slice, Expand, Tile, Identity, Squeeze, Unsqueeze, Flatten)


@pattern("view-of-nothing", View)
def view_of_nothing(op: View, rewriter: Rewriter) -> bool:
    """A view that shows every element where it is -> the operand."""
    unmoved = (
        not isinstance(op, Transpose) or op.permutation == tuple(range(len(op.permutation)))
    ) and (not isinstance(op, Slice) or all(step == 1 for step in op.steps))
    if not isinstance(op, NO_OPS) or op.result.type != op.x.type or not unmoved:
        return False
    rewriter.replace(op, op.x)
    return True


@pattern("reshape-reshape", View)
def reshape_reshape(op: View, rewriter: Rewriter) -> bool:
    """A reshape of a reshape -> one reshape; squeeze, unsqueeze and flatten too."""
    same = Reshape, Squeeze, Unsqueeze, Flatten
    inner = op.x.owner
    if not isinstance(op, same) or not isinstance(inner, same) or _has_layout(op, inner):
        return False
    rewriter.fuse(inner)
    rewriter.replace(op, rewriter.value(Reshape(inner.x, op.result.tensor.shape)))
    return True


@pattern("transpose-transpose", Transpose)
def transpose_transpose(op: Transpose, rewriter: Rewriter) -> bool:
    """A transpose of a transpose -> one transpose."""
    inner = op.x.owner
    if not isinstance(inner, Transpose) or _has_layout(op, inner):
        return False
    rewriter.fuse(inner)
    order = tuple(inner.permutation[axis] for axis in op.permutation)
    rewriter.replace(op, rewriter.value(Transpose(inner.x, order)))
    return True


@pattern("transpose-to-reshape", Transpose)
def transpose_to_reshape(op: Transpose, rewriter: Rewriter) -> bool:
    """A transpose that moves only axes of size 1 -> a reshape, which moves nothing in memory."""
    shape = op.x.tensor.shape
    moved = [axis for axis in op.permutation if shape[axis] != 1]
    if moved != sorted(moved) or _has_layout(op):
        return False
    rewriter.replace(op, rewriter.value(Reshape(op.x, op.result.tensor.shape)))
    return True


@pattern("expand-expand", Expand)
def expand_expand(op: Expand, rewriter: Rewriter) -> bool:
    """An expand of an expand -> one expand."""
    inner = op.x.owner
    if not isinstance(inner, Expand) or _has_layout(op, inner):
        return False
    rewriter.fuse(inner)
    rewriter.replace(op, rewriter.value(Expand(inner.x, op.shape)))
    return True


@pattern("slice-slice", Slice)
def slice_slice(op: Slice, rewriter: Rewriter) -> bool:
    """A slice of a slice, with positive steps -> one slice."""
    inner = op.x.owner
    if not isinstance(inner, Slice) or _has_layout(op, inner):
        return False
    bounds = [_slice_axis(inner, op, axis) for axis in range(len(op.steps))]
    if None in bounds:
        return False
    found = [b for b in bounds if b is not None]
    starts, limits = tuple(b[0] for b in found), tuple(b[1] for b in found)
    steps = tuple(b[2] for b in found)
    rewriter.fuse(inner)
    return _same_type(op, Slice(inner.x, starts, limits, steps), rewriter)


def _slice_axis(inner: Slice, outer: Slice, axis: int) -> tuple[Dim, Dim, int] | None:
    """Start, limit and step of two slices in one; None where that would need a new entry check."""
    step, size = inner.steps[axis], outer.result.tensor.shape[axis]
    first = inner.starts[axis]
    start = as_expr(first) + as_expr(outer.starts[axis]) * step
    both = step * outer.steps[axis]
    if step < 1 or outer.steps[axis] < 1:
        return None
    if step == 1:
        return normal(start), normal(as_expr(first) + outer.limits[axis]), both
    if size == 0:
        return first, first, both
    last = start + (as_expr(size) - 1) * both
    return (normal(start), normal(last + 1), both) if isinstance(size, int) else None


# ---- joins and cuts


@pattern("concat-of-one", Concat)
def concat_of_one(op: Concat, rewriter: Rewriter) -> bool:
    """Operands without elements go; one that is left alone is the result."""
    kept = [v for v in op.parts if v.tensor.shape[op.axis] != 0] or op.parts[:1]
    if len(kept) == 1 and kept[0].type == op.result.type:
        rewriter.replace(op, kept[0])
        return True
    if len(kept) == len(op.parts):
        return False
    return _same_type(op, Concat(kept, axis=op.axis), rewriter)


@pattern("concat-concat", Concat)
def concat_concat(op: Concat, rewriter: Rewriter) -> bool:
    """A concat of concats along the same axis -> one concat."""
    parts: list[Value] = []
    for part in op.parts:
        inner = part.owner
        nested = isinstance(inner, Concat) and inner.axis == op.axis and len(part.uses) == 1
        parts += inner.parts if nested and isinstance(inner, Concat) else [part]
    return len(parts) > len(op.parts) and _same_type(op, Concat(parts, axis=op.axis), rewriter)


@pattern("split-of-one", Split)
def split_of_one(op: Split, rewriter: Rewriter) -> bool:
    """A split into one piece -> the operand."""
    if len(op.results) != 1 or op.results[0].type != op.x.type:
        return False
    rewriter.replace(op, op.x)
    return True


@pattern("split-concat", Split)
def split_concat(op: Split, rewriter: Rewriter) -> bool:
    """A split that undoes a concat -> its operands."""
    inner = op.x.owner
    if not isinstance(inner, Concat) or inner.axis != op.axis:
        return False
    if [v.type for v in inner.parts] != [v.type for v in op.results]:
        return False
    rewriter.replace(op, *inner.parts)
    return True


@pattern("concat-split", Concat)
def concat_split(op: Concat, rewriter: Rewriter) -> bool:
    """A concat that undoes a split -> its operand."""
    inner = op.parts[0].owner
    if not isinstance(inner, Split) or inner.axis != op.axis or op.parts != inner.results:
        return False
    if inner.x.type != op.result.type:
        return False
    rewriter.replace(op, inner.x)
    return True


@pattern("pad-by-nothing", Pad)
def pad_by_nothing(op: Pad, rewriter: Rewriter) -> bool:
    """A pad without padding -> the operand."""
    if any(n != 0 for n in (*op.low, *op.high)) or op.result.type != op.x.type:
        return False
    rewriter.replace(op, op.x)
    return True


# ---- broadcasting and the rest


@pattern("absorb-expand", Elementwise)
def absorb_expand(op: Elementwise, rewriter: Rewriter) -> bool:
    """An operand that is expanded where broadcasting does the same -> what it is expanded from."""
    for index, value in enumerate(op.operands):
        inner = value.owner if value is not None else None
        if not isinstance(inner, Expand) or _has_layout(op, inner):
            continue
        operands = [inner.x if i == index else v for i, v in enumerate(op.operands)]
        shorter = type(op).build(operands, dict(op.attributes), [])
        fits = shorter.infer() == [op.result.type]
        shorter.erase()
        if fits:
            rewriter.set_operand(op, index, inner.x)
            return True
    return False


@pattern("reduce-nothing", Reduction)
def reduce_nothing(op: Reduction, rewriter: Rewriter) -> bool:
    """A maximum or minimum over no axes, or over axes of size 1 -> the operand, reshaped."""
    shape = op.x.tensor.shape
    if not isinstance(op, ReduceMax | ReduceMin) or any(shape[axis] != 1 for axis in op.axes):
        return False
    if _has_layout(op):
        return False
    rewriter.replace(op, rewriter.value(Reshape(op.x, op.result.tensor.shape)))
    return True


@pattern("shape-of-static", ShapeOf)
def shape_of_static(op: ShapeOf, rewriter: Rewriter) -> bool:
    """The shape of a tensor whose sizes are known -> a constant."""
    sizes = [n for n in op.x.tensor.shape[op.start : op.end] if isinstance(n, int)]
    if len(sizes) != op.end - op.start:
        return False
    rewriter.replace(op, constant(rewriter, np.array(sizes, np.int64)))
    return True


def _has_layout(*ops: Op) -> bool:
    """Whether a tensor around these ops does not lie in row-major order."""
    return any(v.tensor.layout is not None for op in ops for v in (*op.inputs, *op.results))


def _same_type(op: Op, better: Op, rewriter: Rewriter) -> bool:
    """Replaces an op by another, unless that has another type, and so another entry check."""
    if [v.type for v in better.results] != [v.type for v in op.results]:
        better.erase()
        return False
    rewriter.replace(op, *rewriter.add(better).results)
    return True


RULES: tuple[Pattern, ...] = (
    view_of_nothing,
    reshape_reshape,
    transpose_transpose,
    transpose_to_reshape,
    expand_expand,
    slice_slice,
    concat_of_one,
    concat_concat,
    split_of_one,
    split_concat,
    concat_split,
    pad_by_nothing,
    absorb_expand,
    reduce_nothing,
    shape_of_static,
)
