"""Convolution and pools against loops over windows and ONNX Runtime; shapes, padding, overhang."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import arrays
from tests.ops.running import assert_close, make, run, run_decomposed
from tfc.ir.core import Block, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import BOOL, F32, FLOATS, I8, I32, TensorType
from tfc.ops.base import NUMERIC
from tfc.ops.convolution import (
    AveragePool,
    Conv,
    GlobalAveragePool,
    GlobalMaxPool,
    MaxPool,
)


@st.composite
def geometries(draw: Any) -> dict[str, tuple[int, ...]]:
    """Windows of 1 to 3 axes that fit: their sizes and lists, with the input's extents."""
    n = draw(st.integers(1, 3))

    def list_of(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=n, max_size=n)))

    found = {"strides": list_of(1, 3), "dilations": list_of(1, 2)}
    found |= {"low_pads": list_of(0, 2), "high_pads": list_of(0, 2), "taps": list_of(1, 3)}
    reach = [(t - 1) * d + 1 for t, d in zip(found["taps"], found["dilations"], strict=True)]
    padding = zip(found["low_pads"], found["high_pads"], strict=True)
    room = [r - low - high for r, (low, high) in zip(reach, padding, strict=True)]
    return found | {"extents": tuple(max(m, 0) + draw(st.integers(0, 4)) for m in room)}


def windows(geometry: dict[str, tuple[int, ...]], overhang: int = 0) -> Any:
    """Yields each window's place and the places it reads (which may lie in the padding)."""
    axes = []
    names = ("extents", "taps", "strides", "dilations", "low_pads", "high_pads")
    for size, taps, stride, dilation, low, high in zip(*(geometry[n] for n in names), strict=True):
        last = size + high + overhang - (taps - 1) * dilation - 1
        starts = range(-low, last + 1, stride)
        axes.append([(i, [s + t * dilation for t in range(taps)]) for i, s in enumerate(starts)])
    for window in itertools.product(*axes):
        place = tuple(i for i, _ in window)
        yield place, list(itertools.product(*(taps for _, taps in window)))


def inside(
    place: tuple[int, ...], extents: tuple[int, ...], low: Any = None, high: Any = None
) -> bool:
    zero = (0,) * len(extents)
    bounds = zip(place, low or zero, extents, high or zero, strict=True)
    return all(-a <= p < n + b for p, a, n, b in bounds)


LISTS = ("strides", "dilations", "low_pads", "high_pads")


@given(
    st.data(),
    geometries(),
    st.sampled_from(NUMERIC),
    st.sampled_from([(1, 1, 2), (2, 2, 1), (3, 1, 2)]),
)
def test_convolution_sums_taps(data: Any, geometry: Any, dtype: Any, channels: Any) -> None:
    groups, inner, outer = channels
    n = len(geometry["extents"])
    x = data.draw(arrays(dtype, (2, groups * inner, *geometry["extents"])))
    weight = data.draw(arrays(dtype, (groups * outer, inner, *geometry["taps"])))
    bias = data.draw(arrays(dtype, (groups * outer,)))
    lists = {k: geometry[k] for k in LISTS}
    found = run(Conv, x, weight, bias, groups=groups, **lists)
    exact: Any = np.float64 if dtype.is_float else object
    expected = np.zeros(found.shape, exact)
    taps = list(np.ndindex(geometry["taps"]))
    for place, reads in windows(geometry):
        for tap, read in zip(taps, reads, strict=True):
            if not inside(read, geometry["extents"]):
                continue
            for o in range(groups * outer):
                c = slice(o // outer * inner, (o // outer + 1) * inner)
                w = weight[(o, slice(None), *tap)].astype(exact)
                expected[(slice(None), o, *place)] += (
                    x[(slice(None), c, *read)].astype(exact) * w
                ).sum(1)
    expected = expected + bias.astype(exact).reshape(-1, *[1] * n)
    if not dtype.is_float:
        expected = (expected % 2**dtype.bits).astype(np.uint64)
    assert_close(found, expected.astype(x.dtype))


def test_convolution_agrees_with_onnx_runtime() -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 4, 9, 11)).astype(np.float32)
    w = rng.normal(size=(6, 2, 3, 2)).astype(np.float32)
    node = onnx.helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2], group=2
    )
    float_info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [float_info("x", 1, x.shape), float_info("w", 1, w.shape)],
        [float_info("y", 1, None)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x, "w": w})
    options = {"strides": (2, 1), "low_pads": (1, 0), "high_pads": (2, 1), "dilations": (1, 2)}
    assert_close(run(Conv, x, w, None, groups=2, **options), expected, 4)


