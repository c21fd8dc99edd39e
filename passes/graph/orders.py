"""Orders of ops in which little memory is live at once: pure functions on numbers.

Used by the pass `control-scheduling`. Small problems are solved exactly, by a search over the sets
of ops that may have run; large ones greedily, with exact searches where the peak lies.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

EXACT = 16  # ops that are always searched as a whole
WINDOW = 14  # ops around the peak of a larger problem that are searched
WINDOWS = 24  # such searches at most
STATES = 1 << 13  # sets of ops that a search may look at: beyond, the best known order stays


@dataclass(frozen=True)
class Problem:
    """Ops by number, in an order that is known to be right.

    `needs` are the ops that must run before one. `made` are the values that it makes, `reads` those
    that it uses, by number; `sizes` are the bytes of the values. `inner` is what an op needs
    besides, while it runs. `latest` is when an op must start at the latest, as if devices were
    always free (ALAP): it decides between orders of one peak.
    """

    needs: Sequence[Sequence[int]]
    made: Sequence[Sequence[int]]
    reads: Sequence[Sequence[int]]
    sizes: Sequence[int]
    inner: Sequence[int]
    latest: Sequence[float]

    @property
    def count(self) -> int:
        return len(self.needs)

    @cached_property
    def users(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.needs]
        for op, needs in enumerate(self.needs):
            for other in needs:
                found[other].append(op)
        return found

    @cached_property
    def readers(self) -> list[list[int]]:
        """The ops that read each value."""
        found: list[list[int]] = [[] for _ in self.sizes]
        for op, values in enumerate(self.reads):
            for value in values:
                found[value].append(op)
        return found

    @cached_property
    def made_bytes(self) -> list[int]:
        return [sum(self.sizes[v] for v in values) for values in self.made]

    @cached_property
    def unread_bytes(self) -> list[int]:
        """What an op makes and nobody reads: gone when it ends."""
        readers = self.readers
        return [sum(self.sizes[v] for v in vs if not readers[v]) for vs in self.made]

    @cached_property
    def least(self) -> int:
        """A peak that no order can be below: what one op alone needs."""
        own = [
            self.made_bytes[op] + self.inner[op] + sum(self.sizes[v] for v in self.reads[op])
            for op in range(self.count)
        ]
        return max(own, default=0)

    def profile(self, order: Sequence[int]) -> list[int]:
        """The bytes that are live while each op of an order runs."""
        left = [len(r) for r in self.readers]
        live = 0
        found: list[int] = []
        for op in order:
            live += self.made_bytes[op]
            found.append(live + self.inner[op])
            for value in self.reads[op]:
                left[value] -= 1
                live -= 0 if left[value] else self.sizes[value]
            live -= self.unread_bytes[op]
        return found

    def peak(self, order: Sequence[int]) -> int:
        return max(self.profile(order), default=0)


def good_orders(problem: Problem) -> list[list[int]]:
    """Orders to choose from, the given one first; the last has the lowest peak of all."""
    found = [list(range(problem.count)), frees_most(problem), depth_first(problem), alap(problem)]
    best = min(found, key=problem.peak)
    return [*found, improved(problem, best)]


def improved(problem: Problem, order: list[int]) -> list[int]:
    """An order of a peak that is no higher: the lowest there is, for few ops."""
    if problem.peak(order) <= problem.least:
        return order
    if problem.count <= EXACT:
        return exact(problem, order, 0, problem.count) or order
    for _ in range(WINDOWS):
        live = problem.profile(order)
        peak = max(live)
        first = max(0, min(live.index(peak) - WINDOW // 2, problem.count - WINDOW))
        better = exact(problem, order, first, first + WINDOW)
        if better is None or peak <= problem.least:
            break
        order = better
    return order


# ---- greedy orders


def frees_most(problem: Problem) -> list[int]:
    """Always the ready op after which the least is live; the given order decides between equals."""
    sizes, readers = problem.sizes, problem.readers
    left = [len(r) for r in readers]
    growth = [
        problem.made_bytes[op]
        - problem.unread_bytes[op]
        - sum(sizes[v] for v in problem.reads[op] if left[v] == 1)
        for op in range(problem.count)
    ]

    def visit(op: int, changed: Callable[[int], None], done: Sequence[bool]) -> None:
        for value in problem.reads[op]:
            left[value] -= 1
            if left[value] == 1:  # the last reader will free it
                last = next(o for o in readers[value] if not done[o])
                growth[last] -= sizes[value]
                changed(last)

    return _by_priority(problem, lambda op: growth[op], visit)


def alap(problem: Problem) -> list[int]:
    """Each op as late as what needs it allows."""
    return _by_priority(problem, lambda op: problem.latest[op], lambda op, changed, done: None)


def _by_priority(
    problem: Problem,
    priority: Callable[[int], float],
    visit: Callable[[int, Callable[[int], None], Sequence[bool]], None],
) -> list[int]:
    """Always the ready op of the least priority; `visit` tells which priorities an op changes."""
    waiting = [len(needs) for needs in problem.needs]
    ready = [(priority(op), op) for op in range(problem.count) if not waiting[op]]
    heapq.heapify(ready)
    done = [False] * problem.count
    order: list[int] = []

    def changed(op: int) -> None:
        if not waiting[op]:
            heapq.heappush(ready, (priority(op), op))

    while ready:
        score, op = heapq.heappop(ready)
        if done[op] or score != priority(op):
            continue
        done[op] = True
        order.append(op)
        visit(op, changed, done)
        for user in problem.users[op]:
            waiting[user] -= 1
            changed(user)
    return order


def depth_first(problem: Problem) -> list[int]:
    """Each op right after what it needs, what makes most first; ends of chains come in order."""
    done = [False] * problem.count
    order: list[int] = []
    ends = [op for op in range(problem.count) if not problem.users[op]]
    for end in ends:
        stack = [(end, False)]
        while stack:
            op, ready = stack.pop()
            if done[op]:
                continue
            if ready:
                done[op] = True
                order.append(op)
                continue
            stack.append((op, True))
            pending = [o for o in problem.needs[op] if not done[o]]
            pending.sort(key=lambda o: problem.made_bytes[o])  # the largest runs first
            stack.extend((o, False) for o in pending)
    return order


# ---- exact


def exact(problem: Problem, order: list[int], first: int, last: int) -> list[int] | None:
    """The order with its part from `first` to `last` at the lowest peak; None: no lower one.

    None too where more sets of ops would have to be looked at than `STATES`.
    """
    window = _Window(problem, order, first, last)
    most = max(problem.profile(order)[first:last])
    found = window.search(most)
    return None if found is None else [*order[:first], *found, *order[last:]]


class _Window:
    """A part of an order: its ops have bits, sets of them are masks."""

    def __init__(self, problem: Problem, order: Sequence[int], first: int, last: int) -> None:
        self.problem = problem
        self.ops = list(order[first:last])
        bit = {op: 1 << i for i, op in enumerate(self.ops)}
        self.needs = [sum(bit.get(o, 0) for o in set(problem.needs[op])) for op in self.ops]
        later = set(order[last:])
        self.start = self._live(order[:first])
        self.freed: list[list[tuple[int, int]]] = []  # (mask of readers, bytes) of what an op reads
        for op in self.ops:
            values = [v for v in problem.reads[op] if problem.sizes[v]]
            values = [v for v in values if not later.intersection(problem.readers[v])]
            self.freed.append(
                [(sum(bit.get(r, 0) for r in problem.readers[v]), problem.sizes[v]) for v in values]
            )

    def _live(self, before: Sequence[int]) -> int:
        """What is live between the ops before and the window."""
        problem, done = self.problem, set(before)
        made = (v for op in before for v in problem.made[op])
        return sum(
            problem.sizes[v]
            for v in made
            if problem.readers[v] and not done.issuperset(problem.readers[v])
        )

    def search(self, most: int) -> list[int] | None:
        """The order of the lowest peak below `most`: best first over the sets that may have run."""
        problem, count = self.problem, len(self.ops)
        full = (1 << count) - 1
        best = {0: self.start}
        came: dict[int, tuple[int, int]] = {}
        heap: list[tuple[int, int, float, int, int]] = [(self.start, count, 0.0, 0, self.start)]
        closed: set[int] = set()
        while heap:
            peak, left, _, mask, live = heapq.heappop(heap)
            if mask == full:
                return self._way(came)
            if mask in closed:
                continue
            closed.add(mask)
            if len(closed) > STATES:
                return None
            for i, op in enumerate(self.ops):
                bit = 1 << i
                if mask & bit or self.needs[i] & ~mask:
                    continue
                high = max(peak, live + problem.made_bytes[op] + problem.inner[op])
                after = mask | bit
                if high >= most or high >= best.get(after, most):
                    continue
                best[after] = high
                came[after] = mask, i
                rest = live + problem.made_bytes[op] - problem.unread_bytes[op]
                rest -= sum(size for readers, size in self.freed[i] if not readers & ~after)
                heapq.heappush(heap, (high, left - 1, problem.latest[op], after, rest))
        return None

    def _way(self, came: dict[int, tuple[int, int]]) -> list[int]:
        mask = (1 << len(self.ops)) - 1
        found: list[int] = []
        while mask:
            mask, i = came[mask]
            found.append(self.ops[i])
        return found[::-1]


# ---- windows of time


def latest_starts(needs: Sequence[Sequence[int]], seconds: Sequence[float]) -> list[float]:
    """When each op must start at the latest for all to end as early as they can (ALAP)."""
    earliest = [0.0] * len(needs)
    for op, before in enumerate(needs):
        earliest[op] = max((earliest[o] + seconds[o] for o in before), default=0.0)
    end = max((e + s for e, s in zip(earliest, seconds, strict=True)), default=0.0)
    latest = [end - s for s in seconds]
    for op in reversed(range(len(needs))):
        for other in needs[op]:
            latest[other] = min(latest[other], latest[op] - seconds[other])
    return latest
