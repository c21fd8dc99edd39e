"""Softmax and its logarithm against their formulas, decomposed too; infinities, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import arrays, shapes
from tests.ops.running import assert_close, run, run_decomposed
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.types import F32, FLOATS, I32, TensorType
from tfc.ops.softmax import LogSoftmax, Softmax

RUNNERS = (run, run_decomposed)


@given(st.data(), st.sampled_from(FLOATS), shapes(1, 3))
def test_formulas(data: Any, dtype: Any, shape: Any) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = data.draw(arrays(dtype, shape))
    powers = np.exp(x.astype(np.float64))
    expected = powers / powers.sum(axis, keepdims=True)
    for runner in RUNNERS:
        assert_close(runner(Softmax, x, axis=axis), expected.astype(x.dtype), 2)
        assert_close(runner(LogSoftmax, x, axis=axis), np.log(expected).astype(x.dtype), 2)


@pytest.mark.parametrize("runner", RUNNERS)
def test_extremes(runner: Any) -> None:
    inf, nan = np.inf, np.nan
    rows = [[1000, 1000], [-inf, 0], [-inf, -inf], [inf, 0], [nan, 0], [-3e38, 3e38]]
    x = np.array(rows, np.float32)
    expected = [[0.5, 0.5], [0, 1], [nan, nan], [nan, nan], [nan, nan], [0, 1]]
    assert_close(runner(Softmax, x, axis=1), np.array(expected, np.float32))
    logs = runner(LogSoftmax, x[:5], axis=1)
    with np.errstate(divide="ignore"):
        assert_close(logs, np.log(np.array(expected[:5], np.float32)))


def test_errors_cite_the_constraint() -> None:
    x, whole = Block([TensorType(F32, (2, 3)), TensorType(I32, (2,))]).args
    with pytest.raises(TfcError, match=r"softmax: C1.*i32"):
        Softmax(whole, axis=0)
    with pytest.raises(TfcError, match=r"softmax: C2"):
        Softmax(x, axis=2)
    with pytest.raises(TfcError, match=r"log_softmax: C2"):
        LogSoftmax(x, axis=-1)
