"""ONNX operators of quantised tensors, as their definitions say: integers, scales, zero points."""

from __future__ import annotations

import numpy as np

from tfc.importers.onnx_context import Context, Result, dtype_of_code
from tfc.importers.onnx_ops_elementwise import cast
from tfc.importers.onnx_ops_neural import convolution
from tfc.importers.onnx_registry import importer
from tfc.ir.core import Value
from tfc.ir.expr import as_expr, ceildiv, normal
from tfc.ir.types import F32, I8, I16, I32, U8, U16, DType

QUANTISED = (I8, U8, I16, U16)


# ---- from and to floats


@importer("QuantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28)
def _(n: Context) -> Value:
    x, scale = n.value(0), n.value(1)
    dtype = _quantised_type(n)
    wide = _precision(n, scale.tensor.dtype)
    axis, block = _axis(n), _block(n)
    scale = _spread(n, cast(n, scale, wide), x, axis, block)
    zero = _spread(n, n.value(2), x, axis, block) if n.has(2) else None
    return quantised(n, n.make("div", cast(n, x, wide), scale), zero, dtype)


def _quantised_type(n: Context) -> DType:
    if n.version >= 19:
        n.ignore("saturate")  # of 8-bit floats, which are refused
    given = n.int("output_dtype", 0) if n.version >= 21 else 0
    dtype = n.type(2).dtype if n.has(2) else dtype_of_code(given) if given else U8
    n.require(not given or dtype_of_code(given) == dtype, "output_dtype is not the zero point's")
    if dtype not in QUANTISED:
        raise n.unsupported(f"quantising to {dtype} is not supported")
    return dtype


def _precision(n: Context, dtype: DType) -> DType:
    """What to divide in: the type of the scale, if it is no half float, or what is asked for."""
    given = n.int("precision", 0) if n.version >= 23 else 0
    found = dtype_of_code(given) if given else dtype
    n.require(found.is_float, f"a scale of {found}")
    return F32 if found.bits < 32 else found


def quantised(n: Context, x: Value, zero: Value | None, dtype: DType) -> Value:
    """Floats rounded to the nearest even, plus the zero point, saturated."""
    wide = x.tensor.dtype
    limits = np.iinfo(dtype.numpy)
    rounded = n.make("round", x)
    if zero is not None:
        rounded = n.make("add", rounded, cast(n, zero, wide))
    low, high = (n.scalar(float(limit), wide) for limit in (limits.min, limits.max))
    return n.make("cast", n.make("clip", rounded, low, high), to=dtype)


@importer("DequantizeLinear", 10, 13, 19, 21, 23, 24, 25, 28)
def _(n: Context) -> Value:
    x, scale = n.value(0), n.value(1)
    if x.tensor.dtype not in (*QUANTISED, I32):
        raise n.unsupported(f"{x.tensor.dtype} is not supported")
    axis, block = _axis(n), _block(n)
    wide = F32 if scale.tensor.dtype.bits < 32 else scale.tensor.dtype
    given = n.int("output_dtype", 0) if n.version >= 23 else 0
    number = cast(n, x, I32)
    if n.has(2):
        zero = _spread(n, cast(n, n.value(2), I32), x, axis, block)
        number = n.make("sub", number, zero)
    factor = _spread(n, cast(n, scale, wide), x, axis, block)
    found = n.make("mul", cast(n, number, wide), factor)
    return cast(n, found, dtype_of_code(given) if given else scale.tensor.dtype)


def _axis(n: Context) -> int:
    return n.int("axis", 1) if n.version >= 13 else 1


def _block(n: Context) -> int:
    return n.int("block_size", 0) if n.version >= 21 else 0


def _spread(n: Context, value: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point: one number, one for each index of an axis, or one for each block."""
    rank, sizes = x.tensor.rank, value.tensor.shape
    if value.tensor.rank == 0 or (value.tensor.rank == 1 and sizes[0] == 1 and not block):
        return n.make("reshape", value, shape=())
    axis = n.axis(axis, rank)
    if not block:
        n.require(value.tensor.rank == 1, f"a scale or zero point of {value.tensor}")
        return n.make("reshape", value, shape=(*sizes, *[1] * (rank - 1 - axis)))
    n.require(value.tensor.rank == rank, f"blocks of {value.tensor} for {x.tensor}")
    whole = x.tensor.shape[axis]
    n.require(normal(ceildiv(whole, block)) == sizes[axis], f"blocks of {block} in {whole}")
    columns = n.make("unsqueeze", value, axes=(axis + 1,))
    spread = n.make("expand", columns, shape=(*sizes[: axis + 1], block, *sizes[axis + 1 :]))
    long = (*sizes[:axis], normal(as_expr(sizes[axis]) * block), *sizes[axis + 1 :])
    joined = n.make("reshape", spread, shape=long)
    limits = (*long[:axis], whole, *long[axis + 1 :])
    return n.make("slice", joined, starts=(0,) * rank, limits=limits, steps=(1,) * rank)


@importer("DynamicQuantizeLinear", 11)
def _(n: Context) -> Result:
    """The range of the operand, which always holds 0, is what 8 bits span."""
    x = n.value(0)
    axes, zero = tuple(range(x.tensor.rank)), n.scalar(0.0, F32)
    high = n.make("maximum", n.make("reduce_max", x, axes=axes, keepdims=False), zero)
    low = n.make("minimum", n.make("reduce_min", x, axes=axes, keepdims=False), zero)
    scale = n.make("div", n.make("sub", high, low), n.scalar(255.0, F32))
    offset = quantised(n, n.make("div", n.make("neg", low), scale), None, U8)
    return [quantised(n, n.make("div", x, scale), offset, U8), scale, offset]


# ---- products


def _centred(n: Context, index: int, zero_index: int, axis: int) -> Value:
    """An operand less its zero point, in i32; `axis` is that along which there may be several."""
    x = n.value(index)
    number = cast(n, x, I32)
    if not n.has(zero_index):
        return number
    zero = cast(n, n.value(zero_index), I32)
    if zero.tensor.rank == 1:
        behind = x.tensor.rank - 1 - n.axis(axis, x.tensor.rank) if zero.tensor.shape != (1,) else 0
        zero = n.make("reshape", zero, shape=(*zero.tensor.shape, *[1] * behind))
    return n.make("sub", number, zero)


@importer("MatMulInteger", 10)
def _(n: Context) -> Value:
    return n.make("matmul", _centred(n, 0, 2, -2), _centred(n, 1, 3, -1))


@importer("ConvInteger", 10)
def _(n: Context) -> Value:
    return convolution(n, _centred(n, 0, 2, 1), _centred(n, 1, 3, 0), None)


@importer("QLinearMatMul", 10, 21)
def _(n: Context) -> Value:
    """Operands: a, its scale and zero point, b, its scale and zero point, those of the result."""
    total = n.make("matmul", _centred(n, 0, 2, -2), _centred(n, 3, 5, -1))
    rank = total.tensor.rank
    scales = [_per(n, 1, rank, -2), _per(n, 4, rank, -1), _per(n, 6, rank, -2)]
    return _requantised(n, total, scales, 7)


@importer("QLinearConv", 10)
def _(n: Context) -> Value:
    bias = n.optional(8)
    total = convolution(n, _centred(n, 0, 2, 1), _centred(n, 3, 5, 0), bias)
    rank = total.tensor.rank
    scales = [_per(n, 1, rank, 1), _per(n, 4, rank, 1), _per(n, 6, rank, 1)]
    return _requantised(n, total, scales, 7)


def _per(n: Context, index: int, rank: int, axis: int) -> Value:
    """A scale in f32: one number, or one for each index of an axis of the result."""
    scale = cast(n, n.value(index), F32)
    if scale.tensor.shape in ((), (1,)):
        return n.make("reshape", scale, shape=())
    n.require(scale.tensor.rank == 1, f"a scale of {scale.tensor}")
    behind = rank - 1 - n.axis(axis, rank)
    return n.make("reshape", scale, shape=(*scale.tensor.shape, *[1] * behind))


def _requantised(n: Context, total: Value, scales: list[Value], zero_index: int) -> Value:
    """Sums in the scale of the result: times both operands' scales, divided by its own."""
    a, b, own = scales
    factor = n.make("div", n.make("mul", a, b), own)
    zero = n.value(zero_index)
    dtype = zero.tensor.dtype
    if dtype not in QUANTISED:
        raise n.unsupported(f"quantising to {dtype} is not supported")
    if zero.tensor.shape == (1,):
        zero = n.make("reshape", zero, shape=())
    return quantised(n, n.make("mul", cast(n, total, F32), factor), zero, dtype)
