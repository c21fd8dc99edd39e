"""The ONNX importer: the modules it makes mean what the models mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tfc.importers.onnx import import_onnx
from tfc.importers.onnx_registry import HANDLERS, NEWEST_OPSET, OLDEST_OPSET
from tfc.importers.onnx_symbols import Symbols
from tfc.interpret import interpret
from tfc.ir.core import Module
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.verifier import verify
from tfc.text import parse_module, print_module

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def node(op_type: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> Any:
    names = ["" if i == "_" else i for i in inputs.split()]
    return helper.make_node(op_type, names, outputs.split(), name, **attributes)


def info(name: str, *dims: int | str | None, dtype: int = F32) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims)


def constant(name: str, values: Any, dtype: Any = np.int64) -> Any:
    return numpy_helper.from_array(np.array(values, dtype), name)


def save(
    folder: Path,
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    initializers: list[Any] | None = None,
    opset: int = 17,
    **more: Any,
) -> Path:
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers or [])
    imports = [helper.make_opsetid("", opset), *more.pop("imports", [])]
    path = folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=imports, ir_version=10, **more)
    path.write_bytes(model.SerializeToString())
    return path


def op_names(module: Module) -> list[str]:
    return [op.name for op in module.walk() if op.name not in ("constant", "return")]


def assert_like_onnxruntime(path: Path, *inputs: dict[str, np.ndarray]) -> Module:
    """The module means what ONNX Runtime computes, before and after a trip through text."""
    module = import_onnx(path)
    verify(module)
    again = parse_module(print_module(module), weights=module.weights)
    session = onnxruntime.InferenceSession(path.read_bytes())
    for feeds in inputs:
        wanted = session.run(None, feeds)
        for found in (interpret(module, feeds), interpret(again, feeds)):
            assert list(found) == [output.name for output in session.get_outputs()]
            for array, other in zip(found.values(), wanted, strict=True):
                assert (array.dtype, array.shape) == (other.dtype, other.shape)
                np.testing.assert_allclose(array, other, 1e-4, 1e-5)
    return module


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape, np.float32)


# ---- shapes that the graph computes


def test_reshape_to_computed_sizes(tmp_path: Path) -> None:
    """What exporters write for x.view(x.shape[0], x.shape[1], 2, -1), and its transpose."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "b", axis=0),
        node("Gather", "s one", "n", axis=0),
        node("Unsqueeze", "b axis", "b1"),
        node("Unsqueeze", "n axis", "n1"),
        node("Concat", "b1 n1 two minus", "target", axis=0),
        node("Reshape", "x target", "r"),
        node("Transpose", "r", "y", perm=[0, 2, 1, 3]),
    ]
    initializers = [
        constant("zero", 0), constant("one", 1), constant("axis", [0]),
        constant("two", [2]), constant("minus", [-1]),
    ]  # fmt: skip
    inputs, outputs = [info("x", "batch_size", "seq", 6)], [info("y", "a", 2, "b", 3)]
    path = save(tmp_path, nodes, inputs, outputs, initializers)
    module = assert_like_onnxruntime(path, {"x": random(2, 5, 6)}, {"x": random(1, 1, 6)})
    assert op_names(module) == ["reshape", "transpose"]
    assert {symbol: dim.model_name for symbol, dim in module.dims.items()} == {
        "B": "batch_size",
        "S": "seq",
    }
    assert str(module.main.body.terminator.inputs[0].type) == "tensor<Bx2xSx3xf32>"


