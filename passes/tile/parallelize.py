"""parallelize: how many programs of a kernel make a task worth a thread's attention."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Kernel, Module
from tfc.ir.expr import Dim, as_expr
from tfc.passes.base import Pass, PassContext, register
from tfc.tile import ops as t

TASK_CYCLES = 20_000  # about 6 microseconds: what waking a parked thread takes
USUAL = 64  # what a symbolic trip count is taken for
HEAVY = {"exp": 8, "erf": 24, "tanh": 22, "log": 12, "sigmoid": 16, "pow": 40, "div": 8, "sqrt": 8}


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
    After:
    ```mlir
    kernel @copy(%x: buffer<640xf32>, %y: buffer<640xf32, out>) grid(p0 = 10) {grain = 1250} {
      %0 = load(%x) {at = (c+64*p0)} : tile<1x64xf32>
      store(%y, %0) {at = (c+64*p0)}
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for kernel in module.kernels.values():
            if "grain" not in kernel.attributes and context.allow("parallelize"):
                kernel.attributes["grain"] = grain(kernel)
                changed = True
        return changed


def grain(kernel: Kernel) -> int:
    """The number of programs that take about `TASK_CYCLES`."""
    return max(1, round(TASK_CYCLES / max(_cycles(kernel.body), 1.0)))


def _cycles(block: Block) -> float:
    """An estimate for vectors of 16 elements: what matters is the order of magnitude."""
    total = 0.0
    for op in block:
        if isinstance(op, t.For):
            trips = max(0, (_usual(op.stop) - _usual(op.start)) // op.step)
            total += trips * _cycles(op.do)
        elif isinstance(op, t.Dot):
            total += op.a.tile.rows * op.a.tile.cols * op.b.tile.cols / 32
        elif isinstance(op, t.Load | t.Store):
            tile = op.output.tile if isinstance(op, t.Load) else op.value.tile
            total += tile.rows * tile.cols / 8
        elif op.results and isinstance(op, t.Map | t.Reduce | t.Select | t.TileCast):
            tile = op.inputs[0].tile
            total += tile.rows * tile.cols / 16 * HEAVY.get(getattr(op, "function", ""), 1)
    return total


def _usual(dim: Dim) -> int:
    e = as_expr(dim)
    return e.evaluate(dict.fromkeys(e.symbols(), USUAL))
