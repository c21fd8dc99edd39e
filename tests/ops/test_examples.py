"""Every graph op's example: it parses, verifies, runs, prints and parses again, and decomposes."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tfc.ops
import tfc.tile.ops
from tests.ops.running import assert_close
from tfc.interpret import evaluated_type, interpret
from tfc.ir.builder import Builder
from tfc.ir.core import OPS, Function, Module
from tfc.ir.types import TensorType
from tfc.ir.verifier import verify
from tfc.ops.base import Composite, Elementwise, GraphOp
from tfc.runtime.state import State
from tfc.text.parse import parse_module
from tfc.text.print import print_module
from tfc.tile.functions import FUNCTIONS

SIZES = {"B": 2, "N": 2, "S": 3, "T": 4, "M": 3, "K": 4, "C": 4, "H": 5, "W": 6}
assert tfc.ops and tfc.tile.ops
NAMES = sorted(n for n, kind in OPS.items() if kind.__module__.startswith("tfc.ops."))


def example(name: str) -> str:
    found = re.search(r"```mlir\n(.*?)```", OPS[name].__doc__ or "", re.DOTALL)
    assert found, f"the docstring of {name} has no example"
    return f"module {{\n{textwrap.dedent(found[1])}}}\n"


def random_inputs(function: Function) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {a.name: _random(evaluated_type(a.type, SIZES), generator) for a in function.body.args}


def _random(kind: TensorType, generator: np.random.Generator) -> np.ndarray:
    if kind.dtype.is_float:
        return np.asarray(generator.uniform(0.1, 0.9, kind.shape)).astype(kind.dtype.numpy)
    return np.asarray(generator.integers(0, 2, kind.shape)).astype(kind.dtype.numpy)


def decompose(module: Module) -> None:
    """Replaces every composite by its parts."""
    op = next((op for op in module.walk() if isinstance(op, Composite)), None)
    while op is not None:
        op.replace(op.decompose(Builder.before_op(op)))
        op = next((op for op in module.walk() if isinstance(op, Composite)), None)


@pytest.mark.parametrize("name", NAMES)
def test_example(name: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x-0.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
    module = parse_module(example(name))
    assert any(op.name == name for op in module.walk())
    verify(module)
    inputs = random_inputs(module.main)
    outputs = interpret(module, inputs, state=State(tmp_path))
    assert list(outputs) == module.main.output_names

    text = print_module(module)
    again = parse_module(text)
    assert print_module(again) == text
    for key, array in interpret(again, inputs, state=State(tmp_path)).items():
        np.testing.assert_array_equal(array, outputs[key])

    decompose(again)
    verify(again)
    for key, array in interpret(again, inputs, state=State(tmp_path)).items():
        assert_close(array, outputs[key], 4)


@pytest.mark.parametrize("name", NAMES)
def test_docstring_numbers_each_constraint_that_is_checked(name: str) -> None:
    kind = OPS[name]
    if not issubclass(kind, GraphOp):
        return
    said = kind.__doc__ or ""
    numbers = [int(n) for n in re.findall(r"\bC(\d+)(?::|,| to)", said)]
    assert numbers == sorted(set(numbers)) and numbers == list(range(1, len(numbers) + 1))


def test_every_elementwise_primitive_has_a_tile_function() -> None:
    own = {"cast", "where"}  # these are tile ops of their own
    for kind in OPS.values():
        primitive = issubclass(kind, Elementwise) and not issubclass(kind, Composite)
        if primitive and kind.name not in own:
            assert kind.function in FUNCTIONS, kind.name
