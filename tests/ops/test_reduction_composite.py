"""The composite reductions: formulas, decomposition, element types, empty and infinite operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import arrays, axes_of, shapes
from tests.ops.running import assert_close, run, run_decomposed
from tfc.ir.builder import Builder
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import F32, FLOATS, I32, TensorType
from tfc.ops.base import NUMERIC
from tfc.ops.reduction_composite import (
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMean,
    ReduceSumSquare,
)

FORMULAS = {
    ReduceMean: lambda x, a: x.mean(a, keepdims=True),
    ReduceL1: lambda x, a: np.abs(x).sum(a, keepdims=True),
    ReduceL2: lambda x, a: np.sqrt((x**2).sum(a, keepdims=True)),
    ReduceSumSquare: lambda x, a: (x**2).sum(a, keepdims=True),
    ReduceLogSum: lambda x, a: np.log(x.sum(a, keepdims=True)),
    ReduceLogSumExp: lambda x, a: np.log(np.exp(x).sum(a, keepdims=True)),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", FORMULAS, ids=lambda k: k.name)
@given(data=st.data(), dtype=st.sampled_from(FLOATS), keepdims=st.booleans())
def test_formula_and_decomposition(kind: Any, data: Any, dtype: Any, keepdims: bool) -> None:
    shape = data.draw(shapes(0, 3))
    axes = data.draw(axes_of(len(shape)))
    x = data.draw(arrays(dtype, shape))
    x = np.abs(x) if kind is ReduceLogSum else x
    expected = FORMULAS[kind](x.astype(np.float64), axes).astype(x.dtype)
    expected = expected if keepdims else expected.squeeze(axes)
    assert_close(run(kind, x, axes=axes, keepdims=keepdims), expected)
    assert_close(run_decomposed(kind, x, axes=axes, keepdims=keepdims), expected, 2)


@given(st.data(), st.sampled_from(NUMERIC))
def test_integers_wrap_alike(data: Any, dtype: Any) -> None:
    x = data.draw(arrays(dtype, (3, 4)))
    for kind in (ReduceL1, ReduceSumSquare):
        assert_close(run_decomposed(kind, x, axes=(1,)), run(kind, x, axes=(1,)))


def test_integer_means_are_truncated() -> None:
    x = np.array([[-3, -4], [3, 4], [0, -1]], np.int32)
    for runner in (run, run_decomposed):
        assert list(runner(ReduceMean, x, axes=(1,))) == [-3, 3, 0]
        empty = np.zeros((2, 0), np.int64)
        assert list(runner(ReduceMean, empty, axes=(1,))) == [0, 0]


def test_half_means_do_not_overflow() -> None:
    x = np.full((1, 70000), 2, np.float16)
    assert run(ReduceMean, x, axes=(1,)).item() == 2
    assert run_decomposed(ReduceMean, x, axes=(1,)).item() == 2


@pytest.mark.parametrize("runner", [run, run_decomposed])
def test_log_sum_exp_of_extremes(runner: Any) -> None:
    rows = [[-np.inf, -np.inf], [np.inf, 0], [np.nan, 0], [1000, 1000], [np.inf, -np.inf]]
    found = runner(ReduceLogSumExp, np.array(rows, np.float32), axes=(1,))
    expected = np.array([-np.inf, np.inf, np.nan, 1000 + np.log(2), np.inf], np.float32)
    assert_close(found, expected)
    assert list(runner(ReduceLogSumExp, np.zeros((2, 0), np.float32), axes=(1,))) == [-np.inf] * 2
    assert np.isnan(runner(ReduceMean, np.zeros((2, 0), np.float32), axes=(1,))).all()


def test_a_symbolic_mean_divides_by_the_dimension() -> None:
    block = Block([TensorType(F32, (symbol("B"), symbol("S")))])
    op = ReduceMean(block.args[0], axes=(0, 1))
    block.append(op)
    op.replace(op.decompose(Builder.before_op(op)))
    names = [o.name for o in block]
    assert names == ["reduce_sum", "dim_value", "cast", "div"]
    assert [str(o.value) for o in block if o.name == "dim_value"] == ["B*S"]


def test_errors_cite_the_constraint() -> None:
    x = Block([TensorType(I32, (2, 3))]).args[0]
    for kind in (ReduceL2, ReduceLogSum, ReduceLogSumExp):
        with pytest.raises(TfcError, match=f"{kind.name}: C1"):
            kind(x, axes=(0,))