def test_empty_channels_and_batches() -> None:
    x, w = np.zeros((2, 0, 4), np.float32), np.zeros((3, 0, 2), np.float32)
    found = run(Conv, x, w, np.array([1, 2, 3], np.float32))
    assert found.shape == (2, 3, 3) and (found == np.array([[[1], [2], [3]]])).all()
    assert run(Conv, np.zeros((0, 1, 4), np.float32), np.zeros((3, 1, 2), np.float32)).size == 0


# ---- pools


def largest(values: list[float]) -> float:
    return float("nan") if any(v != v for v in values) else max(values)


@given(st.data(), geometries(), st.sampled_from(NUMERIC))
def test_max_pool(data: Any, geometry: Any, dtype: Any) -> None:
    extents = geometry["extents"]
    x = data.draw(arrays(dtype, (2, 2, *extents), special=True))
    if dtype.kind == "int":
        x = -np.abs(x) - 1  # a padding of zeros would win
    overhang = data.draw(st.integers(0, min(geometry["strides"]) - 1))
    lists = {k: geometry[k] for k in LISTS} | {"overhang": (overhang,) * len(extents)}
    found = run(MaxPool, x, kernel=geometry["taps"], **lists)
    least = -np.inf if dtype.is_float else np.iinfo(x.dtype).min
    wide = x.astype(np.float64) if dtype.is_float else x
    for place, reads in windows(geometry, overhang):
        for n, c in np.ndindex(2, 2):
            values = [wide[(n, c, *r)] for r in reads if inside(r, extents)]
            np.testing.assert_equal(
                found[(n, c, *place)],
                np.asarray(largest(values) if values else least).astype(x.dtype),
            )


@given(st.data(), geometries(), st.sampled_from(FLOATS), st.booleans())
def test_average_pool(data: Any, geometry: Any, dtype: Any, padded: bool) -> None:
    extents = geometry["extents"]
    x = data.draw(arrays(dtype, (1, 2, *extents)))
    overhang = data.draw(st.integers(0, min(geometry["strides"]) - 1))
    lists = {k: geometry[k] for k in LISTS} | {"overhang": (overhang,) * len(extents)}
    found = run(AveragePool, x, kernel=geometry["taps"], count_include_pad=padded, **lists)
    expected = np.zeros(found.shape)
    for place, reads in windows(geometry, overhang):
        pads = (geometry["low_pads"], geometry["high_pads"]) if padded else ()
        count = sum(inside(r, extents, *pads) for r in reads)
        total = sum(
            (x[(0, slice(None), *r)].astype(float) for r in reads if inside(r, extents)),
            np.zeros(2),
        )
        expected[(0, slice(None), *place)] = total / count if count else np.nan
    assert_close(found, expected.astype(x.dtype))


def test_windows_of_one_place_on_an_empty_axis() -> None:
    x = np.zeros((1, 2, 0, 3), np.float32)
    assert run(MaxPool, x, kernel=(1, 2)).shape == (1, 2, 0, 2)
    assert run(Conv, x, np.ones((3, 2, 1, 1), np.float32), strides=(2, 2)).shape == (1, 3, 0, 2)


def test_overhang_is_never_counted() -> None:
    x = np.array([[[1, 2, 3, 4, 5]]], np.float32)
    options = {
        "kernel": (3,),
        "strides": (2,),
        "low_pads": (1,),
        "high_pads": (1,),
        "overhang": (1,),
    }
    assert run(MaxPool, x[..., :4], **options)[0, 0].tolist() == [2, 4, 4]
    found = run(AveragePool, x[..., :4], count_include_pad=True, **options)
    assert found[0, 0].tolist() == [1, 3, 2]  # the last window is 4, one pad, one overhang
    assert run(AveragePool, x[..., :4], **options)[0, 0].tolist() == [1.5, 3, 4]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 0)], ids=str)
