"""What a run of passes did, as tables: times, and the rules that fired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfc.report.table import seconds_text, table

if TYPE_CHECKING:
    from tfc.passes.manager import Step


def timing(steps: Sequence[Step]) -> str:
    """A line a pass: its time, its part of the whole, the time to verify after it."""
    total = sum(s.seconds + s.verify_seconds for s in steps) or 1e-9
    rows = [
        (s.number, str(s.transform), seconds_text(s.seconds), f"{s.seconds / total:.1%}",
         seconds_text(s.verify_seconds), "yes" if s.changed else "no")
        for s in steps
    ]  # fmt: skip
    head = ("", "pass", "time", "part", "verify", "changed")
    return f"{table(head, rows)}\n{seconds_text(total)} in all"


def statistics(steps: Sequence[Step]) -> str:
    """A line a pass with the ops before and after it, then its rules and figures."""
    lines: list[tuple[object, ...]] = []
    for step in steps:
        lines.append((step.number, str(step.transform), step.ops_before, step.ops_after, "", ""))
        for rule, count in step.fired.items():
            lines.append(("", "", "", "", rule, count))
        for name, figure in step.figures.items():
            lines.append(("", "", "", "", name, figure))
    return table(("", "pass", "ops before", "ops after", "rule or figure", ""), lines)
