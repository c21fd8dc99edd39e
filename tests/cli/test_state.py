"""Bundles with several functions and variables on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_commands import tfc

MODEL = """module {
  variable @total : tensor<2xf32>
  func @init(%x: tensor<2xf32>) -> (%y: tensor<2xf32>) {
    %y = assign(@total, %x) : tensor<2xf32>
    return %y
  }
  func @step(%d: tensor<2xf32>) -> (%y: tensor<2xf32>) {
    %y = assign_add(@total, %d) : tensor<2xf32>
    return %y
  }
}
"""
IN_TURN = ("--function", "init", "--function", "step", "--function", "step")
VALUES = ("--input", "x=1,2", "--input", "d=10,20")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stateful")
    (folder / "model.tfc").write_text(MODEL)
    tfc("compile", folder / "model.tfc")
    return folder / "model.tfb"


def test_functions_run_in_turn(bundle: Path) -> None:
    assert "[21. 42.]" in tfc("run", bundle, *IN_TURN, *VALUES).stdout


def test_by_itself_the_bundle_does_the_same(bundle: Path) -> None:
    done = subprocess.run(
        [sys.executable, bundle, *IN_TURN, *VALUES], capture_output=True, text=True, check=True
    )
    assert "[21. 42.]" in done.stdout
    wrong = [sys.executable, bundle, *IN_TURN, *VALUES, "--input", "z=1"]
    done = subprocess.run(wrong, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--input z=1: no function that runs has such an input" in done.stderr


def test_a_variable_without_a_value(bundle: Path) -> None:
    found = tfc("run", bundle, "--function", "step", "--input", "d=1,2", code=1)
    assert "the variable 'total' is not initialized" in found.stderr
    assert "Traceback" not in found.output


def test_an_input_that_no_function_has(bundle: Path) -> None:
    found = tfc("run", bundle, *IN_TURN, "--input", "z=1", code=2)
    assert "init(x: f32[2]) -> (y: f32[2]); step(d: f32[2])" in found.stderr


def test_verify_compares_the_variables(bundle: Path) -> None:
    found = tfc("verify", bundle, "--against", "interpreter", *IN_TURN)
    assert "@total" in found.stdout and "WRONG" not in found.stdout


def test_bench_runs_the_others_first(bundle: Path) -> None:
    found = tfc("bench", bundle, *IN_TURN, *VALUES, "--seconds", "0.01", "--json")
    assert json.loads(found.stdout)["inputs"] == "d: [2]"


def test_inspect_shows_the_variables(bundle: Path) -> None:
    found = tfc("inspect", bundle).stdout
    assert found.count("reads or writes variables") == 2
    assert "@total" in found and "f32[2]" in found
