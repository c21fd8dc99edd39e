"""Philox4x32-10 against the known answers of the Random123 distribution, and draws by number."""

from __future__ import annotations

import numpy as np
import pytest

from tfc.runtime.philox import Draws, blocks, philox4x32

KNOWN = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(
    counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]
) -> None:
    found = philox4x32(tuple(np.array([w, w], np.uint32) for w in counter), key)
    assert [w.tolist() for w in found] == [[a, a] for a in answer]


def test_blocks_depend_on_their_number_alone() -> None:
    whole = blocks(5, 0, 100)
    np.testing.assert_array_equal(blocks(5, 40, 7), whole[40:47])
    assert (blocks(6, 0, 100) != whole).any()
    last = (1 << 64) - 1
    np.testing.assert_array_equal(blocks(5, last, 2)[1], whole[0])  # the counter wraps
    assert blocks(5, 1 << 32, 1)[0].tolist() != whole[0].tolist()


def test_draws_can_be_made_again_in_any_order() -> None:
    draws = Draws(3)
    found = [draws.below(1000, k) for k in range(600)]
    assert [Draws(3).below(1000, k) for k in (599, 3, 300)] == [found[k] for k in (599, 3, 300)]
    for bound, first, count in ((1000, 3, 40), (1000, 2040, 20), (999, 5, 3), (1000, 7, 0)):
        wanted = [Draws(3).below(bound, k) for k in range(first, first + count)]
        assert draws.row(bound, first, count) == wanted
    assert min(found) >= 0 and max(found) < 1000 and len(set(found)) > 400
    for bound in (1, 2, 3, 1 << 20, (1 << 32) - 1):  # one bound for many draws, or one for each
        varied = Draws(9)
        varied.below(7, 0)
        first = [Draws(9).below(bound, k) for k in (0, 5, 255)]
        assert [varied.below(bound, k) for k in (0, 5, 255)] == first
        words = blocks(9, 5, 1)[0].tolist()
        assert first[1] == (words[1] << 32 | words[0]) * bound >> 64
    counts = np.bincount([draws.below(7, k) for k in range(7000)], minlength=7)
    assert np.abs(counts - 1000).max() < 150
