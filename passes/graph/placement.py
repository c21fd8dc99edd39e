"""placement: gives each op a device, so that the whole ends early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfc.ir.core import Colocate, Function, Module, Op
from tfc.ir.devices import Device, parse_device, parse_devices
from tfc.ir.effects import ancestor_in, conflicts, outer_values
from tfc.ir.frames import refuse_cycles
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph.costs import Costs, bytes_of, read_costs
from tfc.passes.graph.device_groups import (
    DeviceGroup,
    check_kinds,
    device_groups,
    is_free,
    is_partitioned,
    tasks_of,
)
from tfc.passes.graph.simulation import Edge, Tasks, Timeline, place
from tfc.targets import link

Crossing = list[list[float]]


@register("placement")
@dataclass(frozen=True)
class Placement(Pass):
    """Puts each op on one of `devices`, and ops in the order in which a simulation starts them.

    Constraints hold: partial ones of `on`, `colocate`, and that ops on one variable or resource
    share its device. The simulation (arXiv 1603.04467, sections 3.2.1 and 4.3) takes the time of an
    op from its arithmetic and bytes, or from the profile `cost`, that of an edge from its bytes,
    and puts an op where it and what follows would finish first; `--remarks` prints its timeline.
    Without `devices` those count that the constraints name. Constants go wherever they are used.

    Before, with {devices=cpu:0+cpu:1}:
    ```mlir
    func @main(%x: tensor<512x512xf32>) -> (%y: tensor<512x512xf32>) {
      %a = matmul(%x, %x) on("/device:cpu:1") : tensor<512x512xf32>
      %b = matmul(%x, %x) : tensor<512x512xf32>
      %c = exp(%a) on(colocate(%a)) : tensor<512x512xf32>
      %y = add(%b, %c) : tensor<512x512xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<512x512xf32>) -> (%y: tensor<512x512xf32>) {
      %b = matmul(%x, %x) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<512x512xf32>
      %a = matmul(%x, %x) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<512x512xf32>
      %c = exp(%a) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<512x512xf32>
      %y = add(%b, %c) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<512x512xf32>
      return %y
    }
    ```
    """

    devices: tuple[str, ...] = ()
    cost: str = ""

    def run(self, module: Module, context: PassContext) -> bool:
        devices = parse_devices(self.devices) or _named_devices(module)
        check_kinds(devices)
        groups = device_groups(module, devices)
        costs = read_costs(self.cost, module, context.target)
        changed = False
        for function in module.functions.values():
            if not is_partitioned(function):
                refuse_cycles(function, "placement")
                changed |= _place(function, groups, devices, costs, context)
        return changed


def _named_devices(module: Module) -> tuple[Device, ...]:
    """The devices that constraints name; `cpu:0` where there is none."""
    texts = [op.device for op in module.walk() if isinstance(op.device, str)]
    named = [d.completed() for d in map(parse_device, dict.fromkeys(texts)) if d.kind is not None]
    return tuple(dict.fromkeys(named)) or parse_devices(("cpu:0",))


def _place(
    function: Function,
    groups: Sequence[DeviceGroup],
    devices: Sequence[Device],
    costs: Costs,
    context: PassContext,
) -> bool:
    """Places the ops of a function; groups of an earlier one have their one device already."""
    ops = tasks_of(function)
    home = {op: group for group in groups for op in group.ops}
    line = place(simulated(function, home, devices, costs))
    _report(function, ops, devices, line, context)
    chosen = {op: devices[line.device[task]] for task, op in enumerate(ops)}
    for op, device in chosen.items():
        home[op].allowed = (device,)
    order = [ops[task] for task in line.order]
    if not _differs(function, chosen, order) or not context.allow("placement"):
        return False
    _write(function, chosen, order)
    return True


def simulated(
    function: Function, home: dict[Op, DeviceGroup], devices: Sequence[Device], costs: Costs
) -> Tasks:
    """The ops of a function as tasks, in the order of `tasks_of`; `home` is the group of each."""
    ops = tasks_of(function)
    problem = _Problem(function, ops, devices, costs)
    groups = {id(home[op]): home[op] for op in ops}
    number = {key: n for n, key in enumerate(groups)}
    allowed = [[devices.index(d) for d in group.allowed] for group in groups.values()]
    own = [number[id(home[op])] for op in ops]
    return Tasks(problem.seconds(), problem.edges(), own, allowed)


@dataclass
class _Problem:
    """The ops of a function as tasks of a simulation."""

    function: Function
    ops: list[Op]
    devices: Sequence[Device]
    costs: Costs

    def seconds(self) -> list[list[float]]:
        kinds = {d.kind: d for d in self.devices}
        found: list[list[float]] = []
        for op in self.ops:
            cost = {kind: self.costs.seconds(op, d) for kind, d in kinds.items()}
            found.append([cost[d.kind] for d in self.devices])
        return found

    def edges(self) -> list[list[Edge]]:
        """What each op needs of others: values, control edges, the order of effects."""
        number = {op: task for task, op in enumerate(self.ops)}
        order = conflicts(self.ops)
        crossings: dict[int, Crossing] = {}
        found: list[list[Edge]] = []
        for op in self.ops:
            sizes: dict[int, int] = {}
            for value in outer_values(op):
                if value.producer in number:
                    task = number[value.producer]
                    sizes[task] = sizes.get(task, 0) + bytes_of(value)
            for other in (*self._control(op), *order.get(op, ())):
                if other in number:
                    sizes.setdefault(number[other], 0)
            for size in sizes.values():
                if size not in crossings:
                    crossings[size] = self._crossing(size)
            found.append([Edge(task, crossings[size]) for task, size in sizes.items()])
        return found

    def _control(self, op: Op) -> list[Op]:
        inside = op.walk() if op.regions else (op,)
        body = self.function.body
        found = [ancestor_in(body, other) for inner in inside for other in inner.after]
        return [other for other in found if other is not None and other is not op]

    def _crossing(self, size: int) -> Crossing:
        return [
            [0.0 if a == b else link(a, b).seconds(size) for b in self.devices]
            for a in self.devices
        ]


def _report(
    function: Function,
    ops: Sequence[Op],
    devices: Sequence[Device],
    line: Timeline,
    context: PassContext,
) -> None:
    """The simulated timeline: figures of each device, and a remark an op."""
    context.report(f"@{function.name} simulated us", _micros(line.makespan))
    for number, device in enumerate(devices):
        own = [task for task in line.order if line.device[task] == number]
        busy = sum(line.end[task] - line.start[task] for task in own)
        context.report(f"@{function.name} {device.short} ops", len(own))
        context.report(f"@{function.name} {device.short} busy us", _micros(busy))
        for task in own:
            span = f"{_micros(line.start[task])} to {_micros(line.end[task])} us"
            context.remark("timeline", ops[task], f"{device.short} {span}")


def _micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


# ---- writing


def _differs(function: Function, chosen: dict[Op, Device], order: list[Op]) -> bool:
    moved = order != tasks_of(function)
    constrained = any(o.device is not None for op in chosen if op.regions for o in op.walk())
    return moved or constrained or any(op.device != str(d) for op, d in chosen.items())


def _write(function: Function, chosen: dict[Op, Device], order: list[Op]) -> None:
    """Full names on the ops, none inside of regions; free constants first."""
    body = function.body
    for op in chosen:
        for inner in op.walk():
            if isinstance(inner.device, Colocate) or inner is not op:
                inner.device = None
    for op, device in chosen.items():
        op.device = str(device)
    constants = [op for op in body if is_free(op)]
    for op in (*constants, *order, body.terminator):
        op.detach()
        body.append(op)
