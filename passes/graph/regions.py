"""When the ops of a function run, regions included: an order of times, and what may follow what."""

from __future__ import annotations

from collections.abc import Iterator

from tfc.ir.core import Block, Function, Op, Value
from tfc.ops.control import If
from tfc.ops.loops import Scan, While
from tfc.passes.graph.liveness import root


def home(value: Value) -> Block:
    """The block that a value is defined in."""
    block = value.owner.parent if isinstance(value.owner, Op) else value.owner
    assert block is not None, f"{value} is in no block"
    return block


def is_loop(op: Op) -> bool:
    return isinstance(op, While | Scan)


def ancestors(op: Op) -> Iterator[Op]:
    """The op, then the op whose region holds it, and so on."""
    current: Op | None = op
    while current is not None:
        yield current
        block = current.parent
        current = block.parent if block and isinstance(block.parent, Op) else None


def ancestor(block: Block, op: Op) -> Op | None:
    """The op of a block that is or holds another; None where the block does not hold it."""
    return next((o for o in ancestors(op) if o.parent is block), None)


def is_inside(block: Block, within: Block) -> bool:
    """Whether a block is another one or in a region of its ops."""
    if block is within:
        return True
    return isinstance(block.parent, Op) and ancestor(within, block.parent) is not None


def is_slice(value: Value) -> bool:
    """Whether a value is a part of a sequence that `scan` walks along."""
    scan = value.owner.parent if isinstance(value.owner, Block) else None
    return isinstance(scan, Scan) and value.index >= scan.carries


def sequence_of(value: Value) -> Value:
    """The sequence that a slice is a part of."""
    assert isinstance(value.owner, Block) and isinstance(value.owner.parent, Scan)
    return value.owner.parent.arguments[value.index]


def joined_values(function: Function) -> Iterator[tuple[Value, Value]]:
    """Pairs of values, of which the second may lie where the first does: what is yielded or
    carried, and what it becomes.
    """
    for op in function.body.walk():
        match op:
            case If():
                for block in op.regions:
                    yield from zip(block.terminator.inputs, op.results, strict=True)
            case While():
                for args in (op.cond.args, op.do.args):
                    yield from zip(op.carried, args, strict=True)
                yield from zip(op.do.terminator.inputs, op.do.args, strict=True)
                yield from zip(op.do.args, op.results, strict=True)
            case Scan():
                args = op.do.args[: op.carries]
                yield from zip(op.initial, args, strict=True)
                yield from zip(op.do.terminator.inputs[: op.carries], args, strict=True)
                yield from zip(args, op.results[: op.carries], strict=True)
            case _:
                pass


class Times:
    """The times of the ops of a function, and the uses of its values.

    Times count ops in the order of the text; a region runs after the op that holds it begins.
    """

    def __init__(self, function: Function) -> None:
        self.start: dict[Op, int] = {}
        self.end: dict[Op, int] = {}
        self.uses: dict[Value, list[tuple[Op, int]]] = {}
        self._number(function.body)
        for op in self.start:
            for index, value in enumerate(op.inputs):
                self._use(root(value), op, index)

    def _number(self, block: Block) -> None:
        for op in block:
            self.start[op] = len(self.start)
            for region in op.regions:
                self._number(region)
            self.end[op] = len(self.start) - 1

    def _use(self, value: Value, op: Op, index: int) -> None:
        """Books a use of a value and, where it is a slice, of the sequence."""
        self.uses.setdefault(value, []).append((op, index))
        if is_slice(value):
            self._use(root(sequence_of(value)), op, index)

    def begin(self, value: Value) -> int:
        """The time from which on a value's memory is in use."""
        owner = value.owner if isinstance(value.owner, Op) else value.owner.parent
        if not isinstance(owner, Op):
            return -1
        return self.end[owner] if isinstance(owner, If) else self.start[owner]

    def last(self, value: Value) -> int:
        """The time until which a value is needed; a value from before a loop stays until it ends.

        An output of a `scan` is written until the scan is done.
        """
        found = self.begin(value)
        if isinstance(value.owner, Scan):
            found = self.end[value.owner]
        block = home(value)
        for op, index in self.uses.get(value, ()):
            found = max(found, self._use_end(block, op, index, value))
        return found

    def _use_end(self, block: Block, op: Op, index: int, value: Value) -> int:
        end = self.end[op] if _is_walked(op, index) else self.start[op]
        for outer in ancestors(op):
            if outer.parent is block:
                return end
            held = outer.parent.parent if outer.parent else None
            if isinstance(held, Op) and is_loop(held):
                end = self.end[held]
        raise AssertionError(f"{value} is used outside of its block")

    def is_live(self, value: Value, at: Op) -> bool:
        """Whether a value is needed by an op, or by one that may run after it."""
        block = home(value)
        here = ancestor(block, at)
        if here is None:
            return False
        if here is value.owner and here is not at and isinstance(here, Scan):
            return value.index >= here.carries  # the output is being written
        if isinstance(value.owner, Op) and self.start[value.owner] >= self.start[here]:
            return False
        if isinstance(value.owner, Block) and _is_condition(value.owner):
            return True  # what `do` or the results get, whoever uses it here
        return any(self._follows(block, op, i, at) for op, i in self.uses.get(value, ()))

    def _follows(self, block: Block, use: Op, index: int, at: Op) -> bool:
        """Whether a use may run when, or after, another op does; both are in a block."""
        here, there = ancestor(block, at), ancestor(block, use)
        assert here is not None and there is not None
        if here is not there:
            return self.start[there] > self.start[here]
        if here is at:
            return True
        if use is here:
            return _is_walked(use, index)
        if is_loop(here):
            return True
        region = next(r for r in here.regions if ancestor(r, at))
        return ancestor(region, use) is not None and self._follows(region, use, index, at)


def _is_condition(block: Block) -> bool:
    return isinstance(block.parent, While) and block is block.parent.cond


def _is_walked(op: Op, index: int) -> bool:
    """Whether an operand is a sequence, which is read until the loop ends."""
    return isinstance(op, Scan) and index >= op.carries
