"""The IR of groups: replaces ops that were gathered to groups by `fusion` ops."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfc.ir.core import Block, Location, Op, Value
from tfc.ir.effects import ancestor_in, conflicts, waits_of
from tfc.ir.expr import Dim
from tfc.ops.base import View
from tfc.ops.constant import Constant, DimValue, Iota
from tfc.ops.control import Fusion, Yield
from tfc.ops.indexing import Indexing
from tfc.ops.view import Reshape

MOST_COPIED = 32  # views behind one another that are copied rather than computed in between


@dataclass(eq=False)
class Group:
    """Ops that become one kernel. Outputs have the `shape`; the `level` is above all it uses."""

    kind: str
    shape: tuple[Dim, ...]
    ops: list[Op] = field(default_factory=list[Op])
    level: int = 0
    used: bool = False
    axes: tuple[int, ...] = ()
    alone: bool = False  # its op has a device or control dependencies: they hold for all of it
    tags: dict[Value, int] = field(default_factory=dict[Value, int])  # how many views lie before


def is_constrained(op: Op) -> bool:
    """Whether an op has a device, or control edges: others must not share its kernel."""
    return bool(op.after or op.control_users or op.device or op.colocated)


def is_free(op: Op) -> bool:
    """Whether an op costs nothing inside of a kernel: each group that reads it holds a copy."""
    if isinstance(op, Constant):
        return not op.after
    return isinstance(op, Iota | DimValue) and not is_constrained(op)


def _is_copied(op: Op | None) -> bool:
    """Whether a value of an op is computed again by each group that uses it."""
    if op is None or not is_free(op):
        return False
    return not isinstance(op, Constant) or op.splat is not None


def build(block: Block, groups: list[Group]) -> None:
    """Replaces the members of each group by one `fusion` op, and puts the ops in a right order.

    Groups of views alone are copied into those that read them, and stay only where something
    else does.
    """
    builder = _Builder(block, groups)
    kept = [g for g in groups if g.ops and (g not in builder.views or builder.is_needed(g))]
    for group in kept:
        if is_alias(group):
            continue
        fused, outputs = builder.make(group)
        block.insert(fused, min(group.ops, key=lambda o: builder.position[o]))
        if group.alone:
            fused.take_place(group.ops.pop())
            continue
        for old, new in zip(outputs, fused.results, strict=True):
            new.name = old.name
            builder.replaced[old] = new
    for old, new in builder.replaced.items():
        old.replace_uses(new)
    dead = sorted((o for g in groups for o in g.ops), key=lambda o: -builder.position[o])
    for op in dead:
        if not any(v.uses for v in op.results):
            op.erase()
    _sort(block)


def is_alias(group: Group) -> bool:
    """Whether the results are the operand's memory under other shapes."""
    return all(isinstance(o, Reshape) and o.x.tensor.layout is None for o in group.ops)


def group_counters(block: Block) -> bool:
    """Counters and sizes that are read in memory become kernels of their own; copied ones go."""
    counters = [op for op in block if is_free(op) and not isinstance(op, Constant)]
    for op in counters:
        if not op.result.uses:
            op.erase()
        else:
            body = Block()
            mapping: dict[Value, Value] = {}
            body.append(op.clone(mapping))
            body.append(Yield([mapping[op.result]]))
            fused = Fusion([], kind="map", types=[op.result.type], do=body)
            block.insert(fused, op)
            fused.take_place(op)
    return bool(counters)


