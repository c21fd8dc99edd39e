"""Values that `scan` both carries and gives out: they are carried where the output holds them."""

from __future__ import annotations

from tfc.ir.core import Function, Op, Value
from tfc.ir.memory import Slice
from tfc.ops.control import Launch
from tfc.ops.loops import Scan
from tfc.passes.graph.liveness import root
from tfc.passes.graph.regions import ancestors, home, is_inside, is_loop
from tfc.passes.graph.webs import Web, Webs


def carried_outputs(function: Function, webs: Webs) -> dict[Value, Slice]:
    """The results of launches that are written to a part of an output, and carried on from there.

    The output's memory then has to stay for as long as what is carried: its web is made to end no
    earlier. An outer loop would write the output again, so the values must not outlast its body.
    """
    found: dict[Value, Slice] = {}
    for op in function.body.walk():
        if not isinstance(op, Scan):
            continue
        values = [root(v) for v in op.do.terminator.inputs]
        for number in range(op.carries, len(values)):
            value, whole = values[number], webs.of[op.results[number]]
            if value not in values[: op.carries] or value in found:
                continue
            if not isinstance(value.owner, Launch) or home(value) is not op.do:
                continue
            web = webs.of[value]
            if len(whole.members) == 1 and _stays_inside(web, op):
                found[value] = Slice(op, number)
                whole.end = max(whole.end, web.end)
    return found


def _stays_inside(web: Web, scan: Scan) -> bool:
    """Whether no value of a web outlasts one run of the loops around a scan."""
    around = [o.parent for o in ancestors(scan) if o.parent and _is_of_loop(o.parent.parent)]
    return all(
        member.owner is not block and is_inside(home(member), block)
        for block in around
        for member in web.members
    )


def _is_of_loop(parent: object) -> bool:
    return isinstance(parent, Op) and is_loop(parent)
