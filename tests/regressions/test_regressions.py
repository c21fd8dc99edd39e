"""Graphs that once gave wrong results: passes and compiled code must give the interpreter's.

Each `.tfc` file here is one. `// symbols: B=3, S=0` says how its symbols are bound; several lines
are several runs.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tfc.ops  # registers the ops  # noqa: F401
from tests.fuzz import data
from tests.fuzz.check import Checked, check_alone, check_compiled, check_pipeline
from tests.fuzz.graphs import Case, Data
from tfc.driver import load_module
from tfc.interpret import evaluated_type
from tfc.ir.core import Module
from tfc.targets import resolve

FILES = sorted(Path(__file__).parent.glob("*.tfc"))


@cache
def cases() -> dict[str, Checked]:
    found = (Checked(Case(i, load_module(f), _data(f))) for i, f in enumerate(FILES))
    return dict(zip((f.stem for f in FILES), found, strict=True))


def _data(path: Path) -> list[Data]:
    """Numbers of each kind for each binding of the symbols."""
    lines = re.findall(r"// symbols: (.*)", path.read_text()) or [""]
    bindings = [{n: int(v) for n, v in re.findall(r"(\w+)=(\d+)", line)} for line in lines]
    module = load_module(path)
    return [_draw(module, b, kind) for b in bindings for kind in data.KINDS]


def _draw(module: Module, symbols: dict[str, int], kind: str) -> Data:
    generator = np.random.default_rng(1)
    inputs = {}
    for arg in module.main.body.args:
        tensor = evaluated_type(arg.type, symbols)
        shape = tuple(int(str(n)) for n in tensor.shape)
        if any(user.name.startswith("gather") for user in arg.users) and tensor.dtype.is_integer:
            inputs[arg.name] = data.indices(generator, tensor.dtype, shape, 1, 1)
        else:
            inputs[arg.name] = data.draw(generator, tensor.dtype, shape, kind)
    return Data(f"{kind} data with {symbols}", symbols, inputs)


@pytest.mark.parametrize("name", [f.stem for f in FILES])
def test_passes_keep_the_result(name: str) -> None:
    checked = cases()[name]
    assert checked.runs, "no data fits"
    check_alone(checked)
    for level in (0, 3):
        check_pipeline(checked, level, "x86-64-v3")
    assert not [str(f) for f in checked.failures]


@pytest.mark.parametrize("level", [0, 3])
def test_compiled_code_gives_the_result(level: int, tmp_path: Path) -> None:
    every = list(cases().values())
    for checked in every:
        checked.failures.clear()
    check_compiled(every, level, resolve("host").name, tmp_path / "all.tfb")
    wrong = {FILES[c.case.seed].stem: str(c.failures[0]) for c in every if c.failures}
    assert not wrong
