"""recompute: computes cheap values again where they are used late, instead of keeping them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Effect, Module, Op, Value
from tfc.ir.effects import ancestor_in
from tfc.ir.expr import as_expr
from tfc.ops.base import Elementwise, View
from tfc.ops.constant import Constant, DimValue, Iota
from tfc.ops.view import OptimizationBarrier
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph.liveness import memory_of, root

LONGEST = 8  # ops that are computed again for one value
MOST = 256  # values of a function
UNKNOWN_SIZE = 64  # of a symbol, in an estimate


@register("recompute")
@dataclass(frozen=True)
class Recompute(Pass):
    """Frees values before the peak of memory that are used behind it, and computes them again.

    Such are elementwise ops and views, up to eight in a row, of values that are there anyway; they
    give the same bits. The largest come first, as long as the peak falls and is above `limit`
    bytes. What is computed again stands behind an `optimization_barrier`, which keeps it apart from
    what was computed first. Memory is estimated by the order of the text; symbols count 64, or
    their largest value. Only bodies of functions are looked at, not regions.

    Source: arXiv 1604.06174.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>, %w: tensor<4x512xf32>, %v: tensor<512x512xf32>)
        -> (%z: tensor<512xf32>) {
      %h = matmul(%x, %w) : tensor<512xf32>
      %a = exp(%h) : tensor<512xf32>
      %b = matmul(%v, %a) : tensor<512xf32>
      %c = matmul(%v, %b) : tensor<512xf32>
      %d = matmul(%v, %c) : tensor<512xf32>
      %e = mul(%d, %a) : tensor<512xf32>
      %z = mul(%e, %h) : tensor<512xf32>
      return %z
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>, %w: tensor<4x512xf32>, %v: tensor<512x512xf32>)
        -> (%z: tensor<512xf32>) {
      %h = matmul(%x, %w) : tensor<512xf32>
      %a = exp(%h) : tensor<512xf32>
      %b = matmul(%v, %a) : tensor<512xf32>
      %c = matmul(%v, %b) : tensor<512xf32>
      %d = matmul(%v, %c) : tensor<512xf32>
      %0 = optimization_barrier(%h) : tensor<512xf32>
      %1 = exp(%0) : tensor<512xf32>
      %e = mul(%d, %1) : tensor<512xf32>
      %z = mul(%e, %h) : tensor<512xf32>
      return %z
    }
    ```
    """

    limit: int = 0

    def run(self, module: Module, context: PassContext) -> bool:
        sizes = {n: d.largest or d.smallest or UNKNOWN_SIZE for n, d in module.dims.items()}
        counts = [recompute(f.body, context, self.limit, sizes) for f in module.functions.values()]
        return sum(counts) > 0


def recompute(
    block: Block, context: PassContext, limit: int = 0, sizes: Mapping[str, int] | None = None
) -> int:
    """Recomputes values of a block until the peak is at most `limit`; how many."""
    memory = _Memory(block, dict(sizes or {}))
    before, count = memory.peak, 0
    refused: set[Value] = set()
    while count < MOST and memory.peak > limit:
        chosen = next((p for p in _plans(memory, refused) if memory.helps(p)), None)
        if chosen is None or not context.allow("recompute"):
            break
        refused.add(chosen.value)
        chosen.carry_out(block)
        memory = _Memory(block, memory.sizes)
        count += 1
    if count:
        context.report("peak before", before)
        context.report("peak after", memory.peak)
        context.report("recomputed", count)
    return count


@dataclass
class _Plan:
    """A value whose `late` uses read a copy, made of `ops`, which read `sources`."""

    value: Value
    late: list[tuple[Op, int]]
    place: Op
    ops: list[Op] = field(default_factory=list[Op])
    sources: list[Value] = field(default_factory=list[Value])

    def carry_out(self, block: Block) -> None:
        b = Builder(block, self.place, self.ops[-1].location)
        mapping: dict[Value, Value] = {}
        for source in self.sources:
            free = isinstance(source.producer, Constant | Iota | DimValue)
            mapping[source] = source if free else b.value(OptimizationBarrier(source))
        for op in self.ops:
            copy = op.clone(mapping)
            for made in copy.results:
                made.name = ""
            b.add(copy)
        for user, index in self.late:
            user.set_operand(index, mapping[self.value])


class _Memory:
    """What lies in memory when, by the order of a block; `at` are the bytes at each op."""

    def __init__(self, block: Block, sizes: dict[str, int]) -> None:
        self.block = block
        self.sizes = sizes
        self.position = {op: i for i, op in enumerate(block)}
        self.uses: dict[Value, list[int]] = {}
        self.held: dict[Value, tuple[int, int]] = {}
        self.at = [0] * len(block)
        for op in block:
            for value in op.results:
                self.uses[value] = sorted(self.place_of(u) for u, _ in value.uses)
        for op in reversed(list(block)):
            for value in op.results:
                self._hold(value)
        for value, (first, last) in self.held.items():
            self._count(first, last, self.bytes_of(value), self.at)
        self.peak = max(self.at, default=0)
        self.place = self.at.index(self.peak) if self.at else 0

    def place_of(self, user: Op) -> int:
        holder = ancestor_in(self.block, user)
        assert holder is not None, "a value is used outside of its block"
        return self.position[holder]

    def _hold(self, value: Value) -> None:
        base = root(value)
        places = self.uses[value]
        if base.producer is None or base not in self.uses or not places:
            return
        if value is base and self._is_fused(value):
            return
        first, last = self.position[base.producer], places[-1]
        if base in self.held:
            last = max(last, self.held[base][1])
        self.held[base] = first, last

    def _is_fused(self, value: Value) -> bool:
        """Whether a value is only part of the kernel of its one user."""
        users = value.users
        return is_cheap(value.producer) and len(users) == 1 and is_cheap(users[0])

    @staticmethod
    def _count(first: int, last: int, size: int, at: list[int]) -> None:
        for i in range(first, last + 1):
            at[i] += size

    def bytes_of(self, value: Value) -> int:
        dim = as_expr(memory_of(value))
        return dim.evaluate({s: self.sizes.get(s, UNKNOWN_SIZE) for s in dim.symbols()})

    def last_place(self, value: Value) -> int:
        """Until where a value is in memory anyway."""
        base = root(value)
        if base not in self.uses or isinstance(base.producer, Constant | Iota | DimValue):
            return len(self.at)
        return self.held[base][1] if base in self.held else -1

    def helps(self, plan: _Plan) -> bool:
        """Whether the peak falls, or at least what lies there at its first place."""
        at = list(self.at)
        first, last = self.held[plan.value]
        size, place = self.bytes_of(plan.value), self.position[plan.place]
        early = [p for p in self.uses[plan.value] if p < place]
        self._count(early[-1] + 1 if early else first, last, -size, at)
        fused = len(plan.late) == 1 and is_cheap(plan.late[0][0])
        if not fused:
            self._count(place, last, size, at)
        return at[self.place] < self.peak and max(at) <= self.peak


def is_cheap(op: Op | None) -> bool:
    """Whether computing an op again costs little and gives the same."""
    plain = isinstance(op, Elementwise | View) and op.effects is Effect.NONE
    return plain and op is not None and not (op.after or op.control_users)


def _plans(memory: _Memory, refused: set[Value]) -> Iterable[_Plan]:
    """The values that could go at the peak, the largest first."""
    found = [
        v
        for v, (first, last) in memory.held.items()
        if first < memory.place < last and v not in refused and is_cheap(v.producer)
    ]
    order = {v: i for i, v in enumerate(memory.held)}
    for value in sorted(found, key=lambda v: (-memory.bytes_of(v), order[v])):
        plan = _plan(memory, value)
        if plan is not None:
            yield plan


def _plan(memory: _Memory, value: Value) -> _Plan | None:
    shown = any(_is_shown(memory, u) for u in value.users)
    late = [(u, i) for u, i in value.uses if memory.place_of(u) > memory.place]
    early = [p for p in memory.uses[value] if p <= memory.place]
    if not late or shown or memory.place in early or any(u.terminator for u, _ in late):
        return None
    first = min(memory.place_of(u) for u, _ in late)
    ops = list(memory.block)
    plan = _Plan(value, late, ops[first])
    if not _gather(memory, value, plan):
        return None
    # Where the last one of the sources goes before the first use, the copy is made there.
    plan.place = ops[min([first, *map(memory.last_place, plan.sources)])]
    return plan


def _is_shown(memory: _Memory, user: Op) -> bool:
    """Whether a view that is made before the peak is used behind it."""
    if not isinstance(user, View) or memory.place_of(user) > memory.place:
        return False
    uses = memory.uses.get(user.results[0], [])
    return any(p > memory.place for p in uses) or any(
        _is_shown(memory, u) for u in user.result.users
    )


def _gather(memory: _Memory, value: Value, plan: _Plan) -> bool:
    """Adds to a plan what computes a value again from what is there; False where that is much."""
    op = value.producer
    if op is None or not is_cheap(op) or len(plan.ops) >= LONGEST:
        return False
    for operand in op.inputs:
        made = any(operand in o.results for o in plan.ops)
        if made or operand in plan.sources:
            continue
        if memory.last_place(operand) > memory.place and operand is not plan.value:
            plan.sources.append(operand)
        elif not _gather(memory, operand, plan):
            return False
    plan.ops.append(op)
    return len(plan.ops) <= LONGEST
