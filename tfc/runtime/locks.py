"""A lock that a call holds, with whatever threads it has."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType


class _Local(threading.local):
    """Who a thread acts for, where it does not act for itself."""

    caller: object = None


class CallLock:
    """Like `threading.RLock`, but held by a caller: a thread, with those that it lends the lock to.

    So the partitions of one call may touch what the call has locked, and other calls may not.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._owner: object = None
        self._depth = 0
        self._lent: dict[object, int] = {}  # the depth of a caller when it lent the lock
        self._local = _Local()

    def caller(self) -> object:
        """Who this thread acts for."""
        return self._local.caller or threading.get_ident()

    @contextmanager
    def acting_for(self, caller: object) -> Generator[None]:
        """Lets this thread hold the lock whenever `caller` does."""
        before = self._local.caller
        self._local.caller = caller
        try:
            yield
        finally:
            self._local.caller = before

    @contextmanager
    def lent(self) -> Generator[object]:
        """The caller, for whom other threads may act meanwhile."""
        caller = self.caller()
        with self._changed:
            before = self._lent.get(caller)
            self._lent[caller] = self._depth if self._owner == caller else 0
        try:
            yield caller
        finally:
            with self._changed:
                del self._lent[caller]
                if before is not None:
                    self._lent[caller] = before

    @contextmanager
    def suspended(self) -> Generator[None]:
        """Lets go of what the caller holds while one of its threads waits, so that others may run.

        What its other threads hold for a moment stays theirs. Where several of them wait, the
        caller holds the lock again when the one does that was first.
        """
        caller = self.caller()
        with self._changed:
            while self._owner == caller and self._depth > self._lent.get(caller, self._depth):
                self._changed.wait()
            held = self._depth if self._owner == caller else 0
            if held:
                self._set(caller, None, 0)
        try:
            yield
        finally:
            if held:
                with self._changed:
                    while self._owner not in (None, caller):
                        self._changed.wait()
                    self._set(caller, caller, self._depth + held, held)

    def _set(self, caller: object, owner: object, depth: int, lent: int = 0) -> None:
        self._owner, self._depth = owner, depth
        if caller in self._lent:
            self._lent[caller] = lent
        self._changed.notify_all()

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
            self._changed.notify_all()

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
