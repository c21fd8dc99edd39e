"""Makers of elementwise ops, reductions, products, normalisations and attention."""

from __future__ import annotations

from typing import Any

from tests.fuzz.graphs import Graph, Made, Shape
from tests.fuzz.makers import makes
from tfc.ir.core import OPS, Value
from tfc.ir.expr import Dim
from tfc.ir.types import BOOL, FLOATS, I32, I64, INTEGERS, DType, TensorType
from tfc.ops.attention import Attention
from tfc.ops.base import ANY, NUMERIC, SIGNED
from tfc.ops.cast import Cast
from tfc.ops.elementwise import IsInf, Where
from tfc.ops.linalg import Gemm, MatMul
from tfc.ops.normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, Lrn, RmsNorm
from tfc.ops.piecewise import Clip, Prelu


def op_class(name: str) -> Any:
    return OPS[name]


# ---- elementwise


@makes("neg", "abs", "sign", "relu", weight=1.5)
def unary_of_numbers(g: Graph, name: str) -> Made:
    allowed = SIGNED if name == "neg" else NUMERIC
    return g.add(op_class(name)(g.operand(allowed)))


@makes("floor", "ceil", "round", "sqrt", "rsqrt", "reciprocal", "is_nan", weight=1.5)
def unary_of_floats(g: Graph, name: str) -> Made:
    return g.add(op_class(name)(g.operand(FLOATS)))


