"""The ONNX reader against the onnx package, and against damaged and hostile files."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tfc.importers.mapped_file import MappedFile, Span
from tfc.importers.onnx_check import free_names
from tfc.importers.onnx_model import Attribute, Graph, Model, Node, Reference, ValueInfo
from tfc.importers.onnx_tensor import ELEMENT_TYPES, Tensor
from tfc.importers.onnx_wire import read_mapped, read_model
from tfc.importers.protobuf import varints
from tfc.ir.errors import TfcError

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


# ---- the onnx package as oracle


def assert_tensor(tensor: Tensor, proto: Any) -> None:
    assert (tensor.name, tensor.dtype, tensor.dims) == (
        proto.name,
        proto.data_type,
        tuple(proto.dims),
    )
    wanted = numpy_helper.to_array(proto)
    if proto.data_type == TensorProto.STRING:
        assert [text.decode() for text in tensor.strings()] == wanted.ravel().tolist()
        return
    found = tensor.array()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    same = found.tobytes() == wanted.tobytes() or np.array_equal(found, wanted)
    assert same, (proto.name, found, wanted)


def assert_attribute(attribute: Attribute, proto: Any) -> None:
    assert attribute.kind == onnx.AttributeProto.AttributeType.Name(proto.type).lower()
    if proto.ref_attr_name:
        assert attribute.value == Reference(proto.ref_attr_name)
        return
    value = helper.get_attribute_value(proto)
    if isinstance(attribute.value, Tensor):
        assert_tensor(attribute.value, value)
    elif isinstance(attribute.value, Graph):
        assert_graph(attribute.value, value)
    elif attribute.kind in ("ints", "floats", "strings"):
        assert attribute.value == tuple(value)
    elif attribute.kind in ("int", "float", "string"):
        assert attribute.value == value


def assert_nodes(nodes: tuple[Node, ...], protos: Any) -> None:
    assert len(nodes) == len(protos)
    for node, proto in zip(nodes, protos, strict=True):
        assert (node.name, node.op_type) == (proto.name, proto.op_type)
        assert (node.inputs, node.outputs) == (tuple(proto.input), tuple(proto.output))
        assert node.domain == ("" if proto.domain == "ai.onnx" else proto.domain)
        assert list(node.attributes) == [attribute.name for attribute in proto.attribute]
        for attribute in proto.attribute:
            assert_attribute(node.attributes[attribute.name], attribute)


def assert_value(value: ValueInfo, proto: Any) -> None:
    assert value.name == proto.name
    if proto.type.WhichOneof("value") != "tensor_type":
        assert value.kind != "tensor"
        return
    kind = proto.type.tensor_type
    assert (value.kind, value.dtype) == ("tensor", kind.elem_type)
    dims = tuple(
        d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim
    )
    assert value.dims == (dims if kind.HasField("shape") else None)


def assert_graph(graph: Graph, proto: Any) -> None:
    assert graph.name == proto.name
    assert_nodes(graph.nodes, proto.node)
    assert list(graph.initializers) == [tensor.name for tensor in proto.initializer]
    for tensor in proto.initializer:
        assert_tensor(graph.initializers[tensor.name], tensor)
    for values, protos in (
        (graph.inputs, proto.input),
        (graph.outputs, proto.output),
        (graph.value_info.values(), proto.value_info),
    ):
        for value, value_proto in zip(values, protos, strict=True):
            assert_value(value, value_proto)


def assert_model(model: Model, proto: Any) -> None:
    assert model.ir_version == proto.ir_version
    assert model.opset_imports == {
        "" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import
    }
    assert model.metadata_props == {entry.key: entry.value for entry in proto.metadata_props}
    assert_graph(model.graph, proto.graph)
    assert len(model.functions) == len(proto.functions)
    for function in proto.functions:
        ours = model.functions[function.domain, function.name, function.overload]
        assert_nodes(ours.nodes, function.node)
        assert (ours.inputs, ours.outputs) == (tuple(function.input), tuple(function.output))
        assert ours.attributes == tuple(function.attribute)


def test_models_of_the_onnx_wheel() -> None:
    paths = sorted(DATA.rglob("*.onnx"))
    assert len(paths) > 100
    for path in paths:
        assert_model(read_model(path), onnx.load(path))


@pytest.mark.filterwarnings("ignore")
def test_node_models(tmp_path: Path) -> None:
    from onnx.backend.test.case.node import collect_testcases

    path = tmp_path / "model.onnx"
    cases = list(collect_testcases(None))
    assert len(cases) > 1500
    for case in cases:
        path.write_bytes(case.model.SerializeToString())
        assert_model(read_model(path), case.model)


# ---- models made here


def value(name: str, dims: list[int | str] | None = None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims or [2])


def graph_of(nodes: list[Any], outputs: tuple[str, ...] = ("y",), **more: Any) -> Any:
    return helper.make_graph(nodes, "g", [value("x")], [value(name) for name in outputs], **more)


def save(folder: Path, graph: Any, **more: Any) -> Path:
    path = folder / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], **more)
    path.write_bytes(model.SerializeToString())
    return path


def tensors() -> Iterator[Any]:
    """A tensor of each element type, in raw data and in the type's own field."""
    for code, element in ELEMENT_TYPES.items():
        if element.name == "string":
            yield helper.make_tensor("s", code, [2], [b"a", "é".encode()])
            continue
        values = np.array([0, 1, 1, 0, 1, 0, 1], np.float32).astype(
            helper.tensor_dtype_to_np_dtype(code)
        )
        raw = numpy_helper.from_array(values, f"raw_{element.name}")
        assert raw.data_type == code
        yield raw
        yield helper.make_tensor(f"typed_{element.name}", code, [7], values.tolist())


