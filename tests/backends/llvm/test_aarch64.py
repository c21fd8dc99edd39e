"""Random kernels compiled for aarch64 give the interpreter's result under qemu."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tfc.backends.llvm.compile import compile_kernel_text
from tfc.backends.llvm.lower import KernelCode, lower_kernel, quoted
from tfc.ir.expr import as_expr
from tfc.targets import resolve
from tfc.tile.interpret import kernel_symbols, run_kernel

sys.path.insert(0, str(Path(__file__).parent))
from random_kernels import RandomKernel, random_kernel
from test_random_kernels import compare

QEMU = shutil.which("qemu-aarch64")
AARCH64 = resolve("aarch64")


def program(folder: Path, codes: list[KernelCode]) -> Path:
    """A static executable of the kernels and `freestanding.c`."""
    objects: list[str] = []
    for i, code in enumerate(codes):
        path = folder / f"{i}.o"
        path.write_bytes(compile_kernel_text(code.text, AARCH64, opt_level=1))
        objects.append(str(path))
    names = ", ".join(code.symbol for code in codes)
    table = "".join(f"void {code.symbol}(void *, long);\n" for code in codes)
    (folder / "table.c").write_text(
        f"{table}void (*const kernels[])(void *, long) = {{ {names} }};\n"
    )
    for source in (Path(__file__).parent / "freestanding.c", folder / "table.c"):
        out = str(folder / f"{source.stem}.o")
        zig = [sys.executable, "-m", "ziglang"]
        flags = ["-target", "aarch64-linux-musl", "-O1", "-ffreestanding", "-fno-builtin"]
        subprocess.run([*zig, "cc", "-c", *flags, str(source), "-o", out], check=True)
        objects.append(out)
    result = folder / "program"
    subprocess.run([*zig, "ld.lld", "-static", *objects, "-o", str(result)], check=True)
    return result


def run(path: Path, number: int, made: RandomKernel, code: KernelCode) -> list[np.ndarray]:
    total = 1
    for _, extent in made.kernel.grid:
        total *= max(0, as_expr(extent).evaluate(made.symbols))
    symbols = [made.symbols[n] for n in kernel_symbols(made.kernel)]
    grain = max(1, -(-total // 2))
    sizes = [a.nbytes for a in made.arrays]
    head = [number, len(sizes), len(symbols), grain, total, code.scratch_bytes, *sizes, *symbols]
    data = padded(np.array(head, np.int64).tobytes())
    data += b"".join(padded(a.tobytes()) for a in made.arrays)
    assert QEMU is not None
    out = subprocess.run([QEMU, str(path)], input=data, stdout=subprocess.PIPE, check=True).stdout
    arrays: list[np.ndarray] = []
    for a in made.arrays:
        arrays.append(np.frombuffer(out[: a.nbytes], a.dtype))
        out = out[len(padded(out[: a.nbytes])) :]
    return arrays


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 64)


def check(seeds: range, folder: Path) -> None:
    made = [random_kernel(seed) for seed in seeds]
    codes = [lower_kernel(m.kernel, AARCH64, f"kernel_{i}") for i, m in enumerate(made)]
    assert all(quoted(code.symbol) == code.symbol for code in codes)
    path = program(folder, codes)
    for i, (m, code) in enumerate(zip(made, codes, strict=True)):
        expected = [a.copy() for a in m.arrays]
        run_kernel(m.kernel, expected, m.symbols)
        for got, wanted in zip(run(path, i, m, code), expected, strict=True):
            compare(m, got, wanted)


@pytest.mark.skipif(not QEMU, reason="needs qemu-user")
def test_random_kernels_on_aarch64(tmp_path: Path) -> None:
    check(range(7000, 7012), tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not QEMU, reason="needs qemu-user")
@pytest.mark.parametrize("start", range(7100, 7500, 40))
def test_many_random_kernels_on_aarch64(tmp_path: Path, start: int) -> None:
    check(range(start, start + 40), tmp_path)
