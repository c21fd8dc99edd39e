"""Where the partitions of one call meet: tensors by name, sent once and received once.

`Rendezvous` is what host ops ask for, so that another one may cross machines; `Channels` is the one
inside of a process.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .errors import CancelledError, RunError
from .host import LOOK_SECONDS, Context, OutputType, host_op
from .tensors import Array, storage_dtype


class Rendezvous(Protocol):
    """Takes tensors from who makes them to who waits for them, within one call."""

    def send(self, key: str, array: Array) -> None:
        """Hands out a tensor, which is copied; never waits."""
        ...

    def receive(self, key: str, context: Context) -> Array:
        """Waits for a tensor; CancelledError where the call was cancelled."""
        ...

    def finished(self) -> None:
        """A partition has ended, and will send nothing more."""
        ...

    def stop(self) -> None:
        """Wakes whoever waits, with a CancelledError."""
        ...


class Channels:
    """The rendezvous of `partitions` threads of one process.

    `sent` lists the keys in the order of sending. A wait that no partition can end any more is an
    error and not a deadlock.
    """

    def __init__(self, partitions: int) -> None:
        self.sent: list[str] = []
        self._changed = threading.Condition()
        self._arrived: dict[str, Array] = {}
        self._waiting: set[str] = set()
        self._running = partitions
        self._stopped = False

    def send(self, key: str, array: Array) -> None:
        copy = np.array(array)
        with self._changed:
            if key in self.sent:
                raise RunError(f"the tensor {key!r} is sent twice in one call")
            self.sent.append(key)
            self._arrived[key] = copy
            self._changed.notify_all()

    def receive(self, key: str, context: Context) -> Array:
        with self._changed:
            self._waiting.add(key)
            try:
                while key not in self._arrived:
                    self._check(key, context)
                    self._changed.wait(LOOK_SECONDS)
                return self._arrived.pop(key)
            finally:
                self._waiting.discard(key)

    def _check(self, key: str, context: Context) -> None:
        context.check()
        if self._stopped:
            raise CancelledError(f"another partition ended, so that {key!r} never arrives")
        if len(self._waiting) >= self._running and not self._waiting & self._arrived.keys():
            self._changed.notify_all()
            raise RunError(f"no partition sends {key!r}: each has ended, or waits itself")

    def finished(self) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def _of_call(context: Context) -> Rendezvous:
    if context.channels is None:
        raise RunError("this function is a partition: it runs as a part of a call, not alone")
    return context.channels


@host_op("send")
def send(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Sends the one operand under `key`."""
    _of_call(context).send(attributes["key"], arrays[0])
    return []


@host_op("recv")
def recv(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Waits for the tensor of `key`, which must be of the type of the result."""
    array = _of_call(context).receive(attributes["key"], context)
    wanted = storage_dtype(types[0].dtype), types[0].shape
    if (array.dtype, array.shape) != wanted:
        texts = [f"{dtype}{list(shape)}" for dtype, shape in ((array.dtype, array.shape), wanted)]
        raise RunError(f"the tensor {attributes['key']!r} arrived as {texts[0]}, not {texts[1]}")
    return [array]
