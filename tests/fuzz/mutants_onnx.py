"""Mutants of ONNX models: of their bytes, and of single fields of the messages that they hold.

The models are onnx's own small ones, some made here that have what those lack (dimensions with
names, functions, branches, data outside of the file), and MiniLM's graph where it has been fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.farm import Outcome
from tests.fuzz.mutants import check_module, compile_here
from tests.fuzz.mutations import mutate_bytes, mutate_message
from tests.importers.test_families import EXAMPLES, model_of
from tfc.importers.onnx_registry import HANDLERS

F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
LARGEST = 16_000  # bytes of a model of onnx's own
MINILM = Path(__file__).resolve().parents[2] / ".models" / "minilm.onnx"
EXTERNAL = "weights.bin"
"""The name of a file that models made here keep data in."""
EXTERNAL_BYTES = 48 << 20


# ---- models to begin with


@cache
def seeds() -> list[tuple[str, bytes]]:
    """Where each model is from, and its bytes."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    found: list[tuple[str, bytes]] = []
    for kind in ("pytorch-converted", "pytorch-operator"):
        for path in sorted((data / kind).glob("*/model.onnx")):
            content = path.read_bytes()
            if len(content) <= LARGEST:
                found.append((path.parent.name, content))
    made = (_shapes, _branches, _functions, _external, _transformer, _integers)
    own = [(make.__name__.strip("_"), make().SerializeToString()) for make in made]
    found += own * 5
    found += [(e.name, model_of(e).SerializeToString()) for e in EXAMPLES]
    if MINILM.exists():
        found.append(("minilm", _minilm()))
    return found


def _node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op_type, names, outputs.split(), **attributes)


def _value(name: str, *dims: int | str, dtype: int = F32) -> Any:
    return helper.make_tensor_value_info(name, dtype, dims)


def _array(name: str, values: Any, dtype: Any = np.int64) -> Any:
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def _model(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    initializers: Sequence[Any] = (),
    **more: Any,
) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    imports = [helper.make_opsetid("", 17), *more.pop("imports", [])]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, **more)


def _weights(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape).round(3).astype(np.float32)


def _shapes() -> Any:
    """Arithmetic of dimensions that becomes shapes."""
    nodes = [
        _node("Shape", "x", "s"),
        _node("Gather", "s zero", "b", axis=0),
        _node("Unsqueeze", "b axis", "b1"),
        _node("Concat", "b1 two minus", "target", axis=0),
        _node("Reshape", "x target", "r"),
        _node("Slice", "r from to last", "c"),
        _node("Transpose", "c", "t", perm=[0, 2, 1]),
        _node("Pad", "t pads", "p", mode="constant"),
        _node("Expand", "one s", "e"),
        _node("Split", "x", "h k", axis=1),
        _node("Concat", "h k h", "y", axis=1),
    ]
    initializers = [
        *(_array("zero", 0), _array("axis", [0]), _array("two", [2]), _array("minus", [-1])),
        *(_array("from", [0]), _array("to", [1]), _array("last", [2])),
        *(_array("pads", [0, 0, 1, 0, 1, 0]), _array("one", [[1.5]], np.float32)),
    ]
    outputs = [_value("p", "a", "b", "c"), _value("e", "N", 6), _value("y", "N", 9)]
    return _model(nodes, [_value("x", "N", 6)], outputs, initializers)


def _branches() -> Any:
    then = helper.make_graph([_node("Mul", "x w", "t")], "then", [], [_value("t", 2, 3)])
    other = helper.make_graph([_node("Tanh", "x", "e")], "else", [], [_value("e", 2, 3)])
    nodes = [
        _node("Shape", "x", "s"),
        _node("Equal", "s sizes", "same"),
        _node("ReduceMin", "cast", "all", keepdims=0),
        _node("Cast", "all", "c", to=BOOL),
        _node("If", "c", "y", then_branch=then, else_branch=other),
    ]
    nodes.insert(2, _node("Cast", "same", "cast", to=TensorProto.INT32))
    initializers = [_array("sizes", [2, 3]), _array("w", [3.0], np.float32)]
    return _model(nodes, [_value("x", 2, 3)], [_value("y", 2, 3)], initializers)


def _functions() -> Any:
    leaky = _node("LeakyRelu", "a", "l")
    slope = onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="k")
    leaky.attribute.append(slope)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    nodes = [leaky, _node("Clip", "l b", "r")]
    function = helper.make_function("own", "f", ["a", "b"], ["r"], nodes, imports, attributes=["k"])
    calls = [
        _node("f", "x", "m", domain="own", k=0.5),
        _node("f", "m low", "y", domain="own", k=0.25),
    ]
    return _model(
        calls,
        [_value("x", "N", 3)],
        [_value("y", "N", 3)],
        [_array("low", -0.1, np.float32)],
        imports=imports[1:],
        functions=[function],
    )


