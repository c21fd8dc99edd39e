"""Activations against ONNX Runtime and by hand; their decompositions against their references."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import shapes
from tests.ops.oracle import values
from tests.ops.running import assert_close, run, run_decomposed
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import BF16, F32, F64, FLOATS, I8, I32, INTEGERS, U8
from tfc.ir.types import TensorType as T
from tfc.ops.activation import Celu, Elu, Gelu, Mish, Selu, Silu, Softsign
from tfc.ops.base import NUMERIC
from tfc.ops.piecewise import (
    Clip,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Prelu,
    Relu,
    Shrink,
    ThresholdedRelu,
)

CASES: list[tuple[Any, str, dict[str, Any], int]] = [
    (Relu, "Relu", {}, 14),
    (LeakyRelu, "LeakyRelu", {"alpha": 0.125}, 16),
    (Elu, "Elu", {"alpha": 0.5}, 6),
    (Selu, "Selu", {"alpha": 1.5, "gamma": 1.25}, 6),
    (Celu, "Celu", {"alpha": 2.0}, 12),
    (Gelu, "Gelu", {}, 20),
    (Gelu, "Gelu", {"approximate": "tanh"}, 20),
    (HardSigmoid, "HardSigmoid", {"alpha": 0.25, "beta": 0.5}, 6),
    (HardSwish, "HardSwish", {}, 14),
    (Mish, "Mish", {}, 18),
    (Softsign, "Softsign", {}, 1),
    (ThresholdedRelu, "ThresholdedRelu", {"alpha": 0.5}, 10),
    (Shrink, "Shrink", {"bias": 0.25, "lambd": 0.5}, 9),
]
SILU = [(Silu, "", {}, 0), (Silu, "", {"alpha": 1.5}, 0)]


def name_of(value: Any) -> str | None:
    return value.name if isinstance(value, type) else None


def onnx_runtime(op: str, opset: int, attributes: dict[str, Any], *arrays: np.ndarray) -> Any:
    import onnxruntime
    from onnx import TensorProto, helper

    names = ["x", "y"][: len(arrays)]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
        for n, a in zip(names, arrays, strict=True)
    ]
    output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    node = helper.make_node(op, names, ["z"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


@pytest.mark.parametrize(("kind", "op", "attributes", "opset"), CASES, ids=name_of)
def test_activations_are_those_of_onnx_runtime(
    kind: Any, op: str, attributes: dict[str, Any], opset: int
) -> None:
    x = np.linspace(-6, 6, 97, dtype=np.float32)
    found = run(kind, x, **attributes)
    assert_close(found, onnx_runtime(op, opset, attributes, x), 4)


def test_silu_is_swish() -> None:
    x = np.linspace(-6, 6, 97)
    by_hand = [v / (1 + math.exp(-1.5 * v)) for v in x]
    np.testing.assert_allclose(run(Silu, x, alpha=1.5), by_hand, rtol=1e-14)


@pytest.mark.parametrize(("kind", "op", "attributes", "opset"), [*CASES, *SILU], ids=name_of)
@given(data=st.data())
def test_decompositions(
    kind: Any, op: str, attributes: dict[str, Any], opset: int, data: Any
) -> None:
    dtype = data.draw(st.sampled_from(FLOATS))
    x = data.draw(values(dtype, data.draw(shapes(0, 3))))
    # The middle of the range, where powers neither overflow nor underflow; the ends are by hand.
    x = np.where(np.abs(x) > 1e4, np.copysign(np.inf, x), x).astype(x.dtype)
    x = np.where(np.abs(x) < 1e-3, np.copysign(0, x), x).astype(x.dtype)
    assert_close(run_decomposed(kind, x, **attributes), run(kind, x, **attributes), 4)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Relu, [math.nan, math.inf, 0]),
        (LeakyRelu, [math.nan, math.inf, -math.inf]),
        (Elu, [math.nan, math.inf, -1]),
        (Celu, [math.nan, math.inf, -1]),
        (Gelu, [math.nan, math.inf, math.nan]),
        (HardSigmoid, [math.nan, 1, 0]),
        (Softsign, [math.nan, math.nan, math.nan]),
        (ThresholdedRelu, [0, math.inf, 0]),
        (Shrink, [0, math.inf, -math.inf]),
    ],
    ids=name_of,
)
def test_nan_and_infinities(kind: Any, expected: list[float]) -> None:
    x = np.array([np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(run(kind, x), np.array(expected, np.float32))
    np.testing.assert_array_equal(run_decomposed(kind, x), np.array(expected, np.float32))


def test_thresholds_compare_as_the_element_type_does() -> None:
    x = np.array([0.1, 0.3], np.float32)
    assert run(ThresholdedRelu, x, alpha=0.1).tolist() == [0, x[1]]
    assert run_decomposed(ThresholdedRelu, x, alpha=0.1).tolist() == [0, x[1]]
    assert run(Shrink, x, lambd=0.1).tolist() == [0, x[1]]


def test_half_floats_are_computed_in_f32_and_rounded_once() -> None:
    x = np.linspace(-4, 4, 400).astype(BF16.numpy)
    exact = run(Gelu, x.astype(np.float64)).astype(BF16.numpy)
    assert run(Gelu, x).tobytes() == exact.tobytes()
    found = run_decomposed(Gelu, x)
    assert np.mean(found != exact) < 0.01


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_relu_of_integers(dtype: Any) -> None:
    x = np.array([5, 0, 255]).astype(dtype.numpy)
    assert run(Relu, x).tolist() == [max(int(v), 0) for v in x]
    assert run_decomposed(Relu, x).tolist() == [max(int(v), 0) for v in x]


@given(data=st.data())
def test_prelu(data: Any) -> None:
    dtype = data.draw(st.sampled_from(NUMERIC))
    shape = data.draw(shapes(0, 3))
    slopes = tuple(1 if data.draw(st.booleans()) else n for n in shape)
    x, slope = data.draw(values(dtype, shape)), data.draw(values(dtype, slopes))
    expected = np.where(x < 0, run_product(x, slope), x)
    np.testing.assert_array_equal(run(Prelu, x, slope), expected)
    np.testing.assert_array_equal(run_decomposed(Prelu, x, slope), expected)


def run_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    from tfc.ops.arithmetic import Mul

    return run(Mul, x, y)


@given(data=st.data())
def test_clip(data: Any) -> None:
    dtype = data.draw(st.sampled_from(NUMERIC))
    x = data.draw(values(dtype, data.draw(shapes(0, 2))))
    low, high = (data.draw(st.none() | values(dtype, ())) for _ in range(2))

    def by_hand(v: Any) -> Any:
        for bound, beyond in ((low, -1), (high, 1)):
            if bound is None:
                continue
            if v != v or bound != bound:
                return math.nan
            v = bound[()] if (v > bound if beyond > 0 else v < bound) else v
        return v

    expected = np.array([by_hand(v) for v in x.flat]).astype(x.dtype).reshape(x.shape)
    np.testing.assert_array_equal(run(Clip, x, low, high), expected)
    if low is not None or high is not None:
        np.testing.assert_array_equal(run_decomposed(Clip, x, low, high), expected)


def test_clip_with_crossed_bounds_is_high() -> None:
    x = np.array([-1, 0, 7], np.int32)
    assert run(Clip, x, np.int32(5)[...], np.int32(2)[...]).tolist() == [2, 2, 2]


def infer(kind: Any, *types: T | None, **attributes: Any) -> Any:
    args = iter(Block([t for t in types if t]).args)
    return kind(*(next(args) if t else None for t in types), **attributes)


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("gelu: C1: .* is i32", lambda: infer(Gelu, T(I32, (2,)))),
        (
            "gelu: C2: no approximation is 'sine'",
            lambda: infer(Gelu, T(F32, ()), approximate="sine"),
        ),
        ("celu: C2: alpha is 0", lambda: infer(Celu, T(F32, ()), alpha=0.0)),
        ("prelu: C1", lambda: infer(Prelu, T(F32, (2,)), T(F64, (2,)))),
        ("prelu: C2", lambda: infer(Prelu, T(F32, (2,)), T(F32, (3, 2)))),
        ("prelu: C2", lambda: infer(Prelu, T(F32, (1,)), T(F32, (2,)))),
        ("clip: C1", lambda: infer(Clip, T(I8, (2,)), T(U8, ()), None)),
        ("clip: C2", lambda: infer(Clip, T(I8, (2,)), None, T(I8, (2,)))),
    ],
)
def test_broken_constraints(message: str, build: Any) -> None:
    with pytest.raises(TfcError, match=message):
        build()


def test_a_symbolic_slope_is_checked_at_the_call() -> None:
    op = infer(Prelu, T(F32, (symbol("S"), 3)), T(F32, (symbol("U"), 1)))
    assert op.result.type == T(F32, (symbol("S"), 3))
    assert all(c.holds({"S": 2, "U": 2}) for c in op.entry_checks())
    assert not all(c.holds({"S": 2, "U": 1}) for c in op.entry_checks())
