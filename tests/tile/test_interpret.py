"""The interpreter of kernels finds accesses that a kernel must not make."""

from __future__ import annotations

import numpy as np
import pytest

from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import F32, BufferType
from tfc.tile.build import C, KernelBuilder, R
from tfc.tile.interpret import kernel_symbols, run_kernel
from tfc.tile.reference import apply_function, cast_array

M = symbol("M")


def builder(grid: list[object], mode: str = "out") -> KernelBuilder:
    kinds = {"x": BufferType(F32, M), "y": BufferType(F32, M, mode)}
    return KernelBuilder("k", kinds, grid)


def arrays(n: int) -> list[np.ndarray]:
    return [np.arange(n, dtype=np.float32), np.zeros(n, np.float32)]


def test_an_access_outside_of_its_buffer_fails() -> None:
    b = builder([])
    b.store(b.buffer("y"), C, b.load(b.buffer("x"), C + 1, (1, 4)))
    with pytest.raises(TfcError, match=r"load reaches 1\.\.4 of x\[4\]"):
        run_kernel(b.kernel, arrays(4), {"M": 4})


def test_an_output_must_not_be_read() -> None:
    b = builder([])
    b.store(b.buffer("y"), C, b.load(b.buffer("y"), C, (1, 4)))
    with pytest.raises(TfcError, match="output is read"):
        run_kernel(b.kernel, arrays(4), {"M": 4})


@pytest.mark.parametrize("mode", ["out", "inout"])
def test_programs_must_not_share_elements(mode: str) -> None:
    b = builder([2], mode)
    b.store(b.buffer("y"), b.program(0) + C, b.load(b.buffer("x"), C, (1, 2)))
    run_kernel(b.kernel, arrays(4), {"M": 4})
    with pytest.raises(TfcError, match="programs share elements of y"):
        run_kernel(b.kernel, arrays(4), {"M": 4}, exclusive=True)


def test_bounds_and_loops() -> None:
    b = builder([])

    def step(i: object, total: object) -> list[object]:
        x = b.load(b.buffer("x"), i + C, (1, 4), [(0, i + C, M)], other=-1.0)
        return [b.map("add", total, x)]

    (total,) = b.loop(0, M, 4, [b.full((1, 4), 0.0, F32)], step)
    b.store(b.buffer("y"), C, total, [(0, C, M)])
    data = arrays(6)
    run_kernel(b.kernel, data, {"M": 6})
    np.testing.assert_array_equal(data[1], [4, 6, 1, 2, 0, 0])


def test_symbols_are_those_of_buffers_grid_and_body_in_order() -> None:
    kinds = {"x": BufferType(F32, symbol("B") * 4), "y": BufferType(F32, symbol("B") * 4, "out")}
    b = KernelBuilder("k", kinds, [symbol("N")])
    b.store(b.buffer("y"), R * symbol("A") + C, b.load(b.buffer("x"), C, (2, 2)))
    assert kernel_symbols(b.kernel) == ["A", "B", "N"]


def test_integer_functions_never_trap() -> None:
    x = np.array([-(2**31), 7, -7, 5, 0, -1], np.int32)
    y = np.array([-1, 2, 2, 0, 0, 40], np.int32)
    np.testing.assert_array_equal(apply_function("div", x, y), [-(2**31), 3, -3, 0, 0, 0])
    np.testing.assert_array_equal(apply_function("mod", x, y), [0, 1, 1, 0, 0, 39])
    np.testing.assert_array_equal(apply_function("fmod", x, y), [0, 1, -1, 0, 0, -1])
    np.testing.assert_array_equal(apply_function("shift_left", x, y)[[1, 5]], [28, 0])
    np.testing.assert_array_equal(apply_function("pow", x, -abs(y))[[1, 5]], [0, 1])


def test_floats_saturate_as_integers() -> None:
    from tfc.ir.types import I8, I64, U8

    x = np.array([np.nan, np.inf, -np.inf, 300.7, -3.9], np.float32)
    np.testing.assert_array_equal(cast_array(x, I8), [0, 127, -128, 127, -3])
    np.testing.assert_array_equal(cast_array(x, U8), [0, 255, 0, 255, 0])
    np.testing.assert_array_equal(cast_array(x, I64)[1:3], [2**63 - 1, -(2**63)])
