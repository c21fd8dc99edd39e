"""The pass `raise-idioms`: what is recognised, what is not, and that results stay the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfc.ops
from tests.ops.running import assert_close
from tfc.interpret import interpret
from tfc.ir.core import Module
from tfc.passes.base import PassContext, make_pass
from tfc.text.parse import parse_module
from tfc.text.print import print_module

assert tfc.ops

X = "%x: tensor<BxSx8xf32>"
SMALL = "tensor<BxSx1xf32>"
FULL = "tensor<BxSx8xf32>"


def module(body: str, arguments: str = X, result: str = FULL) -> Module:
    """A module whose `main` has this body, with `$F` and `$S` for the usual types."""
    text = body.replace("$F", FULL).replace("$S", SMALL).replace("$K", "tensor<f32>")
    return parse_module(
        f"module {{\nfunc @main({arguments}) -> (%y: {result}) {{\n{text}\nreturn %y\n}}\n}}\n"
    )


def constant(name: str, number: float) -> str:
    return f"{name} = constant {{value = dense<{number!r}>}} : tensor<f32>\n"


def raised(given: Module, sizes: dict[str, tuple[int, ...]]) -> list[str]:
    """The ops after the pass, which must not change the outputs for random inputs."""
    rng = np.random.default_rng(0)
    inputs = {n: rng.normal(size=s).astype(np.float32) for n, s in sizes.items()}
    before = interpret(given, inputs)
    text = print_module(given)
    changed = make_pass("raise-idioms", {}).run(given, PassContext())
    after_text = print_module(given)
    assert changed == (text != after_text)
    assert print_module(parse_module(after_text)) == after_text
    after = interpret(given, inputs)
    for name, array in before.items():
        assert_close(after[name], array, 8)
    return [op.name for op in given.main.body if op.name not in ("constant", "return")]


def only(given: Module, name: str, sizes: Any = None) -> Any:
    """The single op, of this name, that the module became."""
    assert raised(given, sizes or {"x": (2, 3, 8)}) == [name]
    return next(op for op in given.main.body if op.name == name)


# ---- normalisations

CENTERED = """
%m = reduce_mean(%x) {axes = [2], keepdims = true} : $S
%c = sub(%x, %m) : $F
"""
SQUARE = {"pow": "%q = pow(%c, %two) : $F", "mul": "%q = mul(%c, %c) : $F"}
ROOT = """
%v = reduce_mean(%q) {axes = [2], keepdims = true} : $S
%e = add(%v, %eps) : $S
%r = sqrt(%e) : $S
"""
QUOTIENT = {
    "div": "%n = div(%c, %r) : $F",
    "reciprocal": "%i = reciprocal(%r) : $S\n%n = mul(%i, %c) : $F",
    "one over": "%i = div(%one, %r) : $S\n%n = mul(%c, %i) : $F",
}
AFFINE = "%s = mul(%n, %scale) : $F\n%y = add(%bias, %s) : $F"
CONSTANTS = constant("%two", 2.0) + constant("%eps", 1e-5) + constant("%one", 1.0)
PARAMETERS = f"{X}, %scale: tensor<8xf32>, %bias: tensor<8xf32>"
SIZES = {"x": (2, 3, 8), "scale": (8,), "bias": (8,)}


@pytest.mark.parametrize("square", SQUARE)
@pytest.mark.parametrize("quotient", QUOTIENT)
def test_layer_norm(square: str, quotient: str) -> None:
    body = CONSTANTS + CENTERED + SQUARE[square] + ROOT + QUOTIENT[quotient] + "\n" + AFFINE
    op = only(module(body, PARAMETERS), "layer_norm", SIZES)
    assert (op.axis, op.epsilon) == (2, pytest.approx(1e-5, rel=1e-6))
    assert [v.name for v in op.operands] == ["x", "scale", "bias"]


def test_layer_norm_with_the_difference_written_twice() -> None:
    body = CONSTANTS + CENTERED + "%d = sub(%x, %m) : $F\n%q = pow(%d, %two) : $F" + ROOT
    only(module(body + "%y = div(%c, %r) : $F"), "layer_norm")


def test_a_difference_that_others_use_stays() -> None:
    body = CONSTANTS + CENTERED + SQUARE["mul"] + ROOT + QUOTIENT["div"] + "\n%y = add(%n, %c) : $F"
    assert "layer_norm" not in raised(module(body), {"x": (2, 3, 8)})


def test_a_mean_of_other_axes_stays() -> None:
    body = CONSTANTS + CENTERED.replace("[2]", "[1]").replace("$S", "tensor<Bx1x8xf32>")
    body += SQUARE["mul"] + ROOT + "%y = div(%c, %r) : $F"
    assert raised(module(body), {"x": (2, 3, 8)}) == [
        "reduce_mean",
        "sub",
        "rms_norm",
    ]


def test_rms_norm() -> None:
    body = CONSTANTS + "%q = pow(%x, %two) : $F" + ROOT.replace("sqrt", "rsqrt")
    body += "%n = mul(%x, %r) : $F\n%y = mul(%scale, %n) : $F"
    op = only(
        module(body, f"{X}, %scale: tensor<8xf32>"), "rms_norm", {"x": (2, 3, 8), "scale": (8,)}
    )
    assert [v.name for v in op.operands] == ["x", "scale"]


def test_a_full_tensor_is_no_parameter_of_a_norm() -> None:
    body = "%n = layer_norm(%x, _, _) {axis = 2} : $F\n%y = add(%n, %x) : $F"
    assert raised(module(body), {"x": (2, 3, 8)}) == ["layer_norm", "add"]


# ---- softmax

SOFTMAX = """
%m = reduce_max(%x) {axes = [2], keepdims = true} : $S
%d = sub(%x, %m) : $F
%e = exp(%d) : $F
%t = reduce_sum(%e) {axes = [2], keepdims = true} : $S
"""


def test_softmax() -> None:
    assert only(module(SOFTMAX + "%y = div(%e, %t) : $F"), "softmax").axis == 2
    only(module(SOFTMAX + "%i = reciprocal(%t) : $S\n%y = mul(%e, %i) : $F"), "softmax")


def test_exponentials_without_the_maximum_stay() -> None:
    body = "%e = exp(%x) : $F\n" + SOFTMAX.splitlines()[4] + "\n%y = div(%e, %t) : $F"
    assert raised(module(body), {"x": (2, 3, 8)}) == ["exp", "reduce_sum", "div"]


# ---- activations

GELU_CONSTANTS = "".join(
    constant(name, float(np.float32(number)))
    for name, number in {
        "%half": 0.5, "%one": 1, "%two": 2, "%three": 3, "%six": 6, "%sixth": 1 / 6, "%zero": 0,
        "%root": 2**0.5, "%inverse": 0.5**0.5, "%scale": (2 / np.pi) ** 0.5, "%cube": 0.044715,
        "%alpha": 1.702, "%near": 1.4142,
    }.items()
)  # fmt: skip
BELL = "%u = div(%x, %root) : $F\n%f = erf(%u) : $F\n%b = add(%f, %one) : $F\n"
GELUS = {
    "torch": "%p = mul(%x, %b) : $F\n%y = mul(%p, %half) : $F",
    "half first": "%p = mul(%x, %half) : $F\n%y = mul(%p, %b) : $F",
    "half of the bell": "%p = mul(%half, %b) : $F\n%y = mul(%p, %x) : $F",
    "divided": "%p = mul(%b, %x) : $F\n%y = div(%p, %two) : $F",
}


@pytest.mark.parametrize("form", GELUS)
def test_gelu(form: str) -> None:
    only(module(GELU_CONSTANTS + BELL + GELUS[form]), "gelu")
    multiplied = BELL.replace("div(%x, %root)", "mul(%inverse, %x)").replace("%f, %one", "%one, %f")
    assert only(module(GELU_CONSTANTS + multiplied + GELUS[form]), "gelu").approximate == "none"


def test_constants_must_match() -> None:
    body = GELU_CONSTANTS + BELL.replace("%root", "%near") + GELUS["torch"]
    assert "gelu" not in raised(module(body), {"x": (2, 3, 8)})


TANH_GELUS = {
    "pow": "%c = pow(%x, %three) : $F\n%d = mul(%c, %cube) : $F",
    "mul": "%a = mul(%x, %x) : $F\n%c = mul(%a, %x) : $F\n%d = mul(%cube, %c) : $F",
}


@pytest.mark.parametrize("form", TANH_GELUS)
def test_gelu_by_tanh(form: str) -> None:
    body = (
        TANH_GELUS[form]
        + "\n%s = add(%x, %d) : $F\n%u = mul(%s, %scale) : $F\n%f = tanh(%u) : $F\n"
    )
    body += "%b = add(%one, %f) : $F\n" + GELUS["half first"]
    assert only(module(GELU_CONSTANTS + body), "gelu").approximate == "tanh"


def test_gelu_by_tanh_with_x_outside() -> None:
    body = "%a = mul(%x, %cube) : $F\n%c = mul(%a, %x) : $F\n%s = add(%c, %one) : $F\n"
    body += "%l = mul(%x, %scale) : $F\n%u = mul(%l, %s) : $F\n%f = tanh(%u) : $F\n"
    body += "%b = add(%f, %one) : $F\n" + GELUS["torch"]
    assert only(module(GELU_CONSTANTS + body), "gelu").approximate == "tanh"


def test_silu() -> None:
    assert only(module("%s = sigmoid(%x) : $F\n%y = mul(%s, %x) : $F"), "silu").alpha == 1
    scaled = "%a = mul(%alpha, %x) : $F\n%s = sigmoid(%a) : $F\n%y = mul(%x, %s) : $F"
    assert only(module(GELU_CONSTANTS + scaled), "silu").alpha == pytest.approx(1.702)


def test_a_sigmoid_of_something_else_stays() -> None:
    body = "%s = sigmoid(%z) : $F\n%y = mul(%s, %x) : $F"
    given = module(body, f"{X}, %z: {FULL}")
    assert raised(given, {"x": (2, 3, 8), "z": (2, 3, 8)}) == ["sigmoid", "mul"]


HARD_SWISHES = {
    "hard_sigmoid": "%h = hard_sigmoid(%x) {alpha = 0.1666666716337204} : $F\n"
    "%y = mul(%x, %h) : $F",
    "clip": "%a = add(%x, %three) : $F\n%h = clip(%a, %zero, %six) : $F\n"
    "%p = mul(%x, %h) : $F\n%y = div(%p, %six) : $F",
    "relu and minimum": "%a = add(%three, %x) : $F\n%r = relu(%a) : $F\n"
    "%h = minimum(%r, %six) : $F\n%p = mul(%h, %sixth) : $F\n%y = mul(%x, %p) : $F",
}


@pytest.mark.parametrize("form", HARD_SWISHES)
def test_hard_swish(form: str) -> None:
    only(module(GELU_CONSTANTS + HARD_SWISHES[form]), "hard_swish")


# ---- attention

Q = "%q: tensor<Bx2xTx4xf32>"
V = "%v: tensor<Bx2xSx3xf32>"
SCORES = "tensor<Bx2xTxSxf32>"
RESULT = "tensor<Bx2xTx3xf32>"
HEAD_SIZES = {"q": (2, 2, 5, 4), "k": (2, 2, 3, 4), "v": (2, 2, 3, 3), "mask": (2, 1, 1, 3)}


def attention(scores: str, key: str = "%k: tensor<Bx2xSx4xf32>", mask: bool = True) -> Module:
    arguments = f"{Q}, {key}, {V}" + (", %mask: tensor<Bx1x1xSxf32>" if mask else "")
    body = constant("%root", 2.0) + constant("%quarter", 0.25) + scores
    body += f"%w = softmax(%a) {{axis = 3}} : {SCORES}\n%y = matmul(%w, %v) : {RESULT}"
    return module(body.replace("$P", SCORES), arguments, RESULT)


FLIPPED = "%t = transpose(%k) {permutation = [0, 1, 3, 2]} : tensor<Bx2x4xSxf32>\n"
PRODUCT = "%s = matmul(%q, %t) : $P\n"
MASKED = "%a = add(%d, %mask) : $P\n"


def test_attention() -> None:
    given = attention(FLIPPED + PRODUCT + "%d = div(%s, %root) : $P\n" + MASKED)
    op = only(given, "attention", HEAD_SIZES)
    assert op.scale == 0.5
    assert [v.name for v in op.operands] == ["q", "k", "v", "mask"]


def test_attention_without_mask_and_scale() -> None:
    sizes = {n: s for n, s in HEAD_SIZES.items() if n != "mask"}
    given = attention(FLIPPED + "%a = matmul(%q, %t) : $P\n", mask=False)
    op = only(given, "attention", sizes)
    assert op.mask is None and op.scale == 1


def test_factors_of_query_and_key() -> None:
    body = FLIPPED + "%e = mul(%t, %quarter) : tensor<Bx2x4xSxf32>\n"
    body += "%f = mul(%root, %q) : tensor<Bx2xTx4xf32>\n%d = matmul(%f, %e) : $P\n" + MASKED
    assert only(attention(body), "attention", HEAD_SIZES).scale == 0.5


def test_a_factor_before_the_transpose() -> None:
    body = "%e = mul(%k, %quarter) : tensor<Bx2xSx4xf32>\n" + FLIPPED.replace("%k", "%e")
    body += PRODUCT.replace("%s", "%d") + MASKED
    assert only(attention(body), "attention", HEAD_SIZES).scale == 0.25


def test_the_layout_of_heads_becomes_one_transpose() -> None:
    body = "%t = transpose(%k) {permutation = [0, 2, 3, 1]} : tensor<Bx2x4xSxf32>\n"
    body += PRODUCT.replace("%s", "%d") + MASKED
    given = attention(body, "%k: tensor<BxSx2x4xf32>")
    assert raised(given, HEAD_SIZES | {"k": (2, 3, 2, 4)}) == ["transpose", "attention"]
    transpose = next(op for op in given.main.body if op.name == "transpose")
    assert transpose.permutation == (0, 2, 1, 3)


def test_a_key_that_is_given_flipped_is_transposed() -> None:
    body = "%d = matmul(%q, %k) : $P\n" + MASKED
    given = attention(body, "%k: tensor<Bx2x4xSxf32>")
    assert raised(given, HEAD_SIZES | {"k": (2, 2, 4, 3)}) == ["transpose", "attention"]


def test_a_mask_before_the_factor_stays() -> None:
    body = (
        FLIPPED + "%d = matmul(%q, %t) : $P\n%e = add(%d, %mask) : $P\n%a = mul(%e, %root) : $P\n"
    )
    assert "attention" not in raised(attention(body), HEAD_SIZES)


def test_weights_that_others_use_stay() -> None:
    body = FLIPPED + PRODUCT + f"%w = softmax(%s) {{axis = 3}} : {SCORES}\n"
    body += f"%p = matmul(%w, %v) : {RESULT}\n"
    body += "%z = reduce_sum(%w) {axes = [3], keepdims = true} : tensor<Bx2xTx1xf32>\n"
    body = body.replace("$P", SCORES) + f"%y = mul(%p, %z) : {RESULT}"
    given = module(body, f"{Q}, %k: tensor<Bx2xSx4xf32>, {V}", RESULT)
    sizes = {n: s for n, s in HEAD_SIZES.items() if n != "mask"}
    assert "attention" not in raised(given, sizes)


def test_the_locations_of_the_group_are_fused() -> None:
    given = module('%s = sigmoid(%x) : $F loc("a")\n%y = mul(%s, %x) : $F loc("b")')
    op = only(given, "silu")
    assert set(op.location.nodes) == {"a", "b"}
