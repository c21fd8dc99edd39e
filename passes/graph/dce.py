"""dce: removes ops without effects whose results nothing uses. One walk backwards, so linear."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Module
from tfc.ir.effects import erase_dead, is_dead
from tfc.passes.base import Pass, PassContext, changes, register


@register("dce")
@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Removes ops without effects whose results nothing uses.

    What ran after such an op now runs after what it ran after, and after what made its operands; an
    op that many wait for and which waits for many stays. Ops with effects stay; `prune` removes
    those that the function does not need.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = exp(%x) : tensor<4xf32>
      %b = neg(%a) : tensor<4xf32>
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
        containers = [*module.functions.values(), *module.kernels.values()]
        return changes(_run_block(c.body, context) for c in containers)


def _run_block(block: Block, context: PassContext) -> bool:
    changed = False
    op = block.last
    while op is not None:
        previous = op.previous
        if is_dead(op) and context.allow("dce"):
            erase_dead(op)
            changed = True
        else:
            for region in op.regions:
                changed |= _run_block(region, context)
        op = previous
    return changed
