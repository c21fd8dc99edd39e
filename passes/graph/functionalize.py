"""functionalize: raises switch, merge, enter, exit and the like to `if` and `while`."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Function, Module, Op, Value
from tfc.ir.effects import blocks_of, pin
from tfc.ir.frame_order import Orders
from tfc.ir.frames import Frames, frames_of, has_primitive_control
from tfc.ops.dataflow import Switch
from tfc.ops.logic import LogicalNot
from tfc.passes.base import Pass, PassContext, changes, register
from tfc.passes.graph.guards import ALWAYS, Guards, refusal
from tfc.passes.graph.raise_loops import raise_loop
from tfc.passes.graph.structured import Scope, Structurer, settle_edges


@register("functionalize")
@dataclass(frozen=True)
class Functionalize(Pass):
    """Raises primitive control flow to `if` and `while`, loops and branches nested in any way.

    What is alive on one side of a condition goes into a region of an `if`, a frame becomes a
    `while`; effects keep their order, and control edges stay. Primitive control flow that has no
    such form is refused, with the op: `prune` first removes what no result needs.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>, %p: tensor<bool>) -> (%y: tensor<4xf32>) {
      %f, %t = switch(%x, %p) : tensor<4xf32>, tensor<4xf32>
      %n = neg(%f) : tensor<4xf32>
      %e = exp(%t) : tensor<4xf32>
      %y, %index = merge(%n, %e) : tensor<4xf32>, tensor<i32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>, %p: tensor<bool>) -> (%y: tensor<4xf32>) {
      %y = if(%p) : tensor<4xf32> then {
        %e = exp(%x) : tensor<4xf32>
        yield %e
      } else {
        %n = neg(%x) : tensor<4xf32>
        yield %n
      }
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        functions = [f for f in module.functions.values() if has_primitive_control(f)]
        return changes(_raise(f) for f in functions if context.allow("functionalize"))


def _raise(function: Function) -> bool:
    old = function.body
    for op in old:
        if isinstance(op, Switch):
            _without_not(op)
    frames = frames_of(old)
    if _without_unused_exits(old, frames):
        frames = frames_of(old)
    guards = Guards(Orders(old, frames, set(old)))
    whole = Structurer(guards, raise_loop)
    body = Block([a.type for a in old.args], [a.name for a in old.args])
    scope = Scope(None, dict(zip(old.args, body.args, strict=True)))
    builder = Builder(body)
    for op in old:
        if frames.of[op] is None:
            whole.copy(op, scope, builder)
    end = old.terminator
    _check_returned(end, guards)
    nodes = whole.nodes(guards.order_of[frames.root].items)
    whole.level(nodes, ALWAYS, scope, builder, _returned(end))
    whole.copy(end, scope, builder)
    settle_edges(whole)
    for block in list(blocks_of(body))[1:]:
        pin(block)  # a region runs what its end needs
    function.body, body.parent = body, function
    _clear(old)
    return True


def _without_not(op: Switch) -> None:
    """Turns a switch by `logical_not` round, so that two of one condition are seen to be so."""
    maker = op.predicate.producer
    while isinstance(maker, LogicalNot) and not maker.after:
        op.set_operand(1, maker.x)
        by_side = [(v, other) for v, other in zip(op.results, reversed(op.results), strict=True)]
        uses = [(user, index, other) for v, other in by_side for user, index in v.uses]
        for user, index, other in uses:
            user.set_operand(index, other)
        op.on_false.name, op.on_true.name = op.on_true.name, op.on_false.name
        maker = op.predicate.producer


def _without_unused_exits(body: Block, frames: Frames) -> bool:
    """Removes what leaves an inner loop for another loop, where nothing can ask for it."""
    unused = [
        op
        for op in body
        if op.name == "exit"
        and frames.of[op] is not frames.root
        and not (op.results[0].uses or op.control_users)
    ]
    for op in unused:
        op.erase()
    return bool(unused)


def _returned(end: Op) -> list[Value]:
    return end.inputs


def _check_returned(end: Op, guards: Guards) -> None:
    for value in end.inputs:
        guard = guards.of(value)
        if guard != ALWAYS and value.producer is not None:
            raise refusal(
                value.producer,
                f"the function returns %{value.name}, which may be dead ({guards.text(guard)})",
                "return what a `merge` makes of the branches, or what `live_or_zeros` gives",
            )


def _clear(block: Block) -> None:
    """Erases the ops of a block that nothing needs any more, with cycles among them."""
    for op in block:
        if op.name == "merge":
            op.set_operands(())
    block.clear()
