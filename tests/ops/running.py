"""Runs one op on arrays in tests: by its reference, and by those of the ops it decomposes into."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Op, Value
from tfc.ir.types import TensorType, dtype_of
from tfc.ops.base import GraphOp, is_composite, is_float_array

TOLERANCE = {"float64": 1e-12, "float32": 4e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def type_of(array: np.ndarray) -> TensorType:
    return TensorType(dtype_of(array.dtype), tuple(array.shape))


def make(kind: type[GraphOp], *arrays: np.ndarray | None, **attributes: Any) -> GraphOp:
    """An op, in a block of its own, whose operands have the types of the arrays."""
    block = Block([type_of(a) for a in arrays if a is not None])
    given = iter(block.args)
    operands = [None if a is None else next(given) for a in arrays]
    op = kind(*operands, **attributes)
    block.append(op)
    return op


def run(kind: type[GraphOp], *arrays: np.ndarray | None, **attributes: Any) -> np.ndarray:
    """The reference's result, which must have the type that was inferred."""
    op = make(kind, *arrays, **attributes)
    return _checked(op, op.reference(*arrays))


def run_decomposed(kind: type[GraphOp], *arrays: np.ndarray | None, **attributes: Any) -> Any:
    """The result of the primitives that the op decomposes into."""
    op = make(kind, *arrays, **attributes)
    expected = [v.type for v in op.results]
    values = {v: a for v, a in zip(op.operands, arrays, strict=False) if v is not None}
    results = [_value(v, values) for v in _decompose(op)]
    assert [type_of(r) for r in results] == expected
    return results[0]


def _decompose(op: Op) -> list[Value]:
    return op.decompose(Builder.before_op(op))  # type: ignore[attr-defined]


def _value(value: Value, known: dict[Value, np.ndarray]) -> np.ndarray:
    if value in known:
        return known[value]
    op = value.producer
    assert isinstance(op, GraphOp), "an argument has no array"
    if is_composite(op):
        found = [_value(v, known) for v in _decompose(op)][value.index]
    else:
        found = _checked(op, op.reference(*(v and _value(v, known) for v in op.operands)))
    known[value] = found
    return found


def _checked(op: GraphOp, array: Any) -> np.ndarray:
    assert isinstance(array, np.ndarray | np.generic), f"{op.name} gave a {type(array)}"
    assert type_of(np.asarray(array)) == op.result.type, f"{op.name}: not as inferred"
    return np.asarray(array)


def assert_close(found: np.ndarray, expected: np.ndarray, scale: float = 1.0) -> None:
    """Equal integers; floats within a few units of precision; equal NaN and infinities."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if not is_float_array(found):
        np.testing.assert_array_equal(found, expected)
        return
    limit = TOLERANCE[found.dtype.name] * scale
    wide, right = found.astype(np.float64), expected.astype(np.float64)
    finite = right[np.isfinite(right)]
    largest = float(np.abs(finite).max(initial=0))
    np.testing.assert_allclose(wide, right, rtol=limit, atol=limit * min(largest, 1.0))
