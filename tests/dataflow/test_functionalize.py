"""Random primitive control flow: by tagged frames and raised to regions it does the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfc.ops
from tests.dataflow.random_control import VARIABLES, Program
from tfc.driver import clone_module
from tfc.interpret import interpret
from tfc.ir.core import Module
from tfc.ir.errors import TfcError
from tfc.ir.frames import has_primitive_control
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.runtime.state import State
from tfc.session_compiled import compiled
from tfc.text.parse import parse_module
from tfc.text.print import print_module

assert tfc.ops
BATCH = 25
INPUTS = ((0.5, -1.0), (-2.0, 3.0))


def run(module: Module, a: float, b: float) -> dict[str, np.ndarray]:
    """The outputs, and the variables after it."""
    state = State()
    for number, name in enumerate(VARIABLES):
        state.declare(name, np.dtype(np.float32), ())
        state.write(name, np.asarray(number + 1, np.float32))
    inputs = {"a": np.asarray(a, np.float32), "b": np.asarray(b, np.float32)}
    outputs = interpret(module, inputs, state=state)
    return outputs | {f"@{n}": v for n, v in state.variables.items() if v is not None}


def same(module: Module, seed: int) -> None:
    raised = clone_module(module)
    PassManager(parse_pipeline("prune,functionalize")).run(raised)
    assert not has_primitive_control(raised.main)
    for a, b in INPUTS:
        wanted, found = run(module, a, b), run(raised, a, b)
        for name, array in wanted.items():
            np.testing.assert_array_equal(array, found[name], err_msg=f"seed {seed}: {name}")


def batches(count: int, quick: int) -> list[Any]:
    """Batches of random programs, of which some run always."""
    return [pytest.param(n, marks=[pytest.mark.slow] if n >= quick else []) for n in range(count)]


@pytest.mark.parametrize("batch", batches(14, 2))
def test_as_written(batch: int) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        module = parse_module(Program(seed).text())
        assert print_module(parse_module(print_module(module))) == print_module(module)
        same(module, seed)


@pytest.mark.parametrize("batch", batches(6, 1))
def test_in_another_order(batch: int) -> None:
    """Ops of a loop may then stand between others that touch the same variables.

    Where no order of regions is that of the text, the pass refuses; that is seldom.
    """
    refused = 0
    for seed in range(1000 + batch * BATCH, 1000 + (batch + 1) * BATCH):
        module = parse_module(Program(seed).text(shuffled=True))
        try:
            same(module, seed)
        except TfcError as error:
            assert "no structured form" in str(error) or "wait for each other" in str(error)
            refused += 1
    assert refused <= BATCH // 3


def test_compiled() -> None:
    """Machine code does the same too."""
    for seed in (3000, 3001, 3002):
        module = parse_module(Program(seed).text())
        state = State()
        call = compiled(clone_module(module), state)
        for a, b in INPUTS:
            for number, name in enumerate(VARIABLES):
                state.write(name, np.asarray(number + 1, np.float32))
            found = call({"a": np.asarray(a, np.float32), "b": np.asarray(b, np.float32)})
            found |= {f"@{n}": v for n, v in state.variables.items() if v is not None}
            for name, array in run(module, a, b).items():
                np.testing.assert_allclose(found[name], array, rtol=1e-5, err_msg=f"{seed} {name}")
