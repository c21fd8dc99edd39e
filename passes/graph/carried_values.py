"""carried-values: loops carry, and branches give, only what is needed and what changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tfc.ir.core import Block, Module, Op, Value
from tfc.ir.effects import ancestor_in, home, is_pure, outer_values
from tfc.ops.control import If
from tfc.ops.loops import Scan, While
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph.inlining import stays_needed


@register("carried-values")
@dataclass(frozen=True)
class CarriedValues(Pass):
    """Takes out of `while`, `scan` and `if` the values that nothing needs or that never change.

    A value that each iteration passes on as it is becomes one from around the loop; so does what
    both branches give alike. A carried value, a sequence, an output or a result that neither
    something outside nor another needed value uses goes, one of them stays. Effects inside stay.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<i64>) {
      %n = constant {value = dense<4>} : tensor<i64>
      %zero = constant {value = dense<0>} : tensor<i64>
      %one = constant {value = dense<1>} : tensor<i64>
      %y, %s, %z = while(%zero, %one, %x) : tensor<i64>, tensor<i64>, tensor<4xf32>
          cond(%i: tensor<i64>, %d: tensor<i64>, %a: tensor<4xf32>) {
        %c = less(%i, %n) : tensor<bool>
        yield %c
      } do(%i: tensor<i64>, %d: tensor<i64>, %a: tensor<4xf32>) {
        %k = add(%i, %d) : tensor<i64>
        %b = exp(%a) : tensor<4xf32>
        yield %k, %d, %b
      }
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<i64>) {
      %n = constant {value = dense<4>} : tensor<i64>
      %zero = constant {value = dense<0>} : tensor<i64>
      %one = constant {value = dense<1>} : tensor<i64>
      %y = while(%zero) : tensor<i64> cond(%i: tensor<i64>) {
        %c = less(%i, %n) : tensor<bool>
        yield %c
      } do(%i: tensor<i64>) {
        %k = add(%i, %one) : tensor<i64>
        yield %k
      }
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        start = context.count
        for function in module.functions.values():
            _run_block(function.body, context)
        return context.count > start


def _run_block(block: Block, context: PassContext) -> None:
    """Outer ops first: they say what is needed of the inner ones."""
    for op in block:
        regions = list(op.regions)
        if isinstance(op, If | While | Scan):
            _simplify(op, context)
        for region in regions:
            _run_block(region, context)


def _simplify(op: If | While | Scan, context: PassContext) -> None:
    if not stays_needed(op) or not all(map(_effects_are_targets, op.regions)):
        return  # dropping a value might drop the need of an effect: `prune` comes first
    match op:
        case If():
            _same_in_both(op, context)
            used = [i for i, v in enumerate(op.results) if v.uses]
            if _is_less(used, op.results) and context.allow("branch-unused"):
                _rebuild(op, op.inputs, {op.then: used, op.else_: used}, {}, used)
        case While():
            _unchanged(op, [op.cond, op.do], len(op.inputs), context)
            _drop_from_while(op, context)
        case Scan():
            _unchanged(op, [op.do], op.carries, context)
            _drop_from_scan(op, context)


def _effects_are_targets(block: Block) -> bool:
    end = block.terminator
    held = {v.producer for v in end.inputs}
    return all(is_pure(op) or op in held or end in op.control_users for op in block)


def _is_less(kept: list[int], all_of: list[Value]) -> bool:
    return 0 < len(kept) < len(all_of)


# ---- what never changes


def _same_in_both(op: If, context: PassContext) -> None:
    for result, a, b in zip(
        op.results, op.then.terminator.inputs, op.else_.terminator.inputs, strict=True
    ):
        if a is b and result.uses and context.allow("branch-same"):
            _keep_needed(op)
            result.replace_uses(a)


def _unchanged(op: While | Scan, regions: list[Block], carries: int, context: PassContext) -> None:
    end = regions[-1].terminator
    for index in range(carries):
        initial = op.inputs[index]
        values = [op.results[index], *(r.args[index] for r in regions)]
        passes_on = end.inputs[index] in (values[-1], initial) and initial.type == values[0].type
        # The argument's use by the end is no reason to go on.
        used = any(u is not end for v in values for u, _ in v.uses)
        if passes_on and used and context.allow("carried-unchanged"):
            _keep_needed(op)
            for value in values:
                value.replace_uses(initial)


def _keep_needed(op: Op) -> None:
    """Lets the end of the block wait for effects that it needed through a result so far."""
    if not is_pure(op):
        assert op.parent is not None
        op.parent.terminator.add_after(op)


# ---- what nothing needs


@dataclass
class _Needs:
    """Which arguments of a region its needed ops use; `add` makes a value needed."""

    block: Block
    seen: set[Op] = field(default_factory=set[Op])
    arguments: dict[int, None] = field(default_factory=dict[int, None])

    def __post_init__(self) -> None:
        end = self.block.terminator
        for op in [o for o in self.block if not is_pure(o)] + end.after:
            self._visit(op)

    def add(self, value: Value) -> None:
        if value.owner is self.block:
            self.arguments[value.index] = None
        elif value.producer is not None:
            self._visit(value.producer)

    def _visit(self, op: Op) -> None:
        pending = [op]
        while pending:
            op = pending.pop()
            if op in self.seen or op.parent is not self.block:
                continue
            self.seen.add(op)
            pending.extend(op.after)
            for value in outer_values(op):
                if value.owner is self.block:
                    self.arguments[value.index] = None
                elif value.producer is not None and home(value) is self.block:
                    pending.append(value.producer)


def _live(start: list[int], do: Block, needs: _Needs, carried: Callable[[int], bool]) -> list[int]:
    """The places of what the end of `do` gives that are needed, by those that are needed anyway."""
    live: dict[int, None] = {}
    pending = list(start)
    while pending:
        index = pending.pop()
        if index in live:
            continue
        live[index] = None
        needs.add(do.terminator.inputs[index])
        pending.extend(i for i in needs.arguments if carried(i) and i not in live)
    return sorted(live)


def _drop_from_while(op: While, context: PassContext) -> None:
    test, body = _Needs(op.cond), _Needs(op.do)
    test.add(op.cond.terminator.inputs[0])
    used = [i for i, v in enumerate(op.results) if v.uses]
    live = _live([*used, *test.arguments, *body.arguments], op.do, body, lambda i: True)
    if _is_less(live, op.results) and context.allow("carried-unused"):
        initial = [op.inputs[i] for i in live]
        _rebuild(op, initial, {op.do: live}, {op.cond: live, op.do: live}, live)


def _drop_from_scan(op: Scan, context: PassContext) -> None:
    body = _Needs(op.do)
    used = [i for i, v in enumerate(op.results) if v.uses]
    given = [i for i in body.arguments if i < op.carries]
    live = _live([*used, *given], op.do, body, lambda i: i < op.carries)
    kept = [i for i in live if i < op.carries]
    kept += [i for i in range(op.carries, len(op.do.args)) if i in body.arguments]
    if not live or (len(live), len(kept)) == (len(op.results), len(op.do.args)):
        return
    if context.allow("carried-unused"):
        carries = sum(1 for i in live if i < op.carries)
        operands = [op.inputs[i] for i in kept]
        _rebuild(op, operands, {op.do: live}, {op.do: kept}, live, carries)


def _rebuild(
    op: If | While | Scan,
    operands: list[Value],
    ends: dict[Block, list[int]],
    arguments: dict[Block, list[int]],
    results: list[int],
    carries: int | None = None,
) -> None:
    """The op with fewer operands, results, arguments and values at the ends of its regions."""
    for block, kept in ends.items():
        _shorten(block.terminator, kept)
    blocks = list(op.regions)
    attributes = dict(op.attributes)
    if carries is not None:
        attributes["carries"] = carries
    types = [op.results[i].type for i in results]
    place = op.parent
    assert place is not None
    op.regions = []
    new = type(op).build([*operands], attributes, types, blocks, op.location)
    place.insert(new, op)
    op.results = [op.results[i] for i in results]  # nothing uses the others
    new.take_place(op)
    for block, kept in arguments.items():
        _keep_arguments(block, kept)


def _shorten(end: Op, kept: list[int]) -> None:
    """Gives fewer values; an effect that made one that goes stays needed."""
    values = [end.inputs[i] for i in kept]
    block = end.parent
    gone = [v.producer for v in end.inputs if v not in values]
    end.set_operands(values)
    for maker in gone:
        if maker is not None and maker.parent is block and not is_pure(maker):
            end.add_after(maker)


def _keep_arguments(block: Block, kept: list[int]) -> None:
    """Drops arguments with the dead ops that use them."""
    known = [block.args[i] for i in kept]
    gone = [a for a in block.args if a not in known]
    _erase_users(block, gone)
    assert not any(a.uses for a in gone), "a value that nothing needs is used"
    block.args[:] = known
    for index, argument in enumerate(known):
        argument.index = index


def _erase_users(block: Block, values: list[Value]) -> None:
    """Erases all ops of a block that compute something from values."""
    reached: dict[Op, None] = {}
    pending = [u for v in values for u in v.users]
    while pending:
        op = ancestor_in(block, pending.pop())
        if op is not None and op not in reached:
            reached[op] = None
            pending.extend(u for v in op.results for u in v.users)
    for op in reached:
        for inner in op.walk():
            inner.set_operands(())
    for op in reached:
        op.erase()
