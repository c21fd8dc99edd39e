"""The interpreter of modules: binding of symbols, errors, control flow, fusions, kernels."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest

import tfc.ops
import tfc.tile.ops
from tfc.interpret import bind_symbols, interpret
from tfc.ir.core import Module
from tfc.ir.errors import TfcError
from tfc.ir.weights import Weights
from tfc.text.parse import parse_module

assert tfc.ops and tfc.tile.ops


def parse(text: str, weights: Weights | None = None) -> Module:
    return parse_module(f"module {{\n{textwrap.dedent(text)}\n}}\n", weights=weights)


def f32(*shape: int) -> np.ndarray:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float32).reshape(shape)


def test_a_classifier() -> None:
    weights = Weights()
    w = weights.add(np.eye(4, 3, dtype=np.float32), "w0")
    module = parse(
        f"""
        func @main(%image: tensor<Bx4xf32>) -> (%scores: tensor<Bx3xf32>, %best: tensor<Bxi64>) {{
          %w = constant {{value = @{w}}} : tensor<4x3xf32>
          %b = constant {{value = dense<[0.0, 0.0, 10.0]>}} : tensor<3xf32>
          %h = matmul(%image, %w) : tensor<Bx3xf32>
          %s = add(%h, %b) : tensor<Bx3xf32>
          %i = argmax(%s) {{axis = 1}} : tensor<Bxi64>
          return %s, %i
        }}
        """,
        weights,
    )
    found = interpret(module, {"image": f32(2, 4)})
    assert list(found) == ["scores", "best"]
    assert found["scores"].tolist() == [[1, 2, 13], [5, 6, 17]]
    assert found["best"].tolist() == [2, 2]


ADD = """
    dim S in 1..8
    func @main(%x: tensor<SxUxf32>, %y: tensor<(S+1)xf32>) -> (%z: tensor<SxUxf32>) {
      %z = exp(%x) : tensor<SxUxf32>
      return %z
    }
"""


def test_symbols_are_bound_from_the_shapes() -> None:
    module = parse(ADD)
    arrays = [f32(2, 5), f32(3)]
    assert bind_symbols(module, module.main, arrays) == {"S": 2, "U": 5}
    assert interpret(module, {"x": arrays[0], "y": arrays[1]})["z"].shape == (2, 5)


@pytest.mark.parametrize(
    ("message", "inputs"),
    [
        ("the input 'y' is missing", {"x": f32(2, 5)}),
        ("has no input 'w'\n.*'x', 'y'", {"x": f32(2, 5), "y": f32(3), "w": f32(1)}),
        ("the input 'x' is a .* not f32 of shape \\(2,\\)", {"x": f32(2), "y": f32(3)}),
        ("the input 'x' .* not f64", {"x": f32(2, 5).astype(float), "y": f32(3)}),
        ("the input 'y' .*S\\+1 is 3 here", {"x": f32(2, 5), "y": f32(4)}),
        ("the dimension S is 9\n.*1 to 8", {"x": f32(9, 5), "y": f32(10)}),
    ],
)
def test_inputs_that_do_not_fit(message: str, inputs: dict[str, Any]) -> None:
    with pytest.raises(TfcError, match=message):
        interpret(parse(ADD), inputs)


def test_a_symbol_that_no_input_tells() -> None:
    module = parse(
        """
        func @main(%x: tensor<(2*S)xf32>) -> (%y: tensor<(2*S)xf32>) {
          return %x
        }
        """
    )
    with pytest.raises(TfcError, match="no input tells the dimension S"):
        interpret(module, {"x": f32(4)})


def test_functions_by_name() -> None:
    module = parse(
        """
        func @only(%x: tensor<f32>) -> (%y: tensor<f32>) {
          return %x
        }
        """
    )
    assert interpret(module, {"x": f32()})["y"] == 1
    assert interpret(module, {"x": f32()}, "only")["y"] == 1
    with pytest.raises(TfcError, match=r"no function @other\n.*@only"):
        interpret(module, {}, "other")


def test_dimensions_that_must_agree_are_checked() -> None:
    module = parse(
        """
        func @main(%x: tensor<Sxf32>, %y: tensor<Uxf32>) -> (%z: tensor<Sxf32>) {
          %z = add(%x, %y) : tensor<Sxf32> loc("model:/sum")
          return %z
        }
        """
    )
    assert interpret(module, {"x": f32(2), "y": f32(2)})["z"].tolist() == [2, 4]
    with pytest.raises(TfcError, match=r"add: C2: .*S is 2, U is 1 .*model:/sum"):
        interpret(module, {"x": f32(2), "y": f32(1)})


def test_what_the_results_do_not_need_does_not_run() -> None:
    text = """
        func @main(%x: tensor<3xf32>, %i: tensor<i64>) -> (%y: tensor<f32>) {
          %z = gather(%x, %i) : tensor<f32>
          %y = constant {value = dense<1.0>} : tensor<f32>
          return %y
        }
    """
    beyond = {"x": f32(3), "i": np.array(3)}
    assert interpret(parse(text), beyond)["y"] == 1
    for anchored in ("return %y after(%z)", "%w = neg(%y) after(%z) : tensor<f32>\nreturn %w"):
        module = parse(text.replace("return %y", anchored))
        with pytest.raises(TfcError, match="index 3 is out of range"):
            interpret(module, beyond)
        assert abs(interpret(module, {"x": f32(3), "i": np.array(-3)})["y"]) == 1


IF = """
    func @main(%c: tensor<bool>, %x: tensor<3xf32>, %i: tensor<i64>) -> (%y: tensor<f32>) {
      %one = constant {value = dense<1.0>} : tensor<f32>
      %y = if(%c) : tensor<f32> then {
        %t = gather(%x, %i) : tensor<f32>
        yield %t
      } else {
        %n = neg(%one) : tensor<f32>
        yield %n
      }
      return %y
    }
