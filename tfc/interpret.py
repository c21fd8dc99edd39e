"""Runs a module in numpy: its meaning at every level, with which compiled code is compared.

Graph ops run by their `reference`, kernels by the interpreter of tiles. Arrays are plain whatever
the layout of their type; only a kernel sees them as they lie in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tfc.ir.core import Block, Function, Module, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import Dim, Expr, as_expr
from tfc.ir.frames import has_primitive_control
from tfc.ir.types import DTYPES, TensorType, Type
from tfc.ops.base import GraphOp, static, written_checks
from tfc.ops.constant import Constant
from tfc.ops.control import Fusion, If, Launch
from tfc.ops.gradients import Gradients, expand_all
from tfc.ops.loops import Scan, While
from tfc.ops.stateful import HostOp, StatefulOp, bits_of, resource_infos
from tfc.runtime.errors import LoaderError
from tfc.runtime.host import Context, declare_resources
from tfc.runtime.state import State

Array: TypeAlias = "np.ndarray[Any, Any]"
Symbols: TypeAlias = "dict[str, int]"


def interpret(
    module: Module,
    inputs: Mapping[str, Any],
    function: str = "main",
    *,
    state: State | None = None,
) -> dict[str, Array]:
    """The outputs of a function by name, for its inputs by name.

    `state` holds the variables and resources of the module; without one they are new.

    Raises TfcError where an input is missing or does not fit, and where an op fails (an index out
    of range, dimensions that differ).
    """
    chosen = without_gradients(find_function(module, function))
    arrays = _input_arrays(chosen, inputs)
    symbols = bind_symbols(module, chosen, arrays)
    check_entry(chosen, symbols)
    run = _run_of(chosen)(module, symbols, state)
    run.values.update(zip(chosen.body.args, arrays, strict=True))
    with np.errstate(all="ignore"):
        results = run.block(chosen.body)
    return dict(zip(chosen.output_names, results, strict=True))


def _run_of(function: Function) -> type[Run]:
    """The kind of run that a function needs."""
    if not has_primitive_control(function):
        return Run
    from tfc.interpret_frames import FrameRun  # which is a `Run`, so not before

    return FrameRun


def state_of(module: Module, state: State | None = None) -> State:
    """A state, or a new one, with room for the variables and resources of a module."""
    found = State() if state is None else state
    declare_resources(found, resource_infos(module))
    for variable in module.variables.values():
        kind = variable.type
        if not isinstance(kind, TensorType) or not kind.is_static:
            raise TfcError(
                f"the variable @{variable.name} is a {kind}",
                hint="its dimensions must be numbers",
            )
        found.declare(variable.name, kind.dtype.numpy, static(kind.shape))
    return found


def find_function(module: Module, name: str) -> Function:
    """The function of a name; `main` is also the only one."""
    if name == "main":
        return module.main
    if name not in module.functions:
        known = ", ".join(f"@{n}" for n in module.functions) or "none"
        raise TfcError(f"the module has no function @{name}", hint=f"it has {known}")
    return module.functions[name]


def without_gradients(function: Function) -> Function:
    """The function, or a copy of it in which the ops `gradients` are expanded."""
    if not any(isinstance(op, Gradients) for op in function.body.walk()):
        return function
    body = function.body.clone({})
    copy = Function(function.name, body, function.output_names, function.attributes)
    expand_all(body)
    return copy


def _input_arrays(function: Function, inputs: Mapping[str, Any]) -> list[Array]:
    names = [arg.name for arg in function.body.args]
    for name in inputs:
        if name not in names:
            hint = f"its inputs are {', '.join(map(repr, names)) or 'none'}"
            raise TfcError(f"@{function.name} has no input {name!r}", hint=hint)
    for arg in function.body.args:
        if arg.name not in inputs:
            raise TfcError(f"the input {arg.name!r} is missing", hint=f"it is a {arg.type}")
    return [_fitting(arg, np.asarray(inputs[arg.name])) for arg in function.body.args]


def _fitting(arg: Value, array: Array) -> Array:
    wanted = arg.tensor
    fits = array.dtype == wanted.dtype.numpy and array.ndim == wanted.rank
    if not fits:
        raise _misfit(arg, array)
    return array


def _misfit(arg: Value, array: Array, why: str = "") -> TfcError:
    known = {t.numpy: t.name for t in DTYPES.values()}
    found = f"{known.get(array.dtype, array.dtype)} of shape {array.shape}"
    text = f"the input {arg.name!r} is a {arg.type}, not {found}"
    return TfcError(f"{text}: {why}" if why else text)


def bind_symbols(module: Module, function: Function, arrays: list[Array]) -> Symbols:
    """The value of each symbolic dimension, from the inputs' shapes, which are all checked."""
    symbols: Symbols = {}
    sizes = [
        (arg, array, dim, size)
        for arg, array in zip(function.body.args, arrays, strict=True)
        for dim, size in zip(arg.tensor.shape, array.shape, strict=True)
    ]
    for _, _, dim, size in sizes:
        if isinstance(dim, Expr) and dim.symbols() == [str(dim)]:
            symbols.setdefault(str(dim), size)
    for arg, array, dim, size in sizes:
        expected = _evaluate(dim, symbols)
        if expected != size:
            raise _misfit(arg, array, f"{dim} is {expected} here")
    _check_ranges(module, symbols)
    return symbols


