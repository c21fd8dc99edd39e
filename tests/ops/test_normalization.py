"""The normalisations against their formulas in float64, decomposed too; shapes and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import arrays, shapes
from tests.ops.running import assert_close, run, run_decomposed
from tfc.ir.builder import Builder
from tfc.ir.core import Block, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import BF16, F16, F32, FLOATS, I32, TensorType
from tfc.ops.normalization import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, Lrn, RmsNorm

RUNNERS = (run, run_decomposed)
EPSILON = 1e-3


def check(kind: Any, expected: np.ndarray, x: np.ndarray, *rest: Any, **attributes: Any) -> None:
    for runner in RUNNERS:
        assert_close(runner(kind, x, *rest, **attributes), expected.astype(x.dtype), 4)


def wide(*given: np.ndarray | None) -> list[Any]:
    return [None if a is None else a.astype(np.float64) for a in given]


def standard(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPSILON)


def columns(vector: np.ndarray, x: np.ndarray) -> np.ndarray:
    return vector.reshape(-1, *[1] * (x.ndim - 2))


@given(st.data(), st.sampled_from(FLOATS), shapes(2, 4))
def test_batch_norm(data: Any, dtype: Any, shape: Any) -> None:
    x = data.draw(arrays(dtype, shape))
    scale, bias, mean, variance = (data.draw(arrays(dtype, shape[1:2])) for _ in range(4))
    variance = np.abs(variance)
    a, s, b, m, v = wide(x, scale, bias, mean, variance)
    deviation = np.sqrt(columns(v, a) + EPSILON)
    expected = (a - columns(m, a)) / deviation * columns(s, a) + columns(b, a)
    for runner in RUNNERS:
        found = runner(BatchNorm, x, scale, bias, mean, variance, epsilon=EPSILON)
        # Decomposed into x * a + b, an element near 0 may be the difference of two large ones.
        size = float(np.abs(a / deviation * columns(s, a)).max(initial=1))
        np.testing.assert_allclose(
            *wide(found, expected.astype(x.dtype)), rtol=1.6e-2 if dtype is BF16 else 2e-3,
            atol=size * (1e-2 if dtype.bits == 16 else 1e-5),
        )  # fmt: skip


def test_the_vectors_of_batch_norm_are_computed_apart() -> None:
    block = Block([TensorType(F32, (symbol("N"), 2, 4, 4)), *[TensorType(F32, (2,))] * 4])
    op = BatchNorm(*block.args)
    block.append(op)
    op.replace(op.decompose(Builder.before_op(op)))
    large = [o.name for o in block if o.result.tensor.rank == 4]
    assert large == ["mul", "add"]


@given(st.data(), st.sampled_from(FLOATS), shapes(1, 4, 1))
def test_layer_norm(data: Any, dtype: Any, shape: Any) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = data.draw(arrays(dtype, shape))
    scale = data.draw(st.none() | arrays(dtype, shape[axis:]))
    bias = data.draw(st.none() | arrays(dtype, shape[-1:]))
    a, s, b = wide(x, scale, bias)
    expected = standard(a, tuple(range(axis, len(shape))))
    expected = expected * (1 if s is None else s) + (0 if b is None else b)
    check(LayerNorm, expected, x, scale, bias, axis=axis, epsilon=EPSILON)


def test_layer_norm_of_a_small_spread_around_a_large_mean() -> None:
    x = (40000 + np.array([[0.0, 1, 2, 3], [1, 0, 1, 0]])).astype(np.float32)
    expected = standard(x.astype(np.float64), (1,))
    check(LayerNorm, expected, x, None, None, axis=1, epsilon=EPSILON)


@given(st.data(), st.sampled_from(FLOATS), shapes(1, 3, 1))
def test_rms_norm(data: Any, dtype: Any, shape: Any) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = data.draw(arrays(dtype, shape))
    scale = data.draw(st.none() | arrays(dtype, shape[axis:]))
    a, s = wide(x, scale)
    power = (a**2).mean(tuple(range(axis, len(shape))), keepdims=True)
    expected = a / np.sqrt(power + EPSILON) * (1 if s is None else s)
    check(RmsNorm, expected, x, scale, axis=axis, epsilon=EPSILON)


@given(st.data(), st.sampled_from(FLOATS), shapes(3, 5, 1))
def test_instance_norm(data: Any, dtype: Any, shape: Any) -> None:
    x, scale, bias = (data.draw(arrays(dtype, s)) for s in (shape, shape[1:2], shape[1:2]))
    a, s, b = wide(x, scale, bias)
    expected = standard(a, tuple(range(2, len(shape)))) * columns(s, a) + columns(b, a)
    check(InstanceNorm, expected, x, scale, bias, epsilon=EPSILON)


@given(
    st.data(), st.sampled_from(FLOATS), shapes(0, 2, 1), st.sampled_from([(1, 3), (2, 4), (4, 4)])
)
def test_group_norm(data: Any, dtype: Any, spatial: Any, grouping: Any) -> None:
    groups, channels = grouping
    x = data.draw(arrays(dtype, (2, channels, *spatial)))
    scale, bias = (data.draw(arrays(dtype, (channels,))) for _ in range(2))
    a, s, b = wide(x, scale, bias)
    expected = standard(a.reshape(2, groups, -1), (2,)).reshape(a.shape)
    expected = expected * columns(s, a) + columns(b, a)
    check(GroupNorm, expected, x, scale, bias, groups=groups, epsilon=EPSILON)


@given(st.data(), st.sampled_from(FLOATS), shapes(2, 4), st.integers(1, 6))
def test_lrn(data: Any, dtype: Any, shape: Any, size: int) -> None:
    x = data.draw(arrays(dtype, shape))
    (a,) = wide(x)
    expected = np.empty_like(a)
    for c in range(shape[1]):
        first, last = c - (size - 1) // 2, c + -(-(size - 1) // 2)
        near = [a[:, i] ** 2 for i in range(shape[1]) if first <= i <= last]
        expected[:, c] = a[:, c] / (2.0 + 0.5 / size * sum(near)) ** 0.75
    check(Lrn, expected, x, size=size, alpha=0.5, beta=0.75, bias=2.0)


def test_half_computes_in_single_and_rounds_once() -> None:
    x = np.array([[300.0, -300, 300, -300]], np.float16)  # squares overflow f16
    for dtype in (F16, BF16):
        for runner in RUNNERS:
            found = runner(LayerNorm, x.astype(dtype.numpy), None, None, axis=1)
            assert found.astype(float).tolist() == [[1, -1, 1, -1]]


def values(*types: tuple[Any, tuple[Any, ...]]) -> list[Value]:
    return Block([TensorType(d, s) for d, s in types]).args


def test_symbols_in_shapes() -> None:
    b, s = symbol("B"), symbol("S")
    x, scale = values((F32, (b, s, 8)), (F32, (8,)))
    assert LayerNorm(x, scale, None, axis=2).result.type == x.type
    grouped = values((F32, (b, 4, s)), (F32, (4,)), (F32, (4,)))
    op = GroupNorm(*grouped, groups=2)
    assert op.split == (b, 2, 2, s) and op.result.type == grouped[0].type


def test_errors_cite_the_constraint() -> None:
    x, whole, four, three = values((F32, (2, 4, 3)), (I32, (2, 4)), (F32, (4,)), (F32, (3,)))
    (flat,) = values((F32, (4,)))
    with pytest.raises(TfcError, match=r"lrn: C1.*i32"):
        Lrn(whole, size=3)
    with pytest.raises(TfcError, match=r"lrn: C3"):
        Lrn(x, size=0)
    with pytest.raises(TfcError, match=r"batch_norm: C2"):
        BatchNorm(flat, four, four, four, four)
    with pytest.raises(TfcError, match=r"batch_norm: C3.*mean"):
        BatchNorm(x, four, four, three, four)
    with pytest.raises(TfcError, match=r"layer_norm: C2"):
        LayerNorm(x, None, None, axis=3)
    with pytest.raises(TfcError, match=r"layer_norm: C3.*bias"):
        LayerNorm(x, three, four, axis=2)
    with pytest.raises(TfcError, match=r"rms_norm: C3.*scale"):
        RmsNorm(x, four, axis=2)
    with pytest.raises(TfcError, match=r"instance_norm: C2"):
        InstanceNorm(*values((F32, (2, 4))), four, four)
    with pytest.raises(TfcError, match=r"group_norm: C2.*3 groups do not divide 4"):
        GroupNorm(x, four, four, groups=3)
