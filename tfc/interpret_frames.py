"""Runs primitive control flow by tagged frames (arXiv 1603.04467, section 4.4).

Each iteration of a frame has values of its own; a value that is not among them is dead. An op runs
once for each iteration of its frame in which all that it uses is alive, and all that it runs after
ran. What conflicts runs in the order of the text; a frame ends before what follows it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tfc.interpret import Array, Run, evaluated_type
from tfc.ir.core import Block, Function, Op, Value
from tfc.ir.effects import outer_values
from tfc.ir.frame_order import FrameOrder, Orders, needed_of
from tfc.ir.frames import Frame, frames_of
from tfc.ir.run_errors import DeadValueError


@dataclass(eq=False)
class _Iteration:
    """One iteration of a frame: the values that are alive, the ops that ran, what goes on."""

    values: dict[Value, Array]
    ran: set[Op] = field(default_factory=set[Op])
    next: dict[Value, Array] = field(default_factory=dict[Value, Array])


class FrameRun(Run):
    """A run of a function that holds primitive control flow."""

    def block(self, block: Block) -> list[Array]:
        return self._body(block) if isinstance(block.parent, Function) else super().block(block)

    def _body(self, body: Block) -> list[Array]:
        frames = frames_of(body)
        needed = needed_of(body)
        self.orders = Orders(body, frames, needed)
        self.plans: dict[Frame, FrameOrder] = {}
        self.counts: dict[Op, int] = {}
        for op in body:
            if op in needed and frames.of[op] is None:
                self.op(op)
        self.everywhere = dict(self.values)
        self.iteration = _Iteration(self.values)
        self._sweep(frames.root)
        self.values = self.iteration.values
        for value in body.terminator.inputs:
            if value not in self.values:
                raise self._dead(value)
        return [self.values[v] for v in body.terminator.inputs]

    def _dead(self, value: Value) -> DeadValueError:
        made = value.producer
        return DeadValueError(
            f"the value %{value.name} is dead: no branch that was taken makes it",
            position=made.location.position if made else None,
            hint="ask for what a `merge` makes of both branches",
        )

    def _sweep(self, frame: Frame) -> None:
        """Runs all of a frame, once for its current iteration."""
        if frame not in self.plans:
            self.plans[frame] = self.orders.order(frame)
        for item in self.plans[frame].items:
            if isinstance(item, Frame):
                self._loop(item)
            elif item.name == "merge":
                self._merge(item)
            elif item.name == "live_or_zeros":
                self._settle(item)
            elif self._is_live(item) and item.name != "exit":
                self.iteration.ran.add(item)
                self._step(item)

    def _is_live(self, op: Op) -> bool:
        values, ran = self.iteration.values, self.iteration.ran
        return all(v in values for v in outer_values(op)) and self._waited(op, ran)

    def _waited(self, op: Op, ran: set[Op]) -> bool:
        """Whether what an op runs after ran; what is the same everywhere is no matter."""
        own = set(op.walk()) if op.regions else {op}
        after = [o for inner in own for o in inner.after if o not in own]
        return all(o in ran or self.orders.frames.of.get(o) is None for o in after)

    def _step(self, op: Op) -> None:
        self.counts[op] = self.counts.get(op, 0) + 1
        self.values = values = self.iteration.values
        match op.name:
            case "switch":
                data, predicate = op.inputs
                values[op.results[int(bool(values[predicate]))]] = values[data]
            case "next_iteration":
                self.iteration.next[op.result] = values[op.inputs[0]]
            case "loop_cond":
                values[op.result] = values[op.inputs[0]]
            case _:
                self.op(op)

    def _merge(self, op: Op) -> None:
        values, ran = self.iteration.values, self.iteration.ran
        live = [i for i, v in enumerate(op.inputs) if v in values]
        if not live or not self._waited(op, ran):
            return
        if len(live) > 1:
            names = " and ".join(f"%{op.inputs[i].name}" for i in live)
            raise op.error(f"{names} are alive at once", "a merge takes the one that is")
        ran.add(op)
        output, index = op.results
        values[output] = values[op.inputs[live[0]]]
        values[index] = np.asarray(live[0], np.int32)

    def _settle(self, op: Op) -> None:
        values, ran = self.iteration.values, self.iteration.ran
        if not self._waited(op, ran):
            return
        ran.add(op)
        (value,), (output, live) = op.inputs, op.results
        zeros = self.fresh(evaluated_type(value.type, self.symbols))
        values[output] = values.get(value, zeros)
        values[live] = np.asarray(value in values)

    def _loop(self, frame: Frame) -> None:
        """Runs a frame to its end, for the current iteration of the one around it."""
        outer = self.iteration
        first, always = dict[Value, Array](), dict(self.everywhere)
        for op in self.orders.enters(frame):
            if self._is_live(op):
                given = always if op.attributes.get("constant") else first
                given[op.result] = outer.values[op.inputs[0]]
                outer.ran.add(op)
        self.iteration = _Iteration({**always, **first})
        entered = {op for op in self.orders.enters(frame) if op in outer.ran}
        while True:
            self.iteration.ran |= entered
            self._sweep(frame)
            for op in self.orders.exits[frame]:
                if self._is_live(op):
                    self._leave(op, outer)
            if not self.iteration.next:
                break
            self.iteration = _Iteration({**always, **self.iteration.next})
        self.iteration = outer
        self.values = outer.values

    def _leave(self, op: Op, outer: _Iteration) -> None:
        if op in outer.ran:
            raise op.error("its operand is alive in two iterations", "a loop is left once")
        outer.ran.add(op)
        outer.values[op.result] = self.iteration.values[op.inputs[0]]
