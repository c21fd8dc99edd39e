"""Each pass does what its docstring shows: `Before:` becomes `After:`, and the numbers stay."""

from __future__ import annotations

import re

import pytest

from tfc.ir.core import Module
from tfc.passes.base import Pass, PassContext, all_passes
from tfc.passes.manager import PassManager
from tfc.passes.validate import Validate
from tfc.targets import resolve
from tfc.text import parse_module, print_module

EXAMPLE = re.compile(r"Before:\s*```mlir\n(.*?)```\s*After:\s*```mlir\n(.*?)```", re.DOTALL)
PASSES = {name: cls for name, cls in all_passes().items() if cls.__module__.startswith("tfc.")}


def example(cls: type[Pass]) -> tuple[Module, Module]:
    match = EXAMPLE.search(cls.__doc__ or "")
    assert match, f"{cls.__name__} shows no Before: and After:"
    before, after = (parse_module(_whole(text)) for text in match.groups())
    return before, after


def _whole(text: str) -> str:
    return text if text.strip().startswith("module") else f"module {{\n{text}\n}}"


@pytest.mark.parametrize("name", PASSES)
def test_before_becomes_after(name: str) -> None:
    before, after = example(PASSES[name])
    given = print_module(before)
    manager = PassManager([PASSES[name]()], instruments=[Validate()])
    (step,) = manager.run(before, PassContext(target=resolve("x86-64-v3")))
    assert print_module(before) == print_module(after)
    assert step.changed == (given != print_module(after))


@pytest.mark.parametrize("name", PASSES)
def test_changed_is_true_to_fact(name: str) -> None:
    """A second run changes nothing more, and says so, or changes something, and says so."""
    module, _ = example(PASSES[name])
    manager = PassManager([PASSES[name]()])
    manager.run(module)
    text = print_module(module)
    (step,) = manager.run(module)
    assert step.changed == (print_module(module) != text)