def check_entry(function: Function, symbols: Symbols) -> None:
    """What the pass `entry-checks` wrote down of dimensions."""
    for check in written_checks(function):
        _evaluate(check.lhs, symbols)
        _evaluate(check.rhs, symbols)
        if not check.holds(symbols):
            raise TfcError(f"the inputs' shapes do not fit: {check.message}")


def _check_ranges(module: Module, symbols: Symbols) -> None:
    for name, size in symbols.items():
        info = module.dims.get(name)
        if info is None:
            continue
        low, high = info.smallest or 0, info.largest
        if size < low or (high is not None and size > high):
            bound = f"{low} or more" if high is None else f"{low} to {high}"
            raise TfcError(f"the dimension {name} is {size}", hint=f"it may be {bound}")


def _evaluate(dim: Dim, symbols: Symbols) -> int:
    unbound = [s for s in as_expr(dim).symbols() if s not in symbols]
    if unbound:
        raise TfcError(
            f"no input tells the dimension {unbound[0]}",
            hint="an input must have it as a dimension of its own",
        )
    return as_expr(dim).evaluate(symbols)


def evaluated_type(kind: Type, symbols: Symbols) -> TensorType:
    """A tensor type with its symbols replaced."""
    assert isinstance(kind, TensorType)
    if kind.is_static:
        return kind
    shape = tuple(_evaluate(d, symbols) for d in kind.shape)
    return TensorType(kind.dtype, shape, kind.layout)


def evaluated(op: GraphOp, symbols: Symbols) -> GraphOp:
    """A copy of an op, in no block, whose dimensions are all ints. Its regions are left out."""
    attributes = dict(op.attributes)
    for name, value in attributes.items():
        kind = op.attribute_fields[name].kind if name in op.attribute_fields else ""
        if kind == "dim":
            attributes[name] = _evaluate(value, symbols)
        elif kind == "dims":
            attributes[name] = tuple(_evaluate(d, symbols) for d in value)
    block = Block(evaluated_type(v.type, symbols) for v in op.inputs)
    given = iter(block.args)
    operands = [None if v is None else next(given) for v in op.operands]
    types: list[Type] = [evaluated_type(v.type, symbols) for v in op.results]
    copy = type(op).build(operands, attributes, types, None, op.location)
    assert isinstance(copy, GraphOp)
    return copy


