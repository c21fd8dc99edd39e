"""What the functions, casts and reductions of tiles compute, in numpy.

Floats are computed in float64 and rounded once; integers wrap. The graph ops of the same names
(`tfc/ops`) define the meaning: tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from tfc.ir.types import BOOL, DType
from tfc.tile.functions import FUNCTIONS

Array: TypeAlias = "np.ndarray[Any, Any]"


def apply_function(name: str, *arrays: Array) -> Array:
    """An elementwise function; the operands have one element type and broadcast."""
    dtype = arrays[0].dtype
    with np.errstate(all="ignore"):
        if FUNCTIONS[name].result == "bool":
            return np.asarray(_TABLE[name](*arrays), bool)
        wide = [a.astype(np.float64) if dtype.kind == "f" else a for a in arrays]
        return np.asarray(_TABLE[name](*wide)).astype(dtype)


def cast_array(x: Array, to: DType) -> Array:
    """Converts the element type: see the graph op `cast`."""
    with np.errstate(all="ignore"):
        if to == BOOL:
            return np.asarray(x != np.zeros((), x.dtype))
        if is_float(x) and to.is_integer:
            return _saturate(x.astype(np.float64), to.numpy)
        if to.is_float and to.bits == 16 and x.dtype.kind in "iu":
            return _round_to_odd(x).astype(to.numpy)
        if to.is_float and to.bits == 16 and x.dtype == np.float64:
            return _narrow_once(x, to)
        return x.astype(to.numpy)


def reduce_array(function: str, x: Array, axis: int) -> Array:
    """sum, prod, max or min along an axis, which keeps extent 1."""
    with np.errstate(all="ignore"):
        if function in ("max", "min"):
            if is_float(x):  # numpy's own does not carry NaN for every type
                wide = x.astype(np.float64)
                found = (np.max if function == "max" else np.min)(wide, axis, keepdims=True)
                return found.astype(x.dtype)
            return (np.max if function == "max" else np.min)(x, axis, keepdims=True)
        wide_type = np.float64 if is_float(x) else x.dtype
        total = (np.sum if function == "sum" else np.prod)(
            x.astype(wide_type), axis, dtype=wide_type, keepdims=True
        )
        return total.astype(x.dtype)


def is_float(x: Array) -> bool:
    """Whether the elements are floats; bf16 is none of numpy's own."""
    return x.dtype.kind == "f" or x.dtype.name == "bfloat16"


def _saturate(x: Array, kind: np.dtype[Any]) -> Array:
    limits = np.iinfo(kind)
    above, below = x >= float(limits.max), x <= float(limits.min)
    inside = np.where(above | below | np.isnan(x), 0, x)
    low = np.where(below, kind.type(limits.min), np.trunc(inside).astype(kind))
    return np.where(above, kind.type(limits.max), low)


def _round_to_odd(x: Array) -> Array:
    """Integers as float64, the last bit set where bits are lost: rounding again is right."""
    if x.dtype.itemsize < 8:
        return x.astype(np.float64)
    lost = x & x.dtype.type(0x7FF)
    kept = (x - lost) | np.where(lost != 0, 0x800, 0).astype(x.dtype)
    huge = (x >= 1 << 53) | ((x <= -(1 << 53)) if x.dtype.kind == "i" else False)
    return np.where(huge, kept.astype(np.float64), x.astype(np.float64))


def _narrow_once(x: Array, to: DType) -> Array:
    """float64 to a 16-bit float, rounded once (ml_dtypes goes through float32)."""
    single = x.astype(np.float32)
    back = single.astype(np.float64)
    inexact = (back != x) & np.isfinite(x) & np.isfinite(back)
    bits = single.view(np.int32)
    toward_zero = np.where(inexact & (np.abs(back) > np.abs(x)), bits - 1, bits)
    odd = np.where(inexact, toward_zero | 1, bits).astype(np.int32)
    return odd.view(np.float32).astype(to.numpy)


# ---- the functions


def _divide(x: Array, y: Array) -> Array:
    return x / y if x.dtype.kind == "f" else _truncated(x, y)


def _truncated(x: Array, y: Array) -> Array:
    """The quotient rounded toward 0, and 0 where y is 0."""
    divisor = np.where(y == 0, y.dtype.type(1), y)
    floor = x // divisor
    if x.dtype.kind == "i":
        below = (x - floor * divisor != 0) & ((x < 0) != (divisor < 0))
        floor = floor + below.astype(x.dtype)
    return np.where(y == 0, x.dtype.type(0), floor)


def _mod(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.mod(x, y)
    return np.where(y == 0, x.dtype.type(0), np.mod(x, np.where(y == 0, y.dtype.type(1), y)))


def _fmod(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.fmod(x, y)
    return np.where(y == 0, x.dtype.type(0), x - _truncated(x, y) * y)


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.power(x, y)
    x, y = np.broadcast_arrays(x, y)
    inverse = np.where(np.abs(x) == 1, x, 0) if x.dtype.kind == "i" else x
    base = np.where(y < 0, inverse, x).astype(x.dtype)
    total, square, bits = np.ones_like(base), base.copy(), y.copy()
    for _ in range(x.dtype.itemsize * 8):
        total = np.where(bits & 1, total * square, total)
        square, bits = square * square, bits >> 1
    return total


def _maximum(x: Array, y: Array) -> Array:
    return np.where((x >= y) | (x != x), x, y)


def _minimum(x: Array, y: Array) -> Array:
    return np.where((x <= y) | (x != x), x, y)


def _shift(move: Any) -> Callable[[Array, Array], Array]:
    def shift(x: Array, y: Array) -> Array:
        inside = (y >= 0) & (y < x.dtype.itemsize * 8)
        amount = np.where(inside, y, 0).astype(x.dtype)
        return np.where(inside, move(x, amount), 0)

    return shift


def _sigmoid(x: Array) -> Array:
    # The form for negative x keeps what lies below the smallest 1 / (1 + e^-x).
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay))


def _softplus(x: Array) -> Array:
    return np.log1p(np.exp(-np.abs(x))) + _maximum(x, np.zeros_like(x))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _fma(x: Array, y: Array, z: Array) -> Array:
    return x * y + z


_TABLE: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sqrt": np.sqrt,
    "rsqrt": _rsqrt,
    "reciprocal": np.reciprocal,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "is_nan": np.isnan,
    "is_infinite": np.isinf,
    "not": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "mod": _mod,
    "fmod": _fmod,
    "pow": _pow,
    "maximum": _maximum,
    "minimum": _minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": _shift(np.left_shift),
    "shift_right": _shift(np.right_shift),
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "fma": _fma,
}
assert _TABLE.keys() == FUNCTIONS.keys(), "a function has no reference"
