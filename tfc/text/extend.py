"""Reads ops that are added to a function: text that uses the names which the function has."""

from __future__ import annotations

import re
from typing import Any

from tfc.ir.core import Block, Function, Module
from tfc.ir.errors import TfcError
from tfc.text.language import parse
from tfc.text.parse import ModuleReader
from tfc.text.source import Source, name_text

ITEM = re.compile(r"^[ \t]*(?:variable|resource|dim)\b[^\n]*", re.MULTILINE)
FUNCTION = re.compile(r"^[ \t]*func\b", re.MULTILINE)
NAME = "extension"


class ExtensionReader(ModuleReader):
    """Reads one function in whose body the values and labels of another one are visible."""

    def __init__(self, source: Source, module: Module, function: Function) -> None:
        super().__init__(source, module.weights)
        self.extended = function
        self.module.variables = dict(module.variables)
        self.module.resources = dict(module.resources)
        self.module.dims = dict(module.dims)

    def open_body(self, children: list[Any], kinds: tuple[type, ...], what: str) -> Block:
        block = super().open_body(children, kinds, what)
        for value in self._known_values():
            key = f"%{name_text(value.name)}"
            if key in self.values:
                raise self.error(children[0], f"{key} is defined already", "take another name")
            self.values[key] = value
        for op in self.extended.body:
            if op.label:
                self.labels[f"^{name_text(op.label)}"] = op
        return block

    def _known_values(self) -> list[Any]:
        body = self.extended.body
        values = [*body.args, *(v for op in body for v in op.results)]
        return list({v.name: v for v in values if v.name}.values())


def extend_function(module: Module, function: Function, text: str, file: str = "<text>") -> None:
    """Adds the ops of a text to a function, before its `return`.

    The text is ops, after lines that declare variables, resources and dimensions; or one function,
    whose arguments become inputs and whose results do not count.

    Raises TfcError where the text is wrong; the module is then unchanged.
    """
    source = Source(_wrapped(text), file)
    reader = ExtensionReader(source, module, function)
    parse(source, reader)
    if len(reader.module.functions) != 1 or reader.module.kernels:
        raise TfcError("a graph is extended by ops, or by one function", where=file)
    (added,) = reader.module.functions.values()
    module.variables, module.resources = reader.module.variables, reader.module.resources
    module.dims = reader.module.dims
    end = function.body.terminator
    for argument in list(added.body.args):
        argument.replace_uses(function.body.add_arg(argument.type, argument.name))
    for op in list(added.body):
        if op.terminator:
            op.set_operands(())
            for earlier in list(op.after):
                op.remove_after(earlier)
        else:
            op.detach()
            function.body.insert(op, end)


def _wrapped(text: str) -> str:
    """Ops as a function; lines stay where they are, so that errors point at the right ones."""
    if FUNCTION.search(text):
        return text
    items = " ".join(m.group().strip() for m in ITEM.finditer(text))
    return f"{items} func @{NAME}() {{ {ITEM.sub('', text)}\nreturn }}"
