"""The reductions against loops over single elements, their composites, positions, running sums."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import arrays, axes_of, shapes
from tests.ops.running import assert_close, run
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import BOOL, DTYPES, F32, I64, TensorType
from tfc.ops.base import NUMERIC
from tfc.ops.reduction import (
    ArgMax,
    ArgMin,
    CumSum,
    ReduceMax,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)


def loop(x: np.ndarray, axes: tuple[int, ...], keepdims: bool, fold: Any) -> np.ndarray:
    """Folds the list of Python numbers at each place of the result."""
    kept = [range(1 if a in axes else n) for a, n in enumerate(x.shape)]
    out = np.empty([len(r) for r in kept], object)
    for place in itertools.product(*kept):
        chosen = tuple(slice(None) if a in axes else p for a, p in enumerate(place))
        out[place] = fold([v.item() for v in np.asarray(x[chosen].astype(widest(x))).flat])
    shape = [n for a, n in enumerate(out.shape) if keepdims or a not in axes]
    return out.reshape(shape)


def widest(x: np.ndarray) -> Any:
    return np.float64 if x.dtype.kind not in "iub" else x.dtype


def as_type(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Python numbers rounded, or wrapped, to a type."""
    if dtype.kind not in "iu":
        kind = np.float64 if dtype.kind != "b" else np.bool_
        return values.astype(kind).astype(dtype)
    bits = dtype.itemsize * 8
    wrapped = [int(v) % 2**bits for v in values.flat]
    unsigned = np.array(wrapped, f"u{dtype.itemsize}").reshape(values.shape)
    return unsigned.view(dtype) if unsigned.ndim else unsigned.astype(dtype)


def largest(values: list[Any]) -> Any:
    return math.nan if any(v != v for v in values) else max(values)


def smallest(values: list[Any]) -> Any:
    return math.nan if any(v != v for v in values) else min(values)


LIMITS = {ReduceMax: (largest, -1), ReduceMin: (smallest, 1)}


@given(st.data(), st.sampled_from(NUMERIC), st.booleans())
def test_sum_and_product_fold_each_element_once(data: Any, dtype: Any, keepdims: bool) -> None:
    shape = data.draw(shapes())
    axes = data.draw(axes_of(len(shape)))
    x = data.draw(arrays(dtype, shape, special=True))
    for kind, fold in ((ReduceSum, sum), (ReduceProd, math.prod)):
        expected = as_type(loop(x, axes, keepdims, fold), x.dtype)
        assert_close(run(kind, x, axes=axes, keepdims=keepdims), expected)


@given(st.data(), st.sampled_from((*NUMERIC, BOOL)), st.booleans())
def test_extremes_propagate_nan(data: Any, dtype: Any, keepdims: bool) -> None:
    shape = data.draw(shapes(smallest=1))
    axes = data.draw(axes_of(len(shape)))
    x = data.draw(arrays(dtype, shape, special=True))
    for kind, (fold, _) in LIMITS.items():
        expected = as_type(loop(x, axes, keepdims, fold), x.dtype)
        np.testing.assert_array_equal(run(kind, x, axes=axes, keepdims=keepdims), expected)


@pytest.mark.parametrize("dtype", list(DTYPES.values()), ids=str)
def test_folding_nothing_gives_the_identity(dtype: Any) -> None:
    x = np.zeros((2, 0), dtype.numpy)
    least, most = run(ReduceMax, x, axes=(1,)), run(ReduceMin, x, axes=(1,))
    if dtype.is_float:
        assert list(least) == [-np.inf] * 2 and list(most) == [np.inf] * 2
    elif dtype.is_bool:
        assert list(least) == [False] * 2 and list(most) == [True] * 2
        return
    else:
        info = np.iinfo(dtype.numpy)
        assert list(least) == [info.min] * 2 and list(most) == [info.max] * 2
    assert list(run(ReduceSum, x, axes=(1,))) == [0, 0]
    assert list(run(ReduceProd, x, axes=(1,))) == [1, 1]


