"""Kernels written by hand: what random ones do not reach."""

from __future__ import annotations

import numpy as np
import pytest

from tfc.backends.llvm.compile import compile_kernel_text, emit_asm, optimise_text
from tfc.backends.llvm.jit import jit_kernel, jit_kernels
from tfc.backends.llvm.lower import lower_kernel
from tfc.backends.llvm.objects import undefined_symbols
from tfc.ir.core import Location
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.expr import ceildiv, symbol
from tfc.ir.types import BOOL, F16, F32, F64, I8, I64, BufferType
from tfc.targets import TARGETS, resolve, runs_here
from tfc.tile.build import C, KernelBuilder, R
from tfc.tile.interpret import run_kernel
from tfc.tile.lanes import lanes_of

M = symbol("M")
LEVELS = [name for name, t in TARGETS.items() if runs_here(t)]


def doubled() -> KernelBuilder:
    """y = 2 x over M rows of 40, four rows a program."""
    kinds = {"x": BufferType(F32, M * 40), "y": BufferType(F32, M * 40, "out")}
    b = KernelBuilder("doubled", kinds, [ceildiv(M, 4)])
    row = b.program(0) * 4 + R
    inside = [(0, row, M)]
    x = b.load(b.buffer("x"), row * 40 + C, (4, 40), inside)
    b.store(b.buffer("y"), row * 40 + C, b.map("add", x, x), inside)
    return b


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows", [0, 1, 4, 11])
def test_tasks_share_the_programs(level: str, rows: int) -> None:
    run = jit_kernels([doubled().kernel], level)[0]
    x = np.arange(rows * 40, dtype=np.float32)
    for grain in (1, 2, 100):
        y = np.zeros_like(x)
        run([x, y], {"M": rows}, grain)
        np.testing.assert_array_equal(y, 2 * x)


def test_the_text_is_the_same_each_time() -> None:
    target = resolve("x86-64-v3")
    first, second = (lower_kernel(doubled().kernel, target) for _ in range(2))
    assert first == second
    assert compile_kernel_text(first.text, target) == compile_kernel_text(second.text, target)
    assert undefined_symbols(compile_kernel_text(first.text, target)) == []
    assert "vmovups" in emit_asm(first.text, target)
    assert "define" in optimise_text(first.text, target)


def test_a_512_bit_target_uses_its_registers() -> None:
    target = resolve("x86-64-v4")
    assert "zmm" in emit_asm(lower_kernel(doubled().kernel, target).text, target)


def test_aarch64_compiles() -> None:
    target = resolve("aarch64")
    code = compile_kernel_text(lower_kernel(doubled().kernel, target).text, target)
    assert code[18:20] == (183).to_bytes(2, "little")
    assert undefined_symbols(code) == []


# ---- indices that are checked


def gather(rows: int, *, bounded: bool = False) -> KernelBuilder:
    """y[i] = table[index[i]], `rows` at a time; the indices of M elements."""
    kinds = {
        "table": BufferType(F32, symbol("N")),
        "index": BufferType(I64, M),
        "y": BufferType(F32, M, "out"),
    }
    b = KernelBuilder("gather", kinds, [ceildiv(M, rows)])
    b.location = Location(("node_3",))
    at = b.program(0) * rows + R
    inside = [(0, at, M)]
    index = b.load(b.buffer("index"), at, (rows, 1), inside, 99 if bounded else 0)
    wrapped = b.wrap_index(index, symbol("N"), inside if bounded else ())
    value = b.load(b.buffer("table"), 0, (rows, 1), gather=[(wrapped, 1)])
    b.store(b.buffer("y"), at, value, inside)
    return b


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("rows", [1, 3, 16, 200])
def test_negative_indices_count_from_the_end(level: str, rows: int) -> None:
    run = jit_kernel(gather(rows, bounded=True).kernel, level)
    table = np.arange(7, dtype=np.float32)
    index = np.array([0, 6, -1, -7, 3] * 7)
    y = np.zeros(35, np.float32)
    run([table, index, y], {"M": 35, "N": 7})
    np.testing.assert_array_equal(y, table[index])


@pytest.mark.parametrize("wrong", [7, -8, 2**62, -(2**63)])
@pytest.mark.parametrize("rows", [1, 16, 200])
def test_an_index_out_of_range_is_an_error_and_reads_nothing(rows: int, wrong: int) -> None:
    kernel = gather(rows, bounded=True).kernel
    run = jit_kernels([kernel])[0]
    index = np.zeros(35, np.int64)
    index[20] = wrong
    y = np.zeros(35, np.float32)
    call = run.prepare([np.arange(7, dtype=np.float32), index, y], {"M": 35, "N": 7})
    call.run()
    error = call.error
    assert (error.code, error.where, error.actual, error.expected) == (16, -1, wrong, 7)
    assert error.node == b"node_3"
    assert (y == 0).all()
    with pytest.raises(TfcError, match="out of range"):
        run_kernel(kernel, [np.arange(7, dtype=np.float32), index, y], {"M": 35, "N": 7})


def test_the_first_error_stays() -> None:
    run = jit_kernels([gather(1).kernel])[0]
    index = np.array([0, 9, 8])
    call = run.prepare(
        [np.zeros(3, np.float32), index, np.zeros(3, np.float32)], {"M": 3, "N": 3}, 1
    )
    call.run()
    assert call.error.actual == 9


# ---- buffers that are read and written


