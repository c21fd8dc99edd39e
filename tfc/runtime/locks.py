"""A lock that a call holds, with whatever threads it has."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType


class CallLock:
    """Like `threading.RLock`, but held by a caller: a thread, with those that it lends the lock to.

    So the partitions of one call may touch what the call has locked, and other calls may not.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._owner: object = None
        self._depth = 0
        self._local = threading.local()

    def caller(self) -> object:
        """Who this thread acts for."""
        return getattr(self._local, "caller", None) or threading.get_ident()

    @contextmanager
    def acting_for(self, caller: object) -> Generator[None]:
        """Lets this thread hold the lock whenever `caller` does."""
        before = getattr(self._local, "caller", None)
        self._local.caller = caller
        try:
            yield
        finally:
            self._local.caller = before

    def acquire(self) -> bool:
        caller = self.caller()
        with self._changed:
            while self._owner is not None and self._owner != caller:
                self._changed.wait()
            self._owner = caller
            self._depth += 1
        return True

    def release(self) -> None:
        """Undoes one `acquire`; RuntimeError where this caller does not hold the lock."""
        with self._changed:
            if self._owner != self.caller():
                raise RuntimeError("the lock is not held by this call")
            self._depth -= 1
            if not self._depth:
                self._owner = None
                self._changed.notify()

    def __enter__(self) -> CallLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
