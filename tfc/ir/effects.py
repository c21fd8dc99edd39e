"""What the order of a text means for ops with effects, and what may go without being noticed.

Two ops of a block conflict when they touch one variable or resource and one of them writes it. They
run in the order of the text, which every pass keeps; a region counts for the op that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tfc.ir.core import Block, Effect, Op, Value, effects_of

OUTSIDE = ""
"""Stands for the world around: what is written there, but in no variable or resource."""
FAN = 4  # edges for each edge before: more than these a barrier saves


def accesses_of(op: Op) -> dict[str, Effect]:
    """How an op, and all that it holds, touches each variable and resource: READ, WRITE or both."""
    if not op.regions:
        return _own_accesses(op) if op.effects is not Effect.NONE else {}
    found: dict[str, Effect] = {}
    for inner in op.walk():
        if inner.effects is not Effect.NONE:
            for name, access in _own_accesses(inner).items():
                found[name] = found.get(name, Effect.NONE) | access
    return found


def _own_accesses(op: Op) -> dict[str, Effect]:
    access = op.effects & (Effect.READ | Effect.WRITE)
    names = op.resources()
    if not names and access & Effect.WRITE:
        names = (OUTSIDE,)
    return dict.fromkeys(names, access) if access else {}


def written_by(op: Op) -> list[str]:
    """The variables and resources that an op, or what it holds, writes."""
    return [name for name, access in accesses_of(op).items() if access & Effect.WRITE]


def conflicts(ops: Iterable[Op]) -> dict[Op, list[Op]]:
    """For each op of a block, in order, earlier ones that it conflicts with.

    Those that they imply in turn are left out, so that there are about as many as accesses.
    """
    writer: dict[str, Op] = {}
    readers: dict[str, list[Op]] = {}
    found: dict[Op, list[Op]] = {}
    for op in ops:
        before: dict[Op, None] = {}
        for name, access in accesses_of(op).items():
            last = writer.get(name)
            if not access & Effect.WRITE:
                readers.setdefault(name, []).append(op)
            else:
                before.update(dict.fromkeys(readers.pop(name, ())))
                writer[name] = op
            if last is not None:
                before[last] = None
        if before:
            found[op] = list(before)
    return found


# ---- what nobody would miss


def is_pure(op: Op) -> bool:
    """Whether an op, and what it holds, does nothing besides computing and reading."""
    return effects_of(op) in (Effect.NONE, Effect.READ)


def is_dead(op: Op) -> bool:
    """Whether nothing would notice if the op did not run.

    An op that many wait for, and which waits for many, stays: as a barrier it saves edges.
    """
    if op.terminator or any(v.uses for v in op.results) or not is_pure(op):
        return False
    return not op.control_users or not is_barrier(op)


def is_barrier(op: Op) -> bool:
    """Whether there would be many more edges if its control users waited for what it waits for."""
    before, after = len(waits_of(op)), len(op.control_users)
    return before * after > FAN * (before + after)


def erase_dead(op: Op) -> None:
    """Erases an op that `is_dead`; what ran after it runs after all that it waited for."""
    if op.control_users:
        before = waits_of(op)
        for user in list(op.control_users):
            for earlier in before:
                user.add_after(earlier)
    op.erase()


def waits_of(op: Op) -> list[Op]:
    """The ops that run before an op, and all that it holds: by values and by control edges."""
    if not op.regions:
        makers = [v.producer for v in op.inputs]
        return list(dict.fromkeys([*(m for m in makers if m is not None), *op.after]))
    held = set(op.walk())
    found = [v.producer for v in outer_values(op)]
    found += [o for inner in op.walk() for o in inner.after if o not in held]
    return list(dict.fromkeys(o for o in found if o is not None))


def outer_values(op: Op) -> list[Value]:
    """The values that an op, and what it holds, uses and that are defined outside of it."""
    if not op.regions:
        return list(dict.fromkeys(op.inputs))
    own = {block for inner in op.walk() for block in inner.regions}
    used = [v for inner in op.walk() for v in inner.inputs]
    return list(dict.fromkeys(v for v in used if home(v) not in own))


def home(value: Value) -> Block | None:
    """The block in which a value is defined."""
    return value.owner.parent if isinstance(value.owner, Op) else value.owner


def blocks_of(body: Block) -> Iterator[Block]:
    """A block, and the blocks inside its ops, outer ones first; those of groups stay closed."""
    yield body
    for op in body:
        if op.regions and op.name != "fusion":
            for region in op.regions:
                yield from blocks_of(region)


def ancestor_in(block: Block, op: Op) -> Op | None:
    """The op of a block that is, or holds, another one; None where the block does not hold it."""
    found: Op | None = op
    while found is not None and found.parent is not block:
        owner = found.parent.parent if found.parent is not None else None
        found = owner if isinstance(owner, Op) else None
    return found


def pin(block: Block) -> bool:
    """Makes ops with effects, which all are needed, targets of the block; whether one was not.

    A pass may then drop a use of their results without the effect being lost.
    """
    end = block.terminator
    held = {v.producer for v in end.inputs}
    changed = False
    for op in block:
        if op is not end and op not in held and end not in op.control_users and not is_pure(op):
            end.add_after(op)
            changed = True
    return changed
