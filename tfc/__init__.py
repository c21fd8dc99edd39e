"""tfc compiles dataflow graphs to native code ahead of time.

`tfc.compile` turns a model into a bundle, `tfc.load` opens one and runs it; packages below are for
those who build graphs, ops or passes of their own. Nothing is imported before it is used, so that
`import tfc` takes a millisecond.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # importing typing for it would take longer than all the rest
if TYPE_CHECKING:
    from tfc.driver import Summary, compile, load_module
    from tfc.ir.errors import TfcError
    from tfc.ir.run_errors import SessionError
    from tfc.passes.graph.gradients import gradients
    from tfc.runtime import (
        Bundle,
        BundleError,
        InputError,
        LoaderError,
        RunError,
        StateError,
        load,
        reset,
    )
    from tfc.session import Session

    __version__: str

_HOMES = {
    "Bundle": "tfc.runtime",
    "BundleError": "tfc.runtime",
    "InputError": "tfc.runtime",
    "LoaderError": "tfc.runtime",
    "RunError": "tfc.runtime",
    "Session": "tfc.session",
    "SessionError": "tfc.ir.run_errors",
    "StateError": "tfc.runtime",
    "Summary": "tfc.driver",
    "TfcError": "tfc.ir.errors",
    "compile": "tfc.driver",
    "gradients": "tfc.passes.graph.gradients",
    "load": "tfc.runtime",
    "load_module": "tfc.driver",
    "reset": "tfc.runtime",
}


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("tfc")
    if name not in _HOMES:
        raise AttributeError(f"module 'tfc' has no attribute {name!r}")
    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "Bundle",
    "BundleError",
    "InputError",
    "LoaderError",
    "RunError",
    "Session",
    "SessionError",
    "StateError",
    "Summary",
    "TfcError",
    "__version__",
    "compile",
    "gradients",
    "load",
    "load_module",
    "reset",
]
