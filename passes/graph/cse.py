"""cse: computes equal values once. One hash look-up an op, so linear."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tfc.ir.core import Block, Effect, Module, Op
from tfc.ir.effects import accesses_of, written_by
from tfc.ir.rewriting import fuse
from tfc.ops.base import GraphOp
from tfc.ops.control import If
from tfc.passes.base import Pass, PassContext, changes, register

if TYPE_CHECKING:
    from collections.abc import Hashable

Seen: TypeAlias = "dict[Hashable, Op]"
Versions: TypeAlias = "dict[str, int]"  # how often each variable or resource may have changed


@register("cse")
@dataclass(frozen=True)
class CommonSubexpressionElimination(Pass):
    """Replaces an op by an earlier one that computes the same.

    Both need the same operands, attributes, result types, device and control inputs, and no effects
    but that of reading what no op between them writes. An op inside a region may be replaced by one
    from around it, unless the region is isolated; a read in a loop only where the loop does not
    write the variable.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = exp(%x) : tensor<4xf32>
      %b = exp(%x) : tensor<4xf32>
      %y = add(%a, %b) : tensor<4xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = exp(%x) : tensor<4xf32>
      %y = add(%a, %a) : tensor<4xf32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        containers = [*module.functions.values(), *module.kernels.values()]
        return changes(_run_block(c.body, {}, {}, context) for c in containers)


def _run_block(block: Block, seen: Seen, versions: Versions, context: PassContext) -> bool:
    """Merges the ops of a block, given those seen around it; forgets its own at the end."""
    changed = False
    own: list[Hashable] = []
    for op in block:
        written = written_by(op)
        if op.regions and not isinstance(op, If):  # what comes later in a loop comes before too
            _write(versions, written)
        for region in op.regions:
            changed |= _run_block(region, {} if op.isolated else seen, versions, context)
        _write(versions, written)
        key = _key(op, versions)
        if key is None:
            continue
        first = seen.get(key)
        if first is None:
            seen[key] = op
            own.append(key)
        elif context.allow("cse"):
            first.location = fuse(first.location, op.location)
            op.replace(first.results)
            changed = True
    for key in own:
        del seen[key]
    return changed


def _write(versions: Versions, names: list[str]) -> None:
    for name in names:
        versions[name] = versions.get(name, 0) + 1


def _key(op: Op, versions: Versions) -> Hashable | None:
    """What two ops that compute the same have in common; None for an op that must stay."""
    if op.effects not in (Effect.NONE, Effect.READ) or op.terminator or op.regions:
        return None
    read = tuple((name, versions.get(name, 0)) for name in accesses_of(op))
    if not op.results or (op.effects and not read):
        return None
    attributes = tuple(sorted((name, _exact(value)) for name, value in op.attributes.items()))
    control = tuple(sorted(id(o) for o in op.after))
    operands = tuple(op.operands)
    if isinstance(op, GraphOp) and op.commutative:
        operands = (*sorted(operands[:2], key=id), *operands[2:])
    types = tuple(v.type for v in op.results)
    return op.name, operands, attributes, types, op.device, control, read


def _exact(value: Any) -> Any:
    """An attribute's value, equal only to the same bits: 0.0 is not -0.0, 1 is not 1.0."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    return type(value).__name__, value
