"""The ops of a block as numbers: what each needs, makes and reads, how long it takes, and where."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from tfc.ir.core import Block, Op, Value
from tfc.ir.devices import Device, parse_device
from tfc.ir.effects import conflicts
from tfc.passes.graph.arena import aligned, nominal
from tfc.passes.graph.costs import Costs, bytes_of
from tfc.passes.graph.liveness import dependencies, memory_of, outer_values, returned, root
from tfc.passes.graph.orders import Problem, good_orders, latest_starts
from tfc.targets import DEVICE_KINDS, SAME_PROCESS, link

_HERE = Device("localhost", 0, 0, "cpu", 0)


class BlockGraph:
    """A block without its terminator, whose ops are numbered in their order.

    `inner` is what an op with regions needs besides, in bytes.
    """

    def __init__(self, block: Block, costs: Costs, inner: dict[Op, int]) -> None:
        self.block = block
        self.ops = [op for op in block if not op.terminator]
        self.number = {op: n for n, op in enumerate(self.ops)}
        needs = self._needs()
        self.devices = [_device(op) for op in self.ops]
        self.seconds = [
            _seconds(op, d, costs) for op, d in zip(self.ops, self.devices, strict=True)
        ]
        values, sizes = self._values()
        self.problem = Problem(
            needs,
            [[values[v] for v in op.results] for op in self.ops],
            [self._reads(op, values, sizes) for op in self.ops],
            sizes,
            [inner.get(op, 0) for op in self.ops],
            latest_starts(needs, self.seconds),
        )

    def with_inner(self, inner: dict[Op, int]) -> BlockGraph:
        """The same, with other needs of regions."""
        other = object.__new__(BlockGraph)
        vars(other).update(vars(self))
        other.problem = replace(self.problem, inner=[inner.get(op, 0) for op in self.ops])
        return other

    def _needs(self) -> list[list[int]]:
        needs = [[self.number[o] for o in dependencies(op, self.block)] for op in self.ops]
        for second, earlier in conflicts(self.ops).items():
            known = needs[self.number[second]]
            # Sending before it waits instead of after harms nobody: it makes others wait less.
            kept = [o for o in earlier if not (o.name == "recv" and second.name == "send")]
            known += [n for o in kept if (n := self.number[o]) not in known]
        return needs

    def _values(self) -> tuple[dict[Value, int], list[int]]:
        """Numbers of values, and their bytes; what is handed out needs no memory of the block."""
        kept = returned(self.block)
        made = [v for op in self.ops for v in op.results]
        sizes = [0 if v in kept else nominal(aligned(memory_of(v))) for v in made]
        return {v: n for n, v in enumerate(made)}, sizes

    def _reads(self, op: Op, values: dict[Value, int], sizes: list[int]) -> list[int]:
        roots = dict.fromkeys(map(root, outer_values(op)))
        return [values[v] for v in roots if v in values and sizes[values[v]]]

    # ---- orders

    def best(self) -> list[int]:
        """The order of the lowest peak; the earliest end decides between equals."""
        found = [self.sunk(order) for order in good_orders(self.problem)]
        peaks = [self.problem.peak(order) for order in found]
        lowest = min(peaks)
        equal = [order for order, peak in zip(found, peaks, strict=True) if peak == lowest]
        return min(equal, key=lambda order: round(self.makespan(order) * 1e10))

    def sunk(self, order: list[int]) -> list[int]:
        """The order with each `recv` right before the first op that needs it."""
        if not self.recvs:
            return order
        found: list[int] = []
        waiting: set[int] = set()

        def place(op: int) -> None:
            for other in self.problem.needs[op]:
                if other in waiting:
                    waiting.discard(other)
                    place(other)
            found.append(op)

        for op in order:
            if op in self.recvs:
                waiting.add(op)
            else:
                place(op)
        for op in sorted(waiting):
            if op in waiting:
                waiting.discard(op)
                place(op)
        return found

    @cached_property
    def recvs(self) -> set[int]:
        return {n for n, op in enumerate(self.ops) if op.name == "recv"}

    def makespan(self, order: list[int]) -> float:
        """When the last op ends if each device runs its ops in this order."""
        free: dict[Device, float] = {}
        end = [0.0] * len(self.ops)
        for op in order:
            device = self.devices[op]
            start = free.get(device, 0.0)
            for other in self.problem.needs[op]:
                start = max(start, end[other] + self._crossing(other, op))
            free[device] = end[op] = start + self.seconds[op]
        return max(end, default=0.0)

    def _crossing(self, source: int, user: int) -> float:
        a, b = self.devices[source], self.devices[user]
        if a == b:
            return 0.0
        return link(a, b).seconds(sum(map(bytes_of, self.ops[source].results)))


def _device(op: Op) -> Device:
    """Where an op runs, as far as it says; what says nothing runs on one device."""
    if not isinstance(op.device, str):
        return _HERE
    device = parse_device(op.device).completed()
    return device if device.kind in DEVICE_KINDS else _HERE


def _seconds(op: Op, device: Device, costs: Costs) -> float:
    if op.name == "recv":
        return SAME_PROCESS.seconds(sum(map(bytes_of, op.results)))
    return costs.seconds(op, device)
