"""Each pass does what its docstring shows: `Before:` becomes `After:`, and the numbers stay.

`Before, with {name=value}:` gives the pass options. The target is x86-64-v3.
"""

from __future__ import annotations

import re

import pytest

from tfc.ir.core import Module
from tfc.passes.base import Pass, PassContext, all_passes
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.passes.validate import Validate
from tfc.targets import resolve
from tfc.text import parse_module, print_module

EXAMPLE = re.compile(
    r"Before(?:, with (?P<options>\{.*?\}))?:\s*```mlir\n(?P<before>.*?)```\s*"
    r"After(?:, for [\w-]+)?:\s*```mlir\n(?P<after>.*?)```",
    re.DOTALL,
)
PASSES = {name: cls for name, cls in all_passes().items() if cls.__module__.startswith("tfc.")}


def example(name: str) -> tuple[Pass, Module, Module]:
    """The pass with the options of its example, and the modules before and after it."""
    match = EXAMPLE.search(PASSES[name].__doc__ or "")
    assert match, f"{name} shows no Before: and After:"
    (transform,) = parse_pipeline(f"{name}{match['options'] or ''}")
    before, after = (parse_module(_whole(match[part])) for part in ("before", "after"))
    return transform, before, after


def _whole(text: str) -> str:
    return text if text.strip().startswith("module") else f"module {{\n{text}\n}}"


@pytest.mark.parametrize("name", PASSES)
def test_before_becomes_after(name: str) -> None:
    transform, before, after = example(name)
    given = print_module(before)
    manager = PassManager([transform], instruments=[Validate()])
    (step,) = manager.run(before, PassContext(target=resolve("x86-64-v3")))
    assert print_module(before) == print_module(after)
    assert step.changed == (given != print_module(after))


@pytest.mark.parametrize("name", PASSES)
def test_changed_is_true_to_fact(name: str) -> None:
    """A second run changes nothing more, and says so, or changes something, and says so."""
    transform, module, _ = example(name)
    PassManager([transform]).run(module)
    manager = PassManager([PASSES[name]()])
    text = print_module(module)
    (step,) = manager.run(module)
    assert step.changed == (print_module(module) != text)
