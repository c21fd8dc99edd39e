"""Triton's modules, imported where they are needed: it takes half a second and may be absent."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tfc.ir.errors import UnsupportedError


def triton_module(name: str = "triton") -> Any:
    """A module of Triton's. Raises UnsupportedError where Triton is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            "GPU code needs Triton, which is not installed", hint="pip install 'tfc[gpu]'"
        ) from error


def versions() -> str:
    """What GPU code depends on besides its source."""
    return f"triton {triton_module().__version__}"
