"""Checks random graphs with state: `python -m tests.fuzz.stateful --count 1000 --seed 0`.

Each graph's functions are called in turn in the interpreter and as compiled code at -O0 and -O3, on
a target that its seed draws, of those that run here; outputs, variables and errors are compared
after each call. `--kind loops` draws nested loops, half of them in primitive form. Many graphs are
compiled at once, in a process of their own; where that ends badly they run one by one. What fails
is made smaller and written to `--output` as a `.tfc` file with its calls. Exits 1 where anything
failed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.fuzz.batches import Batches, line, options_of

LEVELS = (0, 3)


def main() -> int:
    options = _options()
    if options.worker:
        return _worker(options)
    started = time.monotonic()
    extra = ["--kind", options.kind, "--levels", options.levels]
    batches = Batches("tests.fuzz.stateful", extra, options.jobs)
    total = batches.run(options.seed, options.count, options.targets.split(","))
    total.print("calls", time.monotonic() - started)
    if total.failures and options.output:
        _minimise(total.failures, options)
    return 1 if total.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    options_of(parser, 1000)
    parser.add_argument("--kind", choices=("stateful", "loops"), default="stateful")
    parser.add_argument("--levels", default="0,3", help="of optimisation")
    parser.add_argument("--output", type=Path, help="folder for the graphs that fail")
    return parser.parse_args()


def _minimise(failures: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """One small graph for each stage and message that failed, at most."""
    from tests.fuzz.stateful_minimise import minimise

    options.output.mkdir(parents=True, exist_ok=True)
    seen: set[tuple[str, str]] = set()
    for failure in failures:
        kind = (failure["stage"], failure["message"][:40])
        if kind not in seen:
            seen.add(kind)
            path = options.output / f"{options.kind}{failure['seed']}.tfc"
            print(f"{minimise(failure, options.kind, path)}: {line(failure)}")


# ---- a process that checks some graphs


def _worker(options: argparse.Namespace) -> int:
    from tests.fuzz.stateful_check import Checked, find_refused
    from tests.fuzz.stateful_graphs import generate

    seeds = range(options.seed, options.seed + options.count)
    cases = [Checked(generate(seed, options.kind)) for seed in seeds]
    fitting = find_refused(cases)
    for level in options.levels.split(","):
        check_level(fitting, int(level), options.targets)
    report = {
        "target": options.targets,
        "graphs": len(fitting),
        "failures": [vars(f) | {"target": options.targets} for c in cases for f in c.failures],
        "runs": sum(len(c.case.calls) for c in fitting),
        "compared": sum(c.oracle.compared for c in fitting),
        "elements": sum(c.oracle.elements for c in fitting),
    }
    print(json.dumps(report))
    return 0


def check_level(cases: list[Any], level: int, target: str) -> None:
    """All at once; one by one where that does not compile."""
    from tests.fuzz.stateful_check import check_compiled

    with tempfile.TemporaryDirectory(prefix="tfc-fuzz-") as folder:
        path = Path(folder) / "graphs.tfb"
        try:
            check_compiled(cases, level, target, path)
        except Exception:
            for one in cases:
                one.failures = [f for f in one.failures if not f.stage.startswith(f"-O{level}")]
                try:
                    check_compiled([one], level, target, path)
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"
                    one.fail(f"compiling -O{level} {target}", "", text)


if __name__ == "__main__":
    sys.exit(main())
