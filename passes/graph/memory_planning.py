"""memory-planning: gives every value that a function keeps in memory a place in one arena."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfc.ir.core import Function, Module, Op, Value
from tfc.ir.expr import Dim
from tfc.ops.control import Launch
from tfc.passes.base import Pass, PassContext, changes, register
from tfc.passes.graph.arena import Interval, nominal, peak, plan
from tfc.passes.graph.liveness import ancestor_in, memory_of, returned, root


@register("memory-planning")
@dataclass(frozen=True)
class MemoryPlanning(Pass):
    """Places values in one arena, where those that live at different times share memory.

    A `launch` gets `offset`: for each result its place in bytes, a multiple of 64, or -1 for one
    that needs none here (it is returned, so it goes to the caller's memory). The function gets
    `arena`, the size in bytes. Inputs, constants and views need no place. The results of a launch
    never share memory with its operands.

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
        return changes(_plan_function(f, context) for f in module.functions.values())


def _plan_function(function: Function, context: PassContext) -> bool:
    values = list(_planned_values(function))
    intervals = _intervals(function, values)
    places, arena = plan(intervals)
    offsets: dict[Op, list[Dim]] = {}
    for value, place in zip(values, places, strict=True):
        assert value.producer is not None
        offsets.setdefault(value.producer, [-1] * len(value.producer.results))[value.index] = place
    context.report(f"@{function.name} arena", _size_text(arena))
    context.report(f"@{function.name} peak of what is live", peak(intervals))
    return _record(function, offsets, arena, context)


def _planned_values(function: Function) -> Iterator[Value]:
    """The results that need a place: those of launches, but what is returned.

    An op that is no launch and yet needs memory is for whoever generates its code to place.
    """
    kept = returned(function.body)
    for op in function.body.walk():
        if isinstance(op, Launch):
            yield from (v for v in op.results if v not in kept and memory_of(v) != 0)


def _intervals(function: Function, values: list[Value]) -> list[Interval]:
    """The time of each value from its op to the last use of it or of a view of it.

    Times count the ops. What a region uses from around it lives until the whole op is done.
    """
    first: dict[Op, int] = {}
    last: dict[Op, int] = {}
    for op in function.body.walk():
        first[op] = len(first)
    for op, time in first.items():
        last[op] = time if not op.regions else max(first[o] for o in op.walk())
    end = {v: first[_producer(v)] for v in values}
    for op in function.body.walk():
        for value in map(root, op.inputs):
            if value in end:
                block = _producer(value).parent
                assert block is not None
                end[value] = max(end[value], last[ancestor_in(block, op)])
    return [(first[_producer(v)], end[v], memory_of(v)) for v in values]


def _producer(value: Value) -> Op:
    assert value.producer is not None, f"{value} is an argument"
    return value.producer


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
