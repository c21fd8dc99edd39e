"""The order in which a frame's ops and the frames inside run: by data, control and conflicts.

Always holds: what conflicts (touches one variable or resource, one of both writing it) runs in the
order of the text, where a frame stands at its last op; where data and control edges of a frame
forbid that order, in theirs first.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from tfc.ir.core import Block, Effect, Op, Value
from tfc.ir.effects import accesses_of, outer_values
from tfc.ir.errors import TfcError
from tfc.ir.frames import Frame, Frames, is_forward

Item: TypeAlias = "Op | Frame"


def needed_of(body: Block) -> set[Op]:
    """The ops that the end of a function's body needs, by values or by control edges."""
    return needed_by([body.terminator])


def needed_by(ops: Iterable[Op]) -> set[Op]:
    """Ops, and those that they need; all loops that they need are needed whole."""
    found: set[Op] = set()
    pending = list(ops)
    while pending:
        op = pending.pop()
        if op in found:
            continue
        found.add(op)
        for inner in op.walk():
            pending.extend(v.producer for v in inner.inputs if v.producer is not None)
            pending.extend(inner.after)
    return found


@dataclass(eq=False)
class FrameOrder:
    """The items of a frame in an order in which they may run, and what each must wait for.

    An item is an op that takes its operands from the frame, or a frame inside it; its own `enter`s
    and what is the same everywhere are there before. `exits` are the ops that leave a frame.
    """

    items: list[Item]
    waits: dict[Item, list[Item]]
    position: dict[Item, int]


class Orders:
    """The order of each frame of a function, for the ops that are needed."""

    def __init__(self, body: Block, frames: Frames, needed: set[Op]) -> None:
        self.frames = frames
        self.needed = needed
        self.place = {op: i for i, op in enumerate(body)}
        self.exits: dict[Frame, list[Op]] = {f: [] for f in frames.root.walk()}
        for op in body:
            inside = frames.inputs_of(op) if op.name == "exit" and op in needed else None
            if inside is not None:
                self.exits[inside].append(op)

    def enters(self, frame: Frame) -> list[Op]:
        return [op for op in frame.enters if op in self.needed]

    def order(self, frame: Frame) -> FrameOrder:
        """Raises TfcError where the frames wait for each other."""
        ops = [op for op in frame.ops if op in self.needed and op.name != "enter"]
        inner = [f for f in frame.inner.values() if self._is_needed(f)]
        items: list[Item] = [op for op in ops if not op.terminator]
        items += inner
        position: dict[Item, int] = {op: self.place[op] for op in ops}
        position.update({f: self._last(f) for f in inner})
        items.sort(key=position.__getitem__)
        waits = {item: self._waits(item, frame) for item in items}
        edges = {item: list(before) for item, before in waits.items()}
        self._add_conflicts(items, waits)
        ordered = _sorted(items, waits, position)
        if len(ordered) < len(items):
            by_edges = _sorted(items, edges, position)
            if len(by_edges) < len(items):
                raise _stuck([item for item in items if item not in set(by_edges)])
            waits = edges
            self._add_conflicts(by_edges, waits)
            ordered = _sorted(items, waits, position)
        return FrameOrder(ordered, waits, position)

    def _is_needed(self, frame: Frame) -> bool:
        return any(op in self.needed for f in frame.walk() for op in f.ops)

    def _last(self, frame: Frame) -> int:
        return max(self.place[op] for f in frame.walk() for op in f.ops)

    def _waits(self, item: Item, frame: Frame) -> list[Item]:
        if isinstance(item, Frame):
            made = [v for e in self.enters(item) for v in e.inputs]
            after = [o for e in self.enters(item) for o in e.after]
        elif item.name == "exit":
            inside = self.frames.inputs_of(item)
            assert inside is not None
            return [inside]
        else:
            made = [v for v in outer_values(item) if not (item.name == "merge" and is_forward(v))]
            after = [o for inner in item.walk() for o in inner.after]
        before = [self._item(v.producer, frame) for v in made if v.producer is not None]
        before += [self._item(o, frame) for o in after]
        return list(dict.fromkeys(b for b in before if b is not None and b is not item))

    def _item(self, op: Op, frame: Frame) -> Item | None:
        """What stands for an op among the items; None for what is there before."""
        own = self.frames.of.get(op)
        if own is None or op.name == "enter":
            return None
        return op if own is frame else None

    def _add_conflicts(self, items: list[Item], waits: dict[Item, list[Item]]) -> None:
        writer: dict[str, Item] = {}
        readers: dict[str, list[Item]] = {}
        for item in items:
            for name, access in self.accesses(item).items():
                before = [writer[name]] if name in writer else []
                if access & Effect.WRITE:
                    before += readers.pop(name, [])
                    writer[name] = item
                else:
                    readers.setdefault(name, []).append(item)
                waits[item] += [b for b in before if b not in waits[item]]

    def accesses(self, item: Item) -> dict[str, Effect]:
        """How an item touches variables and resources."""
        if isinstance(item, Op):
            return accesses_of(item)
        found: dict[str, Effect] = {}
        for op in (op for f in item.walk() for op in f.ops if op in self.needed):
            for name, access in accesses_of(op).items():
                found[name] = found.get(name, Effect.NONE) | access
        return found


def _sorted(
    items: list[Item], waits: dict[Item, list[Item]], position: dict[Item, int]
) -> list[Item]:
    """The items, each after what it waits for, otherwise in the order of the text.

    Those that wait for each other are missing.
    """
    left = {item: len(waits[item]) for item in items}
    users: dict[Item, list[Item]] = {item: [] for item in items}
    for item in items:
        for before in waits[item]:
            users[before].append(item)
    ready = [(position[item], n) for n, item in enumerate(items) if not left[item]]
    number = {item: n for n, item in enumerate(items)}
    heapq.heapify(ready)
    found: list[Item] = []
    while ready:
        item = items[heapq.heappop(ready)[1]]
        found.append(item)
        for user in users[item]:
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, (position[user], number[user]))
    return found


def _stuck(items: list[Item]) -> TfcError:
    frames = [str(item) for item in items if isinstance(item, Frame)]
    return TfcError(
        f"{' and '.join(frames)} and what its exits give wait for each other",
        hint="what is entered into a loop, or must run before it, cannot need the loop's end",
    )


__all__ = ["FrameOrder", "Item", "Orders", "Value", "needed_by", "needed_of"]
