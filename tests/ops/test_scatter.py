"""Updates at indices, one at a time by hand; bundles, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfc
from tests.ops.generated import arrays, shapes
from tests.ops.running import assert_close, make, run
from tfc.interpret import interpret
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.types import BOOL, F32, I8, I32, I64, TensorType
from tfc.ops.scatter import ScatterElements, ScatterNd
from tfc.text.parse import parse_module

COMBINE: dict[str, Any] = {
    "none": lambda *pair: pair[1],  # pyright: ignore[reportUnknownLambdaType]
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def indices(data: Any, shape: tuple[int, ...], size: int) -> np.ndarray:
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kind = data.draw(st.sampled_from([np.int32, np.int64]))
    return np.asarray(generator.integers(-size, size, shape)).astype(kind)


@given(data=st.data(), reduction=st.sampled_from(list(COMBINE)), dtype=st.sampled_from((F32, I8)))
def test_scatter_nd(data: Any, reduction: str, dtype: Any) -> None:
    shape = data.draw(shapes(1, 3, 1))
    length = data.draw(st.integers(1, len(shape)))
    lead = data.draw(shapes(0, 2))
    x = data.draw(arrays(dtype, shape))
    i = np.stack([indices(data, lead, n) for n in shape[:length]], -1)
    u = data.draw(arrays(dtype, (*lead, *shape[length:])))
    expected = x.astype(np.float64 if dtype == F32 else x.dtype)
    for place in np.ndindex(lead):
        target = tuple(int(n) for n in i[place])
        with np.errstate(over="ignore"):
            expected[target] = COMBINE[reduction](expected[target], u[place])
    found = run(ScatterNd, x, i, u, reduction=reduction)
    assert_close(found, expected.astype(x.dtype), 4)


@given(data=st.data(), reduction=st.sampled_from(list(COMBINE)))
def test_scatter_elements(data: Any, reduction: str) -> None:
    shape = data.draw(shapes(1, 3, 1))
    axis = data.draw(st.integers(0, len(shape) - 1))
    drawn = [data.draw(st.integers(0, 4 if a == axis else n)) for a, n in enumerate(shape)]
    places = tuple(drawn)
    x, u = data.draw(arrays(F32, shape)), data.draw(arrays(F32, places))
    i = indices(data, places, shape[axis])
    expected = x.astype(np.float64)
    for place in np.ndindex(places):
        target = (*place[:axis], int(i[place]), *place[axis + 1 :])
        expected[target] = COMBINE[reduction](expected[target], u[place])
    found = run(ScatterElements, x, i, u, axis=axis, reduction=reduction)
    assert_close(found, expected.astype(np.float32), 4)


def test_no_index_is_the_whole() -> None:
    x, u = np.zeros(3, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    none = np.zeros((2, 0), np.int64)
    assert run(ScatterNd, x, none, u).tolist() == [3, 4, 5]
    assert run(ScatterNd, x, none, u, reduction="add").tolist() == [3, 5, 7]


TEXT = """
func @main(%x: tensor<4xSxf32>, %i: tensor<Bx1xi64>, %u: tensor<BxSxf32>) -> (%y: tensor<4xSxf32>) {
  %d = mul(%u, %u) : tensor<BxSxf32>
  %s = scatter_nd(%x, %i, %d) {reduction = "add"} : tensor<4xSxf32> loc("model:/scatter")
  %y = exp(%s) : tensor<4xSxf32>
  return %y
}
"""


def test_a_bundle_adds_in_order_and_refuses_what_is_out_of_range(tmp_path: Path) -> None:
    (tmp_path / "model.tfc").write_text(TEXT)
    tfc.compile(tmp_path / "model.tfc", tmp_path / "model.tfb")
    bundle = tfc.load(tmp_path / "model.tfb")
    generator = np.random.default_rng(0)
    for rows, width in ((0, 3), (5, 1), (40, 70)):
        x = generator.normal(size=(4, width)).astype(np.float32)
        u = generator.normal(size=(rows, width)).astype(np.float32) / 8
        i = generator.integers(-4, 4, (rows, 1))
        expected = interpret(parse_module(TEXT), {"x": x, "i": i, "u": u})["y"]
        np.testing.assert_allclose(bundle(x, i, u)[0], expected, rtol=1e-5)
    with pytest.raises(tfc.RunError, match="model:/scatter"):
        bundle(x, np.full((40, 1), 4), u)


EMPTY = [
    ('scatter_nd(%x, %i, %u) {reduction = "min"}', "BxS", "Nx1", "NxS", (0, 3)),
    ("scatter_nd(%x, %i, %u)", "BxS", "Nx1", "NxS", (4, 0)),
    ("scatter_nd(%x, %i, %u)", "0x4", "Nx2", "N", (0, 4)),
    ('scatter_elements(%x, %i, %u) {reduction = "add"}', "BxS", "NxS", "NxS", (0, 3)),
    ("scatter_elements(%x, %i, %u)", "0", "N", "N", (0,)),
]


@pytest.mark.parametrize("case", EMPTY)
def test_an_empty_result_has_no_index_in_range(case: Any, tmp_path: Path) -> None:
    """A bundle looks at the indices though it writes nothing; with none of them all is well."""
    op, dims, places, given, shape = case
    text = f"""
    func @main(%x: tensor<{dims}xf32>, %i: tensor<{places}xi64>, %u: tensor<{given}xf32>)
      -> (%y: tensor<{dims}xf32>) {{
      %y = {op} : tensor<{dims}xf32>
      return %y
    }}"""
    (tmp_path / "model.tfc").write_text(text)
    tfc.compile(tmp_path / "model.tfc", tmp_path / "model.tfb")
    module, bundle = parse_module(text), tfc.load(tmp_path / "model.tfb")
    for count in (0, 2):
        sizes = {"N": count, "B": shape[0], "S": shape[-1]}
        i, u = (
            np.full([sizes[d] if d in sizes else int(d) for d in kind.split("x")], value)
            for kind, value in ((places, 9), (given, np.float32(1)))
        )
        inputs = {"x": np.zeros(shape, np.float32), "i": i, "u": u}
        if count:
            with pytest.raises(TfcError, match="index 9 is out of range"):
                interpret(module, inputs)
            with pytest.raises(tfc.RunError, match="out of range"):
                bundle.run(inputs)
        else:
            assert bundle.run(inputs)["y"].shape == interpret(module, inputs)["y"].shape == shape


def test_out_of_range() -> None:
    x, u = np.zeros(3, np.float32), np.zeros(1, np.float32)
    op = make(ScatterNd, x, np.array([[3]]), u)
    with pytest.raises(TfcError, match="scatter_nd: index 3 is out of range of axis 0"):
        op.reference(x, np.array([[3]]), u)


def values(*types: TensorType) -> list[Any]:
    return list(Block(types).args)


def test_errors_cite_the_constraint() -> None:
    x, i, u = values(TensorType(F32, (4, 2)), TensorType(I64, (3, 1)), TensorType(F32, (3, 2)))
    flags, small, whole = values(
        TensorType(BOOL, (4, 2)), TensorType(I32, (3, 3)), TensorType(I64, ())
    )
    (marks,) = values(TensorType(BOOL, (3, 2)))
    cases: list[tuple[str, Any]] = [
        ("scatter_nd: C1", lambda: ScatterNd(x, u, u)),
        ("scatter_nd: C1", lambda: ScatterNd(x, whole, u)),
        ("scatter_nd: C1", lambda: ScatterNd(flags, i, u)),
        ("scatter_nd: C2", lambda: ScatterNd(x, i, u, reduction="mean")),
        ("scatter_nd: C2", lambda: ScatterNd(flags, i, marks, reduction="add")),
        ("scatter_nd: C3", lambda: ScatterNd(x, small, u)),
        ("scatter_nd: C4", lambda: ScatterNd(x, i, x)),
        ("scatter_elements: C1", lambda: ScatterElements(x, u, u)),
        ("scatter_elements: C2", lambda: ScatterElements(x, i, u, reduction="mean")),
        ("scatter_elements: C3", lambda: ScatterElements(x, whole, u)),
        ("scatter_elements: C3", lambda: ScatterElements(x, i, u, axis=2)),
        ("scatter_elements: C4", lambda: ScatterElements(x, i, u)),
        ("scatter_elements: C4", lambda: ScatterElements(x, small, _like(small), axis=0)),
    ]
    for text, build in cases:
        with pytest.raises(TfcError, match=text):
            build()


def _like(value: Any) -> Any:
    return values(TensorType(F32, value.tensor.shape))[0]
