"""Checks that a module holds together: what every pass may rely on and must leave behind.

One walk over the ops, so the cost is linear. A mistake raises a TfcError that says where it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, cast

from tfc.ir.core import Block, Colocate, Function, Kernel, Module, Op, SymbolRef, Value
from tfc.ir.devices import HINT, is_device
from tfc.ir.errors import TfcError
from tfc.ir.expr import Expr, as_expr, is_dimension_symbol
from tfc.ir.fields import Attribute
from tfc.ir.frames import check_frames, is_forward
from tfc.ir.launch import check_launch
from tfc.ir.types import BufferType, DType, Layout, TensorType, TileType, Type
from tfc.ir.weights import Dense

LEVELS = ("graph", "tile", "any")


def verify(module: Module, *, level: str = "any") -> None:
    """Raises TfcError unless the module is valid, and of the level where one is asked for.

    "graph": no kernels. "tile": what is left in functions is of level "any" (launches, views, ...).
    """
    assert level in LEVELS, f"there is no level {level}"
    if level == "graph" and module.kernels:
        name = next(iter(module.kernels))
        raise TfcError(f"there is a kernel @{name}, but this is the graph level")
    for name, kernel in module.kernels.items():
        _Verifier(module, kernel, name, ("tile", "any")).run()
    allowed = ("any",) if level == "tile" else ("graph", "any")
    for name, function in module.functions.items():
        _Verifier(module, function, name, allowed).run()


def check_fields(op: Op) -> None:
    """Operands, attributes and regions are those that the op's class declares."""
    _check_operands(op)
    for name, value in op.attributes.items():
        known = op.attribute_fields.get(name)
        if known is None:
            raise op.error(f"there is no attribute {name!r}", _nearest(name, op.attribute_fields))
        if wrong := known.check(value):
            raise op.error(wrong)
        if not _is_attribute(value):
            raise op.error(f"{name} is {value!r}, which is no attribute")
    for name, field in op.attribute_fields.items():
        if field.required and name not in op.attributes:
            raise op.error(f"the attribute {name} is missing")
    if len(op.regions) != len(op.region_fields):
        wanted = ", ".join(f.keyword for f in op.region_fields) or "none"
        raise op.error(f"it has {len(op.regions)} regions", f"its regions are: {wanted}")


def _check_operands(op: Op) -> None:
    fields = op.operand_fields
    variadic = bool(fields) and fields[-1].variadic
    if len(op.operands) > len(fields) and not variadic:
        wanted = ", ".join(f.name for f in fields) or "none"
        raise op.error(f"{len(op.operands)} operands are too many", f"its operands are: {wanted}")
    for number, field in enumerate(fields):
        missing = number >= len(op.operands) or op.operands[number] is None
        if field.required and missing:
            raise op.error(f"the operand {field.name} is missing")
    if variadic and None in op.operands[len(fields) - 1 :]:
        raise op.error(f"an operand of {fields[-1].name} is missing")


def _is_attribute(value: Attribute) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_attribute, cast("tuple[Any, ...]", value)))
    return isinstance(value, bool | int | float | str | DType | Expr | Layout | SymbolRef | Dense)


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, 3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return f"there are {', '.join(names[:10])}{more}" if names else "there are none"


