"""Mutates models and bundles: each mutant gives a clear error or a right result, never a crash.

    python -m tests.fuzz.mutate --kind tfc|onnx|tfb --count 5000 --seed 0

A mutant is made from its number alone: `--only 17` runs that one again, `--write F` writes it to a
file. Mutants run in child processes with a limit of time and memory. Exits 1 where one is wrong,
raises another error, crashes or hangs.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.farm import Farm, Outcome

BAD = ("wrong", "error", "crash", "timeout")
SECONDS = 60.0  # that a mutant may take
MEMORY = 12 << 30


@dataclass(frozen=True)
class Kind:
    """How mutants of a kind are made and checked; `seeds` are what they are made from."""

    suffix: str
    make: Callable[[int, int], tuple[str, bytes]]  # seed, number -> name of the origin, content
    check: Callable[[str, Path, int], Outcome]  # name, file, number


def kinds() -> dict[str, Callable[[], Kind]]:
    """The kinds by name; each is made when it is asked for, with its seeds."""
    from tests.fuzz import mutants_onnx, mutants_tfb, mutants_tfc

    return {
        "tfc": lambda: Kind(".tfc", mutants_tfc.make, mutants_tfc.check),
        "onnx": lambda: Kind(".onnx", mutants_onnx.make, mutants_onnx.check),
        "tfb": lambda: Kind(".tfb", mutants_tfb.make, mutants_tfb.check),
    }


def run(
    kind: Kind, numbers: Sequence[int], seed: int, *, jobs: int = 2, timeout: float = SECONDS
) -> list[Outcome]:
    """The outcomes of mutants."""

    def work(index: int, folder: Path) -> Outcome:
        return check_one(kind, numbers[index], seed, folder)

    names = [f"{number}" for number in numbers]
    farm = Farm(names, work, jobs=jobs, timeout=timeout, memory=MEMORY)
    return [_shown(outcome) for outcome in farm.run()]


def _shown(outcome: Outcome) -> Outcome:
    if outcome.verdict in BAD:
        print(f"{outcome.verdict}: {outcome.name}: {outcome.message}", flush=True)
    return outcome


def check_one(kind: Kind, number: int, seed: int, folder: Path) -> Outcome:
    """Makes and checks a mutant in this process."""
    folder.mkdir(parents=True, exist_ok=True)
    origin, content = kind.make(seed, number)
    name = f"{number} ({origin})"
    path = folder / f"mutant{kind.suffix}"
    path.write_bytes(content)
    try:
        return kind.check(name, path, number)
    except Exception:
        return Outcome(name, "error", traceback.format_exc(limit=-4))


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    kind = kinds()[options.kind]()
    if options.write:
        options.write.write_bytes(kind.make(options.seed, options.only)[1])
        return 0
    started = time.monotonic()
    numbers = range(options.count) if options.only is None else [options.only]
    outcomes = run(kind, numbers, options.seed, jobs=options.jobs)
    counts = Counter(outcome.verdict for outcome in outcomes)
    shown = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    print(f"{len(outcomes)} mutants of {options.kind}: {shown}; {time.monotonic() - started:.0f} s")
    if options.messages:
        _print_messages(outcomes, options.messages)
    return int(any(outcome.verdict in BAD for outcome in outcomes))


def _print_messages(outcomes: Sequence[Outcome], verdict: str) -> None:
    for outcome in outcomes:
        if outcome.verdict == verdict:
            print(f"{outcome.name}: {outcome.message}")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.mutate", description=__doc__)
    parser.add_argument("--kind", choices=("tfc", "onnx", "tfb"), required=True)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="one mutant")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write that mutant, and stop")
    parser.add_argument("--messages", metavar="VERDICT", help="print the messages of a verdict")
    return parser


if __name__ == "__main__":
    sys.exit(main())
