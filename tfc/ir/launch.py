"""Checks a launch against the kernel that it runs."""

from __future__ import annotations

from tfc.ir.core import Kernel, Op
from tfc.ir.types import TensorType


def check_launch(op: Op, kernel: Kernel) -> None:
    """Operands are the first buffers of the kernel, results the ones behind, which it writes."""
    buffers = [kernel.buffer_type(i) for i in range(len(kernel.body.args))]
    values = [*op.inputs, *op.results]
    if len(values) != len(buffers):
        given = f"{len(op.inputs)} operands and {len(op.results)} results"
        raise op.error(f"{given}, but @{kernel.name} has {len(buffers)} buffers")
    for number, (value, buffer) in enumerate(zip(values, buffers, strict=True)):
        name = kernel.body.args[number].name
        is_result = number >= len(op.inputs)
        if is_result != (buffer.mode == "out"):
            role = "a result" if is_result else "an operand"
            raise op.error(f"%{name} of @{kernel.name} is {buffer}, which {role} cannot be")
        tensor = value.type
        assert isinstance(tensor, TensorType), "a launch stands in a function"
        elements = TensorType(tensor.dtype, tensor.physical).elements
        if tensor.dtype != buffer.dtype or elements != buffer.elements:
            raise op.error(f"%{name} of @{kernel.name} is {buffer}, but {tensor} is passed")
