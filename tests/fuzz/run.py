"""Checks random graphs: `python -m tests.fuzz.run --count 2000 --seed 0`.

Each graph runs in the interpreter, after each pass, and as compiled code at -O0 and -O3 on a target
that its seed draws, of those that run here. Graphs run in batches, each in its own process: where
one crashes or hangs, its graphs run again one by one. What fails is made smaller and written to
`--output` as a `.tfc` file with its inputs. Exits 1 where anything failed.
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
    batches = Batches("tests.fuzz.run", ["--stages", options.stages], options.jobs)
    total = batches.run(options.seed, options.count, options.targets.split(","))
    total.print("sets of data", time.monotonic() - started)
    if total.failures and options.output:
        _minimise(total.failures, options)
    return 1 if total.failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    options_of(parser, 2000)
    parser.add_argument("--stages", default="passes,compiled", help="what is checked")
    parser.add_argument("--output", type=Path, help="folder for the graphs that fail")
    return parser.parse_args()


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
        print(f"{minimise(failure, path)}: {line(failure)}")


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
