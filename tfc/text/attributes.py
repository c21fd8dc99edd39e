"""Attributes in the text: `{axis = 1, shape = [2, (S+1)], to = f32, value = dense<0.5>}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tfc.ir.core import SymbolRef
from tfc.ir.expr import Expr
from tfc.ir.fields import Attribute, AttributeField
from tfc.ir.types import DTYPES, RESERVED, DType, Layout, TensorType, Type
from tfc.ir.weights import Dense
from tfc.text.dense import dense_text, read_dense
from tfc.text.expressions import read_expression
from tfc.text.numbers import float_text, read_number
from tfc.text.source import STRING, Source, did_you_mean, name_text, quote, read_name, unquote
from tfc.text.types import TypeReader, read_dtype, read_layout

MAX_DEPTH = 16
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*", re.ASCII)
_KEY = re.compile(r"\s*([a-z_][A-Za-z0-9_]*)\s*=\s*", re.ASCII)
_SYMBOL = re.compile(r'@(?:[A-Za-z0-9_.$]+|"(?:[^"\\\n]|\\.)*+")', re.ASCII)
_BARE = re.compile(r"[-+A-Za-z0-9_.]+(?:\(0x[0-9a-fA-F]+\))?", re.ASCII)
_LAYOUT = re.compile(r"layout<([^<>]*)>")
_DENSE = re.compile(r"dense<([^<>]*)>")
_COLON = re.compile(r"\s*:\s*(?=tensor<)")
_VALUES = "a number, true, a string, [list], (expression), @name, an element type or dense<...>"


# ---- reading


class AttributeReader:
    """Reads one dictionary, `text`, that stands at an offset; `fields` are those that its op has.

    `type` is that of the only result, which a `dense<...>` without a type takes.
    """

    def __init__(
        self,
        source: Source,
        types: TypeReader,
        offset: int,
        text: str,
        fields: Mapping[str, AttributeField] | None = None,
        type: Type | None = None,
    ) -> None:
        self.source = source
        self.types = types
        self.offset = offset
        self.text = text
        self.fields = fields
        self.type = type
        self.place = 0

    def error(self, message: str, hint: str = "") -> Exception:
        return self.source.error(self.offset + self.place, message, hint)

    def dictionary(self, owner: str) -> dict[str, Attribute]:
        """The attributes of an owner (the name of an op), which are checked against its fields."""
        found: dict[str, Attribute] = {}
        separator = "{"
        while separator != "}":
            self.place += 1
            match = _KEY.match(self.text, self.place)
            if match is None:
                self.skip_space()
                raise self.error("expected the name of an attribute and `=`", "such as `axis = 1`")
            key = match[1]
            self.place = match.start(1)
            if key in found:
                raise self.error(f"the attribute {key} is given twice")
            kind = self.kind(owner, key)
            self.place = match.end()
            found[key] = _as_kind(self.value(0), kind)
            separator = self.separator("}")
        return found

    def kind(self, owner: str, key: str) -> str:
        """The declared kind of an attribute."""
        if self.fields is None:
            return "any"
        if key not in self.fields:
            known = ", ".join(self.fields)
            otherwise = f"it has {known}" if known else "it has none"
            hint = did_you_mean(key, self.fields, otherwise)
            raise self.error(f"{owner} has no attribute {key!r}", hint)
        return self.fields[key].kind

    def separator(self, end: str) -> str:
        self.skip_space()
        mark = self.text[self.place]
        if mark != "," and mark != end:
            raise self.error(f"expected `,` or `{end}`")
        return mark

    def skip_space(self) -> None:
        match = _SPACE.match(self.text, self.place)
        self.place = match.end() if match else self.place

    def value(self, depth: int) -> Attribute:
        match self.text[self.place]:
            case '"':
                return self.string()
            case "[":
                return self.list(depth)
            case "(":
                return self.expression()
            case "@":
                return self.symbol()
            case _:
                return self.word()

    def string(self) -> str:
        match = STRING.match(self.text, self.place)
        assert match is not None, "the grammar lets only closed strings through"
        text = unquote(self.source, self.offset + self.place, match[0])
        self.place = match.end()
        return text

    def list(self, depth: int) -> tuple[Attribute, ...]:
        if depth == MAX_DEPTH:
            raise self.error(f"the lists nest deeper than {MAX_DEPTH}")
        items: list[Attribute] = []
        self.place += 1
        self.skip_space()
        while self.text[self.place] != "]":
            items.append(self.value(depth + 1))
            if self.separator("]") == ",":
                self.place += 1
                self.skip_space()
        self.place += 1
        return tuple(items)

    def expression(self) -> Attribute:
        start = self.place
        end, depth = start + 1, 1
        while depth:
            if end == len(self.text) or self.text[end] in '"[]{}':
                raise self.error("nothing closes this `(`")
            depth += {"(": 1, ")": -1}.get(self.text[end], 0)
            end += 1
        value = read_expression(
            self.source, self.offset + start + 1, self.text[start + 1 : end - 1]
        )
        self.place = end
        return value

    def symbol(self) -> SymbolRef:
        match = _SYMBOL.match(self.text, self.place)
        if match is None:
            raise self.error("expected a name after `@`")
        name = read_name(self.source, self.offset + self.place, match[0])
        self.place = match.end()
        return SymbolRef(name)

    def word(self) -> Attribute:
        for pattern, read in ((_LAYOUT, self.layout), (_DENSE, self.dense)):
            match = pattern.match(self.text, self.place)
            if match is not None:
                return read(match)
        match = _BARE.match(self.text, self.place)
        if match is None:
            raise self.error("expected a value", _VALUES)
        try:
            number = read_number(match[0])
        except ValueError as error:
            raise self.error(str(error)) from None
        if number is None:
            return self.dtype(match)
        self.place = match.end()
        return number

    def dtype(self, match: re.Match[str]) -> DType:
        if match[0] not in DTYPES and match[0] not in RESERVED:
            hint = did_you_mean(match[0], (*DTYPES, "true", "false", "inf", "nan"), _VALUES)
            raise self.error(f"{match[0]!r} is no value", hint)
        dtype = read_dtype(self.source, self.offset + self.place, match[0])
        self.place = match.end()
        return dtype

    def layout(self, match: re.Match[str]) -> Layout:
        layout = read_layout(self.source, self.offset + match.start(1), match[1])
        self.place = match.end()
        return layout

    def dense(self, match: re.Match[str]) -> Dense:
        type = self.type
        end = match.end()
        colon = _COLON.match(self.text, end)
        if colon is not None:
            type, end = self.types.at(self.offset, self.text, colon.end())
        if not isinstance(type, TensorType):
            hint = "write `dense<...> : tensor<...>`"
            raise self.error("the type of the constant is not known", hint)
        array = read_dense(self.source, self.offset + match.start(1), match[1], type)
        self.place = end
        return Dense(array)


def _as_kind(value: Attribute, kind: str) -> Attribute:
    """An integer where the attribute is a float means that float."""
    if kind == "float" and type(value) is int:
        return float(value)
    if kind == "floats" and isinstance(value, tuple):
        return tuple(_as_kind(v, "float") for v in value)
    return value


# ---- printing


def attributes_text(
    attributes: Mapping[str, Attribute],
    fields: Mapping[str, AttributeField] | None = None,
    type: Type | None = None,
) -> str:
    """A dictionary, in the order of the fields, then of insertion; `type` as for reading."""
    order = attributes if fields is None else [*(n for n in fields if n in attributes)]
    if len(order) != len(attributes):
        order = [*order, *(n for n in attributes if n not in order)]
    odd = [n for n in order if not _NAME.fullmatch(n)]
    assert not odd, f"no attribute can have the name {odd}"
    parts = [
        f"{n} = {value_text(attributes[n], fields[n].kind if fields and n in fields else '', type)}"
        for n in order
    ]
    return f"{{{', '.join(parts)}}}"


def value_text(value: Attribute, kind: str = "", type: Type | None = None) -> str:
    """One attribute of a kind."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return float_text(float(value)) if kind == "float" else str(value)
        case float():
            return float_text(value)
        case str():
            return quote(value)
        case Expr():
            return str(value) if value.constant is not None else f"({value})"
        case SymbolRef():
            return f"@{name_text(value.name)}"
        case DType():
            return value.name
        case Layout():
            return f"layout<{value}>"
        case Dense():
            explicit = "" if value.type == type else f" : {value.type}"
            return f"dense<{dense_text(value.array)}>{explicit}"
        case tuple():
            return _list_text(value, "float" if kind == "floats" else "")
        case _:
            raise AssertionError(f"{value!r} is no attribute")


def _list_text(values: tuple[Any, ...], kind: str) -> str:
    return f"[{', '.join(value_text(v, kind) for v in values)}]"
