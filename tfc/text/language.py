"""Runs the grammar: lark's LALR tables over a text, with the rules' actions of one reader.

The tables are built once (0.03 s) and shared; each parse has its own state, so that threads may
parse.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from tfc.text.source import Source

if TYPE_CHECKING:
    from lark import Lark, UnexpectedInput

    from tfc.ir.errors import TfcError

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
    "MODULE": "`module`",
    "WEIGHTS": "`weights(...)`",
    "DIM": "`dim`",
    "VARIABLE": "`variable`",
    "FUNC": "`func`",
    "KERNEL": "`kernel`",
    "__ANON_0": "`->`",
    "$END": "the end of the text",
}
CLOSING = {"(": ")", "{": "}", "[": "]", "<": ">"}


@cache
def _tables() -> Lark:
    # lark takes a while to import, and much of tfc works without text.
    from lark import Lark

    grammar = resources.files("tfc.grammar").joinpath("tfc.lark").read_text()
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=False)


def parse(source: Source, actions: object) -> None:
    """Parses a text, calling the actions by the names of the rules; raises TfcError."""
    from lark import UnexpectedInput
    from lark.parsers.lalr_parser import _Parser

    tables = _tables()
    # `Lark(transformer=...)` would bind the tables to one reader; these are the two steps it does.
    callbacks: Any = tables._parse_tree_builder.create_callback(actions)
    parser = _Parser(tables.parser.parser._parse_table, callbacks)
    lexer: Any = tables.parser._make_lexer_thread(source.text)
    try:
        parser.parse(lexer, "start")
    except UnexpectedInput as error:
        raise _explain(source, error) from None


def _explain(source: Source, error: UnexpectedInput) -> TfcError:
    """A lark error as one of ours: what came, what would be right."""
    token: Any = getattr(error, "token", None)
    expected = getattr(error, "accepts", None) or getattr(error, "expected", None) or set[str]()
    expected = expected or getattr(error, "allowed", None) or set[str]()
    offset = error.pos_in_stream or 0
    if token is not None and token.type == "$END":
        offset = len(source.text.rstrip())
        return source.error(offset, "the text ends too early", _expected_text(expected))
    char = source.text[offset : offset + 1]
    if char == '"':
        return source.error(offset, "the string has no end on its line", 'it ends with `"`')
    if char in CLOSING and not _closes(source.text, offset):
        return source.error(offset, f"nothing closes this `{char}`")
    found = token if token is not None else _word_at(source.text, offset)
    return source.error(offset, f"unexpected {str(found)[:40]!r}", _expected_text(expected))


def _expected_text(terminals: set[str]) -> str:
    words = [WORDS[t] for t in WORDS if t in terminals]
    return f"expected {' or '.join(words)}" if words else ""


def _closes(text: str, offset: int) -> bool:
    """Whether the bracket at an offset is closed, within the next few thousand characters."""
    opening, depth = text[offset], 0
    for char in text[offset : offset + 100_000]:
        depth += (char == opening) - (char == CLOSING[opening])
        if depth == 0:
            return True
    return False


def _word_at(text: str, offset: int) -> str:
    end = offset
    while end < len(text) and (text[end].isalnum() or text[end] in "_%@^"):
        end += 1
    return text[offset : end or offset + 1] or text[offset : offset + 1]