@pytest.mark.parametrize("proto", list(tensors()), ids=lambda proto: proto.name)
def test_every_element_type(proto: Any, tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    model = read_model(save(tmp_path, graph_of([node], initializer=[proto])))
    assert_tensor(model.graph.initializers[proto.name], proto)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=40))
def test_varints(values: list[int]) -> None:
    data = bytearray()
    for number in values:
        while number > 127:
            data.append(number & 127 | 128)
            number >>= 7
        data.append(number)
    file = MappedFile(Path(), "file", memoryview(bytes(data)))
    assert varints(Span(file, 0, len(data))).tolist() == values


def test_unpacked_numbers_read_as_packed_ones(tmp_path: Path) -> None:
    proto = helper.make_tensor("w", TensorProto.INT64, [3], [7, -1, 300])
    packed = proto.SerializeToString()
    start = packed.index(b"\x3a")  # field 7, length-delimited
    size = packed[start + 1]
    numbers = packed[start + 2 : start + 2 + size]
    single = b"\x38" + numbers[:1] + b"\x38" + numbers[1:11] + b"\x38" + numbers[11:]
    unpacked = packed[:start] + single + packed[start + 2 + size :]
    assert onnx.TensorProto.FromString(unpacked) == proto
    graph = graph_of([helper.make_node("Identity", ["x"], ["y"])], initializer=[proto])
    path = save(tmp_path, graph)
    path.write_bytes(_replaced(path.read_bytes(), packed, unpacked))
    assert read_model(path).graph.initializers["w"].array().tolist() == [7, -1, 300]


def _replaced(model: bytes, old: bytes, new: bytes) -> bytes:
    """The model with other bytes for its initializer, and the lengths around it set right."""
    proto = onnx.ModelProto.FromString(model)
    proto.graph.ClearField("initializer")
    whole = proto.SerializeToString()
    graph = proto.graph.SerializeToString()
    at = whole.index(graph)
    bigger = graph + b"\x2a" + bytes([len(new)]) + new
    assert len(bigger) < 128 and whole[at - 1] == len(graph) and old in model
    return whole[: at - 1] + bytes([len(bigger)]) + bigger + whole[at + len(graph) :]


def test_unknown_fields_and_groups_are_skipped(tmp_path: Path) -> None:
    path = save(tmp_path, graph_of([helper.make_node("Relu", ["x"], ["y"])]))
    extra = bytes([0xF3, 0x06, 0x08, 0x05, 0xF4, 0x06])  # a group of field 110
    extra += bytes([0xF8, 0x06, 0x01, 0xFA, 0x06, 0x02, 9, 9])  # field 111, twice
    path.write_bytes(extra + path.read_bytes() + extra)
    assert read_model(path).graph.nodes[0].op_type == "Relu"


