"""control-edges: keeps only the control edges that say something. Linear but for sets of bits."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Module, Op
from tfc.ir.effects import ancestor_in, blocks_of, erase_dead, is_barrier, is_pure, waits_of
from tfc.ir.frames import PRIMITIVE
from tfc.ops.constant import Constant
from tfc.ops.loops import NoOp
from tfc.ops.view import Identity
from tfc.passes.base import Pass, PassContext, register


@register("control-edges")
@dataclass(frozen=True)
class ControlEdges(Pass):
    """Removes control edges from constants and those that values and other edges imply.

    An op without effects that others only wait for goes: they wait for what it waited for. Where
    these are many on both sides, a `no_op` takes its place. An edge into a region becomes one of
    the op that holds it. Identities go, but not those that are returned, that order others, or that
    stand behind a `switch`. What the end of a block waits for and has effects stays, since nothing
    else may need it later.

    Before:
    ```mlir
    variable @v : tensor<4xf32>
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = assign(@v, %x) : tensor<4xf32>
      %unused = neg(%a) : tensor<4xf32>
      %b = read(@v) after(%a, %unused) : tensor<4xf32>
      %y = exp(%b) after(%a) : tensor<4xf32>
      return %y
    }
    ```
    After:
    ```mlir
    variable @v : tensor<4xf32>
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = assign(@v, %x) : tensor<4xf32>
      %b = read(@v) after(%a) : tensor<4xf32>
      %y = exp(%b) : tensor<4xf32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        start = context.count
        for function in module.functions.values():
            for op in function.body.walk():
                _lift(op, context)
            for block in list(blocks_of(function.body)):
                _drop_constants(block, context)
                _drop_unused(block, context)
                _drop_identities(block, context)
                _Reduction(block, context).run()
        return context.count > start


def _lift(op: Op, context: PassContext) -> None:
    """Moves edges from outside of the op's block to the op around it."""
    for earlier in [o for o in op.after if o.parent is not op.parent]:
        assert earlier.parent is not None
        holder = ancestor_in(earlier.parent, op)
        assert holder is not None, "an op waits for one that is visible"
        if context.allow("lift"):
            op.remove_after(earlier)
            holder.add_after(earlier)


def _drop_constants(block: Block, context: PassContext) -> None:
    """Whoever waits for a constant waits for what that waits for."""
    for op in block:
        if isinstance(op, Constant):
            for user in list(op.control_users):
                if context.allow("edge-from-constant"):
                    user.remove_after(op)
                    for earlier in op.after:
                        user.add_after(earlier)


def _drop_unused(block: Block, context: PassContext) -> None:
    """Ops that are only waited for, the last first: then what they waited for may be next."""
    op = block.last
    while op is not None:
        previous = op.previous
        if _is_only_waited_for(op) and not (isinstance(op, NoOp) and is_barrier(op)):
            if not context.allow("only-waited-for"):
                return
            if is_barrier(op):
                _as_barrier(op)
            else:
                erase_dead(op)
        op = previous


def _is_only_waited_for(op: Op) -> bool:
    if not op.control_users or op.terminator or any(v.uses for v in op.results):
        return False
    # Behind a switch it may never run, and then nor does what waits for it.
    gated = any(o.name in PRIMITIVE for o in (op, *waits_of(op)))
    return is_pure(op) and not gated


def _as_barrier(op: Op) -> None:
    barrier = NoOp()
    barrier.location, barrier.device = op.location, op.device
    assert op.parent is not None
    op.parent.insert(barrier, op)
    for earlier in waits_of(op):
        barrier.add_after(earlier)
    for user in list(op.control_users):
        user.remove_after(op)
        user.add_after(barrier)
    op.erase()


def _drop_identities(block: Block, context: PassContext) -> None:
    for op in block:
        if not isinstance(op, Identity) or op.after or op.control_users or op.device:
            continue
        behind_switch = op.x.producer is not None and op.x.producer.name in PRIMITIVE
        at_border = any(user.terminator for user in op.result.users)
        if not behind_switch and not at_border and context.allow("identity"):
            op.replace([op.x])


class _Reduction:
    """The transitive reduction of the control edges of a block.

    `reach` holds, as bits, which ops that others wait for run before an op; it is kept until the
    last op behind has seen it.
    """

    def __init__(self, block: Block, context: PassContext) -> None:
        self.block = block
        self.context = context
        self.bits = {op: 1 << i for i, op in enumerate(o for o in block if o.control_users)}
        self.before = {op: self._before(op) for op in block} if self.bits else {}
        self.reach: dict[Op, int] = {}
        self.left: dict[Op, int] = {}
        for ops in self.before.values():
            for op in ops:
                self.left[op] = self.left.get(op, 0) + 1

    def _before(self, op: Op) -> list[Op]:
        """The ops of the block that surely ran when an op runs."""
        if op.name == "merge":
            return []  # one of its operands is enough
        found = (ancestor_in(self.block, o) for o in waits_of(op))
        return list(dict.fromkeys(o for o in found if o is not None and o is not op))

    def run(self) -> None:
        for op, before in self.before.items():
            implied = 0
            for earlier in before:
                implied |= self.reach.get(earlier, 0)
            self._reduce(op, implied)
            for earlier in before:
                implied |= self.bits.get(earlier, 0)
                self.left[earlier] -= 1
                if not self.left[earlier]:
                    self.reach.pop(earlier, None)
            if op in self.left:
                self.reach[op] = implied

    def _reduce(self, op: Op, implied: int) -> None:
        if not op.after:
            return
        makers = {v.producer for v in op.inputs}
        for earlier in list(op.after):
            known = earlier in makers or bool(implied & self.bits.get(earlier, 0))
            kept = op.terminator and earlier not in makers and not is_pure(earlier)
            if known and not kept and self.context.allow("implied"):
                op.remove_after(earlier)
