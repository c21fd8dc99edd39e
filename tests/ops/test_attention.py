"""Attention against the formula row by row, decomposed too; masks, empty operands, errors."""

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
from tfc.ir.types import F16, F32, FLOATS, I32, TensorType
from tfc.ops.attention import Attention

BATCHES = [((), (), ()), ((2,), (2,), (2,)), ((2, 3), (2, 3), (2, 3)), ((2, 3), (1, 3), (3,))]
MASKS = [None, (), (5,), (1, 5), (4, 5), (4, 1)]


def row_by_row(q: Any, k: Any, v: Any, mask: Any, scale: float) -> np.ndarray:
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    batch = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (np.broadcast_to(a, (*batch, *a.shape[-2:])) for a in (q, k, v))
    scores_shape = (*batch, q.shape[-2], k.shape[-2])
    added = np.broadcast_to(0.0 if mask is None else mask.astype(np.float64), scores_shape)
    out = np.zeros((*batch, q.shape[-2], v.shape[-1]))
    for place in np.ndindex(*batch, q.shape[-2]):
        scores = k[place[:-1]] @ q[place] * scale + added[place]
        powers = np.exp(scores - scores.max(initial=-np.inf))
        out[place] = (powers / powers.sum()) @ v[place[:-1]]
    return out


@given(st.data(), st.sampled_from(FLOATS), st.sampled_from(BATCHES), st.sampled_from(MASKS))
def test_formula(data: Any, dtype: Any, batches: Any, mask_shape: Any) -> None:
    q = data.draw(arrays(dtype, (*batches[0], 4, 3)))
    k = data.draw(arrays(dtype, (*batches[1], 5, 3)))
    v = data.draw(arrays(dtype, (*batches[2], 5, 2)))
    mask = None if mask_shape is None else data.draw(arrays(dtype, mask_shape))
    expected = row_by_row(q, k, v, mask, 0.5).astype(q.dtype)
    for runner in (run, run_decomposed):
        assert_close(runner(Attention, q, k, v, mask, scale=0.5), expected, 4)


@pytest.mark.parametrize("runner", [run, run_decomposed])
def test_masked_rows(runner: Any) -> None:
    q, k, v = np.ones((2, 3)), np.ones((2, 3)), np.array([[1.0], [2.0]])
    mask = np.array([[0, -np.inf], [-np.inf, -np.inf]])
    assert_close(runner(Attention, q, k, v, mask), np.array([[1], [np.nan]]))


@pytest.mark.parametrize("runner", [run, run_decomposed])
def test_sizes_of_zero(runner: Any) -> None:
    f = np.float32
    no_keys = runner(Attention, np.ones((2, 3), f), np.ones((0, 3), f), np.ones((0, 4), f))
    assert no_keys.tolist() == [[0] * 4] * 2
    no_depth = runner(Attention, np.ones((1, 0), f), np.ones((2, 0), f), np.array([[1], [3]], f))
    assert no_depth.tolist() == [[2]]
    assert runner(Attention, np.ones((0, 3), f), np.ones((2, 3), f), np.ones((2, 4), f)).size == 0


def test_half_scores_do_not_overflow() -> None:
    q = np.full((1, 4), 200, np.float16)
    v = np.array([[1], [3]], np.float16)
    for runner in (run, run_decomposed):
        assert runner(Attention, q, np.concatenate([q, q]), v).item() == 2


def test_symbols_in_shapes() -> None:
    b, t, s = symbol("B"), symbol("T"), symbol("S")
    types = [(b, 12, t, 32), (b, 12, s, 32), (b, 12, s, 16), (b, 1, 1, s)]
    q, k, v, mask = Block([TensorType(F32, shape) for shape in types]).args
    op = Attention(q, k, v, mask)
    assert op.result.type == TensorType(F32, (b, 12, t, 16))
    assert not op.entry_checks()


def test_errors_cite_the_constraint() -> None:
    types = [(F32, (2, 3)), (F32, (5, 3)), (F32, (5, 4)), (F32, (3,)), (I32, (2, 3)), (F16, (5, 3))]
    q, k, v, vector, whole, half = Block([TensorType(d, s) for d, s in types]).args
    with pytest.raises(TfcError, match=r"attention: C1.*i32"):
        Attention(whole, whole, whole)
    with pytest.raises(TfcError, match=r"attention: C1.*f16"):
        Attention(q, half, v)
    with pytest.raises(TfcError, match=r"attention: C2.*key"):
        Attention(q, vector, v)
    with pytest.raises(TfcError, match=r"attention: C3.*depth"):
        Attention(q, v, v)
    with pytest.raises(TfcError, match=r"attention: C3.*keys"):
        Attention(q, k, q)
    with pytest.raises(TfcError, match=r"attention: C5"):
        Attention(q, k, v, q)
    a, b = Block([TensorType(F32, (2, 5, 3)), TensorType(F32, (4, 5, 3))]).args
    with pytest.raises(TfcError, match=r"attention: C4"):
        Attention(a, b, b)
