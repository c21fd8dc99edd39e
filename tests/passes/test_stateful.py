"""Passes keep what stateful functions compute: results and variables, over calls in turn."""

from __future__ import annotations

import numpy as np
import pytest

from tests.passes.stateful import generate, outcome
from tfc.ir.core import Module
from tfc.ir.effects import blocks_of, conflicts
from tfc.ir.verifier import verify
from tfc.passes.base import PassContext
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.passes.validate import difference
from tfc.targets import resolve
from tfc.text import parse_module, print_module

LOOPS = "prune,carried-values,loop-invariant-code-motion,control-edges,dce"
ALONE = (
    "prune",
    "cse",
    "canonicalize",
    "constant-folding",
    "constant-branches",
    "carried-values",
    "loop-invariant-code-motion",
    "control-edges",
    "control-scheduling",
    "decompose",
    "prune,dce,raise-idioms,layout,dce",
    "prune,decompose,fusion",
    f"{LOOPS},constant-folding,{LOOPS}",
)
WHOLE = ("O0,kernels", "O1,kernels", "O2,kernels", "O3,kernels")
AT_THE_END = {
    *("launch", "reshape", "constant", "read", "assign"),
    *("if", "while", "scan", "yield", "return"),
}
SEEDS = range(4)
MANY = range(4, 120)


def kept(seed: int, pipeline: str) -> Module:
    """Runs passes, after each of which all calls must give what they gave, and text be read."""
    module, _, calls = generate(seed)
    expected = outcome(module, calls)
    context = PassContext(target=resolve("x86-64-v3"))
    text = print_module(module)
    for transform in parse_pipeline(pipeline):
        (step,) = PassManager([transform]).run(module, context)
        before, text = text, print_module(module)
        assert step.changed == (text != before), transform
        for number, (wanted, found) in enumerate(
            zip(expected, outcome(module, calls), strict=True)
        ):
            for name, array in wanted.items():
                wrong = difference(np.asarray(array), np.asarray(found[name]))
                assert not wrong, f"{transform}: %{name} of call {number}: {wrong}\n{before}"
    assert print_module(parse_module(text, weights=module.weights)) == text
    return module


@pytest.mark.parametrize("pipeline", ALONE)
def test_a_pass_keeps_results_and_variables(pipeline: str) -> None:
    for seed in SEEDS:
        kept(seed, pipeline)


@pytest.mark.parametrize("pipeline", WHOLE)
def test_whole_pipelines_leave_what_can_be_compiled(pipeline: str) -> None:
    for seed in SEEDS:
        module = kept(seed, pipeline)
        verify(module, level="tile")
        names = {op.name for f in module.functions.values() for op in f.body.walk()}
        assert names <= AT_THE_END


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [*ALONE, *WHOLE])
def test_many_modules(pipeline: str) -> None:
    for seed in MANY:
        kept(seed, pipeline)


def test_the_modules_hold_what_they_should() -> None:
    """All kinds of control flow, nested, with effects inside, and conflicts to keep in order."""
    found: set[str] = set()
    nested = ordered = waiting = 0
    for seed in range(20):
        module, _, _ = generate(seed)
        for function in module.functions.values():
            blocks = list(blocks_of(function.body))
            ops = [op for block in blocks for op in block]
            found.update(op.name for op in ops)
            nested += sum(1 for block in blocks[1:] for op in block if op.regions)
            ordered += sum(len(conflicts(block)) for block in blocks)
            waiting += sum(len(op.after) for op in ops)
    assert {"if", "while", "scan", "read", "assign", "assign_add", "no_op", "gather"} <= found
    assert min(nested, ordered) > 20
    assert waiting > 200
