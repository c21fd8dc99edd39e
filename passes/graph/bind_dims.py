"""bind-dims: gives symbolic dimensions a size, or bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfc.ir.core import Block, DimInfo, Module, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import Dim, Expr, normal
from tfc.ir.types import BufferType, TensorType
from tfc.passes.base import Pass, PassContext, register


@register("bind-dims")
@dataclass(frozen=True)
class BindDims(Pass):
    """`bind-dims{dims=S:128+B:1..8}` makes S the number 128 everywhere, and bounds B.

    A dimension is named by its symbol or by the model's own name; a size keeps the bounds that
    the model gives. Kernels are bound with the functions that launch them.

    Before, with {dims=S:3+batch:1..8}:
    ```mlir
    module {
      dim B = "batch"
      func @main(%x: tensor<BxSxf32>) -> (%y: tensor<Bx(2*S)xf32>) {
        %y = concat(%x, %x) {axis = 1} : tensor<Bx(2*S)xf32>
        return %y
      }
    }
    ```
    After:
    ```mlir
    module {
      dim B = "batch" in 1..8
      func @main(%x: tensor<Bx3xf32>) -> (%y: tensor<Bx6xf32>) {
        %y = concat(%x, %x) {axis = 1} : tensor<Bx6xf32>
        return %y
      }
    }
    ```
    """

    dims: tuple[str, ...] = ()

    def run(self, module: Module, context: PassContext) -> bool:
        known = _names(module)
        values: dict[str, Dim] = {}
        bounded = False
        for text in self.dims:
            name, _, size = text.rpartition(":")
            if name not in known:
                raise TfcError(
                    f"the model has no dimension {name!r}",
                    hint=f"its dimensions are {', '.join(known) or 'all static'}",
                )
            symbol = known[name]
            low, high = _sizes(name, size)
            _check_range(module, symbol, low, high)
            if not context.allow("bind-dim"):
                break
            if ".." in size:
                bounded |= _bound(module, symbol, low, high)
            else:
                values[symbol] = low
        if values:
            _substitute(module, values)
        return bounded or bool(values)


def _names(module: Module) -> dict[str, str]:
    """Symbols by their own name and by the model's."""
    symbols = list(module.dims)
    for function in module.functions.values():
        for arg in function.body.args:
            for dim in arg.tensor.shape:
                symbols.extend(dim.symbols() if isinstance(dim, Expr) else ())
    own = {s: s for s in dict.fromkeys(symbols)}
    return {info.model_name: s for s, info in module.dims.items() if info.model_name} | own


def _sizes(name: str, size: str) -> tuple[int, int]:
    """The bounds that `128` or `1..512` gives."""
    low, dots, high = size.partition("..")
    if not low.isdecimal() or (dots and not high.isdecimal()):
        raise TfcError(f"dimension {name}: {size!r} is no size", hint="give 128, or 1..512")
    if dots and int(low) > int(high):
        raise TfcError(f"dimension {name}: {size} is empty", hint=f"did you mean {high}..{low}?")
    return int(low), int(high or low)


def _check_range(module: Module, symbol: str, low: int, high: int) -> None:
    """The model's own bounds stay: a size out of them is a mistake."""
    info = module.dims.get(symbol, DimInfo())
    if low < (info.smallest or 0) or (info.largest is not None and high > info.largest):
        allowed = f"{info.smallest or 0}..{'' if info.largest is None else info.largest}"
        given = low if low == high else f"{low}..{high}"
        raise TfcError(
            f"dimension {info.model_name or symbol}: {given} is out of the model's own bounds",
            hint=f"they are {allowed}",
        )


def _bound(module: Module, symbol: str, low: int, high: int) -> bool:
    old = module.dims.get(symbol, DimInfo())
    module.dims[symbol] = replace(old, smallest=low, largest=high)
    return module.dims[symbol] != old


def _substitute(module: Module, values: Mapping[str, Dim]) -> None:
    for symbol in values:
        module.dims.pop(symbol, None)
    for function in module.functions.values():
        for name, value in function.attributes.items():
            function.attributes[name] = _attribute(value, values)
        _bind_block(function.body, values)
    for kernel in module.kernels.values():
        kernel.grid = [(name, _dim(n, values)) for name, n in kernel.grid]
        _bind_block(kernel.body, values)


def _bind_block(body: Block, values: Mapping[str, Dim]) -> None:
    for arg in body.args:
        _retype(arg, values)
    for op in body.walk():
        _bind_op(op, values)


def _bind_op(op: Op, values: Mapping[str, Dim]) -> None:
    for value in (*op.results, *(a for block in op.regions for a in block.args)):
        _retype(value, values)
    for name, value in list(op.attributes.items()):
        op.set_attribute(name, _attribute(value, values))


def _retype(value: Value, values: Mapping[str, Dim]) -> None:
    kind = value.type
    if isinstance(kind, TensorType):
        shape = tuple(_dim(d, values) for d in kind.shape)
        value.type = TensorType(kind.dtype, shape, kind.layout)
    elif isinstance(kind, BufferType):
        value.type = BufferType(kind.dtype, _dim(kind.elements, values), kind.mode)


def _attribute(value: Any, values: Mapping[str, Dim]) -> Any:
    if isinstance(value, Expr):
        return _dim(value, values)
    if isinstance(value, tuple):
        return tuple(_attribute(v, values) for v in value)
    return value


def _dim(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    return normal(dim.substitute(values)) if isinstance(dim, Expr) else dim
