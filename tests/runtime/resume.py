"""Trains in child processes that are killed at random moments, and goes on each time.

python -m tests.runtime.resume WORKER FOLDER SEED KILLS prints what the last child came to, and what
a process that nobody interrupts does. A worker is "interpreter" or the path of a bundle.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tfc.ir.core import Module

TEXT = """module {
  variable @w : tensor<3x4xf32>
  variable @momentum : tensor<3x4xf32>
  variable @random : tensor<2xu64>
  resource @files : tensor<3xf32>, tensor<4xf32> {
    kind = "npy_reader", files = ["x-*.npy", "y-*.npy"], epochs = 0
  }
  resource @data : tensor<3xf32>, tensor<4xf32> {
    kind = "random_shuffle_queue", capacity = 40, min_after_dequeue = 20, seed = 5, reader = @files
  }
  resource @seen : tensor<i64> {kind = "fifo_queue", capacity = 4}
  resource @more : tensor<3xf32> {kind = "npy_reader", files = "x-*.npy", batch = 4, epochs = 0}
  func @start(%w: tensor<3x4xf32>) -> (%step: tensor<i64>) {
    %seed = constant {value = dense<[11, 0]>} : tensor<2xu64>
    %zero = constant {value = dense<0>} : tensor<i64>
    %r = assign(@random, %seed) : tensor<2xu64>
    %v = assign(@w, %w) : tensor<3x4xf32>
    %m = assign(@momentum, %w) : tensor<3x4xf32>
    ^put: enqueue(@seen, %zero)
    %step = restore {
      of = [@w, @momentum, @random, @data, @seen, @more], path = "ck/model", otherwise = 0
    } after(%r, %v, %m, ^put) : tensor<i64>
    return %step
  }
  func @train(%step: tensor<i64>) -> (%loss: tensor<f32>, %count: tensor<i64>) {
    %x, %y = dequeue_many(@data) {count = 4} : tensor<4x3xf32>, tensor<4x4xf32>
    %noise = random_normal(@random) {shape = [4, 3], dtype = f32} : tensor<4x3xf32>
    %more = read_batch(@more) : tensor<4x3xf32>
    %small = constant {value = dense<0.001>} : tensor<f32>
    %rate = constant {value = dense<0.01>} : tensor<f32>
    %one = constant {value = dense<1>} : tensor<i64>
    %both = add(%noise, %more) : tensor<4x3xf32>
    %scaled = mul(%both, %small) : tensor<4x3xf32>
    %noisy = add(%x, %scaled) : tensor<4x3xf32>
    %w = read(@w) : tensor<3x4xf32>
    %h = matmul(%noisy, %w) : tensor<4x4xf32>
    %e = sub(%h, %y) : tensor<4x4xf32>
    %t = transpose(%noisy) {permutation = [1, 0]} : tensor<3x4xf32>
    %g = matmul(%t, %e) : tensor<3x4xf32>
    %d = mul(%g, %rate) : tensor<3x4xf32>
    %m = assign_add(@momentum, %d) : tensor<3x4xf32>
    %dm = mul(%m, %rate) : tensor<3x4xf32>
    %new = assign_sub(@w, %dm) : tensor<3x4xf32>
    %square = mul(%e, %e) : tensor<4x4xf32>
    %loss = reduce_sum(%square) {axes = [0, 1], keepdims = false} : tensor<f32>
    %before = dequeue(@seen) : tensor<i64>
    %count = add(%before, %one) : tensor<i64>
    ^put: enqueue(@seen, %count)
    ^save: save(%step) {
      of = [@w, @momentum, @random, @data, @seen, @more], path = "ck/model", keep = 2
    } after(%new, ^put)
    return %loss, %count after(^save)
  }
}
"""

Call = Callable[[str, "dict[str, Any]"], "dict[str, Any]"]


@cache
def parsed() -> Module:
    import tfc.ops
    from tfc.text.parse import parse_module

    assert tfc.ops
    return parse_module(TEXT)


def interpreter(folder: Path) -> Call:
    from tfc.interpret import interpret
    from tfc.runtime.state import State

    module, state = parsed(), State(folder)
    return lambda name, inputs: interpret(module, inputs, name, state=state)


def bundle(path: str, folder: Path) -> Call:
    from tfc.runtime import load

    opened = load(path, folder=folder, threads=1)
    return lambda name, inputs: opened.functions[name].run(inputs)


def worker(kind: str, folder: Path) -> Call:
    return interpreter(folder) if kind == "interpreter" else bundle(kind, folder)


def train(call: Call, steps: int, tell: Callable[[], Any] = int) -> tuple[str, int]:
    """Goes on until so many steps are done; the last loss, bit by bit, and how many were counted.

    Calls `tell` before each call.
    """
    start = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    tell()
    step = int(call("start", {"w": start})["step"])
    found: dict[str, Any] = {}
    while step < steps:
        step += 1
        tell()
        found = call("train", {"step": np.array(step)})
    return found["loss"].tobytes().hex(), int(found["count"])


def killed(kind: str, folder: Path, calls: int, seconds: float) -> None:
    """Trains in a child that is killed so long after the beginning of one of its calls."""
    begun, begins = os.pipe()
    child = os.fork()
    if not child:
        try:
            train(worker(kind, folder), 1 << 30, lambda: os.write(begins, b"!"))
        finally:
            os._exit(3)  # it has failed
    os.close(begins)
    for _ in range(calls):
        os.read(begun, 1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(begun)
    assert os.WIFSIGNALED(status), "the child ended by itself"


def newest(folder: Path) -> int:
    names = [p.stem for p in (folder / "ck").glob("*.safetensors")] if folder.exists() else []
    return max((int(name.rpartition("-")[2]) for name in names), default=0)


def main(kind: str, folder: Path, seed: int, kills: int) -> None:
    choose = random.Random(seed)
    if kind == "interpreter":
        interpreter(folder)  # imports and parses once, before the children
    else:
        import tfc.runtime  # noqa: F401
    steps = [newest(folder)]
    for _ in range(kills):
        killed(kind, folder, choose.randint(1, 4), choose.choice((0.003, 0.03)) * choose.random())
        steps.append(newest(folder))
    last = steps[-1] + 3
    resumed = train(worker(kind, folder), last)
    shutil.rmtree(folder / "ck")
    whole = train(worker(kind, folder), last)
    print(json.dumps({"steps": steps, "last": last, "resumed": resumed, "whole": whole}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
