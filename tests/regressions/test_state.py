"""Modules with state that once went wrong: compiled code must do what the interpreter does.

Each `.tfc` file in `state/` is one. `// calls: init, main, main` says what is called in turn, with
numbers of each kind; `// symbols: B=3` how symbols are bound, several lines for the calls in turn.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc.ops  # registers the ops  # noqa: F401
from tests.fuzz import data
from tests.fuzz.stateful import check_level
from tests.fuzz.stateful_check import Checked
from tests.fuzz.stateful_graphs import Call, StatefulCase
from tfc.driver import load_module
from tfc.interpret import evaluated_type
from tfc.ir.core import Module
from tfc.targets import resolve

FILES = sorted((Path(__file__).parent / "state").glob("*.tfc"))


def cases() -> list[Checked]:
    return [Checked(_case(i, path)) for i, path in enumerate(FILES)]


def _case(number: int, path: Path) -> StatefulCase:
    """The calls once with each kind of numbers."""
    text, module = path.read_text(), load_module(path)
    (names,) = re.findall(r"// calls: (.*)", text)
    lines = re.findall(r"// symbols: (.*)", text) or [""]
    bindings = itertools.cycle(
        {n: int(v) for n, v in re.findall(r"(\w+)=(\d+)", line)} for line in lines
    )
    drawn = np.random.default_rng(1)
    calls = [
        Call(name, _inputs(module, name, next(bindings), drawn, kind))
        for kind in data.KINDS
        for name in names.split(", ")
    ]
    return StatefulCase(number, module, calls)


def _inputs(
    module: Module, name: str, symbols: dict[str, int], drawn: np.random.Generator, kind: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for arg in module.functions[name].body.args:
        tensor = evaluated_type(arg.type, symbols)
        shape = tuple(int(str(n)) for n in tensor.shape)
        if arg.name.startswith("k"):
            found[arg.name] = np.asarray(drawn.integers(0, 4, shape), tensor.dtype.numpy)
        else:
            found[arg.name] = data.draw(drawn, tensor.dtype, shape, kind)
    return found


@pytest.mark.parametrize("level", [0, 3])
def test_compiled_code_does_the_same(level: int) -> None:
    every = cases()
    check_level(every, level, resolve("host").name)
    wrong = {FILES[c.case.seed].stem: str(c.failures[0]) for c in every if c.failures}
    assert not wrong
