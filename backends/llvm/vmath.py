"""Vector maths as LLVM IR text: exp, log, tanh, ... on scalars and vectors of any width, no libm.

`emit_all` gives what a module needs for the functions that it calls by `symbol`. All are free of
branches but for the arguments of sin, cos and tan beyond a million and for fmod's long division.
With `fma`, llvm.fma is one instruction of the target; without (x86-64-v2) it would call libm, so
products and sums are rounded apart. With `avx512`, vectors of whole registers use its instructions.

TABLE
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_erf import erf, erfc
from tfc.backends.llvm.vmath_exp import cosh, exp, exp2, expm1, sigmoid, sinh, tanh
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
    {"erf", "exp", "exp2", "expm1", "fmod", "log", "log10", "log1p", "log2"}
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
