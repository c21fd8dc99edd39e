"""The tiles of each group on a GPU: large, powers of two, with the warps that run them.

Tiles of products are chosen by a cost: the waves of programs over the processors, each with the
multiply-adds of a tile and the loads that feed them. Other tiles give each thread a few elements
along the contiguous axis.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tfc.ir.core import Value
from tfc.ir.expr import Dim
from tfc.ops.base import GraphOp
from tfc.ops.control import Fusion
from tfc.passes.lower.schedule import USUAL, hero, is_turned, reduced_memory_axes, reductions
from tfc.targets import Gpu
from tfc.tile.nest import computed_in
from tfc.tile.nests.elementwise import output_runs
from tfc.tile.nests.reduction import domain_runs
from tfc.tile.nests.schedule import Schedule
from tfc.tile.nests.schedule_gpu import (
    GpuAttention,
    GpuColumns,
    GpuContraction,
    GpuMap,
    GpuRows,
    GpuWindows,
    ImplicitProduct,
)

WARP = 32
ELEMENTS = 1024  # of a tile of a kernel that moves data
TURNED = 32  # rows and columns of a tile that is turned in shared memory
WHOLE_ROW = 16384  # elements of a row that is kept in the registers of a program
PIECE = 2048  # elements of a longer row at a time
DEPTH = 32  # of a step of the inner loop of a product, for elements of 32 bits
STAGES = 3
STEP = 2048  # elements of the keys of a step of attention
LATENCY = 1024  # multiply-adds that a step of a product could do while it waits


def choose_gpu(op: Fusion, gpu: Gpu) -> Schedule:
    """The schedule of a group for a GPU."""
    chooser: dict[str, Callable[[Fusion, Gpu], Schedule]] = {
        "map": _map,
        "concat": _concat,
        "scan": _scan,
        "reduction": _reduction,
        "contraction": _contraction,
        "convolution": _convolution,
        "pool": _pool,
        "attention": _attention,
    }
    return chooser[op.kind](op, gpu)


# ---- sizes


def _size(extent: Dim) -> int:
    return extent if isinstance(extent, int) else USUAL


def _up(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


def _tile(extent: Dim, limit: int) -> int:
    """The power of two up to `limit` that covers an extent with the least padding; the largest of
    them.
    """
    if not isinstance(extent, int):
        return limit
    extent = max(1, extent)
    sizes = [1 << i for i in range(_up(min(extent, limit)).bit_length())]
    sizes = [n for n in sizes if n >= min(WARP, sizes[-1])]
    return min(reversed(sizes), key=lambda n: -(-extent // n) * n)


def _covering(extent: Dim, limit: int) -> int:
    """The power of two that holds a whole axis, or the limit."""
    return min(_up(max(1, _size(extent))), limit) if isinstance(extent, int) else limit


def _warps(elements: int, each: int = 8, most: int = 8) -> int:
    """Warps of which a thread has about `each` elements."""
    return max(1, min(most, _up(elements // (WARP * each))))


# ---- what moves data


def _map(op: Fusion, _: Gpu) -> Schedule:
    runs = output_runs("trial", op.do)
    if not runs:
        return GpuMap(1, 1, 1)
    last = runs[-1].extent
    if len(runs) > 1 and is_turned(op, runs[-2].axes[-1], runs[-1].axes[-1]):
        rows, cols = _covering(runs[-2].extent, TURNED), _covering(last, TURNED)
        return GpuMap(rows, cols, _warps(rows * cols))
    cols = _tile(last, ELEMENTS)
    rows = _covering(runs[-2].extent, ELEMENTS // cols) if len(runs) > 1 else 1
    return GpuMap(rows, cols, _warps(rows * cols))


def _concat(op: Fusion, _: Gpu) -> Schedule:
    return GpuMap(1, ELEMENTS, _warps(ELEMENTS))


def _scan(op: Fusion, _: Gpu) -> Schedule:
    others = hero(op).beside  # type: ignore[attr-defined]
    cols = _tile(others[-1], 4 * WARP) if others else 1
    return GpuMap(1, cols, _warps(cols, 1))


# ---- reductions


def _reduction(op: Fusion, _: Gpu) -> Schedule:
    found = reductions(op)
    runs = domain_runs("trial", op.do, found)
    reduced = reduced_memory_axes(found[0].x.tensor, found[0].axes)
    inner = [r.extent for r in runs if r.axes[-1] in reduced]
    kept = [r.extent for r in runs if r.axes[-1] not in reduced]
    if runs and runs[-1].axes[-1] in reduced:
        plain = all(not r.function.startswith("arg") for r in found)
        return _rows(inner, kept, whole=plain and len(inner) == 1)
    if not kept:
        return GpuColumns(1, 1, 1)
    cols = _tile(kept[-1], 2 * WARP)
    rows = _covering(inner[-1], ELEMENTS // cols) if inner else 1
    return GpuColumns(rows, cols, _warps(rows * cols))


def _rows(inner: list[Dim], kept: list[Dim], whole: bool) -> Schedule:
    """Rows that fit the registers are one tile; of short ones a program has several."""
    extent = inner[-1]
    if whole and isinstance(extent, int) and 0 < extent <= WHOLE_ROW:
        rows = _covering(kept[-1], max(1, ELEMENTS // _up(extent))) if kept else 1
        return GpuRows(rows, 0, False, _warps(rows * _up(extent), most=16))
    cols = _covering(extent, PIECE)
    return GpuRows(1, cols, False, _warps(cols))


# ---- products


def _product_tiles(limit_cols: int) -> list[tuple[int, int, int]]:
    """Rows, columns and warps of the tiles of a product."""
    sizes = (128, 64, 32, 16)
    tiles = [(r, c, 8 if r * c >= 128 * 128 else 4) for r in sizes for c in sizes]
    return [t for t in tiles if t[1] <= limit_cols] or [(64, limit_cols, 4)]


def _best_tile(m: int, n: int, batches: int, gpu: Gpu, cols: list[int]) -> tuple[int, int, int]:
    """The tile of the least cost for the products of m rows by n columns."""

    def cost(tile: tuple[int, int, int]) -> tuple[float, int]:
        rows, columns, _ = tile
        programs = -(-m // rows) * -(-n // columns) * batches
        waves = max(1.0, programs / gpu.processors)
        return waves * (rows * columns + 24 * (rows + columns) + LATENCY), -rows * columns

    return min((t for t in _product_tiles(max(cols)) if t[1] in cols), key=cost)


def _depth(extent: Dim, value: Value) -> int:
    """What a step of the inner loop takes: a whole number of steps where that can be."""
    usual = DEPTH * 4 // max(2, value.tensor.dtype.bytes)
    if not isinstance(extent, int):
        return usual
    if extent % usual and extent % (usual // 2) == 0:
        return usual // 2
    return max(1, min(extent, usual))


def _contraction(op: Fusion, gpu: Gpu) -> Schedule:
    product = hero(op)
    lhs, _ = product.inputs
    shape = product.results[0].tensor.shape
    m, batches = _rows_and_batches(product)
    tile = (16, 16, 4)  # integers have no tensor cores, f64 needs twice the registers
    if computed_in(product.results[0].tensor.dtype).name == "f32":
        tile = _best_tile(m, _size(shape[-1]), batches, gpu, [128, 64, 32, 16])
    rows, cols, warps = tile
    depth = _depth(lhs.tensor.shape[-1], lhs)
    return GpuContraction(rows, cols, depth, 0, False, False, warps, STAGES)


def _rows_and_batches(product: GraphOp) -> tuple[int, int]:
    """Leading axes count as rows where the right operand has none."""
    sizes = [max(1, _size(n)) for n in product.results[0].tensor.shape[:-1]]
    if product.inputs[1].tensor.rank == 2:
        return prod(sizes), 1
    return (sizes[-1] if sizes else 1), prod(sizes[:-1])


def _convolution(op: Fusion, gpu: Gpu) -> Schedule:
    conv = hero(op)
    out, weight = conv.results[0].tensor, conv.inputs[1].tensor
    groups = conv.attributes.get("groups", 1)
    each = _size(out.shape[1]) // groups
    static = isinstance(out.shape[1], int) and isinstance(weight.shape[1], int)
    cols = [n for n in (128, 64, 32, 16) if groups == 1 or each % n == 0]
    if not static or not cols or computed_in(out.dtype).name != "f32":
        return _windows(conv)
    pixels = prod(max(1, _size(n)) for n in (out.shape[0], *out.shape[2:]))
    rows, channels, warps = _best_tile(pixels, each, groups, gpu, cols)
    depth = _depth(_up16(weight.shape[1]), conv.inputs[0])
    return ImplicitProduct(warps, STAGES, pixels=rows, channels=channels, depth=depth)


def _up16(n: Dim) -> int:
    return -(-_size(n) // 16) * 16


def _windows(node: GraphOp) -> Schedule:
    out = node.results[0].tensor
    if out.layout is not None:
        rows = _covering(out.shape[-1], 64)
        return GpuWindows(rows, 16, _warps(rows * 16))
    cols = _tile(out.shape[-1], 128)
    rows = _covering(out.shape[1], max(1, ELEMENTS // 2 // cols)) if out.rank > 2 else 1
    return GpuWindows(rows, cols, _warps(rows * cols))


def _pool(op: Fusion, _: Gpu) -> Schedule:
    return _windows(hero(op))


def _attention(op: Fusion, _: Gpu) -> Schedule:
    """Fewer keys a step for wider heads: what a thread holds of a step must fit its registers."""
    query, key, value = hero(op).inputs[:3]
    width = max(_up(_size(v.tensor.shape[-1])) for v in (key, value))
    queries = _covering(query.tensor.shape[-2], 64 if width <= 128 else 32)
    keys = _covering(key.tensor.shape[-2], max(16, min(32, STEP // width)))
    return GpuAttention(queries, keys, warps=8, stages=2)
