"""Files mapped into memory read-only: those a user names, and those a model names beside itself."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from tfc.ir.errors import TfcError


@dataclass(frozen=True, slots=True, eq=False)
class MappedFile:
    """A file's bytes, read page by page as they are used; errors show it as `location`."""

    path: Path
    location: str
    memory: memoryview = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.memory)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` up to `stop` of a mapped file."""

    file: MappedFile
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    @property
    def memory(self) -> memoryview:
        return self.file.memory[self.start : self.stop]


def map_file(path: str | os.PathLike[str]) -> MappedFile:
    """Map a file that the user named; TfcError where that is impossible."""
    path = Path(path)
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise TfcError(f"cannot open the file: {_reason(error)}", where=str(path)) from None
    return _map_descriptor(descriptor, path, str(path))


def map_beside(folder: Path, location: str) -> MappedFile:
    """Map a file that a model names relative to its folder.

    The model is hostile. No part of the path may leave the folder or be a link: each is opened
    relative to the one before it, refusing links, so that nothing can be swapped in between.
    """
    parts = _checked_parts(location)
    where = str(folder / location)
    directory = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
    try:
        parent = os.open(folder, directory)
        for part in parts[:-1]:
            inner = _open_inside(parent, part, directory | os.O_NOFOLLOW)
            parent = inner
        descriptor = _open_inside(
            parent, parts[-1], os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        )
    except OSError as error:
        raise TfcError(f"cannot open external data: {_reason(error)}", where=where) from None
    return _map_descriptor(descriptor, folder / location, where)


def _open_inside(parent: int, part: str, flags: int) -> int:
    try:
        return os.open(part, flags, dir_fd=parent)
    finally:
        os.close(parent)


def _checked_parts(location: str) -> list[str]:
    parts = location.split("/")
    hint = "external data must lie in the model's own folder: a relative path without '..' or links"
    if "\0" in location or "\\" in location:
        raise TfcError(f"external data in {location!r}: no legal path", hint=hint)
    if location.startswith("/") or ":" in parts[0]:
        raise TfcError(f"external data in {location!r}: an absolute path", hint=hint)
    if any(part == ".." for part in parts):
        raise TfcError(f"external data in {location!r}: leaves the model's folder", hint=hint)
    parts = [part for part in parts if part not in ("", ".")]
    if not parts:
        raise TfcError(f"external data in {location!r}: names no file", hint=hint)
    return parts


def _map_descriptor(descriptor: int, path: Path, where: str) -> MappedFile:
    """Map an open file and close its descriptor."""
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise TfcError("not a regular file", where=where)
        if status.st_size == 0:  # mmap refuses empty files
            return MappedFile(path, where, memoryview(b""))
        mapped = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise TfcError(f"cannot map the file: {_reason(error)}", where=where) from None
    finally:
        os.close(descriptor)
    return MappedFile(path, where, memoryview(mapped))


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        linked = " (a link is not followed)" if error.errno in (errno.ENOTDIR, errno.ELOOP) else ""
        return error.strerror + linked
    return str(error)
