"""Parses `.tfc` text into a module: the entry points, and the actions of the grammar's rules.

The rules of `grammar/tfc.lark` are the methods of `ModuleReader`; they are called bottom-up, in the
order of the text, so that a head opens its scope before the ops inside are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tfc.ir.core import (
    Block,
    DimInfo,
    Function,
    Kernel,
    Location,
    Module,
    Resource,
    Variable,
)
from tfc.ir.errors import TfcError
from tfc.ir.expr import Dim, is_dimension_symbol
from tfc.ir.fields import Attribute
from tfc.ir.types import BufferType, TensorType, TileType, Type
from tfc.ir.weights import Weights, open_safetensors
from tfc.text.expressions import read_expression
from tfc.text.language import Token, parse
from tfc.text.ops import OpReader
from tfc.text.source import Source, name_text, read_name, unquote

MAX_BYTES = 1 << 30


def parse_module(text: str, *, file: str = "<text>", weights: Weights | None = None) -> Module:
    """The module of a text; `weights` resolves its constants by reference."""
    source = Source(text, file)
    reader = ModuleReader(source, weights)
    parse(source, reader)
    return reader.module


def parse_file(path: str | Path) -> Module:
    """The module of a `.tfc` file, with the safetensors file that it names from beside it."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TfcError("the text is larger than 1 GiB", where=str(path))
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TfcError(f"cannot read the text: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise TfcError(f"the text is not UTF-8: {error.reason}", where=str(path)) from error
    source = Source(text, str(path))
    reader = ModuleReader(source, None, folder=path.parent)
    parse(source, reader)
    return reader.module


Argument: TypeAlias = "tuple[Token, str, Type]"
"""An argument in a head: the token of its name, the name, the type."""


class ModuleReader(OpReader):
    """Builds the module; the methods are the rules of the grammar, the `children` their parts."""

    def __init__(self, source: Source, weights: Weights | None, folder: Path | None = None) -> None:
        super().__init__(source)
        self.folder = folder
        self.module = Module(weights if weights is not None else Weights())
        self.given_weights = weights is not None

    # ---- the module

    def start(self, children: list[Any]) -> None:
        """Everything is in place already."""

    def header(self, children: list[Any]) -> None:
        for child in children:
            if _is(child, "SYMBOL"):
                self.module.name = self.name_of(child)
            elif _is(child, "ATTRIBUTES"):
                self.module.attributes = self.dictionary(child)

    def weights(self, children: list[Token]) -> None:
        (token,) = children
        file = unquote(self.source, token.offset, token.text)
        if self.given_weights:
            return
        if self.folder is None:
            self.module.weights = Weights(file)
        else:
            self.module.weights = self.open_weights(token, self.folder, file)

    def open_weights(self, token: Token, folder: Path, file: str) -> Weights:
        """The safetensors file beside the text, which must not lead out of its folder."""
        path = folder / file
        if not file or not path.resolve().is_relative_to(folder.resolve()):
            hint = "weights lie in the folder of the text or below it"
            raise self.error(token, f"the weights {file!r} are outside of the folder", hint)
        return open_safetensors(path, file)

    def dim(self, children: list[Token]) -> None:
        name, smallest, largest, model_name = children[0].text, None, None, ""
        if not is_dimension_symbol(name):
            hint = "a symbol of a dimension begins with a capital and holds no lower-case x"
            raise self.error(children[0], f"{name!r} is no symbol of a dimension", hint)
        if name in self.module.dims:
            raise self.error(children[0], f"the dimension {name} is declared twice")
        for child in children[1:]:
            if child.kind == "STRING":
                model_name = unquote(self.source, child.offset, child.text)
            else:
                smallest, largest = self.range(child)
        self.module.dims[name] = DimInfo(model_name, smallest, largest)

    def range(self, token: Token) -> tuple[int | None, int | None]:
        """The bounds of `in 1..512`."""
        low, high = (part.strip() for part in token.text[2:].split(".."))
        if len(low) > 18 or len(high) > 18:
            raise self.error(token, "a bound does not fit 64 bits")
        smallest, largest = int(low) if low else None, int(high) if high else None
        if smallest is not None and largest is not None and smallest > largest:
            raise self.error(token, f"the range {smallest}..{largest} is empty")
        return smallest, largest

    def variable(self, children: list[Token]) -> None:
        name = self.declared(children[0], self.module.variables, "variable")
        type = self.types.single(children[1].offset, children[1].text)
        self.module.variables[name] = Variable(name, type)

    def resource(self, children: list[Token]) -> None:
        name = self.declared(children[0], self.module.resources, "resource")
        types, attributes = list[Type](), dict[str, Any]()
        for child in children[1:]:
            if child.kind == "TYPES":
                types = self.types.list(child.offset, child.text)
            else:
                attributes = self.dictionary(child)
        self.module.resources[name] = Resource(name, tuple(types), attributes)

    def name_of(self, token: Token) -> str:
        return read_name(self.source, token.offset, token.text)

    def declared(self, token: Token, known: dict[str, Any], what: str) -> str:
        name = self.name_of(token)
        if name in known:
            raise self.error(token, f"the {what} @{name} is defined twice")
        if what in ("variable", "resource"):  # one state holds both by name
            for other, held in (
                ("variable", self.module.variables),
                ("resource", self.module.resources),
            ):
                if name in held:
                    raise self.error(token, f"@{name} is a {other} already")
        return name

    # ---- functions and kernels

    def argument(self, children: list[Token]) -> Argument:
        name, type = children
        return name, self.name_of(name), self.types.single(type.offset, type.text)

    def arguments(self, children: list[Argument]) -> list[Argument]:
        return children

    def outputs(self, children: list[list[Argument]]) -> tuple[list[Argument]]:
        return (children[0] if children else [],)

    def function_head(self, children: list[Any]) -> tuple[Function, list[Argument]]:
        token = children[0]
        name = self.declared(token, self.module.functions, "function")
        block = self.open_body(children, (TensorType,), "tensors")
        outputs = next((c[0] for c in children if isinstance(c, tuple)), [])
        self.check_names(outputs, "result")
        function = Function(name, block, [o[1] for o in outputs], self.head_attributes(children))
        function.location = Location((), self.position(token))
        self.module.functions[name] = function
        return function, outputs

    def function(self, children: list[Any]) -> None:
        function, outputs = children[0]
        self.close_scope()
        function.location = self.with_nodes(function.location, children[-1])
        self.check_outputs(function, outputs)

    def check_outputs(self, function: Function, outputs: list[Argument]) -> None:
        """What the signature says of the results must be what `return` gives."""
        last = function.body.last
        if last is None or last.name != "return":
            place = last.location.position if last else function.location.position
            raise TfcError(f"@{function.name} does not end in `return`", position=place)
        if len(last.operands) != len(outputs):
            count = len(last.operands)
            message = f"@{function.name} returns {count} values, its signature has {len(outputs)}"
            raise TfcError(message, position=last.location.position)
        for (token, name, type), value in zip(outputs, last.operands, strict=True):
            if value is not None and value.type != type:
                raise self.error(token, f"the result %{name} is {type}, but {value.type} returns")

    def kernel_head(self, children: list[Any]) -> Kernel:
        token = children[0]
        name = self.declared(token, self.module.kernels, "kernel")
        block = self.open_body(children, (BufferType,), "buffers")
        grid = next((self.grid(c) for c in children if _is(c, "GRID")), [])
        kernel = Kernel(name, block, grid, self.head_attributes(children))
        kernel.location = Location((), self.position(token))
        self.module.kernels[name] = kernel
        return kernel

    def kernel(self, children: list[Any]) -> None:
        kernel = children[0]
        self.close_scope()
        kernel.location = self.with_nodes(kernel.location, children[-1])

    def grid(self, token: Token) -> list[tuple[str, Dim]]:
        """The names and extents of `grid(p0 = ceildiv(R, 4), p1 = 3)`."""
        text: str = token.text
        place = text.index("(") + 1
        grid: list[tuple[str, Dim]] = []
        for part in _split_commas(text[place:-1]):
            name, equals, extent = part.partition("=")
            if not equals or not name.strip().isidentifier() or not name.isascii():
                hint = "such as `grid(p0 = ceildiv(R, 4))`"
                raise self.source.error(token.offset + place, "expected a name and `=`", hint)
            start = token.offset + place + len(name) + 1
            grid.append((name.strip(), read_expression(self.source, start, extent)))
            place += len(part) + 1
        return grid

    def open_body(self, children: list[Any], kinds: tuple[type, ...], what: str) -> Block:
        """The block of a function or kernel, whose scope knows nothing of the outside."""
        self.scopes, self.values, self.labels = [], {}, {}
        arguments: list[Argument] = next((c for c in children if isinstance(c, list)), [])
        self.check_names(arguments, "argument")
        block = self.open_block(children[0], arguments, kinds, what)
        for value, (_, name, _) in zip(block.args, arguments, strict=True):
            value.name = name  # a number too: it is how the caller names it
        return block

    def open_block(
        self, token: Token, arguments: list[Argument], kinds: tuple[type, ...], what: str
    ) -> Block:
        block = Block()
        self.open_scope(token, block)
        for token, name, type in arguments:
            if not isinstance(type, kinds):
                raise self.error(token, f"%{name} is {type}, but arguments here are {what}")
            given = "" if token.text[1:].isdigit() else name
            self.define(token, f"%{name_text(name)}", block.add_arg(type, given))
        return block

    def check_names(self, arguments: Sequence[Argument], what: str) -> None:
        seen: set[str] = set()
        for token, name, _ in arguments:
            if name in seen:
                raise self.error(token, f"two {what}s have the name %{name}")
            seen.add(name)

    def head_attributes(self, children: list[Any]) -> dict[str, Attribute]:
        token = next((c for c in children if _is(c, "ATTRIBUTES")), None)
        return self.dictionary(token) if token is not None else {}

    def with_nodes(self, location: Location, last: Any) -> Location:
        """A location with the nodes of the `loc(...)` that may end a function."""
        return self.located(location.position, last) if _is(last, "LOC") else location

    # ---- regions

    def region_head(self, children: list[Any]) -> tuple[Token, Block]:
        keyword = children[0]
        arguments: list[Argument] = children[1] if len(children) > 1 else []
        kinds = (TensorType, TileType)
        return keyword, self.open_block(keyword, arguments, kinds, "tensors or tiles")

    def region(self, children: list[Any]) -> tuple[Token, Block]:
        self.close_scope()
        return children[0]


def _is(child: Any, terminal: str) -> bool:
    return isinstance(child, Token) and child.kind == terminal


def _split_commas(text: str) -> list[str]:
    """The parts between the commas that stand in no parentheses."""
    parts: list[str] = []
    depth = start = 0
    for place, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]] if text.strip() else []
