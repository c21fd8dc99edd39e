"""An ONNX model as its file says it: graphs, nodes, attributes, types. Nothing is interpreted here.

Names of domains are normalised: "ai.onnx" is "". Source: onnx.proto, https://onnx.ai/onnx/repo-docs/IR.html
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tfc.importers.mapped_file import MappedFile
from tfc.importers.onnx_tensor import Tensor
from tfc.ir.errors import TfcError

ModelDim: TypeAlias = "int | str | None"


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A value's declared type.

    `kind` is "tensor", or the whole type as text ("sequence(tensor(float))", "" when none is
    given); only a tensor has `dtype` and `dims`. A dimension is a number, a symbol's name or None;
    where `dims` is None the rank is unknown.
    """

    name: str
    kind: str
    dtype: int = 0
    dims: tuple[ModelDim, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """The value of an attribute inside a function: the function's own attribute of that name."""

    name: str


@dataclass(frozen=True, slots=True)
class Sparse:
    """A sparse tensor, which is only named: nothing reads it."""

    name: str


Single: TypeAlias = "int | float | bytes | Tensor | Graph | Sparse | ValueInfo"
Numbers: TypeAlias = "tuple[int, ...] | tuple[float, ...]"
AttributeValue: TypeAlias = "Single | Numbers | tuple[Single, ...] | Reference"


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a node; `kind` is its type's name in ONNX: "int", "floats", "graph", ..."""

    name: str
    kind: str
    value: AttributeValue


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """An operation. An absent optional input or output is ""; `index` is its place in the graph."""

    name: str
    op_type: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Attribute]
    index: int

    @property
    def label(self) -> str:
        """The node as errors name it."""
        name = repr(self.name) if self.name else str(self.index)
        domain = f"{self.domain}." if self.domain else ""
        return f"node {name} ({domain}{self.op_type})"

    @property
    def graphs(self) -> list[Graph]:
        """The graphs among its attributes."""
        found: list[Graph] = []
        for attribute in self.attributes.values():
            values = attribute.value if isinstance(attribute.value, tuple) else (attribute.value,)
            found += [value for value in values if isinstance(value, Graph)]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    name: str
    nodes: tuple[Node, ...]
    initializers: dict[str, Tensor]
    sparse_initializers: tuple[str, ...]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    value_info: dict[str, ValueInfo]

    @property
    def feeds(self) -> tuple[ValueInfo, ...]:
        """The inputs that a caller must give; an initializer may be listed as an input too."""
        return tuple(value for value in self.inputs if value.name not in self.initializers)


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of the model; `attributes` have no default value, those in `defaults` have one."""

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: dict[str, Attribute]
    nodes: tuple[Node, ...]
    opset_imports: dict[str, int]

    @property
    def label(self) -> str:
        return f"function {self.domain or 'ai.onnx'}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    ir_version: int
    opset_imports: dict[str, int]
    producer: str
    graph: Graph
    functions: dict[tuple[str, str, str], Function]  # by domain, name and overload
    metadata_props: dict[str, str]
    path: Path
    file: MappedFile = field(repr=False)

    def error(self, what: str, hint: str = "") -> TfcError:
        return TfcError(what, where=self.file.location, hint=hint)
