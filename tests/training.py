"""The models of examples/08_training as loops in PyTorch, with the same start and batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tfc.ops
from tfc.interpret import state_of
from tfc.runtime.host import Context
from tfc.runtime.state import State
from tfc.text.parse import parse_file

assert tfc.ops
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MODELS = ("softmax_regression", "mlp", "convnet")
RATE, BATCH = 0.3, 32
NO_WEIGHTS = ("step", "random")
Batch = tuple[np.ndarray, np.ndarray]


def source(name: str) -> Path:
    return EXAMPLES / "08_training" / f"{name}.tfc"


def demo_digits() -> Batch:
    """u8 of [360, 1, 8, 8] and [360], of scikit-learn's digits."""
    images, labels = (np.load(EXAMPLES / f"01_digits/{n}.npy") for n in ("images", "labels"))
    return images, labels


def all_digits() -> Batch:
    """All of scikit-learn's digits, in the same form."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return found.images[:, None].astype(np.uint8), found.target.astype(np.uint8)


def write_digits(folder: Path, digits: Batch) -> Path:
    """Writes the files that the reader of a model reads."""
    folder.mkdir(exist_ok=True)
    for name, array in zip(("images", "labels"), digits, strict=True):
        np.save(folder / f"{name}.npy", array)
    return folder


def batches(name: str, folder: Path, count: int) -> list[Batch]:
    """The first batches that the model's shuffle queue gives: images in [0, 1], labels in i64."""
    state = state_of(parse_file(source(name)), State(folder))
    queue = state.resource("digits")
    found = [queue.dequeue(Context(state), BATCH) for _ in range(count)]
    queue.stop()
    return [(x.astype(np.float32) / 16, y.astype(np.int64)) for x, y in found]


def weights_of(state: State) -> dict[str, Any]:
    """The values of the variables that are trained."""
    return {n: a for n, a in state.variables.items() if n not in NO_WEIGHTS}


def torch_loss(weights: dict[str, Any], image: Any, label: Any) -> Any:
    """The mean cross entropy of any of the three, by PyTorch."""
    import torch

    f, x = torch.nn.functional, image
    if "k" in weights:
        x = f.max_pool2d(f.relu(f.conv2d(x, weights["k"], weights["c"], padding=1)), 2)
    x = x.flatten(1)
    if "w1" in weights:
        hidden = f.relu(x @ weights["w1"] + weights["b1"])
        scores = hidden @ weights["w2"] + weights["b2"]
    else:
        scores = x @ weights["w"] + weights["b"]
    return f.cross_entropy(scores, label)


def torch_step(start: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """A step of gradient descent in place, as it is written in PyTorch; gives the loss before."""
    import torch

    weights = {n: torch.tensor(a, requires_grad=True) for n, a in start.items()}
    descent = torch.optim.SGD(weights.values(), lr=RATE)

    def step(image: Any, label: Any) -> Any:
        descent.zero_grad()
        loss = torch_loss(weights, image, label)
        loss.backward()
        descent.step()
        return loss.detach()

    return step
