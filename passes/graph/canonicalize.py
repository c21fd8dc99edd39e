"""canonicalize: applies algebraic rules until none fits any more."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Module
from tfc.ir.rewriting import Pattern, apply_patterns
from tfc.passes.base import Pass, PassContext, changes, register
from tfc.passes.graph import rules_arithmetic, rules_scale, rules_shape


@register("canonicalize")
@dataclass(frozen=True)
class Canonicalize(Pass):
    """Brings each op into the one form that other passes look for, and removes what does nothing.

    The rules stand in `rules_arithmetic.py` and `rules_shape.py`; they keep every bit. Those of
    `rules_scale.py`, which round differently, run with `fold-scales=true`. Ops that this leaves
    without a use go too.

    Before:
    ```mlir
    func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2x3xf32>) {
      %one = constant {value = dense<1.0>} : tensor<f32>
      %a = mul(%one, %x) : tensor<2x3xf32>
      %b = transpose(%a) {permutation = [1, 0]} : tensor<3x2xf32>
      %c = transpose(%b) {permutation = [1, 0]} : tensor<2x3xf32>
      %y = neg(%c) : tensor<2x3xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<2x3xf32>) -> (%y: tensor<2x3xf32>) {
      %y = neg(%x) : tensor<2x3xf32>
      return %y
    }
    ```
    """

    fold_scales: bool = False

    def run(self, module: Module, context: PassContext) -> bool:
        rules: tuple[Pattern, ...] = (*rules_arithmetic.RULES, *rules_shape.RULES)
        if self.fold_scales:
            rules += rules_scale.rules(module.weights)
        bodies = [f.body for f in module.functions.values()]
        return changes(apply_patterns(b, rules, context=context) > 0 for b in bodies)
