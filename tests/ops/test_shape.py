"""Joining, splitting, padding and rearranging against numpy and by hand."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import shapes
from tests.ops.running import make, run, run_decomposed
from tfc.ir.builder import Builder
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.expr import as_expr, symbol
from tfc.ir.types import BF16, F32, F64, TensorType
from tfc.ops.rearrange import DepthToSpace, SpaceToDepth, Trilu
from tfc.ops.shape import Concat, Pad, Split
from tfc.ops.view import Slice

S, U = symbol("S"), symbol("U")


def counting(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.int64).reshape(shape)


@given(data=st.data())
def test_concat(data: Any) -> None:
    shape = data.draw(shapes(1, 3))
    axis = data.draw(st.integers(0, len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    parts = [counting((*shape[:axis], n, *shape[axis + 1 :])) for n in sizes]
    op = Concat(list(Block([_type(p) for p in parts]).args), axis)
    found = op.reference(*parts)
    expected = np.zeros((*shape[:axis], sum(sizes), *shape[axis + 1 :]), np.int64)
    start = 0
    for part, n in zip(parts, sizes, strict=True):
        expected[(slice(None),) * axis + (slice(start, start + n),)] = part
        start += n
    np.testing.assert_array_equal(found, expected)
    assert op.result.tensor.shape == expected.shape


def _type(array: np.ndarray) -> TensorType:
    from tfc.ir.types import dtype_of

    return TensorType(dtype_of(array.dtype), tuple(array.shape))


@given(data=st.data())
def test_split_is_slices(data: Any) -> None:
    shape = data.draw(shapes(1, 3))
    axis = data.draw(st.integers(0, len(shape) - 1))
    sizes = data.draw(st.lists(st.integers(0, 3), max_size=3))
    x = counting((*shape[:axis], sum(sizes), *shape[axis + 1 :]))
    op = make(Split, x, axis=axis, sizes=tuple(sizes))
    found = op.reference(x)
    assert [f.shape for f in found] == [v.tensor.shape for v in op.results]
    if sizes:
        np.testing.assert_array_equal(np.concatenate(found, axis), x)
    pieces = op.decompose(Builder.before_op(op))  # type: ignore[attr-defined]
    for piece, array in zip(pieces, found, strict=True):
        assert isinstance(piece.producer, Slice)
        np.testing.assert_array_equal(piece.producer.reference(x), array)


def test_concat_and_split_of_symbols() -> None:
    x, y = Block([TensorType(F32, (S, 3)), TensorType(F32, (U, 3))]).args
    assert Concat([x, y], 0).result.tensor.shape == (S + U, 3)
    (check,) = Concat([x, y], 1).entry_checks()
    assert check.holds({"S": 2, "U": 2}) and not check.holds({"S": 1, "U": 2})
    (check,) = Split(x, 0, (2, 3)).entry_checks()
    assert check.holds({"S": 5}) and not check.holds({"S": 4})
    assert Split(x, 0, (S,)).entry_checks() == []


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@given(data=st.data())
def test_pad_with_elements_of_the_operand(mode: str, data: Any) -> None:
    """By walking one step at a time, and by the index map that kernels use."""
    n, low, high = (data.draw(st.integers(a, b)) for a, b in ((1, 4), (0, 9), (0, 9)))
    x = counting((n,))
    found = run(Pad, x, None, low=(low,), high=(high,), mode=mode)
    assert found.tolist() == [x[_walk(i - low, n, mode)] for i in range(low + n + high)]
    op = make(Pad, x, None, low=(low,), high=(high,), mode=mode)
    for i in range(low + n + high):
        (source,) = op.source([as_expr(i)])  # type: ignore[attr-defined]
        assert x[source.evaluate({})] == found[i]


def _walk(steps: int, n: int, mode: str) -> int:
    place, direction = 0, 1 if steps >= 0 else -1
    for _ in range(abs(steps)):
        if not 0 <= place + direction < n:
            if mode == "edge" or n == 1:
                continue
            if mode == "reflect":
                direction = -direction
            else:
                place -= direction * n
        place += direction
    return place


@given(data=st.data())
def test_pad_with_a_constant(data: Any) -> None:
    x = counting(data.draw(shapes(0, 3)))
    low, high = [], []
    for n in x.shape:
        first = data.draw(st.integers(-n, 3))
        low.append(first)
        high.append(data.draw(st.integers(-n - first, 3)))
    value = data.draw(st.none() | st.just(np.array(-7)))
    found = run(Pad, x, value, low=tuple(low), high=tuple(high))
    op = make(Pad, x, value, low=tuple(low), high=tuple(high))
    filler = 0 if value is None else -7
    for place in itertools.product(*map(range, found.shape)):
        source = [e.evaluate({}) for e in op.source([as_expr(i) for i in place])]  # type: ignore[attr-defined]
        assert source == [i - a for i, a in zip(place, low, strict=True)]
        inside = all(0 <= i < n for i, n in zip(source, x.shape, strict=True))
        assert found[place] == (x[tuple(source)] if inside else filler)


def test_pad_of_symbolic_sizes() -> None:
    (x,) = Block([TensorType(F32, (S,))]).args
    op = Pad(x, None, (2,), (2,), "reflect")
    assert op.result.tensor.shape == (S + 4,)
    (check,) = op.entry_checks()
    assert check.holds({"S": 1}) and not check.holds({"S": 0})
    for n in (1, 2, 3, 5):
        found = np.pad(counting((n,)), 2, mode="reflect")
        sources = [op.source([as_expr(i)])[0].evaluate({"S": n}) + 1 for i in range(n + 4)]
        assert sources == found.tolist()


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space(mode: str) -> None:
    n, c, h, w, b = 2, 3, 2, 4, 2
    x = counting((n, c * b * b, h, w))
    found = run(DepthToSpace, x, block=b, mode=mode)
    for k, y, z in itertools.product(range(c), range(h * b), range(w * b)):
        inner = y % b * b + z % b
        channel = inner * c + k if mode == "DCR" else k * b * b + inner
        np.testing.assert_array_equal(found[:, k, y, z], x[:, channel, y // b, z // b])
    np.testing.assert_array_equal(run_decomposed(DepthToSpace, x, block=b, mode=mode), found)


def test_space_to_depth_undoes_depth_to_space() -> None:
    x = counting((2, 3, 4, 6))
    deep = run(SpaceToDepth, x, block=2)
    assert deep.shape == (2, 12, 2, 3)
    np.testing.assert_array_equal(run(DepthToSpace, deep, block=2), x)
    np.testing.assert_array_equal(run_decomposed(SpaceToDepth, x, block=2), deep)


@given(data=st.data())
def test_trilu(data: Any) -> None:
    dtype = data.draw(st.sampled_from([np.dtype(np.float32), BF16.numpy]))
    x = counting(data.draw(shapes(2, 3))).astype(dtype)
    k, upper = data.draw(st.integers(-5, 5)), data.draw(st.booleans())
    found = run(Trilu, x, k=k, upper=upper)
    for place in itertools.product(*map(range, x.shape)):
        distance = place[-1] - place[-2]
        kept = distance >= k if upper else distance <= k
        assert found[place] == (x[place] if kept else 0)
    np.testing.assert_array_equal(run_decomposed(Trilu, x, k=k, upper=upper), found)


def infer(kind: Any, *owns: TensorType | None, **attributes: Any) -> Any:
    args = iter(Block([t for t in owns if t]).args)
    return kind(*(next(args) if t else None for t in owns), **attributes)


def concat(*types: TensorType, axis: int) -> Any:
    return Concat(list(Block(types).args), axis)


def f32(*shape: Any) -> TensorType:
    return TensorType(F32, shape)


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("concat: C1: there is nothing", lambda: concat(axis=0)),
        ("concat: C1: .*f32, f64", lambda: concat(f32(2), TensorType(F64, (2,)), axis=0)),
        ("concat: C2: .*write 0", lambda: concat(f32(2), axis=-1)),
        ("concat: C2", lambda: concat(f32(2), f32(2, 2), axis=0)),
        ("concat: C3: .*2 and 3", lambda: concat(f32(2, 1), f32(3, 1), axis=1)),
        ("split: C1", lambda: infer(Split, f32(5), axis=1, sizes=(5,))),
        ("split: C2", lambda: infer(Split, f32(5), axis=0, sizes=(2, 2))),
        ("split: C2", lambda: infer(Split, f32(5), axis=0, sizes=(6, -1))),
        ("pad: C1", lambda: infer(Pad, f32(5), None, low=(1, 1), high=(1,))),
        ("pad: C2", lambda: infer(Pad, f32(5), None, low=(1,), high=(1,), mode="mirror")),
        ("pad: C3", lambda: infer(Pad, f32(5), f32(1), low=(1,), high=(1,))),
        ("pad: C3", lambda: infer(Pad, f32(5), TensorType(F64, ()), low=(1,), high=(1,))),
        ("pad: C3", lambda: infer(Pad, f32(5), f32(), low=(1,), high=(1,), mode="edge")),
        ("pad: C4", lambda: infer(Pad, f32(5), None, low=(-3,), high=(-3,))),
        ("pad: C4", lambda: infer(Pad, f32(5), None, low=(-1,), high=(1,), mode="wrap")),
        ("pad: C5", lambda: infer(Pad, f32(0), None, low=(1,), high=(1,), mode="edge")),
        ("depth_to_space: C1", lambda: infer(DepthToSpace, f32(4, 2, 2), block=2)),
        ("depth_to_space: C2", lambda: infer(DepthToSpace, f32(1, 3, 2, 2), block=2)),
        ("depth_to_space: C2", lambda: infer(DepthToSpace, f32(1, 4, 2, 2), block=0)),
        ("depth_to_space: C3", lambda: infer(DepthToSpace, f32(1, 4, 2, 2), block=2, mode="X")),
        ("space_to_depth: C1", lambda: infer(SpaceToDepth, f32(4, 2), block=2)),
        ("space_to_depth: C2", lambda: infer(SpaceToDepth, f32(1, 1, 3, 2), block=2)),
        ("trilu: C1", lambda: infer(Trilu, f32(3))),
    ],
)
def test_broken_constraints(message: str, build: Any) -> None:
    with pytest.raises(TfcError, match=f"(?s){message}"):
        build()
