"""What a queue holds, and in which order it gives it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np

from .host import OutputType, ResourceInfo
from .philox import Draws
from .tensors import Array, storage_dtype

Columns: TypeAlias = "tuple[Array, ...]"
"""Some elements: for each component an array, along whose axis 0 they lie."""

LARGEST_CAPACITY = 1 << 31


class Buffer(Protocol):
    """The elements that a queue holds. `reserve` must stay in it while the queue is open."""

    reserve: int
    drawn: int

    def __len__(self) -> int: ...
    def put(self, columns: Columns) -> None: ...
    def take(self, count: int) -> Columns: ...
    def elements(self) -> Columns: ...


class Slots:
    """Places for elements, an array for each component, which grow as they are needed.

    Many elements so move by one copy of each component, not by one each.
    """

    def __init__(self, types: Sequence[OutputType]) -> None:
        self._arrays = [np.empty((0, *kind.shape), storage_dtype(kind.dtype)) for kind in types]
        self._free: list[int] = []

    def put(self, columns: Columns) -> list[int]:
        """Copies elements in; where they are, in their order."""
        count = len(columns[0])
        if count > len(self._free):
            self._grow(count - len(self._free))
        first = len(self._free) - count
        places = self._free[first:]
        del self._free[first:]
        index = np.array(places, np.intp)
        for array, column in zip(self._arrays, columns, strict=True):
            array[index] = column
        return places

    def get(self, places: Sequence[int]) -> Columns:
        """A copy of the elements in some places."""
        index = np.array(places, np.intp)
        return tuple(array.take(index, 0) for array in self._arrays)

    def take(self, places: Sequence[int]) -> Columns:
        """The same, and the places are free."""
        found = self.get(places)
        self._free.extend(places)
        return found

    def _grow(self, missing: int) -> None:
        held = len(self._arrays[0])
        more = max(missing, held)
        self._arrays = [
            np.concatenate([array, np.empty((more, *array.shape[1:]), array.dtype)])
            for array in self._arrays
        ]
        self._free.extend(range(held, held + more))


class Fifo:
    """Gives the elements in the order of coming."""

    reserve = 0
    drawn = 0

    def __init__(self, types: Sequence[OutputType]) -> None:
        self._slots = Slots(types)
        self._line: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def put(self, columns: Columns) -> None:
        self._line.extend(self._slots.put(columns))

    def take(self, count: int) -> Columns:
        return self._slots.take([self._line.popleft() for _ in range(count)])

    def elements(self) -> Columns:
        return self._slots.get(self._line)


class Pool:
    """Gives a random one of the first `reserve + 1` elements that are left.

    Those behind wait in line. So the order depends on the seed and the order of coming, not on how
    many elements have come when one is taken, which is a matter of threads.
    """

    def __init__(self, types: Sequence[OutputType], reserve: int, seed: int) -> None:
        self.reserve = reserve
        self.drawn = 0
        self._draws = Draws(seed)
        self._slots = Slots(types)
        self._pool: list[int] = []
        self._line: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._pool) + len(self._line)

    def put(self, columns: Columns) -> None:
        self._line.extend(self._slots.put(columns))
        while self._line and len(self._pool) <= self.reserve:
            self._pool.append(self._line.popleft())

    def take(self, count: int) -> Columns:
        pool, line, chosen = self._pool, self._line, list[int]()
        refilled = min(count, len(line))
        for index in self._draws.row(len(pool), self.drawn, refilled):
            chosen.append(pool.pop(index))  # the others keep their order, whether one follows
            pool.append(line.popleft())
        for draw in range(self.drawn + refilled, self.drawn + count):
            chosen.append(pool.pop(self._draws.below(len(pool), draw)))
        self.drawn += count
        return self._slots.take(chosen)

    def elements(self) -> Columns:
        return self._slots.get([*self._pool, *self._line])


def buffer_of(info: ResourceInfo) -> Buffer:
    """An empty buffer for a queue of a kind."""
    if info.kind == "fifo_queue":
        return Fifo(info.types)
    capacity = info.number("capacity", 1, LARGEST_CAPACITY)
    reserve = info.number("min_after_dequeue", 0, capacity - 1, 0)
    return Pool(info.types, reserve, info.number("seed", -(1 << 63), (1 << 64) - 1))
