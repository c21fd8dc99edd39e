"""Replaces a file in one step: a reader sees the old content or the new, whatever happens.

The new file has no name until it is whole, so that even a killed process leaves nothing behind.
Where the file system cannot do that, it has a temporary name, removed on errors and signals.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import BinaryIO

from tfc.ir.errors import TfcError


@contextmanager
def replaced_file(path: Path, *, executable: bool) -> Generator[BinaryIO]:
    """A file to write to that takes the place of `path` where the block ends without an error.

    Raises TfcError where it cannot be written.
    """
    if path.is_dir():
        raise TfcError(f"cannot write {path}: it is a directory")
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}")
    try:
        with _ending_signals_raised(), _new_file(temporary) as file:
            try:
                yield file
                _finish(file, temporary, path, executable)
            finally:
                with suppress(FileNotFoundError):
                    temporary.unlink()
    except OSError as error:
        raise TfcError(f"cannot write {path}: {error.strerror or error}") from error


def _new_file(temporary: Path) -> BinaryIO:
    try:
        descriptor = os.open(temporary.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except (AttributeError, OSError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        return temporary.open("xb+")
    return os.fdopen(descriptor, "wb+")


def _finish(file: BinaryIO, temporary: Path, path: Path, executable: bool) -> None:
    file.flush()
    if executable:
        mode = os.fstat(file.fileno()).st_mode & 0o666
        os.fchmod(file.fileno(), mode | (mode & 0o444) >> 2)
    os.fsync(file.fileno())
    if not temporary.exists():
        _name(file, temporary)
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _name(file: BinaryIO, temporary: Path) -> None:
    """Gives an unnamed file its name. The directory's descriptor makes Python call linkat."""
    directory = os.open(temporary.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        source = f"/proc/self/fd/{file.fileno()}"
        os.link(source, temporary.name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


@contextmanager
def _ending_signals_raised() -> Generator[None]:
    """Lets SIGTERM and SIGHUP end the process through SystemExit, so that `finally` runs.

    Signals that the program handles or ignores itself stay as they are.
    """

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    candidates = (signal.SIGTERM, signal.SIGHUP)
    changed = [s for s in candidates if signal.getsignal(s) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
