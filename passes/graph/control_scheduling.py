"""control-scheduling: puts the ops of each block in an order that keeps the peak of memory low."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from tfc.ir.core import Block, Module, Op, Value
from tfc.ir.effects import conflicts
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph.arena import aligned, nominal
from tfc.passes.graph.liveness import (
    dependencies,
    memory_of,
    outer_values,
    returned,
    root,
)


@register("control-scheduling")
@dataclass(frozen=True)
class ControlScheduling(Pass):
    """Orders ops so that less memory is live at once.

    The order honours operands, `after`, and the given order of ops that conflict. It is the best of
    three: the given one, one that always takes the op that frees most, and one that finishes each
    operand before it begins the next. Symbolic sizes are compared with each symbol at 128.

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
        for function in module.functions.values():
            before, after, moved = _schedule(function.body, context)
            context.report(f"@{function.name} peak before", before)
            context.report(f"@{function.name} peak after", after)
            changed |= moved
        return changed


def _schedule(block: Block, context: PassContext) -> tuple[int, int, bool]:
    """Orders a block and those inside; the peaks before and after, and whether an op moved."""
    changed = False
    inner: dict[Op, int] = {}
    inner_before: dict[Op, int] = {}
    for op in block:
        for region in op.regions:
            before, after, moved = _schedule(region, context)
            inner_before[op] = max(inner_before.get(op, 0), before)
            inner[op] = max(inner.get(op, 0), after)
            changed |= moved
    graph = _Graph(block, inner)
    given = list(graph.ops)
    candidates = [given, _frees_most(graph), _depth_first(graph)]
    peaks = [graph.peak(order) for order in candidates]
    best = peaks.index(min(peaks))
    before = _Graph(block, inner_before).peak(given) if inner else peaks[0]
    if best and context.allow("control-scheduling"):
        for op in (*candidates[best], block.terminator):
            op.detach()
            block.append(op)
        return before, peaks[best], True
    return before, peaks[0], changed


@dataclass
class _Graph:
    """The ops of a block but its terminator: what each needs done before, makes and uses."""

    block: Block
    inner: dict[Op, int]
    ops: list[Op] = field(default_factory=list[Op])
    needs: dict[Op, list[Op]] = field(default_factory=dict[Op, "list[Op]"])
    users: dict[Op, list[Op]] = field(default_factory=dict[Op, "list[Op]"])
    uses: dict[Op, list[Value]] = field(default_factory=dict[Op, "list[Value]"])
    sizes: dict[Value, int] = field(default_factory=dict[Value, int])
    use_counts: dict[Value, int] = field(default_factory=dict[Value, int])

    def __post_init__(self) -> None:
        self.ops = [op for op in self.block if not op.terminator]
        kept = returned(self.block)
        for op in self.ops:
            for value in op.results:
                self.sizes[value] = 0 if value in kept else nominal(aligned(memory_of(value)))
        for op in self.ops:
            roots = dict.fromkeys(map(root, outer_values(op)))
            self.uses[op] = [v for v in roots if self.sizes.get(v)]
            self.needs[op] = dependencies(op, self.block)
            for value in self.uses[op]:
                self.use_counts[value] = self.use_counts.get(value, 0) + 1
        for second, earlier in conflicts(self.ops).items():
            self.needs[second] += [o for o in earlier if o not in self.needs[second]]
        for op in self.ops:
            for other in self.needs[op]:
                self.users.setdefault(other, []).append(op)

    def made(self, op: Op) -> int:
        return sum(self.sizes[v] for v in op.results)

    def peak(self, order: list[Op]) -> int:
        """The most bytes that are live at one time in an order."""
        left = dict(self.use_counts)
        live = most = 0
        for op in order:
            live += self.made(op)
            most = max(most, live + self.inner.get(op, 0))
            for value in self.uses[op]:
                left[value] -= 1
                live -= 0 if left[value] else self.sizes[value]
            live -= sum(self.sizes[v] for v in op.results if v not in left)
        return most


def _frees_most(graph: _Graph) -> list[Op]:
    """Always the ready op after which the least is live; the given order decides between equals."""
    place = {op: i for i, op in enumerate(graph.ops)}
    left = dict(graph.use_counts)
    readers: dict[Value, list[Op]] = {}
    for op in graph.ops:
        for value in graph.uses[op]:
            readers.setdefault(value, []).append(op)
    waiting = {op: len(graph.needs[op]) for op in graph.ops}
    growth = {
        op: graph.made(op) - sum(graph.sizes[v] for v in graph.uses[op] if left[v] == 1)
        for op in graph.ops
    }
    ready = [(growth[op], place[op]) for op in graph.ops if not waiting[op]]
    heapq.heapify(ready)
    done: dict[Op, None] = {}
    while ready:
        score, index = heapq.heappop(ready)
        op = graph.ops[index]
        if op in done or score != growth[op]:
            continue
        done[op] = None
        for value in graph.uses[op]:
            left[value] -= 1
            if left[value] == 1:  # the last reader will free it
                last = next(o for o in readers[value] if o not in done)
                growth[last] -= graph.sizes[value]
                if not waiting[last]:
                    heapq.heappush(ready, (growth[last], place[last]))
        for user in graph.users.get(op, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (growth[user], place[user]))
    return list(done)


def _depth_first(graph: _Graph) -> list[Op]:
    """Each op right after what it needs, what needs most memory first; unneeded ones at the end."""
    done: dict[Op, None] = {}
    last = graph.block.terminator
    roots = [o for o in dependencies(last, graph.block) if not o.terminator]
    for start in (*roots, *graph.ops):
        stack: list[tuple[Op, bool]] = [(start, False)]
        while stack:
            op, ready = stack.pop()
            if op in done:
                continue
            if ready:
                done[op] = None
                continue
            stack.append((op, True))
            pending = [o for o in graph.needs[op] if o not in done]
            pending.sort(key=graph.made)  # the largest is on top, so it runs first
            stack.extend((o, False) for o in pending)
    return list(done)
