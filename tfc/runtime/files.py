"""The elements in files of data: `.npy`, safetensors, TFRecord. All are taken as hostile.

A format opens a file as a `Rows`: elements in order, read from a place on. A place is a row, or an
offset in a TFRecord.
"""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import numpy as np

from .crc32c import masked_crc32c, masked_rows
from .errors import StateError
from .host import OutputType
from .paths import opened, read_at
from .safetensors import read_header
from .tensors import Array, storage_dtype

Columns: TypeAlias = "tuple[Array, ...]"
"""Some elements: for each component an array, along whose axis 0 they lie."""

MAXIMUM_NPY_HEADER = 1 << 16
CHUNK_BYTES = 1 << 18  # about so much is read at once


class Rows(Protocol):
    """An open file of elements."""

    def read(self, place: int) -> Iterator[tuple[Columns, range]]:
        """The elements from a place on, some at a time, with the places behind each of them."""
        ...

    def close(self) -> None: ...


def _values(data: bytes, dtype: np.dtype[Any]) -> Array:
    """Elements from their bytes; a bool is true where its byte is not 0."""
    if dtype == np.bool_:
        return np.frombuffer(data, np.uint8) != 0
    return np.frombuffer(data, dtype)


class Table:
    """Rows of one component in a file: a dense array of [count, *shape] at an offset."""

    def __init__(self, folder: str, path: str, kind: OutputType, what: str) -> None:
        self.what = f"{what}: {path!r}"
        self.kind = kind
        self.dtype = storage_dtype(kind.dtype)
        self.row_bytes = math.prod(kind.shape) * self.dtype.itemsize
        self.descriptor, self.size = opened(folder, path, what)
        self.count = 0
        self.offset = 0

    def found(self, dtype: str, shape: Sequence[int], offset: int) -> None:
        """Takes what a header says, which has to be rows of the declared type."""
        wanted = f"{self.kind.dtype}{[None, *self.kind.shape]}".replace("None", "any number")
        if dtype != self.kind.dtype or not shape or tuple(shape[1:]) != self.kind.shape:
            raise StateError(f"{self.what} holds {dtype}{list(shape)}, not {wanted}")
        self.count, self.offset = shape[0], offset
        if self.count * self.row_bytes > self.size - offset:
            raise StateError(f"{self.what} is too short for {dtype}{list(shape)}")

    def rows(self, start: int, stop: int) -> Array:
        """The elements of some rows."""
        size, place = (stop - start) * self.row_bytes, self.offset + start * self.row_bytes
        data = read_at(self.descriptor, size, place, self.what) if size else b""
        return _values(data, self.dtype).reshape(stop - start, *self.kind.shape)

    def close(self) -> None:
        os.close(self.descriptor)


