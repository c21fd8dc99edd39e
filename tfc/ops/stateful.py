"""Bases of the ops that read or change what lasts between calls, and of those the loader runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfc.ops.base import Array, GraphOp

if TYPE_CHECKING:
    from tfc.ir.core import Module, Variable
    from tfc.runtime.state import State


class StatefulOp(GraphOp):
    """An op with effects. `run` is its meaning, as `reference` is that of an op without.

    Ops that touch one resource, one of them writing, run in the order of the text, which every pass
    keeps: two of them that no data or control edge orders are a mistake of the user, which
    `--strict` refuses.
    """

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