@makes(
    *("exp", "expm1", "log", "log1p", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
    *("cosh", "asinh", "acosh", "atanh", "tanh", "sigmoid", "softplus"),
    weight=3.0,
)
def transcendental(g: Graph, name: str) -> Made:
    return g.add(op_class(name)(g.operand(FLOATS)))


@makes("mish", "softsign", "gelu", "silu", "elu", "selu", "celu", weight=1.0)
def activation(g: Graph, name: str) -> Made:
    options: dict[str, Any] = {}
    if name == "gelu":
        options["approximate"] = g.pick(["none", "tanh"])
    elif name in ("silu", "elu", "celu") and g.chance(0.5):
        options["alpha"] = g.pick([0.5, 1.7, 0.1])
    return g.add(op_class(name)(g.operand(FLOATS), **options))


@makes(*("leaky_relu", "hard_sigmoid", "hard_swish", "thresholded_relu", "shrink"), weight=0.8)
def piecewise(g: Graph, name: str) -> Made:
    options: dict[str, Any] = {}
    if name in ("leaky_relu", "hard_sigmoid", "thresholded_relu") and g.chance(0.5):
        options["alpha"] = g.pick([0.5, 0.25, 0.1, 2.0])
    if name == "shrink":
        options = {"bias": g.pick([0.0, 0.5]), "lambd": g.pick([0.5, 1.0])}
    return g.add(op_class(name)(g.operand(FLOATS), **options))


@makes("clip", "prelu", "is_inf", weight=0.8)
def bounded(g: Graph, name: str) -> Made:
    if name == "is_inf":
        signs = {"positive": g.chance(0.7), "negative": g.chance(0.7)}
        return g.add(IsInf(g.operand(FLOATS), **signs))
    x = g.operand(NUMERIC)
    if name == "prelu":
        return g.add(Prelu(x, g.partner(x, grows=False)))
    low, high = (g.like(x.tensor.dtype, ()) if g.chance(0.6) else None for _ in range(2))
    return g.add(Clip(x, low, high))


@makes("add", "sub", "mul", "div", "maximum", "minimum", weight=4.0)
@makes("mod", "fmod", "pow", weight=0.7)
def binary(g: Graph, name: str) -> Made:
    return _binary(g, name, NUMERIC)


def _binary(g: Graph, name: str, allowed: tuple[DType, ...]) -> Made:
    x = g.operand(allowed)
    y = x if g.chance(0.05) else g.partner(x)
    pair = (x, y) if g.chance(0.5) else (y, x)
    return g.add(op_class(name)(*pair))


@makes("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", weight=1.2)
def comparison(g: Graph, name: str) -> Made:
    return _binary(g, name, ANY if name in ("equal", "not_equal") else NUMERIC)


@makes("logical_and", "logical_or", "logical_xor", "logical_not", weight=0.6)
def logical(g: Graph, name: str) -> Made:
    if name == "logical_not":
        return g.add(op_class(name)(g.operand((BOOL,))))
    return _binary(g, name, (BOOL,))


@makes(
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"),
    weight=0.8,
)
def bitwise(g: Graph, name: str) -> Made:
    if name == "bitwise_not":
        return g.add(op_class(name)(g.operand(INTEGERS)))
    return _binary(g, name, INTEGERS)


@makes("where", weight=1.2)
def where(g: Graph, name: str) -> Made:
    x = g.operand(ANY)
    y = g.partner(x)
    shape = g.common(x.tensor.shape, y.tensor.shape)
    condition = g.partner(g.like(BOOL, shape), grows=False)
    pair = (x, y) if g.chance(0.5) else (y, x)
    return g.add(Where(condition, *pair))


@makes("cast", weight=1.5)
def cast(g: Graph, name: str) -> Made:
    x = g.operand(ANY)
    return g.add(Cast(x, g.dtype(ANY) if g.chance(0.5) else g.pick(ANY)))


# ---- reductions


@makes("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", weight=2.0)
@makes(
    *("reduce_mean", "reduce_l1", "reduce_l2", "reduce_log_sum", "reduce_log_sum_exp"),
    "reduce_sum_square",
    weight=1.2,
)
def reduction(g: Graph, name: str) -> Made:
    kind = op_class(name)
    x = g.operand(kind.dtypes)
    rank = x.tensor.rank
    count = g.some(min(rank, 0 if g.chance(0.1) else 1), rank)
    axes = tuple(sorted(g.random.sample(range(rank), count)))
    return g.add(kind(x, axes, g.chance(0.5)))


@makes("argmax", "argmin", weight=0.8)
def position(g: Graph, name: str) -> Made:
    x = g.operand(NUMERIC, low=1)
    axis = g.some(0, x.tensor.rank - 1)
    return g.add(op_class(name)(x, axis, g.chance(0.5), g.chance(0.4)))


@makes("cumsum", weight=0.5)
def running_sum(g: Graph, name: str) -> Made:
    x = g.operand(NUMERIC, low=1)
    axis = g.some(0, x.tensor.rank - 1)
    return g.add(op_class(name)(x, axis, g.chance(0.4), g.chance(0.4)))


@makes("softmax", "log_softmax", weight=1.0)
def softmax(g: Graph, name: str) -> Made:
    x = g.operand(FLOATS, low=1)
    return g.add(op_class(name)(x, g.some(0, x.tensor.rank - 1)))


# ---- products


@makes("matmul", weight=2.0)
def matmul(g: Graph, name: str) -> Made:
    a = g.operand(FLOATS if g.chance(0.8) else NUMERIC, low=1)
    shape, dtype = a.tensor.shape, a.tensor.dtype
    if g.chance(0.15):
        made = [a, g.like(dtype, shape[-1:])]
    else:
        batch = _batch(g, shape[:-2])
        made = [a, g.like(dtype, (*batch, shape[-1], g.size(20)))]
    if g.chance(0.2) and len(shape) > 1:
        rows = (g.size(), shape[-2]) if g.chance(0.8) else (shape[-2],)
        batch = _batch(g, shape[:-2]) if len(rows) == 2 else ()
        made = [g.like(dtype, (*batch, *rows)), a]
    return _product(g, *made)


def _batch(g: Graph, shape: Shape) -> Shape:
    """Leading axes that broadcast with some."""
    if g.chance(0.3):
        return ()
    return tuple(1 if g.chance(0.2) else n for n in shape)


def _product(g: Graph, a: Value, b: Value) -> Made:
    left, right = a.tensor.shape, b.tensor.shape
    whole = [*g.common(left[:-2], right[:-2]), *left[-2:-1], *right[-1:]]
    if not g.fits(whole) or not g.fits([*whole, left[-1]], g.work):
        return None
    return g.add(MatMul(a, b))


@makes("gemm", weight=0.8)
def gemm(g: Graph, name: str) -> Made:
    a = g.operand(FLOATS if g.chance(0.85) else NUMERIC, low=2, high=2)
    dtype, flip_a, flip_b = a.tensor.dtype, g.chance(0.4), g.chance(0.5)
    rows, inner = reversed(a.tensor.shape) if flip_a else a.tensor.shape
    columns = g.size(20)
    if not g.fits((rows, columns)) or not g.fits((rows, columns, inner), g.work):
        return None
    b = g.like(dtype, (columns, inner) if flip_b else (inner, columns))
    c = None
    if g.chance(0.7):
        c = g.partner(g.like(dtype, (rows, columns)), grows=False)
    numbers = [1.0, 0.5, 2.0, -1.5] if dtype.is_float else [1.0, 2.0, -3.0]
    scales = {"alpha": g.pick(numbers), "beta": g.pick(numbers)}
    return g.add(Gemm(a, b, c, **scales, trans_a=flip_a, trans_b=flip_b))


@makes("attention", weight=0.7)
def attention(g: Graph, name: str) -> Made:
    query = g.operand(FLOATS, low=2, high=4)
    dtype, (*batch, rows, depth) = query.tensor.dtype, query.tensor.shape
    keys = g.size(20)
    width = g.some(1, 9) if g.chance(0.5) else depth
    key = g.like(dtype, (*_batch(g, tuple(batch)), keys, depth))
    value = g.like(dtype, (*_batch(g, tuple(batch)), keys, width))
    scores = [*batch, rows, keys]
    if not g.fits(scores) or not g.fits([*batch, rows, width]):
        return None
    mask = None
    if g.chance(0.4):
        mask = g.partner(g.like(dtype, tuple(scores)), grows=False)
    return g.add(Attention(query, key, value, mask, scale=g.pick([1.0, 0.5, 0.35])))


# ---- normalisations


@makes("layer_norm", "rms_norm", weight=1.0)
def row_norm(g: Graph, name: str) -> Made:
    x = g.operand(FLOATS, low=1)
    axis = g.some(0, x.tensor.rank - 1)
    options: dict[str, Any] = {"axis": axis, "epsilon": g.pick([1e-5, 1e-3, 0.1])}
    kind = TensorType(x.tensor.dtype, x.tensor.shape[axis:])
    extra = [
        g.partner(g.like(kind.dtype, kind.shape), grows=False) if g.chance(0.6) else None
        for _ in range(2 if name == "layer_norm" else 1)
    ]
    return g.add((LayerNorm if name == "layer_norm" else RmsNorm)(x, *extra, **options))


@makes("batch_norm", "instance_norm", "group_norm", "lrn", weight=1.0)
def channel_norm(g: Graph, name: str) -> Made:
    x = g.operand(FLOATS, low=3 if name == "instance_norm" else 2)
    channels: Dim = x.tensor.shape[1]
    epsilon = g.pick([1e-5, 1e-3, 0.1])
    if name == "lrn":
        return g.add(Lrn(x, size=g.some(1, 5), alpha=g.pick([1e-4, 0.5]), bias=g.pick([1.0, 2.0])))
    if name == "group_norm":
        if not isinstance(channels, int):
            return None
        groups = g.pick([n for n in range(1, max(channels, 1) + 1) if channels % n == 0])
        vectors = [g.like(x.tensor.dtype, (channels,)) for _ in range(2)]
        return g.add(GroupNorm(x, *vectors, groups=groups, epsilon=epsilon))
    count = 4 if name == "batch_norm" else 2
    vectors = [g.like(x.tensor.dtype, (channels,)) for _ in range(count)]
    kind: Any = BatchNorm if name == "batch_norm" else InstanceNorm
    return g.add(kind(x, *vectors, epsilon=epsilon))


__all__ = ["I32", "I64"]
