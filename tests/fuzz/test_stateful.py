"""A few random graphs with state in every run of the tests; `python -m tests.fuzz.stateful` checks
thousands.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.fuzz.stateful import check_level
from tests.fuzz.stateful_check import Checked, call_all, find_refused
from tests.fuzz.stateful_graphs import KINDS, Call, StatefulCase, generate
from tests.fuzz.stateful_oracle import Oracle, Outcome, copy_variables
from tests.fuzz.stateful_text import Kind
from tfc.interpret import interpret, state_of
from tfc.ir.verifier import verify
from tfc.runtime.state import State
from tfc.targets import resolve
from tfc.text.parse import parse_module
from tfc.text.print import print_module

FIRST, COUNT = 100_000, 15
SIZE = 5


@cache
def cases(kind: str) -> list[Checked]:
    found = [Checked(generate(FIRST + i, kind, SIZE)) for i in range(COUNT)]
    return find_refused(found)


def wrong(found: list[Checked]) -> list[str]:
    """What failed since this was last asked."""
    failures = [str(f) for c in found for f in c.failures]
    for checked in found:
        checked.failures.clear()
    return failures


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_graph(kind: str) -> None:
    for seed in (3, 4):
        a, b = (generate(seed, kind, SIZE) for _ in range(2))
        verify(a.module)
        assert print_module(a.module) == print_module(b.module)
        assert [c.function for c in a.calls] == [c.function for c in b.calls]


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_code_does_the_same(kind: str, level: int) -> None:
    assert len(cases(kind)) > COUNT * 2 // 3, "most have regions"
    few = cases(kind)[: None if level else COUNT // 2]
    check_level(few, level, resolve("host").name)
    assert not wrong(cases(kind))


class Spoiled:
    """The interpreter as a bundle whose outputs or variables of a name are off by one."""

    def __init__(self, checked: Checked, spoil: str) -> None:
        self.checked, self.spoil = checked, spoil
        module = checked.case.module
        self.inner, self.state = state_of(module), State()
        for name in module.variables:
            self.state.declare(checked.renamed(name), *self.inner.type_of(name))
        self.functions = {
            checked.renamed(n): SimpleNamespace(run=partial(self.run, n)) for n in module.functions
        }

    def run(self, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        found = interpret(self.checked.case.module, inputs, name, state=self.inner)
        copy_variables(self.inner, self.state, self.checked.renamed)
        for variable, array in self.inner.variables.items():
            if array is not None and self.spoil == f"@{variable}":
                self.state.write(self.checked.renamed(variable), array + 1)
        return {n: a + np.ones((), a.dtype) if n == self.spoil else a for n, a in found.items()}


@pytest.mark.parametrize("spoil", ["", "y0", "@v1"])
def test_what_differs_is_found(spoil: str) -> None:
    checked = Checked(generate(19, size=SIZE))
    call_all(checked, Spoiled(checked, spoil), "here", wide=True)
    assert [f.message.partition("[")[0] for f in checked.failures] == [spoil] * bool(spoil)


UNREAD = """module {{
  variable @v : tensor<f32>
  func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {{
    %r = read(@v) : tensor<f32>
    %z = sub(%r, %r) : tensor<f32>
    %y = add(%x, {used}) : tensor<f32>
    return %y after(%z)
  }}
}}
"""


@pytest.mark.parametrize(("used", "wrong"), [("%r", "it does not fail"), ("%x", "")])
def test_an_error_may_only_be_missing_where_nothing_uses_what_was_read(
    used: str, wrong: str
) -> None:
    x = np.asarray(1, np.float32)
    case = StatefulCase(0, parse_module(UNREAD.format(used=used)), [Call("main", {"x": x})])
    unassigned = {"@v?": np.asarray(False)}
    oracle = Oracle(case)
    assert oracle.outcomes[0].error
    found = oracle.difference(0, Outcome({"y": x + x} | unassigned), wide=False)
    assert found.startswith(wrong) and bool(found) == bool(wrong)
    assert not oracle.difference(0, Outcome(error="not initialized"), wide=False)
    assert wrong or oracle.difference(0, Outcome({"y": x} | unassigned), wide=False)


def test_kinds() -> None:
    kind = Kind("f32", ("B", "4"))
    assert str(kind) == "tensor<Bx4xf32>" and not kind.is_static
    assert str(kind.slice) == "tensor<4xf32>"


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("stateful", 1000), ("loops", 500)])
def test_many_graphs(kind: str, count: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.stateful", "--kind", kind, "--count", str(count)]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
