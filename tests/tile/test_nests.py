"""Every kernel builder, by several schedules, gives what the ops' references give.

Shapes are drawn by a seed: odd and zero sizes, symbols, blocked layouts with padding, and all
element types that a kernel may have.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.tile.groups import (
    CHANNELS,
    FLOATS,
    NUMBERS,
    Group,
    S,
    T,
    group,
    numbers,
    shape,
    typed,
)
from tfc.ir.builder import Builder
from tfc.ir.core import Value
from tfc.ir.expr import Dim, as_expr, normal
from tfc.ir.types import BF16, BOOL, F16, F32, I8, I32, I64, Layout, TensorType
from tfc.ops import (
    arithmetic,
    attention,
    cast,
    convolution,
    elementwise,
    indexing,
    linalg,
    logic,
    reduction,
    transcendental,
    view,
)
from tfc.ops import shape as shapes
from tfc.tile.nests.schedule import (
    AttentionSchedule,
    ColumnSchedule,
    ContractionSchedule,
    ConvolutionSchedule,
    MapSchedule,
    RowSchedule,
    WindowSchedule,
)


def seeded(count: int) -> pytest.MarkDecorator:
    """So many seeds, and ten times as many among the slow tests."""
    more = [pytest.param(i, marks=pytest.mark.slow) for i in range(count, 10 * count)]
    return pytest.mark.parametrize("seed", [*range(count), *more])


MAPS = [MapSchedule(1, 1), MapSchedule(2, 4), MapSchedule(3, 8), MapSchedule(1, 64)]


def laid_out(value: Value, layout: Layout | None = CHANNELS) -> Value:
    """A result in a layout, as the pass `layout` gives it one."""
    value.type = TensorType(value.tensor.dtype, value.tensor.shape, layout)
    return value


def broadcastable(random: Random, dims: list[Dim]) -> list[Dim]:
    """A shape that broadcasts to dims."""
    cut = random.randrange(len(dims) + 1)
    return [n if random.random() < 0.6 else 1 for n in dims[cut:]]


# ---- elementwise


@seeded(6)
def test_elementwise(seed: int) -> None:
    """Chains over broadcast operands, in every element type."""
    random = Random(seed)
    dtype = random.choice(NUMBERS)
    dims = shape(random, random.randrange(5))
    kinds = [typed(dtype, *dims), typed(dtype, *broadcastable(random, dims))]

    def body(b: Builder, x: Value, y: Value) -> Any:
        total = b.value(arithmetic.Add(x, y))
        other = b.value(arithmetic.Maximum(b.value(arithmetic.Mul(total, x)), y))
        less = b.value(logic.Less(total, other))
        return [b.value(elementwise.Where(less, total, other)), less]

    group(random, "map", kinds, body).check(*MAPS)


@seeded(6)
def test_casts(seed: int) -> None:
    random = Random(seed)
    into = random.choice((*NUMBERS, BOOL))
    kinds = [typed(random.choice((*NUMBERS, BOOL)), *shape(random, 2))]
    group(random, "map", kinds, lambda b, x: b.value(cast.Cast(x, to=into))).check(*MAPS)


def views(random: Random, b: Builder, x: Value, count: int) -> Value:
    """Moves a tensor about by random views."""
    for _ in range(count):
        dims = list(x.tensor.shape)
        rank = len(dims)
        match random.randrange(6):
            case 0:
                order = random.sample(range(rank), rank)
                x = b.value(view.Transpose(x, tuple(order)))
            case 1 if rank:
                x = b.value(_slice(random, x))
            case 2:
                whole = [n if n != 1 or random.random() < 0.5 else 3 for n in dims]
                x = b.value(view.Expand(x, (2, *whole) if rank < 4 else tuple(whole)))
            case 3 if rank >= 2:
                joined = normal(as_expr(dims[0]) * dims[1])
                x = b.value(view.Reshape(x, (joined, *dims[2:])))
            case 4:
                low, high = ([random.randrange(2) for _ in dims] for _ in range(2))
                x = b.value(shapes.Pad(x, None, tuple(low), tuple(high)))
            case _:
                place = random.randrange(rank + 1)
                x = b.value(view.Reshape(x, (*dims[:place], 1, *dims[place:])))
    return x


def _slice(random: Random, x: Value) -> view.Slice:
    bounds: list[tuple[Dim, Dim, int]] = []
    for n in x.tensor.shape:
        if not isinstance(n, int) or n == 0:
            bounds.append((0, n, random.choice((1, 2))))
        elif random.random() < 0.3:
            bounds.append((n - 1, -1, random.choice((-1, -2))))
        else:
            start = random.randrange(n)
            bounds.append((start, random.randrange(start, n + 1), random.choice((1, 1, 3))))
    return view.Slice(x, *(tuple(b[i] for b in bounds) for i in range(3)))  # type: ignore[arg-type]


@seeded(10)
def test_views(seed: int) -> None:
    """Moves cost no buffer of their own, in front of an op and behind it."""
    random = Random(seed)
    kinds = [typed(random.choice((F32, F16, I64)), *shape(random, random.randrange(1, 4)))]

    def body(b: Builder, x: Value) -> Value:
        moved = views(random, b, x, 2)
        return views(random, b, b.value(arithmetic.Add(moved, moved)), random.randrange(2))

    group(random, "map", kinds, body).check(*MAPS)


@seeded(6)
def test_layouts(seed: int) -> None:
    """From plain to blocks of channels and back, with channels that fill no block."""
    random = Random(seed)
    dims = [random.choice((1, 2)), random.choice((1, 5, 16, 20)), random.choice((1, 3)), 4]
    into, out = random.choice((None, CHANNELS)), random.choice((None, CHANNELS))
    kinds = [typed(F32, *dims, layout=into), typed(F32, dims[1], 1, 1)]

    def body(b: Builder, x: Value, y: Value) -> Value:
        return laid_out(b.value(arithmetic.Sub(x, y)), out)

    group(random, "map", kinds, body).check(MapSchedule(2, 16), MapSchedule(1, 64))


@seeded(6)
def test_gather(seed: int) -> None:
    random = Random(seed)
    size, dims = random.choice((1, 4, 6)), shape(random, 2, (1, 2, 5))
    axis = random.randrange(3)
    table = [*dims[:axis], size, *dims[axis:]]
    form = random.choice((indexing.Gather, indexing.GatherElements))
    places = (
        shape(random, 2, (0, 1, 3)) if form is indexing.Gather else [*dims[:axis], 3, *dims[axis:]]
    )
    kinds = [typed(random.choice(NUMBERS), *table), typed(random.choice((I32, I64)), *places)]

    def draw(generator: np.random.Generator, kind: TensorType) -> np.ndarray[Any, Any]:
        if kind == kinds[1]:
            return generator.integers(-size, size, kind.shape).astype(kind.dtype.numpy)
        return numbers(generator, kind)

    def body(b: Builder, x: Value, indices: Value) -> Value:
        return b.value(form(x, indices, axis=axis))

    group(random, "map", kinds, body, draw=draw).check(*MAPS)


# ---- reductions


REDUCTIONS: tuple[Callable[..., Any], ...] = (
    *(reduction.ReduceSum, reduction.ReduceMax, reduction.ReduceMin, reduction.ReduceProd),
)
ROWS = [RowSchedule(1, 8), RowSchedule(2, 4), RowSchedule(3, 16)]
COLUMNS = [ColumnSchedule(1, 1), ColumnSchedule(4, 8), ColumnSchedule(2, 3), ColumnSchedule(8, 16)]


def reduction_schedules(made: Group, axes: tuple[int, ...], rank: int, whole: bool) -> list[Any]:
    if rank - 1 not in axes:
        return COLUMNS
    return [*ROWS, RowSchedule(1), RowSchedule(2)] if whole else ROWS


def reducible(random: Random) -> tuple[list[Dim], tuple[int, ...]]:
    """A shape and the axes to reduce, none of size 1, which merge with anything."""
    dims = shape(random, random.randrange(1, 4), (2, 3, 5, 20, S))
    axes = tuple(a for a in range(len(dims)) if random.random() < 0.6) or (len(dims) - 1,)
    return dims, axes


@seeded(10)
def test_reductions(seed: int) -> None:
    """Two reductions over the same axes, and an op of the full shape behind them."""
    random = Random(seed)
    dims, axes = reducible(random)
    dtype = random.choice(NUMBERS)
    first, second = random.choice(REDUCTIONS), random.choice(REDUCTIONS)
    keep = random.random() < 0.7

    def body(b: Builder, x: Value) -> Any:
        one = b.value(first(x, axes, keep))
        if not keep:
            return [one, b.value(second(x, axes, keep))]
        two = b.value(second(b.value(arithmetic.Sub(x, one)), axes, keep))
        return [b.value(arithmetic.Add(x, two)), one]

    symbols = {"S": random.choice((1, 3, 6)), "T": 5}
    made = group(random, "reduction", [typed(dtype, *dims)], body, symbols=symbols)
    whole = isinstance(dims[-1], int) and axes == (len(dims) - 1,)
    made.check(*reduction_schedules(made, axes, len(dims), whole))


@seeded(6)
def test_reductions_of_nothing(seed: int) -> None:
    """A sum of no elements is 0, a product 1; no results where a kept axis is empty."""
    random = Random(seed)
    dims: list[Dim] = random.choice(([0, 4], [4, 0], [S, 4], [4, S], [3, S, 0]))
    axes = (random.randrange(len(dims)),)
    form = random.choice((reduction.ReduceSum, reduction.ReduceProd))
    kinds = [typed(random.choice((F32, I32)), *dims)]
    made = group(
        random, "reduction", kinds, lambda b, x: b.value(form(x, axes, True)), symbols={"S": 0}
    )
    made.check(*reduction_schedules(made, axes, len(dims), False))


@seeded(6)
def test_positions_of_the_largest_and_smallest(seed: int) -> None:
    random = Random(seed)
    dims = shape(random, random.randrange(1, 4), (2, 3, 5, 20))
    axis = random.randrange(len(dims))
    form = random.choice((reduction.ArgMax, reduction.ArgMin))
    last, keep = random.random() < 0.5, random.random() < 0.5
    dtype = random.choice(NUMBERS)

    def body(b: Builder, x: Value) -> Value:
        return b.value(form(x, axis, keepdims=keep, select_last=last))

    def draw(generator: np.random.Generator, kind: TensorType) -> np.ndarray[Any, Any]:
        made = numbers(generator, kind)
        if kind.dtype.is_float:
            made[generator.random(made.shape) < 0.1] = np.nan
        return made

    made = group(random, "reduction", [typed(dtype, *dims)], body, draw=draw)
    made.check(*reduction_schedules(made, (axis,), len(dims), True))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_softmax(axis: int, dtype: Any) -> None:
    def body(b: Builder, x: Value) -> Value:
        largest = b.value(reduction.ReduceMax(x, (axis,), True))
        e = b.value(transcendental.Exp(b.value(arithmetic.Sub(x, largest))))
        return b.value(arithmetic.Div(e, b.value(reduction.ReduceSum(e, (axis,), True))))

    made = group(Random(axis), "reduction", [typed(dtype, 3, S, 20)], body, symbols={"S": 7})
    schedules = [*ROWS, RowSchedule(2), RowSchedule(1, 0, False)] if axis == 2 else COLUMNS
    made.check(*schedules)


# ---- contractions


TILES = [
    ContractionSchedule(1, 1, 1),
    ContractionSchedule(4, 16, 8),
    ContractionSchedule(3, 5, 4, strip=6, stage_output=True),
]


@seeded(10)
def test_contractions(seed: int) -> None:
    """Batches that broadcast, ragged tiles, an epilogue, in every element type."""
    random = Random(seed)
    dtype = random.choice(NUMBERS)
    m, n, k = (random.choice((1, 4, 7, 17, 0, S)) for _ in range(3))
    batch = shape(random, random.randrange(3), (1, 2, 3, T))
    lhs = [*broadcastable(random, batch), m, k]
    rhs = [*(batch if random.random() < 0.5 else []), k, n]
    kinds = [typed(dtype, *lhs), typed(dtype, *rhs), typed(dtype, n)]

    def body(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        y = b.value(arithmetic.Add(b.value(linalg.MatMul(x, w)), bias))
        return b.value(arithmetic.Maximum(y, y))

    made = group(random, "contraction", kinds, body)
    made.check(*TILES)
    if isinstance(k, int) and k > 0:
        made.check(ContractionSchedule(4, 16, 8, stage_rhs=True, strip=8))


@pytest.mark.parametrize("dtype", [F32, F16, BF16, I8])
def test_packed_weights_and_heads(dtype: Any) -> None:
    """A weight in panels of 16 columns, and views behind the product that split heads."""
    kinds = [typed(dtype, 2, S, 24), typed(dtype, 24, 20, layout=Layout("Ba16b"))]

    def body(b: Builder, x: Value, w: Value) -> Value:
        y = b.value(view.Reshape(b.value(linalg.MatMul(x, w)), (2, S, 4, 5)))
        return b.value(view.Transpose(y, (0, 2, 1, 3)))

    for size in (0, 1, 5):
        made = group(Random(size), "contraction", kinds, body, symbols={"S": size})
        made.check(*TILES, ContractionSchedule(8, 48, 8), ContractionSchedule(4, 16, 8, 12))


def test_a_contraction_with_a_prologue() -> None:
    kinds = [typed(F32, 7, 9), typed(F32, 5, 9)]

    def body(b: Builder, x: Value, w: Value) -> Value:
        relu = b.value(arithmetic.Maximum(x, b.value(elementwise.Neg(x))))
        return b.value(linalg.MatMul(relu, b.value(view.Transpose(w, (1, 0)))))

    group(Random(0), "contraction", kinds, body).check(*TILES)


# ---- convolutions


def spatial(random: Random, count: int) -> dict[str, tuple[int, ...]]:
    return {
        "strides": tuple(random.choice((1, 1, 2)) for _ in range(count)),
        "dilations": tuple(random.choice((1, 1, 2)) for _ in range(count)),
        "low_pads": tuple(random.choice((0, 1, 2)) for _ in range(count)),
        "high_pads": tuple(random.choice((0, 1, 2)) for _ in range(count)),
    }


DIRECT = [
    ConvolutionSchedule(1, 16),
    ConvolutionSchedule(4, 16),
    ConvolutionSchedule(5, 16, stage_output=True),
]


@seeded(7)
def test_direct_convolutions(seed: int) -> None:
    """Channels in blocks of 16, from blocks or from a few plain channels; bias and residual."""
    random = Random(seed)
    few = random.random() < 0.3
    groups = 1 if few else random.choice((1, 1, 2))
    channels = 3 if few else 16 * groups if groups > 1 else random.choice((16, 20, 32))
    outputs = 32 * groups if groups > 1 else random.choice((8, 16, 24, 32))
    h, w = random.choice((5, 9)), random.choice((4, 6, 11))
    taps = random.choice(((3, 3), (1, 1), (2, 3), (1, 3)))
    attributes = spatial(random, 2)
    layout = Layout("Acdb16a" if few else "ABcd16b16a")
    kinds = [
        typed(F32, random.choice((1, 2)), channels, h, w, layout=None if few else CHANNELS),
        typed(F32, outputs, channels // groups, *taps, layout=layout),
        typed(F32, outputs, 1, 1),
    ]

    def body(b: Builder, x: Value, weight: Value, bias: Value) -> Value:
        made = convolution.Conv(x, weight, layout=CHANNELS, groups=groups, **attributes)
        shifted = laid_out(b.value(arithmetic.Add(b.value(made), bias)))
        return laid_out(b.value(arithmetic.Maximum(shifted, shifted)))

    made = group(random, "convolution", kinds, body)
    made.check(*DIRECT)
    if outputs % 32 == 0:
        made.check(ConvolutionSchedule(3, 32))


@pytest.mark.parametrize("size", [1, 6, S])
def test_pointwise_convolutions_run_over_the_rows_of_the_image(size: Any) -> None:
    kinds = [
        typed(F32, 2, 32, size, 5, layout=CHANNELS),
        typed(F32, 20, 32, 1, 1, layout=Layout("ABcd16b16a")),
    ]

    def body(b: Builder, x: Value, weight: Value) -> Value:
        return b.value(convolution.Conv(x, weight, layout=CHANNELS))

    for rows in (0, 3):
        made = group(Random(rows), "convolution", kinds, body, symbols={"S": rows})
        made.check(*DIRECT)


@seeded(7)
def test_convolutions_by_windows(seed: int) -> None:
    """Any number of axes, groups and element types; depthwise on channels in blocks too."""
    random = Random(seed)
    depthwise = random.random() < 0.4
    count = 2 if depthwise else random.choice((1, 2, 2, 3))
    groups = 20 if depthwise else random.choice((1, 2, 3))
    channels = 20 if depthwise else 6
    outputs = 20 if depthwise else random.choice((6, 12))
    layout = CHANNELS if depthwise else None
    dtype = F32 if depthwise else random.choice(NUMBERS)
    dims = [random.choice((6, 9) if count < 3 else (4, 5)) for _ in range(count)]
    taps = [random.choice((1, 2, 3) if count < 3 else (1, 2)) for _ in range(count)]
    attributes = spatial(random, count)
    kinds = [
        typed(dtype, 1, channels, *dims, layout=layout),
        typed(
            dtype,
            *(outputs, channels // groups, *taps),
            layout=Layout("Abcd16a") if depthwise else None,
        ),
    ]

    def body(b: Builder, x: Value, weight: Value) -> Value:
        made = convolution.Conv(x, weight, layout=layout, groups=groups, **attributes)
        return b.value(made)

    made = group(random, "convolution", kinds, body)
    made.check(WindowSchedule(4, 16), WindowSchedule(3, 16 if depthwise else 5))


# ---- pools


@seeded(8)
def test_pools(seed: int) -> None:
    random = Random(seed)
    blocked = random.random() < 0.5
    count = 2 if blocked else random.choice((1, 2, 3))
    dims: list[Dim] = [random.choice((6, 7, *([S] if not blocked else []))) for _ in range(count)]
    taps = tuple(random.choice((1, 2, 3)) for _ in range(count))
    attributes: dict[str, Any] = spatial(random, count)
    attributes["overhang"] = tuple(random.choice((0, 0, 1)) for _ in range(count))
    average = random.random() < 0.5
    if average:
        attributes["count_include_pad"] = random.random() < 0.5
    form = convolution.AveragePool if average else convolution.MaxPool
    dtype = F32 if blocked else random.choice(FLOATS if average else NUMBERS)
    kinds = [
        typed(dtype, 2, random.choice((1, 5, 20)), *dims, layout=CHANNELS if blocked else None)
    ]

    def body(b: Builder, x: Value) -> Value:
        return b.value(form(x, taps, **attributes))

    made = group(random, "pool", kinds, body, symbols={"S": random.choice((6, 7))})
    made.check(WindowSchedule(4, 16), WindowSchedule(3, 16 if blocked else 5))


def test_a_pool_of_an_empty_batch() -> None:
    def body(b: Builder, x: Value) -> Value:
        return b.value(convolution.MaxPool(x, (2, 2)))

    made = group(Random(0), "pool", [typed(F32, 0, 3, 4, 4)], body)
    made.check(WindowSchedule(4, 16))


# ---- attention


@seeded(7)
def test_attention(seed: int) -> None:
    """All keys at once or in blocks, masks of every rank, axes in front that broadcast."""
    random = Random(seed)
    dtype = random.choice(FLOATS)
    batch = shape(random, random.randrange(3), (1, 2, 3))
    queries, keys = random.choice((1, 5, 9, T)), random.choice((1, 7, 12, S))
    d, e = random.choice((1, 4, 8)), random.choice((1, 3, 8))
    kinds = [
        typed(dtype, *batch, queries, d),
        typed(dtype, *broadcastable(random, batch), keys, d),
        typed(dtype, *broadcastable(random, batch), keys, e),
    ]
    if random.random() < 0.7:
        scores = [*batch, queries, keys]
        kinds.append(typed(dtype, *broadcastable(random, scores)))

    def body(b: Builder, *operands: Value) -> Value:
        return b.value(attention.Attention(*operands, scale=0.5))

    symbols = {"S": random.choice((0, 1, 7)), "T": random.choice((0, 3))}
    made = group(random, "attention", kinds, body, symbols=symbols)
    made.check(AttentionSchedule(4, 3, 2), AttentionSchedule(1, 16), AttentionSchedule(3, 5, 1))


def test_attention_with_masked_keys_and_merged_heads() -> None:
    """Blocks that are masked throughout, and views behind the product."""
    kinds = [*(typed(F32, 1, 2, 6, 4) for _ in range(3)), typed(F32, 1, 1, 1, 6)]

    def body(b: Builder, *operands: Value) -> Value:
        y = b.value(
            view.Transpose(b.value(attention.Attention(*operands, scale=0.5)), (0, 2, 1, 3))
        )
        return b.value(view.Reshape(y, (1, 6, 8)))

    def draw(generator: np.random.Generator, kind: TensorType) -> np.ndarray[Any, Any]:
        if kind == kinds[3]:
            return np.array([-np.inf] * 3 + [0, -1, 0], np.float32).reshape(1, 1, 1, 6)
        return numbers(generator, kind)

    made = group(Random(0), "attention", kinds, body, draw=draw)
    made.check(AttentionSchedule(4, 2), AttentionSchedule(4, 4, 1), AttentionSchedule(2, 8))


# ---- concat and scan


@seeded(6)
def test_concat(seed: int) -> None:
    random = Random(seed)
    dims = shape(random, random.randrange(1, 4), (1, 2, 5, S))
    axis = random.randrange(len(dims))
    dtype = random.choice((*NUMBERS, BOOL))
    kinds = [
        typed(dtype, *dims[:axis], random.choice((0, 1, 4, T)), *dims[axis + 1 :])
        for _ in range(random.choice((1, 2, 3)))
    ]

    def body(b: Builder, *parts: Value) -> Value:
        return b.value(shapes.Concat(list(parts), axis=axis))

    made = group(random, "concat", kinds, body)
    made.check(MapSchedule(1, 1), MapSchedule(1, 8), MapSchedule(1, 64))


@pytest.mark.parametrize(("axis", "channels"), [(0, 16), (0, 20), (1, 16), (2, 16), (2, 20)])
def test_concat_of_blocked_tensors(axis: int, channels: int) -> None:
    """Along the channels the parts are whole blocks."""
    kinds = [typed(F32, 2, channels, 3, 4, layout=CHANNELS) for _ in range(2)]

    def body(b: Builder, *parts: Value) -> Value:
        return b.value(shapes.Concat(list(parts), axis=axis, layout=CHANNELS))

    made = group(Random(0), "concat", kinds, body)
    made.check(MapSchedule(1, 16), MapSchedule(1, 64))


@seeded(6)
def test_concat_within_an_elementwise_kernel(seed: int) -> None:
    random = Random(seed)
    kinds = [typed(F32, 3, n, 4) for n in (2, T, 1)]

    def body(b: Builder, *parts: Value) -> Value:
        joined = b.value(shapes.Concat(list(parts), axis=1))
        return b.value(elementwise.Neg(views(random, b, joined, 1)))

    group(random, "map", kinds, body).check(*MAPS)


@seeded(6)
def test_running_sums(seed: int) -> None:
    random = Random(seed)
    dims = shape(random, random.randrange(1, 4), (1, 2, 5, 7, S, 0))
    form = {
        "axis": random.randrange(len(dims)),
        "exclusive": random.random() < 0.5,
        "reverse": random.random() < 0.5,
    }
    kinds = [typed(random.choice(NUMBERS), *dims)]

    def body(b: Builder, x: Value) -> Value:
        return b.value(reduction.CumSum(x, **form))  # type: ignore[arg-type]

    group(random, "scan", kinds, body).check(MapSchedule(1, 1), MapSchedule(1, 4))
