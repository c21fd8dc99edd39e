"""schedule: chooses tiles for every group, from the target's registers and the shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tfc.ir.core import Module, Op, Value
from tfc.ir.expr import Dim, Expr, as_expr
from tfc.ir.types import TensorType
from tfc.ops.base import GraphOp
from tfc.ops.control import Fusion
from tfc.ops.convolution import AveragePool
from tfc.passes.base import Pass, PassContext, register
from tfc.targets import Target, resolve
from tfc.tile import ops as t
from tfc.tile.nest import Nest, coefficient, computed_in
from tfc.tile.nests.elementwise import output_runs
from tfc.tile.nests.reduction import Reduction, domain_runs
from tfc.tile.nests.runs import trace
from tfc.tile.nests.schedule import (
    AttentionSchedule,
    ColumnSchedule,
    ContractionSchedule,
    ConvolutionSchedule,
    MapSchedule,
    RowSchedule,
    Schedule,
    WindowSchedule,
)

USUAL = 128  # what a symbolic extent is taken for
HEAVY = ("exp", "erf", "tanh", "sigmoid", "softplus", "log", "expm1", "log1p", "pow")
WHOLE_ROW = 16384  # elements of a row that is kept as one tile
STAGE_BYTES = 48 << 10  # of scratch that a staged panel may take
FAR = 2.0  # cycles for a register of weights that the second cache does not keep for the next row


@register("schedule")
@dataclass(frozen=True)
class SchedulePass(Pass):
    """Writes the attribute `schedule` of each `fusion` that has none.

    Register tiles of contractions and convolutions come from a cost model: a step of the inner axis
    costs the larger of its multiply-adds and its loads, two of each a cycle, and a shape costs its
    tiles, ragged ones too.

    Before:
    ```mlir
    func @main(%x: tensor<64xf32>) -> (%y: tensor<64xf32>) {
      %y = fusion(%x) {kind = "map"} : tensor<64xf32>
          do(%u: tensor<64xf32>) {
        %t = exp(%u) : tensor<64xf32>
        yield %t
      }
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<64xf32>) -> (%y: tensor<64xf32>) {
      %y = fusion(%x) {kind = "map", schedule = "rows=1,cols=64"} : tensor<64xf32>
          do(%u: tensor<64xf32>) {
        %t = exp(%u) : tensor<64xf32>
        yield %t
      }
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        target = context.target or resolve("host")
        changed = False
        for function in module.functions.values():
            for op in function.body.walk():
                if isinstance(op, Fusion) and not op.schedule and context.allow("schedule"):
                    op.set_attribute("schedule", str(choose(op, target)))
                    changed = True
        return changed


def choose(op: Fusion, target: Target) -> Schedule:
    """The schedule of a group for a target."""
    if target.gpu is not None:
        from tfc.passes.lower.schedule_gpu import choose_gpu

        return choose_gpu(op, target.gpu)
    chooser: dict[str, Callable[[Fusion, Target], Schedule]] = {
        "map": _map,
        "concat": _concat,
        "scan": _scan,
        "reduction": _reduction,
        "contraction": _contraction,
        "convolution": _convolution,
        "pool": _pool,
        "attention": _attention,
    }
    return chooser[op.kind](op, target)


def hero(op: Fusion) -> GraphOp:
    """The op that a group is built around."""
    return next(o for o in op.do if isinstance(o, GraphOp) and o.hero == op.kind)


def reductions(op: Fusion) -> list[Reduction]:
    """The reductions of a group, in order."""
    return [o.folding() for o in op.do if getattr(o, "hero", "") == "reduction"]  # type: ignore[attr-defined]


def lanes(target: Target, *values: Value) -> int:
    """How many elements a vector register holds, by the widest type that is computed with."""
    widest = max((computed_in(v.tensor.dtype).bytes for v in values), default=4)
    return target.lanes(max(widest, 4))


def _size(extent: Dim) -> int:
    return extent if isinstance(extent, int) else USUAL


def _below(extent: Dim, limit: int) -> int:
    """A tile's extent: the whole axis where that is smaller than the limit."""
    return max(1, min(_size(extent), limit)) if isinstance(extent, int) else limit


def _even(extent: Dim, limit: int) -> int:
    """The extent of tiles up to a limit that cover an axis with little left over."""
    if not isinstance(extent, int):
        return limit
    return max(1, -(-extent // max(1, -(-extent // limit))))


def _is_heavy(op: Fusion) -> bool:
    return any(getattr(o, "function", "") in HEAVY for o in op.do)


# ---- elementwise


def _map(op: Fusion, target: Target) -> Schedule:
    vector = lanes(target, *_yielded(op))
    runs = output_runs("trial", op.do)
    if not runs:
        return MapSchedule(1, 1)
    last = runs[-1].extent
    if len(runs) > 1 and is_turned(op, runs[-2].axes[-1], runs[-1].axes[-1]):
        return MapSchedule(_below(runs[-2].extent, vector), _below(last, vector))
    cols = _below(last, 16 * vector)
    rows = 1
    if len(runs) > 1 and cols < 4 * vector:
        rows = _below(runs[-2].extent, max(1, 8 * vector // cols))
    return MapSchedule(rows, cols)


def is_turned(op: Fusion, row: int, column: int) -> bool:
    """Whether an operand is contiguous along the rows of the output's tiles, not the columns."""
    for e in trace("trial", op.do, 0):
        a, b = coefficient(e, f"y{row}"), coefficient(e, f"y{column}")
        if a == 1 and b is not None and b not in (0, 1):
            return True
    return False


def _concat(op: Fusion, target: Target) -> Schedule:
    return MapSchedule(1, 16 * lanes(target, *_yielded(op)))


def _scan(op: Fusion, target: Target) -> Schedule:
    x = hero(op).inputs[0]
    others = hero(op).beside  # type: ignore[attr-defined]
    return MapSchedule(1, _below(others[-1], 4 * lanes(target, x)) if others else 1)


def _yielded(op: Fusion) -> list[Value]:
    return op.do.terminator.inputs


# ---- reductions


def _reduction(op: Fusion, target: Target) -> Schedule:
    found = reductions(op)
    runs = domain_runs("trial", op.do, found)
    x = found[0].x.tensor
    vector = lanes(target, *(r.x for r in found))
    reduced = reduced_memory_axes(x, found[0].axes)
    inner = [r for r in runs if r.axes[-1] in reduced]
    kept = [r for r in runs if r.axes[-1] not in reduced]
    if runs and runs[-1].axes[-1] in reduced:
        extent = runs[-1].extent
        plain = all(not r.function.startswith("arg") for r in found)
        if plain and len(inner) == 1 and isinstance(extent, int) and 0 < extent <= WHOLE_ROW:
            most = max(4 * vector // extent, _rows_in_cache(x, extent, target))
            return RowSchedule(_below(kept[-1].extent, most) if kept else 1, 0)
        cols = _below(extent, 4 * vector)
        return RowSchedule(1, max(1, cols))
    if not kept:
        return ColumnSchedule(1, 1)
    cols = _below(kept[-1].extent, 4 * vector)
    rows = max(1, 8 * vector // max(cols, vector)) if inner else 1
    return ColumnSchedule(_below(inner[-1].extent, rows) if inner else 1, cols)


def _rows_in_cache(x: TensorType, extent: int, target: Target) -> int:
    """Rows whose reductions follow one another, so that none waits for the sum across its lanes.

    Up to four (softmax 1537x128 123 us, so 104; layer norm 511x384 69 us, so 49), if the rows, a
    copy and the results take three quarters of the first cache.
    """
    row = 4 * extent * max(computed_in(x.dtype).bytes, 4)
    return max(1, min(4, target.l1_bytes // row))


def reduced_memory_axes(x: TensorType, axes: tuple[int, ...]) -> set[int]:
    if x.layout is None:
        return set(axes)
    return {i for i, (axis, _) in enumerate(x.layout.loops) if axis in axes}


# ---- register tiles


def step_cost(rows: int, vectors: int) -> float:
    """Cycles of one step of the inner axis: multiply-adds or loads, whichever takes longer."""
    return max(rows * vectors, rows + vectors) / 2 + 0.5


def register_tiles(target: Target) -> Iterator[tuple[int, int]]:
    """Rows and vectors of the tiles whose accumulators and operands fit the registers."""
    spare = 1 if target.avx512 else 2  # AVX-512 multiplies by a broadcast from memory
    for vectors in (3, 2, 4, 1):
        most = (target.vector_registers - vectors - spare) // vectors
        for rows in range(min(most, 14), 0, -1):
            yield rows, vectors


def _contraction(op: Fusion, target: Target) -> Schedule:
    product = hero(op)
    lhs, rhs = product.inputs
    vector = lanes(target, product.results[0])
    shape = product.results[0].tensor.shape
    m = _rows_of_contraction(op, product)
    n, depth = _size(shape[-1]), lhs.tensor.shape[-1]

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        tiles = -(-m // rows) * -(-n // (vectors * vector))
        return tiles * (step_cost(rows, vectors) * max(_size(depth), 1) + 4 * vectors * rows)

    rows, vectors = min(register_tiles(target), key=cost)
    cols = _below(shape[-1], vectors * vector)
    turned = _is_rhs_turned(op, product, rhs) and isinstance(depth, int) and depth > 0
    strip = 0
    if turned:
        room = STAGE_BYTES // (_size(depth) * 4) // vector * vector
        turned = room >= vector
        if turned:
            cols = min(cols, room)
            strip = rows * max(1, min(8, -(-m // rows)))
    # A step of the loop of k: wide enough to hide the loop, short enough to compile fast.
    step = max(1, min(_size(depth), 8))
    return ContractionSchedule(min(rows, m), cols, step, strip, _is_heavy(op), turned)


def _rows_of_contraction(op: Fusion, product: GraphOp) -> int:
    """The number of rows that run as one: leading axes count where the right operand has none."""
    shape = product.results[0].tensor.shape
    leading = shape[:-1] if product.inputs[1].tensor.rank == 2 else shape[-2:-1]
    total = 1
    for n in leading:
        total *= _size(n)
    return max(1, total)


def _is_rhs_turned(op: Fusion, product: GraphOp, rhs: Value) -> bool:
    """Whether the right operand lies with its inner axis contiguous, and not along the columns."""
    nest = Nest("trial", op.do)
    index = [nest.axis(f"y{i}", n) for i, n in enumerate(rhs.tensor.shape)]
    nest.pull(rhs, index)
    row, column = f"y{len(index) - 2}", f"y{len(index) - 1}"
    return any(
        coefficient(e, row) == 1 and coefficient(e, column) not in (as_expr(0), as_expr(1), None)
        for o in nest.kernel.body
        if isinstance(o, t.Load)
        for e in [as_expr(o.at)]
    )


def _convolution(op: Fusion, target: Target) -> Schedule:
    conv = hero(op)
    out = conv.results[0].tensor
    vector = lanes(target, conv.results[0])
    if out.layout is None:
        channels = _size(out.shape[1]) // conv.attributes.get("groups", 1)
        rows = max(1, min(channels, 8 if target.vector_registers > 16 else 4))
        return WindowSchedule(rows, _even(out.shape[-1], 2 * vector))
    groups = conv.attributes.get("groups", 1)
    if groups > 1 and conv.inputs[1].tensor.shape[1] == 1:
        return WindowSchedule(_window_pixels(out, target), 16)
    each = -(-_size(out.shape[1]) // 16) * 16 // groups
    width = max(1, _pixels(conv))

    taps = math.prod(w.taps for w in conv.window_taps())  # type: ignore[attr-defined]
    depth = _size(conv.inputs[1].tensor.shape[1]) * taps  # of the inner products

    def step(rows: int, vectors: int) -> float:
        far = depth * vectors * target.vector_bytes > target.l2_bytes // 2
        return max(step_cost(rows, vectors), FAR * vectors if far else 0.0) if rows else 0.0

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        rows = min(rows, width)
        whole, rest = divmod(width, rows)
        steps = whole * step(rows, vectors) + step(rest, vectors)
        return steps * (each // (vectors * vector))

    fitting = [
        (r, v)
        for r, v in register_tiles(target)
        if v * vector % 16 == 0 and each % (v * vector) == 0
    ]
    if not fitting:
        fitting = [(max(1, (target.vector_registers - 3) // (16 // vector) - 1), 16 // vector)]
    rows, vectors = min(fitting, key=cost)
    return ConvolutionSchedule(min(rows, width), vectors * vector, _is_heavy(op))


def _pixels(conv: GraphOp) -> int:
    """The pixels of an output row; of the whole image where rows of it run as one."""
    out = conv.results[0].tensor
    windows = conv.window_taps()  # type: ignore[attr-defined]
    if all((w.taps, w.stride, w.low) == (1, 1, 0) for w in windows):
        return _size(out.shape[2]) * _size(out.shape[3])
    return _size(out.shape[3])


def _pool(op: Fusion, target: Target) -> Schedule:
    out = hero(op).results[0].tensor
    if out.layout is not None:
        accumulators = 2 if isinstance(hero(op), AveragePool) else 1  # a sum and a count
        return WindowSchedule(_window_pixels(out, target, accumulators), 16)
    vector = lanes(target, hero(op).results[0])
    return WindowSchedule(_below(out.shape[1], 4), _even(out.shape[-1], 2 * vector))


def _window_pixels(out: TensorType, target: Target, accumulators: int = 1) -> int:
    """Pixels of an output row, in channels of blocks, whose accumulators fit the registers.

    A tile costs its pixels and what starting it takes, ragged ones as much as full ones.
    """
    vectors = max(1, 16 // target.lanes(4)) * accumulators
    most = max(1, min(8, (target.vector_registers - 1) // vectors))
    width = _size(out.shape[-1])
    return min(range(most, 0, -1), key=lambda pixels: -(-width // pixels) * (pixels + 2))


def _attention(op: Fusion, target: Target) -> Schedule:
    node = hero(op)
    vector = lanes(target, node.results[0])
    rows = node.results[0].tensor.shape[-2]
    # Each number that is read serves two registers of queries. Unknown lengths are often short: of
    # more than 16 queries many would be empty.
    most = 2 * vector if isinstance(rows, int) else max(vector, min(16, 2 * vector))
    queries = _below(rows, most)
    keys = node.inputs[1].tensor.shape[-2]
    if isinstance(keys, int) and 0 < keys <= 256:
        return AttentionSchedule(queries, keys)
    # Long blocks, since each rescales what was summed before; short ones for the rest, of which
    # the last has few keys that are none (x86-64-v3: 8x200x32 34 to 40 % of the peak, so 60 %).
    return AttentionSchedule(queries, 64, rest=16)


__all__ = ["Expr", "Op", "choose", "hero", "reductions", "register_tiles", "step_cost"]
