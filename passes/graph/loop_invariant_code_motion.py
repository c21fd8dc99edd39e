"""loop-invariant-code-motion: computes before a loop what is the same in all its iterations."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Effect, Module, Op, Value
from tfc.ir.effects import accesses_of, effects_of, home, outer_values, written_by
from tfc.ops.arithmetic import Div, Fmod, Mod
from tfc.ops.base import GraphOp, View
from tfc.ops.constant import Constant, DimValue, Iota
from tfc.ops.counted_loops import trip_count
from tfc.ops.loops import Scan, While
from tfc.ops.view import Reshape
from tfc.passes.base import Pass, PassContext, register


@register("loop-invariant-code-motion")
@dataclass(frozen=True)
class LoopInvariantCodeMotion(Pass):
    """Moves ops out of `while` and `scan` that use only values from around the loop.

    They have no effects and no control inputs; a read moves if the loop does not write the
    variable. What may fail (an index out of range, a read of what was never assigned, an integer
    that is divided by what may be 0) or need not end (a loop) moves only where it runs at least
    once anyway: in the condition of a `while`, and in loops that are known to run. Views and
    counters cost nothing inside of kernels: they move only with what uses them.

    Before:
    ```mlir
    func @main(%u: tensor<4xf32>, %r: tensor<3x4xf32>) -> (%y: tensor<4xf32>) {
      %y, %z = scan(%u, %r) {carries = 1, length = 3} : tensor<4xf32>, tensor<3x4xf32>
          do(%a: tensor<4xf32>, %b: tensor<4xf32>) {
        %e = exp(%u) : tensor<4xf32>
        %s = mul(%a, %e) : tensor<4xf32>
        yield %s, %b
      }
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%u: tensor<4xf32>, %r: tensor<3x4xf32>) -> (%y: tensor<4xf32>) {
      %e = exp(%u) : tensor<4xf32>
      %y, %z = scan(%u, %r) {carries = 1, length = 3} : tensor<4xf32>, tensor<3x4xf32>
          do(%a: tensor<4xf32>, %b: tensor<4xf32>) {
        %s = mul(%a, %e) : tensor<4xf32>
        yield %s, %b
      }
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        start = context.count
        for function in module.functions.values():
            _run_block(function.body, context)
        return context.count > start


def _run_block(block: Block, context: PassContext) -> None:
    """Inner loops first: what leaves them may leave the outer ones too."""
    for op in block:
        for region in op.regions:
            _run_block(region, context)
        if isinstance(op, While | Scan):
            loop = _Loop(op, context)
            for region in op.regions:
                loop.hoist(region)


class _Loop:
    """A loop; `light` are the views and counters in it that could move, with their copies."""

    def __init__(self, op: While | Scan, context: PassContext) -> None:
        self.op = op
        self.context = context
        self.written = set(written_by(op))
        self.regions = set(op.regions)
        self.runs = _surely_runs(op)
        self.light: dict[Value, Value | None] = {}

    def hoist(self, region: Block) -> None:
        once = self.runs or (isinstance(self.op, While) and region is self.op.cond)
        for op in region:
            if not self.is_invariant(op, once):
                continue
            if _is_light(op):
                self.light[op.result] = None
            elif self.context.allow("hoist"):
                self.move(op)

    def is_invariant(self, op: Op, once: bool) -> bool:
        """Whether an op may move; `once` says that it runs in any case."""
        if op.terminator or _waits(op) or not isinstance(op, GraphOp):
            return False
        effects = effects_of(op)
        if effects not in (Effect.NONE, Effect.READ) or not (once or not may_fail(op)):
            return False
        if not self.written.isdisjoint(accesses_of(op)):
            return False
        return all(v in self.light or home(v) not in self.regions for v in outer_values(op))

    def move(self, op: Op) -> None:
        place = self.op.parent
        assert place is not None
        for inner in op.walk():
            for index, value in enumerate(inner.operands):
                if value in self.light:
                    inner.set_operand(index, self.outside(value))
        op.detach()
        place.insert(op, self.op)
        if op.effects is not Effect.NONE:  # a read: not before what the loop waited for
            for earlier in self.op.after:
                op.add_after(earlier)

    def outside(self, value: Value) -> Value:
        """A copy of a view or counter before the loop."""
        copy, maker = self.light[value], value.producer
        assert maker is not None
        if copy is None:
            moved = maker.clone({v: self.outside(v) for v in maker.inputs if v in self.light})
            assert self.op.parent is not None
            self.op.parent.insert(moved, self.op)
            copy = self.light[value] = moved.result
        return copy


def _waits(op: Op) -> bool:
    """Whether an op, or what it holds, has control edges from outside of it."""
    if not op.regions:
        return bool(op.after)
    held = set(op.walk())
    return any(earlier not in held for inner in op.walk() for earlier in inner.after)


def _is_light(op: Op) -> bool:
    if isinstance(op, Iota | DimValue):
        return not op.control_users
    return isinstance(op, View) and not isinstance(op, Reshape) and not op.control_users


def may_fail(op: Op) -> bool:
    """Whether an op, or what it holds, may fail or never end."""
    return any(
        isinstance(o, While)
        or o.effects is not Effect.NONE
        or getattr(o, "may_fail", False)
        or _may_divide_by_zero(o)
        for o in op.walk()
    )


def _may_divide_by_zero(op: Op) -> bool:
    """Whether integers are divided by what may be 0, which is an error where models come from."""
    if not isinstance(op, Div | Mod | Fmod) or not op.y.tensor.dtype.is_integer:
        return False
    divisor = op.y.producer
    return not (isinstance(divisor, Constant) and divisor.splat)


def _surely_runs(op: While | Scan) -> bool:
    count = op.length if isinstance(op, Scan) else trip_count(op)
    return isinstance(count, int) and count > 0
