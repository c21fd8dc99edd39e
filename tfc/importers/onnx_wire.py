"""Reads an ONNX model from a mapped file, leaving the weights where they are.

`read_model` is the entry. Each message of onnx.proto has its schema in `onnx_schema.py` and a
function here; the wire format itself is `protobuf.py`. The file is taken as hostile.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from tfc.importers.mapped_file import MappedFile, Span, map_beside, map_file
from tfc.importers.onnx_check import check_model
from tfc.importers.onnx_model import (
    Attribute,
    AttributeValue,
    Function,
    Graph,
    Model,
    Node,
    Reference,
    Sparse,
)
from tfc.importers.onnx_schema import (
    ATTRIBUTE,
    ATTRIBUTE_KINDS,
    FUNCTION,
    GRAPH,
    KEY_VALUE,
    MODEL,
    NODE,
    OPERATOR_SET,
    SPARSE_TENSOR,
    TENSOR,
    TENSOR_NAME,
)
from tfc.importers.onnx_tensor import (
    ELEMENT_TYPES,
    FIELD_NAMES,
    MAX_RANK,
    STRING,
    WIRE_OF_FIELD,
    Raw,
    Tensor,
    Typed,
    element_name,
    raw_size,
)
from tfc.importers.onnx_value_info import read_type, read_value_info
from tfc.importers.protobuf import BYTES, FIXED32, FIXED64, Message, read
from tfc.ir.errors import TfcError

NEWEST_IR_VERSION = 14
MAX_DEPTH = 32  # of graphs in attributes of nodes

T = TypeVar("T")
K = TypeVar("K")


def read_model(path: str | os.PathLike[str]) -> Model:
    """The model in a file, checked: names defined once and before use, sizes of data that match.

    Weights are not read. TfcError says what is wrong with the file, and where.
    """
    return read_mapped(map_file(path))


def read_mapped(file: MappedFile) -> Model:
    """The model in a file that is mapped already; external data lies beside its path."""
    return _Reader(file).model()


class _Reader:
    """Reads the messages of one file; holds the external files that were mapped already."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.external: dict[str, MappedFile] = {}

    def model(self) -> Model:
        if not self.file.size:
            raise self.error("the file is empty, it holds no ONNX model")
        message = read(Span(self.file, 0, self.file.size), MODEL)
        graph = message.inner("graph")
        if graph is None:
            raise self.error("the file holds no graph: it is no ONNX model, or a damaged one")
        version = message.int("ir_version")
        if not 1 <= version <= NEWEST_IR_VERSION:
            raise self.error(f"IR version {version} is unknown: 1 to {NEWEST_IR_VERSION} are")
        functions = [self.function(span) for span in message.inners("functions")]
        model = Model(
            version,
            _opset_imports(message),
            f"{message.text('producer_name')} {message.text('producer_version')}".strip(),
            self.graph(graph, 1),
            _by_key(message, "function", functions, lambda f: (f.domain, f.name, f.overload)),
            _key_values(message.inners("metadata_props")),
            self.file.path,
            self.file,
        )
        check_model(model)
        return model

    def error(self, what: str) -> TfcError:
        return TfcError(what, where=self.file.location)

    def graph(self, span: Span, depth: int) -> Graph:
        if depth > MAX_DEPTH:
            raise self.error(f"graphs nest deeper than {MAX_DEPTH}")
        message = read(span, GRAPH)
        tensors = [self.tensor(inner) for inner in message.inners("initializer")]
        infos = [read_value_info(inner) for inner in message.inners("value_info")]
        return Graph(
            message.text("name"),
            self.nodes(message, depth),
            _by_key(message, "initializer", tensors, lambda tensor: tensor.name),
            tuple(_sparse(inner).name for inner in message.inners("sparse_initializer")),
            tuple(read_value_info(inner) for inner in message.inners("input")),
            tuple(read_value_info(inner) for inner in message.inners("output")),
            {info.name: info for info in infos},
        )

    def nodes(self, message: Message, depth: int) -> tuple[Node, ...]:
        spans = message.inners("node")
        return tuple(self.node(span, index, depth) for index, span in enumerate(spans))

    def node(self, span: Span, index: int, depth: int) -> Node:
        message = read(span, NODE)
        if not message.text("op_type"):
            raise message.error(f"node {message.text('name') or index!r} has no op_type")
        attributes = [self.attribute(inner, depth) for inner in message.inners("attribute")]
        return Node(
            message.text("name"),
            message.text("op_type"),
            _domain(message.text("domain")),
            message.text("overload"),
            message.texts("input"),
            message.texts("output"),
            _by_key(message, "attribute", attributes, lambda attribute: attribute.name),
            index,
        )

    def attribute(self, span: Span, depth: int) -> Attribute:
        message = read(span, ATTRIBUTE)
        name = message.text("name")
        if not name:
            raise message.error("an attribute has no name")
        kind, holder = _attribute_kind(message, name)
        if message.text("ref_attr_name"):
            return Attribute(name, kind, Reference(message.text("ref_attr_name")))
        return Attribute(name, kind, self.attribute_value(message, name, kind, holder, depth))

    def attribute_value(
        self, message: Message, name: str, kind: str, holder: str, depth: int
    ) -> AttributeValue:
        if kind == "int":
            return message.int(holder)
        if kind == "float":
            return message.float(holder)
        if kind == "ints":
            return message.ints(holder)
        if kind == "floats":
            return message.floats(holder)
        spans = message.inners(holder)
        if kind.startswith("string"):
            values: tuple[AttributeValue, ...] = tuple(bytes(span.memory) for span in spans)
            spare: AttributeValue | None = b""
        elif kind.startswith("tensor"):
            values, spare = tuple(self.tensor(span) for span in spans), None
        elif kind.startswith("graph"):
            values, spare = tuple(self.graph(span, depth + 1) for span in spans), None
        elif kind.startswith("sparse"):
            values, spare = tuple(_sparse(span) for span in spans), None
        else:
            values, spare = tuple(read_type("", span, 1) for span in spans), None
        if kind.endswith("s"):
            return values  # pyright: ignore[reportReturnType] (all of one type)
        value = values[0] if values else spare
        if value is None:
            raise message.error(f"attribute {name!r} of type {kind} has no value")
        return value

    def function(self, span: Span) -> Function:
        message = read(span, FUNCTION)
        if not message.text("name"):
            raise message.error("a function has no name")
        defaults = [self.attribute(inner, 1) for inner in message.inners("attribute_proto")]
        return Function(
            message.text("name"),
            _domain(message.text("domain")),
            message.text("overload"),
            message.texts("input"),
            message.texts("output"),
            message.texts("attribute"),
            _by_key(message, "attribute", defaults, lambda attribute: attribute.name),
            self.nodes(message, 1),
            _opset_imports(message),
        )

    def tensor(self, span: Span) -> Tensor:
        message = read(span, TENSOR)
        name, dims = message.text("name"), message.ints("dims")
        dtype = message.int("data_type")
        element = ELEMENT_TYPES.get(dtype)
        if element is None:
            raise message.error(f"tensor {name!r} has the unknown {element_name(dtype)}")
        if len(dims) > MAX_RANK:
            raise message.error(f"tensor {name!r} has rank {len(dims)}, more than {MAX_RANK}")
        if min(dims, default=0) < 0:
            raise message.error(f"tensor {name!r} has a negative dimension: {list(dims)}")
        if math.prod(max(n, 1) for n in dims) * max(element.bits, 8) >= 1 << 63:
            raise message.error(f"tensor {name!r}: the size of {list(dims)} overflows")
        if message.has("segment"):
            raise message.error(f"tensor {name!r} is stored in segments, which tfc cannot read")
        return Tensor(name, dtype, dims, self.tensor_data(message, name, dtype, dims))

    def tensor_data(
        self, message: Message, name: str, dtype: int, dims: tuple[int, ...]
    ) -> Raw | Typed:
        element = ELEMENT_TYPES[dtype]
        elements = math.prod(dims)
        size = raw_size(elements, element.bits)
        if message.int("data_location") == 1:
            if dtype == STRING:
                raise message.error(f"tensor {name!r}: strings cannot be external")
            return Raw(self.external_span(message, name, size))
        given = [field for field, held in FIELD_NAMES.items() if message.has(held)]
        if any(message.inners(FIELD_NAMES[field]) and field != element.field for field in given):
            held = ", ".join(FIELD_NAMES[field] for field in given)
            raise message.error(f"tensor {name!r} of {element.name} holds {held}")
        raw = message.inner("raw_data")
        if raw is not None and (raw.size or not given):
            if given or dtype == STRING:
                raise message.error(f"tensor {name!r} holds raw data beside or instead of its own")
            if raw.size != size:
                what = f"tensor {name!r}, {element.name} {list(dims)}"
                raise message.error(f"{what}, needs {size} bytes, has {raw.size}")
            return Raw(raw)
        _check_count(message, name, dtype, elements)
        return Typed(message.span, element.field)

    def external_span(self, message: Message, name: str, size: int) -> Span:
        """Where the external data of a tensor lies; its file may be shorter than it says."""
        keys = _key_values(message.inners("external_data"))
        location = keys.get("location", "")
        if not location:
            raise message.error(f"tensor {name!r} is external, but names no location")
        if location not in self.external:
            self.external[location] = map_beside(Path(self.file.path).parent, location)
        file = self.external[location]
        offset = _size(message, name, "offset", keys.get("offset", "0"))
        length = _size(message, name, "length", keys.get("length", str(size)))
        if length != size:
            raise message.error(f"tensor {name!r} needs {size} bytes, has {length} in {location!r}")
        if offset + length > file.size:
            raise message.error(
                f"tensor {name!r} lies at bytes {offset} to {offset + length} of {location!r}, "
                f"which has {file.size}"
            )
        return Span(file, offset, offset + length)


