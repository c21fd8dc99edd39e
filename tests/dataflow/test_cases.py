"""The cases that run: each step in one session gives the values, or the error, that it must."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfc
from tests.dataflow.translate import CASES, Case, translate

RUN = [c for c in CASES if c["steps"] and "gradient" not in c]
PARTIAL = [c for c in CASES if "partial" in c]
EXECUTORS = ("interpreter", "compiled")


def name_of(case: Case) -> str:
    return case["name"]


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


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("case", RUN, ids=name_of)
def test_steps(case: Case, executor: str) -> None:
    session = tfc.Session(translate(case), executor=executor)
    for step in case["steps"]:
        check(step, session.run)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("case", PARTIAL, ids=name_of)
def test_partial_runs(case: Case, executor: str) -> None:
    session = tfc.Session(translate(case), executor=executor)
    for part in case["partial"]:
        setup = part["setup"]
        handle = session.partial_run_setup(setup["fetches"], setup["feeds"])
        for call in part["calls"]:
            check(call, lambda f, d, t, h=handle: session.partial_run(h, f, d, t))