def _external() -> Any:
    """Weights in a file beside the model."""
    tensor = TensorProto(name="w", data_type=F32, dims=[4, 3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", EXTERNAL), ("offset", "64"), ("length", "48")):
        tensor.external_data.add(key=key, value=value)
    nodes = [_node("MatMul", "x w", "m"), _node("Relu", "m", "y")]
    return _model(nodes, [_value("x", "N", 4)], [_value("y", "N", 3)], [tensor])


def _transformer() -> Any:
    """Embedding, one head of attention, layer norm: what exporters write."""
    nodes = [
        _node("Gather", "table ids", "x", axis=0),
        *(_node("MatMul", f"x w{name}", name) for name in "qkv"),
        _node("Transpose", "k", "kt", perm=[0, 2, 1]),
        _node("MatMul", "q kt", "scores"),
        _node("Div", "scores root", "scaled"),
        _node("Softmax", "scaled", "p", axis=-1),
        _node("MatMul", "p v", "context"),
        _node("Add", "context x", "sum"),
        _node("ReduceMean", "sum", "mean", axes=[-1]),
        _node("Sub", "sum mean", "away"),
        _node("Pow", "away square", "squares"),
        _node("ReduceMean", "squares", "variance", axes=[-1]),
        _node("Add", "variance epsilon", "shifted"),
        _node("Sqrt", "shifted", "deviation"),
        _node("Div", "away deviation", "y"),
    ]
    initializers = [
        _array("table", _weights(10, 8), np.float32),
        *(_array(f"w{name}", _weights(8, 8), np.float32) for name in "qkv"),
        *(_array(n, v, np.float32) for n, v in (("root", 2.8), ("square", 2), ("epsilon", 1e-5))),
    ]
    inputs = [_value("ids", "batch", "sequence", dtype=I64)]
    return _model(nodes, inputs, [_value("y", "batch", "sequence", 8)], initializers)


def _integers() -> Any:
    nodes = [
        _node("Div", "x y", "d"),
        _node("Mod", "x y", "m"),
        _node("Cast", "d", "c", to=TensorProto.INT8),
        _node("ArgMax", "f", "a", axis=1, keepdims=0),
        _node("GatherElements", "x i", "g", axis=0),
        _node("Where", "b d m", "w"),
    ]
    inputs = [
        *(_value(n, 3, 4, dtype=TensorProto.INT32) for n in "xy"),
        *(_value("i", 2, 4, dtype=I64), _value("b", 3, 1, dtype=BOOL), _value("f", 3, 4)),
    ]
    outputs = [
        *(_value("c", 3, 4, dtype=TensorProto.INT8), _value("a", 3, dtype=I64)),
        *(_value(n, k, 4, dtype=TensorProto.INT32) for n, k in (("g", 2), ("w", 3))),
    ]
    return _model(nodes, inputs, outputs)


def _minilm() -> bytes:
    """The graph of MiniLM; its large tensors are in the file beside it, where all are zero."""
    model = onnx.load(str(MINILM))
    graph = model.graph
    for tensor in graph.initializer:
        if len(tensor.raw_data) > 1024:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value=EXTERNAL)
    return model.SerializeToString()


# ---- mutants


def make(seed: int, number: int) -> tuple[str, bytes]:
    random = Random(f"onnx {seed} {number}")
    origin, content = random.choice(seeds())
    if random.random() < 0.4:
        return origin, mutate_bytes(content, random)
    model = onnx.ModelProto.FromString(content)
    words = [*(name for _, name in sorted(HANDLERS)), *_names(model)]
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        mutate_message(model, random, words)
    return origin, model.SerializePartialToString()


def _names(model: Any) -> list[str]:
    """The names of values, many times, so that they are chosen as often as those of operators."""
    names = [name for node in model.graph.node for name in (*node.input, *node.output)]
    return names * (1 + len(HANDLERS) // max(1, len(names)))


def check(name: str, path: Path, number: int) -> Outcome:
    from tfc.importers.onnx import import_onnx

    compile_here()
    numbers = np.random.default_rng(0).normal(size=64).astype(np.float32)
    with (path.parent / EXTERNAL).open("wb") as file:
        file.write(numbers.tobytes())
        file.truncate(EXTERNAL_BYTES)  # which takes no place on the disk
    return check_module(name, path, import_onnx, Random(number))