def test_expand_as_torch_writes_it(tmp_path: Path) -> None:
    """Where(Equal(t, -1), 1, t) chooses t, since no dimension is -1."""
    nodes = [
        node("Shape", "x", "t"),
        node("Shape", "t", "rank"),
        node("ConstantOfShape", "rank", "ones", value=constant("", [1])),
        node("Mul", "ones minus", "minuses"),
        node("Equal", "t minuses", "is_minus"),
        node("Where", "is_minus ones t", "target"),
        node("Expand", "c target", "y"),
    ]
    inputs, outputs = [info("x", "N", "M")], [info("y", "N", "M")]
    initializers = [constant("minus", -1), constant("c", [[3.0]], np.float32)]
    path = save(tmp_path, nodes, inputs, outputs, initializers)
    module = assert_like_onnxruntime(path, {"x": random(2, 5)})
    assert op_names(module) == ["expand"]


def test_table_sliced_to_the_length(tmp_path: Path) -> None:
    """Position embeddings: a slice of a table that is added to a tensor of that length."""
    nodes = [
        node("Shape", "x", "n", start=0, end=1),
        node("Slice", "table zero n axes", "rows"),
        node("Add", "x rows", "y"),
    ]
    initializers = [
        constant("table", np.arange(24).reshape(8, 3), np.float32),
        constant("zero", [0]), constant("axes", [0]),
    ]  # fmt: skip
    path = save(tmp_path, nodes, [info("x", "N", 3)], [info("y", "N", 3)], initializers)
    module = assert_like_onnxruntime(path, {"x": random(5, 3)}, {"x": random(8, 3)})
    with pytest.raises(TfcError, match="do not broadcast"):
        interpret(module, {"x": random(9, 3)})


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, -1, 1), (-3, 2**63 - 1, 1), (-1, -(2**63), -1), (5, 1, -2), (-2, 0, -1), (9, 9, 1)],
)
def test_slice_of_a_symbolic_dimension(start: int, end: int, step: int, tmp_path: Path) -> None:
    initializers = [
        constant("starts", [start]), constant("ends", [end]),
        constant("axes", [0]), constant("steps", [step]),
    ]  # fmt: skip
    nodes = [node("Slice", "x starts ends axes steps", "y")]
    path = save(tmp_path, nodes, [info("x", "N", 2)], [info("y", "M", 2)], initializers)
    assert_like_onnxruntime(path, *({"x": random(n, 2)} for n in (1, 2, 3, 7)))


def test_range_over_a_symbolic_dimension(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Squeeze", "s axes", "n"),
        node("Range", "two n three", "y"),
    ]
    initializers = [constant("axes", [0]), constant("two", 2), constant("three", 3)]
    path = save(tmp_path, nodes, [info("x", "N")], [info("y", "M", dtype=I64)], initializers)
    assert_like_onnxruntime(path, *({"x": random(n)} for n in (1, 2, 3, 5, 6)))


def test_shape_arithmetic_that_is_an_output(tmp_path: Path) -> None:
    """What is known of dimensions becomes ops only where its value is asked for."""
    nodes = [
        node("Shape", "x", "s"),
        node("Size", "x", "n"),
        node("Mul", "s s", "squares"),
        node("ReduceProd", "s", "p", keepdims=0),
        node("Cast", "s", "f", to=F32),
    ]
    outputs = [
        info("squares", 2, dtype=I64), info("n", dtype=I64), info("p", dtype=I64), info("f", 2),
    ]  # fmt: skip
    path = save(tmp_path, nodes, [info("x", "N", 3)], outputs)
    assert_like_onnxruntime(path, {"x": random(4, 3)})


def test_what_depends_on_the_dimensions_stays_in_the_graph(tmp_path: Path) -> None:
    """Whether N equals 3 is open, so the comparison is computed at the call."""
    nodes = [node("Shape", "x", "s"), node("Equal", "s three", "y")]
    outputs = [info("y", 1, dtype=BOOL)]
    path = save(tmp_path, nodes, [info("x", "N")], outputs, [constant("three", [3])])
    module = assert_like_onnxruntime(path, {"x": random(3)}, {"x": random(4)})
    assert op_names(module)[-1] == "equal"


