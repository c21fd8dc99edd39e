"""Arrays full of edge cases, and numbers computed one at a time in Python to compare ops with."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.ops.generated import shapes
from tfc.ir.types import DType


def limits(dtype: DType) -> tuple[int, int]:
    limits = np.iinfo(dtype.numpy)
    return int(limits.min), int(limits.max)


SPECIAL = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-40]


@st.composite
def values(draw: Any, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """An array full of edge cases, from a seed, since drawing each element is slow."""
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if dtype.is_bool:
        return np.asarray(generator.random(shape) < 0.5)
    if dtype.is_integer:
        low, high = limits(dtype)
        anything = generator.integers(low, high, shape, dtype.numpy, endpoint=True)
        edges = [low, low + 1, -1, 0, 1, 2, high - 1, high]
        chosen = generator.choice(np.array([e for e in edges if low <= e], dtype.numpy), shape)
        return np.asarray(np.where(generator.random(shape) < 0.5, chosen, anything), dtype.numpy)
    bits = generator.integers(0, 2**32, shape, np.uint32)
    with np.errstate(all="ignore"):
        kinds = [generator.choice(SPECIAL, shape), generator.uniform(-20, 20, shape)]
        kinds.append(np.asarray(bits).view(np.float32).astype(np.float64))
        found = np.choose(generator.integers(0, 3, shape), kinds)
        return np.asarray(found).astype(dtype.numpy)


@st.composite
def broadcastable(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of which some dimensions are stretched or missing."""
    full = draw(shapes(0, 3))
    pair: list[tuple[int, ...]] = []
    for _ in range(2):
        shape = tuple(1 if draw(st.integers(0, 3)) == 0 else n for n in full)
        pair.append(shape[draw(st.integers(0, len(shape))) :])
    return pair[0], pair[1]


def each(function: Callable[..., Any], dtype: DType, *arrays: np.ndarray) -> np.ndarray:
    """A function of Python numbers applied to each place."""
    arrays = tuple(np.broadcast_arrays(*arrays))
    found = [function(*map(number, row)) for row in zip(*(a.flat for a in arrays), strict=True)]
    if dtype.is_integer:
        return wrapped(found, dtype).reshape(arrays[0].shape)
    with np.errstate(all="ignore"):
        return (
            np.array(found, bool if dtype.is_bool else float)
            .astype(dtype.numpy)
            .reshape(arrays[0].shape)
        )


def number(value: Any) -> Any:
    return value.item() if value.dtype.kind in "iub" else float(value)


def wrapped(values: list[int], dtype: DType) -> np.ndarray:
    unsigned = np.array([v % (1 << dtype.bits) for v in values], f"u{dtype.bytes}")
    return unsigned.view(dtype.numpy)


def nearest(exact: Fraction, dtype: DType) -> Any:
    """The number of a float type that is nearest to a fraction, the even one of two."""
    with np.errstate(all="ignore"):
        guess = np.array(float(exact)).astype(dtype.numpy)
    integers = f"u{dtype.bytes}"
    bits = int(guess.view(integers))
    around = [np.array(bits + d, integers).view(dtype.numpy) for d in (-1, 0, 1) if bits + d >= 0]
    finite = [g for g in around if math.isfinite(float(g))]
    if not math.isfinite(float(guess)) or len(finite) < len(around) > 1:
        return guess  # at the end of the range, which other tests look at
    return min(finite, key=lambda g: (abs(Fraction(float(g)) - exact), int(g.view(integers)) & 1))