def test_opening_reads_no_weights(tmp_path: Path) -> None:
    """A model of 400 MB whose weights are a hole in the file: opened with little memory."""
    size = 100_000_000
    proto = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size])
    head = proto.SerializeToString() + b"\x4a" + _varint(4 * size)  # raw_data
    graph = graph_of([helper.make_node("Add", ["x", "w"], ["y"])]).SerializeToString()
    initializer = b"\x2a" + _varint(len(head) + 4 * size) + head
    whole = b"\x08\x08\x42\x02\x10\x11"  # ir_version 8, opset 17
    whole += b"\x3a" + _varint(len(graph) + len(initializer) + 4 * size) + graph + initializer
    path = tmp_path / "big.onnx"
    with path.open("wb") as file:
        file.write(whole)
        file.truncate(len(whole) + 4 * size)
    tracemalloc.start()
    model = read_model(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    weights = model.graph.initializers["w"].array()
    assert weights.shape == (size,) and not weights.flags.owndata and not weights.flags.writeable
    assert weights[-1] == 0


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


# ---- graphs that are not well formed


def node(op_type: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> Any:
    return helper.make_node(op_type, inputs.split(), outputs.split(), name, **attributes)


BRANCH = helper.make_graph([node("Neg", "late", "b")], "branch", [], [value("b")])
BAD_GRAPHS = {
    "nothing defines": graph_of([node("Add", "x ghost", "y", "n1")]),
    r"node 'n1' \(Add\) uses value 'z' before node 'n2' \(Neg\) defines it": graph_of(
        [node("Add", "x z", "y", "n1"), node("Neg", "x", "z", "n2")]
    ),
    r"cycle: node 'n1' \(Add\) <- node 'n2' \(Neg\) <- node 'n1'": graph_of(
        [node("Add", "x z", "y", "n1"), node("Neg", "y", "z", "n2")]
    ),
    r"cycle: node 0 \(If\) <- node 1 \(Neg\) <- node 0": graph_of(
        [
            node("If", "x", "y", then_branch=BRANCH, else_branch=BRANCH),
            node("Neg", "y", "late"),
        ]
    ),
    "defined twice, the second time as output of": graph_of(
        [node("Neg", "x", "y"), node("Abs", "x", "y")]
    ),
    "'x' is defined twice": graph_of([node("Neg", "x", "x")], ("x",)),
    "output 'q' of graph 'g' is never defined": graph_of([node("Neg", "x", "y")], ("q",)),
    "output 'y' of graph 'g' is named twice": graph_of([node("Neg", "x", "y")], ("y", "y")),
    "initializer 'w' is given twice": graph_of(
        [node("Neg", "x", "y")],
        initializer=[helper.make_tensor("w", 1, [1], [1.0]) for _ in range(2)],
    ),
    "has no op_type": graph_of([node("", "x", "y")]),
}


@pytest.mark.parametrize("message", BAD_GRAPHS)
def test_graphs_that_are_refused(message: str, tmp_path: Path) -> None:
    with pytest.raises(TfcError, match=message):
        read_model(save(tmp_path, BAD_GRAPHS[message]))


def test_equal_node_names_are_legal(tmp_path: Path) -> None:
    graph = graph_of([node("Neg", "x", "a", "same"), node("Abs", "a", "y", "same")])
    assert [n.op_type for n in read_model(save(tmp_path, graph)).graph.nodes] == ["Neg", "Abs"]


def test_a_branch_sees_outer_values(tmp_path: Path) -> None:
    graph = graph_of(
        [node("Abs", "x", "late"), node("If", "x", "y", then_branch=BRANCH, else_branch=BRANCH)]
    )
    model = read_model(save(tmp_path, graph))
    assert [free_names(inner) for inner in model.graph.nodes[1].graphs] == [["late"], ["late"]]


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    """Written by hand: the onnx package itself does not nest so deep."""
    graph = graph_of([node("Neg", "x", "y")]).SerializeToString()
    for _ in range(40):
        attribute = b"\x0a\x01b\x32" + _varint(len(graph)) + graph + b"\xa0\x01\x05"
        inner = b"\x22\x02If\x2a" + _varint(len(attribute)) + attribute
        graph = b"\x0a" + _varint(len(inner)) + inner
    path = tmp_path / "deep.onnx"
    path.write_bytes(b"\x08\x08\x42\x02\x10\x11\x3a" + _varint(len(graph)) + graph)
    with pytest.raises(TfcError, match="graphs nest deeper than 32"):
        read_model(path)


def tensor_model(folder: Path, **fields: Any) -> Path:
    proto = TensorProto(**{"name": "w", "data_type": TensorProto.FLOAT, **fields})
    return save(folder, graph_of([node("Add", "x w", "y")], initializer=[proto]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dims": [-1, 4], "raw_data": b""}, r"negative dimension: \[-1, 4\]"),
        ({"dims": [2**32, 2**32], "raw_data": b""}, "overflows"),
        ({"dims": [0, 2**62], "raw_data": b""}, "overflows"),
        ({"dims": [2], "raw_data": b"1234"}, "needs 8 bytes, has 4"),
        ({"dims": [2], "float_data": [1.0]}, "1 values do not fit 2 elements"),
        ({"dims": [2]}, "0 values do not fit 2 elements"),
        ({"dims": [1], "int64_data": [1]}, "float holds int64_data"),
        ({"dims": [1], "float_data": [1.0], "raw_data": b"1234"}, "raw data beside"),
        ({"dims": [1] * 65, "float_data": [1.0]}, "rank 65"),
        ({"dims": [1], "data_type": 0}, "unknown element type 0"),
        ({"dims": [1], "data_type": 99}, "unknown element type 99"),
        ({"dims": [30], "data_type": 7, "int64_data": [1]}, "1 values do not fit 30"),
    ],
)
def test_tensors_that_are_refused(fields: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TfcError, match=message):
        read_model(tensor_model(tmp_path, **fields))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dims": [2], "data_type": 7, "int64_data": [1000]}, "1 values for dimensions"),
        ({"dims": [1], "data_type": 2, "int32_data": [300]}, "does not fit uint8"),
        ({"dims": [1], "data_type": 27, "int32_data": [64]}, "does not fit float6e2m3"),
    ],
)
def test_values_that_are_refused_when_read(fields: Any, message: str, tmp_path: Path) -> None:
    tensor = read_model(tensor_model(tmp_path, **fields)).graph.initializers["w"]
    with pytest.raises(TfcError, match=message):
        tensor.array()


