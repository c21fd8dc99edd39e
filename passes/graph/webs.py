"""Webs: the values of a function that may lie in the same memory, since one becomes another.

A loop carries a value from `yield` to the argument of the next iteration, `if` gives what a region
yields: the values that are joined so are one web, which shares a few places. An op that writes a
value of it takes one that no value which is still needed lies in, so nothing has to be copied.

What shows foreign memory (a variable that is read, a slice of a sequence) is no part of a web, but
its values may lie there. Where such memory may change before the last use, the value is copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tfc.ir.core import Block, Effect, Function, Op, Value
from tfc.ops.constant import Constant
from tfc.ops.control import Launch
from tfc.ops.loops import Scan
from tfc.ops.state import Assign, Read
from tfc.ops.stateful import HostOp
from tfc.passes.graph.liveness import root
from tfc.passes.graph.regions import Times, home, is_inside, is_slice, joined_values


@dataclass(eq=False)
class Web:
    """Values that may lie in the same memory, those that ops write, and foreign ones."""

    members: list[Value] = field(default_factory=list[Value])
    writes: list[Value] = field(default_factory=list[Value])
    foreign: list[Value] = field(default_factory=list[Value])
    start: int = 0
    end: int = 0


class Webs:
    """All webs of a function in the order of their first values; `of` finds that of a value."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.times = Times(function)
        self.copied: set[Value] = set()
        shown = [v for v in _values(function) if isinstance(v.owner, Read) or is_slice(v)]
        self._join()
        while late := [v for v in shown if v not in self.copied and self._must_copy(v)]:
            self.copied.update(late)
            self._join()

    @property
    def all(self) -> list[Web]:
        return list(dict.fromkeys(self.of.values()))

    # ---- joining

    def _join(self) -> None:
        leaders: dict[Value, Value] = {}

        def find(value: Value) -> Value:
            while leaders.get(value, value) is not value:
                value = leaders[value]
            return value

        borrowed: list[tuple[Value, Value]] = []
        for a, b in joined_values(self.function):
            source = root(a)
            if self._is_shown(source):
                borrowed.append((source, b))
            elif not _is_fixed(source):
                leaders[find(b)] = find(source)
        webs: dict[Value, Web] = {}
        self.of: dict[Value, Web] = {}
        for value in _values(self.function):
            if not _is_fixed(value) and not self._is_shown(value) and root(value) is value:
                web = webs.setdefault(find(value), Web())
                web.members.append(value)
                self.of[value] = web
                if self.is_written(value):
                    web.writes.append(value)
        for source, b in borrowed:
            self.of[b].foreign.append(source)
        for web in webs.values():
            web.start = min(map(self.times.begin, web.members))
            web.end = max(map(self.times.last, web.members))

    def _is_shown(self, value: Value) -> bool:
        """Whether a value is memory of a variable or of a sequence."""
        shown = isinstance(value.owner, Read) or is_slice(value)
        return shown and value not in self.copied

    def is_written(self, value: Value) -> bool:
        """Whether the op that gives a value writes it, so that it needs memory."""
        owner = value.owner
        if isinstance(owner, Scan):
            return value.index >= owner.carries
        return isinstance(owner, Launch | HostOp) or value in self.copied

    # ---- what is shown

    def _must_copy(self, value: Value) -> bool:
        """Whether the memory that a value shows may change, or go, before the last use of it."""
        around = [web for web in self.all if value in web.foreign]
        block = home(value)
        if any(not self._is_later(m, value, block) for web in around for m in web.members):
            return True
        if not isinstance(value.owner, Read):
            return False
        end = max([self.times.last(value), *(web.end for web in around)])
        return any(self._changes(op, value.owner, end) for op in self.times.start)

    def _is_later(self, member: Value, value: Value, block: Block) -> bool:
        """Whether a value is made after another one of a block, in the same run of the block."""
        if isinstance(member.owner, Block):
            return member.owner is not block and is_inside(member.owner, block)
        return is_inside(home(member), block) and (
            isinstance(value.owner, Block)
            or self.times.end[member.owner] > self.times.start[value.owner]
        )

    def _changes(self, op: Op, read: Read, end: int) -> bool:
        """Whether an op may change the variable between its reading and the last use, a time.

        While an op waits, other calls may change any variable. An assignment that is the last use
        copies what it is given.
        """
        time = self.times.start[op]
        if not self.times.start[read] < time <= end:
            return False
        if Effect.BLOCKING in op.effects:
            return True
        writes = Effect.WRITE in op.effects and read.variable.name in op.resources()
        return writes and not (isinstance(op, Assign) and time == end)


def _values(function: Function) -> Iterator[Value]:
    """Every value, in the order of the text."""
    yield from function.body.args
    for op in function.body.walk():
        for block in op.regions:
            yield from block.args
        yield from op.results


def _is_fixed(value: Value) -> bool:
    """Whether a value lies where the caller or the weights are: an input or a constant."""
    if isinstance(value.owner, Op):
        return isinstance(value.owner, Constant)
    return not isinstance(value.owner.parent, Op)
