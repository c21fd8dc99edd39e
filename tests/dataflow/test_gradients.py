"""The cases of gradients: extended backward, then fetched as the steps say."""

from __future__ import annotations

import pytest

import tfc
import tfc.ops
from tests.dataflow.test_cases import check, name_of
from tests.dataflow.translate import CASES, MORE_CASES, Case, translate
from tfc.text.parse import parse_module

assert tfc.ops
GRADIENTS = [c for c in [*CASES, *MORE_CASES] if "gradient" in c]


@pytest.mark.parametrize("case", GRADIENTS, ids=name_of)
def test_gradients(case: Case) -> None:
    module = parse_module(translate(case))
    wanted = case["gradient"]
    names = tfc.gradients(module, wanted["of"], wanted["wrt"])
    assert names == [f"grad:{x}" for x in wanted["wrt"]]
    session = tfc.Session(module, executor="interpreter")
    for step in case["steps"]:
        check(step, session.run)
