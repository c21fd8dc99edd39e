"""The messages of onnx.proto as far as tfc reads them: field number -> name and kind.

Source: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from tfc.importers.onnx_tensor import FIELD_NAMES
from tfc.importers.protobuf import Field

KEY_VALUE = {1: Field("key", "text"), 2: Field("value", "text")}
OPERATOR_SET = {1: Field("domain", "text"), 2: Field("version", "int")}
MODEL = {
    1: Field("ir_version", "int"),
    2: Field("producer_name", "text"),
    3: Field("producer_version", "text"),
    7: Field("graph", "span"),
    8: Field("opset_import", "span", repeated=True),
    14: Field("metadata_props", "span", repeated=True),
    25: Field("functions", "span", repeated=True),
}
GRAPH = {
    1: Field("node", "span", repeated=True),
    2: Field("name", "text"),
    5: Field("initializer", "span", repeated=True),
    11: Field("input", "span", repeated=True),
    12: Field("output", "span", repeated=True),
    13: Field("value_info", "span", repeated=True),
    15: Field("sparse_initializer", "span", repeated=True),
}
NODE = {
    1: Field("input", "text", repeated=True),
    2: Field("output", "text", repeated=True),
    3: Field("name", "text"),
    4: Field("op_type", "text"),
    5: Field("attribute", "span", repeated=True),
    7: Field("domain", "text"),
    8: Field("overload", "text"),
}
ATTRIBUTE = {
    1: Field("name", "text"),
    2: Field("f", "float"),
    3: Field("i", "int"),
    4: Field("s", "span"),
    5: Field("t", "span"),
    6: Field("g", "span"),
    7: Field("floats", "float", repeated=True),
    8: Field("ints", "int", repeated=True),
    9: Field("strings", "span", repeated=True),
    10: Field("tensors", "span", repeated=True),
    11: Field("graphs", "span", repeated=True),
    14: Field("tp", "span"),
    15: Field("type_protos", "span", repeated=True),
    20: Field("type", "int"),
    21: Field("ref_attr_name", "text"),
    22: Field("sparse_tensor", "span"),
    23: Field("sparse_tensors", "span", repeated=True),
}
TENSOR = {
    1: Field("dims", "int", repeated=True),
    2: Field("data_type", "int"),
    3: Field("segment", "span"),
    **{number: Field(name, "data", repeated=True) for number, name in FIELD_NAMES.items()},
    8: Field("name", "text"),
    9: Field("raw_data", "span"),
    13: Field("external_data", "span", repeated=True),
    14: Field("data_location", "int"),
}
SPARSE_TENSOR = {1: Field("values", "span")}
TENSOR_NAME = {8: Field("name", "text")}
VALUE_INFO = {1: Field("name", "text"), 2: Field("type", "span")}
TYPE = {
    1: Field("tensor", "span"),
    4: Field("sequence", "span"),
    5: Field("map", "span"),
    7: Field("opaque", "span"),
    8: Field("sparse_tensor", "span"),
    9: Field("optional", "span"),
}
TENSOR_TYPE = {1: Field("elem_type", "int"), 2: Field("shape", "span")}
CONTAINER_TYPE = {1: Field("elem_type", "span")}
MAP_TYPE = {1: Field("key_type", "int"), 2: Field("value_type", "span")}
SHAPE = {1: Field("dim", "span", repeated=True)}
DIMENSION = {1: Field("dim_value", "int"), 2: Field("dim_param", "text")}
FUNCTION = {
    1: Field("name", "text"),
    4: Field("input", "text", repeated=True),
    5: Field("output", "text", repeated=True),
    6: Field("attribute", "text", repeated=True),
    7: Field("node", "span", repeated=True),
    9: Field("opset_import", "span", repeated=True),
    10: Field("domain", "text"),
    11: Field("attribute_proto", "span", repeated=True),
    13: Field("overload", "text"),
}

# AttributeProto.type -> its name, and the field that holds the value
ATTRIBUTE_KINDS = {
    1: ("float", "f"),
    2: ("int", "i"),
    3: ("string", "s"),
    4: ("tensor", "t"),
    5: ("graph", "g"),
    6: ("floats", "floats"),
    7: ("ints", "ints"),
    8: ("strings", "strings"),
    9: ("tensors", "tensors"),
    10: ("graphs", "graphs"),
    11: ("sparse_tensor", "sparse_tensor"),
    12: ("sparse_tensors", "sparse_tensors"),
    13: ("type_proto", "tp"),
    14: ("type_protos", "type_protos"),
}
