"""Builds structured control flow from primitive: what `functionalize` is made of.

A block is made level by level: the ops of one guard, `if`s for those under one more condition, and
`while`s (see `raise_loops`). New ops stand in an order that keeps data, control edges and the order
of conflicting effects.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import UNKNOWN, Block, Colocate, Op, Value
from tfc.ir.effects import outer_values
from tfc.ir.frame_order import Item
from tfc.ir.frames import Frame
from tfc.ir.rewriting import fuse
from tfc.ir.types import Type
from tfc.ops.constant import Full, constant
from tfc.ops.control import If, Yield
from tfc.passes.graph.guards import Guard, Guards, Literal, refusal

ALIASES = ("switch", "enter", "exit", "next_iteration", "loop_cond")
"""Ops of which nothing is left: their results are other values."""


@dataclass(eq=False)
class Scope:
    """What stands for the old values in a block, or in those around it."""

    parent: Scope | None = None
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])

    def find(self, value: Value) -> Value:
        scope: Scope | None = self
        while scope is not None:
            if value in scope.values:
                return scope.values[value]
            scope = scope.parent
        raise AssertionError(f"{value!r} is not there")


@dataclass(frozen=True)
class Node:
    """An item of a frame in the making; of a `merge` perhaps some of the operands alone."""

    item: Item
    guard: frozenset[Literal]
    operands: tuple[int, ...] = ()

    @property
    def op(self) -> Op:
        assert isinstance(self.item, Op)
        return self.item

    @property
    def is_choice(self) -> bool:
        """Whether it takes what a branch gives."""
        return isinstance(self.item, Op) and self.item.name in ("merge", "live_or_zeros")


Loops: TypeAlias = "Callable[[Structurer, Frame, Scope, Builder], None]"


class Structurer:
    """Makes new ops of old ones. `made` tells what stands for an old op, for control edges."""

    def __init__(self, guards: Guards, loops: Loops) -> None:
        self.guards = guards
        self.loops = loops
        self.made: dict[Op, list[Op]] = {}
        self.edges: list[tuple[Op, Op]] = []  # a new op, and the old one that it runs after
        self.colocated: list[tuple[Op, Op]] = []  # a new op, and the old one where it runs

    def waits(self, item: Item) -> list[Item]:
        """What an item of a frame runs after."""
        if isinstance(item, Frame):
            return self.guards.order_of[item.parent or item].waits[item]
        frame = self.guards.frames.of[item]
        assert frame is not None
        return self.guards.order_of[frame].waits[item]

    def nodes(self, items: Iterable[Item]) -> list[Node]:
        """The items that may be alive, as nodes."""
        found: list[Node] = []
        for item in items:
            guard = self.guard(item)
            if guard is not None:
                operands = range(len(item.inputs)) if isinstance(item, Op) else ()
                found.append(Node(item, guard, self._alive(item, operands)))
        return found

    def guard(self, item: Item) -> Guard:
        if isinstance(item, Frame):
            return self.guards.of_frame[item]
        return self.guards.of_op[item]

    def _alive(self, item: Item, operands: Sequence[int]) -> tuple[int, ...]:
        if not isinstance(item, Op):
            return ()
        return tuple(i for i in operands if self.guards.of(item.inputs[i]) is not None)

    def conditions(self, node: Node) -> list[frozenset[Literal]]:
        """The guards of a node and of what it chooses from."""
        chosen = node.operands if node.is_choice else ()
        guards = [self.guards.of(node.op.inputs[i]) for i in chosen]
        return [node.guard, *(g for g in guards if g is not None)]

    def level(
        self,
        nodes: Sequence[Node],
        given: frozenset[Literal],
        scope: Scope,
        builder: Builder,
        wanted: Iterable[Value] = (),
    ) -> None:
        """Makes the nodes where the literals of `given` hold; `wanted` must be in the scope then.

        What is not among the nodes and not in `scope` must not be needed.
        """
        _Level(self, nodes, given, scope, builder, set(wanted)).run()

    # ---- ops

    def copy(self, op: Op, scope: Scope, builder: Builder) -> None:
        """An op as it was, on the values that stand for its operands."""
        mapping = {v: scope.find(v) for v in outer_values(op)}
        known: dict[Op, Op] = {}
        new = builder.add(op.clone(mapping, known))
        for old, copied in known.items():
            self.made.setdefault(old, []).append(copied)
            if isinstance(copied.device, Colocate) and copied.device.op not in known.values():
                self.colocated.append((copied, copied.device.op))
                copied.device = None
            for earlier in list(copied.after):
                if earlier not in known.values():
                    copied.remove_after(earlier)
                    self.edges.append((copied, earlier))
        scope.values.update(zip(op.results, new.results, strict=True))
        self.inherit(new, op)

    def inherit(self, new: Op, old: Op) -> None:
        """What an op's operands run after, where nothing is left of those that make them."""
        for value in outer_values(old):
            made = value.producer
            if made is not None and made.name in ALIASES:
                self.edges += [(new, earlier) for earlier in made.after]
                self.inherit(new, made)

    def alias(self, op: Op, scope: Scope) -> None:
        for result in op.results:
            scope.values[result] = scope.find(op.inputs[0])

    def zeros(self, kind: Type, builder: Builder) -> Value:
        """What stands for a value that is dead."""
        tensor = Value(kind, Block(), 0).tensor
        zero = constant(builder, np.zeros((), tensor.dtype.numpy))
        return builder.value(Full(zero, tensor.shape)) if tensor.shape else zero