class Run:
    """One run of a function: the arrays of the values so far."""

    def __init__(self, module: Module, symbols: Symbols, state: State | None = None) -> None:
        self.module = module
        self.symbols = symbols
        self.state = state_of(module, state)
        self.context = Context(self.state, call=self.call_function)
        self.values: dict[Value, Array] = {}

    def block(self, block: Block) -> list[Array]:
        """The arrays that the last op of a block gives; runs the ops that it needs."""
        needed = needed_ops(block)
        for op in block:
            if op in needed and not op.terminator:
                self.op(op)
        return [self.values[v] for v in block.terminator.inputs]

    def op(self, op: Op) -> None:
        assert isinstance(op, GraphOp), f"{op.name} is no op of the graph level"
        self.check_entry(op)
        for value, array in zip(op.results, self.results(op), strict=True):
            self.values[value] = self.checked(op, value, np.asarray(array))

    def check_entry(self, op: GraphOp) -> None:
        for check in op.entry_checks():
            if not check.holds(self.symbols):
                a, b = _evaluate(check.lhs, self.symbols), _evaluate(check.rhs, self.symbols)
                sizes = f"{check.lhs} is {a}, {check.rhs} is {b}"
                raise op.error(f"{check.message.removeprefix(f'{op.name}: ')}: {sizes}")

    def results(self, op: GraphOp) -> list[Array]:
        arrays = [None if v is None else self.values[v] for v in op.operands]
        present = [a for a in arrays if a is not None]
        match op:
            case Constant():
                return [op.array(self.module.weights)]
            case If():
                return self.block(op.then if arrays[0] else op.else_)
            case Fusion():
                self.values.update(zip(op.do.args, present, strict=True))
                return self.block(op.do)
            case Launch():
                return self.launch(op, present)
            case While():
                return self.loop(op, present)
            case Scan():
                return self.scan(op, present)
            case _:
                bound = evaluated(op, self.symbols) if self.symbols else op
                found = self.computed(bound, arrays)
                return list(found) if isinstance(found, tuple | list) else [found]

    def computed(self, op: GraphOp, arrays: list[Array | None]) -> Any:
        if not isinstance(op, StatefulOp):
            return op.reference(*arrays)
        try:
            if isinstance(op, HostOp):
                return op.run_in(self.context, *arrays)
            return op.run(self.state, *arrays)
        except LoaderError as error:
            raise op.error(str(error)) from error

    def call_function(self, name: str, arrays: Sequence[Array], context: Context) -> list[Array]:
        """Runs another function of the module, for a host op: bf16 is its bits in u16."""
        function = without_gradients(self.module.functions[name])
        pairs = zip(function.body.args, arrays, strict=True)
        given = [a.view(arg.tensor.dtype.numpy) for arg, a in pairs]
        run = _run_of(function)(self.module, bind_symbols(self.module, function, given), self.state)
        run.context = replace(context, call=run.call_function)
        run.values.update(zip(function.body.args, given, strict=True))
        with np.errstate(all="ignore"):
            return [bits_of(array) for array in run.block(function.body)]

    def loop(self, op: While, carried: list[Array]) -> list[Array]:
        left = op.maximum
        while True:
            self.values.update(zip(op.cond.args, carried, strict=True))
            if not self.block(op.cond)[0] or left == 0:
                return carried
            left -= 1
            self.values.update(zip(op.do.args, carried, strict=True))
            carried = self.block(op.do)

    def scan(self, op: Scan, arrays: list[Array]) -> list[Array]:
        carried, sequences = arrays[: op.carries], arrays[op.carries :]
        outputs = [self.fresh(evaluated_type(v.type, self.symbols)) for v in op.results]
        outputs = outputs[op.carries :]
        length = _evaluate(op.length, self.symbols)
        for index in reversed(range(length)) if op.reverse else range(length):
            slices = [a[index] for a in sequences]
            self.values.update(zip(op.do.args, [*carried, *slices], strict=True))
            results = self.block(op.do)
            carried = results[: op.carries]
            for output, part in zip(outputs, results[op.carries :], strict=True):
                output[index] = part
        return [*carried, *outputs]

    def launch(self, op: Launch, arrays: list[Array]) -> list[Array]:
        """The operands, then the results are the kernel's buffers, flat as they lie in memory."""
        from tfc.tile.interpret import run_kernel

        kernel = self.module.kernels.get(op.kernel.name)
        if kernel is None:
            raise op.error(f"the module has no kernel @{op.kernel.name}")
        buffers = [_packed(v.tensor, a) for v, a in zip(op.inputs, arrays, strict=True)]
        types = [evaluated_type(v.type, self.symbols) for v in op.results]
        outputs = [self.fresh(t) for t in types]
        flat = [a.reshape(-1) for a in (*buffers, *outputs)]
        run_kernel(kernel, flat, self.symbols)
        return [_unpacked(t, a) for t, a in zip(types, outputs, strict=True)]

    def fresh(self, kind: TensorType) -> Array:
        """The memory of an output, which a kernel writes."""
        return np.zeros(static(kind.physical), kind.dtype.numpy)

    def checked(self, op: GraphOp, value: Value, array: Array) -> Array:
        wanted = evaluated_type(value.type, self.symbols)
        found = f"{array.dtype} of shape {array.shape}"
        fits = array.dtype == wanted.dtype.numpy and array.shape == wanted.shape
        if not fits and isinstance(op, Constant):
            raise op.error(f"C2: the elements are {found}, the type is {wanted}")
        assert fits, f"{op.name} gave {found}, its type is {wanted}"
        return array


def _packed(kind: TensorType, array: Array) -> Array:
    return kind.layout.pack(array) if kind.layout else np.ascontiguousarray(array)


def _unpacked(kind: TensorType, array: Array) -> Array:
    return kind.layout.unpack(array, static(kind.shape)) if kind.layout else array


def needed_ops(block: Block) -> set[Op]:
    """The ops that the last op of a block needs, by values or by control dependencies, with all
    that their regions need in turn.
    """
    pending: list[Op] = [block.terminator]
    needed: set[Op] = set()
    while pending:
        op = pending.pop()
        if op in needed:
            continue
        needed.add(op)
        pending.extend(v.producer for v in op.inputs if v.producer is not None)
        pending.extend(op.after)
        pending.extend(r.terminator for r in op.regions if r.last is not None)
    return needed
