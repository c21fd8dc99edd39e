"""Makes a `while` of a frame: enter, merge, switch, next_iteration and exit (see `functionalize`).

What runs in every iteration, the last one too, is the head; it decides whether there is another
one, in which the body runs; the tail runs once at the end. What runs in every iteration, but by the
order of effects after the body, is late: it runs behind body and tail. A head without effects is
made again where its values are used; one with effects runs before the loop and at the end of each
iteration, and the loop carries what it gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Effect, Op, Value, effects_of
from tfc.ir.effects import outer_values
from tfc.ir.frame_order import Item
from tfc.ir.frames import Frame, is_forward
from tfc.ir.rewriting import fuse
from tfc.ops.constant import constant
from tfc.ops.control import Yield
from tfc.ops.loops import While
from tfc.passes.graph.guards import ALWAYS, Literal, predicate_of, refusal
from tfc.passes.graph.structured import Node, Scope, Structurer


def raise_loop(whole: Structurer, frame: Frame, scope: Scope, builder: Builder) -> None:
    """Makes a frame at a place; the results of its exits are in the scope then."""
    guards = whole.guards
    entered = Scope(scope)
    for op in guards.orders.enters(frame):
        entered.values[op.result] = scope.find(op.inputs[0])
    merges = guards.loop_merges[frame]
    nodes = whole.nodes(i for i in guards.order_of[frame].items if i not in merges)
    exits = [op for op in guards.orders.exits[frame] if guards.of_op[op] is not None]
    condition = guards.condition[frame]
    if condition is None:
        if merges:
            raise refusal(merges[0], f"{frame} has no `loop_cond`")
        whole.level(nodes, ALWAYS, entered, builder, [op.inputs[0] for op in exits])
        inside = entered
    else:
        inside = _Loop(whole, frame, condition, merges, nodes, exits, entered).make(builder)
    for op in exits:
        found = scope.values[op.result] = inside.find(op.inputs[0])
        if isinstance(found.producer, While):
            found.name = op.result.name


@dataclass(eq=False)
class _Loop:
    whole: Structurer
    frame: Frame
    condition: Op
    merges: Sequence[Op]
    nodes: Sequence[Node]
    exits: Sequence[Op]
    entered: Scope
    head: list[Node] = field(default_factory=list[Node])
    body: list[Node] = field(default_factory=list[Node])
    tail: list[Node] = field(default_factory=list[Node])
    late: list[Node] = field(default_factory=list[Node])  # runs always, but after body or tail
    switches: list[Node] = field(default_factory=list[Node])  # of the head: by the loop's condition

    def __post_init__(self) -> None:
        again, done = self.literal(1), self.literal(0)
        after: set[Item] = set()
        for node in self.nodes:
            if again in node.guard:
                self.body.append(node)
            elif done in node.guard:
                self.tail.append(node)
            elif isinstance(node.item, Op) and node.item.name == "switch" and self.steers(node.op):
                self.switches.append(node)
            elif any(w in after for w in self.whole.waits(node.item)):
                self.late.append(node)
            else:
                self.head.append(node)
                continue
            if node not in self.switches:
                after.add(node.item)
        self.check()

    def literal(self, side: int) -> Literal:
        return self.condition.result, side

    def steers(self, switch: Op) -> bool:
        return predicate_of(switch) is self.condition.result

    def check(self) -> None:
        """Refuses loops that go on under another condition, or that nothing ends."""
        guards = self.whole.guards
        wanted = frozenset([self.literal(1)])
        for op in self.frame.ops:
            if op.name != "next_iteration" or op not in guards.orders.needed:
                continue
            if guards.of_op[op] != wanted:
                text = "it begins another iteration not exactly where the loop's condition holds"
                raise refusal(op, text, "take the second result of a switch by `loop_cond`")

    # ---- what is carried

    def carried(self) -> list[Value]:
        """The results of the merges, as far as they are used."""
        outputs = [op.results[0] for op in self.merges]
        return outputs + [op.results[1] for op in self.merges if op.results[1].uses]

    def first(self, builder: Builder) -> list[Value]:
        """What is carried into the first iteration."""
        return self._given(builder, self.entered, first=True)

    def next(self, builder: Builder, scope: Scope) -> list[Value]:
        """What is carried into the next iteration, from the end of a body."""
        return self._given(builder, scope, first=False)

    def _given(self, builder: Builder, scope: Scope, first: bool) -> list[Value]:
        places = [
            next(i for i, v in enumerate(op.inputs) if is_forward(v) != first) for op in self.merges
        ]
        pairs = list(zip(self.merges, places, strict=True))
        values = [scope.find(op.inputs[i]) for op, i in pairs]
        return values + [
            constant(builder, np.array(i, np.int32)) for op, i in pairs if op.results[1].uses
        ]

    def bound(self, keys: Iterable[Value], values: Iterable[Value]) -> Scope:
        return Scope(self.entered, dict(zip(keys, values, strict=True)))

    def block(self, keys: Sequence[Value]) -> tuple[Block, Scope]:
        block = Block([k.type for k in keys], [k.name for k in keys])
        return block, self.bound(keys, block.args)

    def ends(self) -> list[Value]:
        return [op.inputs[0] for op in self.exits]

    def next_values(self) -> list[Value]:
        return [v for op in self.merges for v in op.inputs if is_forward(v)]

    # ---- the two forms

    def make(self, builder: Builder) -> Scope:
        """Makes the loop; the scope of what lives in its last iteration."""
        effects = Effect.NONE
        for node in self.head:
            inner = node.item.walk() if isinstance(node.item, Frame) else ()
            ops = [node.item] if isinstance(node.item, Op) else [o for f in inner for o in f.ops]
            for op in ops:
                effects |= effects_of(op)
        return self.plain(builder) if effects is Effect.NONE else self.rotated(builder)

    def plain(self, builder: Builder) -> Scope:
        keys = self.carried()
        asked = self.condition.inputs[0]
        cond, scope = self.block(keys)
        inner = Builder(cond)
        self.whole.level(self.needed(self.head, [asked]), ALWAYS, scope, inner, [asked])
        inner.add(Yield([scope.find(asked)]))

        do, scope = self.block(keys)
        inner = Builder(do)
        nodes = self.with_needed([*self.body, *self.late], [])
        self.whole.level(nodes, frozenset([self.literal(1)]), scope, inner, self.next_values())
        inner.add(Yield(self.next(inner, scope)))

        new = self.loop(self.first(builder), cond, do, builder)
        scope = self.bound(keys, new.results)
        nodes = self.with_needed([*self.tail, *self.late], self.ends())
        self.whole.level(nodes, frozenset([self.literal(0)]), scope, builder, self.ends())
        return scope

    def rotated(self, builder: Builder) -> Scope:
        whole, asked = self.whole, self.condition.inputs[0]
        keys, kept = self.carried(), self.kept()
        first = self.first(builder)
        scope = self.bound(keys, first)
        whole.level(self.head, ALWAYS, scope, builder, [asked, *kept])
        first = [scope.find(asked), *first, *map(scope.find, kept)]

        keys = [self.condition.result, *keys, *(k for k in kept if k not in keys)]
        cond, scope = self.block(keys)
        Builder(cond).add(Yield([cond.args[0]]))
        do, scope = self.block(keys)
        inner = Builder(do)
        nodes = self.in_order(*self.switches, *self.body, *self.late)
        whole.level(nodes, frozenset([self.literal(1)]), scope, inner, self.next_values())
        values = self.next(inner, scope)
        scope = self.bound(self.carried(), values)
        whole.level(self.head, ALWAYS, scope, inner, [asked, *kept])
        inner.add(Yield([scope.find(asked), *values, *map(scope.find, kept)]))

        new = self.loop(first, cond, do, builder)
        scope = self.bound(keys, new.results)
        nodes = self.in_order(*self.switches, *self.tail, *self.late)
        whole.level(nodes, frozenset([self.literal(0)]), scope, builder, self.ends())
        return scope

    def loop(self, first: list[Value], cond: Block, do: Block, builder: Builder) -> Op:
        location = self.condition.location
        for op in (*self.merges, *self.exits):
            location = fuse(location, op.location)
        types = [v.type for v in first]
        new = builder.add(While.build([*first], {}, types, [cond, do], location))
        for value, argument in zip(new.results, cond.args, strict=True):
            value.name = argument.name
        for op in self.whole.guards.orders.enters(self.frame):
            self.whole.edges += [(new, earlier) for earlier in op.after]
            self.whole.inherit(new, op)
        return new

    # ---- the head

    def kept(self) -> list[Value]:
        """What the head gives to body and tail."""
        made = {v for n in self.head if isinstance(n.item, Op) for v in n.op.results}
        users = [*self.body, *self.tail, *self.late, *self.switches]
        used = [v for n in users for v in self.operands(n)]
        used += self.ends()
        ranks = self.whole.guards.rank
        asked = {p for n in users for g in self.whole.conditions(n) for p, _ in g}
        used += sorted(asked, key=ranks.__getitem__)
        return list(dict.fromkeys(v for v in used if v in made and v is not self.condition.result))

    def operands(self, node: Node) -> list[Value]:
        if isinstance(node.item, Frame):
            return [op.inputs[0] for op in self.whole.guards.orders.enters(node.item)]
        if node.item.name == "switch":
            return [node.item.inputs[0], *([] if self.steers(node.item) else node.item.inputs[1:])]
        if node.is_choice:
            return [node.item.inputs[i] for i in node.operands]
        return outer_values(node.item)

    def needed(self, nodes: Sequence[Node], values: Sequence[Value]) -> list[Node]:
        """Those of the nodes that values, and what makes them, need."""
        by_item: dict[Item, Node] = {n.item: n for n in nodes}
        pending: list[Item] = [v.producer for v in values if v.producer is not None]
        found: set[Item] = set()
        while pending:
            item = pending.pop()
            node = by_item.get(item)
            if node is None or item in found:
                continue
            found.add(item)
            pending += [v.producer for v in self.operands(node) if v.producer is not None]
            pending += self.before(item)
        return [n for n in nodes if n.item in found]

    def before(self, item: Item) -> list[Item]:
        """What an item runs after besides what it uses."""
        if isinstance(item, Frame) or item.name == "exit":
            return self.whole.waits(item)
        return list(item.after)

    def with_needed(self, nodes: Sequence[Node], values: Sequence[Value]) -> list[Node]:
        """Nodes, and those of the head that they and values need, in order."""
        used = [*values, *(v for n in nodes for v in self.operands(n))]
        head = [*self.head, *self.switches]
        return self.in_order(*nodes, *self.needed(head, used))

    def in_order(self, *nodes: Node) -> list[Node]:
        held = {n.item for n in nodes}
        return [n for n in self.nodes if n.item in held]
