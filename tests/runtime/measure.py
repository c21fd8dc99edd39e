"""What the loader costs: import, load, first and repeated runs of a small bundle.

    python -m tests.runtime.measure

Times of the thread's own processor in microseconds, except where it says wall.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

IMPORT = (
    "import numpy, time; t = time.process_time(); import tfc.runtime;print(time.process_time() - t)"
)


def repeated(call: Callable[[], object], times: int = 20_000) -> str:
    costs: list[float] = []
    for _ in range(times):
        start = time.thread_time()
        call()
        costs.append(time.thread_time() - start)
    return f"median {statistics.median(costs) * 1e6:8.1f}   least {min(costs) * 1e6:8.1f}"


def main() -> None:
    command = [sys.executable, "-c", IMPORT]
    imports = [float(subprocess.check_output(command)) for _ in range(5)]
    print(f"import beyond numpy          least {min(imports) * 1e6:8.0f}")
    from tests.runtime import stand_in
    from tfc.runtime import load

    data = stand_in.bundle_bytes()
    x, pick = np.ones((8, 4), np.float32), np.array(1)
    print("load from memory            ", repeated(lambda: load(data, threads=1), 200))
    print("load and first run          ", repeated(lambda: load(data, threads=1)(x, x, pick), 200))
    named = {"x": x, "y": x, "pick": pick}
    out = {"sum": np.empty((8, 4), np.float32), "row": np.empty(4, np.float32)}
    for threads in (1, 2):
        bundle = load(data, threads=threads)
        label = f"{threads} thread{'s' if threads > 1 else ' '}"
        print(f"run by name,     {label}  ", repeated(lambda b=bundle: b.run(named)))
        print(f"run by position, {label}  ", repeated(lambda b=bundle: b(x, x, pick)))
        print(f"run into arrays, {label}  ", repeated(lambda b=bundle: b.run(named, out=out)))


if __name__ == "__main__":
    main()
