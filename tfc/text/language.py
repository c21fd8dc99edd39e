"""Runs the grammar: lark makes tables and scanners of `tfc.lark`, the loop here drives them.

lark's own loop would do the same in twice the time: it finds rules by hashes that it computes anew,
and counts the lines of every space. The tables are made once (0.03 s) and shared; each parse has
its own state, so that threads may parse.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

from tfc.text.source import STRING, Source

if TYPE_CHECKING:
    from tfc.ir.errors import TfcError

Match: TypeAlias = "Callable[[str, int], re.Match[str] | None]"
END = "$END"

# What the tokens are, in words, for errors.
WORDS = {
    "NAME": "the name of an op",
    "STRING": "a string",
    "SYMBOL": "`@name`",
    "VALUE": "`%name`",
    "RESULTS": "results (`%a =`)",
    "LABEL": "a label (`^name:`)",
    "OPERANDS": "operands (`(%a, %b)`)",
    "ATTRIBUTES": "attributes (`{name = value}`)",
    "TYPES": "types (`: tensor<f32>`)",
    "AFTER": "`after(...)`",
    "ON": "`on(...)`",
    "LOC": "`loc(...)`",
    "GRID": "`grid(...)`",
    "RANGE": "`in 1..512`",
    "REGION": "a region (`do {`)",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "_ARROW": "`->`",
    "MODULE": "`module`",
    "WEIGHTS": "`weights(...)`",
    "DIM": "`dim`",
    "VARIABLE": "`variable`",
    "RESOURCE": "`resource`",
    "FUNC": "`func`",
    "KERNEL": "`kernel`",
    END: "the end of the text",
}
CLOSING = {"(": ")", "{": "}", "[": "]", "<": ">"}
MAX_SEARCH = 100_000  # how far to look for the end of a bracket
_DICTIONARY = re.compile(r'(?:[^{}"%]|"(?:[^"\\\n]|\\.)*+")*+')
_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*+"?|[(){}\[\]<>]')


class Token:
    """A token: which terminal of the grammar, its text, where it begins."""

    __slots__ = ("kind", "offset", "text")

    def __init__(self, kind: str, text: str, offset: int) -> None:
        self.kind = kind
        self.text = text
        self.offset = offset


class Language:
    """What lark made of the grammar.

    `actions[state][symbol]` is a state to go to, or -1 - n: reduce by rule n. `scanners[state]`
    finds the next token that the state accepts, `skip` the end of spaces and comments.
    """

    def __init__(self, grammar: str) -> None:
        # lark takes a while to import, and much of tfc works without text.
        from lark import Lark
        from lark.parsers.lalr_analysis import Shift

        made = Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=False)
        front: Any = made.parser
        table = front.parser._parse_table
        self.rules: list[Any] = list(made.rules)
        numbers = {rule: -1 - number for number, rule in enumerate(self.rules)}
        self.actions: dict[int, dict[str, int]] = {
            state: {
                symbol: target if action is Shift else numbers[target]
                for symbol, (action, target) in row.items()
            }
            for state, row in table.states.items()
        }
        self.start: int = table.start_states["start"]
        self.end: int = table.end_states["start"]
        self.scanners: dict[int, Match] = {
            state: _scanner(lexer) for state, lexer in front.lexer.lexers.items()
        }
        ignored = [t.pattern.to_regexp() for t in made.terminals if t.name in made.ignore_tokens]
        self.skip: Match = re.compile(f"(?:{'|'.join(ignored)})*+").match
        self.make_callbacks: Any = made._parse_tree_builder.create_callback

    def callbacks(self, reader: object) -> list[tuple[Callable[[list[Any]], Any], int, str]]:
        """For each rule: the method of the reader, the number of parts, the symbol."""
        made = self.make_callbacks(reader)
        return [(made[rule], len(rule.expansion), rule.origin.name) for rule in self.rules]


def _scanner(lexer: Any) -> Match:
    (pattern,) = lexer.scanner._mres
    assert not lexer.callback, "a keyword is also a name where both may stand"
    return pattern.match


@cache
def language() -> Language:
    return Language(resources.files("tfc.grammar").joinpath("tfc.lark").read_text())


def parse(source: Source, reader: object) -> None:
    """Parses a text, calling the reader's methods by the names of the rules; raises TfcError."""
    with _without_collection():
        _run(language(), source, reader)


def _run(language: Language, source: Source, reader: object) -> None:
    text, skip, scanners, table = source.text, language.skip, language.scanners, language.actions
    rules = language.callbacks(reader)
    states, values = [language.start], list[Any]()
    offset = 0
    while states[-1] != language.end:
        offset = skip(text, offset).end()  # pyright: ignore[reportOptionalMemberAccess]
        match = scanners[states[-1]](text, offset)
        if match is not None:
            kind = match.lastgroup or ""
            token = Token(kind, match[0], offset)
            offset = match.end()
        elif offset == len(text):
            kind, token = END, None
        else:
            raise _unexpected(source, offset, table[states[-1]])
        while True:
            action = table[states[-1]].get(kind)
            if action is None:
                raise _unexpected(source, token.offset if token else offset, table[states[-1]])
            if action >= 0:
                states.append(action)
                values.append(token)
                break
            callback, count, symbol = rules[-1 - action]
            parts = values[-count:]
            del states[-count:], values[-count:]
            values.append(callback(parts))
            states.append(table[states[-1]][symbol])
            if kind is END and states[-1] == language.end:
                break


@contextmanager
def _without_collection() -> Generator[None]:
    """Keeps the collector of cycles still: a module is a large one, and it grows all the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ---- errors


def _unexpected(source: Source, offset: int, accepted: dict[str, int]) -> TfcError:
    """What came, and what would be right."""
    words = [word for kind, word in WORDS.items() if kind in accepted]
    expected = f"expected {' or '.join(words)}" if words else ""
    if offset == len(source.text):
        return source.error(len(source.text.rstrip()), "the text ends too early", expected)
    char = source.text[offset]
    if char == '"':
        return _open_string(source, offset)
    if char in CLOSING:
        _check_closed(source, offset)
    if char == "{" and "ATTRIBUTES" in accepted:
        return _no_dictionary(source, offset)
    return source.error(offset, f"unexpected {_word_at(source.text, offset)!r}", expected)


def _check_closed(source: Source, offset: int) -> None:
    """Raises where a bracket, or a string within it, is not closed."""
    opening = source.text[offset]
    depth, end = 0, offset
    for match in _BRACKET.finditer(source.text, offset, offset + MAX_SEARCH):
        if match[0][0] == '"' and not STRING.fullmatch(match[0]):
            raise _open_string(source, match.start())
        depth += (match[0] == opening) - (match[0] == CLOSING[opening])
        end = match.end()
        if depth == 0:
            return
    if end < offset + MAX_SEARCH:
        raise source.error(offset, f"nothing closes this `{opening}`")


def _no_dictionary(source: Source, offset: int) -> TfcError:
    inside = _DICTIONARY.match(source.text, offset + 1)
    if inside and source.text[inside.end() : inside.end() + 1] == "}":
        message = "expected the name of an attribute and `=`"
        return source.error(offset + 1, message, "such as `{axis = 1}`")
    return source.error(offset, "nothing closes this dictionary", "it ends with `}`")


def _open_string(source: Source, offset: int) -> TfcError:
    return source.error(offset, "the string has no end on its line", 'it ends with `"`')


def _word_at(text: str, offset: int) -> str:
    match = re.compile(r"[%@^]?[A-Za-z0-9_.$]+|.", re.DOTALL).match(text, offset)
    return match[0][:40] if match else ""
