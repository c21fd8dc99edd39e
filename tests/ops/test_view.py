"""Views: results against numpy, and index maps against results."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ops.generated import axes_of, shapes
from tests.ops.running import make, run, run_decomposed
from tfc.ir.core import Block
from tfc.ir.errors import TfcError
from tfc.ir.expr import as_expr, ceildiv, normal, symbol
from tfc.ir.types import BF16, F32, TensorType
from tfc.ops.base import View
from tfc.ops.view import (
    Expand,
    Flatten,
    Identity,
    Reshape,
    Slice,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
    matched_groups,
    reshape_index,
)

B, S, U = symbol("B"), symbol("S"), symbol("U")


def counting(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def check_maps(kind: type[View], x: np.ndarray, **attributes: Any) -> np.ndarray:
    """The result, once its index maps have been compared with it element by element."""
    op = make(kind, x, **attributes)
    assert isinstance(op, View)
    found = run(kind, x, **attributes)
    for place in itertools.product(*map(range, found.shape)):
        index = [as_expr(i) for i in place]
        source = op.source(index)
        assert len(source) == x.ndim
        assert x[tuple(e.evaluate({}) for e in source)] == found[place]
    for place in itertools.product(*map(range, x.shape)):
        target = op.target([as_expr(i) for i in place])
        if target is not None:
            assert found[tuple(e.evaluate({}) for e in target)] == x[place]
    return found


@st.composite
def reshaped(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of as many elements: factors grouped in two ways, with ones strewn in."""
    factors = draw(st.lists(st.sampled_from([0, 2, 2, 2, 3, 3, 5]), max_size=4))

    def grouped() -> tuple[int, ...]:
        out: list[int] = []
        for factor in factors:
            if out and draw(st.booleans()):
                out[-1] *= factor
            else:
                out.append(factor)
            if draw(st.integers(0, 4)) == 0:
                out.append(1)
        return tuple(out)

    return grouped(), grouped()


