"""The text of a pipeline: `constant-folding{max-bytes=65536},cse,dce`, read and written.

Entries are passes, or pipelines by name, which stand for their passes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfc.ir.errors import TfcError
from tfc.passes.base import Pass, make_pass
from tfc.passes.pipelines import PIPELINES

_OPTIONS = r"\{((?:[^{}\"]|\"[^\"]*\")*)\}"
_ENTRY = re.compile(rf"\s*([\w-]+)\s*(?:{_OPTIONS})?\s*(?:(,)|$)")
_OPTION = re.compile(r"\s*([\w-]+)\s*(?:=\s*(\"[^\"]*\"|\[[^\]]*\]|[^,\"\[]*?))?\s*(?:(,)|$)")


def parse_pipeline(text: str) -> list[Pass]:
    """The passes of a text."""
    passes: list[Pass] = []
    for name, options in _entries(text):
        if name not in PIPELINES:
            passes.append(make_pass(name, options))
        elif options:
            raise TfcError(f"the pipeline {name} takes no options")
        else:
            passes.extend(p for entry in PIPELINES[name] for p in parse_pipeline(entry))
    return passes


def pipeline_text(passes: Sequence[Pass]) -> str:
    """The text that gives these passes."""
    return ",".join(map(str, passes))


def _entries(text: str) -> list[tuple[str, dict[str, str]]]:
    """(name, options) an entry."""
    entries: list[tuple[str, dict[str, str]]] = []
    for name, options in _items(
        _ENTRY, text, text, "a pass, as in `cse` or `decompose{keep=gelu}`"
    ):
        found = _items(_OPTION, options, text, "an option, as in `max-bytes=65536`")
        entries.append((name, {key: value.strip('"') or "true" for key, value in found}))
    return entries


def _items(pattern: re.Pattern[str], text: str, whole: str, expected: str) -> list[tuple[str, str]]:
    """The comma-separated (name, rest) pairs of a text."""
    items: list[tuple[str, str]] = []
    position, more = 0, bool(text.strip())
    while more:
        match = pattern.match(text, position)
        if match is None:
            rest = text[position:].strip() or "the end"
            raise TfcError(f"the pipeline {whole!r}: expected {expected}, found {rest!r}")
        items.append((match[1], match[2] or ""))
        position, more = match.end(), match[3] is not None
    return items
