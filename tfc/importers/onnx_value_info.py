"""Reads the declared types of values in an ONNX model."""

from __future__ import annotations

from tfc.importers.mapped_file import Span
from tfc.importers.onnx_model import ModelDim, ValueInfo
from tfc.importers.onnx_schema import (
    CONTAINER_TYPE,
    DIMENSION,
    MAP_TYPE,
    SHAPE,
    TENSOR_TYPE,
    TYPE,
    VALUE_INFO,
)
from tfc.importers.onnx_tensor import MAX_RANK, element_name
from tfc.importers.protobuf import read

MAX_DEPTH = 32  # of types in types


def read_value_info(span: Span) -> ValueInfo:
    message = read(span, VALUE_INFO)
    inner = message.inner("type")
    name = message.text("name")
    return read_type(name, inner, 1) if inner else ValueInfo(name, "")


def read_type(name: str, span: Span, depth: int) -> ValueInfo:
    message = read(span, TYPE)
    if depth > MAX_DEPTH:
        raise message.error(f"types nest deeper than {MAX_DEPTH}")
    if len(message.values) > 1:
        raise message.error(f"value {name!r} has several types: {', '.join(message.values)}")
    if not message.values:
        return ValueInfo(name, "")
    [(kind, [inner])] = message.values.items()
    if kind == "tensor":
        return _tensor_type(name, inner)
    if kind == "map":
        found = read(inner, MAP_TYPE)
        value = found.inner("value_type")
        text = f"{element_name(found.int('key_type'))},{_type_text(value, depth)}"
    elif kind in ("sequence", "optional"):
        text = _type_text(read(inner, CONTAINER_TYPE).inner("elem_type"), depth)
    else:
        text = ""
    return ValueInfo(name, f"{kind}({text})")


def _type_text(span: Span | None, depth: int) -> str:
    if span is None:
        return ""
    inner = read_type("", span, depth + 1)
    return f"tensor({element_name(inner.dtype)})" if inner.kind == "tensor" else inner.kind


def _tensor_type(name: str, span: Span) -> ValueInfo:
    message = read(span, TENSOR_TYPE)
    shape = message.inner("shape")
    dtype = message.int("elem_type")
    if shape is None:
        return ValueInfo(name, "tensor", dtype)
    dims = tuple(_dimension(name, inner) for inner in read(shape, SHAPE).inners("dim"))
    if len(dims) > MAX_RANK:
        raise message.error(f"value {name!r} has rank {len(dims)}, more than {MAX_RANK}")
    return ValueInfo(name, "tensor", dtype, dims)


def _dimension(name: str, span: Span) -> ModelDim:
    message = read(span, DIMENSION)
    if message.has("dim_value") and message.has("dim_param"):
        raise message.error(f"value {name!r} has a dimension that is both a number and a symbol")
    if message.has("dim_value"):
        size = message.int("dim_value")
        if size < -1:
            raise message.error(f"value {name!r} has the dimension {size}")
        return None if size == -1 else size  # some exporters write -1 for "any"
    return message.text("dim_param") or None
