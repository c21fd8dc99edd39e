"""Rules of `raise-idioms` for activations that exporters spell out as products."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tfc.ir.core import Op, Value
from tfc.ir.rewriting import Pattern, Rewriter, pattern
from tfc.ir.types import DType
from tfc.ops.activation import Gelu, Silu
from tfc.ops.arithmetic import Add, Arithmetic, Maximum, Minimum
from tfc.ops.piecewise import Clip, HardSigmoid, HardSwish, Relu
from tfc.ops.transcendental import Erf, Sigmoid, Tanh
from tfc.passes.graph.idioms import (
    Product,
    become,
    may_become_one,
    near,
    number,
    power_of,
    producer,
    product_of,
    shifted,
)

SQRT_HALF = math.sqrt(0.5)
TANH_SCALE = math.sqrt(2 / math.pi)
TANH_CUBE = 0.044715


@dataclass
class Gate:
    """A product scale * x * gate, whose gate an activation computes from x."""

    x: Value
    gate: Value
    scale: float
    parts: list[Op] = field(default_factory=list[Op])


def gates(op: Op) -> Iterator[Gate]:
    """The ways to see an op as a gate of one of its own factors."""
    found = product_of(op.result)
    if len(found.factors) == 2:
        a, b = found.factors
        for x, gate in ((a, b), (b, a)):
            if x.type == op.result.type:
                yield Gate(x, gate, found.scale, found.parts)


def _raise(op: Op, parts: list[Op], new: type[Op], x: Value, rewriter: Rewriter) -> bool:
    if not may_become_one(op, parts):
        return False
    become(op, parts, new(x), rewriter)
    return True


# ---- GELU


@pattern("raise-gelu", Arithmetic)
def raise_gelu(op: Arithmetic, rewriter: Rewriter) -> bool:
    """0.5 * x * (1 + erf(x / sqrt 2)) -> gelu(x), with the factors in any order."""
    for found in gates(op):
        bell = shifted(found.gate)
        erf = producer(bell.x, Erf) if bell and bell.constant == 1 else None
        if bell is None or erf is None or found.scale != 0.5:
            continue
        inner = product_of(erf.x)
        scaled = near(inner.scale, SQRT_HALF, _dtype(op), 2)
        parts = [*found.parts, bell.add, erf, *inner.parts]
        if inner.single() is found.x and scaled:
            return _raise(op, parts, Gelu, found.x, rewriter)
    return False


@pattern("raise-gelu-tanh", Arithmetic)
def raise_gelu_tanh(op: Arithmetic, rewriter: Rewriter) -> bool:
    """0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) -> gelu(x) by tanh."""
    for found in gates(op):
        bell = shifted(found.gate)
        tanh = producer(bell.x, Tanh) if bell and bell.constant == 1 else None
        if bell is None or tanh is None or found.scale != 0.5:
            continue
        cubic = _cubic(product_of(tanh.x), found.x, _dtype(op))
        parts = [*found.parts, bell.add, tanh, *(cubic or ())]
        if cubic is not None and may_become_one(op, parts):
            become(op, parts, Gelu(found.x, approximate="tanh"), rewriter)
            return True
    return False


def _cubic(outer: Product, x: Value, dtype: DType) -> list[Op] | None:
    """The ops of sqrt(2 / pi) * (x + 0.044715 * x ** 3), given as its factors.

    It may also be sqrt(2 / pi) * x * (1 + 0.044715 * x ** 2).
    """
    if not near(outer.scale, TANH_SCALE, dtype, 2):
        return None
    if len(outer.factors) == 1:
        return _sum_of_powers(outer, outer.factors[0], x, dtype)
    others = [f for f in outer.factors if f is not x]
    if len(outer.factors) == 2 and len(others) == 1:
        one = shifted(others[0])
        square = _scaled_power(one.x, x, 2, dtype) if one and one.constant == 1 else None
        return [*outer.parts, one.add, *square] if one and square is not None else None
    return None


def _sum_of_powers(outer: Product, total: Value, x: Value, dtype: DType) -> list[Op] | None:
    add = producer(total, Add)
    if add is None or x not in (add.x, add.y):
        return None
    cube = _scaled_power(add.y if add.x is x else add.x, x, 3, dtype)
    return None if cube is None else [*outer.parts, add, *cube]


def _scaled_power(value: Value, x: Value, exponent: int, dtype: DType) -> list[Op] | None:
    """The ops of 0.044715 * x ** exponent."""
    found = product_of(value)
    power = power_of(found.factors, x)
    right = power is not None and power[0] == exponent and near(found.scale, TANH_CUBE, dtype)
    return [*found.parts, *power[1]] if power and right else None


# ---- SiLU and hard swish


@pattern("raise-silu", Arithmetic)
def raise_silu(op: Arithmetic, rewriter: Rewriter) -> bool:
    """x * sigmoid(alpha * x) -> silu(x)."""
    for found in gates(op):
        sigmoid = producer(found.gate, Sigmoid)
        if sigmoid is None or found.scale != 1:
            continue
        inner = product_of(sigmoid.x)
        parts = [*found.parts, sigmoid, *inner.parts]
        if inner.single() is found.x and may_become_one(op, parts):
            become(op, parts, Silu(found.x, alpha=inner.scale), rewriter)
            return True
    return False


@pattern("raise-hard-swish", Arithmetic)
def raise_hard_swish(op: Arithmetic, rewriter: Rewriter) -> bool:
    """x * hard_sigmoid(x), or x * clip(x + 3, 0, 6) / 6, -> hard_swish(x)."""
    for found in gates(op):
        parts = _hard_sigmoid(found, _dtype(op))
        if parts is not None:
            return _raise(op, [*found.parts, *parts], HardSwish, found.x, rewriter)
    return False


def _hard_sigmoid(found: Gate, dtype: DType) -> list[Op] | None:
    """The ops of the gate that hard swish has."""
    sixth, unit = near(found.scale, 1 / 6, dtype, 2), found.scale == 1
    ready = producer(found.gate, HardSigmoid)
    if ready is not None:
        right = near(ready.alpha, 1 / 6, dtype) and ready.beta == 0.5 and ready.x is found.x
        return [ready] if unit and right else None
    clipped = _clipped(found.gate)
    sum_ = shifted(clipped.x) if clipped else None
    if clipped is None or sum_ is None or sum_.x is not found.x or sum_.constant != 3:
        return None
    right = sixth and clipped.low == 0 and clipped.high == 6
    return [*clipped.parts, sum_.add] if right else None


class Clipped(NamedTuple):
    """x between two constants (None: no constant), and the ops that cut it off."""

    x: Value
    low: float | None
    high: float | None
    parts: list[Op]


def _clipped(value: Value) -> Clipped | None:
    """A value as another one that is cut off, below first."""
    clip = producer(value, Clip)
    if clip is not None:
        return Clipped(clip.x, number(clip.low), number(clip.high), [clip])
    upper = producer(value, Minimum)
    high = number(upper.y) if upper else None
    if upper is None or high is None:
        return None
    relu, lower = producer(upper.x, Relu), producer(upper.x, Maximum)
    if relu is not None:
        return Clipped(relu.x, 0.0, high, [upper, relu])
    return Clipped(lower.x, number(lower.y), high, [upper, lower]) if lower else None


def _dtype(op: Op) -> DType:
    return op.result.tensor.dtype


RULES: tuple[Pattern, ...] = (raise_gelu, raise_gelu_tanh, raise_silu, raise_hard_swish)
