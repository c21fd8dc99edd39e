"""Prints IR as text, always the same for the same IR: what `parse_module` reads back.

Names that were given are kept; where two would clash one gets a number behind it, and values
without a name are numbered from 0. A number can be used again in a later region, as can a name.
"""

from __future__ import annotations

from tfc.ir.core import Block, Colocate, Function, Kernel, Location, Module, Op, SymbolRef, Value
from tfc.ir.types import Type
from tfc.text.attributes import attributes_text
from tfc.text.source import name_text, quote

STEP = "  "


def print_module(module: Module) -> str:
    """The text of a module."""
    lines = [_header(module)]
    for name, info in module.dims.items():
        given = f" = {quote(info.model_name)}" if info.model_name else ""
        bounds = (info.smallest, info.largest)
        low, high = ("" if bound is None else str(bound) for bound in bounds)
        lines.append(f"{STEP}dim {name}{given}{f' in {low}..{high}' if low or high else ''}")
    for variable in module.variables.values():
        lines.append(f"{STEP}variable @{name_text(variable.name)} : {variable.type}")
    for resource in module.resources.values():
        types = f" : {', '.join(map(str, resource.types))}" if resource.types else ""
        attributes = attributes_text(resource.attributes)
        lines.append(f"{STEP}resource @{name_text(resource.name)}{types} {attributes}")
    for function in module.functions.values():
        Printer(lines).function(function)
    for kernel in module.kernels.values():
        Printer(lines).kernel(kernel)
    lines.append("}\n")
    return "\n".join(lines)


def print_kernel(kernel: Kernel) -> str:
    """The text of one kernel: the same for kernels that do the same under one name."""
    lines: list[str] = []
    Printer(lines).kernel(kernel)
    return "\n".join(lines)


def print_op(op: Op) -> str:
    """The text of one op with its regions, for messages."""
    lines: list[str] = []
    Printer(lines).op(op, "")
    return "\n".join(lines)


def _header(module: Module) -> str:
    name = f" @{name_text(module.name)}" if module.name else ""
    weights = f" weights({quote(module.weights.file)})" if module.weights.file else ""
    attributes = f" {attributes_text(module.attributes)}" if module.attributes else ""
    return f"module{name}{weights}{attributes} {{"


class Names:
    """Gives each value or label of a function a name of its own, scope by scope."""

    def __init__(self, sigil: str) -> None:
        self.sigil = sigil
        self.known: dict[Value | Op, str] = {}
        self.taken: dict[str, None] = {}  # in the order of definition
        self.last: dict[str, int] = {}  # name -> the last number that was put behind it
        self.number = 0

    def keep(self, key: Value, name: str) -> None:
        """Names an argument of a function exactly as its caller does, by a number too."""
        self.taken[name] = None
        self.known[key] = self.sigil + name_text(name)

    def define(self, key: Value | Op, name: str) -> str:
        chosen = self._fresh(name) if name else self._numbered()
        self.taken[chosen] = None
        given = name_text(chosen) if not chosen.isdigit() else f'"{chosen}"'
        text = self.known[key] = self.sigil + (given if name else chosen)
        return text

    def _fresh(self, name: str) -> str:
        chosen = name
        while chosen in self.taken:
            self.last[name] = self.last.get(name, 0) + 1
            chosen = f"{name}_{self.last[name]}"
        return chosen

    def _numbered(self) -> str:
        while str(self.number) in self.taken:
            self.number += 1
        return str(self.number)

    def begin(self) -> int:
        """A mark that `forget` goes back to."""
        return len(self.taken)

    def forget(self, mark: int) -> None:
        """Frees the names that were defined since a mark."""
        while len(self.taken) > mark:
            self.taken.popitem()


