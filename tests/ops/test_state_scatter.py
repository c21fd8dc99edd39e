"""Updates of slices of variables: against a loop, and the ops that they decompose into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfc.ops
from tests.ops.test_examples import decompose
from tfc.interpret import interpret
from tfc.ir.errors import TfcError
from tfc.ir.types import DTYPES, dtype_of
from tfc.ir.verifier import verify
from tfc.runtime.state import State
from tfc.text.parse import parse_module

assert tfc.ops
COMBINE: dict[str, Any] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "sub": lambda old, new: old - new,
    "min": np.minimum,
    "max": np.maximum,
}


def text_of(name: str, shape: str, indices: str, updates: str) -> str:
    return f"""module {{
      variable @v : tensor<{shape}>
      func @main(%i: tensor<{indices}>, %u: tensor<{updates}>) -> (%y: tensor<{shape}>) {{
        %y = scatter_{name}(@v, %i, %u) : tensor<{shape}>
        return %y
      }}
    }}"""


def kind_of(array: np.ndarray) -> str:
    return "x".join([*map(str, array.shape), dtype_of(array.dtype).name])


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "u8", "f16"])
@pytest.mark.parametrize("places", [[2], [0, 5, 5, 1], [[-1, 0], [5, -6]], [], 3])
@pytest.mark.parametrize("name", COMBINE)
def test_slices(name: str, places: Any, dtype: str) -> None:
    generator = np.random.default_rng(3)
    kind = DTYPES[dtype].numpy
    held = generator.integers(0, 9, (6, 2)).astype(kind)
    indices = np.array(places, np.int64)
    updates = generator.integers(0, 9, (*indices.shape, 2)).astype(kind)
    expected = held.copy()
    for place, row in zip(indices.reshape(-1), updates.reshape(-1, 2), strict=True):
        expected[place] = COMBINE[name](expected[place], row)

    module = parse_module(text_of(name, kind_of(held), kind_of(indices), kind_of(updates)))
    for parts in (False, True):
        if parts:
            decompose(module)
        verify(module)
        state = State()
        state.declare("v", kind, held.shape)
        state.write("v", held)
        found = interpret(module, {"i": indices, "u": updates}, state=state)["y"]
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(state.read("v"), expected)


def test_bools_can_be_replaced() -> None:
    module = parse_module(text_of("update", "3xbool", "2xi64", "2xbool"))
    verify(module)
    state = State()
    state.declare("v", np.dtype(np.bool_), (3,))
    state.write("v", np.zeros(3, np.bool_))
    inputs = {"i": np.array([2, 0]), "u": np.array([True, False])}
    assert interpret(module, inputs, state=state)["y"].tolist() == [False, False, True]


@pytest.mark.parametrize("place", [6, -7, 1 << 40])
def test_an_index_out_of_range_is_an_error_and_changes_nothing(place: int) -> None:
    module = parse_module(text_of("add", "6xf32", "2xi64", "2xf32"))
    for parts in (False, True):
        if parts:
            decompose(module)
        state = State()
        state.declare("v", np.dtype(np.float32), (6,))
        state.write("v", np.zeros(6, np.float32))
        inputs = {"i": np.array([1, place]), "u": np.ones(2, np.float32)}
        with pytest.raises(TfcError, match=f"index {place} is out of range of axis 0"):
            interpret(module, inputs, state=state)
        assert not state.read("v").any()


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (("6x2xf32", "3xf32", "3x2xf32"), "C2: the element type of the indices is f32"),
        (("6x2xf32", "3xi64", "3xf32"), "C3: the updates are a tensor<3xf32>"),
        (("6x2xf32", "3xi64", "3x2xf64"), "C3"),
        (("f32", "3xi64", "3xf32"), "C3: the variable has rank 0"),
        (("6xbool", "3xi64", "3xbool"), "C4"),
    ],
)
def test_errors(types: tuple[str, str, str], message: str) -> None:
    with pytest.raises(TfcError, match=message):
        verify(parse_module(text_of("add", *types)))


def test_the_type_is_that_of_the_variable() -> None:
    text = text_of("add", "6xf32", "2xi64", "2xf32").replace("@v : tensor<6", "@v : tensor<5")
    with pytest.raises(TfcError, match="C1: @v is a tensor<5xf32>"):
        verify(parse_module(text))
