"""What lasts between calls: the variables and resources of a module, in a container.

Functions that share a `State` see each other's writes. A bundle has one of its own unless it is
opened on a named container, which all bundles opened on it share until `reset`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .errors import StateError
from .tensors import Array

T = TypeVar("T")


class State:
    """Variables by name, each of one type and shape, and resources (queues, readers) by name.

    `lock` serialises the calls that share it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._variables: dict[str, Array] = {}
        self._assigned: dict[str, bool] = {}
        self._resources: dict[str, Any] = {}

    def declare(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Makes room for a variable; a second time it must be of the same type and shape."""
        held = self._variables.get(name)
        if held is None:
            self._variables[name] = np.zeros(shape, dtype)
            self._assigned[name] = False
        elif (held.dtype, held.shape) != (dtype, shape):
            raise StateError(
                f"the variable {name!r} is {held.dtype}{list(held.shape)} in this container, "
                f"not {dtype}{list(shape)}"
            )

    def read(self, name: str) -> Array:
        """A copy of a variable's value."""
        if not self._assigned.get(name):
            raise StateError(f"the variable {name!r} is not initialized: assign it first")
        return self._variables[name].copy()

    def write(self, name: str, value: Array) -> None:
        """Sets a variable, which is declared, to a value of its type and shape."""
        self._variables[name][...] = value
        self._assigned[name] = True

    @property
    def variables(self) -> dict[str, Array | None]:
        """A copy of each variable by name; None where it is not assigned."""
        return {n: a.copy() if self._assigned[n] else None for n, a in self._variables.items()}

    def resource(self, name: str, make: Callable[[], T]) -> T:
        """The resource of a name; made when it is first asked for."""
        with self.lock:
            if name not in self._resources:
                self._resources[name] = make()
            return self._resources[name]

    def reset(self) -> None:
        """Forgets all values and resources."""
        with self.lock:
            self._assigned = dict.fromkeys(self._assigned, False)
            self._resources.clear()


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
