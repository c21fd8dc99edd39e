"""The part `run` of a function: its ops in order, and the pointers of its values.

Constants lie in the bundle's weights, views where their operands do; what is written goes where the
memory plan says. Regions are branches and loops around their ops.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tfc.backends.llvm.host_code import Body, Text
from tfc.backends.llvm.host_launch import TASKS_A_THREAD, argument_slots, emit_launch
from tfc.backends.llvm.host_regions import emit_if, emit_scan, emit_while
from tfc.backends.llvm.host_state import (
    VARIABLE_BYTES,
    emit_assign,
    emit_host_call,
    emit_read,
    host_calls,
    is_host_call,
    uses_variables,
)
from tfc.ir.core import Block, Function, Module, Op, Value
from tfc.ir.errors import UnsupportedError
from tfc.ir.expr import Dim
from tfc.ir.memory import MemoryPlan, Output, Slice, Target


class Run:
    """The instructions of one run, and what is known where the next one goes."""

    def __init__(
        self,
        module: Module,
        function: Function,
        plan: MemoryPlan,
        constants: Mapping[Op, int],
        task_bytes: Mapping[str, int],
        text: Text,
        b: Body,
    ) -> None:
        self.module, self.function, self.plan, self.b = module, function, plan, b
        self.constants, self.task_bytes, self.text = constants, task_bytes, text
        self.pointers: dict[Value, str] = {}
        self.targets: dict[Target, str] = {}
        self.offsets: dict[Dim, str] = {}  # places in the arena
        self.numbers: dict[Op, int] = {}  # of launches, as profiles count them
        self.host_numbers = {op: i for i, op in enumerate(host_calls(function))}

    def emit(self, symbols: Sequence[str], launches: Sequence[Op]) -> None:
        b = self.b
        b.load_symbols(symbols, b.load("ptr", "%call"))
        b.store("i32", "0", "%error")
        self.inputs, self.outputs = b.load("ptr", "%call", 8), b.load("ptr", "%call", 16)
        self.weights, self.scratch = b.load("ptr", "%call", 24), b.load("ptr", "%call", 32)
        self.executor, self.ticks = b.load("ptr", "%call", 40), b.load("ptr", "%call", 48)
        if uses_variables(self.module, self.function):
            self.variables = b.load("ptr", "%call", 56)
        threads = b.load("i32", self.executor, 8)
        self.shares = b.value(f"mul i64 {b.value(f'zext i32 {threads} to i64')}, {TASKS_A_THREAD}")
        self.numbers = {op: i for i, op in enumerate(launches)}
        largest = max((argument_slots(self.module, op) for op in launches), default=1)
        b.entry.append(f"  %arguments = alloca [{largest} x i64], align 16")
        results = self.block(self.function.body)
        values = self.function.body.terminator.inputs
        self.deliver(
            [(Output(i), v, p) for i, (v, p) in enumerate(zip(values, results, strict=True))]
        )
        b.do("ret i32 0")

    def block(self, block: Block) -> list[str]:
        """Runs the ops of a block; the pointers of what its terminator gives."""
        for op in block:
            if not op.terminator:
                self.op(op)
        return [self.pointer(v) for v in block.terminator.inputs]

    def op(self, op: Op) -> None:
        emit = _EMIT.get("host call" if is_host_call(op) else op.name)
        if emit is not None:
            emit(self, op)
        elif op.name not in ("constant", "reshape", "no_op"):
            raise UnsupportedError(
                f"{op.name} cannot be compiled yet",
                where=str(op.location) or f"@{self.function.name}",
            )

    @contextmanager
    def scope(self) -> Generator[None]:
        """Forgets what is computed inside, which does not hold outside of the region."""
        known, pointers = dict(self.b.known), dict(self.pointers)
        targets, offsets = dict(self.targets), dict(self.offsets)
        yield
        self.b.known, self.pointers, self.targets, self.offsets = known, pointers, targets, offsets

    def node(self, op: Op) -> str:
        """A string of the user's names of an op."""
        return self.text.string(", ".join(op.location.nodes))

    def stop_on_error(self, code: str, *, record: bool = False) -> None:
        """Returns where a code is not 0; `record` writes it to the error, too."""
        b = self.b
        bad, good = b.fresh("%bad"), b.fresh("%good")
        b.branch(b.value(f"icmp eq i32 {code}, 0"), good, bad)
        b.label(bad)
        if record:
            b.store("i32", code, "%error")
        b.do(f"ret i32 {code}")
        b.label(good)

    # ---- places

    def pointer(self, value: Value) -> str:
        """Where a value lies."""
        shown = value
        while shown.producer is not None and shown.producer.name in ("reshape", "assign"):
            shown = shown.producer.inputs[0]
        if shown not in self.pointers:
            self.pointers[shown] = self._fixed(shown)
        return self.pointers[shown]

    def _fixed(self, value: Value) -> str:
        """Where an input or a constant lies."""
        op = value.producer
        if op is None:
            assert value.owner is self.function.body, f"{value} has no place yet"
            return self.b.load("ptr", self.inputs, 8 * value.index)
        assert op.name == "constant", f"the result of {op.name} has no place yet"
        return self.b.field(self.weights, self.constants[op])

    def scratch_pointer(self, offset: Dim) -> str:
        """A place in the arena."""
        if offset not in self.offsets:
            at = self.b.dim(offset)
            self.offsets[offset] = self.b.value(f"getelementptr i8, ptr {self.scratch}, i64 {at}")
        return self.offsets[offset]

    def target(self, target: Target) -> str:
        """Memory that is not this function's own; slices are known inside their `scan` alone."""
        if target not in self.targets:
            assert not isinstance(target, Slice), "no iteration fills this slice"
            if isinstance(target, Output):
                base, offset = self.outputs, 8 * target.number
            else:
                number = list(self.module.variables).index(target.name)
                base, offset = self.variables, VARIABLE_BYTES * number
            self.targets[target] = self.b.load("ptr", base, offset)
        return self.targets[target]

    def write(self, value: Value) -> str:
        """Chooses where a value is written: the first of its places that nothing needed lies in."""
        room = self.plan.rooms[value]
        places = [self.target(room.target)] if room.target else []
        places += [self.scratch_pointer(offset) for offset in room.offsets]
        taken = list(dict.fromkeys(map(self.pointer, room.avoid)))
        chosen = places[-1]
        for place in reversed(places[:-1]):
            chosen = self._unless_taken(place, taken, chosen)
        self.pointers[value] = chosen
        return chosen

    def _unless_taken(self, place: str, taken: Sequence[str], other: str) -> str:
        b, found = self.b, "false"
        for pointer in taken:
            same = b.value(f"icmp eq ptr {place}, {pointer}")
            found = same if found == "false" else b.value(f"or i1 {found}, {same}")
        return b.value(f"select i1 {found}, ptr {other}, ptr {place}")

    def deliver(self, wanted: Sequence[tuple[Output | Slice, Value, str]]) -> None:
        """Copies values to where they are wanted, unless they were written there.

        Memory that values may have been written to is filled last: others may still lie in it.
        """
        written = {room.target for room in self.plan.rooms.values()}
        for target, value, pointer in sorted(wanted, key=lambda w: w[0] in written):
            place = self.target(target)
            if place == pointer:
                continue
            size = self.b.dim(value.tensor.bytes)
            if target in written:
                self._copy_unless_there(place, pointer, size)
            else:
                self.b.copy(place, pointer, size)

    def _copy_unless_there(self, place: str, pointer: str, size: str) -> None:
        b = self.b
        copy, done = b.fresh("%copy"), b.fresh("%there")
        b.branch(b.value(f"icmp eq ptr {place}, {pointer}"), done, copy)
        b.label(copy)
        b.copy(place, pointer, size)
        b.jump(done)
        b.label(done)


_EMIT: dict[str, Callable[[Any, Op], None]] = {  # the first argument is the Run
    "host call": emit_host_call,
    "launch": emit_launch,
    "read": emit_read,
    "assign": emit_assign,
    "if": emit_if,
    "while": emit_while,
    "scan": emit_scan,
}
