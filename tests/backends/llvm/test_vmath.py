"""The vector maths against numpy in a wider format, its special values, and no call to libm."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tfc.backends.llvm.vmath import FUNCTIONS, Lanes, emit, emit_all, symbol

llvm = pytest.importorskip("llvmlite.binding")

FORMATS = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
WIDER: dict[str, Any] = {"f32": np.float64, "f64": np.longdouble}
LLVM = {"f32": "float", "f64": "double"}

TARGETS = {
    "x86-64-v2": {"features": "", "fma": False, "avx512": False},
    "x86-64-v3": {"features": "", "fma": True, "avx512": False},
    "x86-64-v4": {"features": "-prefer-256-bit", "fma": True, "avx512": True},
}
WIDTHS = (0, 4, 8, 16)

BOUND = 2.0
"""Units in the last place."""
LOOSER = {("erfc", "f64"): 4.0}
EXACT = {"fmod"}


def runs_here(target: str) -> bool:
    features = llvm.get_host_cpu_features()
    wanted = {"x86-64-v2": "sse4.2", "x86-64-v3": "fma", "x86-64-v4": "avx512dq"}[target]
    return bool(features.get(wanted, False))


# Compiled code: each function in a loop over arrays.


def loop(function: str, element: str, lanes: int) -> str:
    """`void loop.FUNCTION.LANES(x..., y, n)`, n a multiple of the lanes."""
    kind, scalar = Lanes(element, lanes).llvm, LLVM[element]
    size = FORMATS[element].itemsize
    arity = FUNCTIONS[function]
    pointers = "".join(f"ptr noalias %p{i}, " for i in range(arity))
    loads = "".join(
        f"  %a{i} = getelementptr {scalar}, ptr %p{i}, i64 %i\n"
        f"  %x{i} = load {kind}, ptr %a{i}, align {size}\n"
        for i in range(arity)
    )
    arguments = ", ".join(f"{kind} %x{i}" for i in range(arity))
    return f"""define void @loop.{function}.{lanes}({pointers}ptr noalias %q, i64 %n) {{
entry:
  br label %each
each:
  %i = phi i64 [ 0, %entry ], [ %next, %each ]
{loads}  %y = call {kind} {symbol(function, element, lanes)}({arguments})
  %b = getelementptr {scalar}, ptr %q, i64 %i
  store {kind} %y, ptr %b, align {size}
  %next = add i64 %i, {max(lanes, 1)}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %each, label %done
done:
  ret void
}}
"""


def module_text(element: str, widths: tuple[int, ...], *, fma: bool, avx512: bool) -> str:
    needed = [(function, element, lanes) for function in FUNCTIONS for lanes in widths]
    declares, defines = emit_all(needed, fma=fma, avx512=avx512)
    loops = [loop(*key) for key in needed]
    return "\n".join([*declares, *defines, *loops])


def optimized(text: str, machine: Any) -> Any:
    module = llvm.parse_assembly(text)
    module.verify()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    builder.getModulePassManager().run(module, builder)
    return module


@cache
def engine(element: str, target: str) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    options = TARGETS[target]
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=target, features=options["features"], opt=1
    )
    text = module_text(element, WIDTHS, fma=options["fma"], avx512=options["avx512"])
    compiled = llvm.create_mcjit_compiler(optimized(text, machine), machine)
    compiled.finalize_object()
    return compiled


def run(function: str, element: str, target: str, lanes: int, *arguments: Any) -> Any:
    address = engine(element, target).get_function_address(f"loop.{function}.{lanes}")
    pointers = [ctypes.c_void_p] * (len(arguments) + 1)
    call = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64)(address)
    result = np.empty_like(arguments[0])
    assert result.size % 16 == 0
    call(*(x.ctypes.data for x in arguments), result.ctypes.data, result.size)
    return result


# The right values, in a wider format.


def sigmoid(x: Any) -> Any:
    e = np.exp(-np.abs(x))
    return np.where(np.isnan(x), x, np.where(x < 0, e, x.dtype.type(1)) / (1 + e))


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def elementwise(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of Python's numbers; good to an ulp of f64, which is all that there is for erf."""
    return lambda x: np.array([function(v) for v in x.astype(np.float64).tolist()], x.dtype)


REFERENCE: dict[str, Callable[..., Any]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "erf": elementwise(math.erf),
    "erfc": elementwise(math.erfc),
    "exp_of_negative": np.exp,
    "pow": np.power,
    "sigmoid": sigmoid,
    "softplus": softplus,
}
BY_STANDARD_LIBRARY = ("erf", "erfc")


@cache
def samples(function: str, element: str) -> tuple[tuple[Any, ...], Any]:
    """Arguments and results."""
    arguments = pairs(element) if FUNCTIONS[function] == 2 else (numbers(element),)
    if function == "exp_of_negative":
        arguments = (-np.abs(arguments[0]),)
    with np.errstate(all="ignore"):
        wide = [x.astype(WIDER[element]) for x in arguments]
        return arguments, REFERENCE.get(function, getattr(np, function, None))(*wide)


