"""decompose: replaces composites by the ops that they are made of."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Effect, Module, Op, effects_of
from tfc.ir.frames import refuse_cycles
from tfc.ops.attention import Attention
from tfc.ops.base import Composite
from tfc.ops.constant import Constant
from tfc.ops.loops import While
from tfc.passes.base import Pass, PassContext, changes, register


@register("decompose")
@dataclass(frozen=True)
class Decompose(Pass):
    """Replaces each composite by the ops that its class says, until only primitives are left.

    So is an attention that has no kernel, and a loop that is bounded, which then counts. Those
    named in `keep` stay, as in `decompose{keep=softmax+gelu}`.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %y = relu(%x) : tensor<4xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %0 = constant {value = dense<0.0>} : tensor<f32>
      %y = maximum(%x, %0) : tensor<4xf32>
      return %y
    }
    ```
    """

    keep: tuple[str, ...] = ()

    def run(self, module: Module, context: PassContext) -> bool:
        for function in module.functions.values():
            refuse_cycles(function, "decompose")
        return changes(self._run_block(f.body, context) for f in module.functions.values())

    def _run_block(self, block: Block, context: PassContext) -> bool:
        changed = False
        op = block.first
        while op is not None:
            changed |= changes(self._run_block(region, context) for region in op.regions)
            if self._applies(op) and context.allow(f"decompose-{op.name}"):
                op = _replace(op)
                changed = True
            else:
                op = op.next
        return changed

    def _applies(self, op: Op) -> bool:
        if op.name in self.keep:
            return False
        if isinstance(op, While):
            return op.maximum >= 0
        return isinstance(op, Composite) or (isinstance(op, Attention) and not op.has_kernel)


def _replace(op: Op) -> Op | None:
    """Replaces a composite; the op to look at next, the first of its parts."""
    assert isinstance(op, Composite | Attention | While)
    previous, block = op.previous, op.parent
    assert block is not None
    values = op.decompose(Builder.before_op(op))
    parts: list[Op] = []
    part = previous.next if previous else block.first
    while part is not None and part is not op:
        part.device = op.device
        parts.append(part)
        part = part.next
    for part in _waiting(parts):
        for other in op.after:
            part.add_after(other)
    op.replace(values)
    return previous.next if previous else block.first


def _waiting(parts: list[Op]) -> list[Op]:
    """The parts that run after what the composite ran after: those with effects, if any has some.

    When the others run is then seen nowhere; with an edge they would be no part of a larger kernel.
    Constants run at no time.
    """
    with_effects = [part for part in parts if effects_of(part) is not Effect.NONE]
    return with_effects or [part for part in parts if not isinstance(part, Constant)]
