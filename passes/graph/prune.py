"""prune: removes what a function does not need for its returns and its targets."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Function, Module, Op
from tfc.ir.effects import is_pure, pin
from tfc.ir.frames import PRIMITIVE
from tfc.passes.base import Pass, PassContext, changes, register


@register("prune")
@dataclass(frozen=True)
class Prune(Pass):
    """Removes every op that neither the returned values nor the targets of `return` need.

    Needed is what they use or run after, and so on; this is how the TensorFlow white paper (arXiv
    1603.04467, section 3.2) runs part of a graph. Ops with effects go too, with a remark; those
    that stay become targets of their block's end, so that no rewrite of what uses them loses them
    (not among primitive control flow, where they may be dead).

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = exp(%x) : tensor<4xf32>
      %y = abs(%x) : tensor<4xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %y = abs(%x) : tensor<4xf32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        return changes(_prune(f.body, context) for f in module.functions.values())


def prune_function(function: Function, context: PassContext) -> bool:
    """Removes what a function does not need; whether there was any."""
    return _prune(function.body, context)


def _prune(body: Block, context: PassContext) -> bool:
    needed = _needed(body)
    changed = False
    for block in _blocks(body, needed):
        op = block.last
        while op is not None:
            previous = op.previous
            if op not in needed and context.allow("prune"):
                if not is_pure(op):
                    context.remark(
                        "prune", op, "no return and no target needs it, so it never runs"
                    )
                _cut_cycle(op)
                op.erase()
                changed = True
            op = previous
        primitive = any(op.name in PRIMITIVE for op in block)
        if not primitive and not context.exhausted and pin(block):
            changed |= context.allow("pin")
    return changed


def _cut_cycle(op: Op) -> None:
    """A `merge` that names what goes takes its first operand twice, until it goes itself."""
    if op.name == "next_iteration":
        for merge, index in list(op.results[0].uses):
            merge.set_operand(index, merge.operands[0])


def _needed(body: Block) -> dict[Op, None]:
    """The ops that the terminator needs, with all that their regions need."""
    pending = [body.terminator]
    needed: dict[Op, None] = {}
    while pending:
        op = pending.pop()
        if op in needed:
            continue
        needed[op] = None
        pending.extend(v.producer for v in op.inputs if v.producer is not None)
        pending.extend(op.after)
        pending.extend(r.terminator for r in op.regions if r.last is not None)
    return needed


def _blocks(body: Block, needed: dict[Op, None]) -> list[Block]:
    """The block and those inside needed ops, innermost first: users go before what they use."""
    inner = [b for op in body if op in needed for r in op.regions for b in _blocks(r, needed)]
    return [*inner, body]
