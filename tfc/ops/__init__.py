"""The graph ops: importing this registers every family."""

from __future__ import annotations

from tfc.ops import base

__all__ = ["base"]