def _check_count(message: Message, name: str, dtype: int, elements: int) -> None:
    """Compare sizes without reading the data: all but packed varints, which `array` counts."""
    element = ELEMENT_TYPES[dtype]
    held = message.values.get(FIELD_NAMES[element.field], [])
    wire = WIRE_OF_FIELD[element.field]
    packed = sum(span.size for span in held if span is not None)
    single = sum(span is None for span in held)
    if wire == BYTES and single:
        raise message.error(f"tensor {name!r}: its strings come as numbers")
    if wire == BYTES:
        count, fits = len(held), len(held) == elements
    elif wire in (FIXED32, FIXED64):
        size = 4 if wire == FIXED32 else 8
        per_element = 2 if element.numpy.startswith("complex") else 1
        count = packed // size + single
        fits = packed % size == 0 and count == elements * per_element
    else:  # a varint has 1 to 10 bytes; sub-byte types share one
        values = -(-elements * element.bits // 8) if element.bits in (2, 4) else elements
        count = packed + single
        fits = single + -(-packed // 10) <= values <= packed + single
    if not fits:
        raise message.error(f"tensor {name!r}: {count} values do not fit {elements} elements")


def _size(message: Message, name: str, key: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise message.error(f"tensor {name!r}: external data with {key} {text[:40]!r}")
    return int(text)


def _by_key(message: Message, what: str, values: Iterable[T], key: Callable[[T], K]) -> dict[K, T]:
    """The values by a key that may come only once."""
    found: dict[K, T] = {}
    for value in values:
        if key(value) in found:
            raise message.error(f"{what} {key(value)!r} is given twice")
        found[key(value)] = value
    return found


def _key_values(spans: list[Span]) -> dict[str, str]:
    messages = [read(span, KEY_VALUE) for span in spans]
    return {message.text("key"): message.text("value") for message in messages}


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opset_imports(message: Message) -> dict[str, int]:
    found: dict[str, int] = {}
    for span in message.inners("opset_import"):
        inner = read(span, OPERATOR_SET)
        domain, version = _domain(inner.text("domain")), inner.int("version")
        if found.setdefault(domain, version) != version:
            raise inner.error(f"two versions of the operators of domain {domain or 'ai.onnx'!r}")
    return found


def _attribute_kind(message: Message, name: str) -> tuple[str, str]:
    """(kind, the field that holds the value); old files give no type, then the field says it."""
    given = [(kind, holder) for kind, holder in ATTRIBUTE_KINDS.values() if message.has(holder)]
    code = message.int("type")
    if code == 0:
        if len(given) != 1:
            raise message.error(f"attribute {name!r} has no type and {len(given)} values")
        return given[0]
    if code not in ATTRIBUTE_KINDS:
        raise message.error(f"attribute {name!r} has the unknown type {code}")
    kind, holder = ATTRIBUTE_KINDS[code]
    others = [k for k, h in given if h != holder]
    if others:
        raise message.error(f"attribute {name!r} says it is {kind}, but holds {', '.join(others)}")
    return kind, holder


def _sparse(span: Span) -> Sparse:
    values = read(span, SPARSE_TENSOR).inner("values")
    return Sparse(read(values, TENSOR_NAME).text("name") if values else "")
