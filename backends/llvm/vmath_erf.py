"""The error function and its complement."""

from __future__ import annotations

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_coefficients import ERF_LARGE, ERF_SMALL, ERFC
from tfc.backends.llvm.vmath_double import product
from tfc.backends.llvm.vmath_exp import exp_of_negative
from tfc.backends.llvm.vmath_tables import erf_by_table
from tfc.backends.llvm.vmath_value import Value

ONE_F32 = 4.0
"""erf of this and of anything larger rounds to 1."""
CENTRE = 2.5500710010528564
"""Where ERF_LARGE is expanded: erf is a number of f32 there, to 35 bits."""
ONE_F64 = 6.0
ZERO = {"f64": 27.3, "short": 10.1}
"""erfc of anything larger rounds to 0."""


def erf(b: Body, x: Value) -> Value:
    if x.type == "f32" and b.fills_registers(x):
        return erf_by_table(b, x)
    if x.type == "f32":
        t = b.at_most(abs(x), ONE_F32)
        small, large = t < 1.1, b.polynomial(t - CENTRE, ERF_LARGE)
    else:
        t = b.at_most(abs(x), ONE_F64)
        small, large = t < 1.0, 1.0 - _erfc_of_large(b, t)
    return b.select(small, _erf_of_small(b, x), b.copysign(large, x))


def erfc(b: Body, x: Value) -> Value:
    """1 - erf(x), with its relative precision for large x; in f64."""
    t = b.at_most(abs(x), ZERO[b.quality(x)])
    tail = _erfc_of_large(b, t)
    large = b.select(x < 0.0, 2.0 - tail, tail)
    return b.select(t < 1.0, _complement_of_small(b, x), large)


def _erf_of_small(b: Body, x: Value) -> Value:
    square = x * x
    return b.fma(x, b.polynomial(square, ERF_SMALL[b.quality(x)]), x)


def _complement_of_small(b: Body, x: Value) -> Value:
    """1 - erf(x); from 1/2 on, where that is small, as 1/2 - ((x - 1/2) + (erf(x) - x))."""
    rest = x * b.polynomial(x * x, ERF_SMALL[b.quality(x)])
    return b.select(x < 0.5, 1.0 - (x + rest), 0.5 - ((x - 0.5) + rest))


def _erfc_of_large(b: Body, t: Value) -> Value:
    """exp(-t^2) P((t - 3) / (t + 3)) / (1 + 2 t) for t >= 1, the square in two parts."""
    square, error = product(b, t, t)
    scaled = b.polynomial((t - 3.0) / (t + 3.0), ERFC[b.quality(t)]) / b.fma(t, 2.0, 1.0)
    exponential = exp_of_negative(b, -square)
    return exponential * b.fma(-error, scaled, scaled)