def test_fixed_dimensions(tmp_path: Path) -> None:
    path = save(tmp_path, [node("Relu", "x", "y")], [info("x", "batch", "n")], [info("y", 1, 2)])
    module = import_onnx(path, dims={"batch": 4})
    assert str(module.main.body.args[0].type) == "tensor<4xNxf32>"
    assert list(module.dims) == ["N"]
    assert str(import_onnx(path, dims={"B": 4}).main.body.args[0].type) == "tensor<4xNxf32>"
    with pytest.raises(TfcError, match=r"no dimension is named 'm'\n.* batch, n"):
        import_onnx(path, dims={"m": 1})


def test_symbols_are_legal_and_distinct() -> None:
    names = ["batch_size", "B", "seq len", "sequence", "", "x", "7", "max", "Bx"]
    symbols = Symbols(names, {})
    found = [str(symbols[name]) for name in names]
    assert found == ["BS", "B", "S", "S2", "D", "X", "D2", "M", "B2"]


# ---- names, weights, constants


def test_names_and_locations_are_the_models_own(tmp_path: Path) -> None:
    nodes = [
        node("Relu", "a/b:0", "1", "/layer.0/relu"),
        helper.make_node("Neg", ["1"], ["out put"]),
    ]
    path = save(tmp_path, nodes, [info("a/b:0", 2)], [info("out put", 2)])
    module = import_onnx(path)
    assert [arg.name for arg in module.main.body.args] == ["a/b:0"]
    assert module.main.output_names == ["out put"]
    relu, neg = list(module.main.body)[:2]
    assert relu.location.nodes == ("model.onnx:/layer.0/relu",)
    assert neg.location.nodes == ("model.onnx:Neg_1",)


def test_large_constants_are_weights(tmp_path: Path) -> None:
    weights = random(64, 32)
    initializers = [numpy_helper.from_array(weights, "w"), constant("b", [0.5], np.float32)]
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "y")]
    inputs = [info("x", "N", 64), info("w", 64, 32)]  # an initializer may be an input too
    module = import_onnx(save(tmp_path, nodes, inputs, [info("y", "N", 32)], initializers))
    assert [arg.name for arg in module.main.body.args] == ["x"]
    assert list(module.weights) == ["w"]
    np.testing.assert_array_equal(module.weights.array("w"), weights)


def test_an_output_may_be_an_input_or_a_constant(tmp_path: Path) -> None:
    nodes = [node("Identity", "x", "same"), node("Constant", "", "c", value_floats=[1.0, 2.0])]
    outputs = [info("same", 2), info("c", 2), info("w", 1)]
    path = save(tmp_path, nodes, [info("x", 2)], outputs, [constant("w", [4.0], np.float32)])
    assert_like_onnxruntime(path, {"x": random(2)})


# ---- graphs and functions


def test_if_with_a_known_condition_takes_its_branch(tmp_path: Path) -> None:
    then = helper.make_graph([node("Neg", "x", "t")], "then", [], [info("t", 2)])
    otherwise = helper.make_graph([node("NoSuch", "x", "e")], "else", [], [info("e", 2)])
    nodes = [
        node("Shape", "x", "s"),
        node("Equal", "s two", "same"),
        node("If", "same", "y", then_branch=then, else_branch=otherwise),
    ]
    path = save(tmp_path, nodes, [info("x", 2)], [info("y", 2)], [constant("two", [2])])
    assert op_names(import_onnx(path)) == ["neg"]


def test_if_decided_at_the_call(tmp_path: Path) -> None:
    then = helper.make_graph([node("Mul", "x w", "t")], "then", [], [info("t", 2)])
    otherwise = helper.make_graph([node("Identity", "x", "e")], "else", [], [info("e", 2)])
    nodes = [node("If", "c", "y", then_branch=then, else_branch=otherwise)]
    inputs, weights = [info("c", dtype=BOOL), info("x", 2)], [constant("w", [3.0], np.float32)]
    path = save(tmp_path, nodes, inputs, [info("y", 2)], weights)
    feeds = ({"c": np.array(c), "x": random(2)} for c in (True, False))
    assert_like_onnxruntime(path, *feeds)


