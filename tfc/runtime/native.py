"""Loads the machine code of a bundle, and shares one thread pool between all that are loaded.

The code goes into an anonymous file in memory (memfd_create) and from there through dlopen, so that
nothing is written to disk; where the system does not allow it, into a private temporary file.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import threading
import weakref

from . import abi
from .errors import BundleError


class Native:
    """A loaded shared object. It is unloaded when nothing refers to it any more."""

    def __init__(self, image: bytes) -> None:
        library, keep = _open_library(image)
        self._release = weakref.finalize(self, _unload, library._handle, keep)
        self._release.atexit = False  # a worker may still run in it
        code = _query(library)
        self.functions = [code.functions[i] for i in range(code.function_count)]
        self.addresses = [ctypes.addressof(function) for function in self.functions]
        held = [code.variables[i] for i in range(code.variable_count)]
        self.variables = [(variable.name, variable.bytes) for variable in held]
        self.pool, self.call = code.pool, code.call


class _Pool:
    """Whose threads the process uses: those of the first object loaded, which stays loaded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: Native | None = None

    def executor(self, candidate: Native, threads: int) -> int:
        """The address of an executor of at most `threads` threads (0: all that may be used)."""
        with self._lock:
            if self._owner is None:
                self._owner = candidate
        address = self._owner.pool(threads)
        assert address, "the pool gave no executor"
        return address


_pool = _Pool()


def executor(native: Native, threads: int) -> int:
    """The address of the process's executor; `native` becomes its owner if there is none yet."""
    if threads == 1:
        address = native.pool(1)  # has no threads, so it may come and go with its code
        assert address, "the pool gave no executor"
        return address
    return _pool.executor(native, threads)


def _query(library: ctypes.CDLL) -> abi.Code:
    try:
        query = library.tfc_bundle_query
    except AttributeError:
        raise BundleError("the bundle's code has no function tfc_bundle_query") from None
    query.restype, query.argtypes = ctypes.POINTER(abi.Code), [ctypes.c_uint32]
    answer = query(abi.ABI)
    if not answer:
        raise BundleError(f"the bundle's code does not speak ABI {abi.ABI}, as this loader does")
    return answer.contents


def _unload(handle: int, keep: int | None) -> None:
    _ctypes.dlclose(handle)
    if keep is not None:
        os.close(keep)


def _open_library(image: bytes) -> tuple[ctypes.CDLL, int | None]:
    """The library, and the file descriptor that has to stay open for as long as it is loaded."""
    try:
        descriptor = os.memfd_create("tfc-code", os.MFD_CLOEXEC)
    except (AttributeError, OSError) as error:
        return _open_from_disk(image, error), None
    try:
        _write_all(descriptor, image)
        descriptor = _unused_name(descriptor)
        return ctypes.CDLL(_path(descriptor), mode=os.RTLD_NOW | os.RTLD_LOCAL), descriptor
    except OSError as error:
        os.close(descriptor)
        return _open_from_disk(image, error), None


def _path(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _unused_name(descriptor: int) -> int:
    """A duplicate whose path no loaded library has: dlopen would return that library instead.

    That happens where other code has loaded a library through a descriptor and closed it since.
    """
    taken: list[int] = []
    while _is_loaded(_path(descriptor)):
        taken.append(descriptor)
        descriptor = os.dup(descriptor)
    for other in taken:
        os.close(other)
    return descriptor


def _is_loaded(path: str) -> bool:
    try:
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    _ctypes.dlclose(library._handle)
    return True


def _open_from_disk(image: bytes, reason: Exception) -> ctypes.CDLL:
    import tempfile  # 3 ms that only this exception pays

    try:
        with tempfile.NamedTemporaryFile(prefix="tfc-", suffix=".so") as file:
            file.write(image)
            file.flush()
            return ctypes.CDLL(file.name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise BundleError(
            f"the bundle's code cannot be loaded, neither from memory ({reason}) "
            f"nor from a temporary file ({error})"
        ) from error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