# ---- external data


def external_model(folder: Path, **keys: object) -> Path:
    proto = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=1)
    for key, entry in keys.items():
        proto.external_data.add(key=key, value=str(entry))
    return save(folder, graph_of([node("Add", "x w", "y")], initializer=[proto]))


def test_external_data(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(bytes(4) + np.array([1, 2], "<f4").tobytes())
    path = external_model(tmp_path, location="sub/w.bin", offset=4, length=8)
    tensor = read_model(path).graph.initializers["w"]
    assert tensor.array().tolist() == [1, 2]
    assert tensor.reference is not None and tensor.reference.start == 4


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"location": "../secret.bin"}, "leaves the model's folder"),
        ({"location": "sub/../../secret.bin"}, "leaves the model's folder"),
        ({"location": "/etc/passwd"}, "an absolute path"),
        ({"location": "c:\\x"}, "no legal path"),
        ({"location": "link.bin"}, "a link is not followed"),
        ({"location": "linked/w.bin"}, "a link is not followed"),
        ({"location": "pipe"}, "not a regular file"),
        ({"location": "sub"}, "not a regular file"),
        ({"location": "."}, "names no file"),
        ({}, "names no location"),
        ({"location": "none.bin"}, "No such file"),
        ({"location": "short.bin"}, "lies at bytes 0 to 8 of 'short.bin', which has 7"),
        ({"location": "sub/w.bin", "offset": 1}, "lies at bytes 1 to 9"),
        ({"location": "sub/w.bin", "offset": -1}, "offset '-1'"),
        ({"location": "sub/w.bin", "offset": "9" * 5000}, "offset '999"),
        ({"location": "sub/w.bin", "length": 4}, "needs 8 bytes, has 4"),
    ],
)
def test_external_data_that_is_refused(keys: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(8))
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "w.bin").write_bytes(bytes(8))
    (folder / "short.bin").write_bytes(bytes(7))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "linked").symlink_to(folder / "sub")
    os.mkfifo(folder / "pipe")
    with pytest.raises(TfcError, match=message):
        read_model(external_model(folder, **keys))


