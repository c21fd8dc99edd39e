"""Rules that fold what follows a convolution into its weights. They round differently.

A sum of products that is scaled, (w1 x1 + w2 x2) c, becomes one of scaled weights, (w1 c) x1 + (w2
c) x2, and a bias joins the sum before it is rounded: the same numbers up to a few units in the last
place. So `canonicalize` applies these rules only where asked (`fold-scales`), from -O2 on.
"""

from __future__ import annotations

import hashlib

import numpy as np

from tfc.ir.core import Op, SymbolRef, Value
from tfc.ir.rewriting import Pattern, Rewriter
from tfc.ir.types import TensorType
from tfc.ir.weights import INLINE_BYTES, Dense, Weights
from tfc.ops.arithmetic import Add, Mul
from tfc.ops.base import Array, narrow, widen
from tfc.ops.constant import Constant
from tfc.ops.convolution import Conv


class FoldScale(Pattern):
    """conv(x, w, b) * c -> conv(x, w * c, b * c), c being one constant for each output channel."""

    name = "conv-fold-scale"
    root = Mul

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def rewrite(self, op: Op, rewriter: Rewriter) -> bool:
        conv, scale = _matched(op, self.weights)
        if conv is None or scale is None:
            return False
        weight = _scaled(self.weights, conv.weight, scale)
        bias = _scaled(self.weights, conv.bias, scale) if conv.bias else None
        if weight is None or (conv.bias and bias is None):
            return False
        rewriter.fuse(conv)
        made = rewriter.value(weight)
        _replace(op, conv, made, rewriter.value(bias) if bias else None, rewriter)
        return True


class FoldBias(Pattern):
    """conv(x, w, b) + c -> conv(x, w, b + c), c being one constant for each output channel."""

    name = "conv-fold-bias"
    root = Add

    def __init__(self, weights: Weights) -> None:
        self.weights = weights

    def rewrite(self, op: Op, rewriter: Rewriter) -> bool:
        conv, addend = _matched(op, self.weights)
        if conv is None or addend is None:
            return False
        total = widen(addend)
        if conv.bias is not None:
            if not isinstance(conv.bias.owner, Constant):
                return False
            total = total + widen(conv.bias.owner.array(self.weights))
        bias = narrow(total, addend.dtype)
        rewriter.fuse(conv)
        made = rewriter.value(_constant(self.weights, bias))
        _replace(op, conv, conv.weight, made, rewriter)
        return True


def rules(weights: Weights) -> tuple[Pattern, ...]:
    return FoldScale(weights), FoldBias(weights)


def _matched(op: Op, weights: Weights) -> tuple[Conv | None, Array | None]:
    """The convolution that only this op uses, and the other operand, one number a channel."""
    x, y = op.operands
    assert x is not None and y is not None
    for value, other in ((x, y), (y, x)):
        conv, held = value.owner, other.owner
        if not isinstance(conv, Conv) or not isinstance(held, Constant) or len(value.uses) != 1:
            continue
        if value.type != op.result.type or not value.tensor.dtype.is_float:
            continue
        if op.after or conv.after or conv.control_users or op.device != conv.device:
            continue
        return conv, _per_channel(held.array(weights), value.tensor)
    return None, None


def _per_channel(array: Array, kind: TensorType) -> Array | None:
    """A constant that broadcasts to N, C, ... as a vector of one number for each channel."""
    channels = kind.shape[1]
    shape = (1,) * (kind.rank - array.ndim) + array.shape
    others = shape[:1] + shape[2:]
    if not isinstance(channels, int) or any(n != 1 for n in others):
        return None
    return np.ascontiguousarray(np.broadcast_to(array.reshape(-1), (channels,)))


def _scaled(weights: Weights, rows: Value, scale: Array) -> Constant | None:
    """A constant with each row along the first axis scaled; None if it is none, or overflows.

    A large one is computed from the original whenever it is read, so that it takes no memory.
    """
    held, kind = rows.owner, rows.tensor
    if not isinstance(held, Constant):
        return None

    def load() -> Array:
        factors = widen(scale).reshape(-1, *[1] * (kind.rank - 1))
        with np.errstate(all="ignore"):
            return narrow(widen(held_array()) * factors, kind.dtype.numpy)

    value = held.value
    held_array = held.reference if isinstance(value, Dense) else lambda: weights.array(value.name)
    array = load()
    if (np.isfinite(held_array()) & ~np.isfinite(array)).any():
        return None
    if array.nbytes <= INLINE_BYTES or isinstance(value, Dense):
        return _constant(weights, array)
    digest = hashlib.sha256(f"{scale.dtype}{scale.shape}".encode() + scale.tobytes()).hexdigest()
    name = f"{value.name}_scaled_{digest[:12]}"
    if name not in weights:
        weights.define(name, TensorType(kind.dtype, kind.shape), load)
    return Constant(SymbolRef(name), TensorType(kind.dtype, kind.shape))


def _constant(weights: Weights, array: Array) -> Constant:
    dense = Dense(array)
    held = dense if array.nbytes <= INLINE_BYTES else SymbolRef(weights.add(array))
    return Constant(held, dense.type)


def _replace(op: Op, conv: Conv, weight: Value, bias: Value | None, rewriter: Rewriter) -> None:
    """Puts a convolution with other weights in the place of the op; attributes stay."""
    kind = conv.result.type
    made = Conv.build([conv.x, weight, bias], dict(conv.attributes), [kind])
    made.device = conv.device
    rewriter.add(made)
    rewriter.replace(op, made.result)
