"""Writes modules as text, with the weights that no file holds yet beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tfc.ir.core import Module, SymbolRef


def save_module(module: Module, path: Path, from_file: Sequence[str] = ()) -> None:
    """Writes the text, and beside it a safetensors file if it needs weights that no file has.

    `from_file` are the names of the weights in the file that the module names.
    """
    from tfc.report.files import write_file, write_safetensors
    from tfc.text import print_module

    names = referenced_weights(module)
    if not names:
        module.weights.file = ""
    elif not (set(names) <= set(from_file) and (path.parent / module.weights.file).is_file()):
        file = path.with_suffix(".safetensors")
        write_safetensors(file, module.weights, names)
        module.weights.file = file.name
    write_file(path, print_module(module))


def referenced_weights(module: Module) -> list[str]:
    """The names of the weights that constants refer to, in order."""
    values = (op.attributes["value"] for op in module.walk() if op.name == "constant")
    return list(dict.fromkeys(v.name for v in values if isinstance(v, SymbolRef)))
