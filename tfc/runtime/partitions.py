"""Runs the partitions of a call at the same time, each on a thread of its own.

If one fails, all stop, and its error is that of the call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from .channels import Channels, Rendezvous
from .errors import RunError
from .host import Context, OutputType, host_op
from .tensors import Array
from .workers import start

Partition = Callable[[Context], list[Array]]
"""Runs one partition, in a context of its own, and gives its outputs."""


class _Linked(threading.Event):
    """Is set when it is set itself, or the event of the whole call is."""

    def __init__(self, whole: threading.Event) -> None:
        super().__init__()
        self._whole = whole

    def is_set(self) -> bool:
        return super().is_set() or self._whole.is_set()


class _Partitions:
    """The partitions of one call; `errors` in the order in which they came."""

    def __init__(self, parts: Sequence[Partition], context: Context, channels: Rendezvous) -> None:
        self.parts = parts
        self.channels = channels
        self.lock = context.state.lock
        self.guard = nullcontext() if context.state.is_empty else self.lock
        cancelled = _Linked(context.cancelled)
        self.context = replace(context, channels=channels, cancelled=cancelled)
        self.outputs: list[list[Array]] = [[] for _ in parts]
        self.errors: list[BaseException] = []

    def run(self) -> list[Array]:
        """All outputs; the first partition runs on the thread of the caller."""
        with self.guard, self.lock.lent() as caller:
            waits: list[Callable[[], None]] = []
            try:
                for number in range(1, len(self.parts)):
                    waits.append(start(partial(self.part, number, caller)))
            except RuntimeError as error:  # the system gives no more threads
                self.fail(error)
            self.part(0, caller)
            for wait in waits:
                self.until(wait)
        self.raise_first()
        return [array for outputs in self.outputs for array in outputs]

    def until(self, wait: Callable[[], None]) -> None:
        """Waits for a part; an interrupt ends them all, since they use memory of the caller."""
        while True:
            try:
                return wait()
            except KeyboardInterrupt as error:
                self.fail(error)

    def part(self, number: int, caller: object) -> None:
        try:
            with self.lock.acting_for(caller):
                self.outputs[number] = self.parts[number](self.context)
        except BaseException as error:
            self.fail(error)
        finally:
            self.channels.finished()

    def fail(self, error: BaseException) -> None:
        self.errors.append(error)
        self.context.cancelled.set()
        self.channels.stop()

    def raise_first(self) -> None:
        """Raises what went wrong first; that others were cancelled came of it."""
        if self.errors:
            raise self.errors[0]


def run_partitions(
    parts: Sequence[Partition], context: Context, channels: Rendezvous | None = None
) -> list[Array]:
    """The outputs of all partitions, in their order. `channels` is where they meet (None: new)."""
    return _Partitions(parts, context, channels or Channels(len(parts))).run()


@host_op("partitioned_call")
def partitioned_call(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Runs the functions `parts`, each with all operands."""
    call = context.call
    if call is None:
        raise RunError("this caller runs no other functions of the module")

    def part(name: str) -> Partition:
        return lambda inner: call(name, arrays, inner)

    return run_partitions([part(name) for name in attributes["parts"]], context)