class _Verifier:
    """Walks one function or kernel; `visible` and `seen` are what may be used at the place."""

    def __init__(
        self, module: Module, container: Function | Kernel, key: str, levels: tuple[str, ...]
    ) -> None:
        self.module = module
        self.container = container
        self.key = key
        self.levels = levels
        self.visible: set[Value] = set()
        self.seen: set[Op] = set()
        self.uses: dict[Value, int] = {}
        self.symbols = _symbols_of(module, container)
        self.checked_types: set[Type] = set()
        self.forward: list[tuple[Op, Value]] = []  # merges and what they name that comes later
        self.frames = False  # whether ops of frames were seen

    def error(self, message: str, hint: str = "") -> TfcError:
        location = self.container.location
        return TfcError(
            f"@{self.key}: {message}", position=location.position, where=str(location), hint=hint
        )

    def run(self) -> None:
        container = self.container
        if container.name != self.key:
            raise self.error(f"its own name is {container.name!r}")
        if container.body.parent is not container:
            raise self.error("its body belongs elsewhere")
        self._check_head()
        self._block(container.body, container)
        for op, value in self.forward:
            if value not in self.uses:
                raise op.error(f"the operand {value!r} is not defined in this function")
            if not is_forward(value):
                raise self._not_visible(op, value)
            self.uses[value] += 1
        for value, count in self.uses.items():
            if len(value.uses) != count:
                raise self.error(f"{value!r} has {len(value.uses)} uses on record, not {count}")
        if self.frames and isinstance(container, Function):
            check_frames(container)

    def _check_head(self) -> None:
        container = self.container
        kind = TensorType if isinstance(container, Function) else BufferType
        for value in container.body.args:
            if not isinstance(value.type, kind):
                raise self.error(f"the argument {value!r} must be a {_KIND[kind]}")
        inputs = [a.name for a in container.body.args]
        self._check_unique(inputs, "argument")
        if isinstance(container, Kernel):
            self._check_unique([name for name, _ in container.grid], "grid variable")
            for name, extent in container.grid:
                self._check_symbols(as_expr(extent), f"the extent of {name}", ())
        else:
            self._check_unique(container.output_names, "result")

    def _check_unique(self, names: list[str], what: str) -> None:
        seen: set[str] = set()
        for name in names:
            if not name or name in seen:
                wrong = f"two {what}s have the name {name!r}" if name else f"a {what} has no name"
                raise self.error(wrong)
            seen.add(name)

    # ---- blocks

    def _block(self, block: Block, owner: Op | Function | Kernel) -> None:
        """Checks a block; what it defines is not visible after it."""
        defined: list[Value] = []
        for index, value in enumerate(block.args):
            if value.owner is not block or value.index != index:
                raise self.error(f"the argument {value!r} belongs elsewhere")
            self._define(value, defined)
            self._check_type(value.type, owner)
        inside: list[Op] = []
        previous: Op | None = None
        for op in block:
            if op.parent is not block or op.previous is not previous:
                raise op.error("it is not where its block says")
            if op.terminator and op.next is not None:
                raise op.error("it ends its block, but ops follow")
            self._op(op, defined)
            self.seen.add(op)
            inside.append(op)
            previous = op
        if len(inside) != len(block) or block.last is not previous:
            raise self.error("a block has lost count of its ops")
        if not (previous and previous.terminator) and not isinstance(owner, Kernel):
            self._unterminated(previous, owner)
        self.visible.difference_update(defined)
        self.seen.difference_update(inside)

    def _unterminated(self, last: Op | None, owner: Op | Function | Kernel) -> None:
        if isinstance(owner, Op):
            raise owner.error("a region does not end in a terminator", "such as `yield`")
        if last is not None:
            raise last.error(f"@{self.key} does not end in `return`")
        raise self.error("it does not end in `return`")

    def _define(self, value: Value, defined: list[Value]) -> None:
        self.visible.add(value)
        self.uses.setdefault(value, 0)
        defined.append(value)

    # ---- ops

    def _op(self, op: Op, defined: list[Value]) -> None:
        if op.level not in self.levels:
            raise op.error(f"an op of the {op.level} level does not stand here")
        check_fields(op)
        self._check_uses(op)
        self.frames = self.frames or op.name in ("enter", "exit", "next_iteration", "loop_cond")
        if op.after or op.control_users or op.device is not None:
            self._check_control(op)
        bound = op.binds()
        for symbol in bound:
            if symbol in self.symbols:
                raise op.error(f"the symbol {symbol} is bound already")
            self.symbols[symbol] = None
        for value in op.results:
            self._check_type(value.type, op)
        for name, value in op.attributes.items():
            if not isinstance(value, int | float | str):
                self._check_attribute(op, name, value)
        for block in op.regions:
            if block.parent is not op:
                raise op.error("a region belongs elsewhere")
            self._block(block, op)
        if op.regions:
            for symbol in bound:
                del self.symbols[symbol]
        self._check_meaning(op)
        for index, value in enumerate(op.results):
            if value.owner is not op or value.index != index:
                raise op.error(f"the result {value!r} belongs elsewhere")
            self._define(value, defined)

    def _check_meaning(self, op: Op) -> None:
        """The constraints of the op; the types that are declared are those that it infers."""
        try:
            inferred = [v.type for v in op.results] if op.explicit_types else op.infer()
            op.verify()
            op.verify_in(self.module)
        except TfcError as error:
            if error.position or error.where:
                raise
            raise op.error(error.message, error.hint) from None
        declared = [v.type for v in op.results]
        if inferred != declared:
            texts = [", ".join(map(str, types)) or "nothing" for types in (declared, inferred)]
            raise op.error(f"the type is declared as {texts[0]}, but inferred as {texts[1]}")

    def _check_uses(self, op: Op) -> None:
        for index, value in enumerate(op.operands):
            if value is None:
                continue
            if (op, index) not in value.uses:
                raise op.error(f"operand {index} does not know that it is used here")
            if value in self.visible:
                self.uses[value] += 1
            elif op.name == "merge":
                self.forward.append((op, value))
            else:
                raise self._not_visible(op, value)

    def _not_visible(self, op: Op, value: Value) -> TfcError:
        isolated = isinstance(self.container, Kernel)
        hint = "a kernel uses only its arguments" if isolated else ""
        return op.error(f"the operand {value!r} is not defined before it", hint)

    def _check_control(self, op: Op) -> None:
        for other in op.after:
            if op not in other.control_users:
                raise op.error(f"{other!r} does not know that this runs after it")
            if other not in self.seen:
                raise op.error(f"it runs after {other!r}, which is not defined before it")
        for other in op.control_users:
            if op not in other.after:
                raise op.error(f"{other!r} does not know that it runs after this")
        device = op.device
        if isinstance(device, Colocate) and device.op not in self.seen:
            raise op.error(f"it is colocated with {device.op!r}, which is not defined before it")
        if isinstance(device, str) and not is_device(device):
            raise op.error(f"no device is written {device!r}", HINT)

    # ---- types, attributes, symbols

    def _check_type(self, type: Type, owner: Op | Function | Kernel) -> None:
        if type in self.checked_types:
            return
        if isinstance(owner, Op):
            kind = TensorType if isinstance(self.container, Function) else TileType
            if not isinstance(type, kind):
                raise owner.error(f"{type} does not stand here, where values are {_KIND[kind]}s")
        if isinstance(type, TensorType):
            for dim in type.shape:
                if isinstance(dim, Expr):
                    self._check_dim(dim, str(type), owner)
        elif isinstance(type, BufferType):
            self._check_symbols(as_expr(type.elements), str(type), (), owner)
        self.checked_types.add(type)

    def _check_dim(self, dim: Expr, what: str, owner: Op | Function | Kernel) -> None:
        for symbol in dim.symbols():
            if not is_dimension_symbol(symbol):
                hint = "a symbol of a dimension begins with a capital and holds no lower-case x"
                raise self._error_at(owner, f"{what}: {symbol!r} is no symbol", hint)
        self._check_symbols(dim, what, (), owner)

    def _error_at(self, owner: Op | Function | Kernel | None, message: str, hint: str) -> TfcError:
        return owner.error(message, hint) if isinstance(owner, Op) else self.error(message, hint)

    def _check_attribute(self, op: Op, name: str, value: Attribute) -> None:
        match value:
            case Expr():
                self._check_symbols(value, name, op.own_symbols, op)
            case tuple():
                for item in cast("tuple[Any, ...]", value):
                    self._check_attribute(op, name, item)
            case SymbolRef():
                self._check_reference(op, value)
            case _:
                return

    def _check_symbols(
        self,
        expr: Expr,
        what: str,
        own: tuple[str, ...],
        owner: Op | Function | Kernel | None = None,
    ) -> None:
        for symbol in expr.symbols():
            if symbol not in self.symbols and symbol not in own:
                message = f"{what}: the symbol {symbol} is bound by no input"
                hint = (
                    f"an input must have the dimension {symbol}, or the module a `dim {symbol}`"
                    if is_dimension_symbol(symbol)
                    else "it is no variable of the grid or of a loop around"
                )
                raise self._error_at(owner, message, hint)

    def _check_reference(self, op: Op, reference: SymbolRef) -> None:
        """`@name` means a weight, variable, resource, function or kernel of the module."""
        module, name = self.module, reference.name
        if op.name == "constant":
            self._check_weight(op, name)
        elif op.name == "launch":
            if name not in module.kernels:
                raise op.error(f"there is no kernel @{name}", _nearest(name, module.kernels))
            check_launch(op, module.kernels[name])
        elif not any(name in k for k in (module.variables, module.resources, module.functions)):
            known = [*module.variables, *module.resources, *module.functions]
            raise op.error(f"the module has no @{name}", _nearest(name, known))

    def _check_weight(self, op: Op, name: str) -> None:
        weights = self.module.weights
        if name not in weights:
            place = f"{weights.file!r} has" if weights.file else "the module has"
            raise op.error(f"{place} no weight @{name}", _nearest(name, weights))
        stored, declared = weights.type(name), op.results[0].tensor
        if (stored.dtype, stored.shape) != (declared.dtype, declared.shape):
            raise op.error(f"the weight @{name} is {stored}, but the constant {declared}")


_KIND: dict[type, str] = {TensorType: "tensor", TileType: "tile", BufferType: "buffer"}


def _symbols_of(module: Module, container: Function | Kernel) -> dict[str, None]:
    """The symbols that are bound where the body begins."""
    symbols = dict.fromkeys(module.dims)
    functions = module.functions.values() if isinstance(container, Kernel) else [container]
    for function in functions:
        for value in function.body.args:
            if isinstance(value.type, TensorType):
                symbols.update(dict.fromkeys(_plain_symbols(value.type)))
    if isinstance(container, Kernel):
        symbols.update(dict.fromkeys(name for name, _ in container.grid))
    return symbols


def _plain_symbols(type: TensorType) -> list[str]:
    """The dimensions that are nothing but a symbol, which a shape therefore binds."""
    names = (str(dim) for dim in type.shape if isinstance(dim, Expr))
    return [name for name in names if is_dimension_symbol(name) and name.isidentifier()]
