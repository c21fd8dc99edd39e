"""Compares an output with the `// CHECK` lines of a test file, as LLVM's FileCheck does.

`CHECK: pattern` must match after the match before it, `CHECK-NEXT` on the next line, `CHECK-SAME`
behind it on the same line, `CHECK-NOT` nowhere up to the next match, `CHECK-LABEL` divides the
output into parts, in which the lines between stay. A pattern is literal text, in which runs of
blanks are alike, with `{{regex}}`, `[[NAME:regex]]` (captures) and `[[NAME]]` (the captured text).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("", "-NEXT", "-SAME", "-NOT", "-LABEL")
_PART = re.compile(r"\{\{(.*?)\}\}|\[\[([A-Za-z_]\w*)(?::(.*?))?\]\]")


class CheckError(Exception):
    """A directive that does not hold, or is wrong itself."""


@dataclass(frozen=True)
class Directive:
    kind: str  # of KINDS
    pattern: str
    line: int  # in the test file

    def regex(self, captured: dict[str, str]) -> re.Pattern[str]:
        """The pattern as a regular expression, given what was captured so far."""
        parts: list[str] = []
        end = 0
        here: set[str] = set()
        for match in _PART.finditer(self.pattern):
            parts.append(re.escape(self.pattern[end : match.start()]))
            parts.append(self._part(match, captured, here))
            end = match.end()
        return re.compile("".join(parts) + re.escape(self.pattern[end:]))

    def _part(self, match: re.Match[str], captured: dict[str, str], here: set[str]) -> str:
        regex, name, definition = match.groups()
        if name is None:
            return f"(?:{regex})"
        if definition is not None:
            here.add(name)
            return f"(?P<{name}>{definition})"
        if name in here:
            return f"(?P={name})"
        if name not in captured:
            raise CheckError(f"line {self.line}: [[{name}]] was not captured before")
        return re.escape(captured[name])

    def __str__(self) -> str:
        return f"line {self.line}: CHECK{self.kind}: {self.pattern}"


def read_directives(text: str, prefix: str = "CHECK") -> list[Directive]:
    """The directives of a test file, which stand in `//` comments."""
    form = re.compile(rf"//\s*{prefix}(-[A-Z]+)?:(.*)")
    directives: list[Directive] = []
    for number, line in enumerate(text.splitlines(), 1):
        match = form.search(line)
        if match is None:
            continue
        kind, pattern = match[1] or "", _blanks(match[2])
        if kind not in KINDS or not pattern:
            raise CheckError(f"line {number}: {line.strip()!r} is no directive")
        if not directives and kind in ("-NEXT", "-SAME"):
            raise CheckError(f"line {number}: {prefix}{kind} needs a match before it")
        directives.append(Directive(kind, pattern, number))
    return directives


def check(output: str, directives: Sequence[Directive]) -> None:
    """Raises CheckError at the first directive that does not hold."""
    text = "\n".join(map(_blanks, output.splitlines())) + "\n"
    _Checker(text).run(directives)


def _blanks(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text.strip())


class _Checker:
    """`start` is where the next match may begin, `last` where the one before ended."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = 0
        self.limit = len(text)
        self.captured: dict[str, str] = {}

    def run(self, directives: Sequence[Directive]) -> None:
        sections = self._sections(directives)
        for label, begin, end, limit in sections:
            self.limit = limit
            if label is not None:
                self.start = begin
                self._positive(label)
            self._section(directives[end[0] : end[1]])

    def _sections(
        self, directives: Sequence[Directive]
    ) -> list[tuple[Directive | None, int, tuple[int, int], int]]:
        """The label, its place, the directives behind it, and where the next label is."""
        labels = [i for i, d in enumerate(directives) if d.kind == "-LABEL"]
        places: list[int] = []
        start = 0
        for index in labels:
            match = directives[index].regex({}).search(self.text, start)
            if match is None:
                raise self._missing(directives[index], start, len(self.text))
            places.append(match.start())
            start = match.end()
        first = labels[0] if labels else len(directives)
        ends = [*places, len(self.text)]
        sections: list[tuple[Directive | None, int, tuple[int, int], int]] = [
            (None, 0, (0, first), ends[0])
        ]
        stops = [*labels[1:], len(directives)]
        for number, index in enumerate(labels):
            inside = (index + 1, stops[number])
            sections.append((directives[index], places[number], inside, ends[number + 1]))
        return sections

    def _section(self, directives: Sequence[Directive]) -> None:
        forbidden: list[Directive] = []
        for directive in directives:
            if directive.kind == "-NOT":
                forbidden.append(directive)
                continue
            before = self.start
            match = self._positive(directive)
            self._check_absent(forbidden, before, match.start())
            forbidden = []
        self._check_absent(forbidden, self.start, self.limit)

    def _positive(self, directive: Directive) -> re.Match[str]:
        regex = directive.regex(self.captured)
        begin, end = self._range(directive.kind)
        match = regex.search(self.text, begin, end)
        if match is None:
            raise self._missing(directive, begin, end)
        self.captured.update(match.groupdict())
        self.start = match.end()
        return match

    def _range(self, kind: str) -> tuple[int, int]:
        """Where a directive may match."""
        line_end = self.text.find("\n", self.start)
        if line_end < 0:
            line_end = len(self.text)
        match kind:
            case "-SAME":
                return self.start, line_end
            case "-NEXT":
                return line_end + 1, min(self.text.find("\n", line_end + 1), self.limit)
            case _:
                return self.start, self.limit

    def _check_absent(self, forbidden: Sequence[Directive], begin: int, end: int) -> None:
        for directive in forbidden:
            match = directive.regex(self.captured).search(self.text, begin, end)
            if match is not None:
                raise CheckError(f"{directive}\n  matches: {self._line_at(match.start())}")

    def _missing(self, directive: Directive, begin: int, end: int) -> CheckError:
        searched = self.text[begin : max(begin, end)].strip("\n").split("\n")
        shown = "\n  | ".join(searched[:30])
        more = f"\n  | ... {len(searched) - 30} more lines" if len(searched) > 30 else ""
        return CheckError(f"{directive}\n  matches nowhere in:\n  | {shown}{more}")

    def _line_at(self, place: int) -> str:
        begin = self.text.rfind("\n", 0, place) + 1
        return self.text[begin : self.text.find("\n", place)]
