"""Powers and roots: pow and cbrt, in f64."""

from __future__ import annotations

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_coefficients import ATANH_TAIL, CUBE_ROOT, EXP2
from tfc.backends.llvm.vmath_double import Pair, halves, ordered_sum, product, quotient, sum_of
from tfc.backends.llvm.vmath_exp import power_of_shifted, scale
from tfc.backends.llvm.vmath_log import log2, split
from tfc.backends.llvm.vmath_value import Value

INFINITY = float("inf")
NAN = float("nan")
LN_2 = 0.6931471805599453
LOG2_E = (1.4426950408889634, 2.0355273740931033e-17)
THIRD = (0.3333333333333333, 1.850371707708594e-17)
CUBE_ROOT_OF_2 = 1.2599210498948732


def pow(b: Body, x: Value, y: Value) -> Value:
    """C99's pow: 2^(y log2 |x|), then the sign and the special values."""
    magnitude = abs(x)
    if b.quality(x) == "short":
        result = _exp2_of_sum(b, (y * log2(b, magnitude), y.like(0.0)))
    else:
        result = _exp2_of_sum(b, _times_log2(b, y, magnitude))
    result = b.select(magnitude.equals(1.0), b.select(y.is_nan(), y, 1.0), result)
    half = y * 0.5
    fractional = y.differs(b.round_even(y))
    odd = half.differs(b.round_even(half)) & y.equals(b.round_even(y))
    result = b.select(odd, b.copysign(result, x), result)
    result = b.select((x < 0.0) & (x > -INFINITY) & fractional, NAN, result)
    return b.select(x.equals(1.0) | y.equals(0.0), 1.0, result)


def cbrt(b: Body, x: Value) -> Value:
    """With |x| = 8^j a: a guess of the root of a, then Newton's step and for f64 Halley's."""
    t = abs(x)
    k, m = split(b, t)
    j = b.round_even(k * THIRD[0])
    more, less = k > j * 3.0, k < j * 3.0
    a = b.select(more, m + m, b.select(less, m * 0.5, m))
    unit = b.select(more, CUBE_ROOT_OF_2, b.select(less, x.like(1.0 / CUBE_ROOT_OF_2), 1.0))
    guess = b.polynomial(m - 1.0, CUBE_ROOT) * unit
    root = guess - (guess - a / (guess * guess)) * THIRD[0]
    if b.quality(x) == "f64":
        root = _halley_step(b, a, root)
    result = b.copysign(root * power_of_shifted(j + x.format.shifter), x)
    return b.select((t > 0.0) & (t < INFINITY), result, x)


def _halley_step(b: Body, a: Value, root: Value) -> Value:
    """r (1 + (a - r^3) / (2 r^3 + a)), with r the upper half of root's bits: r^2 is exact."""
    high, _ = halves(root)
    cube, error = product(b, high * high, high)
    return b.fma(high, ((a - cube) - error) / (cube + cube + a), high)


def _times_log2(b: Body, y: Value, x: Value) -> Pair:
    """y log2(x), to some 64 bits; y is bounded so that no product overflows early."""
    high, low = _log2_in_parts(b, x)
    bounded = b.at_least(b.at_most(y, 2.0**70), -(2.0**70))
    total, error = product(b, bounded, high)
    low = b.fma(bounded, low, error)
    return total, b.select(abs(total) < 2.0**12, low, 0.0)


def _log2_in_parts(b: Body, x: Value) -> Pair:
    """k + 2 atanh(s) log2(e) with x = 2^k m and s = (m - 1) / (m + 1)."""
    k, m = split(b, x)
    s, s_low = quotient(b, (m - 1.0, x.like(0.0)), sum_of(m, 1.0))
    square, square_low = product(b, s, s)
    square_low = b.fma(s + s, s_low, square_low)
    cube, cube_low = product(b, s, square)
    cube_low = b.fma(s, square_low, b.fma(s_low, square, cube_low))
    third, third_low = product(b, cube, x.like(THIRD[0]))
    third_low = b.fma(cube, THIRD[1], b.fma(cube_low, THIRD[0], third_low))
    rest = cube * square * b.polynomial(square, ATANH_TAIL)
    high, error = ordered_sum(s, third)
    high, low = ordered_sum(high, error + (s_low + (third_low + rest)))
    scaled, scaled_low = product(b, high, x.like(2.0 * LOG2_E[0]))
    scaled_low = b.fma(high, 2.0 * LOG2_E[1], b.fma(low, 2.0 * LOG2_E[0], scaled_low))
    total, error = ordered_sum(k, scaled)
    total, low = ordered_sum(total, error + scaled_low)
    total = b.select(x.equals(0.0), -INFINITY, b.select(x < INFINITY, total, x))
    return total, low


def _exp2_of_sum(b: Body, exponent: Pair) -> Value:
    """2^(high + low); beyond 1100 either way it is 0 or infinity."""
    high = b.at_least(b.at_most(exponent[0], 1100.0), -1100.0)
    n = b.round_even(high)
    mantissa = b.polynomial(high - n, (1.0, *EXP2[b.quality(high)]))
    return scale(b, b.fma(mantissa * LN_2, exponent[1], mantissa), n)
