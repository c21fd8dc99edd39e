"""The judge of mutants with state: what waits is stopped, what never ends is too large."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfc
from tests.fuzz import mutants_runs
from tests.fuzz.mutants_runs import TooLarge, check_calls, functions_of
from tfc.text import parse_module

STATE = """module {
  variable @v : tensor<3xf32>
  func @fill(%x: tensor<3xf32>) -> (%v: tensor<3xf32>) {
    %n = neg(%x) : tensor<3xf32>
    %v = assign(@v, %n) : tensor<3xf32>
    return %v
  }
  func @step(%x: tensor<f32>) -> (%y: tensor<3xf32>) {
    %v = read(@v) : tensor<3xf32>
    %y = mul(%v, %x) : tensor<3xf32>
    return %y
  }
}"""
QUEUE = """module {
  resource @q : tensor<f32> {kind = "fifo_queue", capacity = 2}
  func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
    %y = dequeue(@q) : tensor<f32>
    return %y
  }
}"""
LOOP = """module {
  func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
    %one = constant {value = dense<1.0>} : tensor<f32>
    %a = enter(%x) {frame = "f"} : tensor<f32>
    %m, %i = merge(%a, %n) : tensor<f32>, tensor<i32>
    %more = greater(%m, %one) : tensor<bool>
    %c = loop_cond(%more) : tensor<bool>
    %done, %go = switch(%m, %c) : tensor<f32>, tensor<f32>
    %n = next_iteration(%go) : tensor<f32>
    %y = exit(%done) : tensor<f32>
    return %y
  }
}"""


def verdict(text: str, compiled: str, folder: Path, *values: object) -> tuple[str, str]:
    """Of one text as judged, and one that stands for what a wrong compiler made of it."""
    (folder / "model.tfc").write_text(compiled)
    tfc.compile(folder / "model.tfc", folder / "model.tfb")
    module = parse_module(text)
    inputs = {
        name: {"x": np.asarray(value, np.float32)}
        for name, value in zip(functions_of(module), values, strict=True)
    }
    with tfc.load(folder / "model.tfb") as bundle:
        return check_calls(module, bundle, inputs)


def test_calls_share_a_state_and_all_are_compared(tmp_path: Path) -> None:
    assert verdict(STATE, STATE, tmp_path, [1, 2, 3], 4) == ("right", "")
    for right, fault, place in (("neg", "exp", "0 of @fill"), ("mul", "add", "1 of @step")):
        found, why = verdict(STATE, STATE.replace(right, fault), tmp_path, [1, 2, 3], 4)
        assert found == "wrong" and f"call {place}" in why


def test_what_waits_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both must wait."""
    monkeypatch.setattr(mutants_runs, "SECONDS", 0.5)
    given = QUEUE.replace("dequeue(@q)", "neg(%x)")
    assert verdict(QUEUE, QUEUE, tmp_path, 4)[0] == "stopped"
    assert verdict(QUEUE, given, tmp_path, 4)[0] == "wrong"
    assert verdict(given, QUEUE, tmp_path, 4)[0] == "wrong"


def test_a_loop_that_never_ends_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants_runs, "SECONDS", 0.5)
    assert verdict(LOOP, LOOP, tmp_path, 0) == ("right", "")
    with pytest.raises(TooLarge):
        verdict(LOOP, LOOP, tmp_path, 2)
