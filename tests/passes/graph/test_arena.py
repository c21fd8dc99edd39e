"""The planner of arenas: no two live intervals share a byte, whatever the symbols are."""

from __future__ import annotations

import random
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tfc.ir.expr import Dim, as_expr, ceildiv, symbol
from tfc.passes.graph.arena import Interval, best_fit, peak, plan

S, T = symbol("S"), symbol("T")
SIZES: list[Dim] = [
    *(0, 1, 64, 100, 4096, S * 4, S * 256, S * 1024, S * T * 4, (S + 1) * 128),
    *(ceildiv(S, 2) * 64, S.min(512) * 4, S * T * 256 + 64),
]

interval = st.tuples(st.integers(0, 12), st.integers(0, 6), st.sampled_from(SIZES)).map(
    lambda t: (t[0], t[0] + t[1], t[2])
)


def check(intervals: list[Interval], symbols: dict[str, int]) -> int:
    offsets, arena = plan(intervals)
    total = as_expr(arena).evaluate(symbols)
    places: list[tuple[int, int, int, int]] = []
    for (start, end, size), offset in zip(intervals, offsets, strict=True):
        low = as_expr(offset).evaluate(symbols)
        high = low + as_expr(size).evaluate(symbols)
        assert low % 64 == 0
        assert high <= total
        places.append((start, end, low, high))
    for a, b in combinations(places, 2):
        apart_in_time = a[1] < b[0] or b[1] < a[0]
        empty = a[2] == a[3] or b[2] == b[3]
        assert apart_in_time or empty or a[3] <= b[2] or b[3] <= a[2], (a, b)
    return total


@given(st.lists(interval, max_size=14), st.integers(0, 600), st.integers(0, 9))
@settings(max_examples=200, deadline=None)
def test_no_overlap(intervals: list[Interval], s: int, t: int) -> None:
    check(intervals, {"S": s, "T": t})


def test_a_chain_needs_two_buffers() -> None:
    chain: list[Interval] = [(i, i + 1, S * 1536) for i in range(20)]
    assert plan(chain)[1] == S * 1536 * 2


def test_small_ones_share_the_place_of_a_large_one() -> None:
    large: list[Interval] = [(0, 1, S * 1024), *[(2, 3, S * 256)] * 4]
    assert plan(large)[1] == S * 1024


def test_classes_share_memory_at_different_times() -> None:
    assert plan([(0, 1, S * 256), (2, 3, S * T * 256)])[1] == (S * T * 256).max(S * 256)
    assert plan([(0, 1, S * 256), (2, 3, S * 256 + 64)])[1] == S * 256 + 64


def test_nothing_to_place() -> None:
    assert plan([]) == ([], 0)
    assert plan([(0, 3, 0)]) == ([0], 0)


def test_arena_is_near_the_peak() -> None:
    draw, ratios = random.Random(7), list[float]()
    for _ in range(20):
        times = [(t, t + draw.randrange(1, 8), draw.randrange(1, 4096)) for t in range(200)]
        ratios.append(check(list(times), {}) / peak(list(times)))
    assert max(ratios) < 1.25
    assert sum(ratios) / len(ratios) < 1.12


def test_many_intervals() -> None:
    times = [(t, t + 3, 64 + t % 7 * 64) for t in range(20_000)]
    _, total = best_fit(times)
    assert total <= 1.5 * peak(list(times))
