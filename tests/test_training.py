"""The models of examples/08_training learn as loops in numpy and PyTorch do, from one start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc
import tfc.ops
from tfc.interpret import interpret, state_of
from tfc.text.parse import parse_file

assert tfc.ops
ROOT = Path(__file__).resolve().parent.parent / "examples"
MODELS = ("softmax_regression", "mlp", "convnet")
RATE = np.float32(0.3)
Weights = dict[str, Any]
Step = Callable[[np.ndarray, np.ndarray], float]


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    images = np.load(ROOT / "01_digits/images.npy").reshape(-1, 64).astype(np.float32) / 16
    labels = np.load(ROOT / "01_digits/labels.npy").astype(np.int64)[:, None]
    generator = np.random.default_rng(0)
    chosen = [generator.integers(0, len(images), 32) for _ in range(count)]
    return [(images[c], labels[c]) for c in chosen]


def interpreted(name: str) -> tuple[Weights, Step]:
    """The variables after `init`, and the training step, in the interpreter."""
    module = parse_file(ROOT / f"08_training/{name}.tfc")
    state = state_of(module)
    interpret(module, {}, "init", state=state)
    start = {n: a for n, a in state.variables.items() if n != "random"}

    def step(image: np.ndarray, label: np.ndarray) -> float:
        inputs = {"image": image, "label": label, "rate": RATE}
        return float(interpret(module, inputs, "train_step", state=state)["loss"])

    return start, step


def compiled(name: str, folder: Path) -> tuple[Weights, Step]:
    """The same of a bundle."""
    tfc.compile(ROOT / f"08_training/{name}.tfc", folder / "model.tfb")
    bundle = tfc.load(folder / "model.tfb")
    bundle.functions["init"]()
    start = {n: a for n, a in bundle.state.variables.items() if n != "random"}
    return start, lambda x, y: float(bundle.functions["train_step"](x, y, RATE)[0])


# ---- the same by hand, in f64


def by_hand(start: Weights) -> Step:
    """Softmax regression, with a hidden layer where there are two matrices."""
    weights = {n: np.asarray(a, np.float64) for n, a in start.items()}
    deep = "w2" in weights

    def step(image: np.ndarray, label: np.ndarray) -> float:
        x = image.astype(np.float64)
        hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0) if deep else x
        w, b = ("w2", "b2") if deep else ("w", "b")
        scores = hidden @ weights[w] + weights[b]
        powers = np.exp(scores - scores.max(1, keepdims=True))
        p = powers / powers.sum(1, keepdims=True)
        loss = -np.log(np.take_along_axis(p, label, 1)).mean()
        g = (p - np.eye(10)[label[:, 0]]) / len(x)
        if deep:
            down = (g @ weights[w].T) * (hidden > 0)
            weights["w1"] -= RATE * (x.T @ down)
            weights["b1"] -= RATE * down.sum(0)
        weights[w] -= RATE * (hidden.T @ g)
        weights[b] -= RATE * g.sum(0)
        return float(loss)

    return step


def in_torch(start: Weights) -> Step:
    """Any of the three, by PyTorch in f32."""
    torch: Any = pytest.importorskip("torch")
    weights = {n: torch.tensor(a, requires_grad=True) for n, a in start.items()}
    f = torch.nn.functional

    def scores(x: Any) -> Any:
        if "k" in weights:
            y = f.conv2d(x.view(-1, 1, 8, 8), weights["k"], weights["c"], padding=1)
            x = f.max_pool2d(f.relu(y), 2).flatten(1)
        if "w1" in weights:
            hidden = f.relu(x @ weights["w1"] + weights["b1"])
            return hidden @ weights["w2"] + weights["b2"]
        return x @ weights["w"] + weights["b"]

    def step(image: np.ndarray, label: np.ndarray) -> float:
        loss = f.cross_entropy(scores(torch.tensor(image)), torch.tensor(label[:, 0]))
        gradients = torch.autograd.grad(loss, list(weights.values()))
        with torch.no_grad():
            for w, g in zip(weights.values(), gradients, strict=True):
                w -= float(RATE) * g
        return float(loss)

    return step


def compare(found: Step, expected: Step, count: int) -> None:
    losses = [(found(x, y), expected(x, y)) for x, y in batches(count)]
    np.testing.assert_allclose(*zip(*losses, strict=True), rtol=0, atol=1e-4)
    assert count < 50 or losses[-1][0] < 0.5 * losses[0][0], "it learns nothing"


@pytest.mark.parametrize("name", MODELS[:2])
def test_interpreter_and_numpy(name: str) -> None:
    start, step = interpreted(name)
    compare(step, by_hand(start), 20)


def test_bundle_and_numpy(tmp_path: Path) -> None:
    start, step = compiled("softmax_regression", tmp_path)
    compare(step, by_hand(start), 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_bundle_and_torch(name: str, tmp_path: Path) -> None:
    start, step = compiled(name, tmp_path)
    compare(step, in_torch(start), 100)
