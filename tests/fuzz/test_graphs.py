"""A few random graphs in every run of the tests; `python -m tests.fuzz.run` checks thousands."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import tfc.ops  # registers the ops  # noqa: F401
from tests.fuzz.check import (
    Checked,
    check_alone,
    check_bound,
    check_compiled,
    check_pipeline,
    check_text,
)
from tests.fuzz.graphs import generate
from tests.fuzz.makers import forgotten
from tfc.ir.verifier import verify
from tfc.targets import resolve

SEEDS = range(100_005, 100_045)
MOST_OPS = 6


@cache
def cases() -> list[Checked]:
    return [Checked(generate(seed, MOST_OPS, few=0)) for seed in SEEDS]


def wrong() -> list[str]:
    """What failed since this was last asked."""
    found = [str(f) for c in cases() for f in c.failures]
    for checked in cases():
        checked.failures.clear()
    return found


def test_every_graph_op_is_drawn() -> None:
    assert not forgotten()


def test_the_same_seed_gives_the_same_graph() -> None:
    from tfc.text.print import print_module

    a, b = (generate(SEEDS[3], MOST_OPS) for _ in range(2))
    verify(a.module)
    assert print_module(a.module) == print_module(b.module)
    assert [d.label for d in a.data] == [d.label for d in b.data]


def test_passes_keep_the_result() -> None:
    for checked in cases():
        check_text(checked)
        check_alone(checked)
        check_bound(checked)
    for checked in cases()[2::6]:
        check_pipeline(checked, 3, "x86-64-v3")
    assert not wrong()


@pytest.mark.parametrize("level", [0, 3])
def test_compiled_code_gives_the_result(level: int, tmp_path: Path) -> None:
    check_compiled(cases(), level, resolve("host").name, tmp_path / "graphs.tfb")
    assert not wrong()


@pytest.mark.slow
def test_thousands_of_graphs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "--count", "2000", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
