"""The bundle as a file: a zip archive whose every byte follows from its members, and its trailer.

    #!/usr/bin/env python3
    local header (padded)   member, at a multiple of 4096     for each member
    ...
    index.bin  manifest.json                                  always the last two
    zip directory, whose comment is the trailer

Writer and reader make headers and directory with the same functions, so the reader never parses the
zip structure: it makes it anew from the index and compares. Members are stored, not compressed; the
archive is a zip (APPNOTE 6.3.9) so that Python can run it and unzip can open it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

PREFIX = b"#!/usr/bin/env python3\n"
ALIGNMENT = 4096
INDEX_NAME = "index.bin"
MANIFEST_NAME = "manifest.json"

TRAILER_START = b"tfc bundle 1\n"
TRAILER_SIZE = len(TRAILER_START) + (len("index ") + len("manifest ")) + 2 * (16 + 1 + 16 + 1 + 65)

_LOCAL = struct.Struct("<IHHHHHIIIHH")
_CENTRAL = struct.Struct("<IHHHHHHIIIHHHHHII")
_END = struct.Struct("<IHHHHIIH")
_END64 = struct.Struct("<IQHHIIQQQQ")
_LOCATOR64 = struct.Struct("<IIQI")

_UTF8_NAME = 0x0800
_DATE = (1980 - 1980) << 9 | 1 << 5 | 1
_UNIX_VERSION = 3 << 8 | 45
_FILE_MODE = 0o100644 << 16
_PADDING_ID = 0xD935  # the field that Android's zipalign uses
_LARGE = 0xFFFFFFFF


@dataclass(frozen=True)
class Member:
    """One file of the archive; `offset` is that of its first byte in the bundle."""

    name: str
    offset: int
    size: int
    crc: int


@dataclass(frozen=True)
class Extent:
    """Where a member lies and what its bytes hash to, as the trailer says it."""

    offset: int
    size: int
    sha256: bytes


def local_header(position: int, name: str, size: int, crc: int) -> bytes:
    """The header that starts at `position`, padded so that the member after it is aligned."""
    encoded = name.encode()
    extra = struct.pack("<HHQQ", 1, 16, size, size) if size >= _LARGE else b""
    end = position + _LOCAL.size + len(encoded) + len(extra)
    padding = -end % ALIGNMENT
    if 0 < padding < 6:
        padding += ALIGNMENT
    if padding:
        extra += struct.pack("<HHH", _PADDING_ID, padding - 4, ALIGNMENT) + bytes(padding - 6)
    shown = min(size, _LARGE)
    fixed = (0x04034B50, 45, _UTF8_NAME, 0, 0, _DATE, crc, shown, shown, len(encoded), len(extra))
    return _LOCAL.pack(*fixed) + encoded + extra


def directory(members: Sequence[Member], headers: Sequence[int], trailer: bytes) -> bytes:
    """What follows the last member: the zip directory and the trailer as its comment.

    `headers` are the positions of the members' local headers.
    """
    start = members[-1].offset + members[-1].size
    entries = b"".join(map(_central_entry, members, headers))
    count, size = len(members), len(entries)
    end64 = b""
    if start >= _LARGE:
        end64 = _END64.pack(0x06064B50, 44, _UNIX_VERSION, 45, 0, 0, count, count, size, start)
        end64 += _LOCATOR64.pack(0x07064B50, 0, start + size, 1)
    shown = min(start, _LARGE)
    end = _END.pack(0x06054B50, 0, 0, count, count, size, shown, len(trailer))
    return entries + end64 + end + trailer


def _central_entry(member: Member, header: int) -> bytes:
    large = b""
    if member.size >= _LARGE:
        large += struct.pack("<QQ", member.size, member.size)
    if header >= _LARGE:
        large += struct.pack("<Q", header)
    extra = struct.pack("<HH", 1, len(large)) + large if large else b""
    encoded, shown = member.name.encode(), min(member.size, _LARGE)
    fixed = (0x02014B50, _UNIX_VERSION, 45, _UTF8_NAME, 0, 0, _DATE, member.crc, shown, shown)
    lengths = (len(encoded), len(extra), 0, 0, 0)
    return _CENTRAL.pack(*fixed, *lengths, _FILE_MODE, min(header, _LARGE)) + encoded + extra


def trailer(index: Extent, manifest: Extent) -> bytes:
    """The file's last TRAILER_SIZE bytes: where index and manifest lie, and their hashes."""
    lines = (f"index {_extent_text(index)}\n", f"manifest {_extent_text(manifest)}\n")
    return TRAILER_START + "".join(lines).encode()


def parse_trailer(text: bytes) -> tuple[Extent, Extent]:
    """Index and manifest. Raises ValueError where `text` is not exactly what `trailer` makes."""
    lines = text[len(TRAILER_START) :].decode("ascii").splitlines()
    fields = [line.split(" ") for line in lines]
    extents = [Extent(int(f[1], 16), int(f[2], 16), bytes.fromhex(f[3])) for f in fields]
    index, manifest = extents
    if trailer(index, manifest) != text:
        raise ValueError("not a trailer")
    return index, manifest


def _extent_text(extent: Extent) -> str:
    return f"{extent.offset:016x} {extent.size:016x} {extent.sha256.hex()}"
