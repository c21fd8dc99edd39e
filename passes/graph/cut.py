"""Which edges of a function go from one device to another: what the pass `partition` cuts."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfc.ir.core import Colocate, Function, Module, Op, Value, resources_of
from tfc.ir.devices import Device, parse_device
from tfc.ir.effects import ancestor_in, outer_values
from tfc.ir.errors import UnsupportedError
from tfc.ir.expr import Expr
from tfc.ir.types import TensorType
from tfc.passes.graph.device_groups import is_free, named


@dataclass
class Cut:
    """The devices of a function in order of first use, and its edges between them.

    An edge is an op and a value of it, or None for a control edge. `arrivals` are those that first
    are needed by an op, `leaving` those that go out from one, each with the device that it goes to.
    `names` are short names of the devices; `keys` hold what an edge to a device is called.
    """

    devices: list[Device]
    names: dict[Device, str]
    home: dict[Op, Device]
    values_of: dict[Op, list[Value]] = field(default_factory=dict[Op, "list[Value]"])
    arrivals: dict[Op, list[tuple[Op, Value | None]]] = field(
        default_factory=dict[Op, "list[tuple[Op, Value | None]]"]
    )
    leaving: dict[Op, list[tuple[Value | None, Device]]] = field(
        default_factory=dict[Op, "list[tuple[Value | None, Device]]"]
    )
    keys: dict[tuple[Op, Value | None, Device], str] = field(
        default_factory=dict["tuple[Op, Value | None, Device]", str]
    )


def names_devices(function: Function) -> bool:
    """Whether an op of a function says where it runs."""
    return any(op.device is not None for op in function.body.walk())


def cut(module: Module, function: Function) -> Cut:
    """The edges between devices of a function that holds only what it needs.

    Raises TfcError for an op without a device, for one with a part on another device, and for ops
    on one variable or resource that lie apart; UnsupportedError for what cannot cross.
    """
    ops = [op for op in function.body if not op.terminator and not is_free(op)]
    home: dict[Op, Device] = {}
    for op in ops:
        home[op] = _device_of(op, function, home)
        _check_inside(op, home[op])
    _check_shared(module, home)
    devices = list(dict.fromkeys(home.values()))
    found = Cut(devices, _names(devices), home)
    for op in ops:
        _find_edges(op, function, found)
    for value in function.body.terminator.inputs:
        if value.producer in home and len(devices) > 1:
            _check_crossing(value, function)
    return found


def without_devices(function: Function) -> None:
    """Takes the constraints off ops that all lie on one device."""
    for op in function.body.walk():
        op.device = None


def _names(devices: list[Device]) -> dict[Device, str]:
    """`cpu:0` where all lie on one machine; else the full names, without slashes at the ends."""
    if len({(d.job, d.replica, d.task) for d in devices}) == 1:
        return {d: d.short for d in devices}
    return {d: str(d).removeprefix("/") for d in devices}


# ---- where ops lie


def _device_of(op: Op, function: Function, home: dict[Op, Device]) -> Device:
    if isinstance(op.device, Colocate):
        other = ancestor_in(function.body, op.device.op)
        if other in home:
            return home[other]
    if isinstance(op.device, str):
        device = parse_device(op.device)
        if device.is_full:
            return device
    says = "no device" if op.device is None else f"only {op.device}"
    raise op.error(f"{named(op)} names {says}", "the pass `placement` gives every op a device")


def _check_inside(op: Op, device: Device) -> None:
    """What an op holds may ask for nothing but the op's own device."""
    for inner in op.walk():
        if isinstance(inner.device, str) and not parse_device(inner.device).fits(device):
            asks = f"{named(inner)} asks for {inner.device}"
            raise UnsupportedError(
                f"{asks}, but {named(op)} around it runs on {device}",
                position=inner.location.position,
                hint="a branch or a loop lies on one device: move the op out, or the whole there",
            )


def _check_shared(module: Module, home: dict[Op, Device]) -> None:
    """Ops on one variable or resource lie together, so that their order is that of the text."""
    first: dict[str, Op] = {}
    for op, device in home.items():
        for name in resources_of(op):
            if name not in module.variables and name not in module.resources:
                continue
            other = first.setdefault(name, op)
            if home[other] != device:
                places = f"{named(op)} on {device} and {named(other)} on {home[other]}"
                hint = "a variable or resource has one device"
                raise op.error(f"{places} both touch @{name}", hint)


# ---- edges


def _find_edges(op: Op, function: Function, found: Cut) -> None:
    """Books what an op needs from other devices, unless it is there already."""
    device = found.home[op]
    found.values_of[op] = list(outer_values(op))
    for value in found.values_of[op]:
        maker = value.producer
        if maker in found.home and found.home[maker] != device:
            _check_crossing(value, function)
            _book(found, op, maker, value)
    for inner in op.walk() if op.regions else (op,):
        for other in inner.after:
            maker = ancestor_in(function.body, other)
            if maker is None or maker is op or maker not in found.home:
                continue
            if found.home[maker] != device and not _has_arrived(found, maker, device):
                _book(found, op, maker, None)


def _book(found: Cut, user: Op, maker: Op, value: Value | None) -> None:
    edge = (value, found.home[user])
    leaving = found.leaving.setdefault(maker, [])
    if edge not in leaving:
        leaving.append(edge)
        found.arrivals.setdefault(user, []).append((maker, value))


def _has_arrived(found: Cut, maker: Op, device: Device) -> bool:
    """Whether some tensor of an op goes to a device, for this user or an earlier one."""
    return any(there == device for _, there in found.leaving.get(maker, ()))


def _check_crossing(value: Value, function: Function) -> None:
    """A tensor's size must be known where it arrives: from the inputs, which all parts have."""
    kind = value.type
    known = {
        str(dim)
        for arg in function.body.args
        if isinstance(arg.type, TensorType)
        for dim in arg.type.shape
    }
    symbols = [s for d in getattr(kind, "shape", ()) if isinstance(d, Expr) for s in d.symbols()]
    maker = value.producer
    for symbol in symbols:
        if symbol not in known:
            raise UnsupportedError(
                f"{value!r} has the size {symbol}, which is found in data, and goes to another "
                "device or out of a function of several",
                position=maker.location.position if maker else None,
                hint="keep the op that finds it and all users on one device",
            )