def test_half_sums_accumulate_wide() -> None:
    ones = np.ones((1, 8192), np.float16)
    assert run(ReduceSum, ones, axes=(1,)).item() == 8192
    assert run(CumSum, ones, axis=1)[0, -1] == 8192


def test_integers_wrap() -> None:
    x = np.array([100, 100], np.int8)
    assert run(ReduceSum, x, axes=(0,)).item() == -56
    assert run(ReduceProd, x, axes=(0,)).item() == 16


def test_symbolic_axes_stay_or_go() -> None:
    kind = TensorType(F32, (symbol("B"), symbol("S"), 4))
    x = Block([kind]).args[0]
    assert ReduceSum(x, axes=(1,)).result.type == TensorType(F32, (symbol("B"), 4))
    kept = ReduceSum(x, axes=(0, 2), keepdims=True).result.type
    assert kept == TensorType(F32, (1, symbol("S"), 1))
    assert ReduceMax(x, axes=()).result.type == kind
    assert ArgMax(x, axis=2).result.type == TensorType(I64, (symbol("B"), symbol("S")))


def test_errors_cite_the_constraint() -> None:
    x = Block([TensorType(F32, (2, 3)), TensorType(BOOL, (2,))]).args
    with pytest.raises(TfcError, match=r"reduce_sum: C1.*bool"):
        ReduceSum(x[1], axes=(0,))
    with pytest.raises(TfcError, match=r"reduce_sum: C2.*axes 2"):
        ReduceSum(x[0], axes=(2,))
    with pytest.raises(TfcError, match=r"C2.*do not ascend"):
        ReduceSum(x[0], axes=(1, 0))
    with pytest.raises(TfcError, match=r"argmax: C2.*\n.*write 1"):
        ArgMax(x[0], axis=-1)
    with pytest.raises(TfcError, match=r"cumsum: C1"):
        CumSum(x[1], axis=0)


# ---- positions


@given(st.data(), st.sampled_from(NUMERIC), st.booleans(), st.booleans())
def test_positions_of_extremes(data: Any, dtype: Any, keepdims: bool, last: bool) -> None:
    shape = data.draw(shapes(1, 3, 1))
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = np.round(data.draw(arrays(dtype, shape, special=True)).astype(np.float64))
    x = (x % 3).astype(dtype.numpy) if dtype.is_integer else x.astype(dtype.numpy)

    def place(best: Any, values: list[Any]) -> int:
        target = best(values)
        hits = [i for i, v in enumerate(values) if v == target or (v != v and target != target)]
        return hits[-1 if last else 0]

    for kind, best in ((ArgMax, largest), (ArgMin, smallest)):
        expected = loop(x, (axis,), keepdims, lambda values, best=best: place(best, values))
        found = run(kind, x, axis=axis, keepdims=keepdims, select_last=last)
        np.testing.assert_array_equal(found, expected.astype(np.int64))


def test_a_row_of_nan_gives_its_first_index() -> None:
    x = np.full((2, 58), np.nan, np.float32)
    assert list(run(ArgMax, x, axis=1)) == [0, 0]
    assert list(run(ArgMin, x, axis=1)) == [0, 0]
    assert list(run(ArgMax, np.zeros((2, 0), np.float32), axis=1)) == [0, 0]


# ---- running sums


@given(st.data(), st.sampled_from(NUMERIC), st.booleans(), st.booleans())
def test_running_sums(data: Any, dtype: Any, exclusive: bool, reverse: bool) -> None:
    shape = data.draw(shapes(1, 3))
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = data.draw(arrays(dtype, shape, special=True))
    rows = np.moveaxis(x, axis, -1).astype(widest(x))
    expected = np.empty(rows.shape, object)
    for place in np.ndindex(rows.shape):
        row, i = [v.item() for v in rows[place[:-1]]], place[-1]
        before = row[:i] if exclusive else row[: i + 1]
        behind = row[i + 1 :] if exclusive else row[i:]
        expected[place] = sum(behind[::-1] if reverse else before)
    found = run(CumSum, x, axis=axis, exclusive=exclusive, reverse=reverse)
    assert_close(found, as_type(np.moveaxis(expected, -1, axis), x.dtype))
