"""Gradients of whole graphs as PyTorch gives them: a residual network, an encoder block, an LSTM.

Needs torch (`pip install tfc[bench]`), and is skipped without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfc
import tfc.ops
from tfc.interpret import interpret
from tfc.text.parse import parse_module

assert tfc.ops
torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray]


def compare(
    text: str, inputs: Arrays, xs: list[str], loss: Callable[[dict[str, Any]], Any]
) -> None:
    """The loss and its gradients, in f64."""
    module = parse_module(text)
    names = tfc.gradients(module, "loss", xs)
    found = interpret(module, inputs)
    tensors = {n: torch.tensor(a) for n, a in inputs.items()}
    for x in xs:
        tensors[x].requires_grad_(True)
    expected = loss(tensors)
    expected.backward()
    np.testing.assert_allclose(found["loss"], expected.detach().numpy(), rtol=1e-10)
    for x, name in zip(xs, names, strict=True):
        right = tensors[x].grad.numpy()
        np.testing.assert_allclose(
            found[name], right, rtol=1e-8, atol=1e-10 * max(1, np.abs(right).max()), err_msg=x
        )


def draw(shapes: dict[str, tuple[int, ...]], scale: float = 0.3) -> Arrays:
    generator = np.random.default_rng(7)
    return {n: np.asarray(generator.normal(size=s) * scale) for n, s in shapes.items()}


def tensor_of(shape: tuple[int, ...], dtype: str = "f64") -> str:
    return f"tensor<{'x'.join([*map(str, shape), dtype])}>"


def signature(inputs: Arrays) -> str:
    kinds = {"f": "f64", "i": "i64"}
    return ", ".join(f"%{n}: {tensor_of(a.shape, kinds[a.dtype.kind])}" for n, a in inputs.items())


# ---- a residual network: stem with max pool, two blocks, one of them with a stride


def test_residual_network() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "x": (2, 3, 16, 16), "w0": (4, 3, 7, 7), "w1": (4, 4, 3, 3), "w2": (4, 4, 3, 3),
        "w3": (8, 4, 3, 3), "w4": (8, 8, 3, 3), "w5": (8, 4, 1, 1), "fc": (8, 5), "b": (5,),
    }  # fmt: skip
    for i, c in enumerate((4, 4, 4, 8, 8, 8)):
        shapes |= {f"s{i}": (c,), f"t{i}": (c,)}
    inputs = draw(shapes) | {"label": np.array([[1], [4]])}
    lines: list[str] = []

    def add(name: str, op: str, shape: tuple[int, ...]) -> str:
        lines.append(f"  %{name} = {op} : {tensor_of(shape)}")
        return f"%{name}"

    def norm(i: int, x: str, shape: tuple[int, ...]) -> str:
        """Statistics of the batch, as in training."""
        c, per = shape[1], (1, shape[1], 1, 1)
        m = add(f"m{i}", f"reduce_mean({x}) {{axes = [0, 2, 3], keepdims = true}}", per)
        d = add(f"d{i}", f"sub({x}, {m})", shape)
        q = add(f"q{i}", f"mul({d}, {d})", shape)
        v = add(f"v{i}", f"reduce_mean({q}) {{axes = [0, 2, 3]}}", (c,))
        mean = add(f"r{i}", f"reshape({m}) {{shape = [{c}]}}", (c,))
        return add(f"n{i}", f"batch_norm({x}, %s{i}, %t{i}, {mean}, {v})", shape)

    def conv(i: int, x: str, shape: tuple[int, ...], stride: int, pad: int) -> str:
        lists = f"strides = [{stride}, {stride}], low_pads = [{pad}, {pad}]"
        text = f"conv({x}, %w{i}) {{{lists}, high_pads = [{pad}, {pad}]}}"
        return norm(i, add(f"c{i}", text, shape), shape)

    stem = add("a0", f"relu({conv(0, '%x', (2, 4, 8, 8), 2, 3)})", (2, 4, 8, 8))
    pooled = "kernel = [3, 3], strides = [2, 2], low_pads = [1, 1], high_pads = [1, 1]"
    p = add("p", f"max_pool({stem}) {{{pooled}}}", (2, 4, 4, 4))
    a = add("a1", f"relu({conv(1, p, (2, 4, 4, 4), 1, 1)})", (2, 4, 4, 4))
    a = add("e1", f"add({conv(2, a, (2, 4, 4, 4), 1, 1)}, {p})", (2, 4, 4, 4))
    a = add("a2", f"relu({a})", (2, 4, 4, 4))
    c = add("a3", f"relu({conv(3, a, (2, 8, 2, 2), 2, 1)})", (2, 8, 2, 2))
    c = conv(4, c, (2, 8, 2, 2), 1, 1)
    c = add("e2", f"add({c}, {conv(5, a, (2, 8, 2, 2), 2, 0)})", (2, 8, 2, 2))
    c = add("a4", f"relu({c})", (2, 8, 2, 2))
    c = add("g", f"global_average_pool({c})", (2, 8, 1, 1))
    c = add("f", f"flatten({c})", (2, 8))
    c = add("scores", f"gemm({c}, %fc, %b)", (2, 5))
    c = add("logs", f"log_softmax({c}) {{axis = 1}}", (2, 5))
    c = add("chosen", f"gather_elements({c}, %label) {{axis = 1}}", (2, 1))
    c = add("mean", f"reduce_mean({c}) {{axes = [0, 1]}}", ())
    add("loss", f"neg({c})", ())
    body = "\n".join(lines)
    text = f"func @main({signature(inputs)}) -> (%loss: tensor<f64>) {{\n{body}\n  return %loss\n}}"

    def loss(t: dict[str, Any]) -> Any:
        f = torch.nn.functional

        def block(i: int, x: Any, stride: int, pad: int) -> Any:
            y = f.conv2d(x, t[f"w{i}"], stride=stride, padding=pad)
            return f.batch_norm(y, None, None, t[f"s{i}"], t[f"t{i}"], training=True)

        y = f.max_pool2d(f.relu(block(0, t["x"], 2, 3)), 3, 2, 1)
        z = f.relu(block(2, f.relu(block(1, y, 1, 1)), 1, 1) + y)
        w = block(4, f.relu(block(3, z, 2, 1)), 1, 1) + block(5, z, 2, 0)
        scores = f.relu(w).mean((2, 3)) @ t["fc"] + t["b"]
        return f.cross_entropy(scores, t["label"][:, 0])

    compare(text, inputs, [n for n in inputs if n != "label"], loss)


# ---- a block of an encoder: embeddings, attention in heads, GELU, layer norms


BLOCK = """
func @main(SIGNATURE) -> (%loss: tensor<f64>) {
  %e = gather(%table, %ids) {axis = 0} : tensor<2x5x8xf64>
  %x = layer_norm(%e, %g0, %b0) {axis = 2} : tensor<2x5x8xf64>
  %q0 = matmul(%x, %wq) : tensor<2x5x8xf64>
  %q1 = reshape(%q0) {shape = [2, 5, 2, 4]} : tensor<2x5x2x4xf64>
  %q = transpose(%q1) {permutation = [0, 2, 1, 3]} : tensor<2x2x5x4xf64>
  %k0 = matmul(%x, %wk) : tensor<2x5x8xf64>
  %k1 = reshape(%k0) {shape = [2, 5, 2, 4]} : tensor<2x5x2x4xf64>
  %k = transpose(%k1) {permutation = [0, 2, 1, 3]} : tensor<2x2x5x4xf64>
  %v0 = matmul(%x, %wv) : tensor<2x5x8xf64>
  %v1 = reshape(%v0) {shape = [2, 5, 2, 4]} : tensor<2x5x2x4xf64>
  %v = transpose(%v1) {permutation = [0, 2, 1, 3]} : tensor<2x2x5x4xf64>
  %a = attention(%q, %k, %v, %mask) {scale = 0.5} : tensor<2x2x5x4xf64>
  %a1 = transpose(%a) {permutation = [0, 2, 1, 3]} : tensor<2x5x2x4xf64>
  %a2 = reshape(%a1) {shape = [2, 5, 8]} : tensor<2x5x8xf64>
  %o = matmul(%a2, %wo) : tensor<2x5x8xf64>
  %r = add(%o, %x) : tensor<2x5x8xf64>
  %n = layer_norm(%r, %g1, %b1) {axis = 2} : tensor<2x5x8xf64>
  %h = matmul(%n, %w1) : tensor<2x5x16xf64>
  %i = gelu(%h) : tensor<2x5x16xf64>
  %j = matmul(%i, %w2) : tensor<2x5x8xf64>
  %s = add(%j, %n) : tensor<2x5x8xf64>
  %m = reduce_mean(%s) {axes = [1]} : tensor<2x8xf64>
  %t = reduce_l2(%m) {axes = [1]} : tensor<2xf64>
  %loss = reduce_sum(%t) {axes = [0]} : tensor<f64>
  return %loss
}
"""


def test_encoder_block() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "table": (11, 8), "g0": (8,), "b0": (8,), "g1": (8,), "b1": (8,), "wq": (8, 8),
        "wk": (8, 8), "wv": (8, 8), "wo": (8, 8), "w1": (8, 16), "w2": (16, 8),
        "mask": (2, 1, 1, 5),
    }  # fmt: skip
    inputs = draw(shapes, 0.8)
    inputs["ids"] = np.random.default_rng(1).integers(0, 11, (2, 5))
    text = BLOCK.replace("SIGNATURE", signature(inputs))

    def loss(t: dict[str, Any]) -> Any:
        f = torch.nn.functional
        x = f.layer_norm(t["table"][t["ids"]], (8,), t["g0"], t["b0"])
        q, k, v = ((x @ t[w]).view(2, 5, 2, 4).transpose(1, 2) for w in ("wq", "wk", "wv"))
        a = torch.softmax(q @ k.transpose(2, 3) * 0.5 + t["mask"], -1) @ v
        r = a.transpose(1, 2).reshape(2, 5, 8) @ t["wo"] + x
        n = f.layer_norm(r, (8,), t["g1"], t["b1"])
        s = f.gelu(n @ t["w1"]) @ t["w2"] + n
        return s.mean(1).norm(dim=1).sum()

    compare(text, inputs, [n for n in inputs if n != "ids"], loss)


# ---- an LSTM by `scan`


LSTM = """
func @main(SIGNATURE) -> (%loss: tensor<f64>) {
  %h, %c, %ys = scan(%h0, %c0, %x) {carries = 2, length = 7}
      : tensor<3x4xf64>, tensor<3x4xf64>, tensor<7x3x4xf64>
      do(%a: tensor<3x4xf64>, %b: tensor<3x4xf64>, %u: tensor<3x5xf64>) {
    %p = matmul(%u, %w) : tensor<3x16xf64>
    %q = matmul(%a, %r) : tensor<3x16xf64>
    %s = add(%p, %q) : tensor<3x16xf64>
    %t = add(%s, %bias) : tensor<3x16xf64>
    %i0, %f0, %g0, %o0 = split(%t) {axis = 1, sizes = [4, 4, 4, 4]}
      : tensor<3x4xf64>, tensor<3x4xf64>, tensor<3x4xf64>, tensor<3x4xf64>
    %i = sigmoid(%i0) : tensor<3x4xf64>
    %f = sigmoid(%f0) : tensor<3x4xf64>
    %g = tanh(%g0) : tensor<3x4xf64>
    %o = sigmoid(%o0) : tensor<3x4xf64>
    %k = mul(%f, %b) : tensor<3x4xf64>
    %n = mul(%i, %g) : tensor<3x4xf64>
    %m = add(%k, %n) : tensor<3x4xf64>
    %z = tanh(%m) : tensor<3x4xf64>
    %y = mul(%o, %z) : tensor<3x4xf64>
    yield %y, %m, %y
  }
  %q2 = mul(%ys, %ys) : tensor<7x3x4xf64>
  %one = reduce_sum(%q2) {axes = [0, 1, 2]} : tensor<f64>
  %two = reduce_sum(%c) {axes = [0, 1]} : tensor<f64>
  %loss = add(%one, %two) : tensor<f64>
  return %loss
}
"""


def test_lstm() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "x": (7, 3, 5), "w": (5, 16), "r": (4, 16), "bias": (16,), "h0": (3, 4), "c0": (3, 4),
    }  # fmt: skip
    inputs = draw(shapes, 0.7)

    def loss(t: dict[str, Any]) -> Any:
        zero = torch.zeros(16, dtype=torch.float64)
        parts = [t["w"].T, t["r"].T, t["bias"], zero]
        state = (t["h0"][None], t["c0"][None])
        ys, _, c = torch._VF.lstm(t["x"], state, parts, True, 1, 0.0, False, False, False)
        return (ys * ys).sum() + c.sum()

    compare(LSTM.replace("SIGNATURE", signature(inputs)), inputs, list(inputs), loss)
