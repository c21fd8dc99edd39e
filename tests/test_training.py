"""The models of examples/08_training learn as loops in numpy and PyTorch do, from one start,
and go on as if nothing had been when they are killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc
from tests.training import (
    MODELS,
    RATE,
    batches,
    demo_digits,
    source,
    torch_step,
    weights_of,
    write_digits,
)
from tfc.interpret import interpret
from tfc.runtime.state import State
from tfc.text.parse import parse_file

Step = Callable[[np.ndarray, np.ndarray], float]
Trained = tuple[dict[str, Any], Callable[[], float]]


def interpreted(name: str, folder: Path) -> Trained:
    """The weights after `start`, and the training step, in the interpreter."""
    module, state = parse_file(source(name)), State(folder)
    assert interpret(module, {}, "start", state=state)["number"] == 0
    step = lambda: float(interpret(module, {}, "train_step", state=state)["loss"])  # noqa: E731
    return weights_of(state), step


def compiled(name: str, folder: Path) -> Trained:
    """The same of a bundle."""
    tfc.compile(source(name), folder / "model.tfb")
    bundle = tfc.load(folder / "model.tfb", folder=folder)
    assert bundle.functions["start"]()[0] == 0
    step = bundle.functions["train_step"]
    return weights_of(bundle.state), lambda: float(step()[0])


# ---- the same by hand, in f64


def by_hand(start: dict[str, Any]) -> Step:
    """Softmax regression, with a hidden layer where there are two matrices."""
    weights = {n: np.asarray(a, np.float64) for n, a in start.items()}
    deep = "w2" in weights

    def step(image: np.ndarray, label: np.ndarray) -> float:
        x = image.reshape(-1, 64).astype(np.float64)
        hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0) if deep else x
        w, b = ("w2", "b2") if deep else ("w", "b")
        scores = hidden @ weights[w] + weights[b]
        powers = np.exp(scores - scores.max(1, keepdims=True))
        p = powers / powers.sum(1, keepdims=True)
        loss = -np.log(p[np.arange(len(x)), label]).mean()
        g = (p - np.eye(10)[label]) / len(x)
        if deep:
            down = (g @ weights[w].T) * (hidden > 0)
            weights["w1"] -= RATE * (x.T @ down)
            weights["b1"] -= RATE * down.sum(0)
        weights[w] -= RATE * (hidden.T @ g)
        weights[b] -= RATE * g.sum(0)
        return float(loss)

    return step


def in_torch(start: dict[str, Any]) -> Step:
    """Any of the three, by PyTorch in f32."""
    torch: Any = pytest.importorskip("torch")
    step = torch_step(start)
    return lambda x, y: float(step(torch.tensor(x), torch.tensor(y)))


def compare(found: Callable[[], float], expected: Step, given: list[Any]) -> None:
    losses = [(found(), expected(x, y)) for x, y in given]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=0, atol=1e-4)
    assert len(given) < 50 or losses[-1][0] < 0.5 * losses[0][0], "it learns nothing"


@pytest.mark.parametrize("name", MODELS[:2])
def test_interpreter_and_numpy(name: str, tmp_path: Path) -> None:
    write_digits(tmp_path, demo_digits())
    start, step = interpreted(name, tmp_path)
    compare(step, by_hand(start), batches(name, tmp_path, 20))


def test_bundle_and_numpy(tmp_path: Path) -> None:
    write_digits(tmp_path, demo_digits())
    start, step = compiled("softmax_regression", tmp_path)
    compare(step, by_hand(start), batches("softmax_regression", tmp_path, 100))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_bundle_and_torch(name: str, tmp_path: Path) -> None:
    write_digits(tmp_path, demo_digits())
    start, step = compiled(name, tmp_path)
    compare(step, in_torch(start), batches(name, tmp_path, 100))


# ---- many steps in one call


def in_one_call(name: str) -> str:
    """The model with a function `train`, a scan of as many steps as it has elements."""
    text = source(name).read_text()
    body, _, after = text.partition("func @train_step()")[2].partition("return %loss, %step ")
    lines = body.partition("{\n")[2]
    scan = f"""  func @train(%calls: tensor<Nxf32>) -> (%losses: tensor<Nxf32>) {{
    %losses = scan(%calls) {{carries = 0, length = (N)}} : tensor<Nxf32>
        do(%call: tensor<f32>) {{
{lines}      yield %loss {after.partition(")")[0]}, %step)
    }}
    return %losses
  }}
}}
"""
    return text.rstrip().removesuffix("}") + scan


@pytest.mark.parametrize(
    "name", [MODELS[0], *(pytest.param(n, marks=pytest.mark.slow) for n in MODELS[1:])]
)
def test_many_steps_in_one_call(name: str, tmp_path: Path) -> None:
    """Gradients, updates and the queue in the body of a scan: the bits of as many calls."""
    (tmp_path / "model.tfc").write_text(in_one_call(name))
    tfc.compile(tmp_path / "model.tfc", tmp_path / "model.tfb")
    write_digits(tmp_path, demo_digits())
    once, one = (tfc.load(tmp_path / "model.tfb", folder=tmp_path).functions for _ in range(2))
    once["start"]()
    one["start"]()
    (losses,) = once["train"](np.zeros(40, np.float32))
    assert losses.tolist() == [float(one["train_step"]()[0]) for _ in range(40)]
    assert losses[-1] < losses[0]


# ---- kill -9


@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("softmax_regression", 8),
        *(pytest.param(name, 50, marks=pytest.mark.slow) for name in MODELS),
    ],
)
def test_killed_and_resumed(name: str, kills: int, tmp_path: Path) -> None:
    """Losses and variables are, bit by bit, those of training that nobody interrupts."""
    bundle = tmp_path / "model.tfb"
    tfc.compile(source(name), bundle)
    folder = write_digits(tmp_path / "run", demo_digits())
    command = ["-m", "tests.resume_training", str(bundle), str(folder), "1", str(kills)]
    run = subprocess.run(
        [sys.executable, *command],
        cwd=Path(__file__).resolve().parent.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    steps = found["steps"]
    assert len(steps) == kills + 1 and steps == sorted(steps)
    assert len(set(steps)) > kills // 4, "the children came to no checkpoint of their own"
    assert found["losses"] == found["once"], "no step has another loss than the only one"
    assert found["resumed"] == found["whole"]
    assert min(map(len, found["whole"].values())) > 0
