"""What the order of ops saves: python tests/benchmarks/scheduling.py [NAME ...]

Live memory at its peak in the order of the importer and in that of control-scheduling, for the
graph as it is imported and for its kernels, as they are planned; sizes in MB, symbols at 128.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from tests.models import LIGHT, MINILM, model
from tfc.driver import load_module
from tfc.passes.base import PassContext
from tfc.passes.graph.control_scheduling import ControlScheduling
from tfc.passes.pipeline_text import parse_pipeline
from tfc.report.table import table
from tfc.targets import resolve

STAGES = {"imported": "prune", "kernels": "O3,schedule,lower,dce"}


def measure(name: str, pipeline: str) -> tuple[float, float, float]:
    """The peak before and after in MB, and the seconds of the pass."""
    module = load_module(model(name))
    context = PassContext(target=resolve("x86-64-v4"))
    for transform in parse_pipeline(pipeline):
        transform.run(module, context)
    context.figures.clear()
    started = time.process_time()
    ControlScheduling().run(module, context)
    took = time.process_time() - started
    before, after = (int(context.figures[f"@main peak {when}"]) for when in ("before", "after"))
    assert after <= before, f"{name}: the peak rose"
    return before / 1e6, after / 1e6, took


def main() -> None:
    names = sys.argv[1:] or [*LIGHT, MINILM]
    rows = [
        (name, stage, *(f"{x:.2f}" for x in measure(name, pipeline)))
        for name in names
        for stage, pipeline in STAGES.items()
    ]
    print(table(("model", "ops", "peak before", "after", "seconds"), rows))


if __name__ == "__main__":
    main()
