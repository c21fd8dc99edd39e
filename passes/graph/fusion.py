"""fusion: gathers ops to groups, each of which becomes one kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from tfc.ir.core import Block, Effect, Function, Location, Module, Op, Value
from tfc.ir.expr import Dim
from tfc.ops.base import Elementwise, GraphOp, View, is_composite
from tfc.ops.constant import Constant, DimValue, Iota
from tfc.ops.control import Fusion, Yield
from tfc.ops.indexing import Indexing
from tfc.ops.shape import Pad
from tfc.ops.view import Reshape
from tfc.passes.base import Pass, PassContext, register

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
    levels, and an op joins only one whose level is above those of everything else that it uses.

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
            groups = _Grouping(function, context, self.largest).groups()
            if groups:
                _build(function, groups)
                changed = True
            changed |= _group_counters(function)
        return changed


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


class _Grouping:
    """Assigns each op of a function to a group, in one pass over them."""

    def __init__(self, function: Function, context: PassContext, largest: int) -> None:
        self.largest = largest
        self.function = function
        self.context = context
        self.group: dict[Op, Group] = {}
        self.level: dict[Op, int] = {}  # of ops in no group

    def groups(self) -> list[Group]:
        for op in self.function.body:
            if not _is_groupable(op):
                self._keep_apart(op)
            elif _is_constrained(op):
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
        if op is None:
            return 0
        return self.group[op].level if op in self.group else self.level[op]

    def _keep_apart(self, op: Op) -> None:
        inside = [v for o in op.walk() for v in o.inputs if v.producer is None or _outer(v, op)]
        levels = [self._level_of_use(v) for v in inside]
        levels += [self._op_level(o) for o in op.after]
        self.level[op] = max(levels, default=0) + (0 if _is_free(op) else 1)

    def _level_of_use(self, value: Value) -> int:
        if value.producer in self.group:
            self.group[value.producer].used = True  # type: ignore[index]
        return (
            self._level(value)
            if value.producer in self.level or value.producer in self.group
            else 0
        )

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

        What is costly is moved only where no element is computed twice.
        """
        for group in reversed(list(dict.fromkeys(self.group.values()))):
            if group.kind != "map" or not group.ops or group.alone:
                continue
            if _is_heavy(group) and not _is_read_once(group):
                continue
            if all(isinstance(op, View) for op in group.ops):
                continue  # copied into each group that reads them
            users = [u for o in group.ops for v in o.results for u in v.users if u not in group.ops]
            targets = list(dict.fromkeys(self.group.get(u) for u in users))
            if len(targets) != 1 or targets[0] is None or targets[0].kind not in TAKE_PROLOGUES:
                continue
            target = targets[0]
            if target.alone:
                continue
            if len(target.ops) + len(group.ops) > self.largest or _is_indexed(group, users):
                continue
            outputs = [
                v for o in group.ops for v in o.results if any(u not in group.ops for u in v.users)
            ]
            if len(outputs) != 1 or not self.context.allow("fuse-prologue"):
                continue
            for op in group.ops:
                self.group[op] = target
            target.ops = [*group.ops, *target.ops]
            group.ops = []


def _is_groupable(op: Op) -> bool:
    """Whether an op becomes part of a kernel."""
    if op.effects is not Effect.NONE or op.regions or op.terminator or _is_free(op):
        return False
    if not isinstance(op, GraphOp) or is_composite(op):
        return False
    return bool(op.hero) or isinstance(op, Elementwise | View | Indexing | Pad | Iota | DimValue)


def _is_constrained(op: Op) -> bool:
    """Whether an op has a device, or control edges: others must not share its kernel."""
    return bool(op.after or op.control_users or op.device or op.colocated)


def _is_free(op: Op) -> bool:
    """Whether an op costs nothing inside of a kernel: each group that reads it holds a copy."""
    return isinstance(op, Constant) or (isinstance(op, Iota | DimValue) and not _is_constrained(op))


def _is_copied(op: Op | None) -> bool:
    """Whether a value of an op is computed again by each group that uses it."""
    if isinstance(op, Constant):
        return op.splat is not None
    return op is not None and _is_free(op)


def _is_heavy(group: Group) -> bool:
    return any(getattr(op, "function", "") in HEAVY for op in group.ops)


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


def _outer(value: Value, op: Op) -> bool:
    """Whether a value is made outside of an op."""
    maker = value.producer
    while maker is not None:
        if maker is op:
            return False
        block = maker.parent
        maker = block.parent if block is not None and isinstance(block.parent, Op) else None
    return True


# ---- the IR of groups


def _build(function: Function, groups: list[Group]) -> None:
    """Replaces the members of each group by one `fusion` op, and puts the ops in a right order.

    Groups of views alone are copied into those that read them, and stay only where something
    else does.
    """
    builder = _Builder(function, groups)
    kept = [g for g in groups if g.ops and (g not in builder.views or builder.is_needed(g))]
    aliases = [g for g in kept if all(_is_alias(o) for o in g.ops)]
    for group in kept:
        if group in aliases:
            continue  # the same memory under another shape
        fused, outputs = builder.make(group)
        function.body.insert(fused, min(group.ops, key=lambda o: builder.position[o]))
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
    _sort(function.body)


def _is_alias(op: Op) -> bool:
    """Whether the result is the operand's memory under another shape."""
    return isinstance(op, Reshape) and op.x.tensor.layout is None


def _group_counters(function: Function) -> bool:
    """Counters and sizes that are read in memory become kernels of their own; copied ones go."""
    counters = [op for op in function.body if _is_free(op) and not isinstance(op, Constant)]
    for op in counters:
        if not op.result.uses:
            op.erase()
        else:
            body = Block()
            mapping: dict[Value, Value] = {}
            body.append(op.clone(mapping))
            body.append(Yield([mapping[op.result]]))
            fused = Fusion([], kind="map", types=[op.result.type], do=body)
            function.body.insert(fused, op)
            fused.take_place(op)
    return bool(counters)


class _Builder:
    def __init__(self, function: Function, groups: list[Group]) -> None:
        self.member = {op: group for group in groups for op in group.ops}
        self.position = {op: i for i, op in enumerate(function.body)}
        self.views = {g for g in groups if not g.alone and all(isinstance(o, View) for o in g.ops)}
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
        other = group is not self.member[maker]
        return group in self.views and other and self.is_needed(group)

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


def _unconstrained(op: Op) -> Op:
    """The op without device and control edges: those are its kernel's."""
    op.device = None
    for before in list(op.after):
        op.remove_after(before)
    return op


def _sort(block: Block) -> None:
    """Moves ops after what they use, and else keeps their order."""
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
            stack.extend((o, False) for o in reversed(_needed(op, block)) if o not in done)
    for op in order:
        op.detach()
    for op in order:
        block.append(op)


def _needed(op: Op, block: Block) -> list[Op]:
    """The ops of the block that must come before an op."""
    found: list[Op] = []
    for inner in op.walk():
        for maker in (*(v.producer for v in inner.inputs), *inner.after):
            while maker is not None and maker.parent is not block:
                parent = maker.parent.parent if maker.parent else None
                maker = parent if isinstance(parent, Op) else None
            if maker is not None and maker is not op:
                found.append(maker)
    return found
