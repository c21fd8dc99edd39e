"""The fields that an op class declares: operands, attributes, regions, results, explicit types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from tfc.ir.expr import Dim, Expr, normal
from tfc.ir.types import DType

if TYPE_CHECKING:
    from tfc.ir.core import Op

Attribute: TypeAlias = Any
"""bool, int, float, str, DType, Dim, Layout, SymbolRef, Dense, or a tuple of these."""

MISSING: Any = object()


@dataclass(frozen=True)
class SymbolRef:
    """A reference to a name of the module: `@name`."""

    name: str

    def __str__(self) -> str:
        return f"@{self.name}"


class Field:
    """A descriptor that reads its part of an op."""

    name: str = ""
    required = True

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.rstrip("_")  # `else_` is the region `else`


class OperandField(Field):
    position = 0

    def __init__(self, *, optional: bool = False, variadic: bool = False) -> None:
        self.variadic = variadic
        self.required = not (optional or variadic)

    def __get__(self, op: Op | None, owner: type) -> Any:
        if op is None:
            return self
        if self.variadic:
            return op.operands[self.position :]
        return op.operands[self.position]


class AttributeField(Field):
    """An attribute of a kind; see `KINDS`."""

    def __init__(self, kind: str, default: Any) -> None:
        self.kind = kind
        self.default = default
        self.required = default is MISSING

    def is_default(self, value: Any) -> bool:
        same = type(value) is type(self.default) or isinstance(value, int | float)
        return bool(same and value == self.default and str(value) == str(self.default))

    def __get__(self, op: Op | None, owner: type) -> Any:
        if op is None:
            return self
        found = op.attributes.get(self.name, self.default)
        return None if found is MISSING else found

    def check(self, value: Any) -> str:
        """What is wrong with a value of this attribute, or an empty string."""
        return "" if KINDS[self.kind](value) else f"{self.name} must be {self.kind}, not {value!r}"


class RegionField(Field):
    """A region, which follows its keyword in the text."""

    position = 0
    required = False

    @property
    def keyword(self) -> str:
        """The field's name, without the underscore that sets it off from Python's own words."""
        return self.name.rstrip("_")

    def __get__(self, op: Op | None, owner: type) -> Any:
        return self if op is None else op.regions[self.position]


class ResultField(Field):
    position = 0
    required = False

    def __init__(self, *, variadic: bool = False) -> None:
        self.variadic = variadic

    def __get__(self, op: Op | None, owner: type) -> Any:
        if op is None:
            return self
        return op.results[self.position :] if self.variadic else op.results[self.position]


class TypeField(Field):
    """The types of the results are given, not inferred."""

    def __get__(self, op: Op | None, owner: type) -> Any:
        return self if op is None else [v.type for v in op.results]


def operand() -> Any:
    """An operand that must be present."""
    return OperandField()


def optional(*, default: None = None) -> Any:
    """An operand that may be absent (None; `_` in text).

    A type checker takes the argument for optional where `default=None` is written.
    """
    assert default is None
    return OperandField(optional=True)


def variadic() -> Any:
    """Any number of operands, as a list; must be the last operand field."""
    return OperandField(variadic=True)


def attribute(kind: str, default: Any = MISSING) -> Any:
    """An attribute of a kind of `KINDS`; without a default it must be given."""
    return AttributeField(kind, default)


def region() -> Any:
    return RegionField()


def result(*, variadic: bool = False, init: Literal[False] = False) -> Any:
    """Names a result for reading; the types come from `infer`, so nobody passes it (`init`)."""
    return ResultField(variadic=variadic)


def result_type() -> Any:
    """The type (or list of types) of the results, given by whoever makes the op."""
    return TypeField()


Test: TypeAlias = "Callable[[Any], bool]"


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or _is_int(value)


def _is_dim(value: Any) -> bool:
    return isinstance(value, Expr) or _is_int(value)


def _is_anything(value: Any) -> bool:
    return True


def _is(kind: type) -> Test:
    def test(value: Any) -> bool:
        return isinstance(value, kind)

    return test


def _each(test: Test) -> Test:
    def test_all(value: Any) -> bool:
        return isinstance(value, tuple) and all(map(test, cast("tuple[Any, ...]", value)))

    return test_all


KINDS: dict[str, Test] = {
    "int": _is_int,
    "float": _is_float,
    "bool": _is(bool),
    "str": _is(str),
    "dtype": _is(DType),
    "symbol": _is(SymbolRef),  # stands before the operands in the text: `read(@limit)`
    "dim": _is_dim,
    "ints": _each(_is_int),
    "floats": _each(_is_float),
    "strs": _each(_is(str)),
    "dims": _each(_is_dim),
    "any": _is_anything,
}


def dims(values: Any) -> tuple[Dim, ...]:
    """A tuple of dimensions in normal form."""
    return tuple(normal(v) for v in values)