class _Builder:
    def __init__(self, block: Block, groups: list[Group]) -> None:
        self.member = {op: group for group in groups for op in group.ops}
        self.position = {op: i for i, op in enumerate(block)}
        self.views = _copied_views(block, self.member)
        self.replaced: dict[Value, Value] = {}

    def is_needed(self, group: Group) -> bool:
        """Whether someone reads a group of views in memory: by index, or outside of kernels."""
        return any(self._reads(u, v) for o in group.ops for v in o.results for u in v.users)

    def _reads(self, user: Op, value: Value) -> bool:
        group = self.member.get(user)
        if group is None or (isinstance(user, Indexing) and user.x is value):
            return True
        maker = value.producer
        assert maker is not None, "a group makes its values"
        if group is self.member[maker]:
            return False
        # What only gives memory another shape is no kernel, which could hold a copy.
        return self.is_needed(group) if group in self.views else is_alias(group)

    def make(self, group: Group) -> tuple[Fusion, list[Value]]:
        """The `fusion` op of a group, not inserted yet, and the values that it replaces."""
        ops = sorted(group.ops, key=lambda o: self.position[o])
        inside = set(ops)
        outputs = [v for op in ops for v in op.results if any(u not in inside for u in v.users)]
        if group.alone:
            outputs = list(ops[0].results)
        if group in self.views:
            outputs = [v for v in outputs if any(self._reads(u, v) for u in v.users)]
        body = Block()
        mapping: dict[Value, Value] = {}
        inputs: list[Value] = []
        for op in ops:
            for value in op.inputs:
                if value.producer not in inside:
                    at_positions = isinstance(op, Indexing) and value is op.x
                    self._bring(value, body, mapping, inputs, at_positions)
        for op in ops:
            body.append(_unconstrained(op.clone(mapping)))
        body.append(Yield([mapping[v] for v in outputs]))
        fused = Fusion(inputs, kind=group.kind, types=[v.type for v in outputs], do=body)
        fused.location = Location((), ops[0].location.position).fused(*(o.location for o in ops))
        return fused, outputs

    def _bring(
        self,
        value: Value,
        body: Block,
        mapping: dict[Value, Value],
        inputs: list[Value],
        in_memory: bool,
    ) -> None:
        """Makes a value from outside available: copied if it costs nothing, else an argument."""
        if value in mapping:
            return
        maker = value.producer
        copied = _is_copied(maker) or (maker in self.member and self.member[maker] in self.views)
        if maker is None or in_memory or not copied:
            inputs.append(value)
            mapping[value] = body.add_arg(value.type)
            return
        for operand in maker.inputs:
            self._bring(operand, body, mapping, inputs, False)
        body.append(_unconstrained(maker.clone(mapping)))


def _copied_views(block: Block, member: dict[Op, Group]) -> set[Group]:
    """The groups of views that are copied into whoever reads them: not too many on end."""
    views = {g for g in member.values() if not g.alone and all(isinstance(o, View) for o in g.ops)}
    depth: dict[Op, int] = {}
    for op in block:
        if member.get(op) in views:
            depth[op] = 1 + max(
                (depth.get(v.producer, 0) for v in op.inputs if v.producer), default=0
            )
            if depth[op] > MOST_COPIED:
                views.discard(member[op])
                depth[op] = 0
    return views


def _unconstrained(op: Op) -> Op:
    """The op without device and control edges: those are its kernel's."""
    op.device = None
    for before in list(op.after):
        op.remove_after(before)
    return op


def _sort(block: Block) -> None:
    """Moves ops after what they use or conflict with, and else keeps their order."""
    apart = conflicts(block)
    done: set[Op] = set()
    order: list[Op] = []
    for root in block:
        stack: list[tuple[Op, bool]] = [(root, False)]
        while stack:
            op, ready = stack.pop()
            if op in done:
                continue
            if ready:
                done.add(op)
                order.append(op)
                continue
            stack.append((op, True))
            before = [*_needed(op, block), *apart.get(op, ())]
            stack.extend((o, False) for o in reversed(before) if o not in done)
    for op in order:
        op.detach()
    for op in order:
        block.append(op)


def _needed(op: Op, block: Block) -> list[Op]:
    """The ops of the block that must come before an op."""
    makers = (ancestor_in(block, o) for o in waits_of(op))
    return [o for o in makers if o is not None and o is not op]
