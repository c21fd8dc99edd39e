"""Reads and writes safetensors files, which hold named arrays and some text, with numpy alone.

A header of JSON after its length (8 bytes), then the elements. A file that is read is taken as
hostile: every size and offset is checked before it is used.

Source: the format's description in the safetensors repository.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import StateError
from .paths import read_at
from .tensors import Array, storage_dtype

MAXIMUM_HEADER = 64 << 20
MAXIMUM_RANK = 64
_ALIGNMENT = 8
_CHUNK = 16 << 20

_NAMES = {"bool": "BOOL", "bf16": "BF16"} | {
    f"{kind}{bits}": f"{kind.upper()}{bits}"
    for kind, sizes in (("f", (16, 32, 64)), ("i", (8, 16, 32, 64)), ("u", (8, 16, 32, 64)))
    for bits in sizes
}
DTYPES = {stored: name for name, stored in _NAMES.items()}
"""The format's name of an element type -> ours."""


@dataclass(frozen=True)
class Entry:
    """An array in a file: its element type by our name, its shape, where its bytes are."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True)
class Header:
    """What a file says that it holds; `start` is where the elements begin."""

    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]
    start: int


# ---- writing


def encoded(
    arrays: Mapping[str, tuple[str, Array]], metadata: Mapping[str, str]
) -> Iterator[bytes | memoryview]:
    """The parts of a file that holds arrays, each with the name of its element type.

    The larger element types come first, so that each array lies where its type is aligned.
    """
    order = sorted(arrays, key=lambda n: (-storage_dtype(arrays[n][0]).itemsize, n))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name in order:
        dtype, array = arrays[name]
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(array.shape),
            "data_offsets": [end, end + array.nbytes],
        }
        end += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in order:
        array = np.ascontiguousarray(arrays[name][1])
        if array.size:
            yield array.reshape(-1).view(np.uint8).data


def contents_hash(arrays: Mapping[str, tuple[str, Array]], metadata: Mapping[str, str]) -> str:
    """The SHA-256 of all that a file holds: metadata, names, types and elements."""
    digest = hashlib.sha256(json.dumps(sorted(metadata.items())).encode())
    for name in sorted(arrays):
        dtype, array = arrays[name]
        digest.update(json.dumps([name, dtype, list(array.shape)]).encode())
        if array.size:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


# ---- reading


def read_header(descriptor: int, size: int, what: str) -> Header:
    """The header of a file of a size; StateError where anything in it is not as it must be."""
    if size < 8:
        raise StateError(f"{what} is no safetensors file: it has {size} bytes")
    length = int.from_bytes(read_at(descriptor, 8, 0, what), "little")
    if length > min(size - 8, MAXIMUM_HEADER):
        raise StateError(f"{what} is damaged: its header would have {length} bytes")
    try:
        header = json.loads(read_at(descriptor, length, 8, what))
        metadata = header.pop("__metadata__", {})
        entries = {name: _entry(entry) for name, entry in header.items()}
        described = {str(k): v for k, v in metadata.items() if isinstance(v, str)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"{what} is damaged: its header is not as it must be: {error}") from error
    _check_extents(entries, size - 8 - length, what)
    return Header(entries, described, 8 + length)


def _entry(entry: Any) -> Entry:
    dtype = DTYPES[entry["dtype"]]
    shape = tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    for number in (*shape, begin, end):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << 62:
            raise ValueError(f"{number!r} is no size")
    if len(shape) > MAXIMUM_RANK:
        raise ValueError(f"an array of rank {len(shape)}")
    needed = math.prod(shape) * storage_dtype(dtype).itemsize
    if end - begin != needed:
        raise ValueError(f"an array has {end - begin} bytes and needs {needed}")
    return Entry(dtype, shape, begin, needed)


def _check_extents(entries: Mapping[str, Entry], size: int, what: str) -> None:
    """The arrays fill the rest of the file, one after another."""
    end = 0
    for name, entry in sorted(entries.items(), key=lambda e: (e[1].offset, e[1].size)):
        if entry.offset != end:
            raise StateError(f"{what} is damaged: {name!r} is not where it must be")
        end += entry.size
    if end != size:
        raise StateError(f"{what} is damaged: it has {size} bytes of elements, not {end}")


def read_array(descriptor: int, header: Header, name: str, what: str) -> Array:
    """A copy of an array; bf16 as its bits."""
    entry = header.entries[name]
    array = np.empty(entry.shape, storage_dtype(entry.dtype))
    flat = array.reshape(-1).view(np.uint8) if entry.size else np.empty(0, np.uint8)
    for start in range(0, entry.size, _CHUNK):
        part = min(_CHUNK, entry.size - start)
        place = header.start + entry.offset + start
        flat[start : start + part] = np.frombuffer(read_at(descriptor, part, place, what), np.uint8)
    return array


# ---- files that appear whole or not at all


def write_file(path: str, parts: Iterator[bytes | memoryview]) -> None:
    """Writes a file so that, whenever the process or the machine stops, it is whole or not there.

    The bytes go to a file beside it, which takes its place when they are on the disk.
    """
    partial = f"{path}.partial"
    folder = os.path.dirname(path)
    with open(partial, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
