"""Exponentials and what follows from them: exp, exp2, expm1, tanh, sigmoid, sinh, cosh.

exp(x) = 2^n exp(f) with n the integer nearest x / ln 2 and |f| <= ln 2 / 2. n ln 2 is subtracted
in two parts, the first with so few bits that its product with n is exact, with or without fma.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_coefficients import EXP, EXP2, EXPM1, SINH
from tfc.backends.llvm.vmath_tables import tanh_by_table
from tfc.backends.llvm.vmath_value import Value

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453


@dataclass(frozen=True)
class Range:
    """Constants of one format."""

    ln2_high: float
    ln2_low: float
    exp_zero: float
    """exp of anything smaller rounds to 0."""
    exp_infinity: float
    """A little more than the logarithm of the largest number."""
    exp2_zero: float
    exp2_infinity: float
    expm1_minus_one: float
    """expm1 of this and of anything smaller rounds to -1."""
    expm1_linear: float
    """expm1 and sinh of anything of smaller magnitude round to the argument."""
    tanh_one: float
    """tanh of this and of anything larger rounds to 1."""
    sinh_infinity: float


RANGES = {
    "f32": Range(
        ln2_high=0.693145751953125,
        ln2_low=1.4286068203094173e-06,
        exp_zero=-103.98,
        exp_infinity=88.75,
        exp2_zero=-150.0,
        exp2_infinity=129.0,
        expm1_minus_one=-18.0,
        expm1_linear=2.0**-25,
        tanh_one=9.02,
        sinh_infinity=89.5,
    ),
    "f64": Range(
        ln2_high=0.6931471805598903,
        ln2_low=5.497923018708371e-14,
        exp_zero=-745.14,
        exp_infinity=709.8,
        exp2_zero=-1075.0,
        exp2_infinity=1025.0,
        expm1_minus_one=-38.0,
        expm1_linear=2.0**-54,
        tanh_one=19.07,
        sinh_infinity=710.5,
    ),
}


def exp(b: Body, x: Value) -> Value:
    return _exp(b, x, b.at_most(x, RANGES[x.type].exp_infinity))


def exp_of_negative(b: Body, x: Value) -> Value:
    """exp(x) for x <= 0, or NaN: one power of two scales the result, which no number overflows.

    It is 2^(n + p), p the mantissa's bits and one more, always a normal number or 0; the polynomial
    is 2^-p exp(f), so that the product is rounded once. Smaller arguments get the power 0.
    """
    if b.fills_registers(x):
        return _exp(b, x, x)
    form = x.format
    extra = form.mantissa + 1
    bounded = b.at_least(x, -(form.bias + extra) * LN2)
    shifted = b.fma(bounded, LOG2_E, form.shifter + extra)
    f = _remainder(b, bounded, shifted - (form.shifter + extra), 1.0)
    unit = 2.0**-extra
    if b.has_fma:
        mantissa = b.polynomial(f, [c * unit for c in (1.0, 1.0, *EXP[x.type])])
    else:
        mantissa = (1.0 + (f * f * b.polynomial(f, EXP[x.type]) + f)) * unit
    return mantissa * power_of_shifted(shifted)


def exp2(b: Body, x: Value) -> Value:
    limits = RANGES[x.type]
    bounded = b.at_least(b.at_most(x, limits.exp2_infinity), limits.exp2_zero)
    n = b.round_even(bounded)
    mantissa = b.polynomial(bounded - n, (1.0, *EXP2[b.quality(x)]))
    return scale(b, b.select(x < limits.exp2_zero, 0.0, mantissa), n)


def expm1(b: Body, x: Value) -> Value:
    """2^n (expm1(f) + (1 - 2^-n)), with half of 2^n so that no result overflows early."""
    limits = RANGES[x.type]
    bounded = b.at_least(b.at_most(x, limits.exp_infinity), limits.expm1_minus_one)
    power, f = _reduced(b, bounded, extra_exponent=-1)
    half = b.fma(power, _expm1_near_zero(b, f), power - 0.5)
    return b.select(abs(x) < limits.expm1_linear, x, half + half)


def tanh(b: Body, x: Value) -> Value:
    """h / (h + 1) with h = expm1(2 |x|) / 2."""
    if x.type == "f32" and b.fills_registers(x):
        return tanh_by_table(b, x)
    bounded = b.at_most(abs(x), RANGES[x.type].tanh_one)
    power, f = _reduced(b, bounded, multiple=2.0)
    scaled = [c * 2.0**power for power, c in enumerate(EXPM1[b.quality(x)], 1)]
    near_zero = b.fma(f * f, b.polynomial(f, scaled), f)
    h = b.fma(power, near_zero, b.fma(power, 0.5, -0.5))
    return b.copysign(_ratio_to_successor(b, h), x)


def sigmoid(b: Body, x: Value) -> Value:
    """s = e / (e + 1) or 1 - s with e = exp(-|x|): the tail keeps its relative precision."""
    tail = _ratio_to_successor(b, exp_of_negative(b, -abs(x)))
    return b.select(x < 0.0, tail, 1.0 - tail)


def sinh(b: Body, x: Value) -> Value:
    """2 q - 1 / (8 q) with q = exp(|x|) / 4; a polynomial up to 1."""
    q = _quarter_exp(b, abs(x))
    large = b.copysign(b.fma(q, 2.0, -0.125 / q), x)
    square = x * x
    small = b.fma(b.polynomial(square, SINH[b.quality(x)]) * square, x, x)
    return b.select(abs(x) < 1.0, small, large)


def cosh(b: Body, x: Value) -> Value:
    """2 q + 1 / (8 q) with q = exp(|x|) / 4."""
    q = _quarter_exp(b, abs(x))
    return b.fma(q, 2.0, 0.125 / q)


def scale(b: Body, mantissa: Value, n: Value) -> Value:
    """mantissa * 2^n, rounded once, for a modest mantissa; half of n is a normal exponent."""
    if b.fills_registers(mantissa):
        kind, mask = ("ps", "i16 -1") if mantissa.type == "f32" else ("pd", "i8 -1")
        rest = ("{register} zeroinitializer", mask, "i32 4")
        return b.avx512_call(n.type, f"mask.scalef.{kind}", mantissa, n, *rest)
    shifter = mantissa.format.shifter
    half = b.fma(n, 0.5, shifter)
    other_half = n - (half - shifter) + shifter
    return mantissa * power_of_shifted(half) * power_of_shifted(other_half)


def power_of_shifted(shifted: Value) -> Value:
    """2^n from n + shifter, n between the exponents of the normal numbers; one less gives 0."""
    return (shifted.bits() << shifted.format.mantissa).number()


def _exp(b: Body, x: Value, bounded: Value) -> Value:
    """Where the result is 0 the mantissa is 0: no subnormal number costs an assist."""
    limits = RANGES[x.type]
    if not b.fills_registers(x):  # vscalef takes any exponent
        bounded = b.at_least(bounded, limits.exp_zero)
    shifted = b.fma(bounded, LOG2_E, x.format.shifter)
    n = shifted - x.format.shifter
    f = _remainder(b, bounded, n, 1.0)
    if b.has_fma:
        mantissa = b.polynomial(f, (1.0, 1.0, *EXP[x.type]))
    else:  # Horner's last steps would round larger numbers
        mantissa = 1.0 + (f * f * b.polynomial(f, EXP[x.type]) + f)
    return scale(b, b.select(x < limits.exp_zero, 0.0, mantissa), n)


def _reduced(
    b: Body, x: Value, *, multiple: float = 1.0, extra_exponent: int = 0
) -> tuple[Value, Value]:
    """2^(n + extra exponent) and f, where multiple * x = n ln 2 + multiple * f."""
    shifter = x.format.shifter + extra_exponent
    shifted = b.fma(x, LOG2_E * multiple, shifter)
    return power_of_shifted(shifted), _remainder(b, x, shifted - shifter, multiple)


def _remainder(b: Body, x: Value, n: Value, multiple: float) -> Value:
    """x - n ln 2 / multiple; the multiple is a power of two."""
    limits = RANGES[x.type]
    rest = b.fma(n, -limits.ln2_high / multiple, x)
    return b.fma(n, -limits.ln2_low / multiple, rest)


def _expm1_near_zero(b: Body, f: Value) -> Value:
    return b.fma(f * f, b.polynomial(f, EXPM1[b.quality(f)]), f)


def _quarter_exp(b: Body, x: Value) -> Value:
    """exp(x) / 4 for x >= 0, as large as exp(x) / 2 may be."""
    bounded = b.at_most(x, RANGES[x.type].sinh_infinity)
    power, f = _reduced(b, bounded, extra_exponent=-2)
    return b.fma(power, _expm1_near_zero(b, f), power)


def _ratio_to_successor(b: Body, h: Value) -> Value:
    """h / (h + 1) for h >= 0, with the rounding error of the sum made good."""
    successor = h + 1.0
    error = h - (successor - 1.0)
    if b.fills_registers(h) and h.type == "f32":  # half the time of a division
        rest = ("{register} zeroinitializer", "i16 -1")
        reciprocal = b.avx512_call("f32", "rcp14.ps", successor, *rest)
        quotient = h * reciprocal
    else:
        quotient = h / successor
        reciprocal = b.at_least((1.0 - 2.0**-12) - quotient, 0.0)  # rough; 0 where no error matters
    if not b.has_fma:
        return quotient - quotient * error * reciprocal
    remainder = b.fma(-error, quotient, b.fma(-successor, quotient, h))
    return b.fma(remainder, reciprocal, quotient)
