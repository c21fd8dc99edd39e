"""Bases of the ops that read or change what lasts between calls, and of those the loader runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tfc.ir.core import SymbolRef
from tfc.ir.errors import TfcError
from tfc.ir.types import TensorType, Type
from tfc.ops.base import Array, GraphOp, static
from tfc.runtime.errors import LoaderError
from tfc.runtime.host import (
    Context,
    OutputType,
    ResourceInfo,
    declare_resources,
    host_function,
)
from tfc.runtime.state import State

if TYPE_CHECKING:
    from tfc.ir.core import Module, Resource, Variable


class StatefulOp(GraphOp):
    """An op with effects. `run` is its meaning, as `reference` is that of an op without.

    Ops that touch one resource, one of them writing, run in the order of the text, which every pass
    keeps: two of them that no data or control edge orders are a mistake of the user, which
    `--strict` refuses.
    """

    commutes: ClassVar[bool] = False
    """Whether two such ops may change places where nothing uses their results."""

    def run(self, state: State, *arrays: Any, **_: Any) -> Any:
        """The result, or a tuple of them, for the operands' arrays; reads and changes the state."""
        raise NotImplementedError(f"{self.name} does not run")


class VariableOp(StatefulOp):
    """An op on one variable, which the attribute `variable` names."""

    variable: Any

    def declared(self, module: Module) -> Variable:
        """The variable of the module; a TfcError where there is none."""
        found = module.variables.get(self.variable.name)
        if found is None:
            known = ", ".join(f"@{name}" for name in module.variables) or "none"
            raise self.error(f"the module has no variable @{self.variable.name}", f"it has {known}")
        return found

    def updated(self, state: State, value: Array) -> Array:
        """Writes a new value and gives it."""
        state.write(self.variable.name, value)
        return value


class HostOp(StatefulOp):
    """An op that the loader runs, not compiled code: one that waits, or reads and writes files.

    What it does is a function of `tfc.runtime.host.HOST_OPS`, for interpreter and loader alike.
    """

    level = "any"
    differentiable = False

    def host_call(self) -> tuple[str, dict[str, Any]]:
        """The kind of host op, and its attributes as JSON values."""
        raise NotImplementedError(f"{self.name} has no host op")

    def run(self, state: State, *arrays: Any, **_: Any) -> Any:
        return self.run_in(Context(state), *arrays)

    def run_in(self, context: Context, *arrays: Any) -> tuple[Array, ...]:
        """The results in a call of a context."""
        kind, attributes = self.host_call()
        given = [bits_of(a) for a in arrays if a is not None]
        types = [output_type(v.type) for v in self.results]
        found = host_function(kind)(context, attributes, given, types)
        typed = zip(found, self.results, strict=True)
        return tuple(a.view(v.tensor.dtype.numpy) for a, v in typed)


class ResourceOp(HostOp):
    """A host op on one resource, which the attribute `resource` names; of one of some `kinds`."""

    resource: Any
    kinds: ClassVar[tuple[str, ...]] = ()

    def declared(self, module: Module) -> Resource:
        """The resource of the module; a TfcError where there is none, or one of another kind."""
        found = module.resources.get(self.resource.name)
        if found is None:
            known = ", ".join(f"@{name}" for name in module.resources) or "none"
            raise self.error(f"the module has no resource @{self.resource.name}", f"it has {known}")
        if found.kind not in self.kinds:
            hint = f"{self.name} takes a {' or a '.join(self.kinds)}"
            raise self.error(f"@{found.name} is of the kind {found.kind!r}", hint)
        check_resources(self, resource_infos(module), [found.name])
        return found


def check_resources(op: StatefulOp, infos: Sequence[ResourceInfo], names: Sequence[str]) -> None:
    """What the kinds of some resources say of their attributes; a TfcError at an op on them."""
    state = State()
    try:
        declare_resources(state, infos)
        for name in names:
            if name in state.resources:
                state.resource(name)
    except LoaderError as error:
        raise op.error(str(error)) from error


def output_type(kind: Type) -> OutputType:
    """A tensor type, whose dimensions are numbers, as the loader knows it."""
    assert isinstance(kind, TensorType)
    return OutputType(kind.dtype.name, static(kind.shape))


def resource_infos(module: Module) -> list[ResourceInfo]:
    """The resources of a module as the loader knows them, in their order."""
    return [_info(resource) for resource in module.resources.values()]


def _info(resource: Resource) -> ResourceInfo:
    for kind in resource.types:
        if not isinstance(kind, TensorType) or not kind.is_static or kind.layout is not None:
            raise TfcError(
                f"the resource @{resource.name} holds a {kind}",
                hint="it may hold plain tensors whose dimensions are numbers",
            )
    types = tuple(output_type(kind) for kind in resource.types)
    attributes = {n: json_value(v) for n, v in resource.attributes.items() if n != "kind"}
    return ResourceInfo(resource.name, resource.kind, types, attributes)


def json_value(value: Any) -> Any:
    """An attribute as a JSON value: `@name` as its name, a list as a list."""
    if isinstance(value, SymbolRef):
        return value.name
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [json_value(item) for item in value]
    if isinstance(value, bool | int | float | str):
        return value
    raise TfcError(
        f"the attribute {value!r} is no number, text, name or list",
        hint="what the loader runs takes no others",
    )


def bits_of(array: Any) -> Array:
    """A dense array; bf16 as its bits."""
    dense = np.asarray(array, order="C")
    return dense.view(np.uint16) if dense.dtype.name == "bfloat16" else dense
