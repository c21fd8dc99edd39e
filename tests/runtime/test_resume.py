"""Training that is killed at 50 random moments ends, bit by bit, as if it had not been."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime.resume import TEXT
from tfc.driver import compile
from tfc.text.parse import parse_module

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", ["interpreter", "bundle"])
def test_killed_and_resumed(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for number, rows in enumerate((17, 30, 8)):
        np.save(folder / f"x-{number}.npy", generator.normal(size=(rows, 3)).astype(np.float32))
        np.save(folder / f"y-{number}.npy", generator.normal(size=(rows, 4)).astype(np.float32))
    if kind == "bundle":
        import tfc.ops
        import tfc.tile.ops

        assert tfc.ops and tfc.tile.ops
        kind = str(tmp_path / "model.tfb")
        compile(parse_module(TEXT), kind)
    command = [sys.executable, "-m", "tests.runtime.resume", kind, str(folder), "1", "50"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    steps = found["steps"]
    assert len(steps) == 51 and steps == sorted(steps)
    assert len(set(steps)) > 10, "the children came to no step of their own"
    assert found["resumed"] == found["whole"]
    assert found["whole"][1] == found["last"], "each step was counted once"
