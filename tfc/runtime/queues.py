"""Queues of elements between calls (arXiv 1603.04467, section 4.6).

A queue blocks who puts in while it is full and who takes out while it is empty, until it is closed.
Who waits stands in line, in the order of coming. All changes happen under the state's lock, so that
a checkpoint, which holds it, never sees half of one; nobody holds it while waiting.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from .buffers import Buffer, Columns, buffer_of
from .errors import CancelledError, LoaderError, OutOfRangeError
from .filling import Filler, Source
from .host import LOOK_SECONDS, Context, ResourceInfo, unlocked
from .tensors import Array, storage_dtype

T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    """One that waits: for room, or for `count` elements."""

    count: int
    cancelled: bool = False


class Queue:
    """A queue of elements, tuples of arrays of the declared types.

    `source` fills it by a thread of its own; at the source's end the queue is closed.
    """

    def __init__(
        self, info: ResourceInfo, buffer: Buffer, capacity: int, source: Source | None = None
    ) -> None:
        self.info = info
        self.capacity = capacity
        self._buffer = buffer
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._low = threading.Condition(lock)  # what the thread that fills it waits for
        self._step = max(1, (capacity - buffer.reserve) // 2)
        self._version = 0
        self._producers: deque[_Request] = deque()
        self._consumers: deque[_Request] = deque()
        self._closed = False
        self._failure: LoaderError | None = None
        self._source = source
        self._position: Any = None  # of the source, behind the last element put in
        self._filler: Filler | None = None

    # ---- what the ops do

    def enqueue(self, context: Context, columns: Columns) -> None:
        """Puts elements in, in order, as soon as there is room.

        CancelledError where the queue is closed, or closed with `cancel_pending` meanwhile; what is
        in by then stays in.
        """
        request = _Request(len(columns[0]))
        done = 0

        def attempt() -> bool | None:
            nonlocal done
            if request.cancelled:
                raise CancelledError(
                    f"the queue {self.info.name!r} was closed and cancelled what waited for room "
                    f"in it: {done} of {request.count} elements are in it"
                )
            if request is self._producers[0]:
                end = min(request.count, done + self._room())
                if end > done:
                    self._buffer.put(tuple(column[done:end] for column in columns))
                    done = end
                    self._tell()
            return True if done == request.count else None

        with context.state.lock, self._changed:
            if self._closed:
                raise CancelledError(f"the queue {self.info.name!r} is closed")
            self._producers.append(request)
        self._until(context, attempt, self._producers, request)

    def dequeue(self, context: Context, count: int, at_most: bool = False) -> Columns:
        """Takes elements out, all at once, as soon as there are so many.

        OutOfRangeError where the queue is closed and holds fewer; `at_most` then takes those, if
        there are any.
        """
        request = _Request(count)

        def attempt() -> Columns | None:
            return self._found(count, at_most) if request is self._consumers[0] else None

        context.check()
        self._fill()
        with context.state.lock, self._changed:
            found = None if self._consumers else self._found(count, at_most)
            if found is not None:
                return found
            self._consumers.append(request)
            self._tell()
        return self._until(context, attempt, self._consumers, request)

    def size(self) -> int:
        """How many elements it holds."""
        with self._changed:
            return len(self._buffer)

    def close(self, cancel_pending: bool) -> None:
        """Lets nobody begin to put in any more; those that wait still may, or are cancelled.

        CancelledError where it is closed already, unless it cancels.
        """
        with self._changed:
            if self._closed and not cancel_pending:
                raise CancelledError(f"the queue {self.info.name!r} is already closed")
            self._closed = True
            if cancel_pending:
                for request in self._producers:
                    request.cancelled = True
            self._tell()

    # ---- under the lock

    @property
    def _ended(self) -> bool:
        """Whether nothing can come any more."""
        return self._closed and not self._producers

    def _room(self) -> int:
        """For how many there is room; more than the capacity fits where one takes more at once."""
        needed = self._consumers[0].count + self._buffer.reserve if self._consumers else 0
        return max(0, max(self.capacity, needed) - len(self._buffer))

    def _found(self, count: int, at_most: bool) -> Columns | None:
        """The elements for who is first in line, or None where they are not there yet."""
        held = len(self._buffer)
        if not self._ended:
            enough = held >= count + self._buffer.reserve
            return self._take(count) if enough else None
        if held >= count or (at_most and held):
            return self._take(min(count, held))
        raise self._failure or OutOfRangeError(
            f"the queue {self.info.name!r} is closed and has {held} elements left, "
            f"{count} were asked for"
        )

    def _take(self, count: int) -> Columns:
        found = self._buffer.take(count)
        self._tell()
        return found

    def _tell(self) -> None:
        self._version += 1
        self._changed.notify_all()
        if self._source is not None and self._is_low():
            self._low.notify_all()

    def _is_low(self) -> bool:
        """Whether the source should put in more: not for each element, unless somebody waits."""
        enough = self._closed or len(self._buffer) > self.capacity - self._step
        return self._room() > 0 if self._consumers else not enough

    # ---- waiting

    def _until(
        self,
        context: Context,
        attempt: Callable[[], T | None],
        line: deque[_Request],
        request: _Request,
    ) -> T:
        """What `attempt` gives, which is tried under the locks whenever something has changed."""
        try:
            while True:
                context.check()
                with context.state.lock, self._changed:
                    found = attempt()
                    seen = self._version
                if found is not None:
                    return found
                with unlocked(context.state), self._changed:
                    if self._version == seen:
                        self._changed.wait(LOOK_SECONDS)
                self._fill()
        finally:
            with self._changed:
                line.remove(request)
                self._tell()

    # ---- a source that fills it

    def _fill(self) -> None:
        """Starts the thread that fills the queue, where there is a source and none runs."""
        if self._source is None:
            return
        with self._changed:
            running = self._filler is not None and self._filler.is_alive()
            if not running and not self._closed:
                self._filler = Filler(self, self._source, self._position)

    def wants(self, filler: Filler) -> bool:
        """Whether a thread is the one that fills the queue, which is open."""
        with self._changed:
            return filler is self._filler and not self._closed

    def feed(
        self,
        filler: Filler,
        columns: Columns,
        behind: Sequence[Any],
        start: int,
        seconds: float,
    ) -> int:
        """Puts in elements of the source from `start` on, as many as there is room for.

        Gives where it has come to; `behind` are the positions. Waits so long for room at most.
        """
        with self._low:
            if not self._is_low():
                self._low.wait(seconds)
            if filler is not self._filler or self._closed:
                return start
            end = min(len(behind), start + self._room())
            if end > start:
                self._buffer.put(tuple(column[start:end] for column in columns))
                self._position = behind[end - 1]
                self._tell()
            return end

    def end(self, filler: Filler, failure: LoaderError | None) -> None:
        """Closes the queue, since its source has ended or failed."""
        with self._changed:
            if filler is self._filler:
                self._closed, self._failure = True, failure
                self._tell()

    # ---- checkpoints

    def stop(self) -> None:
        """Ends its thread, and all that waits."""
        self.close(cancel_pending=True)

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Its state: JSON, and the elements, stacked, by the number of the component."""
        with self._changed:
            elements = self._buffer.elements()
            described = {
                "count": len(elements[0]),
                "drawn": self._buffer.drawn,
                "closed": self._closed and self._source is None,
            }
            if self._source is not None:
                described["position"] = self._source.described(self._position)
        return described, {str(i): column for i, column in enumerate(elements)}

    def restored(
        self, described: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Callable[[], None]:
        """Checks a state, and gives what makes it the queue's own."""
        count, drawn = described["count"], described["drawn"]
        for i, kind in enumerate(self.info.types):
            array = arrays.get(str(i))
            fits = (
                array is not None
                and array.shape == (count, *kind.shape)
                and array.dtype == storage_dtype(kind.dtype)
            )
            if not fits:
                raise self.info.error(f"component {i} of the checkpoint's elements does not fit")
        if not isinstance(drawn, int) or drawn < 0:
            raise self.info.error(f"the checkpoint has drawn {drawn!r} elements")
        position = None
        if self._source is not None:
            position = self._source.checked(described["position"])
        buffer = buffer_of(self.info)
        buffer.drawn = drawn
        buffer.put(tuple(arrays[str(i)] for i in range(len(self.info.types))))
        closed = bool(described["closed"])

        def apply() -> None:
            with self._changed:
                self._filler, self._failure = None, None
                self._buffer, self._closed, self._position = buffer, closed, position
                self._tell()

        return apply
