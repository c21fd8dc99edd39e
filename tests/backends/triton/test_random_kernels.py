"""Random kernels, those of the CPU's tests, give in Triton's interpreter what ours gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.llvm.random_kernels import RandomKernel, random_kernel
from tfc.backends.triton.compile import compile_kernel
from tfc.backends.triton.interpret import run_kernel as run_triton
from tfc.tile.interpret import run_kernel


def compare(made: RandomKernel, got: np.ndarray, expected: np.ndarray) -> None:
    """Equal where both sides compute alike, else within a few roundings of the largest value."""
    if made.exact or got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, expected)
        return
    x, y = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    finite = np.isfinite(y)
    scale = np.abs(y[finite]).max(initial=0)
    kinds = {v.tile.dtype for op in made.kernel.body.walk() for v in op.results}
    tolerance = 3e-5 if any(k.is_float and k.bits < 64 for k in kinds) else 1e-12
    np.testing.assert_allclose(x[finite], y[finite], tolerance, tolerance * scale)


def check(seed: int) -> None:
    made = random_kernel(seed)
    expected = [a.copy() for a in made.arrays]
    run_kernel(made.kernel, expected, made.symbols)
    got = [a.copy() for a in made.arrays]
    run_triton(made.kernel, got, made.symbols, wide=seed % 7 == 0)
    for g, e in zip(got, expected, strict=True):
        compare(made, g, e)


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_random_kernels(start: int) -> None:
    for seed in range(start, start + 20):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 3000, 50))
def test_many_random_kernels(start: int) -> None:
    for seed in range(start, start + 50):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1300, 20))
def test_random_kernels_compile(start: int) -> None:
    """Triton's own checks of types and shapes are stricter than its interpreter."""
    for seed in range(start, start + 20):
        compile_kernel(random_kernel(seed).kernel, wide=seed % 7 == 0)
