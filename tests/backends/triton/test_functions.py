"""Every function, cast and reduction of tiles, on every type: right, and Triton compiles it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tfc.backends.triton.compile import compile_kernel
from tfc.backends.triton.interpret import run_kernel as run_triton
from tfc.ir.core import Kernel, Value
from tfc.ir.types import BOOL, DTYPES, BufferType, DType
from tfc.tile.build import C, KernelBuilder, R
from tfc.tile.functions import FUNCTIONS
from tfc.tile.interpret import run_kernel

Array = np.ndarray[Any, Any]
ROWS, COLS = 6, 20
CODED = [t for t in DTYPES.values() if t.name not in ("f16", "bf16")]


def values(dtype: DType) -> Array:
    """Ordinary and special values."""
    random = np.random.default_rng(7)
    n = ROWS * COLS
    if dtype == BOOL:
        return random.random(n) < 0.5
    if dtype.is_float:
        x = random.standard_normal(n) * 3
        x[:12] = [0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, 1e4, -1e4, np.inf, -np.inf, np.nan]
        return x.astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    x = random.integers(-9 if dtype.kind == "int" else 0, 9, n).astype(dtype.numpy)
    x[:6] = [0, 1, limits.min, limits.max, 7, 0]
    return x


def shuffled(dtype: DType, number: int) -> Array:
    return np.random.default_rng(number).permutation(values(dtype))


def kernel_of(
    dtype: DType,
    results: list[tuple[DType, int]],
    body: Callable[[KernelBuilder, list[Value]], list[Value]],
) -> Kernel:
    """Three operands of a type; each result has a buffer of its own, of so many elements."""
    kinds = {f"x{i}": BufferType(dtype, ROWS * COLS) for i in range(3)}
    kinds |= {f"y{i}": BufferType(t, n, "out") for i, (t, n) in enumerate(results)}
    b = KernelBuilder("all", kinds, [1])
    tiles = [b.load(b.buffer(f"x{i}"), R * COLS + C, (ROWS, COLS)) for i in range(3)]
    for i, tile in enumerate(body(b, tiles)):
        b.store(b.buffer(f"y{i}"), R * tile.tile.cols + C, tile)
    return b.kernel


def functions_kernel(dtype: DType) -> tuple[Kernel, list[str]]:
    found = [(n, f) for n, f in FUNCTIONS.items() if f.accepts(dtype)]
    results = [(f.result_type(dtype), ROWS * COLS) for _, f in found]
    kernel = kernel_of(dtype, results, lambda b, x: [b.map(n, *x[: f.arity]) for n, f in found])
    return kernel, [n for n, _ in found]


def casts_kernel(dtype: DType) -> Kernel:
    others = [t for t in DTYPES.values() if t != dtype]
    return kernel_of(
        dtype, [(t, ROWS * COLS) for t in others], lambda b, x: [b.cast(x[0], t) for t in others]
    )


def reductions_kernel(dtype: DType) -> Kernel:
    names = ["max", "min"] if dtype == BOOL else ["sum", "prod", "max", "min"]
    both = [(name, axis) for name in names for axis in (0, 1)]
    return kernel_of(
        dtype,
        [(dtype, COLS if axis == 0 else ROWS) for _, axis in both],
        lambda b, x: [b.reduce(name, x[0], axis) for name, axis in both],
    )


def both(kernel: Kernel, dtype: DType) -> list[tuple[Array, Array]]:
    """The outputs of Triton's interpreter and of ours."""
    outputs = [a.buffer for a in kernel.body.args[3:]]
    arrays = [shuffled(dtype, i) for i in range(3)]
    arrays += [np.zeros(int(str(t.elements)), t.dtype.numpy) for t in outputs]
    expected = [a.copy() for a in arrays]
    run_kernel(kernel, expected, {})
    run_triton(kernel, arrays, {})
    return list(zip(arrays[3:], expected[3:], strict=True))


def compare(name: str, got: Array, expected: Array) -> None:
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(got, expected, name)
        return
    tolerance = 1e-12 if expected.dtype == np.float64 else 1e-6
    x, y = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(x, y, tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", CODED, ids=str)
def test_functions(dtype: DType) -> None:
    kernel, names = functions_kernel(dtype)
    for name, (got, expected) in zip(names, both(kernel, dtype), strict=True):
        compare(name, got, expected)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_casts(dtype: DType) -> None:
    for number, (got, expected) in enumerate(both(casts_kernel(dtype), dtype)):
        compare(f"{dtype} to result {number}", got, expected)


@pytest.mark.parametrize("dtype", CODED, ids=str)
def test_reductions(dtype: DType) -> None:
    for number, (got, expected) in enumerate(both(reductions_kernel(dtype), dtype)):
        compare(f"reduction {number}", got, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_all_compile(dtype: DType) -> None:
    """Only `pow` and the reduction of large angles of `sin` keep arrays in the stack."""
    compile_kernel(casts_kernel(dtype))
    if dtype in CODED:
        compile_kernel(reductions_kernel(dtype))
        compile_kernel(functions_kernel(dtype)[0])
