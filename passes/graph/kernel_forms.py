"""kernel-forms: brings heroes into the forms that kernel builders take."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.builder import Builder
from tfc.ir.core import Module, Op, Value
from tfc.ir.types import TensorType
from tfc.ops.arithmetic import Add
from tfc.ops.compose import cast, raised
from tfc.ops.convolution import Conv
from tfc.ops.linalg import MatMul
from tfc.ops.view import Reshape
from tfc.passes.base import Pass, PassContext, register


@register("kernel-forms")
@dataclass(frozen=True)
class KernelForms(Pass):
    """Gives vectors in products a second axis; adds the bias of a convolution by its own op.

    Before:
    ```mlir
    func @main(%x: tensor<Sx8xf32>, %v: tensor<8xf32>) -> (%y: tensor<Sxf32>) {
      %y = matmul(%x, %v) : tensor<Sxf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<Sx8xf32>, %v: tensor<8xf32>) -> (%y: tensor<Sxf32>) {
      %0 = reshape(%v) {shape = [8, 1]} : tensor<8x1xf32>
      %1 = matmul(%x, %0) : tensor<Sx1xf32>
      %y = reshape(%1) {shape = [(S)]} : tensor<Sxf32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        changed = False
        for function in module.functions.values():
            for op in function.body.walk():
                if isinstance(op, MatMul) and min(op.a.tensor.rank, op.b.tensor.rank) == 1:
                    changed |= context.allow("matmul-of-vectors") and _as_matrices(op)
                elif isinstance(op, Conv) and op.bias is not None:
                    changed |= context.allow("conv-bias") and _apart_from_bias(op, op.bias)
        return changed


def _as_matrices(op: MatMul) -> bool:
    b = Builder.before_op(op)
    lhs, rhs = op.a, op.b
    if lhs.tensor.rank == 1:
        lhs = b.value(Reshape(lhs, (1, *lhs.tensor.shape)))
    if rhs.tensor.rank == 1:
        rhs = b.value(Reshape(rhs, (*rhs.tensor.shape, 1)))
    made = b.value(MatMul(lhs, rhs))
    _stand_in(op, made, b.value(Reshape(made, op.result.tensor.shape)))
    return True


def _apart_from_bias(op: Conv, bias: Value) -> bool:
    """Adds the bias afterwards, before the result is rounded to f16 or bf16."""
    b = Builder.before_op(op)
    x, weight, bias = (raised(b, v) for v in (op.x, op.weight, bias))
    column = b.value(Reshape(bias, (bias.tensor.shape[0], *[1] * (op.x.tensor.rank - 2))))
    plain = b.value(Conv(x, weight, **op.attributes))
    shape = op.result.tensor.shape
    plain.type = TensorType(plain.tensor.dtype, shape, plain.tensor.layout)
    _stand_in(op, plain, cast(b, b.value(Add(plain, column)), op.x.tensor.dtype))
    return True


def _stand_in(op: Op, hero: Value, value: Value) -> None:
    """Replaces an op by a value; what makes it runs where and after what the op did."""
    for maker in (hero.producer, value.producer):
        assert maker is not None
        maker.device = op.device
        for earlier in op.after:
            maker.add_after(earlier)
    op.replace([value])
