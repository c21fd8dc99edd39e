"""The one error type that a user's mistake raises, and where in a text it happened."""

from __future__ import annotations

from dataclasses import dataclass

WIDTH = 120  # of a line that an error shows


@dataclass(frozen=True)
class SourcePosition:
    """A place in a text; line and column count from 1."""

    file: str
    line: int
    column: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def caret(self) -> str:
        """The line of the text, or the part of it around the column, with a caret below."""
        if not self.text:
            return ""
        start = max(0, self.column - 1 - WIDTH // 2) if len(self.text) > WIDTH else 0
        shown = self.text[start : start + WIDTH].replace("\t", " ")
        before, after = "..." if start else "", "..." if start + WIDTH < len(self.text) else ""
        return f"\n  {before}{shown}{after}\n  {' ' * (len(before) + self.column - 1 - start)}^"


class TfcError(Exception):
    """A mistake of the user: what is wrong, where, and what would be right.

    `where` names a node or an op when no position in a text is known; `hint` says what would be
    right.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        position: SourcePosition | None = None,
        where: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = str(self.position) if self.position else self.where
        head = f"{place}: {self.message}" if place else self.message
        caret = self.position.caret() if self.position else ""
        return head + caret + (f"\n  {self.hint}" if self.hint else "")


class UnsupportedError(TfcError):
    """The input is valid, but holds something that tfc does not support (yet)."""

    exit_code = 3
