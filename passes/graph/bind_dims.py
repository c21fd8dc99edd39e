"""bind-dims: gives symbolic dimensions a size, or bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tfc.ir.core import DimInfo, Module, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import Dim, Expr, normal
from tfc.ir.types import TensorType
from tfc.passes.base import Pass, PassContext, register


@register("bind-dims")
@dataclass(frozen=True)
class BindDims(Pass):
    """`bind-dims{dims=S:128+B:1..8}` makes S the number 128 everywhere, and bounds B.

    A dimension is named by its symbol or by the model's own name.

    Before:
    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<BxSxf32>) {
      %y = exp(%x) : tensor<BxSxf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<BxSxf32>) -> (%y: tensor<BxSxf32>) {
      %y = exp(%x) : tensor<BxSxf32>
      return %y
    }
    ```
    """

    dims: tuple[str, ...] = ()

    def run(self, module: Module, context: PassContext) -> bool:
        known = _names(module)
        values: dict[str, Dim] = {}
        for text in self.dims:
            name, _, size = text.rpartition(":")
            if name not in known:
                raise TfcError(
                    f"the model has no dimension {name!r}",
                    hint=f"its dimensions are {', '.join(known) or 'all static'}",
                )
            symbol = known[name]
            low, dots, high = size.partition("..")
            if not low.isdigit() or (dots and not high.isdigit()):
                raise TfcError(f"dimension {name}: {size!r} is no size", hint="give 128, or 1..512")
            if dots:
                info = module.dims.get(symbol, DimInfo())
                module.dims[symbol] = replace(info, smallest=int(low), largest=int(high))
            else:
                values[symbol] = int(low)
                module.dims.pop(symbol, None)
        if values:
            _substitute(module, values)
        return bool(self.dims)


def _names(module: Module) -> dict[str, str]:
    """Symbols by their own name and by the model's."""
    symbols = list(module.dims)
    for function in module.functions.values():
        for arg in function.body.args:
            for dim in arg.tensor.shape:
                symbols.extend(dim.symbols() if isinstance(dim, Expr) else ())
    own = {s: s for s in dict.fromkeys(symbols)}
    return {info.model_name: s for s, info in module.dims.items() if info.model_name} | own


def _substitute(module: Module, values: Mapping[str, Dim]) -> None:
    for function in module.functions.values():
        for arg in function.body.args:
            _retype(arg, values)
        for name, value in function.attributes.items():
            function.attributes[name] = _attribute(value, values)
        for op in function.body.walk():
            _bind_op(op, values)


def _bind_op(op: Op, values: Mapping[str, Dim]) -> None:
    for value in (*op.results, *(a for block in op.regions for a in block.args)):
        _retype(value, values)
    for name, value in list(op.attributes.items()):
        op.set_attribute(name, _attribute(value, values))


def _retype(value: Value, values: Mapping[str, Dim]) -> None:
    if isinstance(value.type, TensorType):
        shape = tuple(_dim(d, values) for d in value.type.shape)
        value.type = TensorType(value.type.dtype, shape, value.type.layout)


def _attribute(value: Any, values: Mapping[str, Dim]) -> Any:
    if isinstance(value, Expr):
        return _dim(value, values)
    if isinstance(value, tuple):
        return tuple(_attribute(v, values) for v in value)
    return value


def _dim(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    return normal(dim.substitute(values)) if isinstance(dim, Expr) else dim
