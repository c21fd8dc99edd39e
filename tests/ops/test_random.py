"""Random ops: the words they use, the state they leave, the ops that they decompose into."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tfc.ops
from tfc.interpret import interpret
from tfc.ir.core import Module
from tfc.ir.errors import TfcError
from tfc.ir.types import DTYPES
from tfc.ir.verifier import verify
from tfc.passes.base import PassContext
from tfc.passes.graph.decompose import Decompose
from tfc.runtime.state import State
from tfc.text.parse import parse_module

assert tfc.ops
KNOWN = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123: counter 0, key 0
SHAPES = [(), (5,), (2, 3), (3, 0)]


def module_of(op: str, kind: str, **attributes: Any) -> Module:
    """A function `main` that draws twice."""
    extra = "".join(f", {k} = {v}" for k, v in attributes.items())
    dtype, shape = kind.rpartition("x")[2], [int(n) for n in kind.split("x")[:-1]]
    draw = f"{op}(@state) {{shape = {shape}, dtype = {dtype}{extra}}}"
    return parse_module(
        f"""module {{
          variable @state : tensor<2xu64>
          func @main() -> (%y: tensor<{kind}>, %z: tensor<{kind}>) {{
            %y = {draw} : tensor<{kind}>
            %z = {draw} after(%y) : tensor<{kind}>
            return %y, %z
          }}
        }}"""
    )


def drawn(
    module: Module, seed: int = 0, count: int = 0
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
    """Two draws, and the state after them."""
    state = State()
    state.declare("state", np.dtype(np.uint64), (2,))
    state.write("state", np.array([seed, count], np.uint64))
    found = interpret(module, {}, state=state)
    seed, count = (int(n) for n in state.read("state"))
    return found["y"], found["z"], (seed, count)


def text_of(shape: tuple[int, ...], dtype: str) -> str:
    return "x".join([*map(str, shape), dtype])


def test_uniform_of_known_words() -> None:
    y, _, state = drawn(module_of("random_uniform", "4xf32"))
    assert y.tolist() == [(w >> 8) / 2**24 for w in KNOWN]
    assert state == (0, 2)
    y, _, state = drawn(module_of("random_uniform", "2xf64"))
    pairs = [KNOWN[1] << 32 | KNOWN[0], KNOWN[3] << 32 | KNOWN[2]]
    assert y.tolist() == [(p >> 11) / 2**53 for p in pairs]
    assert state == (0, 2)
    y, _, _ = drawn(module_of("random_uniform", "4xf16"))
    assert y.tolist() == [(w >> 21) / 2**11 for w in KNOWN]
    y, _, _ = drawn(module_of("random_uniform", "4xbf16"))
    assert y.astype(np.float64).tolist() == [(w >> 24) / 2**8 for w in KNOWN]


def test_integers_of_known_words() -> None:
    y, _, _ = drawn(module_of("random_integers", "4xi32", low=-10, high=90))
    assert y.tolist() == [(w * 100 >> 32) - 10 for w in KNOWN]
    y, _, _ = drawn(module_of("random_integers", "4xu32", low=0, high=1 << 32))
    assert y.tolist() == KNOWN


def test_normal_of_known_words() -> None:
    y, _, _ = drawn(module_of("random_normal", "4xf64"))
    u, v = ((KNOWN[1] << 32 | KNOWN[0]) >> 11, (KNOWN[3] << 32 | KNOWN[2]) >> 11)
    radius, angle = np.sqrt(-2 * np.log((u + 1) / 2**53)), 2 * np.pi * (v / 2**53)
    np.testing.assert_allclose(y[:2], [radius * np.cos(angle), radius * np.sin(angle)], 1e-14)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16"])
@pytest.mark.parametrize("op", ["random_uniform", "random_normal"])
def test_floats_are_what_they_decompose_into(op: str, dtype: str, shape: tuple[int, ...]) -> None:
    check_parts(module_of(op, text_of(shape, dtype)))


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64", "u64"])
def test_integers_are_what_they_decompose_into(dtype: str) -> None:
    low = 0 if dtype[0] == "u" else -100
    check_parts(module_of("random_integers", text_of((5, 3), dtype), low=low, high=101))


def check_parts(module: Module) -> None:
    """Bit by bit, at the end of the counter's range too."""
    verify(module)
    for seed, count in ((7, 0), ((1 << 64) - 3, (1 << 64) - 2), (1 << 33, (1 << 32) - 1)):
        y, z, state = drawn(module, seed, count)
        blocks = (state[1] - count) % (1 << 64) // 2
        per_block = 2 if y.dtype == np.float64 else 4
        assert blocks == -(-y.size // per_block) and state[0] == seed
        parts = parse_module(_text(module))
        Decompose().run(parts, PassContext())
        verify(parts)
        found = drawn(parts, seed, count)
        assert found[2] == state
        assert (found[0].tobytes(), found[1].tobytes()) == (y.tobytes(), z.tobytes())
        if y.size > 3:
            assert y.tobytes() != z.tobytes()


def _text(module: Module) -> str:
    from tfc.text.print import print_module

    return print_module(module)


def test_the_size_may_be_a_symbol() -> None:
    module = parse_module(
        """module {
          variable @state : tensor<2xu64>
          func @main(%x: tensor<Sx3xf32>) -> (%y: tensor<Sx3xf32>) {
            %r = random_uniform(@state) {shape = [(S), 3], dtype = f32} : tensor<Sx3xf32>
            %y = add(%r, %x) : tensor<Sx3xf32>
            return %y
          }
        }"""
    )
    verify(module)
    for parts in (module, parse_module(_text(module))):
        if parts is not module:
            Decompose().run(parts, PassContext())
        state = State()
        state.declare("state", np.dtype(np.uint64), (2,))
        state.write("state", np.zeros(2, np.uint64))
        found = interpret(parts, {"x": np.zeros((3, 3), np.float32)}, state=state)["y"]
        expected, _, _ = drawn(module_of("random_uniform", "9xf32"))
        np.testing.assert_array_equal(found.reshape(-1), expected)
        assert state.read("state").tolist() == [0, 3]


def test_the_distributions() -> None:
    count = 40_000
    y, z, _ = drawn(module_of("random_uniform", f"{count}xf32"), 5)
    both = np.concatenate([y, z]).astype(np.float64)
    assert both.min() >= 0 and both.max() < 1
    buckets = np.histogram(both, 50, (0, 1))[0]
    expected = both.size / 50
    assert ((buckets - expected) ** 2 / expected).sum() < 90, "chi squared of 49: p < 0.0004"
    y, z, _ = drawn(module_of("random_normal", f"{count}xf32"), 5)
    both = np.concatenate([y, z]).astype(np.float64)
    for power, moment in ((1, 0), (2, 1), (3, 0), (4, 3)):
        assert abs((both**power).mean() - moment) < 0.08
    assert abs(np.corrcoef(both[::2], both[1::2])[0, 1]) < 0.02
    y, _, _ = drawn(module_of("random_integers", f"{count}xi64", low=3, high=9), 5)
    assert np.abs(np.bincount(y, minlength=9)[3:] - count / 6).max() < 400


@pytest.mark.parametrize(
    ("op", "kind", "attributes", "message"),
    [
        ("random_uniform", "4xi32", {}, "C2: i32 is no float"),
        ("random_normal", "4xu8", {}, "C2: u8 is no float"),
        ("random_integers", "4xf32", {"low": 0, "high": 3}, "C2: f32 is no integer type"),
        ("random_integers", "4xi8", {"low": 0, "high": 129}, "C2: i8 does not hold 0 to 128"),
        ("random_integers", "4xu8", {"low": -1, "high": 3}, "C2: u8 does not hold -1"),
        ("random_integers", "4xi8", {"low": 3, "high": 3}, "C3"),
        ("random_integers", "4xi64", {"low": 0, "high": (1 << 32) + 1}, "C3"),
    ],
)
def test_errors(op: str, kind: str, attributes: dict[str, int], message: str) -> None:
    with pytest.raises(TfcError, match=message):
        verify(module_of(op, kind, **attributes))


def test_the_state_must_be_a_variable_of_its_type() -> None:
    text = """module {
      variable @state : tensor<2xi64>
      func @main() -> (%y: tensor<4xf32>) {
        %y = random_uniform(@state) {shape = [4], dtype = f32} : tensor<4xf32>
        return %y
      }
    }"""
    with pytest.raises(TfcError, match="C1: @state is a tensor<2xi64>"):
        verify(parse_module(text))
    assert DTYPES["bf16"].numpy == ml_dtypes.bfloat16
