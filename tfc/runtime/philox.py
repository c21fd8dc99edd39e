"""Philox4x32-10: random numbers as a function of a counter and a key, so that any draw can be made
again.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import numpy as np

from .tensors import Array

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # what the two words of the key grow by from round to round
ROUNDS = 10
LOW = 0xFFFFFFFF
_KEPT = 2048  # draws that `Draws` makes at once


def philox4x32(counter: tuple[Array, ...], key: tuple[int, int]) -> tuple[Array, ...]:
    """The four words for each counter, whose four words are arrays of u32 of one shape."""
    x0, x1, x2, x3 = (np.asarray(word, np.uint64) for word in counter)
    low, shift = np.uint64(LOW), np.uint64(32)
    for number in range(ROUNDS):
        k0, k1 = (np.uint64((k + number * w) & LOW) for k, w in zip(key, WEYL, strict=True))
        p0, p1 = x0 * np.uint64(MULTIPLIERS[0]), x2 * np.uint64(MULTIPLIERS[1])
        x0, x1, x2, x3 = (p1 >> shift) ^ x1 ^ k0, p1 & low, (p0 >> shift) ^ x3 ^ k1, p0 & low
    return tuple(x.astype(np.uint32) for x in (x0, x1, x2, x3))


def blocks(seed: int, start: int, count: int) -> Array:
    """The words of the counters `start` to `start + count` (64 bits, wrapping): u32 of [count, 4].

    The seed is the key, of 64 bits.
    """
    first = np.uint64(start & 0xFFFFFFFFFFFFFFFF)
    with np.errstate(over="ignore"):
        counter = np.arange(count, dtype=np.uint64) + first
    zero = np.zeros(count, np.uint64)
    words = (counter & np.uint64(LOW), counter >> np.uint64(32), zero, zero)
    return np.stack(philox4x32(words, (seed & LOW, seed >> 32 & LOW)), 1)


class Draws:
    """Numbers below a bound: draw k of a seed is a function of both alone."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._start = -1
        self._bound = 0
        self._words = np.empty((0, 4), np.uint32)
        self._found: list[int] = []

    def below(self, bound: int, draw: int) -> int:
        """A number from 0 to bound - 1, where bound < 2^32; its bias is below bound / 2^64."""
        start = draw - draw % _KEPT
        if start != self._start:
            self._draw(start, bound)
        if bound == self._bound:
            return self._found[draw - start]
        low, high, _, _ = self._words[draw - start].tolist()
        return (high << 32 | low) * bound >> 64

    def row(self, bound: int, draw: int, count: int) -> list[int]:
        """`below` for `count` draws, one after another."""
        first = draw - self._start
        if bound == self._bound and first >= 0 and first + count <= len(self._found):
            return self._found[first : first + count]
        return [self.below(bound, k) for k in range(draw, draw + count)]

    def _draw(self, start: int, bound: int) -> None:
        """Makes a number of draws at once, for the bound that is likely to stay."""
        found = blocks(self._seed, start, _KEPT)
        self._start, self._bound, self._words = start, bound, found
        low, high = (found[:, i].astype(np.uint64) * np.uint64(bound) for i in (0, 1))
        upper = high + (low >> np.uint64(32))
        self._found = (upper >> np.uint64(32)).tolist()
