"""Simulates the running of tasks on devices, and chooses devices so that the last ends early.

Pure functions on numbers, used by the pass `placement`. A task runs on one device without a break,
a device runs one task at a time; what a task gets from another device takes time to cross, while
both may compute. This is the greedy simulation of arXiv 1603.04467, section 3.2.1, with a look
ahead (PEFT: Arabnejad and Barbosa, 2014) and, while it costs little, a search among neighbours.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

Move = Callable[[int, int], float]
SEARCH_BUDGET = 2_000  # simulated tasks that the search among neighbours may take


@dataclass(frozen=True)
class Edge:
    """What a task needs of an earlier one: `crossing[a][b]` seconds from device a to device b."""

    source: int
    crossing: Sequence[Sequence[float]]


@dataclass(frozen=True)
class Tasks:
    """What is to be placed. Edges come from tasks of smaller numbers.

    `seconds[t][d]` is how long task t takes on device d. Tasks of one `group` share a device, one
    of `allowed[group]`.
    """

    seconds: Sequence[Sequence[float]]
    edges: Sequence[Sequence[Edge]]
    group: Sequence[int]
    allowed: Sequence[Sequence[int]]

    @property
    def count(self) -> int:
        return len(self.seconds)

    @cached_property
    def users(self) -> list[list[tuple[int, Edge]]]:
        """For each task, who needs it, through which edge."""
        found: list[list[tuple[int, Edge]]] = [[] for _ in range(self.count)]
        for task, edges in enumerate(self.edges):
            for edge in edges:
                found[edge.source].append((task, edge))
        return found

    def devices(self, task: int) -> Sequence[int]:
        return self.allowed[self.group[task]]


@dataclass
class Timeline:
    """Where and when each task ran: `order` is that of the starts on each device."""

    device: list[int]
    start: list[float]
    end: list[float]
    order: list[int] = field(default_factory=list[int])

    @property
    def makespan(self) -> float:
        return max(self.end, default=0.0)


def place(tasks: Tasks, budget: int = SEARCH_BUDGET) -> Timeline:
    """Devices of all tasks, and the timeline that they give: the best of a few greedy ones."""
    if not tasks.count:
        return Timeline([], [], [])
    table = _optimistic(tasks)
    rank = _mean_rank(tasks)
    means = [_mean([table[t][d] for d in tasks.devices(t)]) for t in range(tasks.count)]
    found = [
        _greedy(tasks, rank, lambda t, d: 0.0),
        _greedy(tasks, rank, lambda t, d: table[t][d]),
        _greedy(tasks, means, lambda t, d: table[t][d]),
    ]
    found += [simulate(tasks, assigned) for assigned in _on_one_device(tasks)]
    best = min(found, key=lambda t: t.makespan)
    found = [simulate(tasks, best.device), best]
    return _search(tasks, min(found, key=lambda t: t.makespan), budget)


def simulate(tasks: Tasks, device: Sequence[int]) -> Timeline:
    """The timeline of tasks whose devices are given.

    Of those that could start first, the one runs after which most must follow.
    """
    rank = _rank_of(tasks, device)
    waiting = [len(edges) for edges in tasks.edges]
    count = 1 + max(device, default=0)
    free, ready_at = [0.0] * count, [0.0] * tasks.count
    pending: list[list[tuple[float, int]]] = [[] for _ in range(count)]  # by when data is there
    ready: list[list[tuple[float, int]]] = [[] for _ in range(count)]  # by rank: could start now
    for task, left in enumerate(waiting):
        if not left:
            heapq.heappush(pending[device[task]], (0.0, task))
    line = Timeline(list(device), [0.0] * tasks.count, [0.0] * tasks.count)
    while len(line.order) < tasks.count:
        start, d = min((_next_start(free[d], pending[d], ready[d]), d) for d in range(count))
        while pending[d] and pending[d][0][0] <= start:
            task = heapq.heappop(pending[d])[1]
            heapq.heappush(ready[d], (-rank[task], task))
        task = heapq.heappop(ready[d])[1]
        free[d] = end = start + tasks.seconds[task][d]
        line.start[task], line.end[task] = start, end
        line.order.append(task)
        for user, edge in tasks.users[task]:
            arrival = end + edge.crossing[d][device[user]]
            ready_at[user] = max(ready_at[user], arrival)
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(pending[device[user]], (ready_at[user], user))
    return line


def _next_start(
    free: float, pending: list[tuple[float, int]], ready: list[tuple[float, int]]
) -> float:
    if ready:
        return free
    return max(free, pending[0][0]) if pending else inf


# ---- ranks: how much must still run from a task on


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def _rank_of(tasks: Tasks, device: Sequence[int]) -> list[float]:
    """The longest way from the start of each task to the end, devices being given."""
    rank = [0.0] * tasks.count
    for task in reversed(range(tasks.count)):
        own = rank[task] + tasks.seconds[task][device[task]]
        rank[task] = own
        for edge in tasks.edges[task]:
            way = own + edge.crossing[device[edge.source]][device[task]]
            rank[edge.source] = max(rank[edge.source], way)
    return rank


def _mean_rank(tasks: Tasks) -> list[float]:
    """The same for mean devices: the upward rank of HEFT (Topcuoglu et al., 2002)."""
    rank = [0.0] * tasks.count
    means: dict[tuple[int, int, int], float] = {}
    for task in reversed(range(tasks.count)):
        there = tasks.devices(task)
        own = rank[task] + _mean([tasks.seconds[task][d] for d in there])
        rank[task] = own
        for edge in tasks.edges[task]:
            key = (id(edge.crossing), tasks.group[edge.source], tasks.group[task])
            if key not in means:
                here = tasks.devices(edge.source)
                means[key] = _mean([edge.crossing[a][b] for a in here for b in there])
            rank[edge.source] = max(rank[edge.source], own + means[key])
    return rank


def _optimistic(tasks: Tasks) -> list[list[float]]:
    """[t][d]: the least that must follow the end of task t on device d, were devices always free.

    Entries of devices that a task may not have are infinite.
    """
    count = 1 + max(d for allowed in tasks.allowed for d in allowed)
    table = [[inf] * count for _ in range(tasks.count)]
    for task in range(tasks.count):
        for d in tasks.devices(task):
            table[task][d] = 0.0
    for task in reversed(range(tasks.count)):
        there = tasks.devices(task)
        after = [(d, table[task][d] + tasks.seconds[task][d]) for d in there]
        for edge in tasks.edges[task]:
            row = table[edge.source]
            together = tasks.group[edge.source] == tasks.group[task]
            for a in tasks.devices(edge.source):
                ways = [edge.crossing[a][d] + s for d, s in after if d == a or not together]
                row[a] = max(row[a], min(ways))
    return table


# ---- greedy


def _greedy(tasks: Tasks, rank: Sequence[float], ahead: Move) -> Timeline:
    """Takes tasks by rank as they get ready, each to where it and what follows ends first."""
    waiting = [len(edges) for edges in tasks.edges]
    ready = [(-rank[t], t) for t, left in enumerate(waiting) if not left]
    heapq.heapify(ready)
    chosen = [next(iter(a)) if len(a) == 1 else -1 for a in tasks.allowed]
    free = [0.0] * (1 + max(d for allowed in tasks.allowed for d in allowed))
    line = Timeline([0] * tasks.count, [0.0] * tasks.count, [0.0] * tasks.count)
    while ready:
        task = heapq.heappop(ready)[1]
        group = tasks.group[task]
        devices = tasks.allowed[group] if chosen[group] < 0 else (chosen[group],)
        best = inf, inf, 0, 0.0
        for d in devices:
            start = free[d]
            for edge in tasks.edges[task]:
                source = edge.source
                start = max(start, line.end[source] + edge.crossing[line.device[source]][d])
            end = start + tasks.seconds[task][d]
            best = min(best, (end + ahead(task, d), end, d, start))
        _, end, d, start = best
        chosen[group], free[d] = d, end
        line.device[task], line.start[task], line.end[task] = d, start, end
        line.order.append(task)
        for user, _ in tasks.users[task]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (-rank[user], user))
    line.order.sort(key=lambda t: (line.start[t], line.end[t]))
    return line


def _on_one_device(tasks: Tasks) -> list[list[int]]:
    """Everything on one device as far as it is allowed there, for each device."""
    everywhere = dict.fromkeys(d for allowed in tasks.allowed for d in allowed)
    return [
        [d if d in tasks.devices(t) else tasks.devices(t)[0] for t in range(tasks.count)]
        for d in everywhere
    ]


# ---- neighbours


def _search(tasks: Tasks, best: Timeline, budget: int) -> Timeline:
    """Moves one group to another device as long as that helps and the budget lasts."""
    members: list[list[int]] = [[] for _ in tasks.allowed]
    for task, group in enumerate(tasks.group):
        members[group].append(task)
    tries = budget // tasks.count
    improved = True
    while improved and tries > 0:
        improved = False
        for moved in _neighbours(tasks, best.device, members):
            found = simulate(tasks, moved)
            tries -= 1
            if found.makespan < best.makespan * (1 - 1e-9):
                best, improved = found, True
                break
            if tries <= 0:
                break
    return best


def _neighbours(tasks: Tasks, device: Sequence[int], members: Sequence[Sequence[int]]):
    """The assignments in which one group, or one and another, lie elsewhere."""
    groups = [g for g, inside in enumerate(members) if inside and len(tasks.allowed[g]) > 1]
    for number, group in enumerate(groups):
        for d in tasks.allowed[group]:
            if d == device[members[group][0]]:
                continue
            moved = list(device)
            for task in members[group]:
                moved[task] = d
            yield moved
            for other in groups[number + 1 :]:
                here = moved[members[other][0]]
                for e in tasks.allowed[other]:
                    if e != here:
                        twice = list(moved)
                        for task in members[other]:
                            twice[task] = e
                        yield twice
