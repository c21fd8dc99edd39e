"""Compares the training of examples/08_training with PyTorch: python tests/benchmarks/training.py

A step of ours is a call of a bundle, which takes its batch from the shuffle queue that a reader of
the digits' files fills. PyTorch has the same batches, in the same order, as tensors that lie ready,
so that it shuffles and reads nothing. It runs as it is usually written ("usual": the loss compiled,
`backward`, `torch.optim.SGD`), and as one compiled graph of loss, gradients and updates ("whole").

First all follow 100 steps from one start, whose losses are compared. Then they run in turns in one
process on one core with one thread, 25 steps a turn; times are the CPU's, of all threads, medians
of the turns. Needs torch, scikit-learn and a C++ compiler.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import torch

import tfc
from tests.training import (
    MODELS,
    RATE,
    all_digits,
    batches,
    source,
    torch_loss,
    torch_step,
    weights_of,
    write_digits,
)

STEPS, TURN, WARM = 100, 25, 50
LIMIT = 1e-4  # of the difference of losses
Loop = Callable[[], Any]


def usual(start: dict[str, Any], given: Iterator[Any]) -> Loop:
    """The loss compiled, gradients by autograd, the updates by the optimizer."""
    weights = {n: torch.tensor(a, requires_grad=True) for n, a in start.items()}
    loss_of = torch.compile(torch_loss, fullgraph=True)
    descent = torch.optim.SGD(weights.values(), lr=RATE)

    def step() -> Any:
        descent.zero_grad()
        loss = loss_of(weights, *next(given))
        loss.backward()
        descent.step()
        return loss.detach()

    return step


def whole(start: dict[str, Any], given: Iterator[Any]) -> Loop:
    """One compiled graph, which changes the weights in place."""
    weights = {n: torch.tensor(a) for n, a in start.items()}
    gradients = torch.func.grad_and_value(torch_loss)

    @torch.compile(fullgraph=True)
    def compiled(held: dict[str, Any], image: Any, label: Any) -> Any:
        found, loss = gradients(held, image, label)
        for name, weight in held.items():
            weight.sub_(RATE * found[name])
        return loss

    def step() -> Any:
        with torch.no_grad():
            return compiled(weights, *next(given))

    return step


def eager(start: dict[str, Any], given: Iterator[Any]) -> Loop:
    """PyTorch without a compiler."""
    step = torch_step(start)
    return lambda: step(*next(given))


def in_turns(loops: list[Loop], seconds: float) -> list[float]:
    """The median CPU time of a step of each, in microseconds."""
    times: list[list[float]] = [[] for _ in loops]
    for loop in loops:
        for _ in range(WARM):
            loop()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 7:
        for loop, taken in zip(loops, times, strict=True):
            begin = time.process_time()
            for _ in range(TURN):
                loop()
            taken.append((time.process_time() - begin) / TURN)
    return [statistics.median(taken) * 1e6 for taken in times]


def measure(name: str, folder: Path, target: str, seconds: float) -> str:
    write_digits(folder, all_digits())
    tfc.compile(source(name), folder / "model.tfb", target=target)
    bundle = tfc.load(folder / "model.tfb", threads=1, folder=folder)
    bundle.functions["start"]()
    start = weights_of(bundle.state)
    given = batches(name, folder, STEPS)
    tensors = [(torch.tensor(x), torch.tensor(y)) for x, y in given]
    train_step = bundle.functions["train_step"]
    loops = [
        lambda: train_step()[0],
        *(make(start, cycle(tensors)) for make in (whole, usual, eager)),
    ]
    losses = np.array([[float(loop()) for loop in loops] for _ in range(STEPS)])
    error = float(np.abs(losses[:, :1] - losses[:, 1:]).max())
    assert error <= LIMIT, f"{name}: the losses differ by {error:.1e}"
    ours, one, two, plain = in_turns(loops, seconds)
    return (
        f"{name:20} tfc {ours:7.1f} us  torch.compile {one:7.1f} (whole) {two:7.1f} (usual)  "
        f"eager {plain:7.1f}  ratio {ours / min(one, two):5.2f}  losses differ by {error:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--target", default="host")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(name, Path(folder), options.target, options.seconds), flush=True)


if __name__ == "__main__":
    main()
