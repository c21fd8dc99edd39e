"""Random graphs in batches, each in its own process, whose last line of output is its report.

Where a process crashes or hangs, its graphs run again one by one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tfc.targets import TARGETS as ALL
from tfc.targets import runs_here

TARGETS = tuple(name for name, target in ALL.items() if runs_here(target))
BATCH = 20
SECONDS = 20  # that a graph may take


@dataclass
class Total:
    """What came of all batches."""

    graphs: Counter[str] = field(default_factory=Counter[str])  # by target
    failures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    runs: int = 0
    compared: int = 0
    elements: int = 0

    def add(self, found: dict[str, Any]) -> None:
        self.graphs[found["target"]] += found["graphs"]
        self.failures += found["failures"]
        self.runs += found["runs"]
        self.compared += found["compared"]
        self.elements += found["elements"]

    def print(self, runs: str, seconds: float) -> None:
        """`runs` says what was run."""
        for stage, count in Counter(f["stage"] for f in self.failures).most_common():
            print(f"{count:5d}  {stage}")
        each = ", ".join(f"{t}: {n}" for t, n in sorted(self.graphs.items()))
        print(f"{sum(self.graphs.values())} graphs ({each}), {self.runs} {runs}, {seconds:.0f} s")
        share = 100 * self.compared / max(self.elements, 1)
        print(
            f"{self.elements} elements of outputs, {share:.2f} % compared, "
            f"{len(self.failures)} failures"
        )


def options_of(parser: argparse.ArgumentParser, count: int) -> None:
    """What all runs of random graphs take."""
    parser.add_argument("--count", type=int, default=count, help="how many graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--targets", default=",".join(TARGETS), help="drawn from, a batch each")
    parser.add_argument("--jobs", type=int, default=2, help="batches at once")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)


def line(failure: dict[str, Any]) -> str:
    return (
        f"seed {failure['seed']}: {failure['stage']}: {failure['data']}: {failure['message'][:300]}"
    )


@dataclass(frozen=True)
class Batches:
    """How batches run: a module to run, and its options besides seeds and target."""

    module: str
    extra: Sequence[str]
    jobs: int

    def run(self, first: int, count: int, targets: Sequence[str]) -> Total:
        """All graphs; each failure is printed when it is found."""
        seeds = range(first, first + count)
        batches = [list(seeds[i : i + BATCH]) for i in range(0, len(seeds), BATCH)]
        total = Total()
        with ThreadPoolExecutor(self.jobs) as pool:
            chosen = [targets[batch[0] // BATCH % len(targets)] for batch in batches]
            for found in pool.map(self._batch, batches, chosen):
                total.add(found)
                for failure in found["failures"]:
                    print(line(failure), flush=True)
                if sys.stderr.isatty():
                    done = sum(total.graphs.values())
                    text = f"\r{done} graphs, {len(total.failures)} failures "
                    print(text, end="", file=sys.stderr)
        return total

    def _batch(self, seeds: list[int], target: str) -> dict[str, Any]:
        """The result of a process that checks some graphs; one by one where it ends badly."""
        found, ending = self._spawn(seeds, target)
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
            total.add(self._batch([seed], target))
        counts = {"runs": total.runs, "compared": total.compared, "elements": total.elements}
        return {"target": target, "graphs": len(seeds), "failures": total.failures, **counts}

    def _spawn(self, seeds: list[int], target: str) -> tuple[dict[str, Any] | None, str]:
        command = [sys.executable, "-m", self.module, "--worker", *self.extra]
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
