"""A text that is parsed: places in it, errors that point there, quoted names and strings."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterable

from tfc.ir.errors import SourcePosition, TfcError

PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$]+", re.ASCII)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*+"')
_ESCAPE = re.compile(r"\\(u\{[0-9a-fA-F]{1,6}\}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\"}
_SPECIAL = re.compile('["\\\\\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


class Source:
    """A text with the name of its file; turns offsets into positions."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.lines = text.split("\n")
        self._starts: list[int] = []

    def position(self, offset: int) -> SourcePosition:
        if not self._starts:
            total = 0
            for line in self.lines:
                self._starts.append(total)
                total += len(line) + 1
        row = bisect_right(self._starts, offset) - 1
        return self.at(row + 1, offset - self._starts[row] + 1)

    def at(self, line: int, column: int) -> SourcePosition:
        return SourcePosition(self.file, line, column, self.lines[line - 1])

    def error(self, offset: int, message: str, hint: str = "") -> TfcError:
        return TfcError(message, position=self.position(offset), hint=hint)


def quote(text: str) -> str:
    """A string literal; `unquote` gives the text back."""
    return f'"{_SPECIAL.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match[0]
    return _SHORT.get(char) or f"\\u{{{ord(char):x}}}"


def unquote(source: Source, offset: int, literal: str) -> str:
    """The text of a string literal that stands at an offset."""
    if "\\" not in literal:
        return literal[1:-1]

    def decode(match: re.Match[str]) -> str:
        code = match[1]
        if code in _ESCAPED:
            return _ESCAPED[code]
        if code[0] == "u" and len(code) > 1 and int(code[2:-1], 16) <= 0x10FFFF:
            return chr(int(code[2:-1], 16))
        place = offset + 1 + match.start()
        hint = 'the escapes are \\n, \\t, \\r, \\", \\\\ and \\u{1f600}'
        raise source.error(place, f"no character is written {match[0]!r}", hint)

    return _ESCAPE.sub(decode, literal[1:-1])


def name_text(name: str) -> str:
    """A name as it stands after `%`, `@` or `^`: quoted unless plain."""
    return name if PLAIN_NAME.fullmatch(name) else quote(name)


def read_name(source: Source, offset: int, text: str) -> str:
    """The name of a token with its sigil, such as `%x` or `@"a/b"`."""
    return unquote(source, offset + 1, text[1:]) if text[1] == '"' else text[1:]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint that names what was probably meant."""
    names = list(known)
    close = difflib.get_close_matches(name, names, 3) if len(name) < 100 else []
    if close:
        return f"did you mean {' or '.join(close)}?"
    return otherwise
