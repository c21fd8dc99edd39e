"""The cases that run: each step in one session gives the values, or the error, that it must."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tfc
from tests.dataflow.translate import CASES, MORE_CASES, Case, translate

ALL = [*CASES, *MORE_CASES]
EXECUTORS = ("interpreter", "compiled")


def name_of(case: Case) -> str:
    return case["name"]


def with_executors(cases: list[Case]) -> list[Any]:
    """Each case with each executor; to compile all takes minutes, so those given run always."""
    return [
        pytest.param(
            case,
            executor,
            id=f"{case['name']}-{executor}",
            marks=[pytest.mark.slow] if executor == "compiled" and case in MORE_CASES else [],
        )
        for case in cases
        for executor in EXECUTORS
    ]


RUN = with_executors([c for c in ALL if c["steps"] and not c.keys() & {"gradient", "partial"}])
PARTIAL = with_executors([c for c in ALL if "partial" in c])


def check(step: dict[str, Any], run: Any) -> None:
    """What `run` gives for a step, which is a function of fetches, feeds and targets."""
    fetches, wanted = list(step["fetches"]), step["fetches"]
    if step["error"]:
        with pytest.raises(tfc.SessionError) as caught:
            run(fetches, step["feeds"], step["targets"])
        assert caught.value.kind == step["error"]
        return
    found = run(fetches, step["feeds"], step["targets"])
    for name, array in zip(fetches, found, strict=True):
        np.testing.assert_allclose(array, wanted[name], rtol=1e-5, err_msg=name)
        assert np.shape(array) == np.shape(wanted[name])


@pytest.mark.parametrize(("case", "executor"), RUN)
def test_steps(case: Case, executor: str) -> None:
    session = tfc.Session(translate(case), executor=executor)
    for step in case["steps"]:
        check(step, session.run)


@pytest.mark.parametrize(("case", "executor"), PARTIAL)
def test_partial_runs(case: Case, executor: str) -> None:
    session = tfc.Session(translate(case), executor=executor)
    for step in case["steps"]:
        check(step, session.run)
    for part in case["partial"]:
        setup = part["setup"]
        handle = session.partial_run_setup(
            setup["fetches"], setup["feeds"], setup.get("targets", ())
        )
        for call in part["calls"]:
            check(call, partial(session.partial_run, handle))
