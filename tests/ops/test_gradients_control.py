"""Gradients through control flow and state, several uses, missing paths: by module text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc
import tfc.ops
from tfc.interpret import interpret, state_of
from tfc.ir.core import Module
from tfc.ir.errors import TfcError
from tfc.ir.verifier import verify
from tfc.runtime.state import State
from tfc.text.parse import parse_module
from tfc.text.print import print_module

assert tfc.ops
Inputs = dict[str, Any]


def check(
    text: str, inputs: Inputs, ys: list[str], xs: list[str], tolerance: float = 1e-6
) -> Module:
    """Against central differences along random directions; the module with the gradients."""
    plain, module = parse_module(text), parse_module(text)
    names = tfc.gradients(module, ys, xs)
    verify(module)
    assert print_module(parse_module(print_module(module))) == print_module(module)
    found = interpret(module, inputs)
    generator = np.random.default_rng(0)
    for x, name in zip(xs, names, strict=True):
        base = np.asarray(inputs[x])
        assert found[name].shape == base.shape
        direction = np.asarray(generator.normal(size=base.shape))
        ends = [
            sum(
                float(v.sum())
                for k, v in interpret(plain, {**inputs, x: base + s * 1e-6 * direction}).items()
                if k in ys
            )
            for s in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / 2e-6
        assert abs(float((found[name] * direction).sum()) - slope) <= tolerance * max(1, abs(slope))
    return module


SHARED = """
func @main(%x: tensor<3xf64>, %z: tensor<3xf64>) -> (%y: tensor<3xf64>) {
  %a = exp(%x) : tensor<3xf64>
  %b = mul(%a, %x) : tensor<3xf64>
  %c = add(%b, %a) : tensor<3xf64>
  %s = stop_gradient(%c) : tensor<3xf64>
  %d = sign(%c) : tensor<3xf64>
  %e = mul(%c, %c) : tensor<3xf64>
  %y = add(%e, %d) : tensor<3xf64>
  return %y
}
"""


def test_uses_add_up_and_no_path_is_zeros() -> None:
    x = np.array([0.5, -1.5, 2.0])
    module = check(SHARED, {"x": x, "z": x}, ["y"], ["x", "z"])
    assert not interpret(module, {"x": x, "z": x})["grad:z"].any()


BRANCH = """
func @main(%c: tensor<bool>, %x: tensor<Sxf64>, %w: tensor<f64>) -> (%y: tensor<Sxf64>) {
  %h = mul(%x, %w) : tensor<Sxf64>
  %y = if(%c) : tensor<Sxf64> then {
    %t = tanh(%h) : tensor<Sxf64>
    %q = if(%c) : tensor<Sxf64> then {
      %p = mul(%t, %x) : tensor<Sxf64>
      %e = exp(%p) : tensor<Sxf64>
      yield %e
    } else {
      yield %t
    }
    %u = mul(%q, %t) : tensor<Sxf64>
    yield %u
  } else {
    yield %h
  }
  return %y
}
"""


@pytest.mark.parametrize("chosen", [True, False])
def test_if_gives_the_gradient_of_the_branch_that_ran(chosen: bool) -> None:
    x = np.array([0.5, -1.0, 2.0])
    check(BRANCH, {"c": np.bool_(chosen), "x": x, "w": np.float64(0.7)}, ["y"], ["x", "w"])


RECURRENT = """
func @main(%x: tensor<Sx3xf64>, %h: tensor<4xf64>, %w: tensor<3x4xf64>, %u: tensor<4x4xf64>)
    -> (%y: tensor<Sx4xf64>, %last: tensor<4xf64>) {
  %last, %y = scan(%h, %x) {carries = 1, length = (S)REVERSE} : tensor<4xf64>, tensor<Sx4xf64>
      do(%a: tensor<4xf64>, %b: tensor<3xf64>) {
    %p = matmul(%b, %w) : tensor<4xf64>
    %q = matmul(%a, %u) : tensor<4xf64>
    %s = add(%p, %q) : tensor<4xf64>
    %t = tanh(%s) : tensor<4xf64>
    %g = sigmoid(%s) : tensor<4xf64>
    %o = mul(%t, %g) : tensor<4xf64>
    yield %t, %o
  }
  return %y, %last
}
"""


@pytest.mark.parametrize("reverse", ["", ", reverse = true"])
@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize("ys", [["y"], ["last"], ["y", "last"]])
def test_scan_is_a_scan_the_other_way(reverse: str, length: int, ys: list[str]) -> None:
    generator = np.random.default_rng(length)
    shapes = {"x": (length, 3), "h": (4,), "w": (3, 4), "u": (4, 4)}
    inputs = {n: generator.normal(size=s) for n, s in shapes.items()}
    module = check(RECURRENT.replace("REVERSE", reverse), inputs, ys, list(inputs))
    scans = [op for op in module.walk() if op.name == "scan"]
    assert len(scans) == 2 and not any(op.name == "tanh" for op in scans[1].do.walk())  # type: ignore[attr-defined]


NESTED = """
func @main(%x: tensor<3xf64>, %w: tensor<f64>) -> (%y: tensor<3xf64>) {
  %zero = constant {value = dense<0>} : tensor<i64>
  %one = constant {value = dense<1>} : tensor<i64>
  %two = constant {value = dense<2>} : tensor<i64>
  %n = constant {value = dense<4>} : tensor<i64>
  %i, %y = while(%zero, %x) : tensor<i64>, tensor<3xf64>
      cond(%k: tensor<i64>, %a: tensor<3xf64>) {
    %c = less_equal(%k, %n) : tensor<bool>
    yield %c
  } do(%k: tensor<i64>, %a: tensor<3xf64>) {
    %next = add(%k, %two) : tensor<i64>
    %j, %b = while(%n, %a) : tensor<i64>, tensor<3xf64>
        cond(%l: tensor<i64>, %p: tensor<3xf64>) {
      %c = greater(%l, %one) : tensor<bool>
      yield %c
    } do(%l: tensor<i64>, %p: tensor<3xf64>) {
      %m = sub(%l, %one) : tensor<i64>
      %q = mul(%p, %w) : tensor<3xf64>
      %s = sin(%q) : tensor<3xf64>
      yield %m, %s
    }
    %d = add(%b, %x) : tensor<3xf64>
    yield %next, %d
  }
  return %y
}
"""


def test_counted_loops_in_loops() -> None:
    inputs = {"x": np.array([0.5, -1.0, 2.0]), "w": np.float64(1.3)}
    module = check(NESTED, inputs, ["y"], ["x", "w"])
    lengths = [op.length for op in module.walk() if op.name == "scan"]  # type: ignore[attr-defined]
    assert lengths == [3, 3, 3, 3]


UNCOUNTED = """
func @main(%x: tensor<f64>, %w: tensor<f64>) -> (%y: tensor<f64>) {
  %limit = constant {value = dense<100.0>} : tensor<f64>
  %y = while(%x) MAXIMUM: tensor<f64>
      cond(%a: tensor<f64>) {
    %c = less(%a, %limit) : tensor<bool>
    yield %c
  } do(%a: tensor<f64>) {
    %b = mul(%a, %w) : tensor<f64>
    yield %b
  }
  return %y
}
"""


@pytest.mark.parametrize(("maximum", "rounds"), [(20, 7), (3, 3)])
def test_a_bound_lets_any_loop_have_a_gradient(maximum: int, rounds: int) -> None:
    text = UNCOUNTED.replace("MAXIMUM", f"{{maximum = {maximum}}}")
    inputs = {"x": np.float64(1.0), "w": np.float64(2.0)}
    module = check(text, inputs, ["y"], ["x", "w"])
    assert interpret(module, inputs)["y"] == 2.0**rounds
    assert interpret(module, inputs)["grad:w"] == rounds * 2.0 ** (rounds - 1)


BOUNDED = """
module {
  variable @seen : tensor<f64>
  variable @tests : tensor<f64>
  func @main(%x: tensor<f64>, %w: tensor<f64>) -> (%y: tensor<f64>) {
    %limit = constant {value = dense<100.0>} : tensor<f64>
    %y = while(%x) {maximum = 20} : tensor<f64> cond(%a: tensor<f64>) {
      %c = less(%a, %limit) : tensor<bool>
      TEST
    } do(%a: tensor<f64>) {
      %b = mul(%a, %w) : tensor<f64>
      %set = assign(@seen, %a) : tensor<f64>
      %again = read(@seen) after(%set) : tensor<f64>
      %old = assign(@seen, %again) after(%again) : tensor<f64>
      yield %b after(%old)
    }
    return %y
  }
}
"""


def test_a_bounded_loop_with_a_gradient_has_its_effects_once() -> None:
    module = parse_module(BOUNDED.replace("TEST", "yield %c"))
    tfc.gradients(module, "y", ["x", "w"])
    state = state_of(module)
    found = interpret(module, {"x": np.float64(1.0), "w": np.float64(2.0)}, state=state)
    assert (found["y"], found["grad:w"], state["seen"]) == (128.0, 7 * 64.0, 64.0)


def test_effects_in_the_test_of_a_bounded_loop_are_refused() -> None:
    text = "%t = assign(@tests, %a) : tensor<f64>\n      yield %c after(%t)"
    module = parse_module(BOUNDED.replace("TEST", text))
    with pytest.raises(TfcError, match="while: `cond` has effects"):
        tfc.gradients(module, "y", "x")


@pytest.mark.parametrize(("start", "rounds"), [(1.0, 7), (99.0, 1), (150.0, 0)])
def test_a_loop_without_a_bound_has_a_gradient(start: float, rounds: int) -> None:
    """The backward loop runs it again."""
    inputs = {"x": np.float64(start), "w": np.float64(2.0)}
    module = check(UNCOUNTED.replace("MAXIMUM", ""), inputs, ["y"], ["x", "w"])
    found = interpret(module, inputs)
    assert found["grad:x"] == 2.0**rounds
    assert found["grad:w"] == start * rounds * 2.0 ** (rounds - 1)


def test_a_loop_without_a_bound_that_cannot_run_again_is_refused_with_the_remedy() -> None:
    text = BOUNDED.replace("TEST", "yield %c").replace("{maximum = 20} ", "")
    module = parse_module(text)
    with pytest.raises(TfcError, match="while: the number of iterations is not known") as caught:
        tfc.gradients(module, "y", "x")
    assert "maximum = 100" in (caught.value.hint or "")


VARIABLES = """
module {
  variable @w : tensor<3xf64>
  variable @b : tensor<3xf64>
  variable @unused : tensor<2xf64>
  func @main(%w0: tensor<3xf64>, %x: tensor<4x3xf64>) -> (%y: tensor<f64>) {
    %set = assign(@w, %w0) : tensor<3xf64>
    %b = assign(@b, %w0) : tensor<3xf64>
    %w = read(@w) after(%set) : tensor<3xf64>
    %zero = constant {value = dense<0.0>} : tensor<f64>
    %p = mul(%x, %w) : tensor<4x3xf64>
    %sum = scan(%zero, %p) {carries = 1, length = 4} : tensor<f64>
        do(%a: tensor<f64>, %r: tensor<3xf64>) {
      %v = read(@w) : tensor<3xf64>
      %q = mul(%r, %v) : tensor<3xf64>
      %s = reduce_sum(%q) {axes = [0]} : tensor<f64>
      %t = add(%a, %s) : tensor<f64>
      yield %t
    }
    %n = assign_sub(@b, %w) after(%b) : tensor<3xf64>
    %m = assign_add(@b, %n) after(%n) : tensor<3xf64>
    %u = reduce_sum(%m) {axes = [0]} : tensor<f64>
    %y = add(%sum, %u) : tensor<f64>
    return %y
  }
}
"""


def test_by_a_variable_what_is_read_counts() -> None:
    """y = sum(x * w * w) + sum((b - w) + (b - w)); by the value it is as if b were constant."""
    x, w = np.random.default_rng(0).normal(size=(4, 3)), np.array([1.0, -2.0, 0.5])
    module = parse_module(VARIABLES)
    names = tfc.gradients(module, "y", ["@w", "@unused", "w0", "set"])
    assert names == ["grad:w", "grad:unused", "grad:w0", "grad:set"]
    verify(module)
    found = interpret(module, {"w0": w, "x": x}, state=State())
    np.testing.assert_allclose(found["grad:w"], 2 * (x * w).sum(0) - 1)
    assert not found["grad:unused"].any() and not found["grad:w0"].any()
    assert not found["grad:set"].any()


def test_a_new_function_and_an_extended_one() -> None:
    module = parse_module(SHARED)
    assert tfc.gradients(module, "%y", ["%x"], into="train") == ["grad:x"]
    train = module.functions["train"]
    assert train.output_names == ["y", "grad:x"]
    assert module.main.output_names == ["y"] and len(module.main.body) == 8
    assert [a.name for a in train.body.args] == ["x", "z"]
    with pytest.raises(TfcError, match="has a function @train already"):
        tfc.gradients(module, "y", "x", into="train")
    assert tfc.gradients(module, "y", "x") == ["grad:x"]
    assert tfc.gradients(module, "y", ["x"]) == ["grad:x_2"]


def test_given_gradients_and_second_derivatives() -> None:
    text = """
    func @main(%x: tensor<3xf64>, %g: tensor<3xf64>) -> (%y: tensor<3xf64>) {
      %s = mul(%x, %x) : tensor<3xf64>
      %y = mul(%s, %x) : tensor<3xf64>
      return %y
    }
    """
    module = parse_module(text)
    tfc.gradients(module, "y", "x", grad_ys=["g"])
    tfc.gradients(module, ["grad:x"], ["x", "g"])
    x, g = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, -1.0])
    found = interpret(module, {"x": x, "g": g})
    np.testing.assert_allclose(found["grad:x"], 3 * x * x * g)
    np.testing.assert_allclose(found["grad:x_2"], 6 * x * g)
    np.testing.assert_allclose(found["grad:g"], 3 * x * x)


@pytest.mark.parametrize(
    ("ys", "xs", "text"),
    [
        ("nothing", "x", "@main has no value 'nothing'"),
        ("y", "@v", "the module has no variable @v"),
        ("y", "n", "%n is a tensor<i64>: only floats have gradients"),
    ],
)
def test_mistakes(ys: str, xs: str, text: str) -> None:
    module = parse_module("""
    func @main(%x: tensor<f64>, %n: tensor<i64>) -> (%y: tensor<f64>) {
      %y = exp(%x) : tensor<f64>
      return %y
    }
    """)
    with pytest.raises(TfcError, match=text):
        tfc.gradients(module, ys, xs)


def compiled_and_interpreted(module: Module, inputs: Inputs, folder: Path) -> None:
    """A bundle of a module gives what the interpreter gives."""
    (folder / "model.tfc").write_text(print_module(module))
    tfc.compile(folder / "model.tfc", folder / "model.tfb")
    found = tfc.load(folder / "model.tfb")(*(np.asarray(v) for v in inputs.values()))
    for array, (name, right) in zip(found, interpret(module, inputs).items(), strict=True):
        np.testing.assert_allclose(array, right, rtol=1e-9, atol=1e-9, err_msg=name)


BACKWARD: dict[str, tuple[str, Inputs, list[str]]] = {
    "if": (
        BRANCH,
        {"c": np.bool_(True), "x": np.arange(3.0) / 3, "w": np.float64(0.7)},
        ["x", "w"],
    ),
    "scan": (
        RECURRENT.replace("REVERSE", ""),
        {"x": np.eye(5, 3), "h": np.ones(4) / 2, "w": np.eye(3, 4), "u": np.eye(4) / 3},
        ["x", "h", "w", "u"],
    ),
    "while": (NESTED, {"x": np.array([0.5, -1.0, 2.0]), "w": np.float64(1.3)}, ["x", "w"]),
    "bounded": (
        UNCOUNTED.replace("MAXIMUM", "{maximum = 20}"),
        {"x": np.float64(1.0), "w": np.float64(2.0)},
        ["x", "w"],
    ),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_bundles(name: str, tmp_path: Path) -> None:
    text, inputs, xs = BACKWARD[name]
    module = parse_module(text)
    tfc.gradients(module, "y", xs)
    compiled_and_interpreted(module, inputs, tmp_path)


@pytest.mark.parametrize(("maximum", "end"), [(0, 1.0), (3, 8.0), (20, 128.0)])
def test_a_bounded_loop_stops_in_a_bundle_too(maximum: int, end: float, tmp_path: Path) -> None:
    module = parse_module(UNCOUNTED.replace("MAXIMUM", f"{{maximum = {maximum}}}"))
    inputs = {"x": np.float64(1.0), "w": np.float64(2.0)}
    assert interpret(module, inputs)["y"] == end
    compiled_and_interpreted(module, inputs, tmp_path)
