"""unroll: writes out short loops with small bodies."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Module, Op
from tfc.passes.base import Pass, PassContext, register
from tfc.targets import resolve
from tfc.tile import ops as t
from tfc.tile.cost import op_cycles, trip_count
from tfc.tile.lanes import lanes_of


@register("unroll")
@dataclass(frozen=True)
class Unroll(Pass):
    """Sets `unroll` on loops whose iterations together take few cycles, the inner ones first.

    Straight code knows the loop variable, reads an element that several iterations need once, and
    keeps the carried tiles where they are: windows of pools take half the time. A loop around one
    that stays a loop stays as well. So do loops around products, which fill the registers: two of
    them in one piece of code share operands, and accumulators spill (a convolution for AVX2 takes
    a tenth longer). On a GPU the compiler of the kernel decides.

    Before:
    ```mlir
    kernel @pool(%x: buffer<640xf32>, %y: buffer<320xf32, out>) grid(p0 = 20) {
      %0 = tile_full {value = 0.0} : tile<1x16xf32>
      %1 = for(%0) {index = "i0", stop = 2} : tile<1x16xf32> do(%2: tile<1x16xf32>) {
        %3 = load(%x) {at = (c+16*i0+32*p0)} : tile<1x16xf32>
        %4 = map(%2, %3) {function = "add"} : tile<1x16xf32>
        next %4
      }
      store(%y, %1) {at = (c+16*p0)}
    }
    ```
    After:
    ```mlir
    kernel @pool(%x: buffer<640xf32>, %y: buffer<320xf32, out>) grid(p0 = 20) {
      %0 = tile_full {value = 0.0} : tile<1x16xf32>
      %1 = for(%0) {index = "i0", stop = 2, unroll = true} : tile<1x16xf32> do(%2: tile<1x16xf32>) {
        %3 = load(%x) {at = (c+16*i0+32*p0)} : tile<1x16xf32>
        %4 = map(%2, %3) {function = "add"} : tile<1x16xf32>
        next %4
      }
      store(%y, %1) {at = (c+16*p0)}
    }
    ```
    """

    cycles: int = 600  # of all iterations together; measured: 3x3 windows gain, whole 5x5 lose

    def run(self, module: Module, context: PassContext) -> bool:
        target = context.target or resolve("host")
        if target.gpu is not None:
            return False
        changed = False
        for kernel in module.kernels.values():
            unrolling = _Unrolling(lanes_of(kernel, target), self.cycles, context)
            unrolling.block(kernel.body)
            changed |= unrolling.changed
        return changed


@dataclass
class _Unrolling:
    """The loops of one kernel."""

    lanes: int
    limit: float
    context: PassContext
    changed: bool = False

    def block(self, block: Block) -> float | None:
        """The cycles of a block once its loops are unrolled.

        None if one stays a loop, or if there are products.
        """
        total: float | None = 0.0
        for op in block:
            cycles = self.cycles(op)
            total = None if total is None or cycles is None else total + cycles
        return total

    def cycles(self, op: Op) -> float | None:
        if isinstance(op, t.For):
            return self.loop(op)
        return None if isinstance(op, t.Dot) else op_cycles(op, self.lanes)

    def loop(self, loop: t.For) -> float | None:
        """The cycles of a loop that is unrolled; None if it stays."""
        body, trips = self.block(loop.do), trip_count(loop)
        if body is None or trips is None:
            return None
        if not loop.unroll:
            if body * trips > self.limit or not self.context.allow("unroll"):
                return None
            loop.set_attribute("unroll", True)
            self.changed = True
        return body * trips
