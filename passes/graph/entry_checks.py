"""entry-checks: writes down what ops assume of symbolic dimensions, for the check at the call."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Function, Module
from tfc.ir.expr import Dim
from tfc.ops.base import EntryCheck, GraphOp, written_checks
from tfc.passes.base import Pass, PassContext, register


@register("entry-checks")
@dataclass(frozen=True)
class EntryChecks(Pass):
    """Collects the assumptions of all ops in attributes of their function.

    `check_sides` holds the two sides of each, `check_texts` the relation and what it is about;
    later passes may rewrite the ops.

    Before:
    ```mlir
    func @main(%x: tensor<Sxf32>, %y: tensor<Txf32>) -> (%z: tensor<Sxf32>) {
      %z = add(%x, %y) : tensor<Sxf32>
      return %z
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<Sxf32>, %y: tensor<Txf32>) -> (%z: tensor<Sxf32>)
        {check_sides = [(S), (T)],
         check_texts = ["== add: C2: (S) and (T) do not broadcast"]} {
      %z = add(%x, %y) : tensor<Sxf32>
      return %z
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        return any([_collect(f, context) for f in module.functions.values()])


def _collect(function: Function, context: PassContext) -> bool:
    found: dict[tuple[Dim, str, Dim], str] = {}
    for op in function.body.walk():
        if isinstance(op, GraphOp):
            for check in op.entry_checks():
                key = (check.lhs, check.relation, check.rhs)
                found.setdefault(key, _text(check, str(op.location) if op.location.nodes else ""))
    written_checks(function)  # what is there must be well formed
    known = function.attributes.get("check_texts", ())
    texts = tuple(text for text in found.values() if text not in known)
    if not texts or not context.allow("entry-checks"):
        return False
    sides = tuple(d for key, text in found.items() if text in texts for d in (key[0], key[2]))
    function.attributes["check_sides"] = (*function.attributes.get("check_sides", ()), *sides)
    function.attributes["check_texts"] = (*known, *texts)
    return True


def _text(check: EntryCheck, node: str) -> str:
    return f"{check.relation} {node + ': ' if node else ''}{check.message}"
