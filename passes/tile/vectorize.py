"""vectorize: says how many lanes the vectors of each kernel have."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Module
from tfc.passes.base import Pass, PassContext, register
from tfc.targets import resolve
from tfc.tile.lanes import ATTRIBUTE, natural_lanes


@register("vectorize")
@dataclass(frozen=True)
class Vectorize(Pass):
    """Writes the attribute `lanes` of each kernel, from its element types, extents and layouts.

    Tiles are logical: the backend cuts them into vectors of so many elements. The target says how
    wide a register is; on a GPU a program's threads are its lanes, and nothing is written.

    Before:
    ```mlir
    kernel @negate(%x: buffer<640xf32>, %y: buffer<640xf32, out>) grid(p0 = 10) {
      %0 = load(%x) {at = (c+64*p0)} : tile<1x64xf32>
      %1 = map(%0) {function = "neg"} : tile<1x64xf32>
      store(%y, %1) {at = (c+64*p0)}
    }
    ```
    After, for x86-64-v3:
    ```mlir
    kernel @negate(%x: buffer<640xf32>, %y: buffer<640xf32, out>) grid(p0 = 10) {lanes = 8} {
      %0 = load(%x) {at = (c+64*p0)} : tile<1x64xf32>
      %1 = map(%0) {function = "neg"} : tile<1x64xf32>
      store(%y, %1) {at = (c+64*p0)}
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        target = context.target or resolve("host")
        if target.gpu is not None:
            return False
        changed = False
        for kernel in module.kernels.values():
            if ATTRIBUTE not in kernel.attributes and context.allow("vectorize"):
                kernel.attributes[ATTRIBUTE] = natural_lanes(kernel, target)
                changed = True
        return changed
