"""How Triton says the elementwise functions, casts and reductions of tiles.

Maths comes from libdevice, whose functions are within a few units in the last place, not from the
hardware's approximations. What Triton defines otherwise than a tile op (division by zero, NaN in
a maximum, shifts by too much, casts out of range) is spelled out, in helpers where it is long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfc.ir.types import BF16, BOOL, F16, F32, F64, I32, I64, DType

NAMES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "int1"}
"""Triton's names of element types, where they are not ours spelled out."""

LIBDEVICE = (
    *("exp", "expm1", "log", "log1p", "erf", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "asinh", "acosh", "atanh", "tanh", "rsqrt"),
)
"""Functions of floats that libdevice has under the same name."""

HELPERS = {
    "sum_of": "def sum_of(a, b):\n    return a + b",
    "prod_of": "def prod_of(a, b):\n    return a * b",
    "max_of": ("def max_of(a, b):\n    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)"),
    "min_of": ("def min_of(a, b):\n    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)"),
    "floor_div": (
        "def floor_div(a, b):\n    return a // b - tl.cast((a % b != 0) & (a < 0), tl.int32)"
    ),
    "floor_mod": "def floor_mod(a, b):\n    return (a % b + b) % b",
    "sigmoid": (
        "def sigmoid(x):\n    decay = libdevice.exp(-tl.abs(x))\n"
        "    return tl.where(x >= 0, 1.0, decay) / (1.0 + decay)"
    ),
    "softplus": (
        "def softplus(x):\n    decay = libdevice.exp(-tl.abs(x))\n"
        "    return libdevice.log1p(decay)"
        " + tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)"
    ),
    "float_mod": (
        "def float_mod(x, y):\n    rest = libdevice.fmod(x, y)\n"
        "    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)"
    ),
    "int_div": (
        "def int_div(x, y):\n    safe = tl.where((y == 0) | (y == -1), 1, y)\n"
        "    return tl.where(y == 0, 0, tl.where(y == -1, 0 - x, x // safe))"
    ),
    "int_fmod": (
        "def int_fmod(x, y):\n    safe = tl.where((y == 0) | (y == -1), 1, y)\n"
        "    return tl.where((y == 0) | (y == -1), 0, x % safe)"
    ),
    "int_mod": (
        "def int_mod(x, y):\n    safe = tl.where((y == 0) | (y == -1), 1, y)\n"
        "    rest = tl.where((y == 0) | (y == -1), 0, x % safe)\n"
        "    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)"
    ),
    "int_pow": (
        "def int_pow(x, y):\n    unit = tl.where((x == 1) | (x == -1), x, 0)\n"
        "    x = tl.where(y < 0, unit, x)\n    total = tl.where(x == x, 1, x)\n"
        "    for _ in range(0, 64):\n        total = tl.where((y & 1) != 0, total * x, total)\n"
        "        x = x * x\n        y = y >> 1\n    return total"
    ),
    "uint_pow": (
        "def uint_pow(x, y):\n    total = tl.where(x == x, 1, x)\n"
        "    for _ in range(0, 64):\n        total = tl.where((y & 1) != 0, total * x, total)\n"
        "        x = x * x\n        y = y >> 1\n    return total"
    ),
    "uint_div": (
        "def uint_div(x, y):\n    return tl.where(y == 0, 0, x // tl.where(y == 0, 1, y))"
    ),
    "uint_mod": "def uint_mod(x, y):\n    return tl.where(y == 0, 0, x % tl.where(y == 0, 1, y))",
}
"""Device functions that a kernel's text defines where it calls them."""


@dataclass(frozen=True)
class Spelled:
    """An expression, and the helpers and libraries that it needs."""

    text: str
    needs: tuple[str, ...] = ()


def name_of(dtype: DType) -> str:
    """Triton's name of an element type."""
    long = f"{'u' if dtype.kind == 'uint' else ''}int{dtype.bits}"
    return f"tl.{NAMES.get(dtype.name, long)}"


