"""Sine, cosine, tangent and their inverses: sin, cos, tan, asin, acos, atan, atan2. All in f64.

x = n pi / 2 + r with |r| <= pi / 4. Up to a million, n pi / 2 is subtracted in parts whose
products with n are exact. Beyond, x is multiplied by 2 / pi modulo 4, part by part (Payne and
Hanek, "Radian reduction for trigonometric functions", 1983), in a loop that runs only where some
lane needs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_coefficients import ASIN, ATAN, COS, SIN
from tfc.backends.llvm.vmath_double import Pair, halves, ordered_sum, product, quotient, sum_of
from tfc.backends.llvm.vmath_value import Value

INFINITY = float("inf")
NAN = float("nan")
PI = (3.141592653589793, 1.2246467991473532e-16)
HALF_PI = (1.5707963267948966, 6.123233995736766e-17)
QUARTER_PI = (0.7853981633974483, 3.061616997868383e-17)
HALF_PI_PARTS = (
    1.5707963267341256,
    6.077100506303966e-11,
    2.0222662487111665e-21,
    8.4784276603689e-32,
)
"""The first three have 33 bits."""
REST_OF_HALF_PI = 6.077100506506192e-11
"""What the first part leaves, in one number."""
ROUNDER = 1.5 * 2.0**52
"""Added to a number of modest size, leaves its nearest integer in the low bits."""
TWO_OVER_PI = 0.6366197723675814
LARGE = 2.0**20
TANGENT_OF_EIGHTH_PI = 0.41421356237309503
TANGENT_OF_THREE_EIGHTHS_PI = 2.414213562373095

PART_BITS = 26
PARTS = 46
LIFT = 2.0**200
"""Factor of the parts of 2 / pi, and divisor of x, for else the last parts would be subnormal."""
TWO_OVER_PI_BITS = int(
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA"
    "09D1921CFE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F49C845F8BBDF9283B"
    "1FF897FFDE05980FEF2F118B5A0A6D1F6D367ECF27CB09B74F463F669E5FEA2D7527BAC7EBE5F17B3D0739F7"
    "8A5292EA6BFB5FB11F8D5D0856033046FC7",
    16,
)
"""floor(2 / pi * 2^1196)."""
PARTS_OF_TWO_OVER_PI = [
    math.ldexp(
        (TWO_OVER_PI_BITS >> (PART_BITS * (PARTS - 1 - i))) % 2**PART_BITS, 200 - 26 * (i + 1)
    )
    for i in range(PARTS)
]


def sin(b: Body, x: Value) -> Value:
    n, r = _reduced(b, x)
    even = (n & 1).equals(0)
    result = b.select(even, _sine(b, r), _cosine(b, r))
    result = _negated_where_odd(result, n >> 1)
    return b.select(x.equals(0.0), x, result)  # keeps -0


def cos(b: Body, x: Value) -> Value:
    n, r = _reduced(b, x)
    even = (n & 1).equals(0)
    result = b.select(even, _cosine(b, r), _sine(b, r))
    return _negated_where_odd(result, (n + 1) >> 1)


def tan(b: Body, x: Value) -> Value:
    n, r = _reduced(b, x)
    even = (n & 1).equals(0)
    sine, cosine = _sine_in_parts(b, r), _cosine_in_parts(b, r)
    above = [b.select(even, s, -c) for s, c in zip(sine, cosine, strict=True)]
    below = [b.select(even, c, s) for s, c in zip(sine, cosine, strict=True)]
    if b.quality(x) == "short":
        result = (above[0] + above[1]) / (below[0] + below[1])
    else:
        high, low = quotient(b, ordered_sum(*above), ordered_sum(*below))
        result = high + low
    return b.select(x.equals(0.0), x, result)


def asin(b: Body, x: Value) -> Value:
    """Above 1/2: pi / 2 - 2 asin(sqrt((1 - |x|) / 2))."""
    t = abs(x)
    root, tail = _asin_parts(b, t)
    high, error = ordered_sum(x.like(HALF_PI[0]), -(root + root))
    large = high + (error + (HALF_PI[1] - 2.0 * tail))
    return b.copysign(b.select(t > 0.5, large, root + tail), x)


def acos(b: Body, x: Value) -> Value:
    """pi / 2 - asin(x); with s = asin(sqrt((1 - |x|) / 2)): 2 s above 1/2, pi - 2 s below -1/2."""
    t = abs(x)
    root, tail = _asin_parts(b, t)
    small = t <= 0.5
    distance = b.select(small, b.copysign(root, x), root + root)
    rest = b.select(small, b.copysign(tail, x), tail + tail)
    base = b.select(small, x.like(HALF_PI[0]), PI[0])
    base_low = b.select(small, x.like(HALF_PI[1]), PI[1])
    high, error = ordered_sum(base, -distance)
    return b.select(x > 0.5, distance + rest, high + (error + (base_low - rest)))


def atan(b: Body, x: Value) -> Value:
    t = abs(x)
    steep = t > TANGENT_OF_THREE_EIGHTHS_PI
    middle = t > TANGENT_OF_EIGHTH_PI
    numerator = b.select(steep, -1.0, b.select(middle, t - 1.0, t))
    denominator = b.select(steep, t, b.select(middle, t + 1.0, 1.0))
    base = [
        b.select(steep, HALF_PI[i], b.select(middle, x.like(QUARTER_PI[i]), 0.0)) for i in (0, 1)
    ]
    return b.copysign(_atan_near_zero(b, numerator / denominator, base), x)


def atan2(b: Body, y: Value, x: Value) -> Value:
    """The angle of (x, y), from the quotient of the smaller coordinate by the larger."""
    height, width = abs(y), abs(x)
    swapped = height > width
    small, large = b.select(swapped, width, height), b.select(swapped, height, width)
    both_infinite = small.equals(INFINITY)
    small, large = b.select(both_infinite, 1.0, small), b.select(both_infinite, 1.0, large)
    if b.quality(x) == "f64":
        shrink = b.select(large > 2.0**1000, x.like(2.0**-10), 1.0)
        small, large = small * shrink, large * shrink
    middle = small > large * TANGENT_OF_EIGHTH_PI
    ratio = b.select(middle, small - large, small) / b.select(middle, small + large, large)
    ratio = b.select(large.equals(0.0), 0.0, ratio)
    base = [b.select(middle, x.like(QUARTER_PI[i]), 0.0) for i in (0, 1)]
    angle = _atan_near_zero(b, ratio, base)
    angle = b.select(swapped, HALF_PI[0] - angle, angle)
    angle = b.select(b.copysign(1.0, x) < 0.0, PI[0] - angle, angle)
    return b.select(x.unordered(y), x + y, b.copysign(angle, y))


def _reduced(b: Body, x: Value) -> tuple[Value, Pair]:
    """n as an integer and r, |r| <= pi / 4, with x = n pi / 2 + r."""
    large = abs(x) > LARGE
    common = _reduced_by_parts(b, x)

    def rare() -> list[Value]:
        exact = _reduced_by_table(b, x)
        return [b.select(large, a, c) for a, c in zip(exact, common, strict=True)]

    n, high, low = b.if_any(large, rare, common)
    return n, (high, low)


def _reduced_by_parts(b: Body, x: Value) -> list[Value]:
    shifted = b.fma(x, TWO_OVER_PI, ROUNDER)
    n = shifted - ROUNDER
    high = b.fma(n, -HALF_PI_PARTS[0], x)
    if b.quality(x) == "short":
        return [shifted.bits(), b.fma(n, -REST_OF_HALF_PI, high), x.like(0.0)]
    high, low = sum_of(high, n * -HALF_PI_PARTS[1])
    high, error = sum_of(high, n * -HALF_PI_PARTS[2])
    high, low = ordered_sum(high, b.fma(n, -HALF_PI_PARTS[3], low + error))
    return [shifted.bits(), high, low]


def _reduced_by_table(b: Body, x: Value) -> list[Value]:
    scaled = x * (1.0 / LIFT)
    factors = halves(scaled)

    def step(part: Value, turn: Sequence[Value]) -> Sequence[Value]:
        """Adds x * part, modulo 4; each product is exact."""
        high, low = turn
        for factor in factors:
            high, error = sum_of(high, _modulo_four(b, factor * part))
            high, low = ordered_sum(high, low + error)
        return _modulo_four(b, high), low

    zero = x.like(0.0)
    high, low = b.for_each("two_over_pi", PARTS_OF_TWO_OVER_PI, (zero, zero), step)
    shifted = high + ROUNDER
    turn = high - (shifted - ROUNDER)
    angle, error = product(b, turn, x.like(HALF_PI[0]))
    low = b.fma(low, HALF_PI[0], b.fma(turn, HALF_PI[1], error))
    return [shifted.bits(), *ordered_sum(angle, low)]


def _modulo_four(b: Body, x: Value) -> Value:
    return x - b.round_even(x * 0.25) * 4.0


def _sine(b: Body, r: Pair) -> Value:
    high, low = _sine_in_parts(b, r)
    return high + low


def _cosine(b: Body, r: Pair) -> Value:
    high, low = _cosine_in_parts(b, r)
    return high + low


def _sine_in_parts(b: Body, r: Pair) -> Pair:
    """A number and a smaller one."""
    high, low = r
    square = high * high
    cubic = high * square * b.polynomial(square, SIN[b.quality(high)])
    if b.quality(high) == "short":
        return high, cubic
    return high, b.fma(low, b.fma(square, -0.5, 1.0), cubic)


def _cosine_in_parts(b: Body, r: Pair) -> Pair:
    high, low = r
    square = high * high
    half = square * 0.5
    quartic = square * square * b.polynomial(square, COS[b.quality(high)])
    leading = 1.0 - half
    if b.quality(high) == "short":
        return leading, quartic
    error = (1.0 - leading) - half
    return leading, error + b.fma(-high, low, quartic)


def _negated_where_odd(x: Value, n: Value) -> Value:
    return (x.bits() ^ (n << (x.format.width - 1))).number()


def _asin_parts(b: Body, t: Value) -> Pair:
    """asin of t up to 1/2, of sqrt((1 - t) / 2) beyond, as a number and a much smaller one."""
    large = t > 0.5
    square = b.select(large, 0.5 * (1.0 - t), t * t)
    root = b.select(large, b.sqrt(square), t)
    tail = root * square * b.polynomial(square, ASIN[b.quality(t)])
    multiple, error = product(b, root, root)
    lost = ((square - multiple) - error) / (root + root)
    return root, tail + b.select(large, b.select(square > 0.0, lost, 0.0), 0.0)


def _atan_near_zero(b: Body, t: Value, base: Sequence[Value]) -> Value:
    """base + atan(t) for |t| <= tan(pi / 8)."""
    square = t * t
    tail = b.fma(t * square, b.polynomial(square, ATAN[b.quality(t)]), base[1])
    return base[0] + (t + tail)
