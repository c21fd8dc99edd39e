"""Threads that read ahead: one fills a queue from a source, one keeps batches of it ready.

What a thread works for knows the thread, but not the other way round, so that it ends when nobody
needs it any more.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from .errors import LoaderError, OutOfRangeError, RunError
from .tensors import Array

if TYPE_CHECKING:
    from .queues import Queue

WAIT_SECONDS = 0.5  # how often a thread looks whether what it works for is still wanted

Columns: TypeAlias = "tuple[Array, ...]"
"""Some elements: for each component an array, along whose axis 0 they lie."""
Position: TypeAlias = Any
"""A place in a source; None is its beginning."""


class Source(Protocol):
    """Elements in a fixed order, which can be read from any position on."""

    def chunks(self, position: Position) -> Iterator[tuple[Columns, list[Position]]]:
        """Some elements at a time, and the position behind each of them."""
        ...

    def described(self, position: Position) -> Any:
        """A position as JSON, for a checkpoint."""
        ...

    def checked(self, described: Any) -> Position:
        """A position from a checkpoint; StateError where it fits no longer."""
        ...


def failure_of(error: Exception) -> LoaderError:
    """What whoever waits for a thread is told of what went wrong in it."""
    return error if isinstance(error, LoaderError) else RunError(f"cannot read ahead: {error}")


class Filler:
    """A thread that puts the elements of a source into a queue, as long as the queue lives."""

    def __init__(self, queue: Queue, source: Source, position: Position) -> None:
        self._queue = weakref.ref(queue)
        self._thread = threading.Thread(
            target=self._run, args=(source, position), name=f"fills {queue.info.name}", daemon=True
        )
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it still fills; not so in a child of a fork."""
        return self._thread.is_alive()

    def _run(self, source: Source, position: Position) -> None:
        failure: LoaderError | None = None
        try:
            for columns, behind in source.chunks(position):
                if not self._put(columns, behind):
                    return
        except (LoaderError, OSError, ValueError, MemoryError) as error:
            failure = failure_of(error)
        queue = self._queue()
        if queue is not None:
            queue.end(self, failure)

    def _put(self, columns: Columns, behind: list[Position]) -> bool:
        """Whether all are in the queue at last; not where nobody wants them any more."""
        done = 0
        while done < len(behind):
            queue = self._queue()
            if queue is None or not queue.wants(self):
                return False
            done = queue.feed(self, columns, behind, done, WAIT_SECONDS)
            del queue
        return True


class Ahead:
    """A thread that keeps up to `depth` batches of a source ready."""

    def __init__(
        self, source: Source, position: Position, batch: int, depth: int, name: str
    ) -> None:
        self._shelf = _Shelf(depth)
        self._thread = threading.Thread(
            target=self._shelf.fill,
            args=(source, position, batch, name),
            name=f"reads {name}",
            daemon=True,
        )
        weakref.finalize(self, self._shelf.stop)
        self._thread.start()

    def take(self) -> tuple[list[Array], Position] | None:
        """The next batch, by component, and the position behind it; None where none is ready.

        Raises what stopped the thread once all before it is taken.
        """
        return self._shelf.take()

    def wait(self, seconds: float) -> None:
        """Until a batch is ready, but not longer than that."""
        self._shelf.wait(seconds)

    def is_alive(self) -> bool:
        """Whether more may come; not so in a child of a fork."""
        return self._thread.is_alive() or self._shelf.failure is not None

    def stop(self) -> None:
        self._shelf.stop()


class _Shelf:
    """The batches that are ready, between the thread and who takes them."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._changed = threading.Condition()
        self._ready: deque[tuple[list[Array], Position]] = deque()
        self._stopped = False
        self.failure: LoaderError | None = None

    def fill(self, source: Source, position: Position, batch: int, name: str) -> None:
        try:
            for rows, behind in _batches(source, position, batch):
                if not self._put(rows, behind):
                    return
            failure: LoaderError = OutOfRangeError(f"the reader {name!r} is at its end")
        except (LoaderError, OSError, ValueError, MemoryError) as error:
            failure = failure_of(error)
        with self._changed:
            self.failure = failure
            self._changed.notify_all()

    def _put(self, rows: list[Array], behind: Position) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._ready) < self._depth)
            if not self._stopped:
                self._ready.append((rows, behind))
                self._changed.notify_all()
            return not self._stopped

    def take(self) -> tuple[list[Array], Position] | None:
        with self._changed:
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
            if self.failure is not None:
                raise self.failure
            return None

    def wait(self, seconds: float) -> None:
        with self._changed:
            if not self._ready and self.failure is None:
                self._changed.wait(seconds)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def _batches(
    source: Source, position: Position, size: int
) -> Iterator[tuple[list[Array], Position]]:
    """Stacks of that many elements; what is left at the end, being fewer, is left out."""
    held: list[Columns] = []
    missing = size
    for columns, behind in source.chunks(position):
        start = 0
        while start < len(behind):
            stop = min(len(behind), start + missing)
            held.append(tuple(column[start:stop] for column in columns))
            missing -= stop - start
            if not missing:
                yield [np.concatenate(parts) for parts in zip(*held, strict=True)], behind[stop - 1]
                held.clear()
                missing = size
            start = stop
