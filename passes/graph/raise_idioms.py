"""raise-idioms: recognises composites that exporters spell out, and attention."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Module
from tfc.ir.rewriting import apply_patterns
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph import (
    rules_raise_activation,
    rules_raise_attention,
    rules_raise_normalization,
)

RULES = (
    *rules_raise_normalization.RULES,
    *rules_raise_activation.RULES,
    *rules_raise_attention.RULES,
)


@register("raise-idioms", level="graph", promises="graph")
@dataclass(frozen=True)
class RaiseIdioms(Pass):
    """Makes one op of each idiom: softmax, layer and RMS norm, GELU, SiLU, hard swish, attention.

    Exporters write these as many small ops, in several ways. A group becomes one op only where
    nothing else uses what is between and the constants are those of the formula. What computes in
    f16 or bf16 rounds once afterwards.

    Before:
    ```mlir
    func @main(%x: tensor<2x4xf32>) -> (%y: tensor<2x4xf32>) {
      %s = sigmoid(%x) : tensor<2x4xf32>
      %y = mul(%x, %s) : tensor<2x4xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<2x4xf32>) -> (%y: tensor<2x4xf32>) {
      %y = silu(%x) : tensor<2x4xf32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        found = [apply_patterns(f, RULES, context=context) for f in module.functions.values()]
        return any(found)
