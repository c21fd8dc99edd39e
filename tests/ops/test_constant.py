"""Constants, counting and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import shapes
from tests.ops.oracle import wrapped
from tests.ops.running import make, run, run_decomposed
from tfc.interpret import evaluated
from tfc.ir.builder import Builder
from tfc.ir.core import Block, SymbolRef
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import BOOL, F16, F32, F64, I8, I64, INTEGERS, U8, TensorType
from tfc.ir.weights import Dense, Weights
from tfc.ops.constant import Constant, DimValue, Full, Iota, Range, ShapeOf, constant, scalar

S, U = symbol("S"), symbol("U")


def test_constant_gives_its_elements() -> None:
    x = np.array([[1.5, -0.0]], np.float32)
    b = Builder(Block())
    value = constant(b, x)
    assert value.type == TensorType(F32, (1, 2))
    op = value.producer
    assert isinstance(op, Constant)
    op.verify()
    assert op.reference().tobytes() == x.tobytes()
    assert scalar(b, 0.1, F16).producer.reference() == np.float16(0.1)  # type: ignore[union-attr]


def test_constant_of_a_weight() -> None:
    weights = Weights()
    name = weights.add(np.arange(6, dtype=np.int8).reshape(2, 3), "w")
    op = Constant(SymbolRef(name), TensorType(I8, (2, 3)))
    op.verify()
    assert op.array(weights).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("message", "value", "given"),
    [
        ("C1", 0.5, TensorType(F32, ())),
        ("C2: .*symbolic", SymbolRef("w"), TensorType(F32, (S,))),
        ("C2: .*f64", Dense(np.zeros(2)), TensorType(F32, (2,))),
        ("C2", Dense(np.zeros(2)), TensorType(F64, (3,))),
    ],
)
def test_constants_that_do_not_hold_together(message: str, value: Any, given: Any) -> None:
    with pytest.raises(TfcError, match=f"constant: {message}"):
        Constant(value, given).verify()


@given(data=st.data())
def test_full(data: Any) -> None:
    shape = data.draw(shapes(0, 3))
    x = np.array(data.draw(st.booleans()))
    found = run(Full, x, shape=shape)
    assert found.shape == shape and (found == x).all()
    np.testing.assert_array_equal(run_decomposed(Full, x, shape=shape), found)


@given(data=st.data())
def test_iota(data: Any) -> None:
    shape = data.draw(shapes(1, 3))
    axis = data.draw(st.integers(0, len(shape) - 1))
    dtype = data.draw(st.sampled_from([I64, F32, I8, U8]))
    found = run(Iota, shape=shape, axis=axis, dtype=dtype)
    np.testing.assert_array_equal(found, np.indices(shape)[axis])


def test_iota_wraps() -> None:
    assert run(Iota, shape=(300,), axis=0, dtype=U8)[[255, 256]].tolist() == [255, 0]


@given(data=st.data())
def test_range_of_integers(data: Any) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    size = data.draw(st.integers(0, 5))
    start, step = (
        data.draw(st.none() | st.integers(0, 100).map(lambda v: np.array(v, dtype.numpy)))
        for _ in range(2)
    )
    first, by = (int(start) if start is not None else 0), (int(step) if step is not None else 1)
    expected = wrapped([first + by * i for i in range(size)], dtype)
    found = run(Range, start, step, size=size, dtype=dtype)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(run_decomposed(Range, start, step, size=size, dtype=dtype), found)


def test_range_of_floats() -> None:
    start, step = np.array(1.5, np.float32), np.array(0.1, np.float32)
    found = run(Range, start, step, size=4, dtype=F32)
    np.testing.assert_allclose(found, [1.5, 1.6, 1.7, 1.8], rtol=1e-6)
    np.testing.assert_array_equal(run_decomposed(Range, start, step, size=4, dtype=F32), found)


def test_sizes() -> None:
    x = np.zeros((2, 0, 3), np.float32)
    assert run(ShapeOf, x, start=0, end=3).tolist() == [2, 0, 3]
    assert run(ShapeOf, x, start=1, end=1).tolist() == []
    assert run_decomposed(ShapeOf, x, start=1, end=3).tolist() == [0, 3]
    (symbolic,) = Block([TensorType(F32, (S, 4, U))]).args
    op = ShapeOf(symbolic, 0, 3)
    assert op.result.type == TensorType(I64, (3,))
    value = evaluated(DimValue(S * U + 1), {"S": 3, "U": 4}).reference()
    assert value == 13 and value.dtype == np.int64


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("full: C1", lambda: make(Full, np.zeros(1), shape=(2,))),
        ("iota: C1", lambda: Iota((2,), 0, BOOL)),
        ("iota: C2", lambda: Iota((2,), 1, I64)),
        ("iota: C2", lambda: Iota((), 0, I64)),
        ("range: C1", lambda: Range(None, None, 3, BOOL)),
        ("range: C1", lambda: make(Range, np.zeros(1), None, size=3, dtype=F64)),
        ("range: C1", lambda: make(Range, np.zeros(()), None, size=3, dtype=F32)),
        ("shape_of: C1", lambda: make(ShapeOf, np.zeros(1), start=0, end=2)),
        ("shape_of: C1", lambda: make(ShapeOf, np.zeros(1), start=1, end=0)),
    ],
)
def test_broken_constraints(message: str, build: Any) -> None:
    with pytest.raises(TfcError, match=message):
        build()
