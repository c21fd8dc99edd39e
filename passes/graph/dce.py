"""dce: removes ops without effects whose results nothing uses. One walk backwards, so linear."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Effect, Module, Op
from tfc.passes.base import Pass, PassContext, changes, register


@register("dce")
@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Removes ops without effects whose results nothing uses.

    What ran after such an op now runs after what it ran after. Ops with effects stay; `prune`
    removes those that the function does not need.

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
            op.erase()
            changed = True
        else:
            for region in op.regions:
                changed |= _run_block(region, context)
        op = previous
    return changed


def is_dead(op: Op) -> bool:
    """Whether an op may go: nothing uses its results, and running it does nothing else."""
    return not op.terminator and not any(v.uses for v in op.results) and is_pure(op)


def is_pure(op: Op) -> bool:
    """Whether an op, and those of its regions, have no effects besides reading."""
    return all(o.effects in (Effect.NONE, Effect.READ) for o in op.walk())