SPECIAL = (0.0, math.inf, math.nan, 1.0, 0.5, 2.0, 1.5, 3.0, 1e30, 1e-30)
THRESHOLDS = (
    *(0.25, 0.4142, 0.5, 0.7071, 0.75, 1.0, 1.2, 1.5, 2.414, 4.0, 6.0, 9.01, 18.0, 27.3),
    *(
        87.34,
        88.72,
        89.0,
        89.42,
        103.3,
        103.98,
        128.0,
        150.0,
        709.78,
        710.48,
        745.14,
        1e6,
        1048576.0,
    ),
)


@cache
def numbers(element: str) -> Any:
    """Bit patterns evenly spaced over all of the format, thresholds and their neighbours."""
    kind = FORMATS[element]
    unsigned = np.dtype(f"u{kind.itemsize}")
    count = 1 << (18 if element == "f32" else 12)
    step = (1 << (8 * kind.itemsize)) // count
    spread = (np.arange(count, dtype=unsigned) * unsigned.type(step + 1)).view(kind)
    generator = np.random.default_rng(1)
    scales = np.repeat([1e-3, 0.3, 1.0, 4.0, 20.0, 110.0, 800.0, 1e5], count // 16)
    ordinary = (generator.uniform(-1, 1, scales.size) * scales).astype(kind)
    edges = np.array(THRESHOLDS, kind).view(unsigned)
    around = (edges[:, None] + np.arange(64, dtype=unsigned) - unsigned.type(32)).ravel().view(kind)
    limits = np.finfo(kind)
    special = [*SPECIAL, limits.tiny, limits.smallest_subnormal, limits.max, limits.tiny / 2]
    special = np.array(special, kind)
    return filled(np.concatenate([spread, ordinary, around, -around, special, -special]))


@cache
def pairs(element: str) -> tuple[Any, Any]:
    """For functions of two arguments: all pairs of special values, and random ones."""
    kind = FORMATS[element]
    limits = np.finfo(kind)
    special = [
        *SPECIAL,
        limits.tiny / 4,
        limits.max,
        1 + limits.eps,
        1 - limits.eps,
        4.0,
        7.0,
        1e9 + 1,
    ]
    special = np.array([*special, *(-v for v in special)], kind)
    a, b = (grid.ravel() for grid in np.meshgrid(special, special))
    generator = np.random.default_rng(2)
    count = 20_000
    scale = 150 if element == "f32" else 1050

    def uniform(low: float, high: float) -> Any:
        return generator.uniform(low, high, count)

    lefts = [np.exp(uniform(-20, 20)), uniform(0.5, 2), -np.exp(uniform(-3, 3)), uniform(-1e3, 1e3)]
    rights = [uniform(-30, 30), uniform(-scale, scale), np.round(uniform(-30, 30)), uniform(-3, 3)]
    x = np.concatenate([a, *(v.astype(kind) for v in lefts)])
    y = np.concatenate([b, *(v.astype(kind) for v in rights)])
    return filled(x), filled(y)


def filled(x: Any) -> Any:
    return np.concatenate([x, np.ones(-x.size % 16, x.dtype)])


def errors(result: Any, expected: Any) -> Any:
    """In units of the last place of the result's format; infinite for a wrong special value."""
    limits, wide = np.finfo(result.dtype), expected.dtype.type
    top = wide(2) ** limits.maxexp
    with np.errstate(all="ignore"):
        _, exponent = np.frexp(np.where(np.abs(expected) < top, expected, top / 2))
        unit = np.ldexp(wide(1), np.maximum(exponent - 1, limits.minexp) - limits.nmant)
        capped = [np.clip(v.astype(wide), -top, top) for v in (result, expected)]
        distance = np.abs(capped[0] - capped[1]) / unit
    wrong = np.isnan(result) != np.isnan(expected)
    zero = (result == 0) & (expected == 0) & (np.signbit(result) != np.signbit(expected))
    distance = np.where(np.isnan(result) & np.isnan(expected), 0, distance)
    return np.where(wrong | zero, np.inf, distance)


def described(arguments: tuple[Any, ...], result: Any, expected: Any, error: Any) -> str:
    worst = int(np.argmax(error))
    given = ", ".join(repr(x[worst]) for x in arguments)
    return f"{error[worst]:.3f} ulp at {given}: {result[worst]!r} instead of {expected[worst]!r}"


def bound_of(function: str, element: str) -> float:
    if function in EXACT:
        return 0.0
    doubt = 1.0 if element == "f64" and function in BY_STANDARD_LIBRARY else 0.0
    return LOOSER.get((function, element), BOUND) + doubt


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_is_accurate(function: str, element: str, target: str) -> None:
    if not runs_here(target):
        pytest.skip(f"this processor is no {target}")
    if element == "f64" and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("no wider format than f64 here")
    arguments, expected = samples(function, element)
    result = run(function, element, target, 16 if element == "f32" else 8, *arguments)
    error = errors(result, expected)
    assert error.max() <= bound_of(function, element), described(arguments, result, expected, error)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", FORMATS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_is_accurate_at_every_width(function: str, element: str, target: str) -> None:
    """AVX-512's instructions need whole registers, so other widths take other paths."""
    if not runs_here(target):
        pytest.skip(f"this processor is no {target}")
    arguments, expected = samples(function, element)
    size = expected.size
    chosen = np.concatenate([np.arange(0, size, max(1, size // 4096)), np.arange(size - 512, size)])
    chosen = chosen[: chosen.size // 16 * 16]
    few, right = tuple(x[chosen] for x in arguments), expected[chosen]
    by_width = [run(function, element, target, lanes, *few) for lanes in WIDTHS]
    for result in by_width:
        error = errors(result, right)
        assert error.max() <= bound_of(function, element), described(few, result, right, error)
        if not TARGETS[target]["avx512"]:
            np.testing.assert_array_equal(result, by_width[0])


def test_reduces_the_hardest_arguments() -> None:
    """The f64 number nearest to a multiple of pi / 2 (Kahan), and one that is often got wrong."""
    hard = filled(np.array([6381956970095103 * 2.0**797, 1e22]))
    expected = np.array([1.0, -0.8522008497671888])
    for target in filter(runs_here, TARGETS):
        sine = run("sin", "f64", target, 8, hard)[:2]
        cosine = run("cos", "f64", target, 8, hard)[:2]
        np.testing.assert_allclose(sine, expected, rtol=3e-16)
        assert cosine[0] == pytest.approx(-4.68716592425462761112e-19, rel=3e-16)


@pytest.mark.parametrize("triple", ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"])
@pytest.mark.parametrize("element", FORMATS)
def test_calls_nothing(element: str, triple: str) -> None:
    """No libm, no helper of the compiler, at any width and on any target."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    cpus = ("x86-64-v2", "x86-64-v4") if triple.startswith("x86") else ("",)
    for cpu in cpus:
        options = TARGETS.get(cpu, {"fma": True, "avx512": False})
        machine = llvm.Target.from_triple(triple).create_target_machine(
            cpu=cpu, features=options.get("features", ""), opt=1
        )
        text = module_text(element, (0, 16), fma=options["fma"], avx512=options["avx512"])
        assembly = machine.emit_assembly(optimized(text, machine))
        assert "loop.tanh.16" in assembly
        calls = re.findall(r"^\s+(?:callq?|jmpq?|bl|blr|b)\s+(?!\.L)\S+", assembly, re.MULTILINE)
        assert calls == []


def test_names() -> None:
    assert symbol("exp", "f32", 16) == "@tfc.exp.v16f32"
    assert symbol("pow", "f64", 0) == "@tfc.pow.f64"
    with pytest.raises(AssertionError, match="no function 'gamma'"):
        symbol("gamma", "f32", 0)
    with pytest.raises(AssertionError, match="exp of f16"):
        symbol("exp", "f16", 4)


def test_text() -> None:
    text, requirements = emit("exp", "f32", 8, fma=True, avx512=False)
    assert text.startswith(
        "define internal <8 x float> @tfc.exp.v8f32(<8 x float> %x0) alwaysinline nounwind {\n"
    )
    assert (
        "declare <8 x float> @llvm.fma.v8f32(<8 x float>, <8 x float>, <8 x float>)" in requirements
    )


def test_text_is_the_same_for_any_order() -> None:
    needed = [(function, "f32", lanes) for function in FUNCTIONS for lanes in (0, 16)]
    once = emit_all(needed, fma=True, avx512=True)
    assert emit_all(reversed(needed + needed), fma=True, avx512=True) == once


@pytest.mark.parametrize("fma", [False, True])
def test_intrinsics_fit_the_target(fma: bool) -> None:
    needed = [(function, element, 16) for function in FUNCTIONS for element in FORMATS]
    declares, defines = emit_all(needed, fma=fma, avx512=False)
    text = "\n".join([*declares, *defines])
    assert "llvm.x86" not in text
    assert ("llvm.fma" in text) == fma


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("function", ["exp", "tanh", "erf", "log", "sigmoid"])
def test_is_accurate_for_every_number(function: str, target: str) -> None:
    """All 2^32 numbers of f32: about two minutes each."""
    special = pytest.importorskip("scipy.special")
    reference = (
        special.erf if function == "erf" else REFERENCE.get(function, getattr(np, function, None))
    )
    if not runs_here(target):
        pytest.skip(f"this processor is no {target}")
    chunk = 1 << 18
    for first in range(0, 1 << 32, chunk):
        x = (np.arange(chunk, dtype=np.uint32) + np.uint32(first)).view(np.float32)
        with np.errstate(all="ignore"):
            expected = reference(x.astype(np.float64))
            result = run(function, "f32", target, 16, x)
            sure = np.abs(result - expected) <= np.abs(expected) * 2.0**-23
        doubtful = ~sure | (expected == 0)
        if doubtful.any():  # 2^-23 of a number is at most two units in its last place
            few, given, right = x[doubtful], result[doubtful], expected[doubtful]
            error = errors(given, right)
            assert error.max() <= BOUND, described((few,), given, right, error)
