"""Rules of `raise-idioms` for normalisations and softmax that exporters spell out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfc.ir.core import Op, Value
from tfc.ir.rewriting import Pattern, Rewriter, pattern
from tfc.ops.arithmetic import Add, Arithmetic, Div, Mul, Pow, Sub
from tfc.ops.elementwise import Reciprocal, Rsqrt, Sqrt
from tfc.ops.normalization import LayerNorm, RmsNorm
from tfc.ops.reduction import ReduceMax, ReduceSum
from tfc.ops.reduction_composite import ReduceMean
from tfc.ops.softmax import Softmax
from tfc.ops.transcendental import Exp
from tfc.passes.graph.idioms import (
    become,
    either_way,
    may_become_one,
    number,
    producer,
    shifted,
)


def quotients(op: Arithmetic) -> Iterator[tuple[Value, Value, list[Op]]]:
    """The numerator and denominator of x / y, and of x * reciprocal(y)."""
    if isinstance(op, Div):
        yield op.x, op.y, []
    elif isinstance(op, Mul):
        for x, y in either_way(op):
            inverse, division = producer(y, Reciprocal), producer(y, Div)
            if inverse is not None:
                yield x, inverse.x, [inverse]
            elif division is not None and number(division.x) == 1 and division.y.type == y.type:
                yield x, division.y, [division]


# ---- layer norm and its like


@dataclass
class Scaled:
    """x / sqrt(mean(square of `squared`) + epsilon), the mean along the axes from `axis`."""

    x: Value
    squared: Value
    axis: int
    epsilon: float
    parts: list[Op]


def scaled(op: Arithmetic) -> Iterator[Scaled]:
    """The ways to see an op as a division by a root of a mean of squares."""
    for x, radicand, parts in _over_root(op):
        sum_ = shifted(radicand)
        mean = producer(sum_.x, ReduceMean) if sum_ else None
        axis = _first_axis(mean) if mean else None
        square = _square(mean.x) if mean else None
        if sum_ and mean and square and axis is not None and x.type == op.result.type:
            squared, power = square
            yield Scaled(x, squared, axis, sum_.constant, [*parts, sum_.add, mean, power])


def _over_root(op: Arithmetic) -> Iterator[tuple[Value, Value, list[Op]]]:
    for x, root, parts in quotients(op):
        sqrt = producer(root, Sqrt)
        if sqrt is not None:
            yield x, sqrt.x, [*parts, sqrt]
    for x, inverse in either_way(op) if isinstance(op, Mul) else ():
        rsqrt = producer(inverse, Rsqrt)
        if rsqrt is not None:
            yield x, rsqrt.x, [rsqrt]


def _first_axis(mean: ReduceMean) -> int | None:
    """The first of the axes that are averaged, if they are the last ones and stay."""
    rank = mean.x.tensor.rank
    axis = rank - len(mean.axes)
    trailing = bool(mean.axes) and mean.axes == tuple(range(axis, rank))
    return axis if trailing and mean.keepdims else None


def _square(value: Value) -> tuple[Value, Op] | None:
    """x of x ** 2 or x * x, and that op."""
    power, product = producer(value, Pow), producer(value, Mul)
    if power is not None and number(power.y) == 2 and power.x.type == value.type:
        return power.x, power
    if product is not None and product.x is product.y:
        return product.x, product
    return None


def _centered(value: Value, axis: int) -> tuple[Value, list[Op]] | None:
    """x of x - mean(x), the mean along the axes from `axis`."""
    difference = producer(value, Sub)
    mean = producer(difference.y, ReduceMean) if difference else None
    if difference is None or mean is None or mean.x is not difference.x:
        return None
    return (mean.x, [difference, mean]) if _first_axis(mean) == axis else None


@pattern("raise-layer-norm", Arithmetic)
def raise_layer_norm(op: Arithmetic, rewriter: Rewriter) -> bool:
    """(x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) -> layer_norm(x)."""
    for found in scaled(op):
        above, below = _centered(found.x, found.axis), _centered(found.squared, found.axis)
        if above is None or below is None or above[0] is not below[0]:
            continue
        parts = [*found.parts, *above[1], *below[1]]
        if may_become_one(op, parts):
            new = LayerNorm(above[0], None, None, axis=found.axis, epsilon=found.epsilon)
            become(op, parts, new, rewriter)
            return True
    return False


@pattern("raise-rms-norm", Arithmetic)
def raise_rms_norm(op: Arithmetic, rewriter: Rewriter) -> bool:
    """x / sqrt(mean(x ** 2) + epsilon) -> rms_norm(x)."""
    for found in scaled(op):
        if found.x is found.squared and may_become_one(op, found.parts):
            new = RmsNorm(found.x, None, axis=found.axis, epsilon=found.epsilon)
            become(op, found.parts, new, rewriter)
            return True
    return False


@pattern("raise-norm-scale", Mul)
def raise_norm_scale(op: Mul, rewriter: Rewriter) -> bool:
    """layer_norm(x) * s -> layer_norm(x, s), and so for rms_norm."""
    for y, scale in either_way(op):
        norm = producer(y, LayerNorm) or producer(y, RmsNorm)
        if norm is None or not _is_parameter(norm, scale, op) or norm.scale is not None:
            continue
        if isinstance(norm, RmsNorm):
            new = RmsNorm(norm.x, scale, axis=norm.axis, epsilon=norm.epsilon)
            become(op, [norm], new, rewriter)
            return True
        if norm.bias is None:
            new = LayerNorm(norm.x, scale, None, axis=norm.axis, epsilon=norm.epsilon)
            become(op, [norm], new, rewriter)
            return True
    return False


@pattern("raise-norm-bias", Add)
def raise_norm_bias(op: Add, rewriter: Rewriter) -> bool:
    """layer_norm(x, s) + b -> layer_norm(x, s, b)."""
    for y, bias in either_way(op):
        norm = producer(y, LayerNorm)
        if norm is None or norm.bias is not None or not _is_parameter(norm, bias, op):
            continue
        new = LayerNorm(norm.x, norm.scale, bias, axis=norm.axis, epsilon=norm.epsilon)
        become(op, [norm], new, rewriter)
        return True
    return False


def _is_parameter(norm: LayerNorm | RmsNorm, value: Value, op: Op) -> bool:
    """Whether a value varies along the normalised axes only, and the norm serves nothing else."""
    fits = value.tensor.rank <= len(norm.axes) and norm.result.type == op.result.type
    return fits and may_become_one(op, [norm])


# ---- softmax


@pattern("raise-softmax", Arithmetic)
def raise_softmax(op: Arithmetic, rewriter: Rewriter) -> bool:
    """e / sum(e) with e = exp(x - max(x)) along one axis -> softmax(x).

    Without the maximum it stays as it is, since it overflows where softmax does not.
    """
    for x, y, parts in quotients(op):
        total, powers = producer(y, ReduceSum), producer(x, Exp)
        below = producer(powers.x, Sub) if powers else None
        largest = producer(below.y, ReduceMax) if below else None
        if not (total and powers and below and largest) or total.x is not x:
            continue
        alike = largest.axes == total.axes and largest.keepdims and total.keepdims
        group = [*parts, total, powers, below, largest]
        fits = len(total.axes) == 1 and alike and largest.x is below.x
        if fits and may_become_one(op, group):
            become(op, group, Softmax(below.x, axis=total.axes[0]), rewriter)
            return True
    return False


RULES: tuple[Pattern, ...] = (
    raise_softmax,
    raise_layer_norm,
    raise_rms_norm,
    raise_norm_scale,
    raise_norm_bias,
)
