"""Which values are written straight into the memory of the variable that they are assigned to."""

from __future__ import annotations

from tfc.ir.core import Effect, Function, Module, Op, Value
from tfc.ir.memory import Held
from tfc.ops.base import View
from tfc.ops.constant import Constant
from tfc.ops.control import Launch
from tfc.ops.state import Assign, Read
from tfc.passes.graph.liveness import root
from tfc.passes.graph.webs import Web, Webs


def direct_assigns(module: Module, function: Function, webs: Webs) -> dict[Web, Held]:
    """The webs of one value, the result of a launch, for which the variable's memory will do.

    Until the assignment nothing may look at the variable, nor fail, since a call that fails leaves
    what it has not assigned; after it nothing may change the variable before the value's last use.
    """
    found: dict[Web, Held] = {}
    for op in function.body.walk():
        if isinstance(op, Assign):
            web = webs.of.get(root(op.value))
            if web and len(web.members) == 1 and _is_direct(module, op, web.members[0], webs):
                found.setdefault(web, Held(op.variable.name))
    return found


def _is_direct(module: Module, assign: Assign, value: Value, webs: Webs) -> bool:
    made, name = value.owner, assign.variable.name
    if not isinstance(made, Launch) or made.parent is not assign.parent:
        return False
    between: Op | None = made
    while between is not assign:
        if between is None or not _is_harmless(module, between, name):
            return False
        between = between.next
    return not _is_shown(name, made, assign, webs) and not _is_changed(name, assign, value, webs)


def _is_harmless(module: Module, op: Op, name: str) -> bool:
    """Whether an op cannot fail, and does not touch a variable."""
    if isinstance(op, Launch):
        kernel = module.kernels[op.kernel.name]
        return not any(o.name == "wrap_index" for o in kernel.body.walk())
    return isinstance(op, View | Constant) or (isinstance(op, Assign) and op.variable.name != name)


def _is_shown(name: str, made: Op, assign: Assign, webs: Webs) -> bool:
    """Whether a value that shows the variable's memory is needed while, or after, it is written."""
    times = webs.times
    for op in times.start:
        if not isinstance(op, Read) or op.variable.name != name or op.output in webs.copied:
            continue
        ends = [web.end for web in webs.all if op.output in web.foreign]
        end = max([times.last(op.output), *ends])
        if times.start[op] < times.start[assign] and end >= times.start[made]:
            return True
    return False


def _is_changed(name: str, assign: Assign, value: Value, webs: Webs) -> bool:
    """Whether the variable may change between an assignment and the last use of its value."""
    times = webs.times
    begin, end = times.start[assign], times.last(value)
    later = (op for op, time in times.start.items() if begin < time <= end)
    return any(
        Effect.BLOCKING in op.effects or (Effect.WRITE in op.effects and name in op.resources())
        for op in later
    )
