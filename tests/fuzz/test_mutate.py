"""Mutants of each kind, some in every run; 5,000 of each as slow tests."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fuzz.mutate import BAD, kinds, run

QUICK = {"tfc": 80, "onnx": 80, "tfb": 60}


def check(kind: str, count: int, seed: int) -> Counter[str]:
    outcomes = run(kinds()[kind](), range(count), seed)
    assert len(outcomes) == count
    bad = [f"{o.verdict}: {o.name}: {o.message}" for o in outcomes if o.verdict in BAD]
    assert not bad, "\n".join(bad)
    return Counter(outcome.verdict for outcome in outcomes)


@pytest.mark.parametrize("kind", QUICK)
def test_some(kind: str) -> None:
    """Some of them mean something and are computed, most are refused."""
    verdicts = check(kind, QUICK[kind], seed=100)
    assert verdicts["refused"] > QUICK[kind] // 4
    assert verdicts["right"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", QUICK)
def test_many(kind: str) -> None:
    check(kind, 5000, seed=0)
