"""Arrays for random graphs, from a seed: usual numbers, small ones that tie, and edge cases."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfc.ir.types import DType

Array = np.ndarray[Any, Any]

KINDS = ("usual", "ties", "edges")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1e-40, -3e-42, 6e-8)
HUGE = (6.5e4, 3e38, -1e30, 1e-38, 88.7, -104.0, 710.0)


def draw(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...], kind: str) -> Array:
    """An array of an element type; `kind` is one of KINDS."""
    if dtype.is_bool:
        return np.asarray(generator.random(shape) < 0.5)
    if dtype.is_integer:
        return _integers(generator, dtype, shape, kind)
    if kind == "ties":
        found = generator.integers(-3, 4, shape).astype(np.float64)
    else:
        found = generator.normal(size=shape) * generator.choice([0.1, 1.0, 1.0, 4.0])
    if kind == "edges":
        special = generator.choice(SPECIAL, shape)
        if generator.random() < 0.3:
            special = np.where(
                generator.random(shape) < 0.3, generator.choice(HUGE, shape), special
            )
        found = np.where(generator.random(shape) < generator.choice([0.05, 0.5]), special, found)
    with np.errstate(all="ignore"):
        return np.asarray(found).astype(dtype.numpy)


def _integers(
    generator: np.random.Generator, dtype: DType, shape: tuple[int, ...], kind: str
) -> Array:
    limits = np.iinfo(dtype.numpy)
    low, high = int(limits.min), int(limits.max)
    if kind != "edges":
        most = 4 if kind == "ties" else 100
        return generator.integers(max(low, -most), min(high, most), shape).astype(dtype.numpy)
    anything = generator.integers(low, high, shape, dtype.numpy, endpoint=True)
    edges = [e for e in (low, low + 1, -1, 0, 1, 2, 7, dtype.bits, high - 1, high) if e >= low]
    chosen = generator.choice(np.array(edges, dtype.numpy), shape)
    return np.asarray(np.where(generator.random(shape) < 0.5, chosen, anything), dtype.numpy)


def indices(
    generator: np.random.Generator, dtype: DType, shape: tuple[int, ...], size: int, below: int
) -> Array:
    """Indices from -below to size - 1."""
    high = max(size, 1)
    return generator.integers(min(-below, high - 1), high, shape).astype(dtype.numpy)
