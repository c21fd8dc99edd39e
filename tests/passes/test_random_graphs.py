"""Each pass alone, and lists of them, keep what random graphs compute, and leave what parses."""

from __future__ import annotations

import pytest

from tests.passes.graphs import random_module
from tfc.ir.errors import TfcError
from tfc.ir.verifier import verify
from tfc.passes.base import PassContext, find_pass
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.passes.validate import Validate
from tfc.text import parse_module, print_module

ALONE = (
    "canonicalize",
    "canonicalize{fold-scales=true}",
    "constant-folding",
    "constant-folding{max-bytes=8}",
    "control-scheduling",
    "cse",
    "dce",
    "decompose",
    "decompose{keep=softmax}",
    "prune",
)
SEEDS = range(10)
MANY = range(10, 300)


def validated(seed: int, pipeline: str, stop_after: int | None = None) -> bool:
    """Checks a pipeline: it keeps the numbers, says truly what changed, leaves what parses.

    False where no data fits the graph, as where a dimension must be 3 and 4.
    """
    module = random_module(seed)
    verify(module)
    text = print_module(module)
    context = PassContext(stop_after=stop_after)
    for transform in parse_pipeline(pipeline):
        manager = PassManager([transform], instruments=[Validate(seed)])
        try:
            steps = manager.run(module, context)
        except TfcError as error:
            if "ran on none of the data" in str(error):
                return False
            raise AssertionError(f"{error}\n{text}") from error
        after = print_module(module)
        assert all(step.changed == (after != text) for step in steps), transform
        text = after
    assert print_module(parse_module(text, weights=module.weights)) == text
    return True


@pytest.mark.parametrize("pipeline", ALONE)
def test_a_pass_alone(pipeline: str) -> None:
    ran = [validated(seed, pipeline) for seed in SEEDS]
    assert sum(ran) > len(ran) / 2


def test_passes_in_turn() -> None:
    rest = "constant-folding,clean,control-scheduling"
    ran = [validated(seed, f"prune,constant-folding,clean,decompose,{rest}") for seed in SEEDS]
    assert sum(ran) > len(ran) / 2


def test_stopping_anywhere_leaves_a_valid_module() -> None:
    for rewrites in range(0, 40, 3):
        assert validated(5, "prune,constant-folding,canonicalize,cse,decompose,dce", rewrites)


def test_rules_leave_nothing_for_a_second_run() -> None:
    for seed in SEEDS:
        module = random_module(seed)
        manager = PassManager([find_pass("canonicalize")()])
        manager.run(module)
        (step,) = manager.run(module)
        assert not step.changed


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [*ALONE, "prune,constant-folding,clean,decompose,clean"])
def test_many_graphs(pipeline: str) -> None:
    ran = [validated(seed, pipeline) for seed in MANY]
    assert sum(ran) > len(ran) / 2
