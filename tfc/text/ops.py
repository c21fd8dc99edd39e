"""Reads ops: the part of the parser that runs for each of them, and so must be fast.

The usual form of each clause takes a short path; a look at the details, such as where exactly a
name stands, is left to the paths that end in an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tfc.ir.core import OPS, Block, Colocate, Location, Op, SymbolRef, Value
from tfc.ir.errors import SourcePosition, TfcError
from tfc.ir.fields import Attribute
from tfc.ir.types import Type
from tfc.ir.verifier import check_fields
from tfc.text.attributes import AttributeReader
from tfc.text.language import Token
from tfc.text.source import STRING, Source, did_you_mean, name_text, read_name, unquote
from tfc.text.types import TypeReader

MAX_REGIONS = 64  # how deep they nest
ORDER = {"OPERANDS": 0, "ATTRIBUTES": 1, "AFTER": 2, "ON": 3, "TYPES": 4, "LOC": 5}
_ITEM = re.compile(r'\s*((?:"(?:[^"\\\n]|\\.)*+"|[^",\s])*)\s*')
_NAMED = re.compile(r'[%^@](?:[A-Za-z0-9_.$]+|"(?:[^"\\\n]|\\.)*+")', re.ASCII)
_COLOCATE = re.compile(r"\s*colocate\s*\((.*)\)\s*", re.DOTALL)


@dataclass
class Scope:
    """The names that a body or region defines, and the block that its ops go to.

    `open_operands` are operands of `merge` that name what comes later: op, number, key and offset.
    """

    block: Block
    names: list[str] = field(default_factory=list[str])
    open_operands: list[tuple[Op, int, str, int]] = field(
        default_factory=list[tuple[Op, int, str, int]]
    )


class OpReader:
    """Keeps the scopes and builds ops into the block of the innermost one.

    `values` and `labels` hold what is visible, by `%name` and `^name`, quoted only where needed.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.types = TypeReader(source)
        self.scopes: list[Scope] = []
        self.values: dict[str, Value] = {}
        self.labels: dict[str, Op] = {}
        self._dictionaries: dict[tuple[str, str], dict[str, Attribute]] = {}

    # ---- places

    def error(self, token: Token, message: str, hint: str = "", offset: int = 0) -> TfcError:
        """An error at a token, or `offset` characters into it."""
        return self.source.error(token.offset + offset, message, hint)

    def position(self, token: Token) -> SourcePosition:
        return self.source.position(token.offset)

    def located(self, position: SourcePosition | None, loc: Token) -> Location:
        """A location with the nodes of a `loc("a", "b")`."""
        text = loc.text
        nodes: list[str] = []
        for offset, item in self.items(loc, text.index("(") + 1, text[:-1]):
            if not STRING.fullmatch(item):
                raise self.error(loc, "expected a string in `loc(...)`", offset=offset)
            nodes.append(unquote(self.source, loc.offset + offset, item))
        return Location(tuple(nodes), position)

    def items(self, token: Token, start: int, text: str) -> list[tuple[int, str]]:
        """The parts of a text between commas, with their offsets in the token."""
        found: list[tuple[int, str]] = []
        if not text[start:].strip():
            return found
        while True:
            match = _ITEM.match(text, start)
            if match is None or not match[1]:
                raise self.error(
                    token, "expected a name", offset=match.start(1) if match else start
                )
            found.append((match.start(1), match[1]))
            start = match.end()
            if start == len(text):
                return found
            if text[start] != ",":
                raise self.error(token, "expected `,`", offset=start)
            start += 1

    # ---- scopes

    def open_scope(self, token: Token, block: Block) -> None:
        if len(self.scopes) > MAX_REGIONS:
            raise self.error(token, f"regions nest deeper than {MAX_REGIONS}")
        self.scopes.append(Scope(block))

    def close_scope(self) -> None:
        """Forgets what the innermost scope defined, after resolving what names it."""
        scope = self.scopes.pop()
        for op, index, key, offset in scope.open_operands:
            if key not in self.values:
                raise self.source.error(offset, f"{key} is not defined")
            op.set_operand(index, self.values[key])
        for key in scope.names:
            if key[0] == "^":
                del self.labels[key]
            else:
                del self.values[key]

    def define(self, token: Token, key: str, value: Value) -> None:
        if key in self.values:
            raise self._defined_twice(token, key)
        self.values[key] = value
        self.scopes[-1].names.append(key)

    def _defined_twice(self, token: Token, key: str) -> TfcError:
        known = self.labels.get(key) or self.values[key].producer
        place = known.location.position if known else None
        earlier = f"it is defined at {place.line}:{place.column}" if place else "it is an argument"
        return self.error(token, f"{key} is defined twice", earlier)

    # ---- ops

    def op(self, children: list[Any]) -> None:
        """Reads an op; the children are its clauses as tokens, and its regions."""
        named = children[0].kind != "NAME"
        token: Token = children[1 if named else 0]
        name = token.text
        cls = OPS.get(name)
        if cls is None:
            hint = did_you_mean(name, OPS, "" if OPS else "no ops are loaded: import tfc.ops")
            raise self.error(token, f"no op is named {name!r}", hint)
        clauses, regions = self._clauses(name, children[2 if named else 1 :])
        position = self.source.position(token.offset)
        loc = clauses.get("LOC")
        location = self.located(position, loc) if loc else Location((), position)
        attributes: dict[str, Attribute] = {}
        operands, types = list[Value | None](), list[Type]()
        if "OPERANDS" in clauses:
            operands = self._operands(cls, clauses["OPERANDS"], attributes)
        if "TYPES" in clauses:
            types = self.types.list(clauses["TYPES"].offset, clauses["TYPES"].text)
        if "ATTRIBUTES" in clauses:
            attributes = {**attributes, **self._attributes(cls, clauses["ATTRIBUTES"], types)}
        blocks = self._regions(cls, token, regions) if regions or cls.region_fields else []
        op = cls.build(operands, attributes, types, blocks, location)
        self.scopes[-1].block.append(op)
        if named:
            self._name(op, children[0])
        if "AFTER" in clauses:
            self._after(op, clauses["AFTER"])
        if "ON" in clauses:
            op.device = self._device(clauses["ON"])
        if name == "merge" and "OPERANDS" in clauses:
            self._keep_open(op, clauses["OPERANDS"])

    def _clauses(
        self, name: str, children: list[Any]
    ) -> tuple[dict[str, Token], list[tuple[Token, Block]]]:
        """The clauses by kind, which must stand in order, and the regions."""
        clauses: dict[str, Token] = {}
        regions: list[tuple[Token, Block]] = []
        last = -1
        for child in children:
            if child.__class__ is tuple:
                regions.append(child)
                continue
            place = ORDER[child.kind]
            if place <= last:
                hint = "results, op, operands, attributes, after, on, types, regions, loc"
                raise self.error(child, f"a clause of {name} is out of order", f"it is: {hint}")
            clauses[child.kind] = child
            last = place
        return clauses, regions

    def _infer(self, op: Op) -> None:
        """Types that are left out are inferred."""
        if op.explicit_types:
            raise op.error("the types of its results must be given", "such as `: tensor<2xf32>`")
        check_fields(op)
        for index, type in enumerate(op.infer()):
            op.results.append(Value(type, op, index))

    def _name(self, op: Op, token: Token) -> None:
        """Gives the results their names, or the op its label."""
        text = token.text
        if token.kind == "LABEL":
            return self._label(op, token)
        if not op.results:
            self._infer(op)
        if '"' in text:
            found = self.items(token, 0, text[:-1])
            keys = [self._key(token, offset, item) for offset, item in found]
            names = [self._given_name(token, offset, item) for offset, item in found]
        else:
            keys = [part.strip() for part in text[:-1].split(",")]
            names = ["" if key[1:].isdigit() else key[1:] for key in keys]
        if len(keys) != len(op.results):
            message = f"{op.name} has {len(op.results)} results, {len(keys)} are named"
            raise self.error(token, message)
        for key, name, value in zip(keys, names, op.results, strict=True):
            self.define(token, key, value)
            value.name = name
        return None

    def _given_name(self, token: Token, offset: int, item: str) -> str:
        """The name behind a sigil; unquoted digits only number what has none."""
        return "" if item[1:].isdigit() else read_name(self.source, token.offset + offset, item)

    def _label(self, op: Op, token: Token) -> None:
        if op.results:
            hint = "name its result in `after(...)`"
            raise self.error(token, "an op with results needs no label", hint)
        text = token.text[:-1].strip()
        key = self._key(token, 0, text)
        if key in self.labels:
            raise self._defined_twice(token, key)
        self.labels[key] = op
        self.scopes[-1].names.append(key)
        op.label = self._given_name(token, 0, text)

    # ---- clauses

    def _operands(
        self, cls: type[Op], token: Token, attributes: dict[str, Attribute]
    ) -> list[Value | None]:
        text = token.text
        if text[0] == "(":
            inner = text[1:-1]
        elif cls.terminator:
            inner = text
        else:
            raise self.error(token, "operands stand in parentheses", f"write `{cls.name}({text})`")
        values = self.values
        operands: list[Value | None] = []
        for part in inner.split(","):
            value = values.get(part) or values.get(part.strip())
            if value is None:
                return self._odd_operands(cls, token, attributes)
            operands.append(value)
        return operands

    def _odd_operands(
        self, cls: type[Op], token: Token, attributes: dict[str, Attribute]
    ) -> list[Value | None]:
        """Operands with quoted names, absent ones, symbols, or a mistake."""
        text = token.text
        symbols = [f.name for f in cls.attribute_fields.values() if f.kind == "symbol"]
        operands: list[Value | None] = []
        start = 1 if text[0] == "(" else 0
        for offset, item in self.items(token, start, text[:-1] if start else text):
            if item == "_":
                operands.append(None)
            elif item[0] == "@" and _NAMED.fullmatch(item):
                if not symbols or operands:
                    message = f"{cls.name} takes no symbol here"
                    raise self.error(token, message, offset=offset)
                name = read_name(self.source, token.offset + offset, item)
                attributes[symbols.pop(0)] = SymbolRef(name)
            else:
                operands.append(self._value(cls.name, token, offset, item))
        return operands

    def _key(self, token: Token, offset: int, item: str) -> str:
        """The key of `%name` or `^name`."""
        if not _NAMED.fullmatch(item):
            hint = 'a value is `%name`, a quoted one `%"a/b"`'
            raise self.error(token, f"{item[:40]!r} is no name of a value", hint, offset)
        return item[0] + name_text(read_name(self.source, token.offset + offset, item))

    def _value(self, user: str, token: Token, offset: int, item: str) -> Value | None:
        key = self._key(token, offset, item)
        if key in self.values:
            return self.values[key]
        if user == "merge" and key[0] == "%":
            return None  # it may name a later op; see `_keep_open`
        hint = did_you_mean(key, self.values, "names are defined before they are used")
        raise self.error(token, f"{key} is not defined", hint, offset)

    def _keep_open(self, op: Op, token: Token) -> None:
        """Remembers the operands of `merge` that are not defined yet."""
        start = 1 if token.text[0] == "(" else 0
        found = self.items(token, start, token.text[:-1] if start else token.text)
        for index, (offset, item) in enumerate(found):
            if op.operands[index] is None and item != "_":
                key = self._key(token, offset, item)
                place = token.offset + offset
                self.scopes[-1].open_operands.append((op, index, key, place))

    def _attributes(
        self, cls: type[Op], token: Token, types: list[Type] | None
    ) -> dict[str, Attribute]:
        text = token.text
        if "dense<" in text:
            return self._dictionary(cls, token, types)
        key = cls.name, text
        known = self._dictionaries.get(key)
        if known is None:
            known = self._dictionaries[key] = self._dictionary(cls, token, types)
        return known

    def _dictionary(
        self, cls: type[Op], token: Token, types: list[Type] | None
    ) -> dict[str, Attribute]:
        type = types[0] if types and len(types) == 1 else None
        fields = cls.attribute_fields
        offset = token.offset
        reader = AttributeReader(self.source, self.types, offset, token.text, fields, type)
        return reader.dictionary(cls.name)

    def dictionary(self, token: Token) -> dict[str, Attribute]:
        """The attributes of a module, function or kernel, which may be any."""
        offset = token.offset
        return AttributeReader(self.source, self.types, offset, token.text).dictionary("it")

    def _referenced(self, token: Token, offset: int, item: str) -> Op:
        """The op that a label, or the name of its result, means."""
        key = self._key(token, offset, item)
        known = self.labels if key[0] == "^" else self.values
        if key not in known:
            hint = did_you_mean(key, known, "names are defined before they are used")
            raise self.error(token, f"{key} is not defined", hint, offset)
        found = known[key]
        op = found.producer if isinstance(found, Value) else found
        if op is None:
            raise self.error(token, f"{key} is an argument, not the result of an op", "", offset)
        return op

    def _after(self, op: Op, token: Token) -> None:
        text = token.text
        for offset, item in self.items(token, text.index("(") + 1, text[:-1]):
            op.add_after(self._referenced(token, offset, item))

    def _device(self, token: Token) -> str | Colocate:
        start = token.text.index("(") + 1
        inner = token.text[start:-1]
        match = _COLOCATE.fullmatch(inner)
        if match is not None:
            found = self.items(token, start + match.start(1), token.text[: start + match.end(1)])
            if len(found) != 1:
                raise self.error(token, "`colocate` names one op", offset=start)
            return Colocate(self._referenced(token, *found[0]))
        literal = inner.strip()
        if not STRING.fullmatch(literal):
            hint = 'write `on("/device:cpu:0")` or `on(colocate(%v))`'
            raise self.error(token, "expected a device in `on(...)`", hint, start)
        return unquote(self.source, token.offset + start, literal)

    def _regions(
        self, cls: type[Op], token: Token, regions: list[tuple[Token, Block]]
    ) -> list[Block]:
        wanted = [f.keyword for f in cls.region_fields]
        for number, (keyword, _) in enumerate(regions):
            if number == len(wanted) or keyword.text != wanted[number]:
                known = f"its regions are {', '.join(wanted)}" if wanted else "it has no regions"
                raise self.error(keyword, f"{cls.name}: unexpected region {keyword.text}", known)
        if len(regions) < len(wanted):
            raise self.error(token, f"{cls.name} needs the region `{wanted[len(regions)]}`")
        return [block for _, block in regions]