def test_inout_reads_what_was_there_before_the_store() -> None:
    kinds = {"y": BufferType(F32, M * 20, "inout")}
    b = KernelBuilder("turned", kinds, [M])
    y = b.buffer("y")
    at = b.program(0) * 20 + R * 4 + C
    x = b.load(y, at, (5, 4))
    total = b.reduce("sum", x)
    b.store(y, at, b.map("sub", x, total))
    b.store(y, b.program(0) * 20 + C * 5 + R, b.map("add", x, 1.0))
    data = np.arange(60, dtype=np.float32)
    expected = data.copy()
    run_kernel(b.kernel, [expected], {"M": 3}, exclusive=True)
    jit_kernel(b.kernel)([data], {"M": 3})
    np.testing.assert_array_equal(data, expected)


# ---- sizes


def test_scratch_beyond_the_stack_comes_from_the_caller() -> None:
    """A transposed panel of 256 KiB, staged; every task has its own."""
    n = 256
    kinds = {"x": BufferType(F32, M * n * n), "y": BufferType(F32, M * n, "out")}
    b = KernelBuilder("panel", kinds, [M])
    panel = b.load(b.buffer("x"), b.program(0) * (n * n) + R * n + C, (n, n))
    staged = b.stage(b.transpose(panel))
    rows = b.map("mul", staged, b.reduce("max", staged, 0))
    b.store(b.buffer("y"), b.program(0) * n + R, b.reduce("sum", rows, 1))
    x = np.random.default_rng(0).standard_normal(3 * n * n).astype(np.float32)
    expected = np.zeros(3 * n, np.float32)
    run_kernel(b.kernel, [x, expected], {"M": 3})
    run = jit_kernels([b.kernel])[0]
    assert run.code.scratch_bytes >= 4 * n * n
    y = np.zeros_like(expected)
    run([x, y], {"M": 3}, 1)
    np.testing.assert_allclose(y, expected, 1e-4)


def test_carried_tiles_beyond_the_registers_live_in_scratch() -> None:
    kinds = {"a": BufferType(F32, 64 * 96), "b": BufferType(F32, 96 * 80)}
    b = KernelBuilder("large", {**kinds, "y": BufferType(F32, 64 * 80, "out")}, [])

    def step(k: object, total: object) -> list[object]:
        x = b.load(b.buffer("a"), R * 96 + k + C, (64, 32))
        y = b.load(b.buffer("b"), (k + R) * 80 + C, (32, 80))
        return [b.dot(x, y, total)]

    (total,) = b.loop(0, 96, 32, [b.full((64, 80), 0.0, F32)], step)
    b.store(b.buffer("y"), R * 80 + C, total)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((64, 96), (96, 80)))
    y = np.zeros(64 * 80, np.float32)
    jit_kernel(b.kernel)([x.ravel(), w.ravel(), y], {})
    np.testing.assert_allclose(y.reshape(64, 80), x @ w, 1e-4, 1e-4)


def test_large_carried_tiles_may_change_places() -> None:
    kinds = {"a": BufferType(F32, 64 * 48), "b": BufferType(F32, 64 * 48)}
    b = KernelBuilder("swapped", {**kinds, "y": BufferType(F32, 64 * 48, "out")}, [])
    x, y = (b.load(b.buffer(n), R * 48 + C, (64, 48)) for n in "ab")
    first, _ = b.loop(0, 3, 1, [x, y], lambda i, p, q: [q, p])
    b.store(b.buffer("y"), R * 48 + C, first)
    data = [np.arange(64 * 48, dtype=np.float32) + i for i in range(2)]
    out = np.zeros(64 * 48, np.float32)
    jit_kernel(b.kernel)([*data, out], {})
    np.testing.assert_array_equal(out, data[1])


def test_a_carried_tile_reads_the_last_value_of_another() -> None:
    kinds = {"a": BufferType(F32, 64 * 48), "b": BufferType(F32, 64 * 48)}
    b = KernelBuilder("counted", {**kinds, "y": BufferType(F32, 64 * 48, "out")}, [])
    x, y = (b.load(b.buffer(n), R * 48 + C, (64, 48)) for n in "ab")
    _, total = b.loop(0, 3, 1, [x, y], lambda i, p, q: [b.map("add", p, 1), b.map("add", q, p)])
    b.store(b.buffer("y"), R * 48 + C, total)
    data = [np.arange(64 * 48, dtype=np.float32) * i for i in (1, 7)]
    out = np.zeros(64 * 48, np.float32)
    jit_kernel(b.kernel)([*data, out], {})
    np.testing.assert_array_equal(out, data[1] + 3 * data[0] + 3)


def test_lanes_follow_the_element_types() -> None:
    def lanes(dtype: object, cols: int, level: str) -> int:
        b = KernelBuilder(
            "k", {"x": BufferType(dtype, 1000), "y": BufferType(dtype, 1000, "out")}, []
        )
        b.store(b.buffer("y"), C, b.load(b.buffer("x"), C, (1, cols)))
        return lanes_of(b.kernel, resolve(level))

    assert lanes(F32, 100, "x86-64-v4") == 16
    assert lanes(F64, 100, "x86-64-v4") == 8
    assert lanes(I8, 100, "x86-64-v4") == 64
    assert lanes(F16, 100, "x86-64-v3") == 16
    assert lanes(F32, 5, "x86-64-v4") == 8
    assert lanes(F32, 100, "x86-64-v2") == 4


def test_a_sum_of_bool_is_refused_by_name() -> None:
    b = KernelBuilder("k", {"x": BufferType(BOOL, 8), "y": BufferType(BOOL, 1, "out")}, [])
    b.store(b.buffer("y"), 0, b.reduce("sum", b.load(b.buffer("x"), C, (1, 8))))
    with pytest.raises(UnsupportedError, match="sum of bool"):
        lower_kernel(b.kernel, resolve("host"))
