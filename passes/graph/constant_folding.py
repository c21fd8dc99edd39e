"""constant-folding: computes ops of constants, where the result is the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Effect, Module, Op, SymbolRef, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import Expr
from tfc.ir.weights import INLINE_BYTES, Dense, Weights
from tfc.ops.base import Array, GraphOp, View, is_float_array
from tfc.ops.constant import Constant
from tfc.passes.base import Pass, PassContext, changes, register


@register("constant-folding")
@dataclass(frozen=True)
class ConstantFolding(Pass):
    """Replaces ops whose operands are constants by their results.

    Only ops that are `exact` fold: moves, integers, comparisons, + - * / and sqrt, whose bits are
    the same on every machine. A result larger than `max-bytes` stays an op, and so does one with a
    NaN that was computed, since its sign differs between processors. Results above 4 KiB become
    weights. The constant runs after what the op ran after, and after what its operands did.

    Before:
    ```mlir
    func @main(%x: tensor<2xf32>) -> (%y: tensor<2xf32>) {
      %a = constant {value = dense<[1.0, 2.0]>} : tensor<2xf32>
      %b = constant {value = dense<0.5>} : tensor<f32>
      %c = mul(%a, %b) : tensor<2xf32>
      %y = add(%x, %c) : tensor<2xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<2xf32>) -> (%y: tensor<2xf32>) {
      %a = constant {value = dense<[1.0, 2.0]>} : tensor<2xf32>
      %b = constant {value = dense<0.5>} : tensor<f32>
      %c = constant {value = dense<[0.5, 1.0]>} : tensor<2xf32>
      %y = add(%x, %c) : tensor<2xf32>
      return %y
    }
    ```
    """

    max_bytes: int = 1 << 20

    def run(self, module: Module, context: PassContext) -> bool:
        folder = _Folder(self.max_bytes, module.weights, context)
        return changes(folder.run(f.body) for f in module.functions.values())


@dataclass(frozen=True)
class _Folder:
    max_bytes: int
    weights: Weights
    context: PassContext

    def run(self, block: Block) -> bool:
        changed = False
        for op in block:
            changed |= changes(map(self.run, op.regions))
            if is_foldable(op) and self.is_worthwhile(op):
                changed |= self.fold(op)
        return changed

    def is_worthwhile(self, op: GraphOp) -> bool:
        """Whether it may fold; a remark says why not."""
        sizes = [v.tensor.bytes for v in op.results]
        if not op.exact:
            self.context.remark("fold", op, "its bits may differ between machines")
            return False
        if not all(isinstance(n, int) for n in sizes):
            return False
        if any(isinstance(n, int) and n > self.max_bytes for n in sizes):
            most = max(n for n in sizes if isinstance(n, int))
            text = f"the result has {most} bytes, more than max-bytes={self.max_bytes}"
            self.context.remark("fold", op, text)
            return False
        return True

    def fold(self, op: GraphOp) -> bool:
        try:
            arrays = self.compute(op)
        except TfcError as error:  # an index out of range, say: it is so only if the op runs
            self.context.remark("fold", op, f"it fails: {error.message}")
            return False
        if not isinstance(op, View) and any(map(_has_nan, arrays)):
            self.context.remark("fold", op, "it computes a NaN, whose sign may differ")
            return False
        if self.divides_by_zero(op):
            self.context.remark("fold", op, "it divides by zero, which is left for the run")
            return False
        if not self.context.allow("fold"):
            return False
        origin = op.location.fused(*(v.producer.location for v in op.inputs if v.producer))
        b = Builder(_block(op), op, origin)
        values = [self.constant(b, array) for array in arrays]
        sources = [v.producer for v in op.inputs]
        waits = [e for o in (op, *sources) if o is not None for e in o.after]
        for made in (v.producer for v in values):
            assert made is not None
            for earlier in waits:
                made.add_after(earlier)
        op.replace(values)
        return True

    def divides_by_zero(self, op: GraphOp) -> bool:
        """Whether integers are divided by a zero: what that gives is the processor's matter."""
        if op.name not in ("div", "mod", "fmod"):
            return False
        divisor = self.array(op.inputs[1])
        return not is_float_array(divisor) and not divisor.all()

    def compute(self, op: GraphOp) -> list[Array]:
        operands = [None if v is None else self.array(v) for v in op.operands]
        found = op.reference(*operands)
        arrays = list(found) if isinstance(found, tuple) else [found]
        for array, value in zip(arrays, op.results, strict=True):
            kind = value.tensor
            fits = array.shape == kind.shape and array.dtype == kind.dtype.numpy
            assert fits, f"{op.name} computes {array.dtype}{array.shape} for {kind}"
        return arrays

    def array(self, value: Value) -> Array:
        assert isinstance(value.owner, Constant)
        return value.owner.array(self.weights)

    def constant(self, b: Builder, array: Array) -> Value:
        dense = Dense(array)
        if array.nbytes <= INLINE_BYTES:
            return b.value(Constant(dense, dense.type))
        return b.value(Constant(SymbolRef(self.weights.add(array)), dense.type))


def is_foldable(op: Op) -> TypeGuard[GraphOp]:
    """Whether all that an op works on is known, so that it could fold."""
    return (
        isinstance(op, GraphOp)
        and not isinstance(op, Constant)
        and op.effects is Effect.NONE
        and not op.regions
        and bool(op.results)
        and all(isinstance(v.owner, Constant) for v in op.inputs)
        and all(v.tensor.layout is None for v in (*op.inputs, *op.results))
        and not any(map(_has_symbol, op.attributes.values()))
    )


def _has_symbol(attribute: Any) -> bool:
    """Whether an attribute, or a part of it, is known only at the call."""
    if isinstance(attribute, tuple):
        return any(map(_has_symbol, cast("tuple[Any, ...]", attribute)))
    return isinstance(attribute, Expr)


def _block(op: Op) -> Block:
    assert op.parent is not None
    return op.parent


def _has_nan(array: Array) -> bool:
    return is_float_array(array) and bool(np.isnan(array).any())
