"""Reads what commands take: `.tfc` text, ONNX models, weights; and writes `.tfc` text."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    from tfc.ir.core import Module
    from tfc.ir.weights import Weights

STDIN = "-"


def read_module(source: str, weights: Sequence[str] = ()) -> Module:
    """The module of a `.tfc` text, of an ONNX model, or of the standard input (`-`).

    `weights` are files to take the constants from instead of the one that the text names.
    """
    importlib.import_module("tfc.ops")  # registers the ops of the graph
    importlib.import_module("tfc.tile.ops")  # and those of kernels
    from tfc.text import parse_file, parse_module

    if source.endswith(".onnx"):
        return _import(source)
    if source == STDIN or weights:
        text = sys.stdin.read() if source == STDIN else _read(source)
        given = read_weights(weights) if weights else None
        return parse_module(text, file="<stdin>" if source == STDIN else source, weights=given)
    return parse_file(source)


def _import(path: str) -> Module:
    from tfc.importers.onnx import import_onnx

    return import_onnx(path)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TfcError(f"cannot read the text: {error.strerror}", where=path) from error
    except UnicodeDecodeError as error:
        raise TfcError(f"the text is not UTF-8: {error.reason}", where=path) from error


def read_weights(files: Sequence[str]) -> Weights:
    """The weights of safetensors files, or those of ONNX models, together; mapped, not read."""
    from tfc.ir.weights import Weights, open_safetensors

    found = Weights(Path(files[0]).name)
    for file in files:
        part = _import(file).weights if file.endswith(".onnx") else None
        held = part if part is not None else open_safetensors(Path(file), file)
        for name in held:
            # Later files win; `define` keeps the way to the elements, which stay where they are.
            found.define(name, held.type(name), lambda held=held, name=name: held.array(name))
    return found


def write_module(
    module: Module, output: str, known: Sequence[str] = (), file: Path | None = None
) -> None:
    """Writes the text to a file as `save_module` does, or alone to the standard output (`-`)."""
    from tfc.report.modules import save_module
    from tfc.text import print_module

    if output == STDIN:
        click.echo(print_module(module), nl=False)
    else:
        save_module(module, Path(output), known, file)


def dimensions(options: Sequence[str]) -> dict[str, int | tuple[int, int]]:
    """The sizes that `S=128` and `S=1..512` say, by name; names may hold `=` themselves."""
    found: dict[str, int | tuple[int, int]] = {}
    for option in options:
        match = re.fullmatch(r"(.+)=(\d+)(?:\.\.(\d+))?", option)
        if match is None:
            text = f"--dim {option}: expected NAME=N or NAME=SMALLEST..LARGEST"
            raise TfcError(text, hint="such as --dim S=128 or --dim S=1..512")
        name, low, high = match[1], int(match[2]), match[3]
        if high is not None and int(high) < low:
            raise TfcError(f"--dim {option}: the range is empty")
        found[name] = low if high is None else (low, int(high))
    return found
