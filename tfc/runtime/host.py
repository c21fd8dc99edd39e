"""Ops that run in the loader and not in compiled code: queues, readers, checkpoints, print.

`HOST_OPS` maps a kind to the function that is its meaning, which interpreter and loader share. It
gets the context of the call, the attributes (JSON values), the operands as dense arrays, and the
types that the results must have; it gives the results. bf16 is its bits here, in u16.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TextIO, TypeAlias, TypeVar

from .errors import CancelledError, StateError
from .state import State
from .tensors import Array

FAMILIES = ("channels", "checkpoints", "partitions", "printing", "queue_ops", "readers")
"""The modules beside this one that register host ops and resources when they are first needed."""

LOOK_SECONDS = 0.05  # how often what waits looks whether it was cancelled


class OutputType(NamedTuple):
    """The type of a result: an element type by its name, and a shape of numbers."""

    dtype: str
    shape: tuple[int, ...]


CallFunction: TypeAlias = "Callable[[str, Sequence[Array], Context], list[Array]]"


@dataclass
class Context:
    """What a host op knows of the call that it is part of.

    `cancelled` may be set by any thread: what waits then ends with a CancelledError. `channels` is
    where the partitions of one call meet. `stream` is what `print` writes to (None: stderr). `call`
    runs another function of the module, by its name, in a context: arrays to arrays.
    """

    state: State
    channels: Any = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    stream: TextIO | None = None
    call: CallFunction | None = None

    def check(self) -> None:
        """Raises CancelledError where the call was cancelled."""
        if self.cancelled.is_set():
            raise CancelledError("the call was cancelled")


HostFunction: TypeAlias = Callable[
    [Context, Mapping[str, Any], Sequence[Array], Sequence[OutputType]], list[Array]
]
HostFunctionT = TypeVar("HostFunctionT", bound=HostFunction)

HOST_OPS: dict[str, HostFunction] = {}
"""Kind -> what it does; `host_function` finds one, and has the families registered first."""


def host_op(kind: str) -> Callable[[HostFunctionT], HostFunctionT]:
    """Registers the function of a kind of host op."""

    def register(function: HostFunctionT) -> HostFunctionT:
        HOST_OPS[kind] = function
        return function

    return register


@dataclass(frozen=True)
class ResourceInfo:
    """A resource as the module declares it: the types of its elements, attributes as JSON values.

    `types` are pairs of an element type's name and a shape.
    """

    name: str
    kind: str
    types: tuple[OutputType, ...]
    attributes: Mapping[str, Any]

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> ResourceInfo:
        """From an entry of `resources` in manifest.json."""
        types = tuple(OutputType(dtype, tuple(shape)) for dtype, shape in record["types"])
        return cls(record["name"], record["kind"], types, record["attributes"])

    def record(self) -> dict[str, Any]:
        """As JSON values."""
        types = [[t.dtype, list(t.shape)] for t in self.types]
        return {
            "name": self.name,
            "kind": self.kind,
            "types": types,
            "attributes": dict(self.attributes),
        }

    def error(self, message: str) -> StateError:
        return StateError(f"the resource {self.name!r} ({self.kind}): {message}")

    def number(self, name: str, smallest: int, largest: int, default: int | None = None) -> int:
        """An attribute that is a whole number in a range."""
        value = self.attributes.get(name, default)
        if value is None:
            raise self.error(f"the attribute {name} is missing")
        fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits or not smallest <= value <= largest:
            raise self.error(f"{name} is {value!r}, not a number from {smallest} to {largest}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """An attribute that is a text, or a list of them; none where it is missing."""
        value = self.attributes.get(name, ())
        found = (value,) if isinstance(value, str) else tuple(value)
        if not all(isinstance(text, str) and text for text in found):
            raise self.error(f"{name} is {value!r}, not a text or a list of texts")
        return found

    def only(self, *names: str) -> None:
        """Refuses attributes of other names."""
        for name in self.attributes:
            if name not in ("kind", *names):
                raise self.error(f"it has no attribute {name}; it has {', '.join(names)}")


ResourceMaker: TypeAlias = Callable[[ResourceInfo, State], Any]
ResourceMakerT = TypeVar("ResourceMakerT", bound=ResourceMaker)

RESOURCES: dict[str, ResourceMaker] = {}
"""Kind -> what makes a resource of it, which checks its attributes and touches no file yet.

A resource has `stop()`, which ends its threads, `snapshot() -> (JSON, arrays by name)`, and
`restored(JSON, arrays)`, which checks them and gives a function that makes them its state.
"""


def resource_kind(kind: str) -> Callable[[ResourceMakerT], ResourceMakerT]:
    """Registers what makes the resources of a kind."""

    def register(maker: ResourceMakerT) -> ResourceMakerT:
        RESOURCES[kind] = maker
        return maker

    return register


def host_function(kind: str) -> HostFunction:
    """What a kind of host op does; StateError where no such kind is known."""
    if kind not in HOST_OPS:
        _register_families()
    if kind not in HOST_OPS:
        raise StateError(f"this loader knows no host op {kind!r}")
    return HOST_OPS[kind]


def make_resource(info: ResourceInfo, state: State) -> Any:
    """A resource; StateError where its kind is not known or an attribute does not fit."""
    if info.kind not in RESOURCES:
        _register_families()
    if info.kind not in RESOURCES:
        known = ", ".join(sorted(RESOURCES))
        raise StateError(f"the resource {info.name!r}: no kind is named {info.kind!r}, but {known}")
    return RESOURCES[info.kind](info, state)


def declare_resources(state: State, infos: Sequence[ResourceInfo]) -> None:
    """Makes the resources of a module known to a state."""
    for info in infos:
        state.declare_resource(info.name, info.record(), _maker(info, state))


def _maker(info: ResourceInfo, state: State) -> Callable[[], Any]:
    return lambda: make_resource(info, state)


def _register_families() -> None:
    for family in FAMILIES:
        importlib.import_module(f"{__package__}.{family}")


@contextmanager
def unlocked(state: State) -> Generator[None]:
    """Lets go of the state's lock, which the call may hold, for as long as it waits.

    Other calls may run and change variables meanwhile; so compiled code must not take a value that
    it has read before such an op from the variable's memory after it.
    """
    with state.lock.suspended():
        yield