"""


def test_only_the_chosen_region_runs() -> None:
    module = parse(IF)
    beyond = {"x": f32(3), "i": np.array(7)}
    assert interpret(module, {"c": np.array(False), **beyond})["y"] == -1
    assert interpret(module, {"c": np.array(True), "x": f32(3), "i": np.array(1)})["y"] == 2
    with pytest.raises(TfcError, match="index 7"):
        interpret(module, {"c": np.array(True), **beyond})


@pytest.mark.parametrize(
    ("message", "old", "new"),
    [
        ("if: C1", "%c: tensor<bool>", "%c: tensor<1xbool>"),
        ("if: C1", "%c: tensor<bool>", "%c: tensor<f32>"),
        ("if: C2: `else` yields tensor<3xf32>", "yield %n", "yield %x"),
        ("if: C2: `then` yields nothing", "yield %t", "yield"),
    ],
)
def test_ifs_that_do_not_hold_together(message: str, old: str, new: str) -> None:
    module = parse(IF.replace(old, new))
    with pytest.raises(TfcError, match=message):
        next(op for op in module.walk() if op.name == "if").verify()


FUSION = """
    func @main(%x: tensor<Sx2xf32>, %b: tensor<2xf32>) -> (%y: tensor<Sx2xf32>) {
      %y = fusion(%x, %b) {kind = "map"} : tensor<Sx2xf32>
      do(%u: tensor<Sx2xf32>, %v: tensor<2xf32>) {
        %s = add(%u, %v) : tensor<Sx2xf32>
        yield %s
      }
      return %y
    }
"""


def test_fusions_run_their_region() -> None:
    module = parse(FUSION)
    next(op for op in module.walk() if op.name == "fusion").verify()
    assert interpret(module, {"x": f32(2, 2), "b": f32(2)})["y"].tolist() == [[2, 4], [4, 6]]


@pytest.mark.parametrize(
    ("message", "old", "new"),
    [
        ("fusion: C1", "%v: tensor<2xf32>", "%v: tensor<1xf32>"),
        ("fusion: C2", "yield %s", "yield %v"),
        ("fusion: C3: `add` uses", "add(%u, %v)", "add(%u, %b)"),
    ],
)
def test_fusions_that_do_not_hold_together(message: str, old: str, new: str) -> None:
    module = parse(FUSION.replace(old, new))
    with pytest.raises(TfcError, match=message):
        next(op for op in module.walk() if op.name == "fusion").verify()


LAUNCH = """
    func @main(%x: tensor<1x3x1x2xf32, aBcd2b>, %s: tensor<Sxf32>) -> (%y: tensor<1x3x1x2xf32>) {
      %y = launch(%x) {kernel = @unpack} : tensor<1x3x1x2xf32>
      return %y
    }
    kernel @unpack(%a: buffer<8xf32>, %b: buffer<6xf32, out>) grid(p0 = 3, p1 = 2) {
      %t = load(%a) {at = (floordiv(p0,2)*4+p1*2+mod(p0,2))} : tile<1x1xf32>
      store(%b, %t) {at = (p0*2+p1)}
    }
"""


def test_kernels_see_tensors_as_they_lie_in_memory() -> None:
    x = f32(1, 3, 1, 2)
    found = interpret(parse(LAUNCH), {"x": x, "s": f32(2)})["y"]
    np.testing.assert_array_equal(found, x)


def test_kernels_use_the_symbols_of_the_module() -> None:
    module = parse(
        """
        func @main(%x: tensor<Sxf32>) -> (%y: tensor<(2*S)xf32>) {
          %y = launch(%x) {kernel = @twice} : tensor<(2*S)xf32>
          return %y
        }
        kernel @twice(%a: buffer<Sxf32>, %b: buffer<(2*S)xf32, out>) grid(p0 = S) {
          %t = load(%a) {at = (p0)} : tile<1x1xf32>
          store(%b, %t) {at = (p0)}
          store(%b, %t) {at = (p0+S)}
        }
        """
    )
    assert interpret(module, {"x": f32(2)})["y"].tolist() == [1, 2, 1, 2]


def test_a_missing_kernel() -> None:
    module = parse(
        """
        func @main(%x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
          %y = launch(%x) {kernel = @gone} : tensor<Sxf32>
          return %y
        }
        """
    )
    with pytest.raises(TfcError, match="launch: the module has no kernel @gone"):
        interpret(module, {"x": f32(1)})


def test_a_weight_of_another_type() -> None:
    weights = Weights()
    name = weights.add(np.zeros(3, np.float32), "w")
    module = parse(
        f"""
        func @main() -> (%y: tensor<4xf32>) {{
          %y = constant {{value = @{name}}} : tensor<4xf32>
          return %y
        }}
        """,
        weights,
    )
    with pytest.raises(TfcError, match="constant: C2"):
        interpret(module, {})


@pytest.mark.parametrize("shape", [(0,), (3,)])
def test_sizes_of_zero(shape: tuple[int, ...]) -> None:
    module = parse(
        """
        func @main(%x: tensor<Sxf32>) -> (%y: tensor<f32>, %z: tensor<Sxf32>, %n: tensor<i64>) {
          %y = reduce_sum(%x) {axes = [0], keepdims = false} : tensor<f32>
          %z = exp(%x) : tensor<Sxf32>
          %n = dim_value {value = (S*2)} : tensor<i64>
          return %y, %z, %n
        }
        """
    )
    found = interpret(module, {"x": f32(*shape)})
    assert found["y"] == sum(range(1, shape[0] + 1))
    assert found["z"].shape == shape and found["n"] == 2 * shape[0]
