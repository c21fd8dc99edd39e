"""The exact remainder of C's fmod, by long division of the mantissas."""

from __future__ import annotations

from collections.abc import Sequence

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_value import Format, Value

INFINITY = float("inf")
NAN = float("nan")


def fmod(b: Body, x: Value, y: Value) -> Value:
    """x - y trunc(x / y), exact, with the sign of x; NaN for an infinite x and for y = 0."""
    form = x.format
    dividend, dividend_exponent = _integer_parts(b, abs(x))
    divisor, divisor_exponent = _integer_parts(b, abs(y))
    divisor = b.select(divisor.equals(0), 1, divisor)
    step_bits = 63 - form.mantissa  # so many fit beside a mantissa in 64 bits

    def step(state: Sequence[Value]) -> Sequence[Value]:
        """Brings down the next bits of the dividend; no bits where a lane is done."""
        rest, places = state
        count = b.select(places < step_bits, b.select(places < 0, 0, places), step_bits)
        return b.binary("urem", rest << count, divisor), places - count

    first = b.binary("urem", dividend, divisor)
    places = dividend_exponent - divisor_exponent
    rest, _ = b.while_any((first, places), lambda state: state[1] > 0, step)
    result = b.copysign(_number(b, form, rest, divisor_exponent), x)
    result = b.select(abs(x) < abs(y), x, result)
    valid = (abs(x) < INFINITY) & (abs(y) > 0.0)
    return b.select(valid, result, NAN)


def _integer_parts(b: Body, t: Value) -> tuple[Value, Value]:
    """Mantissa and exponent field (1 for subnormals), both as 64-bit integers."""
    form = t.format
    bits = t.bits()
    if form.width == 32:
        bits = b.cast("zext", bits, "i64")
    field = bits >> form.mantissa
    subnormal = field.equals(0)
    fraction = bits & form.mantissa_mask
    mantissa = b.select(subnormal, fraction, fraction | (1 << form.mantissa))
    return mantissa, b.select(subnormal, 1, field)


def _number(b: Body, form: Format, mantissa: Value, exponent: Value) -> Value:
    """The number of these parts, by exact products; 2^exponent is the product of two factors."""
    number = b.cast("uitofp", mantissa, form.name) * 2.0 ** (1 - form.bias - form.mantissa)
    half = (exponent - 1) >> 1
    for power in (half, (exponent - 1) - half):
        bits = (power + form.bias) << form.mantissa
        if form.width == 32:
            bits = b.cast("trunc", bits, "i32")
        number = number * bits.number()
    return number
