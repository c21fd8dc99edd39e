"""Rewriting by patterns: named rules that a driver applies until none fits any more.

Always holds: every rewrite is counted, under the name of its rule and under one number for the
whole pipeline, so that `--stop-after-rewrite N` finds the one that broke something; what a rewrite
makes carries the locations of what it replaced; after a rewrite only what it touched is looked at
again, so that the cost of a pass grows with its work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Function, Kernel, Location, Op, Value
from tfc.ir.effects import erase_dead, is_dead

OpT = TypeVar("OpT", bound=Op)
ERASE_DEAD = "erase-dead"
MOST_REWRITES = 100  # for each op; more means that rules undo each other
MOST_NODES = 64  # that a fused location names: fusing long chains would cost their square


@dataclass(frozen=True)
class Remark:
    """What a pass has to say about an op, such as why a fusion did not happen."""

    pass_name: str
    rule: str
    location: Location
    text: str

    def __str__(self) -> str:
        place = f"{self.location}: " if str(self.location) else ""
        return f"{place}{self.pass_name}: {self.rule}: {self.text}"


@dataclass
class RewriteContext:
    """What the passes of a pipeline share: the count of rewrites, its limit, and the remarks."""

    stop_after: int | None = None  # rewrites beyond this number are refused
    count: int = 0
    fired: dict[str, int] = field(default_factory=dict[str, int])  # by rule
    remarks: list[Remark] = field(default_factory=list[Remark])
    pass_name: str = ""  # of the running pass

    @property
    def exhausted(self) -> bool:
        """Whether the limit is reached, so that nothing may change any more."""
        return self.stop_after is not None and self.count >= self.stop_after

    def allow(self, rule: str) -> bool:
        """Whether one more rewrite may happen, which is then counted: ask right before changing."""
        if self.exhausted:
            return False
        self.count += 1
        self.fired[rule] = self.fired.get(rule, 0) + 1
        return True

    def remark(self, rule: str, op: Op, text: str) -> None:
        self.remarks.append(Remark(self.pass_name, rule, op.location, f"{op.name}: {text}"))


class Rewriter(Builder):
    """Changes IR around one op, and remembers what to look at again.

    As a builder it inserts before the op; new ops have the op's location.
    """

    def __init__(self, op: Op, touched: Callable[[Op], None]) -> None:
        assert op.parent is not None, "the op is in no block"
        super().__init__(op.parent, op, op.location)
        self._touched = touched
        self.made: list[Op] = []

    def add(self, op: OpT) -> OpT:
        super().add(op)
        for inner in op.walk():
            self._touched(inner)
        self.made.append(op)
        return op

    def replace(self, op: Op, *values: Value) -> None:
        """Replaces the results of an op by values, and erases it.

        The makers of the values take its location, and those that `fuse` named.
        """
        self.fuse(op)
        for value in values:
            maker = value.producer
            if maker is not None:
                maker.location = fuse(maker.location, self.location)
                self._touched(maker)
        # Only these see something new; a value that replaces may have any number of other users.
        for result in op.results:
            self._touch_users(result)
        operands = [v for o in op.walk() for v in o.inputs]  # of its regions too
        around = [*op.after, *op.control_users]
        op.replace(list(values))
        self._released(operands)
        self._unordered(around)

    def erase(self, op: Op) -> None:
        """Erases an op that nothing uses."""
        operands = [v for o in op.walk() for v in o.inputs]  # of its regions too
        around = [*op.after, *op.control_users]
        erase_dead(op)
        self._released(operands)
        self._unordered(around)

    def set_operand(self, op: Op, index: int, value: Value | None) -> None:
        old = op.operands[index]
        op.set_operand(index, value)
        self._released([old] if old is not None else [])
        self.modified(op)

    def modified(self, op: Op) -> None:
        """Says that an op was changed in place."""
        self._touched(op)
        for value in op.results:
            self._touch_users(value)

    def fuse(self, *ops: Op) -> None:
        """What is made from here on came from these ops too."""
        for op in ops:
            self.location = fuse(self.location, op.location)

    def _touch_users(self, value: Value) -> None:
        for user in value.users:
            self._touched(user)

    def _unordered(self, around: Iterable[Op]) -> None:
        """Looks again at ops that lost a control edge, and at their users."""
        for op in around:
            self.modified(op)

    def _released(self, operands: Iterable[Value]) -> None:
        """Looks again at the makers of values that lost a user, and at the last user left."""
        for value in operands:
            if value.producer is not None:
                self._touched(value.producer)
            if len(value.uses) == 1:
                self._touch_users(value)


def fuse(location: Location, other: Location) -> Location:
    """Both locations in one, as long as it names at most `MOST_NODES` nodes."""
    if not other.nodes or other.nodes == location.nodes:
        return location
    if len(location.nodes) + len(other.nodes) > MOST_NODES:
        return location if location.nodes else other
    return location.fused(other)


# ---- patterns


class Pattern:
    """A rule: `rewrite` changes an op of the class `root` (None: any op) and says whether it did.

    It must not change anything where it gives False.
    """

    name: str = ""
    root: type[Op] | None = None

    def rewrite(self, op: Op, rewriter: Rewriter) -> bool:
        raise NotImplementedError(f"the rule {self.name} does not rewrite")


class FunctionPattern(Pattern):
    """A pattern whose `rewrite` is a plain function."""

    def __init__(
        self, name: str, root: type[Op] | None, function: Callable[[Op, Rewriter], bool]
    ) -> None:
        self.name = name
        self.root = root
        self.function = function
        self.__doc__ = function.__doc__

    def rewrite(self, op: Op, rewriter: Rewriter) -> bool:
        return self.function(op, rewriter)


def pattern(name: str, root: type[OpT]) -> Callable[[Callable[[OpT, Rewriter], bool]], Pattern]:
    """Makes a function of an op and a rewriter a pattern: `@pattern("add-zero", Add)`."""

    def decorate(function: Callable[[OpT, Rewriter], bool]) -> Pattern:
        def rewrite(op: Op, rewriter: Rewriter) -> bool:
            assert isinstance(op, root)
            return function(op, rewriter)

        rewrite.__doc__ = function.__doc__
        return FunctionPattern(name, root, rewrite)

    return decorate


# ---- the driver


def _is_ordered(op: Op) -> bool:
    """Whether control dependencies hang on an op or on what it uses: no rule may bypass those."""
    makers = [v.producer for v in op.inputs]
    waits = op.after or op.control_users
    return bool(waits) or any(maker is not None and maker.after for maker in makers)


class _Driver:
    """A queue of ops to look at; each is in it at most once."""

    def __init__(self, patterns: Sequence[Pattern], context: RewriteContext) -> None:
        self.patterns = patterns
        self.context = context
        self.queue: deque[Op] = deque()
        self.queued: set[Op] = set()
        self.by_class: dict[type[Op], list[Pattern]] = {}

    def touch(self, op: Op) -> None:
        if op not in self.queued:
            self.queued.add(op)
            self.queue.append(op)

    def run(self, block: Block) -> int:
        """Rewrites to a fixed point, or as far as the context allows; the number of rewrites."""
        for op in block.walk():
            self.touch(op)
        start = self.context.count
        limit = 1000 + MOST_REWRITES * len(self.queue)
        while self.queue and not self.context.exhausted:
            op = self.queue.popleft()
            self.queued.discard(op)
            if op.parent is not None:
                self.visit(op)
            assert self.context.count - start < limit, f"no fixed point: {self.context.fired}"
        return self.context.count - start

    def visit(self, op: Op) -> None:
        if is_dead(op):
            self.context.allow(ERASE_DEAD)
            Rewriter(op, self.touch).erase(op)
            return
        if _is_ordered(op):
            return
        rewriter, device = Rewriter(op, self.touch), op.device
        for rule in self.rules(type(op)):
            if rule.rewrite(op, rewriter):
                self.context.allow(rule.name)
                for made in rewriter.made:
                    made.device = made.device or device
                if op.parent is not None:
                    rewriter.modified(op)
                return
            assert not rewriter.made, f"the rule {rule.name} changed {op.name}, but says it did not"

    def rules(self, cls: type[Op]) -> list[Pattern]:
        found = self.by_class.get(cls)
        if found is None:
            found = [p for p in self.patterns if p.root is None or issubclass(cls, p.root)]
            self.by_class[cls] = found
        return found


def apply_patterns(
    root: Block | Function | Kernel, patterns: Sequence[Pattern], *, context: RewriteContext
) -> int:
    """Applies patterns until none fits any more; the number of rewrites, dead ops erased too.

    Ops are visited in order; after a rewrite, what it made, what uses it and what it used.
    """
    return _Driver(patterns, context).run(root if isinstance(root, Block) else root.body)