def signature_of(dtype: DType) -> str:
    """The element type in the signature of a compiled kernel."""
    if dtype.is_float:
        return {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16"}[dtype.name]
    return "u1" if dtype.is_bool else dtype.name


def literal(value: float | int | bool) -> str:
    """A number as a Python expression that Triton takes."""
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def fits_literal(value: float | int | bool, dtype: DType) -> bool:
    """Whether a bare number beside a tile of a type is taken for one of that type."""
    if dtype == F32:
        x = abs(float(value))
        return x == 0 or not math.isfinite(x) or 2.0**-126 <= x < 2.0**127
    return dtype in (I32, I64)


# ---- functions


_OPERATORS = {
    **{"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"},
    **{"equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<="},
    **{"greater": ">", "greater_equal": ">="},
}
_ON_BOOL = {
    "maximum": "{0} | {1}",
    "minimum": "{0} & {1}",
    "less": "~{0} & {1}",
    "less_equal": "~{0} | {1}",
    "greater": "{0} & ~{1}",
    "greater_equal": "{0} | ~{1}",
}
_PLAIN = {
    "neg": "0 - {0}",
    "abs": "tl.abs({0})",
    "sign": "tl.where({0} > 0, 1, tl.where({0} < 0, -1, {0}))",
    "not": "~{0}",
    "is_nan": "{0} != {0}",
    "is_infinite": 'tl.abs({0}) == float("inf")',
}
_ON_FLOATS = {
    "neg": "-{0}",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "round": "libdevice.rint({0})",
    "sigmoid": "sigmoid({0})",
    "softplus": "softplus({0})",
    "mod": "float_mod({0}, {1})",
    "fmod": "libdevice.fmod({0}, {1})",
    "pow": "libdevice.pow({0}, {1})",
    "maximum": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "fma": "tl.fma({0}, {1}, {2})",
    **{name: f"libdevice.{name}({{0}})" for name in LIBDEVICE},
}
_ON_F32 = {
    "sqrt": "tl.sqrt_rn({0})",
    "reciprocal": "tl.div_rn(1.0, {0})",
    "div": "tl.div_rn({0}, {1})",
}
_ON_F64 = {"sqrt": "tl.sqrt({0})", "reciprocal": "1.0 / {0}", "div": "{0} / {1}"}
_ON_INTS = {"maximum": "tl.maximum({0}, {1})", "minimum": "tl.minimum({0}, {1})"}
_ON_SIGNED = {
    "div": "int_div({0}, {1})",
    "mod": "int_mod({0}, {1})",
    "fmod": "int_fmod({0}, {1})",
    "pow": "int_pow({0}, {1})",
}
_ON_UNSIGNED = {
    "div": "uint_div({0}, {1})",
    "mod": "uint_mod({0}, {1})",
    "fmod": "uint_mod({0}, {1})",
    "pow": "uint_pow({0}, {1})",
    "abs": "{0}",
    "sign": "tl.where({0} > 0, 1, {0})",
}


def spell(function: str, dtype: DType, operands: Sequence[str]) -> Spelled | None:
    """A function on operands of a type; None where Triton has no way to say it."""
    if function in ("shift_left", "shift_right"):
        return Spelled(_shift(function, dtype, *operands))
    form = _form(function, dtype)
    if form is None:
        return None
    text = form.format(*operands)
    called = [name for name in HELPERS if form.startswith(f"{name}(")]
    return Spelled(text, (*called, *_libraries(text, called)))


def _form(function: str, dtype: DType) -> str | None:
    for table in _tables(dtype):
        if function in table:
            return table[function]
    return f"{{0}} {_OPERATORS[function]} {{1}}" if function in _OPERATORS else None


def _tables(dtype: DType) -> tuple[dict[str, str], ...]:
    if dtype.is_float:
        return (_ON_F64 if dtype == F64 else _ON_F32), _ON_FLOATS, _PLAIN
    if dtype.is_bool:
        return _ON_BOOL, _PLAIN
    return (_ON_UNSIGNED if dtype.kind == "uint" else _ON_SIGNED), _ON_INTS, _PLAIN


def _libraries(text: str, called: Sequence[str]) -> tuple[str, ...]:
    used = "libdevice." in text or any("libdevice." in HELPERS[name] for name in called)
    return ("libdevice",) if used else ()


def _shift(function: str, dtype: DType, x: str, amount: str) -> str:
    """0 where the amount is not below the number of bits; a right shift keeps the sign."""
    sign = "<<" if function == "shift_left" else ">>"
    inside = f"({amount} >= 0) & ({amount} < {dtype.bits})"
    return f"tl.where({inside}, {x} {sign} tl.where({inside}, {amount}, 0), 0)"


# ---- casts


def cast(x: str, source: DType, to: DType) -> str:
    """x converted as the graph op `cast` does: see `tfc.tile.reference.cast_array`."""
    if to == BOOL:
        return f"tl.cast({x}, tl.float32) != 0" if source in (F16, BF16) else f"{x} != 0"
    if source.is_float and to.is_integer:
        return _saturated(x, source, to)
    return f"tl.cast({x}, {name_of(to)})"


def _saturated(x: str, source: DType, to: DType) -> str:
    """Toward zero; what is out of range gives the nearest end of it, NaN gives 0."""
    signed = to.kind == "int"
    low, high = (
        (-(1 << (to.bits - 1)), (1 << (to.bits - 1)) - 1) if signed else (0, (1 << to.bits) - 1)
    )
    if source in (F16, BF16):
        x = f"tl.cast({x}, tl.float32)"
    kind = name_of(to)
    above, below = f"{x} >= {float(high + 1)!r}", f"{x} <= {float(low)!r}"
    inside = f"({above}) | ({below}) | ({x} != {x})"
    whole = f"tl.cast(tl.where({inside}, 0.0, {x}), {kind})"
    ends = f"tl.where({below}, tl.full((1, 1), {low}, {kind}), {whole})"
    return f"tl.where({above}, tl.full((1, 1), {high}, {kind}), {ends})"


__all__ = [
    "HELPERS",
    "Spelled",
    "cast",
    "fits_literal",
    "literal",
    "name_of",
    "signature_of",
    "spell",
]
