"""Writes modules as text, with the weights that no file holds yet beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfc.ir.core import Module, SymbolRef


def save_module(
    module: Module, path: Path, known: Sequence[str] = (), file: Path | None = None
) -> None:
    """Writes the text, and beside it a safetensors file with the weights that it needs.

    There is no new file where the text can name the old one: `file`, which holds the weights
    `known`, lies where the text looks for it.
    """
    from tfc.report.files import write_file, write_safetensors
    from tfc.text import print_module

    names = referenced_weights(module)
    if not names:
        module.weights.file = ""
    elif not (set(names) <= set(known) and _is_same(path.parent / module.weights.file, file)):
        own = path.with_suffix(".safetensors")
        write_safetensors(own, module.weights, names)
        module.weights.file = own.name
    write_file(path, print_module(module))


def _is_same(found: Path, file: Path | None) -> bool:
    return file is not None and found.is_file() and file.is_file() and found.samefile(file)


def weight_files(source: Path, module: Module) -> list[Path]:
    """The files that the weights of a source come from, for a command that reads it again."""
    if source.suffix == ".onnx":
        return [source.resolve()]
    return [source.resolve().parent / module.weights.file] if module.weights.file else []


def referenced_weights(module: Module) -> list[str]:
    """The names of the weights that constants refer to, in order."""
    values = (op.attributes["value"] for op in module.walk() if op.name == "constant")
    return list(dict.fromkeys(v.name for v in values if isinstance(v, SymbolRef)))
