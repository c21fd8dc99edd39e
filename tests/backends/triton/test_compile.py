"""GPU code is made without a GPU and is the same anywhere; errors at run time are told."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfc.tile.ops  # registers the ops  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tfc.backends.triton.compile import capability, compile_kernel
from tfc.backends.triton.interpret import run_kernel
from tfc.ir.core import Kernel
from tfc.ir.errors import TfcError
from tfc.text.parse import parse_module

COPY = """
module @m {
  kernel @halve(%x: buffer<(M*1024)xf32>, %y: buffer<(M*1024)xf32, out>) grid(p0 = M) {warps = 8} {
    %0 = load(%x) {at = (1024*p0+c)} : tile<1x1024xf32>
    %1 = tile_full {value = 0.5} : tile<1x1xf32>
    %2 = map(%0, %1) {function = "mul"} : tile<1x1024xf32>
    store(%y, %2) {at = (1024*p0+c)}
  }
}"""
GATHER = """
module @m {
  kernel @pick(%x: buffer<6xf32>, %i: buffer<4xi64>, %y: buffer<4xf32, out>) grid(p0 = 1) {
    %0 = load(%i) {at = (c)} : tile<1x4xi64>
    %1 = wrap_index(%0) {size = 6, node = "table"} : tile<1x4xi64>
    %2 = load(%x, %1) {at = 0, strides = [1]} : tile<1x4xf32>
    store(%y, %2) {at = (c)}
  }
}"""
SPILLING = """
module @m {
  kernel @big(%x: buffer<65536xf32>, %y: buffer<65536xf32, out>) grid(p0 = 1) {warps = 2} {
    %0 = load(%x) {at = (256*r+c)} : tile<128x256xf32>
    %1 = reduce(%0) {function = "max"} : tile<128x1xf32>
    %2 = map(%0, %1) {function = "sub"} : tile<128x256xf32>
    store(%y, %2) {at = (256*r+c)}
  }
}"""


def kernel(text: str) -> Kernel:
    return next(iter(parse_module(text).kernels.values()))


def test_what_it_takes() -> None:
    made = compile_kernel(kernel(COPY))
    assert (made.warps, made.spills, made.stack, made.shared) == (8, 0, 0, 0)
    assert 0 < made.registers <= 32
    assert made.load_widths == {"128": 1}
    assert made.cubin.startswith(b"\x7fELF")
    assert [a.type for a in made.source.arguments] == ["*fp32", "*fp32", "i32"]


def test_spills_are_seen() -> None:
    """512 elements a thread do not fit 255 registers."""
    assert compile_kernel(kernel(SPILLING)).spills > 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_other_gpus(arch: str) -> None:
    assert f".target {arch}" in compile_kernel(kernel(COPY), arch).ptx


def test_no_gpu_of_that_name() -> None:
    assert capability("sm_90") == 90
    with pytest.raises(TfcError, match="no GPU is named 'x86-64-v3'"):
        capability("x86-64-v3")


SCRIPT = """
import hashlib, sys
import tfc.tile.ops
from tfc.backends.triton.compile import compile_kernel
from tfc.text.parse import parse_module
kernel = next(iter(parse_module(sys.argv[1]).kernels.values()))
print(hashlib.sha256(compile_kernel(kernel).cubin).hexdigest())
"""


def test_same_bytes_in_another_folder_and_process(tmp_path: Path) -> None:
    here = compile_kernel(kernel(COPY))
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT, COPY],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert output.strip() == hashlib.sha256(here.cubin).hexdigest()
    assert list(tmp_path.rglob("*.cubin")) == []
    for place in (b"/tmp", str(Path.cwd()).encode(), b".py"):
        assert place not in here.cubin


def run_pick(indices: list[int]) -> list[float]:
    x = np.arange(6, dtype=np.float32) * 10
    y = np.zeros(4, np.float32)
    run_kernel(kernel(GATHER), [x, np.array(indices), y], {})
    return y.tolist()


def test_indices_count_from_the_end() -> None:
    assert run_pick([0, 5, -1, -6]) == [0, 50, 50, 0]


@pytest.mark.parametrize("wrong", [6, -7])
def test_index_out_of_range(wrong: int) -> None:
    with pytest.raises(TfcError, match=f"table: index {wrong} is out of range of an axis of 6"):
        run_pick([0, wrong, 2, 3])


def test_errors_are_an_argument() -> None:
    made = compile_kernel(kernel(GATHER))
    assert made.source.arguments[-1].name == "errors"
    assert [s.node for s in made.source.sites] == ["table"]


def test_wide_indices_compile_and_run() -> None:
    assert compile_kernel(kernel(COPY), wide=True).spills == 0
    x, y = np.ones(2048, np.float32), np.zeros(2048, np.float32)
    run_kernel(kernel(COPY), [x, y], {"M": 2}, wide=True)
    assert np.all(y == 0.5)
