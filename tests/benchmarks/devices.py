"""Two devices against one: python tests/benchmarks/devices.py [SECONDS]

A graph of two independent heavy branches, compiled for one CPU device and for two, each with one
thread; after the outputs have been compared they run in turns in one process. Prints medians of
wall time and how many times faster two devices are.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import tfc

DEPTH, SIZE = 12, 512


def branches(depth: int = DEPTH, size: int = SIZE) -> str:
    """Two chains of products, and the sum of their ends."""
    kind = f"tensor<{size}x{size}xf32>"
    lines = [f"func @main(%a0: {kind}, %b0: {kind}) -> (%y: {kind}) {{"]
    for name in "ab":
        for i in range(depth):
            lines.append(f"%p{name}{i} = matmul(%{name}{i}, %{name}0) : {kind}")
            lines.append(f"%{name}{i + 1} = tanh(%p{name}{i}) : {kind}")
    lines += [f"%y = add(%a{depth}, %b{depth}) : {kind}", "return %y", "}"]
    return "module {\n" + "\n".join(lines) + "\n}"


def run(bundle: tfc.Bundle, inputs: dict[str, np.ndarray]) -> tuple[float, float]:
    """Seconds of wall time of a run, and of processor time of its busiest thread.

    The first partition runs on the thread of the caller; so two devices have two threads.
    """
    wall, whole, own = time.perf_counter(), time.process_time(), time.thread_time()
    bundle.run(inputs)
    wall, own = time.perf_counter() - wall, time.thread_time() - own
    return wall, max(own, time.process_time() - whole - own)


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    numbers = np.random.default_rng(0)
    inputs = {n: numbers.normal(0, 0.05, (SIZE, SIZE)).astype(np.float32) for n in ("a0", "b0")}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "branches.tfc"
        source.write_text(branches())
        bundles: list[tfc.Bundle] = []
        for devices in (("cpu:0",), ("cpu:0", "cpu:1")):
            path = Path(folder) / f"{len(devices)}.tfb"
            tfc.compile(source, path, devices=devices)
            bundles.append(tfc.load(path, threads=1))
        first, second = (b.run(inputs)["y"] for b in bundles)
        assert first.tobytes() == second.tobytes(), "the bits differ"
        times: list[list[tuple[float, float]]] = [[], []]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times[0]) < 7:
            for bundle, own in zip(bundles, times, strict=True):
                own.append(run(bundle, inputs))
    for number, what in enumerate(("wall time", "processor time of the busiest thread")):
        one, two = (statistics.median(t[number] for t in own) for own in times)
        print(f"{what}: one device {one * 1e3:.2f} ms, two {two * 1e3:.2f} ms: {one / two:.2f}")


if __name__ == "__main__":
    main()
