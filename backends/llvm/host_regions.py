"""Branches and loops of a function. Values are pointers: what is carried or yielded is not copied.

A loop keeps the pointers of its carried values in slots of the function's frame, which LLVM turns
into registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.ir.core import Block, Op, Value
from tfc.ir.expr import Dim
from tfc.ir.memory import Slice

if TYPE_CHECKING:
    from tfc.backends.llvm.host_run import Run

ERROR_SIZE = 6


def emit_if(run: Run, op: Op) -> None:
    b = run.b
    then, otherwise, done = (b.fresh(s) for s in ("%then", "%else", "%endif"))
    results = [b.slot("ptr") for _ in op.results]
    b.branch(_is_true(run, op.inputs[0]), then, otherwise)
    for label, block in zip((then, otherwise), op.regions, strict=True):
        b.label(label)
        with run.scope():
            for slot, pointer in zip(results, run.block(block), strict=True):
                b.store("ptr", pointer, slot)
        b.jump(done)
    b.label(done)
    for value, slot in zip(op.results, results, strict=True):
        run.pointers[value] = b.load("ptr", slot)


def _is_true(run: Run, condition: Value) -> str:
    byte = run.b.load("i8", run.pointer(condition))
    return run.b.value(f"icmp ne i8 {byte}, 0")


def emit_while(run: Run, op: Op) -> None:
    b, (cond, do) = run.b, op.regions
    head, body, done = (b.fresh(s) for s in ("%while", "%do", "%endwhile"))
    slots = _carry(run, op.inputs)
    b.jump(head)
    b.label(head)
    carried = [b.load("ptr", slot) for slot in slots]
    with run.scope():
        run.pointers.update(zip(cond.args, carried, strict=True))
        (condition,) = run.block(cond)
        going = b.value(f"icmp ne i8 {b.load('i8', condition)}, 0")
    b.branch(going, body, done)
    b.label(body)
    with run.scope():
        run.pointers.update(zip(do.args, carried, strict=True))
        _store_all(run, run.block(do), slots)
    b.jump(head)
    b.label(done)
    run.pointers.update(zip(op.results, carried, strict=True))


def _carry(run: Run, values: list[Value]) -> list[str]:
    """Slots for the pointers of carried values, set to the first ones."""
    slots = [run.b.slot("ptr") for _ in values]
    _store_all(run, [run.pointer(v) for v in values], slots)
    return slots


def _store_all(run: Run, pointers: list[str], slots: list[str]) -> None:
    for pointer, slot in zip(pointers, slots, strict=True):
        run.b.store("ptr", pointer, slot)


def emit_scan(run: Run, op: Op) -> None:
    b, do = run.b, op.regions[0]
    carries = int(op.attributes["carries"])
    length = b.dim(op.attributes["length"])
    possible = b.value(f"icmp sge i64 {length}, 0")
    b.refuse_unless(possible, ERROR_SIZE, {"actual": length, "node": run.node(op)})
    sequences = [run.pointer(v) for v in op.inputs[carries:]]
    outputs = [run.write(v) for v in op.results[carries:]]
    head, body, done = (b.fresh(s) for s in ("%scan", "%do", "%endscan"))
    slots, counter = _carry(run, op.inputs[:carries]), b.slot("i64")
    b.store("i64", "0", counter)
    b.jump(head)
    b.label(head)
    count = b.load("i64", counter)
    carried = [b.load("ptr", slot) for slot in slots]
    b.branch(b.value(f"icmp slt i64 {count}, {length}"), body, done)
    b.label(body)
    with run.scope():
        last = b.value(f"sub i64 {length}, 1")
        at = b.value(f"sub i64 {last}, {count}") if op.attributes.get("reverse") else count
        run.pointers.update(zip(do.args[:carries], carried, strict=True))
        for number, output in enumerate(outputs, carries):
            size = do.terminator.inputs[number].tensor.bytes
            run.targets[Slice(op, number)] = _part(run, output, at, size)
        _show_slices(run, do, carries, sequences, at)
        yielded = run.block(do)
        _fill_slices(run, op, yielded, carries)
        _store_all(run, yielded[:carries], slots)
        b.store("i64", b.value(f"add i64 {count}, 1"), counter)
    b.jump(head)
    b.label(done)
    run.pointers.update(zip(op.results[:carries], carried, strict=True))


def _part(run: Run, base: str, at: str, size: Dim) -> str:
    """The place of a part of a sequence."""
    offset = run.b.value(f"mul i64 {at}, {run.b.dim(size)}")
    return run.b.value(f"getelementptr i8, ptr {base}, i64 {offset}")


def _show_slices(run: Run, do: Block, carries: int, sequences: list[str], at: str) -> None:
    """The arguments of an iteration: parts of the sequences, or copies of them."""
    b = run.b
    for value, sequence in zip(do.args[carries:], sequences, strict=True):
        part = _part(run, sequence, at, value.tensor.bytes)
        if value in run.plan.rooms:
            b.copy(run.write(value), part, b.dim(value.tensor.bytes))
        else:
            run.pointers[value] = part


def _fill_slices(run: Run, op: Op, yielded: list[str], carries: int) -> None:
    """Copies what was not written to its part of an output.

    Those come last that may have been: where another output's value lies, none is overwritten.
    """
    values = op.regions[0].terminator.inputs
    targets = [(Slice(op, n), values[n], yielded[n]) for n in range(carries, len(values))]
    run.deliver(targets)
