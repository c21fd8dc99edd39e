"""Merges of which it is known beforehand what they take: what is fed, or all that is not dead.

A caller may feed a value in a branch, or go on with a run of which it is known what was dead. A
value that is fed is there first, and is what a merge takes; one that `switch` sends the other way
by a constant is dead, and so is what uses it.
"""

from __future__ import annotations

from enum import Enum, auto

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Effect, Function, Op, Value
from tfc.ir.effects import effects_of, outer_values
from tfc.ir.frame_order import needed_by
from tfc.ir.frames import PRIMITIVE, has_primitive_control, is_everywhere, is_forward
from tfc.ops.constant import Constant, constant
from tfc.ops.dataflow import Merge, Switch
from tfc.ops.view import Identity


class Life(Enum):
    """What is known of a value, or of an op, before the run."""

    ALIVE = auto()
    DEAD = auto()
    UNKNOWN = auto()


def settle_merges(function: Function) -> bool:
    """Replaces the merges of a function's body of which it is known what they take."""
    if not has_primitive_control(function):
        return False
    lives: dict[Value | Op, Life] = dict.fromkeys(function.body.args, Life.ALIVE)
    changed = False
    for op in function.body:
        if isinstance(op, Merge) and not any(is_forward(v) for v in op.values):
            changed |= _settle(op, lives)
        else:
            _look(op, lives)
    return changed


def _look(op: Op, lives: dict[Value | Op, Life]) -> None:
    before = [*outer_values(op), *(o for inner in op.walk() for o in inner.after)]
    life = _common([lives.get(b, Life.UNKNOWN) for b in before])
    if op.name in PRIMITIVE and not isinstance(op, Switch):
        life = Life.DEAD if life is Life.DEAD and op.name == "loop_cond" else Life.UNKNOWN
    lives[op] = Life.ALIVE if is_everywhere(op) else life
    lives.update(dict.fromkeys(op.results, lives[op]))
    if isinstance(op, Switch) and life is not Life.DEAD:
        maker = op.predicate.producer
        taken = bool(maker.splat) if isinstance(maker, Constant) else None
        for side, value in enumerate((op.on_false, op.on_true)):
            lives[value] = Life.UNKNOWN if taken is None else life if side == taken else Life.DEAD


def _common(lives: list[Life]) -> Life:
    if Life.DEAD in lives:
        return Life.DEAD
    return Life.UNKNOWN if Life.UNKNOWN in lives else Life.ALIVE


def _settle(op: Merge, lives: dict[Value | Op, Life]) -> bool:
    """Replaces a merge if there is one operand that it takes or, if that is dead, none."""
    known = [lives.get(v, Life.UNKNOWN) for v in op.values]
    if Life.ALIVE in known:
        chosen = known.index(Life.ALIVE)
    elif len(known) - known.count(Life.DEAD) == 1:
        chosen = next(i for i, life in enumerate(known) if life is not Life.DEAD)
    else:
        lives.update(dict.fromkeys(op.results, _common(known)))
        return False
    lives.update(dict.fromkeys(op.results, known[chosen]))
    if op.after or _others_have_effects(op, chosen):
        return False
    value, maker = op.values[chosen], op.values[chosen].producer
    assert op.parent is not None, "it stands in a body"
    b = Builder(op.parent, op)
    index: Op = b.add(Identity(constant(b, np.array(chosen, np.int32))))
    if maker is not None:
        index.add_after(maker)
    lives.update(dict.fromkeys([index, *index.results], known[chosen]))
    if op.control_users:
        waited: Op = b.add(Identity(value))
        lives[waited] = known[chosen]
        for user in list(op.control_users):
            user.remove_after(op)
            user.add_after(waited)
    op.output.replace_uses(value)
    op.index.replace_uses(index.results[0])
    return True


def _others_have_effects(op: Merge, chosen: int) -> bool:
    """Whether the other operands need what must run in any case and that nothing else asks for."""
    makers = [v.producer for i, v in enumerate(op.values) if i != chosen and v.producer]
    assert op.parent is not None, "it stands in a body"
    asked = set(op.parent.terminator.after)
    return any(effects_of(o) & ~Effect.READ and o not in asked for o in needed_by(makers))
