"""Reading at indices, one element at a time by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import shapes
from tests.ops.running import run, run_decomposed
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import BF16, BOOL, F32, I32, I64, TensorType
from tfc.ops.indexing import Gather, GatherElements, GatherNd, OneHot

S, U = symbol("S"), symbol("U")


def counting(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)


def indices(data: Any, shape: tuple[int, ...], size: int) -> np.ndarray:
    seed = data.draw(st.integers(0, 2**32 - 1))
    kind = data.draw(st.sampled_from([np.int32, np.int64]))
    found = np.random.default_rng(seed).integers(-size, max(size, 1), shape)
    return np.asarray(found).astype(kind)


@given(data=st.data())
def test_gather(data: Any) -> None:
    x = counting(data.draw(shapes(1, 3, 1)))
    axis = data.draw(st.integers(0, x.ndim - 1))
    i = indices(data, data.draw(shapes(0, 2)), x.shape[axis])
    found = run(Gather, x, i, axis=axis)
    for place in itertools.product(*map(range, found.shape)):
        index = int(i[place[axis : axis + i.ndim]])
        assert found[place] == x[(*place[:axis], index, *place[axis + i.ndim :])]


@given(data=st.data())
def test_gather_elements(data: Any) -> None:
    x = counting(data.draw(shapes(1, 3, 1)))
    axis = data.draw(st.integers(0, x.ndim - 1))
    shape = tuple(data.draw(st.integers(0, n if a != axis else 4)) for a, n in enumerate(x.shape))
    i = indices(data, shape, x.shape[axis])
    found = run(GatherElements, x, i, axis=axis)
    for place in itertools.product(*map(range, shape)):
        assert found[place] == x[(*place[:axis], int(i[place]), *place[axis + 1 :])]


@given(data=st.data())
def test_gather_nd(data: Any) -> None:
    x = counting(data.draw(shapes(1, 4, 1)))
    batch = data.draw(st.integers(0, x.ndim))
    length = data.draw(st.integers(0, x.ndim - batch))
    middle = data.draw(shapes(0, 2))
    columns = [indices(data, (*x.shape[:batch], *middle, 1), n) for n in x.shape[batch:][:length]]
    empty = np.zeros((*x.shape[:batch], *middle, 0), np.int64)
    i = np.concatenate([empty, *columns], -1).astype(np.int64)
    found = run(GatherNd, x, i, batch_dims=batch)
    for place in itertools.product(*map(range, i.shape[:-1])):
        vector = tuple(int(v) for v in i[place])
        np.testing.assert_array_equal(found[place], x[(*place[:batch], *vector)])


@pytest.mark.parametrize("kind", [Gather, GatherElements], ids=lambda k: k.name)
@pytest.mark.parametrize("index", [3, -4, 1 << 40])
def test_an_index_out_of_range_is_an_error(kind: Any, index: int) -> None:
    x = counting((3,))
    with pytest.raises(TfcError, match=f"{kind.name}: index {index} is out of range of axis 0"):
        run(kind, x, np.array([0, index]))
    with pytest.raises(TfcError, match=r"index 2 is out of range of axis 1, whose size is 2"):
        run(GatherNd, counting((3, 2)), np.array([[0, 2]]))


def test_gather_reads_nothing_of_an_empty_axis() -> None:
    none = np.zeros((0, 2), np.float32)
    assert run(Gather, none, np.zeros((0,), np.int64), axis=0).shape == (0, 2)
    with pytest.raises(TfcError, match="out of range"):
        run(Gather, none, np.zeros((1,), np.int64), axis=0)


def test_gather_of_bf16() -> None:
    x = counting((3,)).astype(BF16.numpy)
    assert run(Gather, x, np.array([-1, 0])).tolist() == [2, 0]


@given(data=st.data())
def test_one_hot(data: Any) -> None:
    depth = data.draw(st.integers(0, 4))
    i = indices(data, data.draw(shapes(0, 2)), 6)
    axis = data.draw(st.integers(0, i.ndim))
    values = np.array([-1, 5], np.float32)
    found = run(OneHot, i, values, depth=depth, axis=axis)
    for place in itertools.product(*map(range, found.shape)):
        index = int(i[(*place[:axis], *place[axis + 1 :])])
        assert found[place] == (5 if place[axis] in (index, index + depth) else -1)
    np.testing.assert_array_equal(run_decomposed(OneHot, i, values, depth=depth, axis=axis), found)


def infer(kind: Any, *types: TensorType, **attributes: Any) -> Any:
    return kind(*Block(types).args, **attributes)


def f32(*shape: Any) -> TensorType:
    return TensorType(F32, shape)


def i64(*shape: Any) -> TensorType:
    return TensorType(I64, shape)


def test_symbols() -> None:
    op = infer(Gather, f32(100, 8), i64(S, U), axis=0)
    assert op.result.type == f32(S, U, 8) and op.entry_checks() == []
    (check,) = infer(GatherElements, f32(S, 4), i64(U, 2), axis=1).entry_checks()
    assert check.holds({"S": 3, "U": 2}) and not check.holds({"S": 3, "U": 4})
    (check,) = infer(GatherNd, f32(S, 4), i64(U, 1), batch_dims=1).entry_checks()
    assert check.holds({"S": 3, "U": 3}) and not check.holds({"S": 3, "U": 4})
    assert infer(OneHot, i64(S), f32(2), depth=U, axis=0).result.type == f32(U, S)


@pytest.mark.parametrize(
    ("message", "build"),
    [
        (
            "gather: C1: the element type of the indices is f32",
            lambda: infer(Gather, f32(3), f32(2)),
        ),
        ("gather: C2", lambda: infer(Gather, f32(3), i64(2), axis=1)),
        ("gather: C2", lambda: infer(Gather, f32(), i64(2))),
        ("gather_elements: C1", lambda: infer(GatherElements, f32(3), TensorType(BOOL, (3,)))),
        ("gather_elements: C2", lambda: infer(GatherElements, f32(3), i64(2, 1))),
        ("gather_elements: C2", lambda: infer(GatherElements, f32(3), i64(2), axis=-1)),
        ("gather_elements: C3", lambda: infer(GatherElements, f32(3, 2), i64(3, 3), axis=0)),
        ("gather_nd: C1", lambda: infer(GatherNd, f32(3), f32(1, 1))),
        ("gather_nd: C1", lambda: infer(GatherNd, f32(3), i64())),
        ("gather_nd: C2", lambda: infer(GatherNd, f32(3), i64(3), batch_dims=1)),
        ("gather_nd: C3", lambda: infer(GatherNd, f32(3, 1), i64(2, 1), batch_dims=1)),
        ("gather_nd: C4", lambda: infer(GatherNd, f32(3), i64(2, S))),
        ("gather_nd: C4", lambda: infer(GatherNd, f32(3), i64(2, 2))),
        ("one_hot: C1", lambda: infer(OneHot, f32(3), f32(2), depth=4, axis=0)),
        ("one_hot: C2", lambda: infer(OneHot, i64(3), f32(3), depth=4, axis=0)),
        ("one_hot: C2", lambda: infer(OneHot, i64(3), f32(), depth=4, axis=0)),
        ("one_hot: C3", lambda: infer(OneHot, i64(3), f32(2), depth=4, axis=2)),
    ],
)
def test_broken_constraints(message: str, build: Any) -> None:
    with pytest.raises(TfcError, match=message):
        build()


def test_i32_indices() -> None:
    found = infer(Gather, f32(3, 2), TensorType(I32, (4,)), axis=1)
    assert found.result.type == f32(3, 4)
