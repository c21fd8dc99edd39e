"""Protocol buffers' wire format, walked in a mapped file without copying what it holds.

The bytes are hostile: every length and number is bounded before it is used, and each error names
the file and the byte. A message is read by a schema, field number -> `Field`, and other fields are
skipped.
Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from tfc.importers.mapped_file import MappedFile, Span
from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    import numpy as np

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)
WIRE_NAMES = ("varint", "64-bit", "length-delimited", "group", "end-of-group", "32-bit")
MAX_GROUPS = 32  # how deep unknown groups may nest


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message.

    `kind` is "int" (int32, int64, enum), "float" (32 bits), "text" (UTF-8), "span" (where bytes or
    a message lie) or "data" (a tensor's numbers, which stay where they are and are only counted).
    """

    name: str
    kind: str
    repeated: bool = False


Schema = Mapping[int, Field]
WIRE_OF_KIND = {"int": VARINT, "float": FIXED32, "text": BYTES, "span": BYTES}


@dataclass(frozen=True, slots=True)
class Message:
    """The fields found in one message; absent ones read as their default."""

    span: Span
    values: dict[str, list[Any]]

    def has(self, name: str) -> bool:
        return name in self.values

    def int(self, name: str, default: int = 0) -> int:
        return self.values[name][-1] if name in self.values else default

    def ints(self, name: str) -> tuple[int, ...]:
        return tuple(self.values.get(name, ()))

    def float(self, name: str) -> float:
        return self.values[name][-1] if name in self.values else 0.0

    def floats(self, name: str) -> tuple[float, ...]:
        return tuple(self.values.get(name, ()))

    def text(self, name: str) -> str:
        return self.values[name][-1] if name in self.values else ""

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self.values.get(name, ()))

    def inner(self, name: str) -> Span | None:
        """The one message or byte string of that name."""
        return self.values[name][-1] if name in self.values else None

    def inners(self, name: str) -> list[Span]:
        return self.values.get(name, [])

    def error(self, what: str) -> TfcError:
        return error_at(self.span.file, self.span.start, what)


def error_at(file: MappedFile, at: int, what: str) -> TfcError:
    return TfcError(f"at byte {at}: {what}", where=file.location)


def fields(span: Span) -> Iterator[tuple[int, int, int, int]]:
    """The fields of a message: (number, wire type, a, b).

    For a varint, a is its value as unsigned 64 bits and b the byte after it; else a and b bound the
    bytes. Groups, an old form of messages that ONNX does not use, are skipped.
    """
    file, at, end = span.file, span.start, span.stop
    memory = file.memory
    while at < end:
        start = at
        tag, at = varint(file, at, end)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 1 << 29:
            raise error_at(file, start, f"field number {number} is not legal")
        if wire == VARINT:
            if at < end and memory[at] < 0x80:  # the common case, without a call
                yield number, wire, memory[at], at + 1
                at += 1
            else:
                value, at = varint(file, at, end)
                yield number, wire, value, at
        elif wire == GROUP:
            at = _skip_group(file, number, at, end)
        else:
            at, stop = _payload(file, wire, at, end)
            yield number, wire, at, stop
            at = stop


