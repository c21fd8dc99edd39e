"""Writes files so that a stop half-way leaves either the old file or the new one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfc.bundle_files import replaced_file
from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    from tfc.ir.weights import Weights


def write_file(path: Path, content: str | bytes) -> None:
    """Writes a file at once."""
    write_pieces(path, [content.encode() if isinstance(content, str) else content])


def write_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Writes a file piece by piece; it takes the place of the old one when all is there."""
    with replaced_file(path, executable=False) as file:
        for piece in pieces:
            file.write(piece)


def write_safetensors(path: Path, weights: Weights, names: Sequence[str]) -> None:
    """Writes some of the weights as a safetensors file, one array in memory at a time."""
    write_pieces(path, _safetensors(weights, names))


def _safetensors(weights: Weights, names: Sequence[str]) -> Iterator[bytes]:
    header: dict[str, dict[str, object]] = {}
    end = 0
    # Larger elements first, so that each array is aligned to its elements.
    ordered = sorted(names, key=lambda name: -weights.type(name).dtype.bytes)
    for name in ordered:
        kind = weights.type(name)
        begin, end = end, end + _bytes(weights, name)
        dtype = kind.dtype.name.upper()
        shape = list(kind.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in ordered:
        yield weights.array(name).tobytes()


def _bytes(weights: Weights, name: str) -> int:
    size = weights.type(name).bytes
    assert isinstance(size, int), f"the weight @{name} has symbolic dimensions"
    return size


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, unless it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TfcError(f"cannot make the folder: {error.strerror}", where=str(path)) from error
