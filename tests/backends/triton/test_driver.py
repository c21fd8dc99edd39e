"""`tfc compile` for a GPU: Triton source, PTX, tile text that compiles on; bundles are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfc.driver
from tfc.ir.errors import TfcError, UnsupportedError

SOURCE = """module @m {
  func @main(%x: tensor<Sx100xf32>) -> (%y: tensor<Sx100xf32>) {
    %y = softmax(%x) {axis = 1} : tensor<Sx100xf32>
    return %y
  }
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tfc"
    path.write_text(SOURCE)
    return path


def emitted(model: Path, emit: str, suffix: str, target: str = "sm_90") -> Path:
    output = model.with_suffix(suffix)
    tfc.driver.compile(model, output, target=target, emit=emit)
    return output


def test_triton(model: Path) -> None:
    text = emitted(model, "triton", ".triton.py").read_text()
    compile(text, "model", "exec")
    assert "@triton.jit\ndef reduction_0(x0, y0, S):\n" in text


def test_tile_text_compiles_on(model: Path) -> None:
    whole = emitted(model, "triton", ".triton.py").read_text()
    tile = emitted(model, "tile", ".tile.tfc")
    assert "warps = " in tile.read_text()
    assert emitted(tile, "triton", ".again.py").read_text() == whole


def test_ptx(model: Path) -> None:
    assert ".target sm_80" in emitted(model, "asm", ".ptx", "sm_80").read_text()


def test_no_bundles(model: Path) -> None:
    with pytest.raises(UnsupportedError, match="bundles hold no code for GPUs yet"):
        emitted(model, "bundle", ".tfb")


def test_no_triton_for_a_cpu(model: Path) -> None:
    with pytest.raises(TfcError, match="Triton code is for GPUs, not for x86-64-v3"):
        emitted(model, "triton", ".triton.py", "x86-64-v3")
