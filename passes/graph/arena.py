"""Places intervals of memory in one arena: a pure function, used by the pass `memory-planning`.

Sizes may be symbolic. Those that are whole multiples of one expression form a class, within which
places are found as for plain integers (`best_fit`); a class is cut where nothing of it is live, and
such pieces of different classes share memory when they are live at different times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tfc.ir.expr import Dim, Expr, as_expr, ceildiv, is_nonnegative, normal

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
USUAL_SIZE = 128  # what a symbol is taken for where only an order of magnitude is needed
BEST_FIT_LIMIT = 4096  # beyond so many intervals, placing largest first would take too long

Interval: TypeAlias = "tuple[int, int, Dim]"
"""First and last time at which the memory is live, both included, and its size in bytes."""


def plan(intervals: Sequence[Interval]) -> tuple[list[Dim], Dim]:
    """The offset of each interval, and the size of the arena, in bytes; all multiples of 64.

    Intervals that share a time never share a byte.
    """
    offsets: list[Dim] = [0] * len(intervals)
    slots: list[_Slot] = []
    pieces = sorted(_pieces(intervals), key=lambda p: (-nominal(p.size), p.start))
    for piece in pieces:
        slot = _slot_for(piece, slots)
        slot.size = _larger(slot.size, piece.size)
        slot.pieces.append(piece)
    base: Dim = 0
    for slot in slots:
        for piece in slot.pieces:
            for index, units in piece.places.items():
                offsets[index] = normal(as_expr(base) + piece.unit * units)
        base = normal(as_expr(base) + slot.size)
    return offsets, base


def peak(intervals: Sequence[Interval]) -> int:
    """The most bytes that are live at one time; symbols count as their usual size."""
    change: dict[int, int] = {}
    for start, end, size in intervals:
        bytes = nominal(aligned(size))
        change[start] = change.get(start, 0) + bytes
        change[end + 1] = change.get(end + 1, 0) - bytes
    live = most = 0
    for time in sorted(change):
        live += change[time]
        most = max(most, live)
    return most


def aligned(size: Dim) -> Dim:
    """A size rounded up to the alignment."""
    return normal(ceildiv(size, ALIGNMENT) * ALIGNMENT)


def nominal(size: Dim) -> int:
    """A size with every symbol at its usual size."""
    e = as_expr(size)
    return e.evaluate(dict.fromkeys(e.symbols(), USUAL_SIZE))


# ---- classes of sizes and their pieces


@dataclass
class _Piece:
    """Intervals of one class, live in one unbroken time; `places` are offsets in units."""

    unit: Expr
    start: int
    end: int
    places: dict[int, int] = field(default_factory=dict[int, int])
    units: int = 0

    @property
    def size(self) -> Dim:
        return normal(self.unit * self.units)


def _pieces(intervals: Sequence[Interval]) -> list[_Piece]:
    classes: dict[Expr, list[tuple[int, int]]] = {}  # unit -> (index, number of units)
    for index, (_, _, size) in enumerate(intervals):
        units, unit = _units(aligned(size))
        if units:
            classes.setdefault(unit, []).append((index, units))
    pieces: list[_Piece] = []
    for unit, members in classes.items():
        members.sort(key=lambda m: intervals[m[0]][0])
        group: list[tuple[int, int]] = []
        end = -1
        for member in members:
            start, last, _ = intervals[member[0]]
            if group and start > end:
                pieces.append(_place(unit, group, intervals))
                group = []
            group.append(member)
            end = max(end, last) if len(group) > 1 else last
        pieces.append(_place(unit, group, intervals))
    return pieces


def _units(size: Dim) -> tuple[int, Expr]:
    """A size as a count of a unit: the expression without its content; 64 bytes if static."""
    if isinstance(size, int):
        return size // ALIGNMENT, as_expr(ALIGNMENT)
    content = math.gcd(*size.terms.values())
    if content % ALIGNMENT == 0:  # the unit keeps the alignment
        return content // ALIGNMENT, size // (content // ALIGNMENT)
    return 1, size


def _place(unit: Expr, group: list[tuple[int, int]], intervals: Sequence[Interval]) -> _Piece:
    times = [(*intervals[index][:2], units) for index, units in group]
    offsets, total = best_fit(times)
    start, end = min(t[0] for t in times), max(t[1] for t in times)
    places = {index: offset for (index, _), offset in zip(group, offsets, strict=True)}
    return _Piece(unit, start, end, places, total)


# ---- sharing between classes


@dataclass
class _Slot:
    """A range of the arena, as large as the largest of its pieces, which live one by one."""

    size: Dim = 0
    pieces: list[_Piece] = field(default_factory=list[_Piece])

    def is_free(self, piece: _Piece) -> bool:
        return all(p.end < piece.start or piece.end < p.start for p in self.pieces)


def _slot_for(piece: _Piece, slots: list[_Slot]) -> _Slot:
    """The free slot that fits best, or a new one. Larger pieces come first: few slots grow."""
    free = [s for s in slots if s.is_free(piece)]
    if free:
        return min(free, key=lambda s: nominal(s.size))
    slots.append(_Slot())
    return slots[-1]


def _larger(a: Dim, b: Dim) -> Dim:
    if is_nonnegative(as_expr(a) - b):
        return a
    return b if is_nonnegative(as_expr(b) - a) else normal(as_expr(a).max(b))


# ---- integers


def best_fit(times: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Offsets for (start, end, size) intervals and the total: the better of two greedy orders."""
    in_time = _first_fit_in_time(times)
    if len(times) > BEST_FIT_LIMIT:
        return in_time
    return min(in_time, _best_fit_by_size(times), key=lambda found: found[1])


def _best_fit_by_size(times: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Largest first, each into the smallest gap that holds it (arXiv 2001.03288)."""
    starts, ends, sizes = (np.array([t[i] for t in times], np.int64) for i in range(3))
    offsets = np.zeros(len(times), np.int64)
    placed = np.zeros(len(times), np.bool_)
    for i in sorted(range(len(times)), key=lambda i: (-times[i][2], times[i][0])):
        (near,) = np.nonzero(placed & (starts <= ends[i]) & (ends >= starts[i]))
        near = near[np.argsort(offsets[near], kind="stable")]
        offsets[i] = _smallest_gap(offsets[near].tolist(), sizes[near].tolist(), times[i][2])
        placed[i] = True
    return offsets.tolist(), int(np.max(offsets + sizes, initial=0))


def _smallest_gap(offsets: list[int], sizes: list[int], size: int) -> int:
    """Where a size fits between ranges sorted by offset: the smallest gap, or the end."""
    best, best_gap, top = -1, 0, 0
    for offset, taken in zip(offsets, sizes, strict=True):
        gap = offset - top
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = top, gap
        top = max(top, offset + taken)
    return best if best >= 0 else top


def _first_fit_in_time(times: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """In the order of time, each into the smallest free range that holds it."""
    from tfc.passes.graph.free_ranges import FreeRanges

    free = FreeRanges()
    offsets = [0] * len(times)
    events = sorted(
        (t, kind, i) for i, s in enumerate(times) for t, kind in ((s[0], 1), (s[1] + 1, 0))
    )
    for _, begins, i in events:
        if begins:
            offsets[i] = free.take(times[i][2])
        else:
            free.give(offsets[i], times[i][2])
    return offsets, free.top
