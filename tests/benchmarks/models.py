"""Compares compiled models with ONNX Runtime on one thread.

`python tests/benchmarks/models.py [NAME ...]`. Both run in one process on one core, in turns, after
their outputs have been compared; CPU times of the thread, medians. Unset OPENBLAS_CORETYPE and the
like in the command that runs it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.models import LIGHT, MINILM, inputs, model


def session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def in_turns(functions: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The median CPU time of each, in milliseconds."""
    times: list[list[float]] = [[] for _ in functions]
    for f in functions:
        f()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 7:
        for f, t in zip(functions, times, strict=True):
            start = time.thread_time()
            f()
            t.append(time.thread_time() - start)
    return [statistics.median(t) * 1e3 for t in times]


def compare(name: str, bundle: Path, seconds: float, shapes: list[tuple[int, int]]) -> None:
    import tfc

    theirs = session(model(name))
    with tfc.load(bundle, threads=1) as ours:
        for batch, length in shapes:
            feed = inputs(name, batch, length)
            expected = theirs.run(None, feed)
            got = ours.run(feed)
            names = [o.name for o in theirs.get_outputs()]
            errors = [
                float(np.abs(got[n].astype(np.float64) - e).max() / max(np.abs(e).max(), 1e-30))
                for n, e in zip(names, expected, strict=True)
            ]
            mine, other = in_turns(
                [lambda feed=feed: ours.run(feed), lambda feed=feed: theirs.run(None, feed)],
                seconds,
            )
            shape = f" {batch}x{length}" if name == MINILM else ""
            print(
                f"{name + shape:20} tfc {mine:8.2f} ms  ONNX Runtime {other:8.2f} ms  "
                f"ratio {mine / other:5.2f}  error {max(errors):.1e} of the output's scale",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=[*LIGHT, MINILM])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--target", default="host")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import tfc

    lengths = [(b, n) for b in (1, 3, 8) for n in (16, 77, 128)]
    for name in options.names:
        with tempfile.TemporaryDirectory() as folder:
            bundle = Path(folder) / f"{name}.tfb"
            start = time.perf_counter()
            tfc.compile(model(name), bundle, target=options.target)
            seconds, size = time.perf_counter() - start, bundle.stat().st_size
            print(f"{name}: compiled in {seconds:.1f} s, {size:,} bytes")
            compare(name, bundle, options.seconds, lengths if name == MINILM else [(1, 0)])


if __name__ == "__main__":
    main()
