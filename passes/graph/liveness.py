"""Which values of a function need memory, and when: shared by scheduling and planning."""

from __future__ import annotations

from tfc.ir.core import Block, Effect, Op, Value
from tfc.ir.expr import Dim
from tfc.ir.types import TensorType
from tfc.ops.base import View
from tfc.ops.constant import Constant
from tfc.ops.state import Assign


def root(value: Value) -> Value:
    """The value whose memory this one shows: itself, unless views made it, or an assignment."""
    while isinstance(value.owner, View | Assign):
        value = value.owner.x if isinstance(value.owner, View) else value.owner.value
    return value


def memory_of(value: Value) -> Dim:
    """The bytes that an op's result needs of its own; none for views and constants."""
    if isinstance(value.owner, View | Constant | Assign) or not isinstance(value.type, TensorType):
        return 0
    return value.type.bytes


def returned(block: Block) -> dict[Value, None]:
    """The values that the terminator hands out, and those that they are views of."""
    values = block.terminator.inputs
    return dict.fromkeys([*values, *map(root, values)])


def outer_values(op: Op) -> list[Value]:
    """The values that an op and those of its regions use and that are defined before it."""
    if not op.regions:
        return op.inputs
    own = {id(block) for o in op.walk() for block in o.regions}
    used = [v for o in op.walk() for v in o.inputs]
    return list(dict.fromkeys(v for v in used if id(_home(v)) not in own))


def _home(value: Value) -> Block | None:
    return value.owner.parent if isinstance(value.owner, Op) else value.owner


def ancestor_in(block: Block, op: Op) -> Op:
    """The op of a block that is, or holds, another op."""
    while op.parent is not block:
        assert op.parent is not None and isinstance(op.parent.parent, Op), f"{op} is not inside"
        op = op.parent.parent
    return op


def dependencies(op: Op, block: Block) -> list[Op]:
    """The ops of a block that must run before another op of it, effects aside."""
    inner = [op] if not op.regions else list(op.walk())
    before = [v.producer for v in outer_values(op)]
    before += [o for i in inner for o in i.after]
    before += [i.device.op for i in inner if i.device is not None and not isinstance(i.device, str)]
    held = {id(o) for o in inner}
    found = [o for o in before if o is not None and id(o) not in held and _is_in(block, o)]
    return list(dict.fromkeys(ancestor_in(block, o) for o in found))


def _is_in(block: Block, op: Op) -> bool:
    while op.parent is not block:
        if op.parent is None or not isinstance(op.parent.parent, Op):
            return False
        op = op.parent.parent
    return True


def has_effects(op: Op) -> bool:
    return any(o.effects is not Effect.NONE for o in op.walk())
