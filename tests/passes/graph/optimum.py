"""The shortest makespan of a few tasks, by branch and bound over devices and orders."""

from __future__ import annotations

from math import inf

from tfc.passes.graph.simulation import Tasks

SLACK = 1e-9  # a gain smaller than this part is none
MOST_STEPS = 400_000


def optimum(tasks: Tasks, known: float) -> float:
    """The least makespan, where one of `known` seconds exists. TimeoutError: too many steps."""
    return _Search(tasks, known).run()


class _Search:
    """Schedules are built in the order of starts: every one without needless waiting is among them.

    A branch is left where the tasks that are still to run cannot end before the best one known,
    each taken on its best device, with nothing in its way.
    """

    def __init__(self, tasks: Tasks, known: float) -> None:
        self.tasks = tasks
        self.best = known
        self.steps = 0
        self.count = 1 + max(d for allowed in tasks.allowed for d in allowed)
        self.tail = [0.0] * tasks.count  # the least time from the end of a task to the end of all
        for task in reversed(range(tasks.count)):
            least = min(tasks.seconds[task][d] for d in tasks.devices(task))
            for edge in tasks.edges[task]:
                tail = self.tail[task] + least
                self.tail[edge.source] = max(self.tail[edge.source], tail)

    def run(self) -> float:
        empty: dict[int, tuple[int, float]] = {}
        self.step(empty, {}, [0.0] * self.count, 0.0)
        return self.best

    def step(
        self,
        done: dict[int, tuple[int, float]],
        home: dict[int, int],
        free: list[float],
        last: float,
    ) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TimeoutError
        if len(done) == self.tasks.count:
            self.best = min(self.best, max(end for _, end in done.values()))
            return
        for start, end, task, device in sorted(self.choices(done, home, free, last)):
            if end + self.tail[task] >= self.best * (1 - SLACK):
                continue
            after = [end if d == device else f for d, f in enumerate(free)]
            group = self.tasks.group[task]
            self.step({**done, task: (device, end)}, {**home, group: device}, after, start)

    def choices(
        self,
        done: dict[int, tuple[int, float]],
        home: dict[int, int],
        free: list[float],
        last: float,
    ) -> list[tuple[float, float, int, int]]:
        """(start, end, task, device) of what may come next; none where the bound is too high."""
        tasks = self.tasks
        found: list[tuple[float, float, int, int]] = []
        earliest: dict[int, float] = {}
        for task in range(tasks.count):
            if task in done:
                continue
            ready = all(edge.source in done for edge in tasks.edges[task])
            group, ends = tasks.group[task], inf
            for d in (home[group],) if group in home else tasks.devices(task):
                start = max(free[d], last)
                for edge in tasks.edges[task]:
                    if edge.source in done:
                        device, end = done[edge.source]
                        start = max(start, end + edge.crossing[device][d])
                    else:
                        start = max(start, earliest[edge.source])
                end = start + tasks.seconds[task][d]
                ends = min(ends, end)
                if ready:
                    found.append((start, end, task, d))
            earliest[task] = ends
            if ends + self.tail[task] >= self.best * (1 - SLACK):
                return []
        return found
