"""Compiled code on disk, found by its content: text, target, options and versions.

Entries are written whole under a temporary name and then renamed, so that processes can share a
cache. An entry that is damaged is removed and counts as absent. Where the folder cannot be
written there is no cache: it only saves time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"tfc-cache-1\n"
_DIGEST = 32
DEFAULT_LIMIT = 1 << 30
"""Bytes that a cache keeps; beyond them the entries that were used longest ago go."""


def default_directory() -> Path | None:
    """$TFC_CACHE_DIR, or `tfc` in the user's cache folder; None where TFC_CACHE_DIR is empty."""
    chosen = os.environ.get("TFC_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tfc"


@dataclass
class Cache:
    """A folder of entries; `directory` None keeps nothing."""

    directory: Path | None
    limit: int = DEFAULT_LIMIT
    hits: int = 0
    misses: int = 0
    _written: int = 0

    @staticmethod
    def default() -> Cache:
        return Cache(default_directory())

    def get(self, key: str) -> bytes | None:
        """The content under a key, or None."""
        found = self._read(self._path(key)) if self.directory else None
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def put(self, key: str, content: bytes) -> None:
        """Keeps the content under a key."""
        if self.directory is None:
            return
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_MAGIC + hashlib.sha256(content).digest() + content)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
        except OSError:
            self.directory = None
            return
        self._written += len(content)
        if self._written > self.limit // 16:
            self.trim()

    def trim(self) -> None:
        """Removes what was used longest ago until a tenth of the limit is free."""
        self._written = 0
        if self.directory is None:
            return
        entries: list[tuple[float, int, Path]] = []
        for path in self.directory.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries):
            if total <= self.limit * 9 // 10:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size

    def _path(self, key: str) -> Path:
        assert self.directory is not None
        return self.directory / key[:2] / key[2:]

    def _read(self, path: Path) -> bytes | None:
        try:
            data = path.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST
        content = data[start:]
        digest = data[len(_MAGIC) : start]
        if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(content).digest() != digest:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was used now
        return content


def key_of(*parts: str) -> str:
    """The key of what these texts determine."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
