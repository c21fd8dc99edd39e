"""unordered-state: finds ops on one variable that only the order of the text orders.

Linear in ops and edges, but for sets of bits as long as there are ops with effects in a block.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Effect, Module, Op
from tfc.ir.effects import accesses_of, ancestor_in, blocks_of, waits_of
from tfc.ops.stateful import StatefulOp
from tfc.passes.base import Pass, PassContext, register


@register("unordered-state")
@dataclass(frozen=True)
class UnorderedState(Pass):
    """Reports ops that touch one variable, one of them writing, which no edge orders.

    No chain of values and control edges leads from one to the other: they run in the order of the
    text, but the graph does not say so. It is a remark, and an error under `--strict`. Two updates
    that commute (`assign_add`, `assign_sub`) and whose results nothing uses need no order: the
    variable ends as the same sum, whose rounding is that of the order of the text. Regions count
    for the op that holds them; the iterations of a loop are in order, and so are its regions.

    Before:
    ```mlir
    variable @v : tensor<4xf32>
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = assign(@v, %x) : tensor<4xf32>
      %y = read(@v) after(%a) : tensor<4xf32>
      return %y
    }
    ```
    After:
    ```mlir
    variable @v : tensor<4xf32>
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = assign(@v, %x) : tensor<4xf32>
      %y = read(@v) after(%a) : tensor<4xf32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        for function in module.functions.values():
            for block in blocks_of(function.body):
                for op, other, variable in _unordered(block, module):
                    _report(op, other, variable, context)
        return False


def _report(op: Op, other: Op, variable: str, context: PassContext) -> None:
    text = f"no value and no control edge orders it and `{_named(other)}`, both on @{variable}"
    if context.strict:
        raise op.error(text, f"write `after({_label(other)})` behind it, or the other way round")
    context.remark("unordered", op, text)


def _named(op: Op) -> str:
    return f"{_label(op)} = {op.name}" if op.results else op.name


def _label(op: Op) -> str:
    return f"%{op.results[0].name}" if op.results else f"^{op.label}"


@dataclass
class _Phase:
    """Ops on a variable that need no order among themselves: one write, or reads, or updates."""

    mode: str = ""
    ops: int = 0  # as bits
    before: int = 0  # those of the phase before


def _unordered(block: Block, module: Module) -> list[tuple[Op, Op, str]]:
    """The pairs that conflict and are not ordered, the later op first.

    A phase is compared with that before it: those before that are ordered through it.
    """
    touching = {op: access for op in block if (access := _variables(op, module))}
    if len(touching) < 2:
        return []
    numbered = list(touching)
    bits = {op: 1 << i for i, op in enumerate(numbered)}
    phases = {name: _Phase() for access in touching.values() for name in access}
    found: list[tuple[Op, Op, str]] = []
    for op, reach in _reaching(block, bits):
        for name, mode in touching.get(op, {}).items():
            phase = phases[name]
            if mode != phase.mode or mode == "write":
                phase.mode, phase.before, phase.ops = mode, phase.ops, 0
            phase.ops |= bits[op]
            missing = phase.before & ~reach
            if missing:
                found.append((op, numbered[missing.bit_length() - 1], name))
    return found


def _variables(op: Op, module: Module) -> dict[str, str]:
    """How an op touches each variable: it reads, updates or writes it."""
    found: dict[str, str] = {}
    for name, access in accesses_of(op).items():
        if name in module.variables:
            found[name] = _mode(op) if access & Effect.WRITE else "read"
    return found


def _mode(op: Op) -> str:
    used = any(v.uses for v in op.results)
    return "update" if isinstance(op, StatefulOp) and op.commutes and not used else "write"


def _reaching(block: Block, bits: dict[Op, int]) -> list[tuple[Op, int]]:
    """For each op of a block that has a bit, the bits of those that surely run before it."""
    before = {op: [ancestor_in(block, o) for o in waits_of(op)] for op in block}
    left: dict[Op, int] = {}
    for ops in before.values():
        for op in ops:
            if op is not None:
                left[op] = left.get(op, 0) + 1
    reach: dict[Op, int] = {}
    found: list[tuple[Op, int]] = []
    for op, earlier in before.items():
        seen = 0
        for other in earlier:
            if other is None or other is op:
                continue
            seen |= reach.get(other, 0) | bits.get(other, 0)
            left[other] -= 1
            if not left[other]:  # nobody else will ask
                reach.pop(other, None)
        if op in left:
            reach[op] = seen
        if op in bits:
            found.append((op, seen))
    return found
