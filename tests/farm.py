"""Runs many small pieces of work in child processes, where one may crash or hang.

Children are forked, so that what they work on need not be sent. Each does many pieces; one that
dies or takes too long is replaced, and the piece that it was at gets the blame.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

MEMORY = 16 << 30  # bytes of address space of a child


@dataclass
class Outcome:
    """What came of a piece of work."""

    name: str
    verdict: str
    message: str = ""
    seconds: float = 0.0


Work = Callable[[int, Path], Outcome]
"""Does the piece of a number, with a folder of its own for files, which need not exist."""


@dataclass
class Child:
    """A process with the pieces that it has yet to finish."""

    process: Any
    connection: Connection
    pending: list[int]
    began: float

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class Farm:
    """Does the pieces 0, 1, ... in `jobs` children at a time; `names` are those of the pieces."""

    def __init__(
        self,
        names: Sequence[str],
        work: Work,
        *,
        jobs: int = 2,
        timeout: float = 120.0,
        memory: int = MEMORY,
    ) -> None:
        self.names, self.work, self.timeout, self.memory = names, work, timeout, memory
        self.jobs = jobs
        self.context = multiprocessing.get_context("fork")
        shares = 4 * jobs
        self.waiting = [list(range(i, len(names), shares)) for i in reversed(range(shares))]
        self.folder = Path(tempfile.mkdtemp(prefix="farm-"))
        self.children: list[Child] = []

    def run(self) -> Iterator[Outcome]:
        """The outcomes, as they come."""
        try:
            while self._fill():
                for child in list(self.children):
                    yield from self._outcomes(child)
                wait([child.connection for child in self.children], 0.2)
        finally:
            for child in self.children:
                child.stop()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _fill(self) -> bool:
        """Start children for what waits; whether there is anything left."""
        while len(self.children) < self.jobs and any(self.waiting):
            pending = self.waiting.pop()
            if pending:
                self._start(pending)
        return bool(self.children)

    def _start(self, pending: list[int]) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=self._do, args=(pending, theirs))
        process.start()
        theirs.close()
        self.children.append(Child(process, ours, pending, time.monotonic()))

    def _do(self, pending: list[int], connection: Connection) -> None:
        """What a child does; what it prints on its error stream goes to a file."""
        resource.setrlimit(resource.RLIMIT_AS, (self.memory, self.memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("ignore")
        with contextlib.suppress(OSError):
            os.dup2(os.open(self.folder / "stderr", os.O_CREAT | os.O_WRONLY | os.O_APPEND), 2)
        for index in pending:
            start = time.perf_counter()
            folder = self.folder / str(index)
            outcome = self.work(index, folder)
            shutil.rmtree(folder, ignore_errors=True)
            outcome.seconds = time.perf_counter() - start
            connection.send(outcome)

    def _outcomes(self, child: Child) -> Iterator[Outcome]:
        alive = child.process.is_alive()
        with contextlib.suppress(EOFError):
            while child.connection.poll():
                yield child.connection.recv()
                child.pending = child.pending[1:]
                child.began = time.monotonic()
        took = time.monotonic() - child.began
        if alive and child.pending and took <= self.timeout:
            return
        child.stop()
        self.children.remove(child)
        if child.pending:
            name = self.names[child.pending[0]]
            message = "" if alive else f"exit code {child.process.exitcode}"
            yield Outcome(name, "timeout" if alive else "crash", message, took)
            self.waiting.append(child.pending[1:])