@given(reshaped())
def test_reshape(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    shape, other = pair
    x = counting(shape)
    np.testing.assert_array_equal(check_maps(Reshape, x, shape=other), x.reshape(other))


def test_reshape_to_any_shape_of_as_many_elements() -> None:
    for other in [(4, 6), (6, 4), (24,), (2, 12), (3, 8), (2, 2, 2, 3), (1, 24, 1)]:
        check_maps(Reshape, counting((6, 4)), shape=other)
    check_maps(Reshape, counting((0, 3)), shape=(5, 0))
    check_maps(Reshape, counting(()), shape=(1, 1))
    check_maps(Reshape, counting((1, 1)), shape=())


def index_text(shape: tuple[Any, ...], other: tuple[Any, ...]) -> list[str]:
    names = [symbol(f"i{k}") for k in range(len(shape))]
    return [str(e) for e in reshape_index(names, shape, other)]


def test_reshape_splits_and_joins_only_what_changes() -> None:
    assert index_text((B, S, 12, 64), (B, S, 768)) == ["i0", "i1", "64*i2+i3"]
    assert index_text((B, S, 768), (B, S, 12, 64)) == ["i0", "i1", "floordiv(i2,64)", "mod(i2,64)"]
    assert index_text((B * S, 768), (B, S, 768)) == ["floordiv(i0,S)", "mod(i0,S)", "i1"]
    assert index_text((B, S, 768), (B * S, 768)) == ["S*i0+i1", "i2"]
    assert index_text((1, B, 1, S), (B, S, 1)) == ["i1", "i3", "0"]
    assert index_text((2, 3, 4, 5), (6, 20)) == ["3*i0+i1", "5*i2+i3"]
    assert index_text((1, 4, 28, 56, 56), (1, 112, 56, 56)) == ["0", "28*i1+i2", "i3", "i4"]


def test_reshape_between_sizes_that_only_the_call_can_compare() -> None:
    assert matched_groups((B, U, 8), (B, S, 8)) == [([0], [0]), ([1], [1]), ([2], [2])]
    assert index_text((B, U, 8), (B, S, 8)) == ["i0", "i1", "i2"]
    op = infer(Reshape, (B, S, 4), shape=(B, U))
    (check,) = op.entry_checks()
    assert check.holds({"B": 1, "S": 3, "U": 12}) and not check.holds({"B": 1, "S": 3, "U": 3})


@given(data=st.data())
def test_transpose(data: Any) -> None:
    x = counting(data.draw(shapes(0, 4)))
    order = tuple(data.draw(st.permutations(range(x.ndim))))
    found = check_maps(Transpose, x, permutation=order)
    np.testing.assert_array_equal(found, np.transpose(x, order))


@given(data=st.data())
def test_slice(data: Any) -> None:
    x = counting(data.draw(shapes(0, 3)))
    starts, limits, steps, places = [], [], [], []
    for n in x.shape:
        step = data.draw(st.sampled_from([1, 1, 2, 3, -1, -2]))
        low, high = (0, n) if step > 0 else (-1, n - 1)
        first, last = sorted(data.draw(st.integers(low, high)) for _ in range(2))
        start, limit = (first, last) if step > 0 else (last, first)
        starts.append(start)
        limits.append(limit)
        steps.append(step)
        places.append(list(range(start, limit, step)))
    found = check_maps(Slice, x, starts=tuple(starts), limits=tuple(limits), steps=tuple(steps))
    np.testing.assert_array_equal(found, x[np.ix_(*places)] if places else x)


def test_slice_of_symbolic_sizes() -> None:
    op = infer(Slice, (512,), starts=(0,), limits=(S.min(512),), steps=(1,))
    assert op.result.tensor.shape == (S.min(512),) and op.entry_checks() == []
    op = infer(Slice, (512,), starts=(0,), limits=(S,), steps=(1,))
    (check,) = op.entry_checks()
    assert check.holds({"S": 512}) and not check.holds({"S": 513})
    op = infer(Slice, (S,), starts=(S - 1,), limits=(-1,), steps=(-2,))
    assert op.result.tensor.shape == (normal(ceildiv(S, 2)),) and op.entry_checks() == []
    assert [str(e) for e in op.source([symbol("i0")])] == ["S-2*i0-1"]


@given(data=st.data())
def test_expand(data: Any) -> None:
    shape = data.draw(shapes(0, 4))
    own = [1 if data.draw(st.booleans()) else n for n in shape]
    x = counting(tuple(own[data.draw(st.integers(0, len(own))) :]))
    np.testing.assert_array_equal(check_maps(Expand, x, shape=shape), np.broadcast_to(x, shape))


def test_expand_to_a_symbol_that_must_be_the_size() -> None:
    op = infer(Expand, (1, S.min(512)), shape=(B, S))
    assert op.result.tensor.shape == (B, S)
    (check,) = op.entry_checks()
    assert check.holds({"S": 512}) and not check.holds({"S": 513})


@given(data=st.data())
def test_tile(data: Any) -> None:
    x = counting(data.draw(shapes(0, 3)))
    repeats = tuple(data.draw(st.integers(0, 3)) for _ in x.shape)
    np.testing.assert_array_equal(check_maps(Tile, x, repeats=repeats), np.tile(x, repeats))


@given(data=st.data())
def test_squeeze_and_unsqueeze(data: Any) -> None:
    rank = data.draw(st.integers(0, 4))
    axes = data.draw(axes_of(rank))
    shape = [1 if a in axes else data.draw(st.integers(0, 3)) for a in range(rank)]
    full = counting(tuple(shape))
    squeezed = check_maps(Squeeze, full, axes=axes)
    assert squeezed.shape == tuple(n for a, n in enumerate(shape) if a not in axes)
    np.testing.assert_array_equal(check_maps(Unsqueeze, squeezed, axes=axes), full)
    np.testing.assert_array_equal(run_decomposed(Squeeze, full, axes=axes), squeezed)
    np.testing.assert_array_equal(run_decomposed(Unsqueeze, squeezed, axes=axes), full)


@given(data=st.data())
def test_flatten(data: Any) -> None:
    x = counting(data.draw(shapes(0, 4)))
    axis = data.draw(st.integers(0, x.ndim))
    rows = math.prod(x.shape[:axis])
    expected = x.reshape(rows, math.prod(x.shape[axis:]))
    np.testing.assert_array_equal(check_maps(Flatten, x, axis=axis), expected)
    np.testing.assert_array_equal(run_decomposed(Flatten, x, axis=axis), expected)


def test_identity_is_the_operand() -> None:
    x = counting((2, 3))
    np.testing.assert_array_equal(check_maps(Identity, x), x)
    np.testing.assert_array_equal(run_decomposed(Identity, x), x)


def test_views_move_bf16_too() -> None:
    x = counting((2, 3)).astype(BF16.numpy)
    assert run(Transpose, x, permutation=(1, 0)).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert run(Tile, x, repeats=(1, 2)).dtype == BF16.numpy
    assert run(Slice, x, starts=(1, 0), limits=(2, 3), steps=(1, 2)).tolist() == [[3, 5]]


def infer(kind: Any, own: tuple[Any, ...], **attributes: Any) -> Any:
    (x,) = Block([TensorType(F32, own)]).args
    return kind(x, **attributes)


@pytest.mark.parametrize(
    ("message", "kind", "shape", "attributes"),
    [
        ("reshape: C1: .*6 and 8", Reshape, (2, 3), {"shape": (2, 4)}),
        ("reshape: C2: .*0 is more than -1", Reshape, (2, 3), {"shape": (-1, -6)}),
        ("transpose: C1", Transpose, (2, 3), {"permutation": (0, 0)}),
        ("transpose: C1", Transpose, (2, 3), {"permutation": (0,)}),
        ("slice: C1", Slice, (4,), {"starts": (0,), "limits": (1, 1), "steps": (1,)}),
        ("slice: C2", Slice, (4,), {"starts": (0,), "limits": (1,), "steps": (0,)}),
        ("slice: C3", Slice, (4,), {"starts": (-1,), "limits": (1,), "steps": (1,)}),
        ("slice: C3", Slice, (4,), {"starts": (2,), "limits": (1,), "steps": (1,)}),
        ("slice: C3", Slice, (4,), {"starts": (2,), "limits": (5,), "steps": (1,)}),
        ("slice: C3", Slice, (4,), {"starts": (4,), "limits": (0,), "steps": (-1,)}),
        ("slice: C3", Slice, (4,), {"starts": (3,), "limits": (-2,), "steps": (-1,)}),
        ("expand: C1", Expand, (2, 3), {"shape": (3,)}),
        ("expand: C2", Expand, (2, 3), {"shape": (4, 3)}),
        ("tile: C1", Tile, (2, 3), {"repeats": (4,)}),
        ("tile: C2", Tile, (2,), {"repeats": (-1,)}),
        ("squeeze: C1: axes -1 .*\n.*write 1", Squeeze, (2, 1), {"axes": (-1,)}),
        ("squeeze: C1: .*ascend", Squeeze, (1, 1), {"axes": (1, 0)}),
        ("squeeze: C2: .*2 and 1", Squeeze, (2, 1), {"axes": (0,)}),
        ("unsqueeze: C1", Unsqueeze, (2,), {"axes": (2,)}),
        ("flatten: C1", Flatten, (2,), {"axis": 2}),
    ],
)
def test_broken_constraints(message: str, kind: Any, shape: Any, attributes: Any) -> None:
    with pytest.raises(TfcError, match=message):
        infer(kind, shape, **attributes)


def test_a_negative_size_is_refused_at_the_call() -> None:
    (check,) = infer(Reshape, (S - 1,), shape=(S - 1,)).entry_checks()
    assert check.holds({"S": 1}) and not check.holds({"S": 0})
