"""What a pass changed: a unified diff of two texts, coloured on a terminal."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def unified(before: str, after: str, title: str) -> Iterator[str]:
    """The lines of the diff, with three lines of context; none where the texts are equal."""
    heads = f"before {title}", f"after {title}"
    return difflib.unified_diff(before.splitlines(), after.splitlines(), *heads, lineterm="")


def coloured(lines: Iterable[str]) -> str:
    """The lines joined, with the terminal's codes: additions green, removals red."""
    from click import style

    def paint(line: str) -> str:
        if line.startswith(("+++", "---")):
            return style(line, bold=True)
        return style(line, fg=COLOURS.get(line[:1]))

    return "\n".join(map(paint, lines))
