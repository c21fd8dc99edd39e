"""Names of targets."""

from __future__ import annotations

import pytest

from tfc.ir.errors import TfcError
from tfc.targets import TARGETS, resolve, runs_here


def test_host_is_a_level_that_runs_here() -> None:
    host = resolve("host")
    assert host in TARGETS.values()
    assert runs_here(host)
    same = [t for t in TARGETS.values() if runs_here(t)]
    assert host == max(same, key=lambda t: len(t.requirements))


def test_an_unknown_name_lists_the_levels() -> None:
    with pytest.raises(TfcError, match="no target is named 'pentium'") as caught:
        resolve("pentium")
    assert "x86-64-v4+vnni" in caught.value.hint


def test_lanes() -> None:
    assert resolve("x86-64-v4").lanes(4) == 16
    assert resolve("x86-64-v2").lanes(8) == 2
    assert resolve("x86-64-v4+vnni").vnni