# ---- damaged files


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\x08\x08", "holds no graph"),
        (b"\x3a", "ends inside a number"),
        (b"\x3a\x05\x00", "a field of 5 bytes, but only 1 are left"),
        (b"\x08" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x08" + b"\xff" * 11 + b"\x01", "more than 64 bits"),
        (b"\x00\x01", "field number 0"),
        (b"\x0c", "wire type 4 is not legal"),
        (b"\x0e", "wire type 6 is not legal"),
        (b"\x38\x01", "field 'graph' comes as varint, not as length-delimited"),
        (b"\x3a\x00\x3a\x00", "field 'graph' is given twice"),
        (b"\x12\x01\xff", "not UTF-8"),
        (b"\xf3\x06" * 40, "groups nest deeper"),
        (b"\xf3\x06\xfc\x06", "a group ends that was not begun"),
        (b"\x08\x63\x3a\x00", "IR version 99 is unknown"),
    ],
)
def test_wire_errors(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    with pytest.raises(TfcError, match=message) as caught:
        read_model(path)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.onnx", "\0"):
        with pytest.raises(TfcError):
            read_model(path)


def sample() -> bytes:
    """A model with one of nearly everything that the reader looks at."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    graph = graph_of(
        [
            node("Cast", "x", "c", "cast", to=9),
            node("If", "c", "i", then_branch=BRANCH, else_branch=BRANCH),
            node("Conv", "i w", "y", kernel_shape=[3, 3], auto_pad="VALID", alpha=0.5),
            node("Constant", "", "k", value=helper.make_tensor("", 7, [2], [1, -5])),
        ],
        initializer=[weights, numpy_helper.from_array(np.arange(3, dtype=np.int8), "late")],
        value_info=[value("c", ["batch", 3])],
    )
    graph.output.append(
        helper.make_value_info(
            "k", helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1]))
        )
    )
    function = helper.make_function(
        "f", "F", ["a"], ["b"], [node("Neg", "a", "b")], [helper.make_opsetid("", 17)]
    )
    model = helper.make_model(
        graph, functions=[function], opset_imports=[helper.make_opsetid("", 17)]
    )
    return model.SerializeToString()


SAMPLE = sample()


def read_all(data: bytes) -> None:
    """Read a model and every value in it; only TfcError may come out."""
    file = MappedFile(Path("model.onnx"), "model.onnx", memoryview(data))
    try:
        model = read_mapped(file)
        for tensor in model.graph.initializers.values():
            if tensor.element.name != "string":
                tensor.array()
    except TfcError:
        pass


def test_the_sample_is_read_whole() -> None:
    file = MappedFile(Path("m"), "m", memoryview(SAMPLE))
    assert_model(read_mapped(file), onnx.ModelProto.FromString(SAMPLE))


def test_truncated_at_every_byte() -> None:
    for end in range(len(SAMPLE)):
        read_all(SAMPLE[:end])


@settings(max_examples=300, deadline=1000)
@given(
    st.lists(
        st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255), st.integers(0, 2)),
        min_size=1,
        max_size=6,
    )
)
def test_mutated(changes: list[tuple[int, int, int]]) -> None:
    data = bytearray(SAMPLE)
    for at, byte, how in changes:
        at %= max(len(data), 1)
        if how == 0:
            data[at : at + 1] = bytes([byte])
        elif how == 1:
            data[at:at] = bytes([byte])
        else:
            del data[at : at + 1 + byte % 8]
    read_all(bytes(data))
