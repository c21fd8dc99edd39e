"""Variables and host ops in a function: reads, assignments, and calls of what the loader runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.ir.core import Effect, Function, Module, Op, SymbolRef
from tfc.ir.memory import Held

if TYPE_CHECKING:
    from tfc.backends.llvm.host_run import Run

ERROR_UNINITIALIZED = 20
VARIABLE_BYTES = 16  # of a tfc_variable


def is_host_call(op: Op) -> bool:
    """Whether the loader runs an op."""
    return callable(getattr(op, "host_call", None))


def host_calls(function: Function) -> list[Op]:
    """The ops of a function that the loader runs, by their numbers."""
    return [op for op in function.body.walk() if is_host_call(op)]


def uses_variables(module: Module, function: Function) -> bool:
    """Whether a function, or one that it has called, reads or writes variables."""
    for op in function.body.walk():
        if op.effects is Effect.NONE:
            continue
        if any(name in module.variables for name in op.resources()):
            return True
        called = [module.functions[n] for n in _named(op) if n in module.functions]
        if any(uses_variables(module, f) for f in called if f is not function):
            return True
    return False


def _named(op: Op) -> list[str]:
    """The names in the lists of an op's attributes."""
    lists = [v for v in op.attributes.values() if isinstance(v, tuple)]
    return [item.name for items in lists for item in items if isinstance(item, SymbolRef)]


def emit_read(run: Run, op: Op) -> None:
    """The variable's memory, or a copy of it where it may be written before the last use."""
    b, value = run.b, op.results[0]
    number = _number(run, op)
    assigned = b.load("i8", b.load("ptr", run.variables, VARIABLE_BYTES * number + 8))
    fields = {"where": str(number), "node": run.node(op)}
    b.refuse_unless(b.value(f"icmp ne i8 {assigned}, 0"), ERROR_UNINITIALIZED, fields)
    data = run.target(Held(_name(op)))
    if value in run.plan.rooms:
        b.copy(run.write(value), data, b.dim(value.tensor.bytes))
    else:
        run.pointers[value] = data


def emit_assign(run: Run, op: Op) -> None:
    b, value = run.b, op.inputs[0]
    number = _number(run, op)
    data, source = run.target(Held(_name(op))), run.pointer(value)
    if source != data:  # else it was written there
        b.copy(data, source, b.dim(value.tensor.bytes))
    b.store("i8", "1", b.load("ptr", run.variables, VARIABLE_BYTES * number + 8))


def _name(op: Op) -> str:
    reference = op.attributes["variable"]
    assert isinstance(reference, SymbolRef)
    return reference.name


def _number(run: Run, op: Op) -> int:
    """Which variable of the module an op names."""
    return list(run.module.variables).index(_name(op))


def emit_host_call(run: Run, op: Op) -> None:
    """Hands sizes and memory of operands and results to the caller's tfc_host."""
    b = run.b
    inputs, outputs = [run.pointer(v) for v in op.inputs], [run.write(v) for v in op.results]
    sizes = [b.dim(d) for v in (*op.inputs, *op.results) for d in v.tensor.shape]
    lists = [_filled(run, "i64", sizes), _filled(run, "ptr", inputs), _filled(run, "ptr", outputs)]
    host = b.load("ptr", "%call", 64)
    context, call = b.load("ptr", host), b.load("ptr", host, 8)
    passed = ", ".join(f"ptr {name}" for name in (*lists, "%error"))
    number = run.host_numbers[op]
    code = b.value(f"call i32 {call}(ptr {context}, i32 {number}, {passed})")
    run.stop_on_error(code, record=True)


def _filled(run: Run, kind: str, values: list[str]) -> str:
    """An array of the function's own that holds values."""
    b = run.b
    array = b.slot(f"[{max(1, len(values))} x {kind}]")
    for i, value in enumerate(values):
        b.store(kind, value, array, 8 * i)
    return array
