"""Makers of what exporters spell out, right and nearly right: rules look for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.fuzz.graphs import Graph, Made, Shape
from tests.fuzz.makers import makes
from tfc.ir.core import Op, Value
from tfc.ir.types import F32, FLOATS, DType
from tfc.ops.arithmetic import Add, Div, Maximum, Minimum, Mul, Pow, Sub
from tfc.ops.convolution import Conv
from tfc.ops.elementwise import Reciprocal, Rsqrt, Sqrt
from tfc.ops.linalg import MatMul
from tfc.ops.normalization import BatchNorm
from tfc.ops.piecewise import Clip
from tfc.ops.reduction import ReduceMax, ReduceSum
from tfc.ops.reduction_composite import ReduceMean
from tfc.ops.softmax import Softmax
from tfc.ops.transcendental import Erf, Exp, Sigmoid, Tanh
from tfc.ops.view import Transpose

OFF = 0.1  # how often a number of an idiom is another one


def _number(g: Graph, value: float, dtype: DType) -> Value:
    """A constant of rank 0, or of rank 1 and size 1."""
    exact = value if not g.chance(OFF) else value * g.pick([0.5, 1.01, -1.0])
    shape = () if g.chance(0.9) else (1,)
    return g.constant(np.full(shape, exact).astype(dtype.numpy))


def _either(g: Graph, kind: Any, x: Value, y: Value) -> Value:
    """A commutative op, its operands in any order."""
    pair = (x, y) if g.chance(0.5) else (y, x)
    return g.add(kind(*pair))[0]


def _product(g: Graph, values: Sequence[Value]) -> Value:
    """The product of values in any order."""
    left = list(values)
    g.random.shuffle(left)
    while len(left) > 1:
        a = left.pop(g.some(0, len(left) - 1))
        left[0] = _either(g, Mul, a, left[0])
    return left[0]


def _one(g: Graph, op: Op) -> Value:
    return g.add(op)[0]


@makes("idiom-gelu", "idiom-gelu-tanh", "idiom-silu", "idiom-hard-swish", weight=1.0)
def gates(g: Graph, name: str) -> Made:
    x = g.operand(FLOATS)
    dtype = x.tensor.dtype

    def c(value: float) -> Value:
        return _number(g, value, dtype)

    if name == "idiom-gelu":
        inner = _one(g, Div(x, c(math.sqrt(2)))) if g.chance(0.5) else _product(g, [x, c(0.5**0.5)])
        return [_product(g, [x, c(0.5), _either(g, Add, _one(g, Erf(inner)), c(1.0))])]
    if name == "idiom-gelu-tanh":
        cube = _one(g, Pow(x, c(3.0))) if g.chance(0.5) else _product(g, [x, x, x])
        inner = _either(g, Add, x, _product(g, [c(0.044715), cube]))
        tanh = _one(g, Tanh(_product(g, [c(math.sqrt(2 / math.pi)), inner])))
        return [_product(g, [x, c(0.5), _either(g, Add, tanh, c(1.0))])]
    if name == "idiom-silu":
        inner = x if g.chance(0.6) else _product(g, [x, c(1.702)])
        return [_product(g, [x, _one(g, Sigmoid(inner))])]
    sum_ = _either(g, Add, x, c(3.0))
    low, high = c(0.0), c(6.0)
    if g.chance(0.5) and not low.tensor.rank and not high.tensor.rank:
        cut = _one(g, Clip(sum_, low, high))
    else:
        cut = _one(g, Minimum(_one(g, Maximum(sum_, low)), high))
    if g.chance(0.5):
        return g.add(Div(_product(g, [x, cut]), c(6.0)))
    return [_product(g, [x, cut, c(1 / 6)])]


@makes("idiom-layer-norm", "idiom-rms-norm", "idiom-softmax", weight=1.2)
def norms(g: Graph, name: str) -> Made:
    x = g.operand(FLOATS, low=1)
    rank, dtype = x.tensor.rank, x.tensor.dtype
    axes = (rank - 1,) if g.chance(0.7) else tuple(range(g.some(0, rank - 1), rank))
    if name == "idiom-softmax":
        axis = (g.some(0, rank - 1),)
        powers = _one(g, Exp(_one(g, Sub(x, _one(g, ReduceMax(x, axis, True))))))
        total = _one(g, ReduceSum(powers, axis, True))
        return g.add(Div(powers, total))
    if name == "idiom-layer-norm":
        x = _one(g, Sub(x, _one(g, ReduceMean(x, axes, True))))
    square = _one(g, Mul(x, x)) if g.chance(0.5) else _one(g, Pow(x, _number(g, 2.0, dtype)))
    epsilon = _number(g, g.pick([1e-3, 0.1]), dtype)
    shifted = _either(g, Add, _one(g, ReduceMean(square, axes, True)), epsilon)
    if g.chance(0.5):
        y = _either(g, Mul, x, _one(g, Rsqrt(shifted)))
    elif g.chance(0.5):
        y = _either(g, Mul, x, _one(g, Reciprocal(_one(g, Sqrt(shifted)))))
    else:
        y = _one(g, Div(x, _one(g, Sqrt(shifted))))
    if g.chance(0.6):
        y = _either(g, Mul, y, g.partner(y, grows=False))
    if g.chance(0.6):
        y = _either(g, Add, y, g.partner(y, grows=False))
    return [y]


@makes("idiom-attention", weight=0.8)
def attention(g: Graph, name: str) -> Made:
    """softmax(q k^T * scale + mask) v, with heads that are transposed in and out."""
    dtype = g.dtype(FLOATS)
    batch, heads, rows, keys, depth = g.some(1, 2), g.some(1, 3), g.size(6), g.size(9), g.some(1, 6)
    own: Shape = (batch, heads, rows, depth)
    query = g.like(dtype, own)
    if g.chance(0.5):
        query = _turned(g, dtype, own)
    key, value = (_turned(g, dtype, (batch, heads, keys, depth)) for _ in range(2))
    if not g.fits((batch, heads, rows, keys)):
        return None
    flipped = _one(g, Transpose(key, (0, 1, 3, 2)))
    scale = _number(g, g.pick([0.5, 0.35, 1.0]), dtype)
    match g.some(0, 2):
        case 0:
            scores = _either(g, Mul, _one(g, MatMul(query, flipped)), scale)
        case 1:
            scores = _one(g, Div(_one(g, MatMul(query, flipped)), scale))
        case _:
            scores = _one(g, MatMul(_either(g, Mul, query, scale), flipped))
    if g.chance(0.4):
        scores = _either(g, Add, scores, g.partner(scores, grows=False))
    weights = _one(g, Softmax(scores, scores.tensor.rank - 1))
    y = _one(g, MatMul(weights, value))
    return g.add(Transpose(y, (0, 2, 1, 3))) if y.tensor.rank == 4 else [y]


def _turned(g: Graph, dtype: DType, shape: Shape) -> Value:
    """A value of [N, heads, rows, depth] made of [N, rows, heads, depth]."""
    n, heads, rows, depth = shape
    return _one(g, Transpose(g.like(dtype, (n, rows, heads, depth)), (0, 2, 1, 3)))


@makes("idiom-scaled-conv", weight=1.2)
def scaled_conv(g: Graph, name: str) -> Made:
    """A convolution by constants with a batch norm, or factors and addends for each channel."""
    channels, outputs = g.pick([1, 3, 4, 16, 17]), g.pick([1, 5, 8, 16, 17, 32])
    groups = channels if g.chance(0.2) else 1
    outputs = channels if groups > 1 else outputs
    taps = g.pick([1, 1, 3])
    shape: Shape = (g.some(1, 2), channels, g.size(6), g.size(6))
    if 0 in shape or not g.fits(shape) or not g.fits((shape[0], outputs, *shape[2:])):
        return None
    x = g.like(F32, shape)
    weight = g.constant(g.numbers(F32, (outputs, channels // groups, taps, taps)))
    bias = g.constant(g.numbers(F32, (outputs,))) if g.chance(0.5) else None
    pads = (taps // 2,) * 2
    y = _one(g, Conv(x, weight, bias, low_pads=pads, high_pads=pads, groups=groups))
    if g.chance(0.5):
        vectors = [g.constant(g.numbers(F32, (outputs,))) for _ in range(4)]
        y = _one(g, BatchNorm(y, *vectors, epsilon=1e-3))
    else:
        y = _either(g, Mul, y, g.constant(g.numbers(F32, g.pick([(), (outputs, 1, 1)]))))
        y = _either(g, Add, y, g.constant(g.numbers(F32, g.pick([(), (outputs, 1, 1)]))))
    return [y]
