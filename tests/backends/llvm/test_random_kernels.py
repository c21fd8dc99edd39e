"""Compiled kernels give what the interpreter gives: random ones, between inaccessible pages."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tfc.backends.llvm.jit import jit_kernels
from tfc.ir.types import TileType
from tfc.targets import TARGETS, Target, runs_here
from tfc.tile.interpret import run_kernel

sys.path.insert(0, str(Path(__file__).parent))
from guarded import GuardedArray
from random_kernels import RandomKernel, random_kernel

LEVELS = [t for t in TARGETS.values() if runs_here(t) and not t.vnni]


def check(seed: int) -> None:
    """Runs a kernel compiled for a level that the seed draws, in one task or several."""
    made = random_kernel(seed)
    expected = [a.copy() for a in made.arrays]
    run_kernel(made.kernel, expected, made.symbols, exclusive=True)
    target: Target = LEVELS[seed % len(LEVELS)]
    (compiled,) = jit_kernels([made.kernel], target, opt_level=3 if seed % 2 else 1)
    guarded = [GuardedArray(a, at_end=seed // 3 % 2 == 0) for a in made.arrays]
    compiled([g.array for g in guarded], made.symbols, grain=3 if seed % 5 == 0 else None)
    for g, a in zip(guarded, expected, strict=True):
        g.assert_surroundings_untouched()
        compare(made, g.array, a)


def compare(made: RandomKernel, got: np.ndarray, expected: np.ndarray) -> None:
    """Equal where both sides compute alike, else within a few roundings of the largest value."""
    x, y = got.astype(np.float64), expected.astype(np.float64)
    if made.exact or got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, expected)
        return
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    finite = np.isfinite(y)
    scale = np.abs(y[finite]).max(initial=0)
    tolerance = 3e-5 if _narrow(made) else 1e-12
    np.testing.assert_allclose(x[finite], y[finite], tolerance, tolerance * scale)


def _narrow(made: RandomKernel) -> bool:
    """Whether something is computed in f32."""
    kinds = (v.type for op in made.kernel.body.walk() for v in op.results)
    return any(isinstance(k, TileType) and k.dtype.is_float and k.dtype.bits < 64 for k in kinds)


@pytest.mark.parametrize("start", range(0, 70, 10))
def test_random_kernels(start: int) -> None:
    for seed in range(start, start + 10):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 5000, 50))
def test_many_random_kernels(start: int) -> None:
    for seed in range(start, start + 50):
        check(seed)
