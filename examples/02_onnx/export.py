"""Writes the digits classifier as digits.onnx, as an exporter of another framework would."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

WEIGHTS = Path(__file__).parent.parent / "01_digits" / "digits.safetensors"


def main() -> None:
    weights = load_file(WEIGHTS)
    tensors = [numpy_helper.from_array(array, name) for name, array in sorted(weights.items())]
    tensors.append(helper.make_tensor("sixteen", TensorProto.FLOAT, (), [16.0]))
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    half = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], "cast", to=TensorProto.FLOAT),
        helper.make_node("Div", ["pixels", "sixteen"], ["x"], "scale"),
        helper.make_node("Conv", ["x", "conv1.weight", "conv1.bias"], ["c1"], "conv1", **same),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("Conv", ["r1", "conv2.weight", "conv2.bias"], ["c2"], "conv2", **same),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("MaxPool", ["r2"], ["pooled"], "pool", **half),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flatten"),
        helper.make_node(
            "Gemm", ["flat", "linear.weight", "linear.bias"], ["logits"], "linear", transB=1
        ),
        helper.make_node("Softmax", ["logits"], ["probability"], "softmax", axis=1),
        helper.make_node("ArgMax", ["logits"], ["digit"], "argmax", axis=1, keepdims=0),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.UINT8, ["batch", 1, 8, 8])
    outputs = [
        helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["batch", 10]),
        helper.make_tensor_value_info("digit", TensorProto.INT64, ["batch"]),
    ]
    graph = helper.make_graph(nodes, "digits", [image], outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, "digits.onnx")


if __name__ == "__main__":
    main()
