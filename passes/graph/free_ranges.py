"""Free ranges of memory, found by size in logarithmic time."""

from __future__ import annotations

from bisect import bisect_left, insort


class FreeRanges:
    """The free ranges below `top`; neighbours are joined."""

    def __init__(self) -> None:
        self.top = 0
        self._by_size: list[tuple[int, int]] = []  # (size, start), sorted
        self._size_at: dict[int, int] = {}  # start -> size
        self._start_of_end: dict[int, int] = {}  # end -> start

    def take(self, size: int) -> int:
        """The start of a range of a size: from the smallest that holds it, else at the top."""
        index = bisect_left(self._by_size, (size, 0))
        if index < len(self._by_size):
            held, start = self._by_size[index]
            self._remove(start)
            if held > size:
                self._add(start + size, held - size)
            return start
        start = self._start_of_end.get(self.top, self.top)  # grow the range at the top, if free
        if start < self.top:
            self._remove(start)
        self.top = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Frees a range, joined with its free neighbours."""
        end = start + size
        before = self._start_of_end.get(start)
        if before is not None:
            self._remove(before)
            start = before
        if end in self._size_at:
            following = self._size_at[end]
            self._remove(end)
            end += following
        self._add(start, end - start)

    def _add(self, start: int, size: int) -> None:
        if size:
            insort(self._by_size, (size, start))
            self._size_at[start] = size
            self._start_of_end[start + size] = start

    def _remove(self, start: int) -> None:
        size = self._size_at.pop(start)
        del self._start_of_end[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]
