"""The neutral element of each reduction."""

from __future__ import annotations

import math

from tfc.ir.types import DType


def identity(function: str, dtype: DType) -> float | int | bool:
    """What a sum, product, maximum or minimum of nothing is."""
    if function == "sum":
        return 0.0 if dtype.is_float else 0
    if function == "prod":
        return 1.0 if dtype.is_float else 1
    lowest = function == "max"
    if dtype.is_float:
        return -math.inf if lowest else math.inf
    if dtype.is_bool:
        return not lowest
    bits = dtype.bits
    low = -(1 << (bits - 1)) if dtype.kind == "int" else 0
    high = (1 << (bits - 1)) - 1 if dtype.kind == "int" else (1 << bits) - 1
    return low if lowest else high
