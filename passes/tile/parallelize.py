"""parallelize: how many programs of a kernel make a task worth a thread's attention."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Kernel, Module
from tfc.passes.base import Pass, PassContext, register
from tfc.targets import Target, resolve
from tfc.tile.cost import block_cycles
from tfc.tile.lanes import lanes_of

TASK_CYCLES = 20_000  # about 6 microseconds: what waking a parked thread takes


@register("parallelize")
@dataclass(frozen=True)
class Parallelize(Pass):
    """Writes the attribute `grain` of each kernel, from an estimate of what one program costs.

    Programs of a grid are independent, so that any number of them makes a task; the run divides the
    grid into a few tasks for each thread, but into none that is smaller than the grain.

    Before:
    ```mlir
    kernel @copy(%x: buffer<640xf32>, %y: buffer<640xf32, out>) grid(p0 = 10) {
      %0 = load(%x) {at = (c+64*p0)} : tile<1x64xf32>
      store(%y, %0) {at = (c+64*p0)}
    }
    ```
    After, for x86-64-v3:
    ```mlir
    kernel @copy(%x: buffer<640xf32>, %y: buffer<640xf32, out>) grid(p0 = 10) {grain = 625} {
      %0 = load(%x) {at = (c+64*p0)} : tile<1x64xf32>
      store(%y, %0) {at = (c+64*p0)}
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        target = context.target or resolve("host")
        changed = False
        for kernel in module.kernels.values():
            if "grain" not in kernel.attributes and context.allow("parallelize"):
                kernel.attributes["grain"] = grain(kernel, target)
                changed = True
        return changed


def grain(kernel: Kernel, target: Target) -> int:
    """The number of programs that take about `TASK_CYCLES`."""
    cycles = block_cycles(kernel.body, lanes_of(kernel, target))
    return max(1, round(TASK_CYCLES / max(cycles, 1.0)))