class _Level:
    """The nodes that are left at one level, and those that were made, here or further inside."""

    def __init__(
        self,
        whole: Structurer,
        nodes: Sequence[Node],
        given: frozenset[Literal],
        scope: Scope,
        builder: Builder,
        wanted: set[Value],
    ) -> None:
        self.whole, self.guards = whole, whole.guards
        self.given, self.scope, self.builder = given, scope, builder
        self.wanted = wanted
        self.left = list(nodes)
        self.waiting: set[Item] = {node.item for node in nodes}  # items that are not made yet

    def run(self) -> None:
        while self.left:
            if self._make_plain():
                continue
            if not self._make_branches():
                raise self._stuck()

    def _stuck(self) -> Exception:
        node = next(n for n in self.left if isinstance(n.item, Op))
        return refusal(node.op, "its conditions and those around it are entangled")

    # ---- what stands at this level

    def _make_plain(self) -> bool:
        """Makes, in order, all that needs no further condition; whether there was any."""
        kept: list[Node] = []
        for node in self.left:
            if self._is_plain(node) and self._is_ready(node, ()):
                self._make(node)
                self.waiting.discard(node.item)
            else:
                kept.append(node)
        changed = len(kept) < len(self.left)
        self.left = kept
        return changed

    def _is_plain(self, node: Node) -> bool:
        if self._rest(node.guard):
            return False
        return not node.is_choice or not any(map(self._rest, self._choices(node)))

    def _rest(self, guard: frozenset[Literal]) -> frozenset[Literal]:
        return guard - self.given

    def _choices(self, node: Node) -> list[frozenset[Literal]]:
        """The guards of the operands that a choice takes here."""
        guards = [self.guards.of(node.op.inputs[i]) for i in node.operands]
        return [g for g in guards if g is not None and not self._contradicts(g)]

    def _contradicts(self, guard: frozenset[Literal]) -> bool:
        return any((p, 1 - s) in self.given for p, s in guard)

    def _is_ready(self, node: Node, gathered: Container[Item]) -> bool:
        return all(w not in self.waiting or w in gathered for w in self._waits(node))

    def _waits(self, node: Node) -> list[Item]:
        """What a node waits for; part of a merge does not wait for the other operands."""
        waits = self.whole.waits(node.item)
        if not node.is_choice:
            return waits
        dropped = [v.producer for i, v in enumerate(node.op.inputs) if i not in node.operands]
        kept = [node.op.inputs[i].producer for i in node.operands]
        return [w for w in waits if w not in dropped or w in kept or w in node.op.after]

    def _make(self, node: Node) -> None:
        whole, scope = self.whole, self.scope
        if isinstance(node.item, Frame):
            whole.loops(whole, node.item, scope, self.builder)
        elif node.op.name in ALIASES:
            if node.op.name != "exit":  # the loop has left it in the scope
                whole.alias(node.op, scope)
        elif node.op.name == "merge":
            self._make_merge(node)
        elif node.op.name == "live_or_zeros":
            self._make_settled(node)
        else:
            with self.builder.at(node.op.location):
                whole.copy(node.op, scope, self.builder)

    def _make_merge(self, node: Node) -> None:
        (chosen,) = [
            i
            for i in node.operands
            if (g := self.guards.of(node.op.inputs[i])) is not None and not self._contradicts(g)
        ]
        output, index = node.op.results
        self.scope.values[output] = self.scope.find(node.op.inputs[chosen])
        if index.uses:
            self.scope.values[index] = constant(self.builder, np.array(chosen, np.int32))

    def _make_settled(self, node: Node) -> None:
        output, live = node.op.results
        value = node.op.inputs[0]
        guard = self.guards.of(value)
        is_live = guard is not None and not self._contradicts(guard)
        self.scope.values[output] = (
            self.scope.find(value) if is_live else self.whole.zeros(value.type, self.builder)
        )
        self.scope.values[live] = constant(self.builder, np.array(is_live))

    # ---- branches

    def _condition(self, node: Node) -> Value:
        """The outermost condition that a node needs besides those that hold."""
        rest = self._rest(node.guard)
        guards = [rest] if rest else [g for g in map(self._rest, self._choices(node)) if g]
        first = {min((p for p, _ in g), key=self.guards.rank.__getitem__) for g in guards}
        if len(first) > 1:
            raise refusal(node.op, "its operands are under different conditions")
        return first.pop()

    def _make_branches(self) -> bool:
        """Makes one `if`, of the first condition under which something can be made."""
        tried: set[Value] = set()
        for node in self.left:
            if self._is_plain(node):
                continue
            condition = self._condition(node)
            if condition not in tried:
                tried.add(condition)
                inside, choices = self._gather(condition)
                if inside or choices:
                    self._make_if(condition, inside, choices)
                    return True
        return False

    def _gather(self, condition: Value) -> tuple[list[Node], list[Node]]:
        """The nodes under a condition that can be made now, and the choices that it decides."""
        inside: list[Node] = []
        choices: list[Node] = []
        items: set[Item] = set()
        for node in self.left:
            if self._is_plain(node) or self._condition(node) is not condition:
                continue
            if not self._is_ready(node, items):
                continue
            if self._rest(node.guard):
                inside.append(node)
                items.add(node.item)
            else:
                choices.append(node)
        return inside, choices

    def _make_if(self, condition: Value, inside: Sequence[Node], choices: Sequence[Node]) -> None:
        escapes = self._escapes(inside, choices)
        blocks = [self._side(condition, side, inside, choices, escapes) for side in (0, 1)]
        end = blocks[1].terminator
        location = UNKNOWN
        for node in (*choices, *inside):
            made = node.item if isinstance(node.item, Op) else node.item.ops[0]
            location = made.location if location is UNKNOWN else fuse(location, made.location)
        types = [v.type for v in end.inputs]
        new = If.build([self.scope.find(condition)], {}, types, [blocks[1], blocks[0]], location)
        self.builder.add(new)
        results = iter(new.results)
        for value in (*_decided(choices), *escapes):
            found = self.scope.values[value] = next(results)
            found.name = value.name
        for node in choices:
            self.whole.made.setdefault(node.op, []).append(new)
            self.whole.edges += [(new, earlier) for earlier in node.op.after]
            self.whole.inherit(new, node.op)
        self.left = [n for n in self.left if n not in inside and n not in choices]
        self.waiting -= {n.item for n in (*inside, *choices)}

    def _side(
        self,
        condition: Value,
        side: int,
        inside: Sequence[Node],
        choices: Sequence[Node],
        escapes: Sequence[Value],
    ) -> Block:
        """The region of one side."""
        literal = (condition, side)
        given = self.given | {literal}
        block, scope = Block(), Scope(self.scope)
        builder = Builder(block)
        nodes = [n for n in inside if literal in n.guard]
        nodes += [self._part(n, literal, given) for n in choices]
        alive = {v: literal in (self.guards.of(v) or ()) for v in escapes}
        decided = _decided(choices)
        kept = {*decided, *(v for v in escapes if alive[v])}
        self.whole.level(nodes, given, scope, builder, kept)
        values = [scope.find(v) for v in decided]
        values += [
            scope.find(v) if alive[v] else self.whole.zeros(v.type, builder) for v in escapes
        ]
        builder.add(Yield(values))
        return block

    def _part(self, node: Node, literal: Literal, given: frozenset[Literal]) -> Node:
        """A choice with the operands that one side brings."""
        predicate, side = literal
        kept = [
            i
            for i in node.operands
            if (g := self.guards.of(node.op.inputs[i])) is not None
            and (predicate, 1 - side) not in g
        ]
        return Node(node.item, given, tuple(kept))

    def _escapes(self, inside: Sequence[Node], choices: Sequence[Node]) -> list[Value]:
        """The values that are made inside of a branch and used elsewhere."""
        held = {n.item for n in (*inside, *choices)}
        asked = {p for n in self.left if n.item not in held for p in self._predicates(n)}
        found: dict[Value, None] = {}
        for node in inside:
            for value in self._results(node):
                if self.guards.of(value) is None:
                    continue
                used = any(self._is_outside(user, held) for user in value.users)
                if used or value in self.wanted or value in asked:
                    found[value] = None
        return list(found)

    def _predicates(self, node: Node) -> set[Value]:
        """The conditions that a node, or what it chooses from, is under."""
        return {p for guard in self.whole.conditions(node) for p, _ in self._rest(guard)}

    def _results(self, node: Node) -> list[Value]:
        if isinstance(node.item, Frame):
            return []  # what leaves it are results of `exit`s
        return node.op.results

    def _is_outside(self, user: Op, held: Container[Item]) -> bool:
        """Whether what a user uses is needed after the branches that are being made."""
        item = self._item_of(user)
        return item in self.waiting and item not in held

    def _item_of(self, user: Op) -> Item | None:
        """The item of this frame that a user belongs to; None for one that is not needed."""
        op = user
        while op.parent is not None and isinstance(op.parent.parent, Op):
            op = op.parent.parent
        if op.name == "enter":
            frame = self.guards.frames.of[op]
            return frame if frame in self.guards.of_frame else None
        return op if op in self.guards.of_op else None


