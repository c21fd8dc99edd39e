"""Every op has a gradient that agrees with central differences, or says that it has none."""

from __future__ import annotations

import numpy as np
import pytest

import tfc.ops
from tests.ops.derivatives import Case, check, check_symbols
from tests.ops.gradient_cases import CASES, ELSEWHERE
from tfc.ir.builder import Builder
from tfc.ir.core import OPS, Block
from tfc.ir.errors import TfcError
from tfc.ir.types import F32, TensorType
from tfc.ops.base import GraphOp

assert tfc.ops
OWN = {n: k for n, k in OPS.items() if k.__module__.startswith("tfc.ops.")}


def _title(case: Case) -> str:
    return f"{case.name}-{CASES.index(case)}"


@pytest.mark.parametrize("case", CASES, ids=_title)
def test_central_differences(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", [c for c in CASES if c.symbols], ids=_title)
def test_symbolic_dimensions(case: Case) -> None:
    check_symbols(case)


@pytest.mark.parametrize("name", sorted(n for n, k in OWN.items() if issubclass(k, GraphOp)))
def test_every_op_has_a_gradient_or_says_that_it_has_none(name: str) -> None:
    kind = OPS[name]
    assert issubclass(kind, GraphOp)
    tested = name in ELSEWHERE or any(c.name == name for c in CASES)
    said = not kind.differentiable or bool(kind.gradient_needs)
    assert tested != said, f"{name}: {'tested' if tested else 'not tested'}, {said=}"


def test_a_missing_gradient_is_an_error_by_name() -> None:
    class Squash(GraphOp):
        name = "squash"

    block = Block([TensorType(F32, ())])
    op = Squash.build([block.args[0]], {}, [TensorType(F32, ())])
    with pytest.raises(TfcError, match="squash: the op has no gradient"):
        op.gradient(Builder(block), [block.args[0]])  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "softplus", "gelu", "silu", "mish"])
def test_nothing_overflows_far_from_zero(name: str) -> None:
    from tests.ops.derivatives import module_of
    from tfc.interpret import interpret

    x = np.array([-300.0, -90.0, 90.0, 300.0], np.float32)
    module, inputs = module_of(Case(name, [x]))
    assert np.isfinite(interpret(module, inputs)["grad:x0"]).all()


def test_equal_extremes_share_and_the_first_of_a_window_takes_it() -> None:
    from tests.ops.derivatives import module_of
    from tfc.interpret import interpret

    x = np.array([[1.0, 3.0, 3.0, 0.0]])
    module, inputs = module_of(Case("reduce_max", [x], {"axes": (1,)}))
    seed = inputs["seed0"][0]
    found = interpret(module, inputs)["grad:x0"]
    np.testing.assert_allclose(found, [[0, seed / 2, seed / 2, 0]])
    module, inputs = module_of(Case("max_pool", [x[None]], {"kernel": (4,)}))
    seed = inputs["seed0"].item()
    np.testing.assert_allclose(interpret(module, inputs)["grad:x0"], [[[0, seed, 0, 0]]])
