"""Groups of random graphs keep the numbers; long chains have kernels of bounded size."""

from __future__ import annotations

import pytest

from tests.passes.graphs import random_module
from tests.passes.test_random_graphs import validated
from tfc.ops.control import Fusion
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.text import parse_module

LEAD = "prune,entry-checks,constant-folding,decompose,kernel-forms,dce"
SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 100))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fusion", ["fusion", "fusion{largest=1}", "layout,fusion"])
def test_random_graphs(seed: int, fusion: str) -> None:
    """At the level of the graph, and as kernels where there are no branches."""
    branches = any(op.regions for op in random_module(seed).walk())
    validated(seed, f"{LEAD},{fusion}" + ("" if branches else ",schedule,lower"))


@pytest.mark.parametrize("op", ["neg", "transpose"])
@pytest.mark.parametrize("fusion", ["fusion", "fusion{largest=1}"])
def test_long_chains(op: str, fusion: str) -> None:
    """3000 ops behind one another, views too, which are copied into their readers."""
    attributes = " {permutation = [1, 0]}" if op == "transpose" else ""
    lines = [f"%x{i + 1} = {op}(%x{i}){attributes} : tensor<3x3xf32>\n" for i in range(3000)]
    text = f"""module {{
      func @main(%x0: tensor<3x3xf32>) -> (%y: tensor<3x3xf32>) {{
        {"".join(lines)}
        return %x3000
      }}
    }}"""
    module = parse_module(text)
    PassManager(parse_pipeline(fusion)).run(module)
    groups = [o for o in module.main.body if isinstance(o, Fusion)]
    assert max(len(list(group.do)) for group in groups) <= 100
    assert len(groups) >= 3000 / 100
