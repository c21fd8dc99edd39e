"""Trains the classifier of handwritten digits in digits.tfc: `python train.py`, half a minute.

Two convolutions, a pool and a linear layer, with their gradients written out in numpy. It writes
the weights and the held-out digits to where digits.tfc really lies, in the package, since `tfc
demo` runs them. Everything random has a fixed seed: the same machine gives the same files; on
another one numpy's sums may round differently.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from safetensors.numpy import save_file
from sklearn.datasets import load_digits

Array: TypeAlias = "np.ndarray[Any, Any]"
Weights: TypeAlias = "dict[str, Array]"

FOLDER = (Path(__file__).parent / "digits.tfc").resolve().parent
HELD_OUT = 360
EPOCHS = 40
BATCH = 64
STEP = 2e-3


def main() -> None:
    images, labels, test_images, test_labels = split()
    weights = train(images, labels)
    logits, _ = forward(weights, test_images)
    right = int(np.sum(logits.argmax(1) == test_labels))
    print(f"{right} of {HELD_OUT} held-out digits: {right / HELD_OUT:.2%}")
    save_file(
        {name: np.ascontiguousarray(w) for name, w in weights.items()},
        FOLDER / "digits.safetensors",
    )
    np.save(FOLDER / "images.npy", test_images)
    np.save(FOLDER / "labels.npy", test_labels)


def split() -> tuple[Array, Array, Array, Array]:
    """Images [n, 1, 8, 8] of 0..16 and labels: those to learn from, those held out."""
    data = load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    images = data.images[order, None].astype(np.uint8)
    labels = data.target[order].astype(np.uint8)
    return images[HELD_OUT:], labels[HELD_OUT:], images[:HELD_OUT], labels[:HELD_OUT]


def train(images: Array, labels: Array) -> Weights:
    """Adam on the cross entropy of digits that are moved by up to a pixel."""
    rng = np.random.default_rng(1)
    weights = initial(rng)
    moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in weights.items()}
    steps = EPOCHS * (len(images) // BATCH)
    for step in range(1, steps + 1):
        chosen = rng.integers(0, len(images), BATCH)
        batch = moved(images[chosen], rng)
        gradients = backward(weights, batch, labels[chosen])
        rate = STEP * (1 - step / (steps + 1))
        for name, gradient in gradients.items():
            mean, square = moments[name]
            mean += 0.1 * (gradient - mean)
            square += 0.01 * (gradient**2 - square)
            fair = np.sqrt(1 - 0.99**step) / (1 - 0.9**step)
            weights[name] -= rate * fair * mean / (np.sqrt(square) + 1e-8)
    return weights


def initial(rng: np.random.Generator) -> Weights:
    """He's rule for the weights, zeros for the biases."""

    def he(*shape: int) -> Array:
        fan_in = int(np.prod(shape[1:]))
        return (rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

    def zeros(count: int) -> Array:
        return np.zeros(count, np.float32)

    return {
        "conv1.weight": he(16, 1, 3, 3),
        "conv1.bias": zeros(16),
        "conv2.weight": he(32, 16, 3, 3),
        "conv2.bias": zeros(32),
        "linear.weight": he(10, 512),
        "linear.bias": zeros(10),
    }


def moved(images: Array, rng: np.random.Generator) -> Array:
    """Each image moved by -1, 0 or 1 pixels along each axis."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = rng.integers(0, 3, (2, len(images)))
    windows = sliding_window_view(padded, (8, 8), axis=(2, 3))
    return windows[np.arange(len(images)), :, rows, columns]


def patches(x: Array) -> Array:
    """The 3x3 neighbourhoods of [n, c, h, w], as [n, h, w, c * 9]; outside is 0."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
    n, c, h, w = x.shape
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def convolve(x: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
    """The convolution and the patches that its gradient needs."""
    columns = patches(x)
    return (columns @ weight.reshape(len(weight), -1).T + bias).transpose(0, 3, 1, 2), columns


def forward(weights: Weights, images: Array) -> tuple[Array, dict[str, Array]]:
    """The logits [n, 10], and the values between that the gradients need."""
    x = images.astype(np.float32) / 16
    a, columns1 = convolve(x, weights["conv1.weight"], weights["conv1.bias"])
    a = np.maximum(a, 0)
    b, columns2 = convolve(a, weights["conv2.weight"], weights["conv2.bias"])
    b = np.maximum(b, 0)
    n = len(images)
    pooled = b.reshape(n, 32, 4, 2, 4, 2).max((3, 5))
    flat = pooled.reshape(n, 512)
    logits = flat @ weights["linear.weight"].T + weights["linear.bias"]
    kept = {"columns1": columns1, "a": a, "columns2": columns2, "b": b, "flat": flat}
    return logits, kept


def backward(weights: Weights, images: Array, labels: Array) -> Weights:
    """The gradients of the mean cross entropy."""
    logits, kept = forward(weights, images)
    n = len(images)
    e = np.exp(logits - logits.max(1, keepdims=True))
    d_logits = (e / e.sum(1, keepdims=True) - np.eye(10, dtype=np.float32)[labels]) / n
    d_flat = d_logits @ weights["linear.weight"]
    b = kept["b"]
    pooled = kept["flat"].reshape(n, 32, 4, 1, 4, 1)
    largest = b.reshape(n, 32, 4, 2, 4, 2) == pooled
    d_b = (d_flat.reshape(n, 32, 4, 1, 4, 1) * largest).reshape(b.shape) * (b > 0)
    columns_b = d_b.transpose(0, 2, 3, 1).reshape(-1, 32)
    turned = weights["conv2.weight"][:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    d_a = convolve(d_b, turned, np.zeros(16, np.float32))[0] * (kept["a"] > 0)
    columns_a = d_a.transpose(0, 2, 3, 1).reshape(-1, 16)
    return {
        "conv1.weight": (columns_a.T @ kept["columns1"].reshape(-1, 9)).reshape(16, 1, 3, 3),
        "conv1.bias": columns_a.sum(0),
        "conv2.weight": (columns_b.T @ kept["columns2"].reshape(-1, 144)).reshape(32, 16, 3, 3),
        "conv2.bias": columns_b.sum(0),
        "linear.weight": d_logits.T @ kept["flat"],
        "linear.bias": d_logits.sum(0),
    }


if __name__ == "__main__":
    main()
