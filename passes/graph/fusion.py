"""fusion: gathers ops to groups, each of which becomes one kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tfc.ir.core import Block, Effect, Module, Op, Value
from tfc.ir.effects import blocks_of, conflicts, waits_of
from tfc.ir.expr import Dim
from tfc.ir.frames import refuse_cycles
from tfc.ops.base import Elementwise, GraphOp, View, is_composite
from tfc.ops.constant import DimValue, Iota
from tfc.ops.indexing import Indexing
from tfc.ops.shape import Pad
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph.groups import Group, build, group_counters, is_constrained, is_free

HEAVY = {"exp", "expm1", "log", "log1p", "erf", "tanh", "sigmoid", "softplus", "pow", "sin", "cos"}
FOLLOWED_BY_VIEWS = {"contraction", "attention"}
TAKE_PROLOGUES = {"map", "reduction", "concat"}


@register("fusion")
@dataclass(frozen=True)
class FusionPass(Pass):
    """Makes groups (`fusion` ops) around a hero, or of elementwise ops alone.

    What follows a contraction, convolution, pool or attention element by element joins its group,
    views behind a contraction or attention too; several reductions over the same axes and all that
    lies between share one group. Views, splat constants and counters cost nothing and are copied
    into each group that reads them. A group never depends on itself through another: groups have
    levels, and an op joins only one whose level is above those of everything else that it uses. Ops
    with control edges are groups of their own; each block has its groups.

    Before:
    ```mlir
    func @main(%x: tensor<Sx8xf32>, %b: tensor<8xf32>) -> (%y: tensor<Sx8xf32>) {
      %s = add(%x, %b) : tensor<Sx8xf32>
      %y = tanh(%s) : tensor<Sx8xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<Sx8xf32>, %b: tensor<8xf32>) -> (%y: tensor<Sx8xf32>) {
      %y = fusion(%x, %b) {kind = "map"} : tensor<Sx8xf32>
          do(%0: tensor<Sx8xf32>, %1: tensor<8xf32>) {
        %s = add(%0, %1) : tensor<Sx8xf32>
        %y_1 = tanh(%s) : tensor<Sx8xf32>
        yield %y_1
      }
      return %y
    }
    ```
    """

    largest: int = 64  # ops of a group: bounds what one kernel takes to compile

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for function in module.functions.values():
            refuse_cycles(function, "fusion")
            blocks = list(blocks_of(function.body))
            for block in reversed(blocks):  # inner ones first: what they read is then known
                groups = _Grouping(block, context, self.largest).groups()
                if groups:
                    build(block, groups)
                    changed = True
            for block in reversed(blocks):
                changed |= group_counters(block)
        return changed


class _Grouping:
    """Assigns each op of a block to a group, in one pass over them."""

    def __init__(self, block: Block, context: PassContext, largest: int) -> None:
        self.largest = largest
        self.block = block
        self.conflicts = conflicts(block)
        self.context = context
        self.group: dict[Op, Group] = {}
        self.level: dict[Op, int] = {}  # of ops in no group

    def groups(self) -> list[Group]:
        for op in self.block:
            if not _is_groupable(op):
                self._keep_apart(op)
            elif is_constrained(op):
                self._add_alone(op)
            elif isinstance(op, GraphOp) and op.hero:
                self._add_hero(op)
            else:
                self._add_elementwise(op)
        self._merge_prologues()
        return list(dict.fromkeys(self.group.values()))

    # ---- levels

    def _level(self, value: Value) -> int:
        op = value.producer
        if op is None or op.parent is not self.block:
            return 0
        return self.group[op].level if op in self.group else self.level[op]

    def _keep_apart(self, op: Op) -> None:
        before = (*waits_of(op), *self.conflicts.get(op, ()))
        levels = map(self._op_level, before)
        self.level[op] = max(levels, default=0) + (0 if is_free(op) else 1)

    def _op_level(self, op: Op) -> int:
        if op in self.group:
            self.group[op].used = True
            return self.group[op].level
        return self.level.get(op, 0)

    def _joins(self, group: Group, op: Op) -> bool:
        """Adds the op to the group unless the group might then depend on itself."""
        if group.alone:
            self.context.remark("constrained", op, "its producer has a device or control edges")
            return False
        if len(group.ops) >= self.largest:
            self.context.remark("group-is-full", op, f"the group has {self.largest} ops already")
            return False
        if not self.context.allow("fuse"):
            return False
        need = self._need(op, group)
        if need > group.level:
            if group.used:
                self.context.remark("needs-later-value", op, "another operand is computed later")
                return False
            group.level = need
        self._mark(op, group)
        group.ops.append(op)
        self.group[op] = group
        return True

    def _need(self, op: Op, group: Group | None) -> int:
        others = [v for v in op.inputs if group is None or self._group_of(v) is not group]
        return max(map(self._level, others), default=0) + 1

    def _group_of(self, value: Value) -> Group | None:
        return self.group.get(value.producer) if value.producer else None

    def _mark(self, op: Op, group: Group) -> None:
        for value in op.inputs:
            for maker in _makers(value):
                other = self.group.get(maker)
                if other is not None and other is not group:
                    other.used = True

    def _start(self, op: Op, kind: str, shape: tuple[Dim, ...]) -> Group:
        group = Group(kind, shape, level=self._need(op, None))
        self._mark(op, group)
        group.ops.append(op)
        group.tags = dict.fromkeys(op.results, 0)
        self.group[op] = group
        return group

    def _add_alone(self, op: Op) -> None:
        group = self._start(op, getattr(op, "hero", "") or "map", op.results[0].tensor.shape)
        group.level = max(group.level, *(self._op_level(o) + 1 for o in op.after), 1)
        group.alone = True
        if group.kind == "reduction":
            group.axes = _reduced_axes(op)

    # ---- heroes

    def _add_hero(self, op: GraphOp) -> None:
        if op.hero == "reduction":
            self._add_reduction(op)
            return
        self._start(op, op.hero, op.results[0].tensor.shape)

    def _add_reduction(self, op: GraphOp) -> None:
        """Joins the group of a reduction over the same axes of the same shape that feeds it."""
        x = op.inputs[0]
        axes = _reduced_axes(op)
        for maker in _makers(x):
            group = self.group.get(maker)
            if group is None or group.kind != "reduction" or group.axes != axes:
                continue
            fits = group.shape == x.tensor.shape and self._is_summing(group, op)
            if fits and self._joins(group, op):
                group.tags[op.results[0]] = 0
                return
        group = self._start(op, "reduction", x.tensor.shape)
        group.axes = axes

    def _is_summing(self, group: Group, op: Op) -> bool:
        """argmax and argmin stay alone: their kernels carry positions."""
        return not any(o.name in ("argmax", "argmin") for o in (*group.ops, op))

    # ---- elementwise ops, views, gathers

    def _add_elementwise(self, op: Op) -> None:
        candidates = [self.group[m] for v in op.inputs for m in [v.producer] if m in self.group]
        for group in sorted(dict.fromkeys(candidates), key=lambda g: -g.level):
            if self._extends(group, op) and self._joins(group, op):
                inner = [v for v in op.inputs if v in group.tags]
                tag = max((group.tags[v] for v in inner), default=0)
                group.tags[op.results[0]] = tag + (0 if isinstance(op, Elementwise) else 1)
                return
        self._start(op, "map", op.results[0].tensor.shape)

    def _extends(self, group: Group, op: Op) -> bool:
        """Whether an op can be computed element by element behind a group."""
        if group.kind == "map":
            return self._extends_map(group, op)
        shape = op.results[0].tensor.shape
        inner = [v for v in op.inputs if v in group.tags]
        if group.kind == "reduction":
            return isinstance(op, Elementwise) and _follows_reduction(group, op)
        if group.kind in ("concat", "scan"):
            return False
        if isinstance(op, Elementwise):
            same = {(group.tags[v], v.tensor.shape, v.tensor.layout) for v in inner}
            whole = (group.tags[inner[0]], shape, op.results[0].tensor.layout)
            return same == {whole}
        if group.kind not in FOLLOWED_BY_VIEWS or not isinstance(op, View):
            return False
        has_target = type(op).target is not View.target
        return has_target and len(inner[0].users) == 1

    def _extends_map(self, group: Group, op: Op) -> bool:
        shape = op.results[0].tensor.shape
        if isinstance(op, Indexing) and op.x in group.tags:
            return False
        if not isinstance(op, View) and all(isinstance(o, View) for o in group.ops):
            return False  # whoever reads views has a copy of them
        inner = [v for v in op.inputs if v in group.tags]
        if isinstance(op, Elementwise) and all(v.tensor.shape == shape for v in inner):
            same_layout = all(v.tensor.layout == op.results[0].tensor.layout for v in inner)
            return same_layout and shape == group.shape
        # The group would be computed at other indices: only if nobody else needs it.
        if not self._is_exclusive(group, [op]) or _is_heavy(group):
            return False
        group.shape = shape
        return True

    def _is_exclusive(self, group: Group, users: Collection[Op]) -> bool:
        known = {*group.ops, *users}
        return all(u in known for o in group.ops for v in o.results for u in v.users)

    # ---- prologues

    def _merge_prologues(self) -> None:
        """Moves a group of elementwise ops into the only group that uses it.

        What is costly is moved only where no element is computed twice; views are copied anyway.
        """
        for group in reversed(list(dict.fromkeys(self.group.values()))):
            if group.kind != "map" or not group.ops or group.alone:
                continue
            if all(isinstance(op, View) for op in group.ops):
                continue
            target = self._only_reader(group)
            if target is None or _is_costly(group, target):
                continue
            if not self.context.allow("fuse-prologue"):
                continue
            for op in group.ops:
                self.group[op] = target
            target.ops = [*group.ops, *target.ops]
            group.ops = []

    def _only_reader(self, group: Group) -> Group | None:
        """The group that alone reads a single value of another, and has room for it.

        Values that the block gives too become outputs of the reader, where that has their shape.
        """
        values = [v for o in group.ops for v in o.results]
        outputs = [v for v in values if any(u not in group.ops for u in v.users)]
        users = [u for v in outputs for u in v.users if u not in group.ops]
        readers = list(dict.fromkeys(self.group.get(u) for u in users if not u.terminator))
        if len(readers) != 1 or _is_indexed(group, users):
            return None
        (reader,) = readers
        if reader is None or reader.alone or reader.kind not in TAKE_PROLOGUES:
            return None
        single = len(outputs) == 1 and not any(u.terminator for u in users)
        if not single and not _is_side_by_side(group, reader):
            return None
        return reader if len(reader.ops) + len(group.ops) <= self.largest else None


def _is_groupable(op: Op) -> bool:
    """Whether an op becomes part of a kernel."""
    if op.effects is not Effect.NONE or op.regions or op.terminator or is_free(op):
        return False
    if not isinstance(op, GraphOp) or is_composite(op):
        return False
    return bool(op.hero) or isinstance(op, Elementwise | View | Indexing | Pad | Iota | DimValue)


def _is_heavy(group: Group) -> bool:
    return any(getattr(op, "function", "") in HEAVY for op in group.ops)


def _is_costly(group: Group, reader: Group) -> bool:
    """Whether a group is costly, and the reader might compute its elements more than once."""
    return _is_heavy(group) and not _is_read_once(group) and not _is_side_by_side(group, reader)


def _is_side_by_side(group: Group, reader: Group) -> bool:
    """Whether both compute each element by itself, at the same place."""
    if group.kind != "map" or reader.kind != "map":
        return False
    types = [v.tensor for o in (*group.ops, *reader.ops) for v in o.results]
    plain = all(isinstance(o, Elementwise) for o in (*group.ops, *reader.ops))
    return plain and all((t.shape, t.layout) == (types[0].shape, types[0].layout) for t in types)


def _is_read_once(group: Group) -> bool:
    """Whether one op alone reads a group, and computes each element of it once."""
    made = {v: None for o in group.ops for v in o.results}
    uses = [user for v in made for user, _ in v.uses if user not in group.ops]
    return len(uses) == 1 and getattr(uses[0], "hero", "") in TAKE_PROLOGUES


def _is_indexed(group: Group, users: list[Op]) -> bool:
    """Whether a user reads the group at computed positions, which needs it in memory."""
    made = {v for o in group.ops for v in o.results}
    return any(isinstance(u, Indexing) and u.x in made for u in users)


def _reduced_axes(op: Op) -> tuple[int, ...]:
    axes = getattr(op, "axes", None)
    return tuple(axes) if axes is not None else (op.attributes["axis"],)


def _follows_reduction(group: Group, op: Op) -> bool:
    """Whether an elementwise op has a place for each element of the domain or of the results.

    Results that lost their axes must meet the domain's elements at the right axes, the last ones.
    """
    result = op.results[0].tensor
    first = next(o for o in group.ops if getattr(o, "hero", "") == "reduction")
    if result.shape not in (group.shape, _reduced(group)):
        return False
    layout = first.inputs[0].tensor.layout if result.shape == group.shape else None
    shorter = any(v.tensor.rank < result.rank for v in op.inputs if v in group.tags)
    leading = group.axes == tuple(range(len(group.axes)))
    return result.layout == layout and (leading or not shorter)


def _reduced(group: Group) -> tuple[Dim, ...]:
    """The shape of the results of reductions that keep their axes, or of a single one."""
    first = next(o for o in group.ops if getattr(o, "hero", "") == "reduction")
    return first.results[0].tensor.shape


def _makers(value: Value) -> Iterator[Op]:
    """The op that makes a value; behind an input there is none."""
    if value.producer is not None:
        yield value.producer
