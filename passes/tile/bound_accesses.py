"""bound-accesses: makes the accesses of kernels that were written by hand stay in their buffers."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Module
from tfc.passes.base import Pass, PassContext, register
from tfc.tile import ops as t
from tfc.tile.accesses import Access, accesses, check_form, is_inside


@register("bound-accesses")
@dataclass(frozen=True)
class BoundAccesses(Pass):
    """Bounds every load and store by its buffer, unless it is proved to stay inside.

    What is out of bounds reads as `other` and is not written. The kernels that groups are lowered
    to need no such bounds. Refused: a gather that cannot be bounded, and expressions that nothing
    can be proved about (loops from below 0, divisors that are not positive).

    Before:
    ```mlir
    kernel @shift(%x: buffer<100xf32>, %y: buffer<100xf32, out>) grid(p0 = 10) {
      %0 = load(%x) {at = (c+10*p0+1)} : tile<1x10xf32>
      store(%y, %0) {at = (c+10*p0)}
    }
    ```
    After:
    ```mlir
    kernel @shift(%x: buffer<100xf32>, %y: buffer<100xf32, out>) grid(p0 = 10) {
      %0 = load(%x) {at = (c+10*p0+1), where = [0, (c+10*p0+1), 100]} : tile<1x10xf32>
      store(%y, %0) {at = (c+10*p0)}
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for kernel in module.kernels.values():
            check_form(kernel)
            for access in list(accesses(kernel)):
                if not is_inside(access) and context.allow("bound-access"):
                    _bound(access, context)
                    changed = True
        return changed


def _bound(access: Access, context: PassContext) -> None:
    op = access.op
    if isinstance(op, t.Load) and op.indices:
        raise op.error(
            "it may read outside of its buffer",
            "index tiles come from wrap_index, of a size that keeps the position inside",
        )
    op.set_attribute("where", (*op.where, 0, op.at, access.elements))
    context.remark("bound-access", op, "it is not proved to stay inside of its buffer")
