"""What the importer of one ONNX node sees: its inputs, attributes and a builder.

An attribute or input that a handler does not ask for is refused after it ran, so that nothing of a
node is dropped silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from tfc.importers.onnx_model import Attribute, Graph, Node, Reference
from tfc.importers.onnx_tensor import ELEMENT_TYPES, Tensor, element_name
from tfc.ir.core import OPS, Location, Value
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.expr import Dim, Expr
from tfc.ir.types import DTYPES, DType, TensorType

if TYPE_CHECKING:
    from tfc.importers.onnx import Importer, Scope
    from tfc.ir.builder import Builder

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
T = TypeVar("T")

TFC_NAMES = {
    **{"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "bool"},
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}
DTYPE_OF_CODE: dict[int, DType] = {
    code: DTYPES[TFC_NAMES[element.name]]
    for code, element in ELEMENT_TYPES.items()
    if element.name in TFC_NAMES
}
KNOWN_ELEMENTS = 256  # a tensor of more is never tracked element by element


def dtype_of_code(code: int) -> DType:
    """tfc's element type for ONNX's; UnsupportedError where it has none."""
    if code not in DTYPE_OF_CODE:
        raise UnsupportedError(f"element type {element_name(code)} is not supported")
    return DTYPE_OF_CODE[code]


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """A small tensor of integers or bools whose elements are numbers or expressions of dims."""

    dtype: DType
    elements: Array  # of objects: int, bool or Expr

    @property
    def type(self) -> TensorType:
        return TensorType(self.dtype, tuple(self.elements.shape))

    @property
    def is_constant(self) -> bool:
        return not any(isinstance(e, Expr) for e in self.elements.flat)

    def array(self) -> Array:
        """The elements as numbers; only of a constant."""
        return self.elements.astype(self.dtype.numpy)


Result: TypeAlias = "One | Sequence[One]"


@dataclass(slots=True, eq=False)
class Entry:
    """What stands for an ONNX value: a value of the IR, a tensor of the file, or known elements.

    An entry without any of them is the result of a node that could not be imported.
    """

    value: Value | None = None
    tensor: Tensor | None = None
    known: Known | None = None
    name: str = ""
    location: Location = field(default_factory=Location)

    @property
    def is_missing(self) -> bool:
        return self.value is None and self.tensor is None and self.known is None

    @property
    def type(self) -> TensorType:
        if self.value is not None:
            return self.value.tensor
        if self.known is not None:
            return self.known.type
        assert self.tensor is not None, "a missing entry has no type"
        return TensorType(dtype_of_code(self.tensor.dtype), self.tensor.dims)

    def elements(self) -> Known | None:
        """The elements of a small tensor of integers, if they are known."""
        if self.known is None and self.tensor is not None:
            dtype = DTYPE_OF_CODE.get(self.tensor.dtype)
            if dtype and not dtype.is_float and self.tensor.elements <= KNOWN_ELEMENTS:
                self.known = Known(dtype, self.tensor.array().astype(object))
        return self.known

    def constant(self) -> Array | None:
        """The elements as numbers, if the tensor does not depend on the call."""
        if self.tensor is not None:
            return self.tensor.array()
        return self.known.array() if self.known and self.known.is_constant else None

    def __str__(self) -> str:
        if self.is_missing:
            return "?"
        try:
            return str(self.type)
        except UnsupportedError:
            return f"tensor of {self.tensor.element.name}" if self.tensor else "?"


One = Value | Known | Entry  # what an output of a node is


class Context:
    """One node while it is imported. `version` is that of the operator, `b` inserts ops."""

    def __init__(
        self,
        host: Importer,
        node: Node,
        scope: Scope,
        inputs: list[Entry | None],
        version: int,
        builder: Builder,
    ) -> None:
        self.host = host
        self.node = node
        self.scope = scope
        self.entries = inputs
        self.version = version
        self.b = builder
        self._asked_inputs = 0
        self._asked_attributes: set[str] = set()

    # ---- errors

    def unsupported(self, what: str, hint: str = "") -> UnsupportedError:
        """The node is legal, but beyond tfc."""
        return UnsupportedError(what, where=self.node.label, hint=hint)

    def error(self, what: str, hint: str = "") -> TfcError:
        """The node is not legal."""
        return TfcError(what, where=self.node.label, hint=hint)

    def require(self, condition: bool, what: str) -> None:
        if not condition:
            raise self.error(what)

    def check_used(self) -> None:
        """Refuse what the handler did not look at."""
        given = [i for i, entry in enumerate(self.entries) if entry is not None]
        if given and given[-1] >= self._asked_inputs:
            raise self.error(f"takes at most {self._asked_inputs} inputs, has {given[-1] + 1}")
        self.check_attributes()

    def check_attributes(self) -> None:
        unknown = [a for a in self.node.attributes if a not in self._asked_attributes]
        if unknown:
            raise self.error(f"{self.node.op_type} has no attribute {', '.join(unknown)}")

    # ---- making ops

    def make(self, op: str, *operands: Any, **attributes: Any) -> Value:
        """Inserts an op with one result, by its name."""
        return self.b.value(OPS[op](*operands, **attributes))

    def make_all(self, op: str, *operands: Any, **attributes: Any) -> list[Value]:
        """Inserts an op and gives all of its results."""
        return self.b.add(OPS[op](*operands, **attributes)).results

    def scalar(self, number: float, dtype: DType) -> Value:
        """A constant of rank 0."""
        return self.host.constants.constant(np.array(number).astype(dtype.numpy), self.b.location)

    # ---- inputs

    def entry(self, index: int) -> Entry | None:
        self._asked_inputs = max(self._asked_inputs, index + 1)
        return self.entries[index] if index < len(self.entries) else None

    def has(self, index: int) -> bool:
        return self.entry(index) is not None

    def _needed(self, index: int) -> Entry:
        entry = self.entry(index)
        if entry is None:
            raise self.error(f"input {index} is missing")
        return entry

    def value(self, index: int) -> Value:
        return self.host.constants.materialize(self._needed(index))

    def optional(self, index: int) -> Value | None:
        return self.value(index) if self.has(index) else None

    def values(self) -> list[Value]:
        """All inputs of an operator that takes any number; none may be absent."""
        return [self.value(i) for i in range(len(self.node.inputs))]

    def type(self, index: int) -> TensorType:
        return self._needed(index).type

    def elements(self, index: int) -> Known | None:
        """The known elements of an input, if it has any."""
        return self._needed(index).elements()

    def known(self, index: int, what: str) -> list[Dim]:
        """An input that must be known now: numbers and expressions of dimensions, flattened."""
        found = self.elements(index)
        if found is None:
            raise self.unsupported(
                f"its {what} (input {index}) is computed when the model runs",
                "it must be constant, or follow from the dimensions of the inputs",
            )
        return [int(e) if isinstance(e, bool) else e for e in found.elements.reshape(-1)]

    def known_ints(self, index: int, what: str) -> tuple[int, ...]:
        """An input that must be constant integers."""
        found = self.known(index, what)
        if any(isinstance(e, Expr) for e in found):
            raise self.unsupported(f"its {what} (input {index}) depends on dimensions")
        return tuple(cast("list[int]", found))

    def known_scalar(self, index: int, what: str) -> Dim:
        found = self.known(index, what)
        self.require(len(found) == 1, f"its {what} (input {index}) has {len(found)} elements")
        return found[0]

    def constant(self, index: int, what: str) -> Array:
        """An input that must be constant, as numpy."""
        found = self._needed(index).constant()
        if found is None:
            raise self.unsupported(f"its {what} (input {index}) is computed when the model runs")
        return found

    # ---- attributes

    def _attribute(self, name: str, kind: str) -> Any:
        """The value of an attribute, None where it is absent."""
        self._asked_attributes.add(name)
        found = self.node.attributes.get(name)
        value = found.value if found else None
        if isinstance(value, Reference):
            found = self.scope.attributes.get(value.name)
            value = found.value if found else None
        if found is None:
            return None
        if found.kind != kind:
            raise self.error(f"attribute {name!r} is of type {found.kind}, not {kind}")
        return value

    def _given(self, name: str, kind: str, default: T | None) -> T:
        value = self._attribute(name, kind)
        if value is None and default is None:
            raise self.error(f"attribute {name!r} is missing")
        return cast("T", default if value is None else value)

    def has_attribute(self, name: str) -> bool:
        found = self.node.attributes.get(name)
        if found is not None and isinstance(found.value, Reference):
            return found.value.name in self.scope.attributes
        return found is not None

    def int(self, name: str, default: int | None = None) -> int:
        return self._given(name, "int", default)

    def flag(self, name: str, default: bool = False) -> bool:
        number = self.int(name, int(default))
        self.require(number in (0, 1), f"attribute {name!r} is {number}, not 0 or 1")
        return bool(number)

    def float(self, name: str, default: float | None = None) -> float:
        return self._given(name, "float", default)

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return self._given(name, "ints", default)

    def floats(self, name: str) -> tuple[float, ...]:
        return self._given(name, "floats", None)

    def string(self, name: str, default: str | None = None) -> str:
        value = self._attribute(name, "string")
        if value is None:
            return self._given(name, "string", default)
        return value.decode("utf-8", "replace")

    def tensor(self, name: str) -> Tensor | None:
        return self._attribute(name, "tensor")

    def graph(self, name: str) -> Graph:
        return self._given(name, "graph", None)

    def any_attribute(self, name: str) -> Attribute | None:
        """An attribute of whatever type."""
        self._asked_attributes.add(name)
        return self.node.attributes.get(name)

    def ignore(self, *names: str) -> None:
        """Attributes that do not change the result."""
        self._asked_attributes.update(names)

    # ---- axes

    def axis(self, axis: int, rank: int, what: str = "axis") -> int:
        """An axis counted from the front; ONNX's may count from the end."""
        if not -rank <= axis < rank:
            raise self.error(f"{what} {axis} is no axis of rank {rank}")
        return axis % rank if rank else 0

    def axes(self, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
        """Axes counted from the front, ascending; none may come twice."""
        found = tuple(sorted(self.axis(axis, rank) for axis in axes))
        self.require(len(set(found)) == len(found), f"axes {list(axes)} name one axis twice")
        return found

    @cached_property
    def rank(self) -> int:
        """The rank of the first input."""
        return self.type(0).rank
