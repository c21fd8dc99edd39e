"""Arrays next to inaccessible pages: an access outside of one crashes the test."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_libc = ctypes.CDLL(None, use_errno=True)
_PAGE = mmap.PAGESIZE


class GuardedArray:
    """A copy of an array between two inaccessible pages, at one end of the room between them."""

    def __init__(self, source: Array, *, at_end: bool) -> None:
        size = source.nbytes
        room = max(_PAGE, -(-size // _PAGE) * _PAGE)
        self._memory = mmap.mmap(-1, room + 2 * _PAGE)
        self._view = (ctypes.c_char * (room + 2 * _PAGE)).from_buffer(self._memory)
        base = ctypes.addressof(self._view)
        for start in (base, base + _PAGE + room):
            assert _libc.mprotect(ctypes.c_void_p(start), _PAGE, mmap.PROT_READ * 0) == 0
        self._room = np.frombuffer(self._memory, np.uint8, room, _PAGE)
        self._room[:] = 0xA5
        self._start = room - size if at_end else 0
        self._size = size
        part = self._room[self._start : self._start + size]
        self.array = part.view(source.dtype) if size else np.zeros(0, source.dtype)
        self.array[:] = source

    def assert_surroundings_untouched(self) -> None:
        outside = np.delete(self._room, np.s_[self._start : self._start + self._size])
        assert (outside == 0xA5).all(), "something was written beside the array"
