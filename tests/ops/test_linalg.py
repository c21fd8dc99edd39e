"""Matrix multiplication and gemm against sums of products, ranks and symbols, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import arrays
from tests.ops.running import assert_close, run, run_decomposed
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import BF16, BOOL, F16, F32, I32, TensorType
from tfc.ops.base import NUMERIC
from tfc.ops.linalg import Gemm, MatMul

SHAPES = [
    ((3,), (3,)),
    ((0,), (0,)),
    ((3,), (3, 4)),
    ((2, 3), (3,)),
    ((2, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (2, 3, 1)),
    ((1, 2, 3), (5, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
]


def sums_of_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The matrix product by broadcasting, integers as Python's."""
    exact: Any = object if a.dtype.kind in "iu" else np.float64
    rows = a.astype(exact)[None] if a.ndim == 1 else a.astype(exact)
    columns = b.astype(exact)[:, None] if b.ndim == 1 else b.astype(exact)
    out = np.asarray((rows[..., :, :, None] * columns[..., None, :, :]).sum(-2))
    out = out[..., 0] if b.ndim == 1 else out
    return np.asarray(
        out[..., 0] if a.ndim == b.ndim == 1 else out[..., 0, :] if a.ndim == 1 else out
    )


def wrapped(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if dtype.kind not in "iu":
        return values.astype(np.float64).astype(dtype)
    modulo = np.asarray(values % 2 ** (8 * dtype.itemsize), object)
    return modulo.astype(np.uint64).astype(dtype)


@pytest.mark.parametrize("pair", SHAPES, ids=str)
@given(data=st.data(), dtype=st.sampled_from(NUMERIC))
def test_matmul_sums_products(pair: Any, data: Any, dtype: Any) -> None:
    a, b = (data.draw(arrays(dtype, shape)) for shape in pair)
    assert_close(run(MatMul, a, b), wrapped(sums_of_products(a, b), a.dtype))


def test_half_products_accumulate_wide() -> None:
    ones = np.ones((1, 4096), np.float16)
    assert run(MatMul, ones, np.ones((4096, 1), np.float16)).item() == 4096


@given(st.data(), st.sampled_from(NUMERIC), st.booleans(), st.booleans())
def test_gemm(data: Any, dtype: Any, trans_a: bool, trans_b: bool) -> None:
    a = data.draw(arrays(dtype, (3, 2) if trans_a else (2, 3)))
    b = data.draw(arrays(dtype, (4, 3) if trans_b else (3, 4)))
    shape = data.draw(st.sampled_from([None, (), (1,), (4,), (2, 1), (1, 4), (2, 4)]))
    c = None if shape is None else data.draw(arrays(dtype, shape))
    alpha, beta = (0.5, -2.5) if dtype.is_float else (3.0, 2.0)
    product = sums_of_products(a.T if trans_a else a, b.T if trans_b else b)
    factor: Any = float if dtype.is_float else int
    expected = product * factor(alpha)
    if c is not None:
        exact: Any = np.float64 if dtype.is_float else object
        expected = expected + c.astype(exact) * factor(beta)
    options = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
    for runner in (run, run_decomposed):
        assert_close(runner(Gemm, a, b, c, **options), wrapped(expected, a.dtype), 2)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_half_gemm_rounds_once(dtype: Any) -> None:
    big = np.array([[1.0, 1.0]]).astype(dtype.numpy)
    column = np.array([[3e4], [3e4]]).astype(dtype.numpy)
    addend = np.array([-3e4]).astype(dtype.numpy)
    for runner in (run, run_decomposed):
        assert runner(Gemm, big, column, addend).item() == column[0, 0]


def test_symbols_in_shapes() -> None:
    b, m, k = symbol("B"), symbol("M"), symbol("K")
    block = Block([TensorType(F32, (b, m, k)), TensorType(F32, (k, 4)), TensorType(F32, (3, 4))])
    x, y, z = block.args
    assert MatMul(x, y).result.type == TensorType(F32, (b, m, 4))
    assert not MatMul(x, y).entry_checks()
    (check,) = MatMul(x, z).entry_checks()
    assert check.holds({"K": 3}) and not check.holds({"K": 4})
    assert Gemm(y, z, trans_b=True).result.type == TensorType(F32, (k, 3))


def test_errors_cite_the_constraint() -> None:
    types = [
        (F32, (2, 3)),
        (F32, (4, 2)),
        (I32, (3, 2)),
        (F32, ()),
        (BOOL, (3, 3)),
        (F32, (2, 3, 1)),
    ]
    a, b, i, scalar, bits, c = Block([TensorType(d, s) for d, s in types]).args
    with pytest.raises(TfcError, match=r"matmul: C1.*f32, i32"):
        MatMul(a, i)
    with pytest.raises(TfcError, match=r"matmul: C1.*bool"):
        MatMul(bits, bits)
    with pytest.raises(TfcError, match=r"matmul: C2"):
        MatMul(a, scalar)
    with pytest.raises(TfcError, match=r"matmul: C3.*3 and 4"):
        MatMul(a, b)
    batches = Block([TensorType(F32, (2, 3, 3)), TensorType(F32, (4, 3, 3))]).args
    with pytest.raises(TfcError, match=r"matmul: C4"):
        MatMul(*batches)
    with pytest.raises(TfcError, match=r"gemm: C1.*fraction"):
        Gemm(i, i, alpha=0.5, trans_b=True)
    with pytest.raises(TfcError, match=r"gemm: C2"):
        Gemm(c, a)
    with pytest.raises(TfcError, match=r"gemm: C3"):
        Gemm(a, b)
    with pytest.raises(TfcError, match=r"gemm: C4"):
        Gemm(b, a, a)
