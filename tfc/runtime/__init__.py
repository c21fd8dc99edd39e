"""Runs bundles: `load(path_or_bytes)` gives a Bundle. Needs numpy and nothing else of tfc.

Every bundle carries a copy of this package, so that it runs where tfc is not installed.
"""

from .bundle import Bundle, load
from .errors import (
    BundleError,
    CancelledError,
    InputError,
    LoaderError,
    OutOfRangeError,
    RunError,
    StateError,
)
from .function import Function
from .index import SymbolInfo, TensorInfo
from .state import State, reset

__all__ = [
    "Bundle",
    "BundleError",
    "CancelledError",
    "Function",
    "InputError",
    "LoaderError",
    "OutOfRangeError",
    "RunError",
    "State",
    "StateError",
    "SymbolInfo",
    "TensorInfo",
    "load",
    "reset",
]
