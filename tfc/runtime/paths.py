"""Files that a graph names: relative to a folder that the caller gives, and never outside of it."""

from __future__ import annotations

import glob
import os
import stat

from .errors import StateError

MOST_FILES = 100_000


def root(folder: str | None, what: str) -> str:
    """The folder of a state, without links; StateError where the caller gave none."""
    if folder is None:
        raise StateError(f"{what} needs a folder, and none was given for files")
    return os.path.realpath(folder)


def check_relative(path: str, what: str) -> None:
    """Refuses a path, or a pattern of them, that leads out of the folder."""
    parts = path.split("/")
    if not path or "\0" in path or path.startswith("/") or ".." in parts:
        raise StateError(f"{what}: the path {path!r} is not below the folder of files")


def inside(folder: str, path: str, what: str) -> str:
    """The full path of a relative one; StateError where a link leads out of the folder."""
    check_relative(path, what)
    full = os.path.realpath(os.path.join(folder, path))
    if os.path.commonpath([full, folder]) != folder:
        raise StateError(f"{what}: {path!r} leads out of the folder of files")
    return full


def matching(folder: str, pattern: str, what: str) -> list[str]:
    """The files that a pattern names, relative, sorted; StateError where there are none."""
    check_relative(pattern, what)
    names: list[str] = []
    for name in glob.iglob(pattern, root_dir=folder, recursive=True):
        if os.path.isfile(os.path.join(folder, name)):
            names.append(name)
        if len(names) > MOST_FILES:
            raise StateError(f"{what}: {pattern!r} names more than {MOST_FILES} files")
    if not names:
        raise StateError(f"{what}: no file is named {pattern!r}")
    return sorted(names)


def opened(folder: str, path: str, what: str) -> tuple[int, int]:
    """A descriptor of a regular file of the folder, and its size."""
    full = inside(folder, path, what)
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
        descriptor = os.open(full, flags)
    except OSError as error:
        raise StateError(f"{what}: cannot open {path!r}: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise StateError(f"{what}: {path!r} is no file")
    return descriptor, status.st_size


def read_at(descriptor: int, size: int, offset: int, what: str) -> bytes:
    """So many bytes from a place of a file; StateError where it has become shorter."""
    parts: list[bytes] = []
    while size:
        part = os.pread(descriptor, size, offset)
        if not part:
            raise StateError(f"{what} ends too early")
        parts.append(part)
        size -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
