"""Checks random graphs: `python -m tests.fuzz.run --count 2000 --seed 0`.

Each graph runs in the interpreter, after each pass, and as compiled code at -O0 and -O3 on a target
that its seed draws, of those that run here. Graphs run in batches, each in its own process: where
one crashes or hangs, its graphs run again one by one. What fails is made smaller and written to
`--output` as a `.tfc` file with its inputs. Exits 1 where anything failed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfc.targets import TARGETS as ALL
from tfc.targets import runs_here

TARGETS = tuple(name for name, target in ALL.items() if runs_here(target))
BATCH = 20
LEVELS = (0, 3)
SECONDS = 20  # that a graph may take


@dataclass
class Total:
    """What came of all batches."""

    graphs: Counter[str] = field(default_factory=Counter[str])  # by target
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    runs: int = 0
    compared: int = 0
    elements: int = 0


def main() -> int:
    options = _options()
    if options.worker:
        return _worker(options)
    started = time.monotonic()
    total = _run_all(options)
    seconds = time.monotonic() - started
    for stage, count in Counter(f["stage"] for f in total.failures).most_common():
        print(f"{count:5d}  {stage}")
    each = ", ".join(f"{t}: {n}" for t, n in sorted(total.graphs.items()))
    print(
        f"{sum(total.graphs.values())} graphs ({each}), {total.runs} sets of data, {seconds:.0f} s"
    )
    share = 100 * total.compared / max(total.elements, 1)
    print(
        f"{total.elements} elements of outputs, {share:.2f} % compared, "
        f"{len(total.failures)} failures"
    )
    if total.failures and options.output:
        _minimise(total.failures, options)
    return 1 if total.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=2000, help="how many graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--targets", default=",".join(TARGETS), help="drawn from, a batch each")
    parser.add_argument("--jobs", type=int, default=2, help="batches at once")
    parser.add_argument("--stages", default="passes,compiled", help="what is checked")
    parser.add_argument("--output", type=Path, help="folder for the graphs that fail")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _line(failure: dict[str, Any]) -> str:
    return (
        f"seed {failure['seed']}: {failure['stage']}: {failure['data']}: {failure['message'][:300]}"
    )


# ---- the parent


def _run_all(options: argparse.Namespace) -> Total:
    targets = options.targets.split(",")
    seeds = range(options.seed, options.seed + options.count)
    batches = [list(seeds[i : i + BATCH]) for i in range(0, len(seeds), BATCH)]
    total = Total()
    with ThreadPoolExecutor(options.jobs) as pool:
        chosen = [targets[batch[0] // BATCH % len(targets)] for batch in batches]
        for found in pool.map(lambda b, t: _batch(b, t, options), batches, chosen):
            _add(total, found)
            for failure in found["failures"]:
                print(_line(failure), flush=True)
            if sys.stderr.isatty():
                done = sum(total.graphs.values())
                print(f"\r{done} graphs, {len(total.failures)} failures ", end="", file=sys.stderr)
    return total


def _add(total: Total, found: dict[str, Any]) -> None:
    total.graphs[found["target"]] += found["graphs"]
    total.failures += found["failures"]
    total.runs += found["runs"]
    total.compared += found["compared"]
    total.elements += found["elements"]


def _batch(seeds: list[int], target: str, options: argparse.Namespace) -> dict[str, Any]:
    """The result of a process that checks some graphs; one by one where it does not end well."""
    found, ending = _spawn(seeds, target, options)
    if found is not None:
        return found
    if len(seeds) == 1:
        failure = {
            "seed": seeds[0],
            "stage": "process",
            "target": target,
            "data": "",
            "message": ending,
        }
        counts = dict.fromkeys(("runs", "compared", "elements"), 0)
        return {"target": target, "graphs": 1, "failures": [failure], **counts}
    total = Total()
    for seed in seeds:
        _add(total, _batch([seed], target, options))
    counts = {"runs": total.runs, "compared": total.compared, "elements": total.elements}
    return {"target": target, "graphs": len(seeds), "failures": total.failures, **counts}


def _spawn(
    seeds: list[int], target: str, options: argparse.Namespace
) -> tuple[dict[str, Any] | None, str]:
    command = [sys.executable, "-m", "tests.fuzz.run", "--worker", "--stages", options.stages]
    command += ["--seed", str(seeds[0]), "--count", str(len(seeds)), "--targets", target]
    limit = SECONDS * len(seeds) + 60
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"it took more than {limit} s"
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1]), ""
    last = done.stderr.strip().splitlines()[-1:] or [""]
    return None, f"it ended with {done.returncode}: {last[0]}"


def _minimise(failures: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """One small graph for each stage and message that failed, at most."""
    from tests.fuzz.minimise import minimise

    options.output.mkdir(parents=True, exist_ok=True)
    seen: set[tuple[str, str]] = set()
    for failure in failures:
        kind = (failure["stage"], failure["message"][:40])
        if kind in seen:
            continue
        seen.add(kind)
        path = options.output / f"seed{failure['seed']}.tfc"
        print(f"{minimise(failure, path)}: {_line(failure)}")


# ---- a process that checks some graphs


def _worker(options: argparse.Namespace) -> int:
    import tfc.ops  # registers the ops  # noqa: F401
    from tests.fuzz.check import (
        Checked,
        check_alone,
        check_bound,
        check_pipeline,
        check_text,
    )
    from tests.fuzz.graphs import generate

    stages = options.stages.split(",")
    seeds = range(options.seed, options.seed + options.count)
    cases = [Checked(generate(seed)) for seed in seeds]
    for checked in cases:
        if "passes" in stages:
            check_text(checked)
            check_alone(checked)
            check_bound(checked)
            for level in LEVELS if checked.case.seed % 4 == 0 else LEVELS[1:]:
                check_pipeline(checked, level, options.targets)
    if "compiled" in stages:
        _compiled(cases, options.targets)
    report = {
        "target": options.targets,
        "graphs": len(cases),
        "failures": [vars(f) | {"target": options.targets} for c in cases for f in c.failures],
        "runs": sum(len(c.runs) for c in cases),
    }
    counts = [r.oracle.compared() for c in cases for r in c.runs]
    report |= {"compared": sum(n for n, _ in counts), "elements": sum(n for _, n in counts)}
    print(json.dumps(report))
    return 0


def _compiled(cases: list[Any], target: str) -> None:
    """All at once; one by one where that does not compile."""
    from tests.fuzz.check import check_compiled

    with tempfile.TemporaryDirectory(prefix="tfc-fuzz-") as folder:
        path = Path(folder) / "graphs.tfb"
        for level in LEVELS:
            if not _succeeds(lambda level=level: check_compiled(cases, level, target, path)):
                for one in cases:
                    try:
                        check_compiled([one], level, target, path)
                    except Exception as error:
                        text = f"{type(error).__name__}: {error}"
                        one.fail(f"compiling -O{level} {target}", "", text)


def _succeeds(action: Any) -> bool:
    try:
        action()
    except Exception:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
