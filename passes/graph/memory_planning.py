"""memory-planning: gives every value that a function keeps in memory a place in one arena."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.core import Block, Function, Module, Op, Value
from tfc.ir.expr import Dim
from tfc.ir.memory import MemoryPlan, Output, Room, Slice, Target
from tfc.ops.control import Launch
from tfc.ops.loops import Scan
from tfc.passes.base import Pass, PassContext, changes, register
from tfc.passes.graph.arena import Interval, nominal, peak, plan
from tfc.passes.graph.direct_assigns import direct_assigns
from tfc.passes.graph.liveness import memory_of, root
from tfc.passes.graph.regions import home, is_inside
from tfc.passes.graph.scan_outputs import carried_outputs
from tfc.passes.graph.webs import Web, Webs


@register("memory-planning")
@dataclass(frozen=True)
class MemoryPlanning(Pass):
    """Places values in one arena, where those that live at different times share memory.

    A `launch` gets `offset`: for each result its place in bytes, a multiple of 64, or -1 for one
    that needs none here (it is returned, so it goes to the caller's memory). The function gets
    `arena`, the size in bytes. Inputs, constants and views need no place. The results of a launch
    never share memory with its operands.

    What loops carry and regions yield shares a few places with what it becomes (see `webs`), of
    which `offset` names the first: `plan_memory` gives all of them to code generation.

    Before:
    ```mlir
    module {
      func @main(%x: tensor<Sx64xf32>) -> (%y: tensor<Sx64xf32>) {
        %a = launch(%x) {kernel = @copy} : tensor<Sx64xf32>
        %b = launch(%a) {kernel = @copy} : tensor<Sx64xf32>
        %c = launch(%b) {kernel = @copy} : tensor<Sx64xf32>
        %y = launch(%c) {kernel = @copy} : tensor<Sx64xf32>
        return %y
      }
      kernel @copy(%a: buffer<(64*S)xf32>, %b: buffer<(64*S)xf32, out>) grid(p0 = S) {
        %t = load(%a) {at = (64*p0+c)} : tile<1x64xf32>
        store(%b, %t) {at = (64*p0+c)}
      }
    }
    ```
    After:
    ```mlir
    module {
      func @main(%x: tensor<Sx64xf32>) -> (%y: tensor<Sx64xf32>) {arena = (512*S)} {
        %a = launch(%x) {kernel = @copy, offset = [0]} : tensor<Sx64xf32>
        %b = launch(%a) {kernel = @copy, offset = [(256*S)]} : tensor<Sx64xf32>
        %c = launch(%b) {kernel = @copy, offset = [0]} : tensor<Sx64xf32>
        %y = launch(%c) {kernel = @copy} : tensor<Sx64xf32>
        return %y
      }
      kernel @copy(%a: buffer<(64*S)xf32>, %b: buffer<(64*S)xf32, out>) grid(p0 = S) {
        %t = load(%a) {at = (64*p0+c)} : tile<1x64xf32>
        store(%b, %t) {at = (64*p0+c)}
      }
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        return changes(_plan_function(module, f, context) for f in module.functions.values())


def plan_memory(module: Module, function: Function) -> MemoryPlan:
    """Where the values of a function lie."""
    rooms = _Rooms(module, function)
    places, arena = plan(rooms.intervals)
    found = MemoryPlan(arena)
    for value, room in rooms.found.items():
        offsets = tuple(places[number] for number in room.numbers)
        found.rooms[value] = Room(offsets, room.target, room.avoid)
    return found


def _plan_function(module: Module, function: Function, context: PassContext) -> bool:
    rooms = _Rooms(module, function)
    places, arena = plan(rooms.intervals)
    offsets: dict[Op, list[Dim]] = {}
    for value, room in rooms.found.items():
        if isinstance(value.owner, Launch) and room.numbers and not room.target:
            none: list[Dim] = [-1] * len(value.owner.results)
            offsets.setdefault(value.owner, none)[value.index] = places[room.numbers[0]]
    context.report(f"@{function.name} arena", _size_text(arena))
    context.report(f"@{function.name} peak of what is live", peak(rooms.intervals))
    return _record(function, offsets, arena, context)


@dataclass(frozen=True)
class _Room:
    """As a `Room`, with numbers of intervals in place of offsets."""

    numbers: tuple[int, ...]
    target: Target | None
    avoid: tuple[Value, ...]


class _Rooms:
    """The intervals of memory that a function needs, and which of them each value may use."""

    def __init__(self, module: Module, function: Function) -> None:
        self.webs = Webs(function)
        self.intervals: list[Interval] = []
        self.found: dict[Value, _Room] = {}
        targets: dict[Web, Target] = {**direct_assigns(module, function, self.webs)}
        targets |= _targets(function, self.webs)
        carried = carried_outputs(function, self.webs)
        for value, part in carried.items():
            self.found[value] = _Room((), part, ())
        for web in self.webs.all:
            writes = [v for v in web.writes if v not in carried]
            if writes:
                self._add(web, writes, targets.get(web))

    def _add(self, web: Web, writes: list[Value], target: Target | None) -> None:
        """As many places as values of the web are needed at once; a target is one of them."""
        avoid = {value: self._needed(web, value) for value in writes}
        count = 1 + max(map(len, avoid.values())) - (target is not None)
        first = len(self.intervals)
        numbers = tuple(range(first, first + count))
        size = memory_of(writes[0])
        self.intervals += [(web.start, web.end, size)] * count
        for value in writes:
            self.found[value] = _Room(numbers, target, avoid[value])

    def _needed(self, web: Web, written: Value) -> tuple[Value, ...]:
        """The values of a web that must not be overwritten when one is written."""
        if len(web.members) == 1:
            return ()
        owner = written.owner
        at = owner if isinstance(owner, Op) else owner.first
        assert at is not None, "a region has a terminator"
        beside = (owner.results if isinstance(owner, Op) else owner.args)[: written.index]
        beside = [v for v in beside if isinstance(owner, Block) or self.webs.is_written(v)]
        return tuple(
            v
            for v in web.members
            if v is not written
            and (v in beside if v.owner is owner else self.webs.times.is_live(v, at))
        )


def _targets(function: Function, webs: Webs) -> dict[Web, Output | Slice]:
    """The webs that are written to where they are needed: an output, or a part of one of a scan."""
    found: dict[Web, Output | Slice] = {}
    for number, value in enumerate(function.body.terminator.inputs):
        web = webs.of.get(root(value))
        if web is not None and web.writes:
            found.setdefault(web, Output(number))
    for op in function.body.walk():
        if not isinstance(op, Scan):
            continue
        for number, value in enumerate(op.do.terminator.inputs):
            web = webs.of.get(root(value))
            if number >= op.carries and web and web.writes and _is_within(web, op.do):
                found.setdefault(web, Slice(op, number))
    return found


def _is_within(web: Web, block: Block) -> bool:
    """Whether all values of a web are made by the ops of a block."""
    return all(v.owner is not block and is_inside(home(v), block) for v in web.members)


def _record(
    function: Function, offsets: dict[Op, list[Dim]], arena: Dim, context: PassContext
) -> bool:
    """Writes the plan into the IR; whether it differs from what stood there."""
    planned = {op: tuple(places) for op, places in offsets.items()}
    launches = [op for op in function.body.walk() if isinstance(op, Launch)]
    stale = [op for op in launches if op.offset != planned.get(op, ())]
    if not stale and function.attributes.get("arena") == arena:
        return False
    if not context.allow("memory-planning"):
        return False
    for op in stale:
        op.set_attribute("offset", planned.get(op, ()))
    function.attributes["arena"] = arena
    return True


def _size_text(size: Dim) -> int | str:
    return size if isinstance(size, int) else f"{size} (about {nominal(size)})"