def reference(name: str, to: str) -> Any:
    """A float attribute with the value of an attribute of the function."""
    return onnx.AttributeProto(name=name, type=onnx.AttributeProto.FLOAT, ref_attr_name=to)


def function(name: str, nodes: list[Any], **more: Any) -> Any:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a", "b"], ["r"], nodes, imports, **more)


def test_functions_of_the_model_are_inlined(tmp_path: Path) -> None:
    leaky = node("LeakyRelu", "a", "l")
    leaky.attribute.append(reference("alpha", "k"))
    inner = function("inner", [leaky, node("Clip", "l b", "r")], attributes=["k"])
    call = node("inner", "a b", "r", domain="own")
    call.attribute.append(reference("k", "slope"))
    outer = function("outer", [call], attributes=["slope"])
    nodes = [
        node("outer", "x", "m", "first", domain="own", slope=0.5),
        node("outer", "m low", "y", "second", domain="own", slope=0.25),
    ]
    inputs, weights = [info("x", 4)], [constant("low", -0.1, np.float32)]
    imports = [helper.make_opsetid("own", 1)]
    path = save(
        tmp_path, nodes, inputs, [info("y", 4)], weights, imports=imports, functions=[inner, outer]
    )
    module = assert_like_onnxruntime(path, {"x": random(4)})
    assert op_names(module) == ["leaky_relu", "clip"] * 2
    locations = [op.location.nodes[0] for op in module.main.body if op.name == "clip"]
    assert locations == ["model.onnx:first/inner_0/Clip_1", "model.onnx:second/inner_0/Clip_1"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([node("f", "a", "r", domain="own")], "call each other deeper than 32"),
        ([node("g", "a", "m", domain="own"), node("g", "m", "r", domain="own")], "expand to more"),
        ([node("f", "a", "r", domain="own", slope=1.0)], "has no attribute 'slope'"),
    ],
)
def test_functions_that_are_refused(
    body: list[Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfc.importers.onnx.MAX_INLINED_NODES", 2000)
    # g doubles itself 20 times over; f calls itself.
    doubling = [
        helper.make_function(
            "own", f"g{i}" if i else "g", ["a"], ["r"],
            [node(f"g{i + 1}", "a", "m", domain="own"), node(f"g{i + 1}", "m", "r", domain="own")]
            if i < 20 else [node("Neg", "a", "r")],
            [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        )
        for i in range(21)
    ]  # fmt: skip
    path = save(
        tmp_path,
        [node("f", "x", "y", domain="own")],
        [info("x", 2)],
        [info("y", 2)],
        imports=[helper.make_opsetid("own", 1)],
        functions=[function("f", body), *doubling],
    )
    with pytest.raises(TfcError, match=message):
        import_onnx(path)


# ---- what is refused


def test_every_unsupported_node_is_named(tmp_path: Path) -> None:
    nodes = [
        node("NonZero", "x", "n", "find"),
        node("Cast", "n", "f", "to8", to=TensorProto.FLOAT8E5M2),
        node("Relu", "n", "r"),
        node("Softmaxx", "x", "s"),
        node("TopK", "r k", "v i", "top"),
        node("Reshape", "x k", "q", "shaped"),
        node("FusedThing", "x", "z", "fused", domain="com.example"),
    ]
    inputs = [info("x", "N", 2), info("k", 1, dtype=I64), info("unknown", "N", dtype=16)]
    outputs = [info(name, "N") for name in ("s", "v", "q", "z", "f")]
    path = save(tmp_path, nodes, inputs, outputs, imports=[helper.make_opsetid("com.example", 1)])
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(path)
    assert caught.value.exit_code == 3
    lines = str(caught.value).splitlines()
    assert [line.strip() for line in lines[1:]] == [
        "node 'find' (NonZero), opset 17, of (tensor<Nx2xf32>): the operator is not supported",
        "node 3 (Softmaxx), opset 17, of (tensor<Nx2xf32>): the operator is not supported; "
        "there is Softmax and LogSoftmax",
        "node 'top' (TopK), opset 17, of (?, tensor<1xi64>): the operator is not supported",
        "node 'shaped' (Reshape), opset 17, of (tensor<Nx2xf32>, tensor<1xi64>): its target shape "
        "(input 1) is computed when the model runs "
        "(it must be constant, or follow from the dimensions of the inputs)",
        "node 'fused' (com.example.FusedThing), opset 1, of (tensor<Nx2xf32>): "
        "the operator is not supported",
    ]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (helper.make_tensor_sequence_value_info("x", F32, [2]), r"sequence\(tensor\(float\)\)"),
        (helper.make_tensor_value_info("x", F32, None), "unknown rank"),
        (info("x", 2, dtype=TensorProto.STRING), "element type string"),
        (info("x", 2, dtype=TensorProto.INT4), "element type int4"),
    ],
)
def test_inputs_that_are_not_supported(value: Any, message: str, tmp_path: Path) -> None:
    path = save(tmp_path, [node("Identity", "x", "y")], [value], [info("y", 2)])
    with pytest.raises(UnsupportedError, match=f"input 'x': .*{message}"):
        import_onnx(path)


BAD_NODES = [
    ("Relu", "x", {"alpha": 1.0}, "Relu has no attribute alpha"),
    ("Relu", "x x", {}, "takes at most 1 inputs, has 2"),
    ("Add", "x", {}, "input 1 is missing"),
    ("Transpose", "x", {"perm": [0, 0]}, "does not permute"),
    ("Softmax", "x", {"axis": 2}, "axis 2 is no axis of rank 2"),
    ("Softmax", "x", {"axis": 1.0}, "attribute 'axis' is of type float, not int"),
    ("ReduceMax", "x", {"axes": [0, -2]}, "name one axis twice"),
    ("Concat", "x", {}, "attribute 'axis' is missing"),
    ("Flatten", "x", {"axis": -3}, "axis -3 is out of range"),
    ("ReduceMax", "x", {"keepdims": 2}, "'keepdims' is 2, not 0 or 1"),
    ("Reshape", "x seven", {}, "another number of elements"),
    ("MatMul", "x x", {}, "C3"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attributes", "message"), BAD_NODES)
def test_nodes_that_are_wrong(
    op_type: str, inputs: str, attributes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = save(
        tmp_path,
        [node(op_type, inputs, "y", "bad", **attributes)],
        [info("x", 2, 3)],
        [info("y", 2)],
        [constant("seven", [7])],
    )
    with pytest.raises(TfcError, match=rf"node 'bad' \({op_type}\).*{message}") as caught:
        import_onnx(path)
    assert not isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize("opset", [OLDEST_OPSET - 1, NEWEST_OPSET + 1])
def test_opsets_that_are_refused(opset: int, tmp_path: Path) -> None:
    path = save(tmp_path, [node("Relu", "x", "y")], [info("x", 2)], [info("y", 2)], opset=opset)
    with pytest.raises(UnsupportedError, match=f"opset {opset} is not supported"):
        import_onnx(path)


@pytest.mark.parametrize("dims", [(2**40, 2**40), (2**62,), ("N", 2**45)])
def test_sizes_beyond_any_memory_are_refused(dims: tuple[int | str, ...], tmp_path: Path) -> None:
    path = save(tmp_path, [node("Relu", "x", "y")], [info("x", *dims)], [info("y", 2)])
    with pytest.raises(TfcError, match="more than any memory holds"):
        import_onnx(path)


def test_training_is_refused(tmp_path: Path) -> None:
    nodes = [node("Dropout", "x _ train", "y")]
    path = save(tmp_path, nodes, [info("x", 2)], [info("y", 2)], [constant("train", True, bool)])
    with pytest.raises(UnsupportedError, match="training mode"):
        import_onnx(path)


# ---- the table of operators


def test_every_version_of_an_imported_operator_is_known() -> None:
    """A version that changes an operator must not be imported as the one before it."""
    history: dict[str, list[Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            history.setdefault(schema.name, []).append(schema)
    refused = {("GroupNormalization", 18)}  # its scale is one a group
    for (domain, op_type), handlers in HANDLERS.items():
        assert domain == ""
        versions = sorted(schema.since_version for schema in history[op_type])
        oldest = max((v for v in versions if v <= OLDEST_OPSET), default=0)
        wanted = {v for v in versions if v >= oldest} - {v for o, v in refused if o == op_type}
        assert set(handlers) == wanted, op_type
    assert onnx.defs.onnx_opset_version() == NEWEST_OPSET


# ---- onnx's own tests


def suite(folder: Path) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    """The inputs and outputs that lie beside a model of the onnx wheel."""
    found: list[tuple[list[np.ndarray], list[np.ndarray]]] = []
    for data in sorted(folder.glob("test_data_set_*")):
        sets = [
            [
                numpy_helper.to_array(TensorProto.FromString(file.read_bytes()))
                for file in sorted(
                    data.glob(f"{kind}_*.pb"), key=lambda f: int(f.stem[len(kind) + 1 :])
                )
            ]
            for kind in ("input", "output")
        ]
        found.append((sets[0], sets[1]))
    return found


@pytest.mark.parametrize("family", ["pytorch-converted", "pytorch-operator"])
def test_models_that_pytorch_exported(family: str) -> None:
    passed, refused = 0, []
    for path in sorted((DATA / family).glob("*/model.onnx")):
        try:
            module = import_onnx(path)
        except UnsupportedError as error:
            refused.append(str(error))
            continue
        names = [arg.name for arg in module.main.body.args]
        for inputs, outputs in suite(path.parent):
            found = interpret(module, dict(zip(names, inputs, strict=True)))
            for array, wanted in zip(found.values(), outputs, strict=True):
                np.testing.assert_allclose(array, wanted, 1e-3, 1e-6, err_msg=str(path))
            passed += 1
    assert all("ConvTranspose" in text for text in refused), refused
    assert passed >= {"pytorch-converted": 80, "pytorch-operator": 34}[family]


def as_array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_node_tests_of_onnx(tmp_path: Path) -> None:
    """Each of onnx's node tests gives its outputs or is refused by name."""
    from onnx.backend.test.case.node import collect_testcases

    passed = 0
    path = tmp_path / "model.onnx"
    for case in collect_testcases(None):
        path.write_bytes(case.model.SerializeToString())
        try:
            module = import_onnx(path)
        except UnsupportedError:
            continue
        names = [arg.name for arg in module.main.body.args]
        for given in case.data_sets:
            inputs, outputs = ([as_array(value) for value in values] for values in given)
            found = interpret(module, dict(zip(names, inputs, strict=True)))
            for array, wanted in zip(found.values(), outputs, strict=True):
                assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape), case.name
                # Half floats are rounded after each op here, in the tests after some.
                half = 4 if array.dtype.itemsize == 2 else 1
                if is_number(array):
                    np.testing.assert_allclose(
                        array, wanted, case.rtol * half, case.atol * half, err_msg=case.name
                    )
            passed += 1
    assert passed > 800


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "shufflenet"])
def test_convolutional_networks_import(name: str) -> None:
    """Their weights are made by ConstantOfShape, so they are `full` ops and not in the file."""
    module = import_onnx(DATA / "light" / f"light_{name}.onnx")
    verify(module)
    names = op_names(module)
    convolutions = {"resnet50": 53, "squeezenet": 26, "shufflenet": 49}[name]
    assert names.count("conv") == convolutions
    assert len(module.main.body.args) == 1
    assert module.main.body.terminator.inputs[0].tensor.elements == 1000
