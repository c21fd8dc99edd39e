"""The kinds of queues, and the host ops on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .buffers import LARGEST_CAPACITY, buffer_of
from .host import Context, OutputType, ResourceInfo, host_op, resource_kind
from .queues import Queue
from .readers import Reader
from .state import State
from .tensors import Array, storage_dtype


@resource_kind("fifo_queue")
def fifo_queue(info: ResourceInfo, state: State) -> Queue:
    """A queue that gives its elements in the order of coming."""
    info.only("capacity", "reader")
    return _queue(info, state)


@resource_kind("random_shuffle_queue")
def random_shuffle_queue(info: ResourceInfo, state: State) -> Queue:
    """A queue that gives a random element of the first `min_after_dequeue + 1`."""
    info.only("capacity", "min_after_dequeue", "seed", "reader")
    return _queue(info, state)


def _queue(info: ResourceInfo, state: State) -> Queue:
    if not info.types:
        raise info.error("the types of its elements are missing")
    source = None
    for name in info.texts("reader"):
        reader = state.resource(name)
        if not isinstance(reader, Reader):
            raise info.error(f"{name!r} is no reader")
        source = reader.feeding(info)
    return Queue(info, buffer_of(info), info.number("capacity", 1, LARGEST_CAPACITY), source)


# ---- host ops


def _of(context: Context, attributes: Mapping[str, Any]) -> Queue:
    found = context.state.resource(attributes["resource"])
    assert isinstance(found, Queue), "the compiler checked the kind"
    return found


@host_op("enqueue")
def enqueue(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Puts in one element."""
    _of(context, attributes).enqueue(context, tuple(a.copy()[None] for a in arrays))
    return []


@host_op("enqueue_many")
def enqueue_many(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Puts in the slices along axis 0."""
    _of(context, attributes).enqueue(context, tuple(a.copy() for a in arrays))
    return []


@host_op("dequeue")
def dequeue(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Takes out one element."""
    found = _of(context, attributes).dequeue(context, 1)
    return [column[0] for column in found]


@host_op("dequeue_many")
def dequeue_many(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Takes out `count` elements, stacked along axis 0."""
    return list(_of(context, attributes).dequeue(context, attributes["count"]))


@host_op("dequeue_up_to")
def dequeue_up_to(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Takes out `count` elements or what a closed queue has left: their number, they, zeros."""
    found = _of(context, attributes).dequeue(context, attributes["count"], at_most=True)
    results = [np.array(len(found[0]), np.int64)]
    for column, kind in zip(found, types[1:], strict=True):
        padded = np.zeros(kind.shape, storage_dtype(kind.dtype))
        padded[: len(column)] = column
        results.append(padded)
    return results


@host_op("queue_size")
def queue_size(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """How many elements there are."""
    return [np.array(_of(context, attributes).size(), np.int64)]


@host_op("queue_close")
def queue_close(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Lets nothing in any more."""
    _of(context, attributes).close(attributes["cancel_pending"])
    return []
