"""Hypothesis strategies of small arrays and shapes for the tests of ops."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tfc.ir.types import DType

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


@st.composite
def arrays(draw: Any, dtype: DType, shape: tuple[int, ...], *, special: bool = False) -> np.ndarray:
    """Random numbers of a shape; `special` mixes NaN and infinities into some floats."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype.is_float:
        found = generator.normal(size=shape)
        if special and draw(st.booleans()):
            chosen = generator.random(shape) < 0.2
            found = np.where(chosen, generator.choice(SPECIAL, shape), found)
        return np.asarray(found).astype(dtype.numpy)
    low, high = (0, 2) if dtype.is_bool else (-100, 101)
    return np.asarray(generator.integers(low, high, shape)).astype(dtype.numpy)


def shapes(least: int = 0, most: int = 4, smallest: int = 0) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of `least` to `most` axes with sizes from `smallest` to 5."""
    sizes = st.integers(smallest, 5)
    return st.lists(sizes, min_size=least, max_size=most).map(tuple)


def axes_of(rank: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Ascending axes of a rank, none to all."""
    if not rank:
        return st.just(())
    return st.sets(st.integers(0, rank - 1)).map(lambda s: tuple(sorted(s)))
