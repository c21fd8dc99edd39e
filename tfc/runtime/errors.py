"""What goes wrong when a bundle is opened or run: three errors that a caller can tell apart."""

from __future__ import annotations


class LoaderError(Exception):
    """Any error that the loader raises itself."""


class BundleError(LoaderError):
    """The file is no bundle, is damaged, or does not fit this machine; says which part and why."""


class InputError(LoaderError):
    """An input (or a caller's output array) is not what the function takes; says what would be."""


class RunError(LoaderError):
    """The function stopped while running: an index out of range, for example; names the node."""


class StateError(RunError):
    """A variable that is read before it is assigned, or state that is not what was declared."""


class OutOfRangeError(RunError):
    """A queue that is closed, or a reader at its end, has fewer elements left than asked for."""


class CancelledError(RunError):
    """What waited, or would have, was cancelled: the call itself, or the queue by its close."""
