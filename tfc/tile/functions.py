"""The elementwise functions of tiles: their arity, the type of their result, and what they compute.

Semantics are those of the graph op of the same name (`tfc/ops/elementwise.py`). Functions on f16
and bf16 do not exist: kernels cast to f32, compute, and round once at the store.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.types import BOOL, DType


@dataclass(frozen=True)
class Function:
    """`kinds` are the kinds of element type that it takes; `result` is "same" or "bool"."""

    arity: int
    kinds: tuple[str, ...]
    result: str = "same"

    def accepts(self, dtype: DType) -> bool:
        return dtype.kind in self.kinds and dtype.name not in ("f16", "bf16")

    def result_type(self, dtype: DType) -> DType:
        return BOOL if self.result == "bool" else dtype


_FLOAT = ("float",)
_INTEGER = ("int", "uint")
_NUMBER = ("float", "int", "uint")
_BITS = ("int", "uint", "bool")
_ANY = ("float", "int", "uint", "bool")

FUNCTIONS: dict[str, Function] = {
    **{n: Function(1, _NUMBER) for n in ("neg", "abs", "sign")},
    **{
        n: Function(1, _FLOAT)
        for n in (
            *("floor", "ceil", "round", "sqrt", "rsqrt", "reciprocal"),
            *("exp", "expm1", "log", "log1p", "erf", "sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "asinh", "acosh", "atanh", "tanh", "sigmoid", "softplus"),
        )
    },
    "is_nan": Function(1, _FLOAT, "bool"),
    "is_infinite": Function(1, _FLOAT, "bool"),
    "not": Function(1, _BITS),  # of the bits; logical for bool
    **{n: Function(2, _NUMBER) for n in ("add", "sub", "mul", "div", "mod", "fmod")},
    "pow": Function(2, _NUMBER),
    **{n: Function(2, _ANY) for n in ("maximum", "minimum")},  # NaN wins
    **{n: Function(2, _BITS) for n in ("and", "or", "xor")},
    **{n: Function(2, _INTEGER) for n in ("shift_left", "shift_right")},
    **{n: Function(2, _ANY, "bool") for n in ("equal", "not_equal")},
    **{n: Function(2, _ANY, "bool") for n in ("less", "less_equal", "greater", "greater_equal")},
    "fma": Function(3, _FLOAT),  # a * b + c, rounded once where the target can
}
"""`select(bool, x, y)` and `cast` are ops: their types do not follow this scheme."""