def varint(file: MappedFile, at: int, end: int) -> tuple[int, int]:
    """The unsigned number at a byte, and the byte after it."""
    memory, start = file.memory, at
    value = shift = 0
    while at < end:
        byte = memory[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
        shift += 7
        if shift > 63:
            break
    else:
        raise error_at(file, start, "the data ends inside a number")
    raise error_at(file, start, "a number has more than 64 bits")


def _payload(file: MappedFile, wire: int, at: int, end: int) -> tuple[int, int]:
    """Where the bytes of a field that is no varint lie."""
    start = at
    if wire == BYTES:
        size, at = varint(file, at, end)
    elif wire in (FIXED32, FIXED64):
        size = 4 if wire == FIXED32 else 8
    else:
        raise error_at(file, at, f"wire type {wire} is not legal here")
    if size > end - at:
        raise error_at(file, start, f"a field of {size} bytes, but only {end - at} are left")
    return at, at + size


def _skip_group(file: MappedFile, number: int, at: int, end: int) -> int:
    """The byte after a group."""
    open_groups = [number]
    while open_groups:
        tag, at = varint(file, at, end)
        inner, wire = tag >> 3, tag & 7
        if wire == VARINT:
            _, at = varint(file, at, end)
        elif wire == GROUP:
            open_groups.append(inner)
            if len(open_groups) > MAX_GROUPS:
                raise error_at(file, at, f"groups nest deeper than {MAX_GROUPS}")
        elif wire == END_GROUP:
            if open_groups.pop() != inner:
                raise error_at(file, at, "a group ends that was not begun")
        else:
            _, at = _payload(file, wire, at, end)
    return at


def read(span: Span, schema: Schema) -> Message:
    """The fields of a message that the schema knows."""
    values: dict[str, list[Any]] = {}
    file = span.file
    for number, wire, a, b in fields(span):
        field = schema.get(number)
        if field is None:
            continue
        found = values.setdefault(field.name, [])
        kind = field.kind
        if kind == "data":
            found.append(Span(file, a, b) if wire == BYTES else None)
        elif wire != WIRE_OF_KIND[kind]:
            if wire != BYTES or not field.repeated or kind not in ("int", "float"):
                _wrong_wire(file, a if wire != VARINT else b, field, wire)
            found.extend(_packed(Span(file, a, b), kind))
        elif kind == "int":
            found.append(signed(a))
        elif kind == "float":
            found.append(struct.unpack_from("<f", file.memory, a)[0])
        elif kind == "text":
            found.append(text(Span(file, a, b)))
        elif found and not field.repeated:
            # Protocol buffers would merge the two; no ONNX writer makes such a file.
            raise error_at(file, a, f"field {field.name!r} is given twice")
        else:
            found.append(Span(file, a, b))
    return Message(span, values)


def _wrong_wire(file: MappedFile, at: int, field: Field, wire: int) -> NoReturn:
    wanted = WIRE_NAMES[WIRE_OF_KIND[field.kind]]
    raise error_at(file, at, f"field {field.name!r} comes as {WIRE_NAMES[wire]}, not as {wanted}")


def _packed(span: Span, kind: str) -> list[int] | list[float]:
    if kind == "float":
        return fixed(span, "<f4").tolist()
    return varints(span).view("<i8").tolist()


def signed(value: int) -> int:
    """An unsigned number of 64 bits as int64."""
    return value - (1 << 64) if value >> 63 else value


def text(span: Span) -> str:
    try:
        return str(span.memory, "utf-8")
    except UnicodeDecodeError:
        raise error_at(span.file, span.start, "a string is not UTF-8") from None


def fixed(span: Span, dtype: str) -> np.ndarray:
    """Packed 32- or 64-bit numbers, as a read-only view of the file."""
    import numpy as np

    if span.size % np.dtype(dtype).itemsize:
        raise error_at(
            span.file, span.start, f"{span.size} bytes hold no whole {dtype[1:]} numbers"
        )
    return np.frombuffer(span.memory, dtype)


def varints(span: Span) -> np.ndarray:
    """Packed varints as uint64, decoded column by column: the k-th byte of all of them at once."""
    import numpy as np

    data = np.frombuffer(span.memory, np.uint8)
    ends = np.flatnonzero(data < 0x80) + 1
    if (ends[-1] if len(ends) else 0) != len(data):
        raise error_at(span.file, span.stop, "the data ends inside a number")
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    sizes = ends - starts
    longest = int(sizes.max(initial=0))
    if longest > 10 or (longest == 10 and (data[starts[sizes == 10] + 9] > 1).any()):
        raise error_at(span.file, span.start, "a number has more than 64 bits")
    values = np.zeros(len(ends), np.uint64)
    for k in range(longest):
        there = np.flatnonzero(sizes > k)
        values[there] |= (data[starts[there] + k] & 0x7F).astype(np.uint64) << np.uint64(7 * k)
    return values


def numbers(span: Span, number: int, wire: int) -> np.ndarray:
    """All numbers of a repeated field of a message, packed or not; `wire` is how single ones come.

    Varints come as uint64, others as f4 or f8. Walks the message again: `read` only counted them.
    """
    import numpy as np

    dtype = {VARINT: "<u8", FIXED32: "<f4", FIXED64: "<f8"}[wire]
    parts: list[np.ndarray] = []
    single: list[int] = []
    singles = bytearray()

    def close_singles() -> None:
        if single:
            parts.append(np.array(single, np.uint64))
            single.clear()
        if singles:
            parts.append(np.frombuffer(bytes(singles), dtype))
            singles.clear()

    for found, found_wire, a, b in fields(span):
        if found != number:
            continue
        if found_wire == BYTES:
            close_singles()
            packed = Span(span.file, a, b)
            parts.append(varints(packed) if wire == VARINT else fixed(packed, dtype))
        elif found_wire != wire:
            raise error_at(span.file, span.start, f"numbers come as {WIRE_NAMES[found_wire]}")
        elif wire == VARINT:
            single.append(a)
        else:
            singles += span.file.memory[a:b]
    close_singles()
    return parts[0] if len(parts) == 1 else np.concatenate([np.zeros(0, dtype), *parts])
