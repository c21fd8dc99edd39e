"""Puts the ops of a region in the place of the op that holds it."""

from __future__ import annotations

from tfc.ir.core import Block, Op, Value
from tfc.ir.effects import is_pure, waits_of
from tfc.ops.constant import Constant


def stays_needed(op: Op) -> bool:
    """Whether its effects are sure to stay needed: the end of its block waits for the op itself.

    After `prune` this holds of all that has effects.
    """
    assert op.parent is not None
    end = op.parent.terminator
    return is_pure(op) or end in op.control_users or any(v.producer is op for v in end.inputs)


def inline(op: Op, region: Block, arguments: list[Value], results: list[Value]) -> Op | None:
    """Replaces an op whose effects stay needed by the ops of a region; gives the first of them.

    The region gets `arguments`; the results become `results`. What ran before the op runs before
    the ops of the region, and what ran after it after all that the region's end waited for.
    """
    block, last = op.parent, region.terminator
    assert block is not None
    end = block.terminator
    for argument, value in zip(region.args, arguments, strict=True):
        results = [value if v is argument else v for v in results]
        argument.replace_uses(value)
    moved = [o for o in region if o is not last]
    needed = [v.producer for v in last.inputs] + last.after
    targets = [o for o in needed if o is not None and o.parent is region]
    kept = not is_pure(op)
    last.erase()
    for inner in moved:
        inner.detach()
        inner.device = inner.device or op.device
        block.insert(inner, op)
    _wait(moved, op.after)
    for user in list(op.control_users):
        for target in targets:
            user.add_after(target)
    if kept:
        for target in targets:
            end.add_after(target)
    op.replace(results)
    return moved[0] if moved else None


def _wait(ops: list[Op], earlier: list[Op]) -> None:
    """Lets ops run after others: those do it at once that wait for none of themselves."""
    inside = set(ops)
    for op in ops if earlier else ():
        if not isinstance(op, Constant) and not any(o in inside for o in waits_of(op)):
            for before in earlier:
                op.add_after(before)
