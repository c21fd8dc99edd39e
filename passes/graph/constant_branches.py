"""constant-branches: takes away `if`, `while` and `scan` whose course is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Module, Op, Value
from tfc.ir.weights import Dense
from tfc.ops.base import static
from tfc.ops.constant import Constant
from tfc.ops.control import If
from tfc.ops.loops import Scan, While
from tfc.ops.view import Reshape
from tfc.passes.base import Pass, PassContext, changes, register
from tfc.passes.graph.inlining import inline, stays_needed
from tfc.passes.graph.known import splat


@register("constant-branches")
@dataclass(frozen=True)
class ConstantBranches(Pass):
    """Puts the ops of the region that runs once in the place of the op; of others nothing is left.

    An `if` on a constant becomes the branch that it takes, a `while` whose condition is false its
    condition, a `scan` of length 1 its body, and one of length 0 what it was given.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %p = constant {value = dense<true>} : tensor<bool>
      %y = if(%p) : tensor<4xf32> then {
        %t = tanh(%x) : tensor<4xf32>
        yield %t
      } else {
        %e = exp(%x) : tensor<4xf32>
        yield %e
      }
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %p = constant {value = dense<true>} : tensor<bool>
      %t = tanh(%x) : tensor<4xf32>
      return %t
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        return changes(_run_block(f.body, context) for f in module.functions.values())


def _run_block(block: Block, context: PassContext) -> bool:
    changed = False
    op = block.first
    while op is not None:
        following, rule = op.next, _rule(op)
        if rule and stays_needed(op) and context.allow(rule):
            op = _replace(op) or following  # what was inside may be known too
            changed = True
            continue
        changed |= changes(_run_block(region, context) for region in op.regions)
        op = following
    return changed


def _rule(op: Op) -> str:
    """The name of what can be done about an op; empty if it stays."""
    match op:
        case If():
            return "if-constant" if splat(op.condition) is not None else ""
        case While():
            (condition,) = op.cond.terminator.inputs
            return "while-never" if splat(condition) == np.False_ else ""
        case Scan() if op.length == 1:
            return "scan-once"
        case Scan() if op.length == 0:
            known = all(v.tensor.is_static for v in op.results[op.carries :])
            return "scan-never" if known else ""
        case _:
            return ""


def _replace(op: Op) -> Op | None:
    """Takes the op away; the first of those in its place."""
    match op:
        case If():
            region = op.then if splat(op.condition) else op.else_
            return inline(op, region, [], region.terminator.inputs)
        case While():
            return inline(op, op.cond, op.inputs, op.inputs)
        case Scan() if op.length == 1:
            return _once(op)
        case _:
            assert isinstance(op, Scan)
            b = Builder.before_op(op)
            empty = [_empty(b, v) for v in op.results[op.carries :]]
            op.replace([*op.initial, *empty])
            return None


def _empty(b: Builder, like: Value) -> Value:
    array = np.zeros(static(like.tensor.shape), like.tensor.dtype.numpy)
    return b.value(Constant(Dense(array), like.tensor))


def _once(op: Scan) -> Op | None:
    end = op.do.terminator
    before, inside = Builder.before_op(op), Builder(op.do, end, op.location)
    slices = [before.value(Reshape(v, v.tensor.shape[1:])) for v in op.sequences]
    outputs = [inside.value(Reshape(v, (1, *v.tensor.shape))) for v in end.inputs[op.carries :]]
    return inline(op, op.do, [*op.initial, *slices], [*end.inputs[: op.carries], *outputs])