def test_global_pools(shape: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    axes = tuple(range(2, len(shape)))
    with np.errstate(all="ignore"):
        count = np.float64(np.prod(shape[2:]))
        mean = (x.astype(np.float64).sum(axes, keepdims=True) / count).astype(np.float32)
    for runner in (run, run_decomposed):
        assert_close(runner(GlobalAveragePool, x), mean)
        assert_close(runner(GlobalMaxPool, x), x.max(axes, keepdims=True, initial=-np.inf))


# ---- shapes and errors


def values(*types: tuple[Any, tuple[Any, ...]]) -> list[Value]:
    return Block([TensorType(d, s) for d, s in types]).args


def test_symbolic_extents() -> None:
    n, h = symbol("N"), symbol("H")
    x, w = values((F32, (n, 3, h, 8)), (F32, (4, 3, 3, 3)))
    pads = {"low_pads": (1, 1), "high_pads": (1, 1)}
    same = Conv(x, w, **pads)
    assert same.result.type == TensorType(F32, (n, 4, h, 8))
    assert Conv(x, w, strides=(2, 2), **pads).result.type == TensorType(
        F32, (n, 4, (h - 1) // 2 + 1, 4)
    )
    (check,) = Conv(x, w).entry_checks()
    assert check.holds({"H": 3}) and not check.holds({"H": 2})
    rounded_up = MaxPool(x, kernel=(3, 3), strides=(2, 2), overhang=(1, 1)).result.tensor
    assert [rounded_up.shape[2].evaluate({"H": e}) for e in (3, 4, 5, 6)] == [1, 2, 2, 3]


def test_errors_cite_the_constraint() -> None:
    x, w, bits, narrow, flat = values(
        (F32, (1, 4, 5, 5)),
        (F32, (6, 2, 3, 3)),
        (BOOL, (1, 4, 5, 5)),
        (I8, (6, 2, 3, 3)),
        (F32, (1, 4)),
    )
    with pytest.raises(TfcError, match=r"conv: C1.*f32, i8"):
        Conv(x, narrow)
    with pytest.raises(TfcError, match=r"conv: C1.*bool"):
        Conv(bits, bits)
    with pytest.raises(TfcError, match=r"conv: C2.*rank"):
        Conv(flat, w)
    with pytest.raises(TfcError, match=r"conv: C3.*strides \(1,\)"):
        Conv(x, w, groups=2, strides=(1,))
    with pytest.raises(TfcError, match=r"conv: C3.*low_pads"):
        Conv(x, w, groups=2, low_pads=(-1, 0))
    with pytest.raises(TfcError, match=r"conv: C4.*7 is more than 5"):
        Conv(x, w, groups=2, dilations=(3, 1))
    with pytest.raises(TfcError, match=r"conv: C5.*4 groups do not divide 6 output"):
        Conv(x, w, groups=4)
    with pytest.raises(TfcError, match=r"conv: C5.*2 and 4"):
        Conv(x, w)
    with pytest.raises(TfcError, match=r"conv: C6"):
        Conv(x, w, *values((F32, (5,))), groups=2)
    with pytest.raises(TfcError, match=r"max_pool: C3.*kernel"):
        MaxPool(x, kernel=(2,))
    with pytest.raises(TfcError, match=r"average_pool: C1"):
        AveragePool(*values((I32, (1, 1, 4))), kernel=(2,))
    with pytest.raises(TfcError, match=r"global_max_pool: C2"):
        GlobalMaxPool(*values((F32, (3,))))


def test_windows_read_defaults() -> None:
    op = make(MaxPool, np.zeros((1, 1, 4, 4), np.float32), kernel=(2, 2))
    assert [(w.stride, w.dilation, w.low, w.high, w.overhang) for w in op.windows] == [
        (1, 1, 0, 0, 0)
    ] * 2
