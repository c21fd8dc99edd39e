"""Bundles with generated code outside of Python: the C example, valgrind, qemu, numpy alone.

The input is the ramp of `tfc/runtime/example.c`: what it prints is compared with a run here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc
from tests.runtime.test_state import COUNTER, QUEUE
from tfc.bundle import header_text
from tfc.bundle_link import zig_binary

EXAMPLE = Path(tfc.__file__).parent / "runtime" / "example.c"
SIZE = 5  # of every symbolic dimension

MODEL = """
func @main(%x: tensor<Bx20x9x8xf32>, %i: tensor<4xi64>, %h: tensor<Bx3xbf16>)
    -> (%y: tensor<Bx4xf32>, %z: tensor<Bx1000xf32>, %c: tensor<Bx7x9x8xf32>, %n: tensor<Bxi64>) {
  %w = constant {value = dense<0.125>} : tensor<7x20x3x3xf32>
  %c1 = conv(%x, %w) {low_pads = [1, 1], high_pads = [1, 1]} : tensor<Bx7x9x8xf32>
  %c = gelu(%c1) : tensor<Bx7x9x8xf32>
  %g = global_average_pool(%x) : tensor<Bx20x1x1xf32>
  %f = flatten(%g) : tensor<Bx20xf32>
  %y = gather(%f, %i) {axis = 1} : tensor<Bx4xf32>
  %s = softmax(%f) {axis = 1} : tensor<Bx20xf32>
  %t = tile(%s) {repeats = [1, 50]} : tensor<Bx1000xf32>
  %z = erf(%t) : tensor<Bx1000xf32>
  %k = cast(%h) {to = f32} : tensor<Bx3xf32>
  %n = argmax(%k) {axis = 1} : tensor<Bxi64>
  return %y, %z, %c, %n
}
"""


def compiled(folder: Path, *targets: str) -> Path:
    (folder / "model.tfc").write_text(MODEL)
    tfc.compile(folder / "model.tfc", folder / "model.tfb", target=targets)
    return folder / "model.tfb"


def ramp(count: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    numbers = np.arange(count)
    if dtype.kind in "fV":
        return (np.float32(0.01) * (numbers % 100).astype(np.float32)).astype(dtype)
    return (numbers % 2).astype(dtype)


def expected(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """What this process computes for the example's input."""
    import ml_dtypes

    kinds = {"x": np.dtype(np.float32), "i": np.dtype(np.int64), "h": np.dtype(ml_dtypes.bfloat16)}
    with tfc.load(path) as bundle:
        feed: dict[str, Any] = {}
        for tensor in bundle.inputs:
            shape = [d if isinstance(d, int) else SIZE for d in tensor.dims]
            feed[tensor.name] = ramp(int(np.prod(shape)), kinds[tensor.name]).reshape(shape)
        bits = feed["h"].astype(np.float32).view(np.uint32)
        feed["h"] = (bits >> 16).astype(np.uint16).view(ml_dtypes.bfloat16).reshape(feed["h"].shape)
        return {k: np.array(v) for k, v in bundle.run(feed).items()}


def check_printed(text: str, path: Path) -> None:
    """The example's lines `name: dtype[dims] first elements`."""
    wanted = expected(path)
    lines = text.strip().splitlines()
    assert len(lines) == len(wanted)
    for line in lines:
        match = re.fullmatch(r"(\w+): \w+\[([\d, ]*)\](.*?)( \.\.\.)?", line)
        assert match, line
        array = wanted[match[1]]
        assert [int(n) for n in match[2].split(",")] == list(array.shape)
        numbers = [float(n) for n in match[3].split()]
        np.testing.assert_allclose(numbers, array.reshape(-1)[:8], rtol=1e-4)


def example(folder: Path, *command: str, source: Path = EXAMPLE) -> Path:
    (folder / "tfc.h").write_text(header_text())
    shutil.copy(source, folder)
    program = folder / source.stem
    subprocess.run([*command, "-O1", source.name, "-o", str(program)], check=True, cwd=folder)
    return program


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_from_c(tmp_path: Path) -> None:
    path = compiled(tmp_path, "host", "x86-64-v2")
    program = example(tmp_path, "cc")
    done = subprocess.run([program, path, str(SIZE)], capture_output=True, text=True, check=True)
    check_printed(done.stdout, path)


@pytest.mark.skipif(
    not shutil.which("cc") or not shutil.which("valgrind"), reason="needs cc and valgrind"
)
def test_valgrind_finds_nothing(tmp_path: Path) -> None:
    path = compiled(tmp_path, "x86-64-v3")
    program = example(tmp_path, "cc", "-g")
    check = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=9"]
    done = subprocess.run([*check, program, path, str(SIZE)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    check_printed(done.stdout, path)


STATE_CHECK = Path(__file__).parent / "runtime" / "state_check.c"
VALGRIND = ["valgrind", "-q", "--leak-check=full", "--show-leak-kinds=all", "--error-exitcode=9"]


@pytest.mark.skipif(
    not shutil.which("cc") or not shutil.which("valgrind"), reason="needs cc and valgrind"
)
def test_state_from_c(tmp_path: Path) -> None:
    """Variables, host ops and their refusal, and the example with several functions."""
    for name, text in (("counter", COUNTER), ("queue", QUEUE)):
        (tmp_path / f"{name}.tfc").write_text(text)
        tfc.compile(tmp_path / f"{name}.tfc", tmp_path / f"{name}.tfb", target="x86-64-v3")
    flags = ("-g", "-std=gnu99", "-Wall", "-Wextra", "-Werror")
    program = example(tmp_path, "cc", *flags, source=STATE_CHECK)
    command = [program, tmp_path / "counter.tfb", tmp_path / "queue.tfb"]
    done = subprocess.run([*VALGRIND, *command], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 failures\n", "")
    program = example(tmp_path, "cc", *flags)
    names = ["init", "step", "step", "peek"]
    command = [*VALGRIND, program, tmp_path / "counter.tfb", "1", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = ["y: f32[4] 0 0.01 0.02 0.03", "y: f32[4] 0 0.02 0.04 0.06", "n: i64[] 1"]
    lines += ["y: f32[4] 0 0.03 0.06 0.09", "n: i64[] 2", "y: f32[4] 0 0.03 0.06 0.09"]
    assert done.stdout.splitlines() == lines


QEMU, SYSROOT = shutil.which("qemu-aarch64"), Path("/usr/aarch64-linux-gnu")


@pytest.mark.slow
@pytest.mark.skipif(not QEMU or not SYSROOT.exists(), reason="needs qemu-user, libc6-arm64-cross")
def test_aarch64(tmp_path: Path) -> None:
    path = compiled(tmp_path, "aarch64", "x86-64-v2")
    program = example(tmp_path, zig_binary(), "cc", "-target", "aarch64-linux-gnu.2.31")
    run = [str(QEMU), "-L", str(SYSROOT), program, path, str(SIZE)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    check_printed(done.stdout, path)


@pytest.mark.slow
def test_with_numpy_alone(tmp_path: Path) -> None:
    """In an environment that holds numpy and nothing else, the bundle runs by itself."""
    path = compiled(tmp_path, "host")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "numpy"], check=True)
    options = ["--input", "x=random", "--input", "i=4xi64=0 3 -1 7", "--input", "h=random"]
    done = subprocess.run(
        [python, path, *options, "--dim", "B=3"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "y" in done.stdout and "3x4xf32" in done.stdout.replace("[3, 4]", "3x4xf32")
    assert sys.version_info >= (3, 11)
