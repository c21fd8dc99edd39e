"""Sums, products and roots in two parts, high + low, for more than the format's precision.

Knuth's and Dekker's error-free transformations (Shewchuk, "Adaptive precision floating-point
arithmetic", 1997).
"""

from __future__ import annotations

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_value import Operand, Value

Pair = tuple[Value, Value]


def sum_of(a: Value, c: Operand) -> Pair:
    """a + c exactly."""
    high = a + c
    of_c = high - a
    return high, (a - (high - of_c)) + (c - of_c)


def ordered_sum(a: Value, c: Value) -> Pair:
    """a + c exactly, where |a| >= |c| or a is 0."""
    high = a + c
    return high, c - (high - a)


def product(b: Body, a: Value, c: Value) -> Pair:
    """a * c exactly, in the middle of the range of exponents."""
    high = a * c
    if b.has_fma:
        return high, b.fma(a, c, -high)
    a_high, a_low = halves(a)
    c_high, c_low = halves(c)
    error = a_high * c_high - high + a_high * c_low + a_low * c_high
    return high, error + a_low * c_low


def halves(a: Value) -> Pair:
    """a as the sum of two numbers of half its bits (Veltkamp)."""
    scaled = a * (2.0 ** ((a.format.mantissa + 2) // 2) + 1.0)
    high = scaled - (scaled - a)
    return high, a - high


def quotient(b: Body, a: Pair, c: Pair) -> Pair:
    """a / c to nearly twice the precision."""
    high = a[0] / c[0]
    multiple, error = product(b, high, c[0])
    rest = (a[0] - multiple) - error + (a[1] - high * c[1])
    return high, rest / c[0]


def square_root(b: Body, a: Pair) -> Pair:
    """The root of a positive a to nearly twice the precision."""
    high = b.sqrt(a[0])
    square, error = product(b, high, high)
    rest = (a[0] - square) - error + a[1]
    return high, rest / (high + high)
