"""Small models that hold what real ones are made of, with seeded weights."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import tfc.ops  # noqa: F401  registers the ops
from tfc.ir.core import Module
from tfc.ir.weights import Weights
from tfc.text import parse_module

MLP = """module {
  dim B = "batch"
  func @main(%x: tensor<Bx20xf32>) -> (%y: tensor<Bx7xf32>, %best: tensor<Bxi64>) {
    %w1 = constant {value = @w1} : tensor<20x20xf32>
    %b1 = constant {value = @b1} : tensor<20xf32>
    %s = constant {value = @s} : tensor<20xf32>
    %w2 = constant {value = @w2} : tensor<20x7xf32>
    %h = matmul(%x, %w1) : tensor<Bx20xf32>
    %a = add(%h, %b1) : tensor<Bx20xf32>
    %g = gelu(%a) : tensor<Bx20xf32>
    %r = add(%g, %x) : tensor<Bx20xf32>
    %n = layer_norm(%r, %s, %b1) {axis = 1} : tensor<Bx20xf32>
    %l = matmul(%n, %w2) : tensor<Bx7xf32>
    %y = softmax(%l) {axis = 1} : tensor<Bx7xf32>
    %best = argmax(%y) {axis = 1} : tensor<Bxi64>
    return %y, %best
  }
}"""

CNN = """module {
  func @main(%x: tensor<1x3x5x5xf32>) -> (%y: tensor<1x5xf32>) {
    %w1 = constant {value = @w1} : tensor<16x3x3x3xf32>
    %b1 = constant {value = @b1} : tensor<16xf32>
    %scale = constant {value = @scale} : tensor<16xf32>
    %mean = constant {value = @mean} : tensor<16xf32>
    %w2 = constant {value = @w2} : tensor<16x1x3x3xf32>
    %w3 = constant {value = @w3} : tensor<20x16x1x1xf32>
    %w4 = constant {value = @w4} : tensor<20x10x1x1xf32>
    %w5 = constant {value = @w5} : tensor<40x5xf32>
    %b5 = constant {value = @b5} : tensor<5xf32>
    %c = conv(%x, %w1, %b1) {strides = [2, 2], low_pads = [1, 1], high_pads = [1, 1]}
        : tensor<1x16x3x3xf32>
    %var = mul(%scale, %scale) : tensor<16xf32>
    %bn = batch_norm(%c, %scale, %b1, %mean, %var) : tensor<1x16x3x3xf32>
    %r = relu(%bn) : tensor<1x16x3x3xf32>
    %d = conv(%r, %w2) {low_pads = [1, 1], high_pads = [1, 1], groups = 16}
        : tensor<1x16x3x3xf32>
    %sum = add(%d, %r) : tensor<1x16x3x3xf32>
    %p = max_pool(%sum) {kernel = [3, 3], strides = [2, 2], low_pads = [1, 1], high_pads = [1, 1]}
        : tensor<1x16x2x2xf32>
    %e = conv(%p, %w3) : tensor<1x20x2x2xf32>
    %f = conv(%e, %w4) {groups = 2} : tensor<1x20x2x2xf32>
    %j = concat(%e, %f) {axis = 1} : tensor<1x40x2x2xf32>
    %g = global_average_pool(%j) : tensor<1x40x1x1xf32>
    %v = flatten(%g) {axis = 1} : tensor<1x40xf32>
    %l = gemm(%v, %w5, %b5) : tensor<1x5xf32>
    %y = log_softmax(%l) {axis = 1} : tensor<1x5xf32>
    return %y
  }
}"""

TRANSFORMER = """module {
  dim B = "batch" in 1..8
  dim S = "sequence" in 1..16
  func @main(%ids: tensor<BxSxi64>, %mask: tensor<BxSxbool>) -> (%y: tensor<BxSx8xf32>) {
    %table = constant {value = @table} : tensor<6x8xf32>
    %wq = constant {value = @wq} : tensor<8x8xf32>
    %wk = constant {value = @wk} : tensor<8x8xf32>
    %wv = constant {value = @wv} : tensor<8x8xf32>
    %wo = constant {value = @wo} : tensor<8x8xf32>
    %half = constant {value = dense<0.5>} : tensor<f32>
    %low = constant {value = dense<-1e9>} : tensor<f32>
    %zero = constant {value = dense<0.0>} : tensor<f32>
    %x = gather(%table, %ids) : tensor<BxSx8xf32>
    %q = matmul(%x, %wq) : tensor<BxSx8xf32>
    %q4 = reshape(%q) {shape = [(B), (S), 2, 4]} : tensor<BxSx2x4xf32>
    %qh = transpose(%q4) {permutation = [0, 2, 1, 3]} : tensor<Bx2xSx4xf32>
    %k = matmul(%x, %wk) : tensor<BxSx8xf32>
    %k4 = reshape(%k) {shape = [(B), (S), 2, 4]} : tensor<BxSx2x4xf32>
    %kh = transpose(%k4) {permutation = [0, 2, 3, 1]} : tensor<Bx2x4xSxf32>
    %v = matmul(%x, %wv) : tensor<BxSx8xf32>
    %v4 = reshape(%v) {shape = [(B), (S), 2, 4]} : tensor<BxSx2x4xf32>
    %vh = transpose(%v4) {permutation = [0, 2, 1, 3]} : tensor<Bx2xSx4xf32>
    %scores = matmul(%qh, %kh) : tensor<Bx2xSxSxf32>
    %scaled = mul(%scores, %half) : tensor<Bx2xSxSxf32>
    %m = reshape(%mask) {shape = [(B), 1, 1, (S)]} : tensor<Bx1x1xSxbool>
    %bias = where(%m, %zero, %low) : tensor<Bx1x1xSxf32>
    %biased = add(%scaled, %bias) : tensor<Bx2xSxSxf32>
    %p = softmax(%biased) {axis = 3} : tensor<Bx2xSxSxf32>
    %o = matmul(%p, %vh) : tensor<Bx2xSx4xf32>
    %ot = transpose(%o) {permutation = [0, 2, 1, 3]} : tensor<BxSx2x4xf32>
    %of = reshape(%ot) {shape = [(B), (S), 8]} : tensor<BxSx8xf32>
    %out = matmul(%of, %wo) : tensor<BxSx8xf32>
    %y = add(%out, %x) : tensor<BxSx8xf32>
    return %y
  }
}"""

MOVES = """module {
  func @main(%x: tensor<Sx6xi32>, %h: tensor<Sx6xf16>)
      -> (%y: tensor<6x(S+2)xi32>, %z: tensor<Sx3xf16>, %n: tensor<i64>, %t: tensor<Sx12xf32>) {
    %p = pad(%x) {low = [1, 0], high = [1, 0]} : tensor<(S+2)x6xi32>
    %c = cumsum(%p) {axis = 0, reverse = true} : tensor<(S+2)x6xi32>
    %y = transpose(%c) {permutation = [1, 0]} : tensor<6x(S+2)xi32>
    %s = slice(%h) {starts = [0, 5], limits = [(S), -1], steps = [1, -2]} : tensor<Sx3xf16>
    %e = exp(%s) : tensor<Sx3xf16>
    %sum = reduce_sum(%e) {axes = [0], keepdims = true} : tensor<1x3xf16>
    %z = div(%e, %sum) : tensor<Sx3xf16>
    %n = dim_value {value = (2*S)} : tensor<i64>
    %f = cast(%x) {to = f32} : tensor<Sx6xf32>
    %g = cast(%h) {to = f32} : tensor<Sx6xf32>
    %t = concat(%f, %g) {axis = 1} : tensor<Sx12xf32>
    return %y, %z, %n, %t
  }
}"""

TEXTS = {"mlp": MLP, "cnn": CNN, "transformer": TRANSFORMER, "moves": MOVES}


def whole_model(name: str) -> Module:
    """A model with weights of a scale that keeps activations near 1."""
    rng = np.random.default_rng(len(name))
    weights = Weights()
    for constant, dims in re.findall(r"value = @(\w+)} : tensor<([\dx]+)xf32>", TEXTS[name]):
        shape = tuple(int(n) for n in dims.split("x"))
        fan_in = max(1, int(np.prod(shape[1:] if len(shape) == 4 else shape[:1])))
        scale = fan_in**-0.5 if len(shape) > 1 else 1.0
        weights.add((rng.standard_normal(shape) * scale).astype(np.float32), constant)
    return parse_module(TEXTS[name], weights=weights)


def inputs(name: str, batch: int, length: int) -> dict[str, Any]:
    """Inputs of a size."""
    rng = np.random.default_rng(batch + length)
    match name:
        case "mlp":
            return {"x": rng.standard_normal((batch, 20)).astype(np.float32)}
        case "cnn":
            return {"x": rng.standard_normal((1, 3, 5, 5)).astype(np.float32)}
        case "transformer":
            mask = np.ones((batch, length), np.bool_)
            mask[-1, length // 2 + 1 :] = False
            return {"ids": rng.integers(0, 6, (batch, length)), "mask": mask}
        case _:
            x = rng.integers(-9, 9, (length, 6)).astype(np.int32)
            return {"x": x, "h": rng.standard_normal((length, 6)).astype(np.float16)}
