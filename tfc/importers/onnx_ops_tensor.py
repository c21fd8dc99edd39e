"""ONNX operators that make tensors: Constant, ConstantOfShape, Range, EyeLike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfc.importers.onnx_context import Context, Entry, Known, Result, dtype_of_code
from tfc.importers.onnx_forms import largest
from tfc.importers.onnx_known import make as known_elements
from tfc.importers.onnx_registry import importer
from tfc.importers.onnx_tensor import Tensor
from tfc.ir.core import Value
from tfc.ir.expr import Dim, Expr, as_expr, ceildiv, normal
from tfc.ir.types import BOOL, F32, I64, DType


@importer("Constant", 1, 9, 11, 12, 13, 19, 21, 23, 24, 25)
def _(n: Context) -> Result:
    names = list(n.node.attributes)
    n.require(len(names) == 1, f"needs one attribute with the value, has {len(names)}")
    match names[0]:
        case "value":
            return _tensor_entry(n)
        case "value_float":
            return n.scalar(n.float("value_float"), F32)
        case "value_floats":
            numbers = np.array(n.floats("value_floats"), np.float32)
            return n.host.constants.constant(numbers, n.b.location)
        case "value_int":
            return known_elements(I64, n.int("value_int"))
        case "value_ints":
            return _vector(n.ints("value_ints"))
        case name:
            n.ignore(name)
            raise n.unsupported(f"constants given as {name} are not supported")


def _tensor_entry(n: Context) -> Entry:
    tensor = n.tensor("value")
    if tensor is None:
        raise n.error("the constant has no value")
    dtype_of_code(tensor.dtype)
    return Entry(tensor=tensor)


def _vector(numbers: tuple[int, ...]) -> Known:
    return known_elements(I64, list(numbers), (len(numbers),))


@importer("ConstantOfShape", 9, 20, 21, 23, 24, 25)
def _(n: Context) -> Value:
    shape = n.known(0, "shape")
    n.require(not any(isinstance(k, int) and k < 0 for k in shape), f"negative size in {shape}")
    tensor = n.tensor("value")
    if tensor is None:
        return n.make("full", n.scalar(0.0, F32), shape=tuple(shape))
    return n.make("full", _element(n, tensor), shape=tuple(shape))


def _element(n: Context, tensor: Tensor) -> Value:
    dtype_of_code(tensor.dtype)
    n.require(tensor.elements == 1, f"its value has {tensor.elements} elements, not one")
    return n.host.constants.constant(tensor.array().reshape(()), n.b.location)


@importer("Range", 11, 27)
def _(n: Context) -> Value:
    if n.version >= 27:
        n.ignore("stash_type")  # the op rounds once, which is at least as exact
    dtype = n.type(0).dtype
    start, step = n.value(0), n.value(2)
    size = _float_count(n) if dtype.is_float else _integer_count(n)
    return n.make("range", *(_scalar(n, v) for v in (start, step)), size=size, dtype=dtype)


def _scalar(n: Context, value: Value) -> Value:
    return value if value.tensor.rank == 0 else n.make("reshape", value, shape=())


def _integer_count(n: Context) -> Dim:
    start, limit, step = (n.known_scalar(i, what) for i, what in enumerate(RANGE_INPUTS))
    if isinstance(step, Expr):
        raise n.unsupported("its delta depends on dimensions")
    n.require(step != 0, "its delta is 0")
    way = as_expr(limit) - start
    return largest(normal(ceildiv(way if step > 0 else -way, abs(step))), 0)


RANGE_INPUTS = ("start", "limit", "delta")


def _float_count(n: Context) -> int:
    start, limit, step = (n.constant(i, what).item() for i, what in enumerate(RANGE_INPUTS))
    count = (limit - start) / step if step else math.nan
    n.require(math.isfinite(count) and count < 2**31, f"a range of {count:g} elements")
    return max(math.ceil(count), 0)


@importer("EyeLike", 9, 22)
def _(n: Context) -> Value:
    given = n.type(0)
    n.require(given.rank == 2, f"{given} is no matrix")
    dtype = dtype_of_code(n.int("dtype")) if n.has_attribute("dtype") else given.dtype
    return _diagonal(n, given.shape, n.int("k", 0), dtype)


def _diagonal(n: Context, shape: tuple[Dim, ...], k: int, dtype: DType) -> Value:
    """1 where column - row = k."""
    rows = n.make("iota", shape=(shape[0], 1), axis=0, dtype=I64)
    columns: Any = n.make("iota", shape=(1, shape[1]), axis=1, dtype=I64)
    hit = n.make("equal", columns, n.make("add", rows, n.scalar(k, I64)))
    return hit if dtype == BOOL else n.make("cast", hit, to=dtype)
