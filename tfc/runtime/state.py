"""What lasts between calls: the variables and resources of a module, in a container.

Functions that share a `State` see each other's writes. A bundle has one of its own unless it is
opened on a named container, which all bundles opened on it share until `reset`.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .errors import StateError
from .locks import CallLock
from .tensors import Array, aligned_bytes


class State:
    """Variables by name, each of one type and shape, and resources (queues, readers) by name.

    A variable stays where it is in memory, aligned to 64 bytes, for as long as the state is there:
    compiled functions work on it in place. `lock` serialises the calls that share it. `folder` is
    where readers and checkpoints have their files; without one they have none.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.lock = CallLock()
        self.folder = None if folder is None else os.fspath(folder)
        self._variables: dict[str, Array] = {}
        self._assigned: dict[str, Array] = {}  # a byte each
        self._resources: dict[str, Any] = {}
        self._makers: dict[str, tuple[Any, Callable[[], Any]]] = {}

    def declare(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Makes room for a variable; a second time it must be of the same type and shape."""
        with self.lock:
            held = self._variables.get(name)
            if held is None:
                self._assigned[name] = np.zeros(1, np.uint8)
                self._variables[name] = _zeros(dtype, shape)
                return
        if (held.dtype, held.shape) != (dtype, shape):
            raise StateError(
                f"the variable {name!r} is {held.dtype}{list(held.shape)} in this container, "
                f"not {dtype}{list(shape)}"
            )

    def read(self, name: str) -> Array:
        """A copy of a variable's value."""
        with self.lock:
            if name not in self._variables or not self._assigned[name][0]:
                raise StateError(f"the variable {name!r} is not initialized: assign it first")
            return self._variables[name].copy()

    def write(self, name: str, value: Array) -> None:
        """Sets a variable, which is declared, to a value of its type and shape."""
        with self.lock:
            self._variables[name][...] = value
            self._assigned[name][0] = 1

    def __getitem__(self, name: str) -> Array:
        """A copy of a variable's value; StateError where there is none."""
        self._require(name)
        return self.read(name)

    def __setitem__(self, name: str, value: object) -> None:
        """Sets a variable to an array, or numbers, of its type and shape; else a StateError."""
        self._require(name)
        held = self._variables[name]
        array = np.asarray(value) if hasattr(value, "dtype") else np.asarray(value, held.dtype)
        if (array.dtype, array.shape) != (held.dtype, held.shape):
            raise StateError(
                f"the variable {name!r} is {held.dtype}{list(held.shape)}, "
                f"not {array.dtype}{list(array.shape)}"
            )
        self.write(name, array)

    def _require(self, name: str) -> None:
        if name not in self._variables:
            known = ", ".join(map(repr, self._variables)) or "none"
            raise StateError(f"there is no variable {name!r}; there are: {known}")

    def addresses(self, name: str) -> tuple[int, int]:
        """Where a variable lies in memory, and the byte that says whether it was assigned."""
        return self._variables[name].ctypes.data, self._assigned[name].ctypes.data

    @property
    def variables(self) -> dict[str, Array | None]:
        """A copy of each variable by name; None where it is not assigned."""
        with self.lock:
            held = self._variables.items()
            return {n: a.copy() if self._assigned[n][0] else None for n, a in held}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is declared, so that calls share nothing."""
        return not self._variables and not self._makers

    def type_of(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """The element type and shape of a variable that is declared."""
        held = self._variables[name]
        return held.dtype, held.shape

    def nbytes(self, name: str) -> int:
        """The bytes of a variable that is declared."""
        return self._variables[name].nbytes

    def is_assigned(self, name: str) -> bool:
        """Whether a variable, which is declared, has a value."""
        return bool(self._assigned[name][0])

    def forget(self, name: str) -> None:
        """Takes a variable's value away, as before its first assignment."""
        self._assigned[name][0] = 0

    def declare_resource(
        self, name: str, description: Mapping[str, Any], make: Callable[[], Any]
    ) -> None:
        """Says how a resource is made; a second time its description must be the same."""
        with self.lock:
            held = self._makers.setdefault(name, (description, make))
        if held[0] != description:
            raise StateError(f"the resource {name!r} is declared otherwise in this container")

    def resource(self, name: str) -> Any:
        """The resource of a name, which is declared; made when it is first asked for."""
        with self.lock:
            if name not in self._resources:
                if name not in self._makers:
                    raise StateError(f"there is no resource {name!r}")
                self._resources[name] = self._makers[name][1]()
            return self._resources[name]

    @property
    def resources(self) -> tuple[str, ...]:
        """The names of the resources that are declared, in their order."""
        return tuple(self._makers)

    def reset(self) -> None:
        """Forgets all values, and closes and forgets all resources."""
        with self.lock:
            for assigned in self._assigned.values():
                assigned[0] = 0
            held = list(self._resources.values())
            self._resources.clear()
        for resource in held:
            resource.stop()


def _zeros(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """An array of zeros at a multiple of 64 bytes."""
    count = math.prod(shape)
    try:
        memory = aligned_bytes(count * dtype.itemsize)
    except (MemoryError, ValueError) as error:
        raise StateError(f"no memory for a variable of {dtype}{list(shape)}") from error
    memory[:] = 0
    return memory.view(dtype).reshape(shape)


_CONTAINERS: dict[str, State] = {}
_CONTAINERS_LOCK = threading.Lock()


def container(name: str) -> State:
    """The state that all bundles opened on a named container share in this process."""
    with _CONTAINERS_LOCK:
        return _CONTAINERS.setdefault(name, State())


def reset(name: str) -> None:
    """Forgets the values of a named container; nothing happens where there is none."""
    with _CONTAINERS_LOCK:
        held = _CONTAINERS.get(name)
    if held is not None:
        held.reset()
