"""Casts between all element types against Python numbers and the reference of the specification."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.oracle import limits, nearest, number, values, wrapped
from tests.ops.running import run
from tfc.ir.types import BF16, I64, U8, DType
from tfc.ops.base import ANY
from tfc.ops.cast import Cast


def casted(value: Any, to: DType) -> Any:
    """One Python number as another element type."""
    if to.is_bool:
        return np.bool_(value != 0)
    if to.is_float:
        special = isinstance(value, float) and (not math.isfinite(value) or value == 0)
        return np.array(value).astype(to.numpy) if special else nearest(Fraction(value), to)
    if isinstance(value, int):
        return wrapped([int(value)], to)[0]
    low, high = limits(to)
    if not math.isfinite(value):
        return to.numpy.type(0 if value != value else low if value < 0 else high)
    return to.numpy.type(min(max(math.trunc(value), low), high))


@pytest.mark.parametrize("to", ANY, ids=str)
@given(data=st.data())
def test_cast(to: DType, data: Any) -> None:
    dtype = data.draw(st.sampled_from(ANY))
    x = data.draw(values(dtype, (4,)))
    expected = [casted(number(v), to).tobytes() for v in x]
    found = [v.tobytes() for v in run(Cast, x, to=to)]
    assert [_quiet(f, to) for f in found] == [_quiet(e, to) for e in expected]


def _quiet(raw: bytes, dtype: DType) -> bytes:
    """All NaN as one."""
    value = np.frombuffer(raw, dtype.numpy)[0]
    return b"nan" if dtype.is_float and value != value else raw


def test_cast_of_large_integers_to_bf16_rounds_once() -> None:
    # Just above the middle between two bf16; rounding to f64 first would land on the middle.
    x = np.array([(1 << 62) + (1 << 54) + 1, -((1 << 62) + (1 << 54) + 1)])
    above = float((1 << 62) + (1 << 55))
    assert run(Cast, x, to=BF16).astype(np.float64).tolist() == [above, -above]


def test_cast_out_of_range_saturates() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 255.9, -0.9], np.float32)
    assert run(Cast, x, to=U8).tolist() == [0, 255, 0, 255, 0, 255, 0]
    assert run(Cast, x, to=I64).tolist()[:5] == [0, 2**63 - 1, -(2**63), 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("to", ANY, ids=str)
@pytest.mark.parametrize("dtype", ANY, ids=str)
def test_cast_in_range_is_that_of_onnx(dtype: DType, to: DType) -> None:
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    names = {"f64": "DOUBLE", "f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16", "bool": "BOOL"}

    def proto(kind: DType) -> int:
        plain = kind.name.upper().replace("I", "INT").replace("U", "UINT")
        return int(getattr(TensorProto, names.get(kind.name, plain)))

    x = np.array([0, 1, 2, 100, 0.75, 3.5]).astype(dtype.numpy)
    node = helper.make_node("Cast", ["x"], ["y"], to=proto(to))
    shape = [len(x)]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", proto(dtype), shape)],
        [helper.make_tensor_value_info("y", proto(to), shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert run(Cast, x, to=to).tobytes() == np.asarray(expected).astype(to.numpy).tobytes()
