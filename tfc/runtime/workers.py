"""Threads that wait for work, since starting one for each call would take longer than most calls.

A thread that is done is kept for whoever asks next; there are as many as were ever busy at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeAlias

Task: TypeAlias = Callable[[], None]

_idle: list[_Worker] = []


class _Worker:
    def __init__(self) -> None:
        self.tasks: SimpleQueue[tuple[Task, threading.Lock]] = SimpleQueue()
        threading.Thread(target=self._loop, name="tfc-partition", daemon=True).start()

    def _loop(self) -> None:
        while True:
            self._next()

    def _next(self) -> None:
        """Does one task; a function of its own, so that nothing of it is held while waiting."""
        task, done = self.tasks.get()
        try:
            task()
        finally:
            _idle.append(self)
            done.release()


def start(task: Task) -> Callable[[], None]:
    """Runs a task, which must not raise, on another thread; call the result to wait for its end.

    RuntimeError where the system gives no more threads.
    """
    done = threading.Lock()
    done.acquire()
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.tasks.put((task, done))
    return lambda: _wait(done)


def _wait(done: threading.Lock) -> None:
    with done:  # it may be waited for again
        return


os.register_at_fork(after_in_child=_idle.clear)  # a child has none of the threads
