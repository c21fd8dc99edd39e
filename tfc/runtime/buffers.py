"""What a queue holds, and in which order it gives it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from .host import ResourceInfo
from .philox import Draws
from .tensors import Array

Element: TypeAlias = "tuple[Array, ...]"
"""For each component an array of one row, so that many are quick to join."""

LARGEST_CAPACITY = 1 << 31


class Buffer(Protocol):
    """The elements that a queue holds. `reserve` must stay in it while the queue is open."""

    reserve: int
    drawn: int

    def __len__(self) -> int: ...
    def put(self, elements: Iterable[Element]) -> None: ...
    def take(self) -> Element: ...
    def elements(self) -> list[Element]: ...


class Fifo:
    """Gives the elements in the order of coming."""

    reserve = 0
    drawn = 0

    def __init__(self) -> None:
        self._line: deque[Element] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def put(self, elements: Iterable[Element]) -> None:
        self._line.extend(elements)

    def take(self) -> Element:
        return self._line.popleft()

    def elements(self) -> list[Element]:
        return list(self._line)


class Pool:
    """Gives a random one of the first `reserve + 1` elements that are left.

    Those behind wait in line. So the order depends on the seed and the order of coming, not on how
    many elements have come when one is taken, which is a matter of threads.
    """

    def __init__(self, reserve: int, seed: int) -> None:
        self.reserve = reserve
        self.drawn = 0
        self._draws = Draws(seed)
        self._pool: list[Element] = []
        self._line: deque[Element] = deque()

    def __len__(self) -> int:
        return len(self._pool) + len(self._line)

    def put(self, elements: Iterable[Element]) -> None:
        self._line.extend(elements)
        while self._line and len(self._pool) <= self.reserve:
            self._pool.append(self._line.popleft())

    def take(self) -> Element:
        index = self._draws.below(len(self._pool), self.drawn)
        self.drawn += 1
        chosen = self._pool.pop(index)  # the others keep their order, whether one follows or not
        if self._line:
            self._pool.append(self._line.popleft())
        return chosen

    def elements(self) -> list[Element]:
        return [*self._pool, *self._line]


def buffer_of(info: ResourceInfo) -> Buffer:
    """An empty buffer for a queue of a kind."""
    if info.kind == "fifo_queue":
        return Fifo()
    capacity = info.number("capacity", 1, LARGEST_CAPACITY)
    reserve = info.number("min_after_dequeue", 0, capacity - 1, 0)
    return Pool(reserve, info.number("seed", -(1 << 63), (1 << 64) - 1))
