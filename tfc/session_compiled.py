"""The executor of a session that compiles each part to machine code."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from tfc.ir.core import Module
    from tfc.runtime.state import State

    Array: TypeAlias = np.ndarray[Any, Any]


def compiled(module: Module, state: State) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
    """The main function of a module as machine code over a state; from inputs to outputs by name.

    Raises UnsupportedError for what cannot be compiled.
    """
    from tfc.driver import compile
    from tfc.runtime import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part.tfb"
        compile(module, path)
        bundle = load(path.read_bytes(), container=state)
    return bundle.main.run