class Tables:
    """Rows of several components, each from a table; all have as many."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables = tables
        self.count = tables[0].count
        for table in tables:
            if table.count != self.count:
                first = f"{tables[0].what} has {self.count}"
                raise StateError(f"{table.what} has {table.count} rows, {first}")

    def read(self, place: int) -> Iterator[tuple[Columns, range]]:
        step = max(1, CHUNK_BYTES // max(1, sum(t.row_bytes for t in self._tables)))
        for start in range(place, self.count, step):
            stop = min(self.count, start + step)
            columns = tuple(table.rows(start, stop) for table in self._tables)
            yield columns, range(start + 1, stop + 1)

    def close(self) -> None:
        for table in self._tables:
            table.close()


# ---- npy


def open_npy(folder: str, path: str, kind: OutputType, what: str) -> Table:
    """An array in a `.npy` file, of version 1, 2 or 3 (numpy.lib.format)."""
    table = Table(folder, path, kind, what)
    try:
        start = read_at(table.descriptor, min(table.size, 12), 0, table.what)
        if len(start) < 12 or start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
            raise StateError(f"{table.what} is no .npy file")
        width = 2 if start[6] == 1 else 4
        length = int.from_bytes(start[8 : 8 + width], "little")
        if length > min(MAXIMUM_NPY_HEADER, table.size - 8 - width):
            raise StateError(f"{table.what} is damaged: its header would have {length} bytes")
        text = read_at(table.descriptor, length, 8 + width, table.what)
        dtype, shape = _npy_header(text, table.what)
        table.found(dtype, shape, 8 + width + length)
    except BaseException:
        table.close()
        raise
    return table


def _npy_header(text: bytes, what: str) -> tuple[str, tuple[int, ...]]:
    try:
        header = ast.literal_eval(text.decode("utf-8"))
        described, fortran, shape = (header[k] for k in ("descr", "fortran_order", "shape"))
        sizes = tuple(shape)
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise StateError(f"{what} is damaged: its header is not as it must be") from error
    for size in sizes:
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 62:
            raise StateError(f"{what} is damaged: {size!r} is no size")
    if fortran and len(sizes) > 1:
        raise StateError(f"{what} is in Fortran order: write it in C order")
    return _npy_dtype(described, what), sizes


def _npy_dtype(described: Any, what: str) -> str:
    """Our name of an element type; bf16 is written as bytes without meaning ("V2")."""
    text = described if isinstance(described, str) else ""
    if text[1:] == "V2":
        return "bf16"
    known = {"b1": "bool"} | {f"{k}{n}": f"{k}{8 * n}" for k in "iu" for n in (1, 2, 4, 8)}
    known |= {f"f{n}": f"f{8 * n}" for n in (2, 4, 8)}
    if text[:1] not in ("<", "|", "=") or text[1:] not in known:
        raise StateError(f"{what} holds elements of the type {described!r}, which is not supported")
    return known[text[1:]]


def open_npys(folder: str, paths: Sequence[str], kinds: Sequence[OutputType], what: str) -> Tables:
    """One `.npy` file a component."""
    pairs = zip(paths, kinds, strict=True)
    return _tables(partial(open_npy, folder, path, kind, what) for path, kind in pairs)


def _tables(makers: Iterable[Callable[[], Table]]) -> Tables:
    """The tables, all or none of which are open."""
    tables: list[Table] = []
    try:
        tables.extend(make() for make in makers)
        return Tables(tables)
    except BaseException:
        for table in tables:
            table.close()
        raise


# ---- safetensors


def open_safetensors(
    folder: str, path: str, names: Sequence[str], kinds: Sequence[OutputType], what: str
) -> Tables:
    """One array of the file a component, by name."""

    def opened_table(name: str, kind: OutputType) -> Table:
        table = Table(folder, path, kind, what)
        try:
            header = read_header(table.descriptor, table.size, table.what)
            entry = header.entries.get(name)
            if entry is None:
                raise StateError(f"{table.what} holds no array {name!r}")
            table.found(entry.dtype, entry.shape, header.start + entry.offset)
        except BaseException:
            table.close()
            raise
        return table

    pairs = zip(names, kinds, strict=True)
    return _tables(partial(opened_table, name, kind) for name, kind in pairs)


# ---- TFRecord


class Records:
    """A TFRecord file; a record is the bytes of the components, one after another.

    A record: its length (8 bytes), the masked CRC-32C of these, the data, the masked CRC-32C of
    the data. Source: TensorFlow, tensorflow/core/lib/io/record_writer.h.
    """

    def __init__(self, folder: str, path: str, kinds: Sequence[OutputType], what: str) -> None:
        self._what = f"{what}: {path!r}"
        self._kinds = kinds
        sizes = [math.prod(k.shape) * storage_dtype(k.dtype).itemsize for k in kinds]
        self._ends = np.cumsum(sizes).tolist()
        self._descriptor, self._size = opened(folder, path, what)

    def read(self, place: int) -> Iterator[tuple[Columns, range]]:
        room = self._ends[-1] + 16
        count = max(1, CHUNK_BYTES // room)
        while place < self._size:
            size = min(room * count, self._size - place)
            data = read_at(self._descriptor, size, place, self._what)
            records = np.frombuffer(data[: size - size % room], np.uint8).reshape(-1, room)
            good = self._good(records)
            if good:
                end = place + good * room
                yield self._columns(records[:good, 12:-4]), range(place + room, end + 1, room)
            if good * room < size:
                raise self._error(data[good * room :][:room], place + good * room)
            place += size

    def _good(self, records: Array) -> int:
        """How many records, from the first on, are as they must be."""
        lengths = records[:, :8].copy().view("<u8")[:, 0] == self._ends[-1]
        headers = masked_rows(records[:, :8]) == records[:, 8:12].copy().view("<u4")[:, 0]
        contents = masked_rows(records[:, 12:-4]) == records[:, -4:].copy().view("<u4")[:, 0]
        bad = ~(lengths & headers & contents)
        return int(bad.argmax()) if bad.any() else len(records)

    def _columns(self, data: Array) -> Columns:
        starts = [0, *self._ends[:-1]]
        return tuple(
            _values(data[:, start:end].tobytes(), storage_dtype(k.dtype)).reshape(-1, *k.shape)
            for start, end, k in zip(starts, self._ends, self._kinds, strict=True)
        )

    def _error(self, data: bytes, place: int) -> StateError:
        """What is wrong with the record at a place."""
        where = f"{self._what}: the record at byte {place}"
        if len(data) < 12 or masked_crc32c(data[:8]) != int.from_bytes(data[8:12], "little"):
            return StateError(f"{where} is damaged: the check of its length fails")
        size, wanted = int.from_bytes(data[:8], "little"), self._ends[-1]
        if size != wanted:
            return StateError(f"{where} has {size} bytes, an element has {wanted}")
        if len(data) < wanted + 16:
            return StateError(f"{where} ends too early")
        return StateError(f"{where} is damaged: the check of its data fails")

    def close(self) -> None:
        os.close(self._descriptor)