def _decided(choices: Sequence[Node]) -> list[Value]:
    """The results of choices, as far as they are used."""
    found: list[Value] = []
    for node in choices:
        found += [v for n, v in enumerate(node.op.results) if n == 0 or v.uses]
    return found


def settle_edges(structurer: Structurer) -> None:
    """Adds the control edges, when all new ops are in place."""
    for new, old in structurer.edges:
        for target in _standing(structurer, old, set()):
            seen = _visible(target, new)
            if seen is not None and seen is not new and _precedes(seen, new):
                new.add_after(seen)
    for new, old in structurer.colocated:
        if old in structurer.made:
            new.device = Colocate(structurer.made[old][0])


def _standing(structurer: Structurer, old: Op, seen: set[Op]) -> list[Op]:
    """The new ops that stand for an old one; those it needs, where nothing is left of it."""
    if old in structurer.made:
        return structurer.made[old]
    if old in seen:
        return []
    seen.add(old)
    before = [v.producer for v in old.inputs if v.producer is not None] + old.after
    return [new for o in before for new in _standing(structurer, o, seen)]


def _visible(target: Op, user: Op) -> Op | None:
    """The op that holds a target, or is it, in a block around a user."""
    around: dict[Block, Op] = {}
    op: Op | None = user
    while op is not None and op.parent is not None:
        around[op.parent] = op
        owner = op.parent.parent
        op = owner if isinstance(owner, Op) else None
    held: Op | None = target
    while held is not None and held.parent is not None:
        if held.parent in around:
            return None if around[held.parent] is held else held
        owner = held.parent.parent
        held = owner if isinstance(owner, Op) else None
    return None


def _precedes(first: Op, user: Op) -> bool:
    op: Op | None = user
    while op is not None and op.parent is not first.parent:
        owner = op.parent.parent if op.parent else None
        op = owner if isinstance(owner, Op) else None
    while op is not None and op is not first:
        op = op.previous
    return op is first


__all__ = ["Node", "Scope", "Structurer", "settle_edges"]
