"""control-scheduling: puts the ops of each block in an order that keeps the peak of memory low."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Module, Op
from tfc.ir.frames import refuse_cycles
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph.block_graph import BlockGraph
from tfc.passes.graph.costs import Costs


@register("control-scheduling")
@dataclass(frozen=True)
class ControlScheduling(Pass):
    """Orders ops so that less memory is live at once.

    The order honours operands, `after`, and the given order of ops that conflict. Blocks of few ops
    get the lowest peak there is. Of others it is the best of some orders (the given one; always
    what frees most; each operand finished before the next is begun; each op as late as its time
    window allows, ALAP), with exact searches where the peak lies. Of orders with one peak the one
    that ends first on the devices of the ops is chosen, and the given one before others. A `recv`
    stands right before its first user (arXiv 1603.04467, section 5.2). Symbolic sizes are compared
    with each symbol at 128.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<f32>) {
      %a = expand(%x) {shape = [1024, 4]} : tensor<1024x4xf32>
      %b = exp(%a) : tensor<1024x4xf32>
      %c = sin(%a) : tensor<1024x4xf32>
      %d = reduce_sum(%b) {axes = [0, 1], keepdims = false} : tensor<f32>
      %e = reduce_sum(%c) {axes = [0, 1], keepdims = false} : tensor<f32>
      %y = add(%d, %e) : tensor<f32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<f32>) {
      %a = expand(%x) {shape = [1024, 4]} : tensor<1024x4xf32>
      %b = exp(%a) : tensor<1024x4xf32>
      %d = reduce_sum(%b) {axes = [0, 1], keepdims = false} : tensor<f32>
      %c = sin(%a) : tensor<1024x4xf32>
      %e = reduce_sum(%c) {axes = [0, 1], keepdims = false} : tensor<f32>
      %y = add(%d, %e) : tensor<f32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        costs = Costs(context.target)
        for function in module.functions.values():
            refuse_cycles(function, "control-scheduling")
            found = _schedule(function.body, costs, context)
            for name, figure in found.figures().items():
                context.report(f"@{function.name} {name}", figure)
            changed |= found.moved
        return changed


@dataclass
class _Outcome:
    """Peaks in bytes and makespans in seconds of a block, and whether an op of it moved."""

    peaks: tuple[int, int]
    seconds: tuple[float, float]
    moved: bool

    def figures(self) -> dict[str, int | str]:
        before, after = (f"{s * 1e6:.1f}" for s in self.seconds)
        return {
            "peak before": self.peaks[0],
            "peak after": self.peaks[1],
            "makespan before us": before,
            "makespan after us": after,
        }


def _schedule(block: Block, costs: Costs, context: PassContext) -> _Outcome:
    """Orders a block and those inside."""
    inside: dict[Op, list[_Outcome]] = {}
    for op in block:
        if op.regions and op.name != "fusion":
            inside[op] = [_schedule(region, costs, context) for region in op.regions]
    moved = any(found.moved for regions in inside.values() for found in regions)
    graph = BlockGraph(block, costs, {op: _most(found, 1) for op, found in inside.items()})
    given = list(range(len(graph.ops)))
    order = graph.best()
    before = graph.with_inner({op: _most(found, 0) for op, found in inside.items()})
    outcome = _Outcome(
        (before.problem.peak(given), graph.problem.peak(order)),
        (graph.makespan(given), graph.makespan(order)),
        moved,
    )
    if order == given or not context.allow("control-scheduling"):
        outcome.peaks = outcome.peaks[0], graph.problem.peak(given)
        outcome.seconds = outcome.seconds[0], outcome.seconds[0]
        return outcome
    for op in (*(graph.ops[n] for n in order), block.terminator):
        op.detach()
        block.append(op)
    outcome.moved = True
    return outcome


def _most(found: list[_Outcome], number: int) -> int:
    return max(outcome.peaks[number] for outcome in found)