class Printer:
    """Appends lines; one printer for each function or kernel."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.values = Names("%")
        self.labels = Names("^")
        self.ahead: set[Value] = set()  # what a `merge` named before it was defined
        self.colocated: set[Op] = set()  # ops that `on(colocate(...))` names
        self._types: dict[Type, str] = {}

    # ---- functions and kernels

    def function(self, function: Function) -> None:
        returned = function.body.last.operands if function.body.last else []
        names = function.output_names + [""] * (len(returned) - len(function.output_names))
        outputs = ", ".join(
            f"%{name_text(name or str(number))}: {value.type if value else '_'}"
            for number, (name, value) in enumerate(zip(names, returned, strict=False))
        )
        arrow = f" -> ({outputs})" if outputs else ""
        self._container(function, "func", arrow)

    def kernel(self, kernel: Kernel) -> None:
        extents = ", ".join(f"{name} = {extent}" for name, extent in kernel.grid)
        self._container(kernel, "kernel", f" grid({extents})" if extents else "")

    def _container(self, container: Function | Kernel, keyword: str, middle: str) -> None:
        named = [a for a in container.body.args if a.name]
        for argument in named:
            self.values.keep(argument, argument.name)
        for argument in container.body.args:
            if not argument.name:
                self.values.define(argument, "")
        devices = (op.device for op in container.body.walk())
        self.colocated = {device.op for device in devices if isinstance(device, Colocate)}
        arguments = self._arguments(container.body)
        attributes = f" {attributes_text(container.attributes)}" if container.attributes else ""
        head = f"{keyword} @{name_text(container.name)}({arguments}){middle}{attributes}"
        self.lines.append(f"{STEP}{head} {{")
        self.block(container.body, STEP * 2)
        self.lines.append(f"{STEP}}}{_location(container.location)}")

    def _arguments(self, block: Block) -> str:
        return ", ".join(f"{self.values.known[a]}: {a.type}" for a in block.args)

    # ---- ops

    def block(self, block: Block, indent: str) -> None:
        for op in block:
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        head = self._head(op)
        place = len(self.lines)
        self.lines.append("")
        clauses = [indent, head, self._operands(op), self._attributes(op)]
        if op.after:
            clauses.append(f" after({', '.join(self._maker(o) for o in op.after)})")
        if op.device is not None:
            clauses.append(f" on({self._device(op.device)})")
        if op.results:
            clauses.append(f" : {', '.join([self._type(v.type) for v in op.results])}")
        for field, block in zip(op.region_fields, op.regions, strict=True):
            clauses.append(self._open(field.keyword, block))
            self.lines[place] = "".join(clauses)
            self._scoped(block, indent + STEP)
            place = len(self.lines)
            self.lines.append("")
            clauses = [indent, "}"]
        if op.location.nodes:
            clauses.append(_location(op.location))
        self.lines[place] = "".join(clauses)

    def _head(self, op: Op) -> str:
        if op.results:
            names = ", ".join([self._defined(v) for v in op.results])
            return f"{names} = {op.name}"
        if op.label or op.control_users or op in self.colocated:
            return f"{self.labels.define(op, op.label)}: {op.name}"
        return op.name

    def _defined(self, value: Value) -> str:
        if value in self.ahead:
            return self.values.known[value]
        return self.values.define(value, value.name)

    def _operands(self, op: Op) -> str:
        shown = [f"@{name_text(s.name)}" for s in _symbols(op).values()]
        operands = op.operands
        count = len(operands)
        while count and operands[count - 1] is None:
            count -= 1
        known = self.values.known
        for value in operands[:count]:
            shown.append("_" if value is None else known.get(value) or self._unknown(value))
        if not shown:
            return ""
        listed = ", ".join(shown)
        return f" {listed}" if op.terminator else f"({listed})"

    def _unknown(self, value: Value) -> str:
        """The name of a value that is defined further down, or outside of what is printed."""
        self.ahead.add(value)
        return self.values.define(value, value.name)

    def _attributes(self, op: Op) -> str:
        symbols = _symbols(op)
        shown = {n: v for n, v in op.attributes.items() if n not in symbols}
        if not shown:
            return ""
        type = op.results[0].type if len(op.results) == 1 else None
        return f" {attributes_text(shown, op.attribute_fields, type)}"

    def _maker(self, op: Op) -> str:
        """How `after` and `colocate` name an op: by its first result, or its label."""
        if op.results:
            return self.values.known.get(op.results[0]) or self._unknown(op.results[0])
        return self.labels.known.get(op) or self.labels.define(op, op.label)

    def _device(self, device: str | Colocate) -> str:
        return quote(device) if isinstance(device, str) else f"colocate({self._maker(device.op)})"

    def _type(self, type: Type) -> str:
        known = self._types.get(type)
        if known is None:
            known = self._types[type] = str(type)
        return known

    # ---- regions

    def _open(self, keyword: str, block: Block) -> str:
        for argument in block.args:
            self.values.define(argument, argument.name)
        return f" {keyword}{f'({self._arguments(block)})' if block.args else ''} {{"

    def _scoped(self, block: Block, indent: str) -> None:
        """Prints a block whose names are free again after it."""
        saved = [(names, names.number, names.begin()) for names in (self.values, self.labels)]
        self.block(block, indent)
        for names, number, mark in saved:
            names.forget(mark)
            names.number = number


def _symbols(op: Op) -> dict[str, SymbolRef]:
    """The attributes that stand before the operands."""
    return {
        name: op.attributes[name]
        for name, field in op.attribute_fields.items()
        if field.kind == "symbol" and name in op.attributes
    }


def _location(location: Location) -> str:
    return f" loc({', '.join(map(quote, location.nodes))})" if location.nodes else ""
