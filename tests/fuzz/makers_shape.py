"""Makers of views, joins, gathers, and of tensors from nothing."""

from __future__ import annotations

from tests.fuzz.graphs import Graph, Made, Shape
from tests.fuzz.makers import makes
from tfc.ir.core import OPS, Block, Value
from tfc.ir.expr import Dim, as_expr, normal, product
from tfc.ir.types import BOOL, I64, TensorType
from tfc.ops.base import ANY, NUMERIC
from tfc.ops.constant import DimValue, Full, Iota, Range, ShapeOf
from tfc.ops.control import If, Yield
from tfc.ops.indexing import Gather, GatherElements, GatherNd, OneHot
from tfc.ops.rearrange import DepthToSpace, SpaceToDepth, Trilu
from tfc.ops.shape import Concat, Pad, Split
from tfc.ops.view import Expand, Flatten, Reshape, Slice, Tile, Transpose, Unsqueeze

# ---- views


@makes("reshape", "flatten", weight=2.0)
def reshape(g: Graph, name: str) -> Made:
    x = g.operand(ANY)
    if name == "flatten":
        return g.add(Flatten(x, g.some(0, x.tensor.rank)))
    return g.add(Reshape(x, _reshaped(g, x.tensor.shape)))


def _reshaped(g: Graph, shape: Shape) -> Shape:
    """Dimensions joined with their neighbours, split by a factor, and 1s."""
    found = list(shape)
    for _ in range(g.some(1, 3)):
        match g.some(0, 3):
            case 0 if len(found) > 1:
                axis = g.some(0, len(found) - 2)
                found[axis : axis + 2] = [product(found[axis : axis + 2])]
            case 1 if found and len(found) < 5:
                axis = g.some(0, len(found) - 1)
                size = found[axis]
                factors = [n for n in (2, 3, 4, 5, 8) if (as_expr(size) % n).constant == 0]
                if factors and size != 0:
                    factor = g.pick(factors)
                    parts: list[Dim] = [factor, normal(as_expr(size) // factor)]
                    found[axis : axis + 1] = parts if g.chance(0.5) else parts[::-1]
            case 2 if len(found) < 5:
                found.insert(g.some(0, len(found)), 1)
            case 3 if 1 in found:
                found.remove(1)
            case _:
                pass
    return tuple(found)


@makes("squeeze", "unsqueeze", "identity", "stop_gradient", "optimization_barrier", weight=0.6)
def ones(g: Graph, name: str) -> Made:
    if name in ("identity", "stop_gradient", "optimization_barrier"):
        return g.add(OPS[name](g.operand(ANY)))
    if name == "unsqueeze":
        x = g.operand(ANY, high=4)
        return g.add(Unsqueeze(x, (g.some(0, x.tensor.rank),)))
    x = g.operand(ANY, low=1, where=lambda t: 1 in t.shape)
    axes = [a for a, n in enumerate(x.tensor.shape) if n == 1]
    chosen = tuple(sorted(g.random.sample(axes, g.some(1, len(axes)))))
    return g.add(OPS["squeeze"](x, chosen))


@makes("transpose", weight=2.0)
def transpose(g: Graph, name: str) -> Made:
    x = g.operand(ANY, low=1)
    order = list(range(x.tensor.rank))
    if g.chance(0.4) and len(order) > 1:
        order[-1], order[-2] = order[-2], order[-1]
    else:
        g.random.shuffle(order)
    return g.add(Transpose(x, tuple(order)))


@makes("slice", weight=2.0)
def slice_(g: Graph, name: str) -> Made:
    x = g.operand(ANY, low=1)
    bounds = [_bounds(g, n) for n in x.tensor.shape]
    starts, limits, steps = zip(*bounds, strict=True)
    return g.add(Slice(x, starts, limits, steps))


def _bounds(g: Graph, size: Dim) -> tuple[Dim, Dim, int]:
    if g.chance(0.4):
        return 0, size, 1
    smallest = min(g.at(size, i) for i in range(len(g.bindings)))
    start = g.some(0, min(smallest, 4))
    limit: Dim = g.some(start, smallest)
    if not isinstance(size, int) and g.chance(0.5):
        limit = normal(as_expr(size) - g.some(0, smallest - start))
    if g.chance(0.25) and smallest > 0:
        # Downward: from the last element, or from the limit.
        first = normal(as_expr(limit) - 1)
        return first, start - 1, -g.pick([1, 1, 2, 3])
    return start, limit, g.pick([1, 1, 1, 2, 3])


@makes("expand", "tile", weight=1.0)
def repeat(g: Graph, name: str) -> Made:
    x = g.operand(ANY)
    if name == "tile":
        repeats = tuple(
            g.pick([1, 1, 2, 3, 0] if g.chance(0.1) else [1, 1, 2, 3]) for _ in x.tensor.shape
        )
        if not g.fits(
            [normal(as_expr(n) * k) for n, k in zip(x.tensor.shape, repeats, strict=True)]
        ):
            return None
        return g.add(Tile(x, repeats))
    shape = [g.size(5) if n == 1 and g.chance(0.7) else n for n in x.tensor.shape]
    for _ in range(g.some(0, 5 - len(shape)) if g.chance(0.5) else 0):
        shape.insert(0, g.size(4))
    return g.add(Expand(x, tuple(shape))) if g.fits(shape) else None


# ---- joining, cutting, padding


@makes("concat", weight=1.5)
def concat(g: Graph, name: str) -> Made:
    x = g.operand(ANY, low=1)
    axis = g.some(0, x.tensor.rank - 1)
    parts = [x]
    for _ in range(g.pick([0, 1, 1, 2, 3])):
        parts.append(_part(g, x.tensor, axis))
    g.random.shuffle(parts)
    total = sum((as_expr(p.tensor.shape[axis]) for p in parts), as_expr(0))
    whole = [*x.tensor.shape]
    whole[axis] = normal(total)
    return g.add(Concat(parts, axis)) if g.fits(whole) else None


def _part(g: Graph, kind: TensorType, axis: int) -> Value:
    """Something that can be joined to a tensor along an axis."""

    def joins(t: TensorType) -> bool:
        if t.dtype != kind.dtype or t.rank != kind.rank:
            return False
        return all(
            m == n or a == axis for a, (m, n) in enumerate(zip(t.shape, kind.shape, strict=True))
        )

    old = [v for v in g.values if joins(v.tensor)]
    if old and g.chance(0.6):
        return g.pick(old)
    shape = list(kind.shape)
    shape[axis] = g.size(6)
    return g.leaf(kind.dtype, tuple(shape))


@makes("split", weight=0.8)
def split(g: Graph, name: str) -> Made:
    x = g.operand(ANY, low=1)
    axis = g.some(0, x.tensor.rank - 1)
    size = x.tensor.shape[axis]
    smallest = min(g.at(size, i) for i in range(len(g.bindings)))
    sizes: list[Dim] = []
    rest = as_expr(size)
    for _ in range(g.some(0, 2)):
        part = g.some(0, smallest)
        smallest -= part
        sizes.append(part)
        rest = rest - part
    sizes.append(normal(rest))
    g.random.shuffle(sizes)
    return g.add(Split(x, axis, tuple(sizes)))


@makes("pad", weight=1.2)
def pad(g: Graph, name: str) -> Made:
    x = g.operand(ANY, low=1)
    mode = g.pick(["constant", "constant", "reflect", "edge", "wrap"])
    low: list[Dim] = []
    high: list[Dim] = []
    for size in x.tensor.shape:
        smallest = min(g.at(size, i) for i in range(len(g.bindings)))
        least = -g.some(0, smallest // 2) if mode == "constant" and g.chance(0.3) else 0
        amounts: list[Dim] = [g.some(least, 3) if g.chance(0.6) else 0 for _ in range(2)]
        if mode != "constant" and size == 0:
            amounts = [0, 0]
        if g.bindings[0] and g.chance(0.05) and mode != "reflect":
            amounts[1] = size
        low.append(amounts[0])
        high.append(amounts[1])
    shape = [normal(as_expr(n) + a + b) for n, a, b in zip(x.tensor.shape, low, high, strict=True)]
    if not g.fits(shape):
        return None
    value = g.like(x.tensor.dtype, ()) if mode == "constant" and g.chance(0.6) else None
    return g.add(Pad(x, value, low=tuple(low), high=tuple(high), mode=mode))


# ---- gathers


@makes("gather", "gather_elements", "gather_nd", weight=1.5)
def gather(g: Graph, name: str) -> Made:
    x = g.operand(ANY, low=1)
    shape, axis = x.tensor.shape, g.some(0, x.tensor.rank - 1)
    if name == "gather":
        places = g.shape(0, 3)
        if not g.fits([*shape[:axis], *places, *shape[axis + 1 :]]):
            return None
        return g.add(Gather(x, _indices(g, places, shape[axis]), axis))
    if name == "gather_elements":
        places = tuple(g.size() if a == axis else _no_larger(g, n) for a, n in enumerate(shape))
        return (
            g.add(GatherElements(x, _indices(g, places, shape[axis]), axis))
            if g.fits(places)
            else None
        )
    batch = g.some(0, x.tensor.rank - 1) if g.chance(0.4) else 0
    length = g.some(1, x.tensor.rank - batch)
    sizes = shape[batch : batch + length]
    if length > 1 and any(n != sizes[0] for n in sizes):
        length, sizes = 1, sizes[:1]
    places = (*shape[:batch], *g.shape(0, 2), length)
    if len(places) > 5 or not g.fits([*places, *shape[batch + length :]]):
        return None
    return g.add(GatherNd(x, _indices(g, places, sizes[0]), batch))


@makes("scatter_nd", "scatter_elements", weight=0.8)
def scatter(g: Graph, name: str) -> Made:
    x = g.operand(ANY, low=1)
    shape, dtype = x.tensor.shape, x.tensor.dtype
    # The order in which a product of halves is rounded is left open, as that of other updates.
    reduction = "none" if dtype == BOOL else g.pick(["none", "add", "max", "min"])
    axis = g.some(0, x.tensor.rank - 1) if name == "scatter_elements" else 0
    if name == "scatter_elements":
        places = tuple(g.some(1, 3) if a == axis else n for a, n in enumerate(shape))
        rest: Shape = places
    else:
        places = (*g.shape(0, 2), 1)
        rest = (*places[:-1], *shape[1:])
    if len(rest) > 5 or not g.fits([*rest, 1]):
        return None
    updates = g.like(dtype, rest)
    indices = _indices(g, places, shape[axis])
    options = {"axis": axis} if name == "scatter_elements" else {}
    return g.add(OPS[name](x, indices, updates, reduction=reduction, **options))


def _no_larger(g: Graph, n: Dim) -> Dim:
    return g.some(1, n) if isinstance(n, int) and n > 1 and g.chance(0.4) else n


def _indices(g: Graph, shape: Shape, size: Dim) -> Value:
    """Indices into an axis: an input, or what argmax along an axis of this size gave."""
    old = [v for v in g.values if v.tensor == TensorType(I64, shape) and _is_position(v, size)]
    if old and g.chance(0.7):
        return g.pick(old)
    return g.integer_input(shape, size)


def _is_position(value: Value, size: Dim) -> bool:
    op = value.producer
    if op is None or op.name not in ("argmax", "argmin"):
        return False
    return op.inputs[0].tensor.shape[op.attributes["axis"]] == size


@makes("one_hot", "trilu", "depth_to_space", "space_to_depth", weight=1.0)
def rearranged(g: Graph, name: str) -> Made:
    match name:
        case "one_hot":
            places, depth = g.shape(0, 3), g.size(6)
            axis = g.some(0, len(places))
            if not g.fits([*places, depth]):
                return None
            indices = g.integer_input(places, normal(as_expr(depth) + 1))
            return g.add(OneHot(indices, g.like(g.dtype(ANY), (2,)), depth=depth, axis=axis))
        case "trilu":
            return g.add(Trilu(g.operand(ANY, low=2), g.some(-3, 3), g.chance(0.5)))
        case "depth_to_space":
            block = g.some(1, 3)
            shape = (g.size(3), block * block * g.some(1, 3), g.size(4), g.size(4))
            x = g.like(g.dtype(ANY), shape) if g.fits(shape) else None
            return x and g.add(DepthToSpace(x, block, g.pick(["DCR", "CRD"])))
        case _:
            block = g.some(1, 3)
            sizes = [normal(as_expr(g.size(3)) * block) for _ in range(2)]
            shape = (g.size(3), g.some(1, 3), *sizes)
            x = g.like(g.dtype(ANY), shape) if g.fits(shape) else None
            return x and g.add(SpaceToDepth(x, block))


# ---- from nothing


@makes("iota", "range", "full", "dim_value", "shape_of", weight=1.0)
def from_nothing(g: Graph, name: str) -> Made:
    match name:
        case "iota":
            shape = g.shape(1, 3)
            return g.add(Iota(shape, g.some(0, len(shape) - 1), g.dtype(NUMERIC)))
        case "range":
            dtype = g.dtype(NUMERIC)
            start, step = (g.like(dtype, ()) if g.chance(0.6) else None for _ in range(2))
            return g.add(Range(start, step, size=g.size(12), dtype=dtype))
        case "full":
            return g.add(Full(g.like(g.dtype(ANY), ()), shape=g.shape()))
        case "dim_value":
            return g.add(DimValue(g.size()))
        case _:
            x = g.operand(ANY)
            start = g.some(0, x.tensor.rank)
            return g.add(ShapeOf(x, start, g.some(start, x.tensor.rank)))


# ---- control


@makes("if", weight=0.15)
def choice(g: Graph, name: str) -> Made:
    """Either branch is an op of a value from outside, or the value itself."""
    x = g.operand(NUMERIC)
    blocks: list[Block] = []
    for kind in ("abs", "relu"):
        block = Block()
        y = block.append(OPS[kind](x)).results[0] if g.chance(0.7) else x
        block.append(Yield([y]))
        blocks.append(block)
    condition = g.like(BOOL, ())
    return g.add(If(condition, types=[x.type], then=blocks[0], else_=blocks[1]))
