"""Makes bundles that are wrong in one place and right everywhere else, hashes included."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace

from tfc.runtime import container
from tfc.runtime.container import Extent, Member
from tfc.runtime.index import Index, decode


def extents(data: bytes) -> tuple[Extent, Extent]:
    return container.parse_trailer(data[-container.TRAILER_SIZE :])


def read_index(data: bytes) -> Index:
    return decode(index_bytes(data))


def index_bytes(data: bytes) -> bytes:
    index, _ = extents(data)
    return data[index.offset : index.offset + index.size]


def with_index(data: bytes, index: bytes) -> bytes:
    """The bundle with another index.bin, everything around it made anew to fit."""
    _, old = extents(data)
    manifest = data[old.offset : old.offset + old.size]
    return with_tail(data, index, manifest)


def with_manifest(data: bytes, manifest: bytes) -> bytes:
    return with_tail(data, index_bytes(data), manifest)


def with_tail(data: bytes, index: bytes, manifest: bytes) -> bytes:
    """The bundle's members as they are, then this index and manifest, whatever they hold."""
    held = read_index(data).members
    position, headers = len(container.PREFIX), list[int]()
    members = [Member(m.name, m.offset, m.size, m.crc) for m in held]
    for member in members:
        headers.append(position)
        position = member.offset + member.size
    body, found = data[:position], list[Extent]()
    for name, content in ((container.INDEX_NAME, index), (container.MANIFEST_NAME, manifest)):
        crc = zlib.crc32(content)
        headers.append(len(body))
        body += container.local_header(len(body), name, len(content), crc)
        members.append(Member(name, len(body), len(content), crc))
        found.append(Extent(len(body), len(content), hashlib.sha256(content).digest()))
        body += content
    return body + container.directory(members, headers, container.trailer(*found))


def with_trailer(data: bytes, index: Extent, manifest: Extent) -> bytes:
    return data[: -container.TRAILER_SIZE] + container.trailer(index, manifest)


def moved(extent: Extent, offset: int | None = None, size: int | None = None) -> Extent:
    return replace(
        extent,
        offset=extent.offset if offset is None else offset,
        size=extent.size if size is None else size,
    )
