"""Which ops share a device, and on which devices they may run: what placement must keep.

Ops share a device by `colocate`, by a variable or resource that both touch, in whichever function
of the module, and by a region: what stands inside runs where the op that holds it does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tfc.ir.core import Colocate, Function, Module, Op, resources_of
from tfc.ir.devices import ANY_DEVICE, Device, parse_device
from tfc.ir.effects import ancestor_in
from tfc.ir.errors import TfcError
from tfc.ops.constant import Constant
from tfc.ops.stateful import StatefulOp
from tfc.targets import DEVICE_KINDS

MOST_NAMED = 4  # ops that an error names


@dataclass
class DeviceGroup:
    """Ops of bodies of functions that share a device; `allowed` are the devices that they may have.

    `wanted` are the constraints and the ops that say them, `shares` what makes them share.
    """

    ops: list[Op] = field(default_factory=list[Op])
    wanted: list[tuple[Op, Device]] = field(default_factory=list["tuple[Op, Device]"])
    shares: list[str] = field(default_factory=list[str])
    allowed: tuple[Device, ...] = ()

    @property
    def constraint(self) -> Device:
        """All constraints as one, which do not clash."""
        merged = ANY_DEVICE
        for _, device in self.wanted:
            merged = merged.merged(device)
        return merged


def is_free(op: Op) -> bool:
    """Whether an op goes wherever it is used: a constant that nothing else ties down."""
    tied = op.after or op.control_users or op.device is not None or op.colocated
    return isinstance(op, Constant) and not tied


def is_partitioned(function: Function) -> bool:
    """Whether a function is a part of another, or calls such parts: its ops have their places."""
    calls = any(op.name == "run_partitions" for op in function.body)
    return "device" in function.attributes or calls


def tasks_of(function: Function) -> list[Op]:
    """The ops of a function that are to be placed, in order."""
    return [op for op in function.body if not op.terminator and not is_free(op)]


def device_groups(module: Module, devices: Sequence[Device]) -> list[DeviceGroup]:
    """The groups of a module in order of their first ops, each with the devices that it may have.

    Raises TfcError where there are none, naming the ops and the constraints that clash.
    """
    functions = [f for f in module.functions.values() if not is_partitioned(f)]
    union = _Union()
    shares: dict[Op, list[str]] = {}
    held: dict[str, Op] = {}
    order: dict[Op, int] = {}
    for function in functions:
        for op in tasks_of(function):
            order[op] = len(order)
            for name in resources_of(op):
                if name in module.variables or name in module.resources:
                    union.join(held.setdefault(name, op), op)
                    shares.setdefault(op, []).append(f"@{name}")
            _join_colocated(union, function, op)
    groups: dict[Op, DeviceGroup] = {}
    for op in order:
        group = groups.setdefault(union.find(op), DeviceGroup())
        group.ops.append(op)
        group.shares += [s for s in shares.get(op, ()) if s not in group.shares]
        for inner in op.walk():
            if isinstance(inner.device, str):
                group.wanted.append((inner, parse_device(inner.device)))
    for group in groups.values():
        _check_clash(group)
        group.allowed = _allowed(group, devices)
    return list(groups.values())


def _join_colocated(union: _Union, function: Function, op: Op) -> None:
    for inner in op.walk():
        if isinstance(inner.device, Colocate):
            other = ancestor_in(function.body, inner.device.op)
            if other is not None and other is not op:
                union.join(other, op)


class _Union:
    """Disjoint sets of ops (union by size, paths halved)."""

    def __init__(self) -> None:
        self.parent: dict[Op, Op] = {}
        self.size: dict[Op, int] = {}

    def find(self, op: Op) -> Op:
        parent = self.parent
        while (above := parent.get(op, op)) is not op:
            parent[op] = parent.get(above, above)
            op = parent[op]
        return op

    def join(self, a: Op, b: Op) -> None:
        a, b = self.find(a), self.find(b)
        if a is b:
            return
        if self.size.get(a, 1) < self.size.get(b, 1):
            a, b = b, a
        self.parent[b] = a
        self.size[a] = self.size.get(a, 1) + self.size.get(b, 1)


# ---- what fits


def supports(kind: str, op: Op) -> bool:
    """Whether a kind of device runs an op: a GPU has no state, and no control of its own."""
    if kind == "cpu":
        return True
    inside = list(op.walk())
    return not any(isinstance(o, StatefulOp) for o in inside) and (
        op.name == "fusion" or len(inside) == 1
    )


def check_kinds(devices: Iterable[Device]) -> None:
    for device in devices:
        if device.kind not in DEVICE_KINDS:
            hint = f"the kinds are {', '.join(DEVICE_KINDS)}"
            raise TfcError(f"the device {device} is of no known kind", hint=hint)


def _check_clash(group: DeviceGroup) -> None:
    """Two constraints of a group that no device meets."""
    merged = ANY_DEVICE
    for number, (op, wanted) in enumerate(group.wanted):
        if not merged.clash(wanted):
            merged = merged.merged(wanted)
            continue
        other, before = next((o, d) for o, d in group.wanted[:number] if d.clash(wanted))
        parts = " and ".join(before.clash(wanted))
        why = f": both touch {', '.join(group.shares)}" if group.shares else ""
        raise op.error(
            f"{named(other)} asks for {before} and {named(op)} for {wanted}, but they must share "
            f"a device{why}",
            f"they differ in {parts}: change one of the constraints",
        )


def _allowed(group: DeviceGroup, devices: Sequence[Device]) -> tuple[Device, ...]:
    constraint = group.constraint
    fitting = [d for d in devices if constraint.fits(d)] if group.wanted else list(devices)
    known = ", ".join(map(str, devices))
    if not fitting:
        says = _listed(f"{named(op)} asks for {d}" for op, d in group.wanted)
        raise group.wanted[0][0].error(f"no device fits: {says}", f"the devices are {known}")
    allowed = [d for d in fitting if all(supports(d.kind or "", op) for op in group.ops)]
    if not allowed:
        kind = fitting[0].kind or ""
        stuck = [op for op in group.ops if not supports(kind, op)]
        says = (
            _listed(f"{named(op)} asks for {d}" for op, d in group.wanted) or "any device will do"
        )
        text = f"no {kind} runs {_listed(map(named, stuck))}, and {says}"
        raise stuck[0].error(text, f"the devices are {known}")
    return tuple(allowed)


def named(op: Op) -> str:
    """An op as an error names it."""
    if op.results and op.results[0].name:
        return f"%{op.results[0].name} ({op.name})"
    return f"^{op.label} ({op.name})" if op.label else f"`{op.name}`"


def _listed(texts: Iterable[str]) -> str:
    found = list(texts)
    more = f", and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more
