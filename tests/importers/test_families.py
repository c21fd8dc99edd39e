"""Families of models that other compilers got wrong: values by hand or from the definitions.

Each example is imported, interpreted, and compiled; all of them go into one bundle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.test_conformance import merged
from tfc.driver import compile as compile_module
from tfc.importers.onnx import import_onnx
from tfc.interpret import interpret
from tfc.ir.errors import TfcError
from tfc.runtime import load
from tfc.runtime.errors import RunError

Array = np.ndarray[Any, Any]
NAN, INF = np.nan, np.inf


@dataclass
class Example:
    """One node or more; inputs by name; outputs in order, None where an index is out of range."""

    name: str
    nodes: list[Any]
    inputs: dict[str, Array]
    wanted: list[Array] | None
    constants: dict[str, Array] = field(default_factory=dict[str, Array])
    opset: int = 17
    rtol: float = 1e-5


def node(op_type: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op_type, names, outputs.split(), **attributes)


def f32(values: Any) -> Array:
    return np.array(values, np.float32)


def f16(values: Any) -> Array:
    return np.array(values, np.float16)


def bf16(values: Any) -> Array:
    return np.array(values, ml_dtypes.bfloat16)


def i64(*values: Any) -> Array:
    return np.array(values, np.int64)


def one(
    name: str,
    op_type: str,
    inputs: Sequence[Array],
    wanted: Any,
    constants: Sequence[Array] = (),
    opset: int = 17,
    rtol: float = 1e-5,
    **attributes: Any,
) -> Example:
    """One node: its inputs first, then its constants."""
    given = {f"x{i}": array for i, array in enumerate(inputs)}
    fixed = {f"c{i}": array for i, array in enumerate(constants)}
    outputs = wanted if isinstance(wanted, list) or wanted is None else [wanted]
    count = len(outputs) if outputs is not None else 1
    made = node(
        op_type,
        " ".join([*given, *fixed]),
        " ".join(f"y{i}" for i in range(count)),
        **attributes,
    )
    return Example(name, [made], given, outputs, fixed, opset, rtol)


def model_of(example: Example) -> Any:
    code = helper.np_dtype_to_tensor_dtype
    inputs = [
        helper.make_tensor_value_info(name, code(array.dtype), array.shape)
        for name, array in example.inputs.items()
    ]
    names = [name for made in example.nodes for name in made.output if name.startswith("y")]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    for value, array in zip(outputs, example.wanted or [], strict=False):
        value.type.tensor_type.elem_type = code(array.dtype)
    constants = [numpy_helper.from_array(array, n) for n, array in example.constants.items()]
    graph = helper.make_graph(example.nodes, "g", inputs, outputs, constants)
    imports = [helper.make_opsetid("", example.opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def saved(example: Example, path: Path) -> Path:
    path.write_bytes(model_of(example).SerializeToString())
    return path


# ---- reductions and positions

ROWS = f32([[NAN, NAN, NAN], [1, NAN, 2], [2, 5, 5], [-INF, -INF, -INF], [INF, 3, INF]])
EMPTY = np.zeros((2, 0), np.float32)
X23 = f32([[1, -2, 3], [4, 5, -6]])
NO_AXES = i64()

REDUCTIONS = [
    one("argmax", "ArgMax", [ROWS], i64(0, 1, 1, 0, 0), axis=1, keepdims=0),
    one("argmin", "ArgMin", [ROWS], i64(0, 1, 0, 0, 1), axis=1, keepdims=0),
    one(
        "argmax_last", "ArgMax", [ROWS[2:]], i64(2, 2, 2), axis=1, keepdims=0, select_last_index=1
    ),
    one("argmax_columns", "ArgMax", [X23], i64(1, 1, 0).reshape(1, 3), axis=0),
    one("max_of_nan", "ReduceMax", [ROWS], f32([NAN, NAN, 5, -INF, INF]), [i64(1)], 18, keepdims=0),
    one("min_of_nan", "ReduceMin", [ROWS], f32([NAN, NAN, 2, -INF, 3]), [i64(1)], 18, keepdims=0),
    one("noop", "ReduceSum", [X23], X23, [NO_AXES], 18, noop_with_empty_axes=1, keepdims=0),
    one("noop_max", "ReduceMax", [X23], X23, (), 18, noop_with_empty_axes=1),
    one("noop_square", "ReduceSumSquare", [X23], X23**2, [NO_AXES], 18, noop_with_empty_axes=1),
    one("noop_l1", "ReduceL1", [X23], np.abs(X23), [NO_AXES], 18, noop_with_empty_axes=1),
    one("all_axes", "ReduceSum", [X23], f32([[5]]), [NO_AXES], 18),
    one("all_axes_bare", "ReduceMean", [X23], f32(5 / 6), (), 18, keepdims=0),
    *(
        one(f"empty_{op}", op, [EMPTY], f32([[value], [value]]), [i64(1)], 18)
        for op, value in (
            *(("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", -INF), ("ReduceMin", INF)),
            *(("ReduceL1", 0), ("ReduceL2", 0), ("ReduceSumSquare", 0), ("ReduceLogSum", -INF)),
            *(("ReduceLogSumExp", -INF), ("ReduceMean", NAN)),
        )
    ),
    one(
        "empty_max_of_integers", "ReduceMax", [np.zeros((2, 0), np.int32)],
        np.full((2, 1), -(2**31), np.int32), [i64(1)], 18,
    ),
    one("negative_axes", "ReduceSum", [X23], f32([2, 3]), [i64(-1)], 18, keepdims=0),
]  # fmt: skip

# ---- 16-bit floats: sums in f32, rounded once

ONES = np.ones((1, 8192), np.float16)
WIDE = [
    one("half_sum", "ReduceSum", [ONES], f16([[8192]]), [i64(1)], 18),
    one("half_mean", "ReduceMean", [f16(np.full((1, 70000), 2))], f16([[2]]), [i64(1)], 18),
    one("bfloat_sum", "ReduceSum", [bf16(np.ones((1, 1000)))], bf16([[1000]]), [i64(1)], 18),
    one("half_product", "MatMul", [ONES, np.ones((8192, 1), np.float16)], f16([[8192]])),
    one("half_l2", "ReduceL2", [f16(np.full((1, 4), 300))], f16([[600]]), [i64(1)], 18),
    one("half_pool", "GlobalAveragePool", [f16(np.full((1, 1, 300, 300), 2))], f16([[[[2]]]])),
    one(
        "half_softmax", "Softmax", [np.zeros((1, 4096), np.float16)],
        f16(np.full((1, 4096), 1 / 4096)), axis=1, rtol=1e-3,
    ),
    one(
        "layer_norm_far_from_zero", "LayerNormalization", [f32([[39999, 40000, 40001, 40000]])],
        f32([[-(2**0.5), 0, 2**0.5, 0]]), [f32([1, 1, 1, 1]), f32([0, 0, 0, 0])], rtol=1e-3,
    ),
    one(
        "instance_norm_far_from_zero", "InstanceNormalization",
        [f32([[[39999, 40000, 40001, 40000]]])], f32([[[-(2**0.5), 0, 2**0.5, 0]]]),
        [f32([1]), f32([0])], rtol=1e-3,
    ),
]  # fmt: skip

# ---- softmax

CUBE = np.arange(8, dtype=np.float32).reshape(2, 2, 2)


def softmax(x: Array, axes: tuple[int, ...]) -> Array:
    e = np.exp(x.astype(np.float64) - x.max(axes, keepdims=True))
    return (e / e.sum(axes, keepdims=True)).astype(np.float32)


SOFTMAX = [
    one("softmax_flattens", "Softmax", [CUBE], softmax(CUBE, (1, 2)), opset=11),
    one("log_softmax_flattens", "LogSoftmax", [CUBE], np.log(softmax(CUBE, (1, 2))), opset=11),
    one("softmax_flattens_all", "Softmax", [CUBE], softmax(CUBE, (0, 1, 2)), opset=11, axis=0),
    one("softmax_last", "Softmax", [CUBE], softmax(CUBE, (2,)), opset=13),
    one("softmax_first", "Softmax", [CUBE], softmax(CUBE, (0,)), opset=13, axis=0),
    one(
        "hardmax_flattens", "Hardmax", [CUBE], f32([[[0, 0], [0, 1]], [[0, 0], [0, 1]]]), opset=11
    ),
    one(
        "softmax_masked", "Softmax", [f32([[0, -INF, 0], [-INF, -INF, -INF], [-INF, 5, -INF]])],
        f32([[0.5, 0, 0.5], [NAN, NAN, NAN], [0, 1, 0]]),
    ),
    one("softmax_large", "Softmax", [f32([[1e38, 1e38], [-1e38, 1e38]])],
        f32([[0.5, 0.5], [0, 1]])),
    one("log_softmax_masked", "LogSoftmax", [f32([[0, -INF]])], f32([[0, -INF]])),
]  # fmt: skip

# ---- integers and casts

LOW = np.iinfo(np.int32).min
A = np.array([7, -7, 7, -7, LOW, 5, 0], np.int32)
B = np.array([2, 2, -2, -2, -1, 0, 0], np.int32)


def cast(name: str, given: Array, wanted: Array) -> Example:
    to = helper.np_dtype_to_tensor_dtype(wanted.dtype)
    return one(f"cast_{name}", "Cast", [given], wanted, to=to, rtol=0)


INTEGERS = [
    one("div", "Div", [A, B], np.array([3, -3, -3, 3, LOW, 0, 0], np.int32)),
    one("mod", "Mod", [A[:4], B[:4]], np.array([1, 1, -1, -1], np.int32)),
    one("fmod", "Mod", [A[:4], B[:4]], np.array([1, -1, 1, -1], np.int32), fmod=1),
    one("div_unsigned", "Div", [np.array([250], np.uint8), np.array([7], np.uint8)],
        np.array([35], np.uint8), opset=14),
    one("shift", "BitShift", [np.array([1, 128], np.uint8), np.array([9, 1], np.uint8)],
        np.array([0, 0], np.uint8), direction="LEFT"),
    one("abs_of_lowest", "Abs", [np.array([-128, 3], np.int8)], np.array([-128, 3], np.int8)),
    one("power_of_integers", "Pow", [np.array([2, -3, 0]), np.array([10, 3, 0])],
        np.array([1024, -27, 1])),
    cast("wraps", i64(300, -129, 128, 2**40 + 7), np.array([44, 127, -128, 7], np.int8)),
    cast("wraps_unsigned", np.array([-1, 65536 + 9], np.int32), np.array([65535, 9], np.uint16)),
    cast("truncates", f32([2.9, -2.9, -0.5]), np.array([2, -2, 0], np.int32)),
    cast("to_bool", f32([0.0, -0.0, NAN, 0.1]), np.array([False, False, True, True])),
    cast("to_half", f32([65519, 65520, 2049, 2051, 1e-8]), f16([65504, INF, 2048, 2052, 0])),
    cast("to_bfloat", f32([1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, NAN]),
         bf16([1, 1 + 2**-6, INF, NAN])),
    cast("from_bool", np.array([True, False]), bf16([1, 0])),
    cast("long_to_float", i64(2**53 + 1, -(2**24) - 1), f32([2.0**53, -(2.0**24)])),
]  # fmt: skip

# ---- windows and padding

IMAGE = np.arange(1, 17, dtype=np.float32).reshape(1, 1, 4, 4)
ROW = f32([[[1, 2, 3, 4, 5]]])


def conv(name: str, x: Array, weight: Array, wanted: Array, **attributes: Any) -> Example:
    return one(f"conv_{name}", "Conv", [x], wanted, [weight], **attributes)


PAIR = f32([[[1, 10]]])
WINDOWS = [
    conv("same_lower", ROW, PAIR, f32([[[10, 21, 32, 43, 54]]]), auto_pad="SAME_LOWER"),
    conv("same_upper", ROW, PAIR, f32([[[21, 32, 43, 54, 5]]]), auto_pad="SAME_UPPER"),
    conv("same_lower_strided", ROW, PAIR, f32([[[10, 32, 54]]]),
         auto_pad="SAME_LOWER", strides=[2]),
    conv("same_dilated", ROW, PAIR, f32([[[20, 31, 42, 53, 4]]]),
         auto_pad="SAME_UPPER", dilations=[2]),
    conv("pads_of_two_kinds", ROW, PAIR, f32([[[10, 21, 32, 43, 54, 5, 0]]]), pads=[1, 2]),
    one("transposed_same", "ConvTranspose", [f32([[[1, 2]]])], f32([[[1, 1, 3, 2]]]),
        [f32([[[1, 1, 1]]])], auto_pad="SAME_UPPER", strides=[2]),
    one("pool_overhang", "AveragePool", [ROW], f32([[[1.5, 3.5, 5]]]), kernel_shape=[2],
        strides=[2], ceil_mode=1),
    one("pool_overhang_counted", "AveragePool", [ROW], f32([[[1, 3, 4.5]]]), kernel_shape=[3],
        strides=[2], pads=[1, 0], ceil_mode=1, count_include_pad=1, opset=19),
    one("pool_padding_not_counted", "AveragePool", [ROW], f32([[[1.5, 3, 4.5]]]),
        kernel_shape=[3], strides=[2], pads=[1, 1]),
    one("max_pool_negative", "MaxPool", [-ROW], f32([[[-1, -2, -4]]]), kernel_shape=[3],
        strides=[2], pads=[1, 1]),
    one("lp_pool", "LpPool", [f32([[[3, 4, 0, 0]]])], f32([[[5, 4, 0]]]), kernel_shape=[2], p=2),
    one("pad_crop", "Pad", [IMAGE], np.pad(IMAGE[:, :, 1:, :3], ((0, 0), (0, 0), (0, 1), (2, 0))),
        [i64(0, 0, -1, 2, 0, 0, 1, -1)]),
    one("pad_reflect", "Pad", [IMAGE], np.pad(IMAGE, ((0, 0), (0, 0), (3, 1), (2, 3)), "reflect"),
        [i64(0, 0, 3, 2, 0, 0, 1, 3)], mode="reflect"),
    one("pad_edge", "Pad", [IMAGE], np.pad(IMAGE, ((0, 0), (0, 0), (0, 5), (1, 0)), "edge"),
        [i64(0, 0, 0, 1, 0, 0, 5, 0)], mode="edge"),
    one("pad_wrap", "Pad", [ROW], np.pad(ROW, ((0, 0), (0, 0), (7, 3)), "wrap"),
        [i64(0, 0, 7, 0, 0, 3)], mode="wrap", opset=19),
    one("pad_value", "Pad", [ROW], f32([[[1, 2, 3, 4, 5, -9]]]),
        [i64(0, 1), f32(-9), i64(-1)], opset=18),
]  # fmt: skip

# ---- indices

TABLE = f32([[0, 1], [10, 11], [20, 21]])
INDICES = [
    one("gather", "Gather", [TABLE, i64(-1, 0)], TABLE[[-1, 0]]),
    one("gather_outside", "Gather", [TABLE, i64(0, 3)], None),
    one("gather_below", "Gather", [TABLE, i64(-4)], None),
    one("gather_far_outside", "Gather", [TABLE, i64(2**40)], None),
    one("gather_elements", "GatherElements", [TABLE, i64([-1, 0], [1, -3])],
        f32([[20, 1], [10, 1]])),
    one("gather_elements_outside", "GatherElements", [TABLE, i64([0, 3])], None),
    one("gather_nd", "GatherND", [TABLE, i64([-1, -2], [1, 1])], f32([20, 11])),
    one("gather_nd_outside", "GatherND", [TABLE, i64([0, 2])], None),
    one("scatter_elements", "ScatterElements", [TABLE, i64([-1, 0]), f32([[5, 6]])],
        f32([[0, 6], [10, 11], [5, 21]])),
    one("scatter_elements_add", "ScatterElements",
        [TABLE, i64([1], [1], [0]), f32([[5], [6], [7]])], f32([[0, 6], [10, 17], [27, 21]]),
        axis=1, reduction="add", opset=18),
    one("scatter_outside", "ScatterElements", [TABLE, i64([0, 3]), f32([[5, 6]])], None),
    one("scatter_nd_max", "ScatterND", [TABLE, i64([0], [0], [2]), f32([[5, -6], [3, 3], [2, 99]])],
        f32([[5, 3], [10, 11], [20, 99]]), reduction="max", opset=18),
    one("scatter_nd_outside", "ScatterND", [TABLE, i64([0, 2]), f32([5])], None),
    one("one_hot", "OneHot", [i64(0, -1, 3)], f32([[1, 0, 0], [0, 0, 1], [0, 0, 0]]),
        [i64(3), f32([0, 1])], opset=11),
    one("reverse", "ReverseSequence", [TABLE.T.copy(), i64(2, 3)], f32([[10, 0, 20], [21, 11, 1]]),
        time_axis=1, batch_axis=0),
]  # fmt: skip

# ---- quantised

TIES = f32([0.5, 1.5, 2.5, -0.5, -1.5, 127.5, 500, -500])
U8S = np.array([[255, 0, 128]], np.uint8)
QUANTISED = [
    one("quantize_signed", "QuantizeLinear", [TIES],
        np.array([0, 2, 2, 0, -2, 127, 127, -128], np.int8), [f32(1), np.array(0, np.int8)]),
    one("quantize_unsigned", "QuantizeLinear", [TIES],
        np.array([128, 130, 130, 128, 126, 255, 255, 0], np.uint8),
        [f32(1), np.array(128, np.uint8)]),
    one("dequantize", "DequantizeLinear", [np.array([[0, 255], [7, 9]], np.uint8)],
        f32([[-3.5, 124], [14, 18]]), [f32([0.5, 2]), np.array([7, 0], np.uint8)], axis=0),
    one("integer_product", "MatMulInteger", [U8S, np.array([[127], [-128], [127]], np.int8)],
        np.array([[255 * 127 + 128 * 127]], np.int32)),
    one("integer_product_less_zero_points", "MatMulInteger", [U8S, np.array([[127], [-128], [1]],
        np.int8)], np.array([[127 * 126 + 128 * 129]], np.int32),
        [np.array(128, np.uint8), np.array([1], np.int8)]),
]  # fmt: skip

# ---- products that others write

M34 = np.arange(12, dtype=np.float32).reshape(3, 4)
M45 = np.arange(20, dtype=np.float32).reshape(4, 5)
EINSUM = [
    one("einsum_product", "Einsum", [M34, M45], M34 @ M45, equation="ij,jk->ik"),
    one("einsum_implicit", "Einsum", [M34, M45], M34 @ M45, equation="ij, jk"),
    one("einsum_outer", "Einsum", [M34[0], M45[0]], np.outer(M34[0], M45[0]), equation="i,j->ij"),
    one("einsum_sum", "Einsum", [M34], M34.sum(0), equation="ij->j"),
    one("einsum_transpose", "Einsum", [M34], M34.T.copy(), equation="ij->ji"),
    one("einsum_batch", "Einsum", [CUBE, CUBE], np.einsum("...ij,...kj->...ik", CUBE, CUBE),
        equation="...ij,...kj->...ik"),
    one("einsum_three", "Einsum", [M34, M45, M45[0]], np.einsum("ij,jk,k->i", M34, M45, M45[0]),
        equation="ij,jk,k->i"),
]  # fmt: skip

NAMES = Example(
    "names",
    [
        helper.make_node("Neg", ["x y'\\\"/%@ 1"], ["1st\n"], name="same"),
        helper.make_node("Abs", ["1st\n"], ["int"], name="same"),
        helper.make_node("Identity", ["int"], ["yé" + "long" * 100], name="same"),
    ],
    {"x y'\\\"/%@ 1": f32([-1, 2])},
    [f32([1, 2])],
)
EXAMPLES = [
    *(*REDUCTIONS, *WIDE, *SOFTMAX, *INTEGERS, *WINDOWS, *INDICES, *QUANTISED, *EINSUM, NAMES),
]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("families")
    return [import_onnx(saved(e, folder / f"{i}.onnx")) for i, e in enumerate(EXAMPLES)]


@pytest.fixture(scope="module", params=[0, 3])
def bundle(request: Any, modules: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("bundle") / "all.tfb"
    compile_module(merged(modules), path, opt_level=request.param)
    return load(path)


def assert_right(example: Example, found: dict[str, Array]) -> None:
    assert example.wanted is not None
    for array, wanted in zip(found.values(), example.wanted, strict=True):
        assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape)
        if wanted.dtype.kind in "biu":
            np.testing.assert_array_equal(array, wanted)
        else:
            rtol = (
                max(example.rtol, 2.0**-7) if wanted.dtype == ml_dtypes.bfloat16 else example.rtol
            )
            a, b = (x.astype(np.float64) for x in (array, wanted))
            np.testing.assert_allclose(a, b, rtol, example.rtol)


@pytest.mark.parametrize("index", range(len(EXAMPLES)), ids=[e.name for e in EXAMPLES])
def test_interpreted(index: int, modules: list[Any]) -> None:
    example = EXAMPLES[index]
    if example.wanted is None:
        with pytest.raises(TfcError, match="out of range"):
            interpret(modules[index], example.inputs)
    else:
        assert_right(example, interpret(modules[index], example.inputs))


@pytest.mark.parametrize("index", range(len(EXAMPLES)), ids=[e.name for e in EXAMPLES])
def test_compiled(index: int, bundle: Any) -> None:
    example, function = EXAMPLES[index], bundle.functions[f"f{index}"]
    if example.wanted is None:
        with pytest.raises(RunError, match="out of range"):
            function.run(example.inputs)
    else:
        assert_right(example, function.run(example.inputs))


# ---- models that must be refused


def refused(graph: Any, folder: Path) -> str:
    path = folder / "bad.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(TfcError) as caught:
        import_onnx(path)
    return str(caught.value)


def bad_tensor(*dims: int) -> Any:
    return TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=b"\0" * 4)


@pytest.mark.parametrize(
    ("dims", "message"),
    [
        ((2**32, 2**32), "overflows"),
        ((2**62, 4), "overflows"),
        ((-1,), "dimension"),
        ((2**31, 2**31, 2, 2**31), "overflows"),
        ((2,), "needs"),
    ],
)
def test_initializers_of_impossible_sizes(
    dims: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node("Neg", "w")], "g", [], [value], [bad_tensor(*dims)])
    assert message in refused(graph, tmp_path)


def test_cycles_and_undefined_values(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    around = [node("Neg", "b", "a"), node("Neg", "a", "b"), node("Neg", "a", "y")]
    assert "cycle" in refused(helper.make_graph(around, "g", [], [value]), tmp_path)
    missing = [node("Neg", "nowhere", "y")]
    assert "nothing defines" in refused(helper.make_graph(missing, "g", [], [value]), tmp_path)


def test_empty_and_cut_files(tmp_path: Path) -> None:
    whole = model_of(EXAMPLES[0]).SerializeToString()
    for cut in (0, 1, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "cut.onnx"
        path.write_bytes(whole[:cut])
        with pytest.raises(TfcError):
            import_onnx(path)
