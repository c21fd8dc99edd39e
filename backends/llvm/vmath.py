"""Vector maths as LLVM IR text: exp, log, tanh, ... on scalars and vectors of any width, no libm.

`emit_all` gives what a module needs for the functions that it calls by `symbol`. All are free of
branches but for the arguments of sin, cos and tan beyond a million and for fmod's long division.
With `fma`, llvm.fma is one instruction of the target; without (x86-64-v2) it would call libm, so
products and sums are rounded apart. With `avx512`, vectors of whole registers use its instructions.

The largest error that was seen, in units in the last place, and clock cycles for 16 numbers of f32
with AVX-512. Seen in f32: 2^28 numbers of the functions that compute in f32, 2^24 of the others,
600,000 pairs; in f64: some 5,000 numbers against 60 digits, 60,000 against the x87 format.

    function   f32, fma   no fma    f64   cycles
    exp            0.89     0.99    1.0        9
    exp2           0.90     1.17    1.1        9
    expm1          1.48     1.49    1.9       12
    log            0.92     0.95    1.3       10
    log2           1.27     1.55    1.1       17
    log10          1.21     1.36    1.2       18
    log1p          1.27     1.27    1.2       18
    softplus       1.62     1.69    1.6       22
    sigmoid        1.48     1.97    1.8       17
    tanh           1.65     1.99    1.8       12
    erf            1.17     1.54    1.0       12
    erfc           0.51     0.51    3.2      114
    sin            0.51     0.51    0.8       37
    cos            0.51     0.51    0.8       37
    tan            0.51     0.51    0.9       53
    asin           0.51     0.51    0.7       89
    acos           0.51     0.51    0.6       86
    atan           0.51     0.51    1.7       39
    atan2          0.51     0.51    1.8       60
    sinh           0.51     0.51    1.6       49
    cosh           0.51     0.51    1.4       38
    asinh          0.51     0.51    1.0      117
    acosh          0.51     0.51    0.9      121
    atanh          0.51     0.51    1.0      106
    pow            0.51     0.51    1.7      110
    cbrt           0.51     0.51    0.6       52
    fmod           0.00     0.00    0.0   100 up

At subnormal results and arguments too; where exp gives 0 it does so without a subnormal step, so
that masks of -inf or -1e30 cost nothing, and only results that are subnormal pay for an assist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_erf import erf, erfc
from tfc.backends.llvm.vmath_exp import (
    cosh,
    exp,
    exp2,
    exp_of_negative,
    expm1,
    sigmoid,
    sinh,
    tanh,
)
from tfc.backends.llvm.vmath_fmod import fmod
from tfc.backends.llvm.vmath_log import acosh, asinh, atanh, log, log1p, log2, log10, softplus
from tfc.backends.llvm.vmath_power import cbrt, pow
from tfc.backends.llvm.vmath_trigonometry import acos, asin, atan, atan2, cos, sin, tan
from tfc.backends.llvm.vmath_value import FORMATS, LLVM_TYPES, Value

KERNELS: dict[str, Callable[..., Value]] = {
    "acos": acos,
    "acosh": acosh,
    "asin": asin,
    "asinh": asinh,
    "atan": atan,
    "atan2": atan2,
    "atanh": atanh,
    "cbrt": cbrt,
    "cos": cos,
    "cosh": cosh,
    "erf": erf,
    "erfc": erfc,
    "exp": exp,
    "exp2": exp2,
    "exp_of_negative": exp_of_negative,
    "expm1": expm1,
    "fmod": fmod,
    "log": log,
    "log10": log10,
    "log1p": log1p,
    "log2": log2,
    "pow": pow,
    "sigmoid": sigmoid,
    "sin": sin,
    "sinh": sinh,
    "softplus": softplus,
    "tan": tan,
    "tanh": tanh,
}

FUNCTIONS: dict[str, int] = {name: 2 if name in ("atan2", "fmod", "pow") else 1 for name in KERNELS}
"""Each function and its number of arguments."""

IN_F32 = frozenset(
    {"erf", "exp", "exp2", "exp_of_negative", "expm1", "fmod", "log", "log10", "log1p", "log2"}
    | {"sigmoid", "softplus", "tanh"}
)
"""What computes in f32 for f32; the others compute in f64 and round once more."""


@dataclass(frozen=True)
class Lanes:
    """The type of arguments and result: f32 or f64, and the number of lanes, 0 for a scalar."""

    element: str
    count: int

    @property
    def llvm(self) -> str:
        llvm = LLVM_TYPES[self.element]
        return f"<{self.count} x {llvm}>" if self.count else llvm

    @property
    def suffix(self) -> str:
        return f"v{self.count}{self.element}" if self.count else self.element


def symbol(function: str, element: str, lanes: int) -> str:
    """The function's name in LLVM: `@tfc.exp.v16f32`; `@tfc.exp.f32` with 0 lanes, a scalar."""
    assert function in FUNCTIONS, f"vector maths has no function {function!r}"
    assert element in FORMATS, f"vector maths has no {function} of {element}"
    return f"@tfc.{function}.{Lanes(element, lanes).suffix}"


def emit(
    function: str, element: str, lanes: int, *, fma: bool, avx512: bool
) -> tuple[str, set[str]]:
    """The function's definition, and the declarations and constant tables that it needs."""
    body = Body(element, lanes, fma=fma, avx512=avx512)
    arguments = [Value(body, element, f"%x{i}") for i in range(FUNCTIONS[function])]
    kernel = KERNELS[function]
    operands = arguments if function in IN_F32 else [body.widened(x) for x in arguments]
    result = body.narrowed(kernel(body, *operands))
    kind = Lanes(element, lanes).llvm
    parameters = ", ".join(f"{kind} {x.text}" for x in arguments)
    header = f"define internal {kind} {symbol(function, element, lanes)}({parameters})"
    lines = [f"{header} alwaysinline nounwind {{", "entry:", *body.lines]
    return "\n".join([*lines, f"  ret {kind} {result.text}", "}", ""]), body.requirements


def emit_all(
    needed: Iterable[tuple[str, str, int]], *, fma: bool, avx512: bool
) -> tuple[list[str], list[str]]:
    """The lines and the definitions for (function, element, lanes), each once, in a fixed order."""
    requirements: set[str] = set()
    definitions: list[str] = []
    for function, element, lanes in sorted(set(needed)):
        text, requires = emit(function, element, lanes, fma=fma, avx512=avx512)
        definitions.append(text)
        requirements |= requires
    return sorted(requirements), definitions
