"""Axes, bounds and sizes as ONNX writes them (attributes or inputs) in the one form of tfc's ops.

Sizes may be expressions of dimensions; ONNX's rules on negative and too large bounds then become
min and max, which vanish wherever they can be proved away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfc.importers.onnx_context import Context
from tfc.ir.expr import Dim, Expr, as_expr, is_nonnegative, normal, product
from tfc.ops.base import is_at_most

UNREACHABLE = 1 << 40  # no dimension is as large; exporters write such bounds for "to the end"


def axes_of(n: Context, since: int, index: int = 1) -> tuple[int, ...] | None:
    """The axes of a node: an input since a version, an attribute before; None where not given."""
    if n.version >= since:
        return n.known_ints(index, "axes") if n.has(index) else None
    return n.ints("axes") if n.has_attribute("axes") else None


def smallest(a: Dim, b: Dim) -> Dim:
    """min(a, b), decided where it can be."""
    if is_at_most(as_expr(a), as_expr(b)):
        return normal(a)
    return normal(b) if is_at_most(as_expr(b), as_expr(a)) else normal(as_expr(a).min(b))


def largest(a: Dim, b: Dim) -> Dim:
    """max(a, b), decided where it can be."""
    if is_at_most(as_expr(a), as_expr(b)):
        return normal(b)
    return normal(a) if is_at_most(as_expr(b), as_expr(a)) else normal(as_expr(a).max(b))


def from_end(bound: Dim, size: Dim) -> Dim:
    """A bound that counts from the end where it is negative, counted from the front."""
    if isinstance(bound, int) and isinstance(size, Expr) and abs(bound) >= UNREACHABLE:
        return size if bound > 0 else -1
    if isinstance(bound, int):
        return bound if bound >= 0 else normal(as_expr(size) + bound)
    if is_nonnegative(bound):
        return bound
    # Its sign depends on the dimensions: 1 where it is negative, else 0, times the size.
    is_negative = 1 - largest(smallest(bound + 1, 1), 0)
    return normal(bound + as_expr(size) * is_negative)


# ---- reshape


def reshape_target(
    n: Context, shape: Sequence[Dim], target: Sequence[Dim], allow_zero: bool
) -> tuple[Dim, ...]:
    """The sizes that a target of Reshape stands for: 0 copies a size, one -1 is what is left."""
    sizes = [_copied(n, shape, axis, size, allow_zero) for axis, size in enumerate(target)]
    unknown = [axis for axis, size in enumerate(sizes) if size == -1]
    n.require(len(unknown) <= 1, f"the target {list(target)} has several -1")
    wrong = [size for size in sizes if isinstance(size, int) and size < -1]
    n.require(not wrong, f"the target {list(target)} has a negative size")
    for axis in unknown:
        others = product([size for size in sizes if size != -1])
        n.require(others != 0, f"the -1 of the target {list(target)} is not determined")
        sizes[axis] = normal(as_expr(product(list(shape))) // others)
    return tuple(sizes)


def _copied(n: Context, shape: Sequence[Dim], axis: int, size: Dim, allow_zero: bool) -> Dim:
    if size != 0 or allow_zero:
        return size
    n.require(axis < len(shape), f"size 0 at axis {axis} copies from a tensor of rank {len(shape)}")
    return shape[axis]


# ---- slice


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a slice, with an entry for each axis, as the op `slice` takes them."""

    starts: tuple[Dim, ...]
    limits: tuple[Dim, ...]
    steps: tuple[int, ...]


def slice_bounds(n: Context, shape: Sequence[Dim]) -> Bounds:
    """The bounds of a Slice node on a tensor of a shape."""
    starts, ends, axes, steps = _slice_inputs(n, len(shape))
    n.require(len(starts) == len(ends) == len(axes) == len(steps), "bounds of different numbers")
    n.require(0 not in steps, "a step is 0")
    n.require(len(set(axes)) == len(axes), f"axes {list(axes)} name one axis twice")
    bounds: list[tuple[Dim, Dim, int]] = [(0, size, 1) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        bounds[axis] = (*_one_slice(start, end, step, shape[axis]), step)
    return Bounds(
        tuple(start for start, _, _ in bounds),
        tuple(limit for _, limit, _ in bounds),
        tuple(step for _, _, step in bounds),
    )


def _slice_inputs(
    n: Context, rank: int
) -> tuple[list[Dim], list[Dim], tuple[int, ...], tuple[int, ...]]:
    if n.version < 10:
        starts, ends = list(n.ints("starts")), list(n.ints("ends"))
        axes = n.ints("axes", tuple(range(len(starts))))
        steps = (1,) * len(starts)
    else:
        starts, ends = n.known(1, "starts"), n.known(2, "ends")
        axes = n.known_ints(3, "axes") if n.has(3) else tuple(range(len(starts)))
        steps = n.known_ints(4, "steps") if n.has(4) else (1,) * len(starts)
    return list[Dim](starts), list[Dim](ends), tuple(n.axis(a, rank) for a in axes), steps


def _one_slice(start: Dim, end: Dim, step: int, size: Dim) -> tuple[Dim, Dim]:
    """(start, limit) of one axis, counted from the front and within it."""
    start, end = from_end(start, size), from_end(end, size)
    if step > 0:
        start = smallest(largest(start, 0), size)
        return start, largest(smallest(end, size), start)
    top = normal(as_expr(size) - 1)
    start = smallest(start, top)
    start = largest(start, -1) if not isinstance(size, int) or size == 0 else largest(start, 0)
    limit = smallest(largest(end, -1), top)
    return start, smallest(limit, start)


# ---- split


def split_sizes(n: Context, size: Dim) -> tuple[Dim, ...]:
    """The sizes of the parts of a Split node along an axis of a size."""
    count = len(n.node.outputs)
    given = _given_split(n)
    if given is not None:
        n.require(len(given) == count, f"{len(given)} sizes for {count} outputs")
        return given
    if n.version >= 18:
        wanted = n.int("num_outputs", count)
        n.require(wanted == count, f"num_outputs is {wanted}, but there are {count} outputs")
    part = normal((as_expr(size) + (count - 1)) // count)
    if n.version < 18:
        n.require(not isinstance(size, int) or size % count == 0, f"{size} / {count} is no size")
        return (normal(as_expr(size) // count),) * count
    # All parts but the last are equal; with few elements, parts at the end are smaller or empty.
    sizes: list[Dim] = []
    for index in range(count):
        begin = smallest(normal(as_expr(part) * index), size)
        end = smallest(normal(as_expr(part) * (index + 1)), size)
        sizes.append(normal(as_expr(end) - begin))
    return tuple(sizes)


def _given_split(n: Context) -> tuple[Dim, ...] | None:
    if n.version >= 13:
        return tuple(n.known(1, "split")) if n.has(1) else None
    return n.ints("split") if n.has_attribute("split") else None


# ---- broadcast


def broadcast_shapes(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
    """The common shape, aligned at the last axis; two sizes that may differ are left to the op."""
    rank = max(len(a), len(b))
    left = (1,) * (rank - len(a)) + tuple(a)
    right = (1,) * (rank - len(b)) + tuple(b)
    return tuple(_common(m, n) for m, n in zip(left, right, strict=True))


def _common(m: Dim, n: Dim) -> Dim:
    if m == 1:
        return n
    if n == 1 or isinstance(m, int):
        return m
    if isinstance(n, Expr) and len(str(m)) <= len(str(n)):
        return m
    return n
