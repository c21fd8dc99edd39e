"""Tables as plain text: columns as wide as their content, numbers to the right."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lines of a table with a head; a column whose cells all are numbers stands to the right."""
    cells = [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(r[i]) for r in (list(head), *cells)) for i in range(len(head))]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        parts = zip(row, widths, right, strict=True)
        return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in parts).rstrip()

    return "\n".join([line(head), line(["-" * w for w in widths]), *map(line, cells)])


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) or cell == ""


def _text(cell: object) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def bytes_text(count: int) -> str:
    """A size in the unit that suits it: `812 B`, `1.5 KiB`, `69.1 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if abs(size) < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def seconds_text(seconds: float) -> str:
    """A time in the unit that suits it: `3.1 us`, `12.0 ms`, `1.50 s`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
