"""`--files`: where a bundle that is run has its readers' files and its checkpoints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tfc.ops
import tfc.tile.ops
from tfc.cli import main
from tfc.driver import compile
from tfc.text.parse import parse_module

assert tfc.ops and tfc.tile.ops

TEXT = """module {
  variable @sum : tensor<2xf32>
  resource @r : tensor<2xf32> {kind = "npy_reader", files = "x.npy"}
  func @start() -> (%step: tensor<i64>) {
    %zero = constant {value = dense<0.0>} : tensor<2xf32>
    %a = assign(@sum, %zero) : tensor<2xf32>
    %step = restore {of = [@sum, @r], path = "ck", otherwise = -1} after(%a) : tensor<i64>
    return %step
  }
  func @main(%step: tensor<i64>) -> (%y: tensor<2xf32>) {
    %x = read_batch(@r) : tensor<1x2xf32>
    %row = reshape(%x) {shape = [2]} : tensor<2xf32>
    %y = assign_add(@sum, %row) : tensor<2xf32>
    ^save: save(%step) {of = [@sum, @r], path = "ck"} after(%y)
    return %y after(^save)
  }
}
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "m.tfb"
    compile(parse_module(TEXT), path)
    return path


def arguments(folder: Path, step: int) -> list[str]:
    calls = ["--function", "start", "--function", "main", "--input", f"step={step}"]
    return [*calls, "--files", str(folder), "--output-dir", str(folder / "out")]


def test_each_run_goes_on_from_the_last(bundle: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32).reshape(4, 2))
    expected = np.zeros(2)
    for step in range(4):
        if step % 2:
            found = CliRunner().invoke(main, ["run", str(bundle), *arguments(tmp_path, step)])
            assert found.exit_code == 0, found.output
        else:
            command = [sys.executable, str(bundle), *arguments(tmp_path, step)]
            subprocess.run(command, check=True, capture_output=True)
        expected += [2 * step, 2 * step + 1]
        assert np.load(tmp_path / "out/y.npy").tolist() == expected.tolist()
    ended = CliRunner().invoke(main, ["run", str(bundle), *arguments(tmp_path, 4)])
    assert ended.exit_code != 0 and "the reader 'r' is at its end" in ended.output
    assert "Traceback" not in ended.output


def test_without_files_it_says_what_is_missing(bundle: Path) -> None:
    found = CliRunner().invoke(main, ["run", str(bundle), "--function", "start"])
    assert found.exit_code != 0 and "needs a folder" in found.output
