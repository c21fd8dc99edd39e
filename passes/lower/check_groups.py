"""check-groups: refuses groups, written by hand, that no kernel can be built of."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Module
from tfc.ir.errors import TfcError
from tfc.ops.control import Fusion
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.lower.lower import build
from tfc.passes.lower.schedule import choose
from tfc.targets import resolve


@register("check-groups")
@dataclass(frozen=True)
class CheckGroups(Pass):
    """Builds the kernel of each `fusion` once, and throws it away.

    The groups that the pass `fusion` makes fit their kernels. Of others the verifier knows what a
    group holds, but not all that a kernel asks of shapes and of the order of its ops.

    Before:
    ```mlir
    func @main(%x: tensor<64xf32>) -> (%y: tensor<64xf32>) {
      %y = fusion(%x) {kind = "map"} : tensor<64xf32> do(%u: tensor<64xf32>) {
        %t = exp(%u) : tensor<64xf32>
        yield %t
      }
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<64xf32>) -> (%y: tensor<64xf32>) {
      %y = fusion(%x) {kind = "map"} : tensor<64xf32> do(%u: tensor<64xf32>) {
        %t = exp(%u) : tensor<64xf32>
        yield %t
      }
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        for function in module.functions.values():
            for op in function.body.walk():
                if isinstance(op, Fusion):
                    _check(op, context)
        return False


def _check(op: Fusion, context: PassContext) -> None:
    trial = op.clone({v: v for v in op.inputs})
    assert isinstance(trial, Fusion)
    try:
        if not trial.schedule:
            trial.set_attribute("schedule", str(choose(trial, context.target or resolve("host"))))
        build(trial, "trial")
    except TfcError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise op.error(
            f"no {op.kind} kernel can be built of this group", f"the builder stopped with {reason}"
        ) from error
    finally:
        trial.erase()
