"""Logarithms and what follows from them: log, log2, log10, log1p, softplus, asinh, acosh, atanh.

x = 2^k (1 + f) with -1/4 <= f < 1/2, so log(x) = k ln 2 + log(1 + f), and neither term cancels
the other. k ln 2 is added in two parts, the first with so few bits that k times it is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_coefficients import LOG
from tfc.backends.llvm.vmath_double import (
    Pair,
    ordered_sum,
    product,
    quotient,
    square_root,
    sum_of,
)
from tfc.backends.llvm.vmath_exp import exp_of_negative
from tfc.backends.llvm.vmath_value import Value

INFINITY = float("inf")
NAN = float("nan")
SMALL = 2.0**-28
"""asinh and atanh of anything of smaller magnitude round to the argument."""
LARGE = 2.0**28
"""For anything larger, x^2 + 1 and x^2 - 1 round to x^2."""


@dataclass(frozen=True)
class Base:
    """The logarithms to some base of 2 and of e, each in two parts, all positive."""

    two_high: float
    two_low: float
    e_high: float = 1.0
    e_low: float = 0.0


BASE_E = {
    "f32": Base(0.693145751953125, 1.4286068203094173e-06),
    "f64": Base(0.6931471805598903, 5.497923018708371e-14),
}
BASE_2 = {
    "f32": Base(1.0, 0.0, 1.4426950216293335, 1.9259629911266175e-08),
    "f64": Base(1.0, 0.0, 1.4426950408889634, 2.0355273740931033e-17),
}
BASE_10 = {
    "f32": Base(0.301025390625, 4.605038981195214e-06, 0.4342944622039795, 1.9699272309999447e-08),
    "f64": Base(
        0.30102999566395283, 2.8363394551044964e-14, 0.4342944819032518, 1.098319650216765e-17
    ),
}


def log(b: Body, x: Value) -> Value:
    k, m = split(b, x)
    result = _log(b, k, m - 1.0)
    return result if b.fills_registers(x) else _limited(b, x, result)


def log2(b: Body, x: Value) -> Value:
    return _log_to(b, x, BASE_2[x.type])


def log10(b: Body, x: Value) -> Value:
    return _log_to(b, x, BASE_10[x.type])


def log1p(b: Body, x: Value) -> Value:
    """With 1 + x = 2^k (1 + f): f = 2^-k x + (2^-k - 1), which loses nothing of a small x."""
    successor = x + 1.0
    field = _exponent_field(successor)
    scaled = (x.bits() - (_in_place(field) - x.format.bits(1.0))).number()
    result = _log(b, _exponent(field), scaled + (_inverse_power(b, field) - 1.0))
    result = b.select(x < INFINITY, b.copysign(result, x), x)
    return b.select(x > -1.0, result, b.select(x.equals(-1.0), x.like(-INFINITY), NAN))


def softplus(b: Body, x: Value) -> Value:
    """max(x, 0) + log(1 + e) with e = exp(-|x|); 1 + e = 2 (1 + (e - 1) / 2) where e > 1/2."""
    e = exp_of_negative(b, -abs(x))
    large = e > 0.5
    f = b.select(large, (e - 1.0) * 0.5, e)
    return b.at_least(x, 0.0) + _log(b, b.select(large, x.like(1.0), 0.0), f)


def asinh(b: Body, x: Value) -> Value:
    """log(t + sqrt(t^2 + 1)) with t = |x|."""
    t = abs(x)
    square, error = product(b, t, t)
    square, rest = sum_of(square, 1.0)
    root, low = square_root(b, (square, rest + error))
    high, rest = ordered_sum(root, t)
    result = _log_or_log_of_double(b, t, (high, rest + low))
    return b.select(t < SMALL, x, b.copysign(result, x))


def acosh(b: Body, x: Value) -> Value:
    """log(x + sqrt((x - 1) (x + 1)))."""
    less, less_low = sum_of(x, -1.0)
    more, more_low = sum_of(x, 1.0)
    square, error = product(b, less, more)
    rest = b.fma(less, more_low, b.fma(less_low, more, error))
    root, low = square_root(b, (square, rest))
    high, rest = ordered_sum(x, b.select(square > 0.0, root, 0.0))
    low = b.select(square > 0.0, rest + low, 0.0)
    result = _log_or_log_of_double(b, x, (high, low))
    return b.select(x < 1.0, NAN, result)


def atanh(b: Body, x: Value) -> Value:
    """log((1 + t) / (1 - t)) / 2 with t = |x|."""
    t = abs(x)
    ratio = quotient(b, sum_of(t, 1.0), sum_of(-t, 1.0))
    half = 0.5 * _log_of_sum(b, ratio)
    result = b.select(t < 1.0, half, b.select(t.equals(1.0), t.like(INFINITY), NAN))
    return b.select(t < SMALL, x, b.copysign(result, x))


def split(b: Body, x: Value) -> Pair:
    """k and m with x = 2^k m and 3/4 <= m < 3/2, for a finite x > 0."""
    if b.fills_registers(x):
        return _split_by_instruction(b, x)
    form = x.format
    tiny = x < form.smallest_normal
    lift = 2.0 ** (form.mantissa + 1)
    field = _exponent_field(b.select(tiny, x * lift, x))
    k = _exponent(field) - b.select(tiny, x.like(form.mantissa + 1), 0.0)
    return k, _mantissa(field)


def _split_by_instruction(b: Body, x: Value) -> Pair:
    """As `split`; also k = -inf for 0, k = inf and m = 1 for inf, m = NaN for negative numbers."""
    kind, mask = ("ps", "i16 -1") if x.type == "f32" else ("pd", "i8 -1")
    rest = ("{register} zeroinitializer", mask, "i32 4")
    interval_and_sign = 0b1011
    m = b.avx512_call(x.type, f"mask.getmant.{kind}", x, f"i32 {interval_and_sign}", *rest)
    k = b.avx512_call(x.type, f"mask.getexp.{kind}", x, *rest)
    return b.select(m < 1.0, k + 1.0, k), m


def _exponent_field(x: Value) -> Value:
    """A normal number's bits moved up by half a binade: the exponent's field holds k + bias."""
    return x.bits() + (1 << (x.format.mantissa - 1))


def _in_place(field: Value) -> Value:
    form = field.format
    return field & form.exponent_mask


def _exponent(field: Value) -> Value:
    """k as a number, without a conversion: AVX2 has none from 64-bit integers."""
    form = field.format
    unit = 2.0**form.mantissa
    return ((field >> form.mantissa) | form.bits(unit)).number() - (unit + form.bias)


def _mantissa(field: Value) -> Value:
    form = field.format
    return ((field & form.mantissa_mask) + form.bits(0.75)).number()


def _inverse_power(b: Body, field: Value) -> Value:
    """2^-k; 0 where that is subnormal."""
    form = field.format
    bits = 2 * form.bits(1.0) - _in_place(field)
    return b.select(bits < 0, 0, bits).number()


def _log(b: Body, k: Value, f: Value) -> Value:
    """log(2^k (1 + f))."""
    base = BASE_E[f.type]
    low = b.fma(k, base.two_low, f)
    return b.fma(k, base.two_high, b.fma(f * f, _curve(b, f), low))


def _log_to(b: Body, x: Value, base: Base) -> Value:
    k, m = split(b, x)
    f = m - 1.0
    high, low = product(b, f, f.like(base.e_high))
    high, error = ordered_sum(k * base.two_high, high)
    low = b.fma(f, base.e_low, error + low)
    if base.two_low:
        low = b.fma(k, base.two_low, low)
    result = high + b.fma(f * f * _curve(b, f), base.e_high, low)
    return _limited(b, x, result)


def _curve(b: Body, f: Value) -> Value:
    """(log(1 + f) - f) / f^2."""
    return b.polynomial(f, (-0.5, *LOG[b.quality(f)]))


def _limited(b: Body, x: Value, result: Value) -> Value:
    """The logarithm's values outside the finite positive numbers."""
    result = b.select(x < INFINITY, result, x)
    return b.select(x > 0.0, result, b.select(x.equals(0.0), x.like(-INFINITY), NAN))


def _log_of_sum(b: Body, x: Pair, extra_exponent: Value | float = 0.0) -> Value:
    """log(2^extra (high + low)) rounded nearly once, for a normal high up to 2^1000."""
    field = _exponent_field(x[0])
    k = _exponent(field) + extra_exponent
    f = _mantissa(field) - 1.0
    rest = x[1] * _inverse_power(b, field)
    slope = b.fma(f, f, 1.0 - f)  # near enough to 1 / (1 + f)
    base = BASE_E[f.type]
    tail = b.fma(f * f, _curve(b, f), b.fma(rest, slope, k * base.two_low))
    return b.fma(k, base.two_high, f + tail)


def _log_or_log_of_double(b: Body, x: Value, exact: Pair) -> Value:
    """log(high + low), or log(2 x) where x is large, which is x where x is infinite or NaN."""
    large = x > LARGE
    high = b.select(large, x * 0.25, exact[0])
    low = b.select(large, 0.0, exact[1])
    extra = b.select(large, x.like(3.0), 0.0)
    return b.select(x < INFINITY, _log_of_sum(b, (high, low), extra), x)
