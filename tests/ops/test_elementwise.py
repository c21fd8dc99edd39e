"""Elementwise ops against Python's own numbers: exact integers, fractions, `math`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfc.ops
from tests.ops.generated import shapes
from tests.ops.oracle import broadcastable, each, limits, nearest, values
from tests.ops.running import assert_close, make, run, run_decomposed
from tfc.ir.core import OPS, Block
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import BF16, BOOL, DTYPES, F16, F32, F64, I8, I32, I64, INTEGERS, DType
from tfc.ir.types import TensorType as T
from tfc.ops.arithmetic import Add, Div, Fmod, Maximum, Minimum, Mod, Mul, Pow, Sub
from tfc.ops.base import ANY, FLOATS, NUMERIC, Elementwise
from tfc.ops.cast import Cast
from tfc.ops.elementwise import Abs, IsInf, IsNan, Neg, Round, Sign, Where
from tfc.ops.logic import (
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogicalXor,
    NotEqual,
    ShiftLeft,
    ShiftRight,
)

S, U = symbol("S"), symbol("U")
assert tfc.ops


# ---- integers


def trunc_div(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def integer_power(a: int, b: int) -> int:
    if b < 0:
        return 0 if a == 0 else trunc_div(1, a) ** (b % 2 + 2)
    return pow(a, b, 1 << 64)


def shifted(kind: Callable[[int, int], int], bits: int) -> Callable[[int, int], int]:
    return lambda a, b: kind(a, b) if 0 <= b < bits else 0


INTEGER_OPS: list[tuple[type[Elementwise], Callable[[int, int], int]]] = [
    (Add, operator.add),
    (Sub, operator.sub),
    (Mul, operator.mul),
    (Div, trunc_div),
    (Mod, lambda a, b: a % b if b else 0),
    (Fmod, lambda a, b: a - trunc_div(a, b) * b if b else 0),
    (Pow, integer_power),
    (Maximum, max),
    (Minimum, min),
    (BitwiseAnd, operator.and_),
    (BitwiseOr, operator.or_),
    (BitwiseXor, operator.xor),
]


@pytest.mark.parametrize(("kind", "oracle"), INTEGER_OPS, ids=lambda p: getattr(p, "name", ""))
@given(data=st.data())
def test_integers(kind: Any, oracle: Any, data: Any) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    a, b = data.draw(broadcastable())
    x, y = data.draw(values(dtype, a)), data.draw(values(dtype, b))
    np.testing.assert_array_equal(run(kind, x, y), each(oracle, dtype, x, y))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@given(data=st.data())
def test_shifts_give_0_beyond_the_bits(dtype: DType, data: Any) -> None:
    x = data.draw(values(dtype, (5,)))
    y = np.array([0, 1, dtype.bits - 1, dtype.bits, limits(dtype)[0]], dtype.numpy)
    left, right = shifted(operator.lshift, dtype.bits), shifted(operator.rshift, dtype.bits)
    np.testing.assert_array_equal(run(ShiftLeft, x, y), each(left, dtype, x, y))
    np.testing.assert_array_equal(run(ShiftRight, x, y), each(right, dtype, x, y))


@given(data=st.data())
def test_integers_of_one_operand(data: Any) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    x = data.draw(values(dtype, data.draw(shapes(0, 2))))
    np.testing.assert_array_equal(run(Abs, x), each(abs, dtype, x))
    np.testing.assert_array_equal(run(BitwiseNot, x), each(operator.invert, dtype, x))
    np.testing.assert_array_equal(run(Sign, x), each(lambda a: (a > 0) - (a < 0), dtype, x))
    if dtype.kind == "int":
        np.testing.assert_array_equal(run(Neg, x), each(operator.neg, dtype, x))


def test_edges_of_integer_division() -> None:
    x = np.array([-128, -128, 7, -7, 7, -7, 5], np.int8)
    y = np.array([-1, 0, 2, 2, -2, -2, 0], np.int8)
    assert run(Div, x, y).tolist() == [-128, 0, 3, -3, -3, 3, 0]
    assert run(Mod, x, y).tolist() == [0, 0, 1, 1, -1, -1, 0]
    assert run(Fmod, x, y).tolist() == [0, 0, 1, -1, 1, -1, 0]


# ---- floats


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
@pytest.mark.parametrize(
    ("kind", "oracle"),
    [(Add, operator.add), (Sub, operator.sub), (Mul, operator.mul), (Div, operator.truediv)],
    ids=lambda p: getattr(p, "name", ""),
)
@given(data=st.data())
def test_arithmetic_rounds_once(dtype: DType, kind: Any, oracle: Any, data: Any) -> None:
    bits = st.integers(0, (1 << (dtype.bits - 1)) - 1)
    x, y = (
        np.array(data.draw(bits), f"u{dtype.bytes}").view(dtype.numpy).reshape(1) for _ in range(2)
    )
    a, b = float(x[0]), float(y[0])
    if not math.isfinite(a) or not math.isfinite(b) or (kind is Div and b == 0):
        return
    expected = nearest(oracle(Fraction(a), Fraction(b)), dtype)
    assert run(kind, x, y)[0].tobytes() == expected.tobytes()


def real(function: Callable[..., float]) -> Callable[..., float]:
    """`math` raises where IEEE arithmetic gives NaN."""

    def call(*arguments: float) -> float:
        try:
            return function(*arguments)
        except ValueError:
            return math.nan

    return call


def grown(function: Callable[[float], float]) -> Callable[[float], float]:
    """`math` raises where a result overflows; only these functions overflow upwards."""

    def call(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf

    return call


def _logistic(x: float) -> float:
    return 0.0 if x < -700 else 1 / (1 + math.exp(-x))


def _sinh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) > 710 else math.sinh(x)


def _log(x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


def _log1p(x: float) -> float:
    return -math.inf if x == -1 else math.log1p(x)


def _atanh(x: float) -> float:
    return math.copysign(math.inf, x) if abs(x) == 1 else math.atanh(x)


def _reciprocal(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def _rsqrt(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / math.sqrt(x)


def _softplus(x: float) -> float:
    return x if x > 40 else math.log1p(math.exp(x))


def _keep(function: Callable[[float], int]) -> Callable[[float], float]:
    """A rounding function, which Python gives as an integer: the sign of 0 is that of x."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


FLOAT_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "neg": operator.neg,
    "abs": abs,
    "sign": lambda x: x if x != x else float((x > 0) - (x < 0)),
    "floor": _keep(math.floor),
    "ceil": _keep(math.ceil),
    "round": _keep(round),
    "sqrt": real(math.sqrt),
    "rsqrt": real(_rsqrt),
    "reciprocal": _reciprocal,
    "exp": grown(math.exp),
    "expm1": grown(math.expm1),
    "log": real(_log),
    "log1p": real(_log1p),
    "erf": math.erf,
    "sin": real(math.sin),
    "cos": real(math.cos),
    "tan": real(math.tan),
    "asin": real(math.asin),
    "acos": real(math.acos),
    "atan": math.atan,
    "sinh": _sinh,
    "cosh": grown(math.cosh),
    "asinh": math.asinh,
    "acosh": real(math.acosh),
    "atanh": real(_atanh),
    "tanh": math.tanh,
    "sigmoid": _logistic,
    "softplus": _softplus,
}


@pytest.mark.parametrize("name", FLOAT_FUNCTIONS)
@given(data=st.data())
def test_functions_of_floats(name: str, data: Any) -> None:
    dtype = data.draw(st.sampled_from(FLOATS))
    x = data.draw(values(dtype, data.draw(shapes(0, 2))))
    expected = each(FLOAT_FUNCTIONS[name], dtype, x)
    found = run(OPS[name], x)  # type: ignore[arg-type]
    # numpy's float64 functions may be a few units in the last place off those of the C library.
    tolerance = {64: 1e-14, 32: 1.2e-7, 16: 8e-3 if dtype == BF16 else 1e-3}[dtype.bits]
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-300)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))


def test_every_function_of_floats_is_tested() -> None:
    unary = {n for n, k in OPS.items() if _is_primitive(k) and len(k.operand_fields) == 1}
    others = {"cast", "is_nan", "logical_not", "bitwise_not"}
    assert unary == set(FLOAT_FUNCTIONS) | others


def _is_primitive(kind: Any) -> bool:
    return issubclass(kind, Elementwise) and bool(kind.function)


PRIMITIVES = [k for k in OPS.values() if _is_primitive(k)]


def float_mod(x: float, y: float) -> float:
    if y == 0 or not math.isfinite(x) or y != y:
        return math.nan
    return x % y


def float_fmod(x: float, y: float) -> float:
    return real(math.fmod)(x, y)


def float_power(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        odd = y == math.trunc(y) and y % 2 == 1
        return math.nan if x != 0 else math.copysign(math.inf, x if odd else 1)


def extreme(choose: Callable[[float, float], float]) -> Callable[[float, float], float]:
    return lambda x, y: math.nan if x != x or y != y else choose(x, y)


@pytest.mark.parametrize(
    ("kind", "oracle"),
    [
        (Mod, float_mod),
        (Fmod, float_fmod),
        (Pow, float_power),
        (Maximum, extreme(max)),
        (Minimum, extreme(min)),
    ],
    ids=lambda p: getattr(p, "name", ""),
)
@given(data=st.data())
def test_functions_of_two_floats(kind: Any, oracle: Any, data: Any) -> None:
    dtype = data.draw(st.sampled_from(FLOATS))
    a, b = data.draw(broadcastable())
    x, y = data.draw(values(dtype, a)), data.draw(values(dtype, b))
    assert_close(run(kind, x, y), each(oracle, dtype, x, y))


@given(data=st.data())
def test_comparisons(data: Any) -> None:
    dtype = data.draw(st.sampled_from(ANY))
    a, b = data.draw(broadcastable())
    x, y = data.draw(values(dtype, a)), data.draw(values(dtype, b))
    oracles = {Equal: operator.eq, NotEqual: operator.ne}
    if not dtype.is_bool:
        oracles |= {Less: operator.lt, LessEqual: operator.le}
        oracles |= {Greater: operator.gt, GreaterEqual: operator.ge}
    for kind, oracle in oracles.items():
        np.testing.assert_array_equal(run(kind, x, y), each(oracle, BOOL, x, y))


def test_logic() -> None:
    x, y = np.array([[False], [True]]), np.array([False, True])
    assert run(LogicalAnd, x, y).tolist() == [[False, False], [False, True]]
    assert run(LogicalOr, x, y).tolist() == [[False, True], [True, True]]
    assert run(LogicalXor, x, y).tolist() == [[False, True], [True, False]]
    assert run(LogicalNot, y).tolist() == [True, False]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_classes_of_floats(dtype: DType) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.0, 0.0]).astype(dtype.numpy)
    assert run(IsNan, x).tolist() == [True, False, False, False, False]
    for above in (False, True):
        for below in (False, True):
            expected = [False, above, below, False, False]
            sides = {"positive": above, "negative": below}
            assert run(IsInf, x, **sides).tolist() == expected
            assert run_decomposed(IsInf, x, **sides).tolist() == expected


def test_round_takes_the_even_one() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997], np.float32)
    assert run(Round, x).tolist() == [0, 2, 2, -0.0, -2, -2, 0]


@given(data=st.data())
def test_where(data: Any) -> None:
    dtype = data.draw(st.sampled_from(ANY))
    a, b = data.draw(broadcastable())
    condition = data.draw(values(BOOL, b))
    x, y = data.draw(values(dtype, a)), data.draw(values(dtype, b))
    found = run(Where, condition, x, y)
    full = np.broadcast_arrays(condition, x, y)
    expected = [(u if c else v).tobytes() for c, u, v in zip(*(f.flat for f in full), strict=True)]
    assert [v.tobytes() for v in found.flat] == expected


# ---- shapes, types and errors


@given(broadcastable())
def test_broadcasting_is_that_of_numpy(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = (np.ones(shape, np.float32) for shape in pair)
    assert run(Add, x, y).shape == np.broadcast_shapes(*pair)


def infer(kind: Any, *types: T, **attributes: Any) -> Any:
    return kind(*Block(types).args, **attributes)


def test_symbolic_dimensions_that_must_agree_are_checked_at_the_call() -> None:
    op = infer(Add, T(F32, (S, 1, 4)), T(F32, (3, U, 4)))
    assert op.result.type == T(F32, (3, U, 4))
    (check,) = op.entry_checks()
    assert check.holds({"S": 3, "U": 7}) and not check.holds({"S": 1, "U": 7})
    assert infer(Add, T(F32, (S,)), T(F32, (S,))).entry_checks() == []
    # A symbol never stretches, also not when it turns out to be 1.
    assert infer(Add, T(F32, (S,)), T(F32, (U,))).result.type in (T(F32, (S,)), T(F32, (U,)))


def test_the_layout_of_full_operands_is_kept() -> None:
    from tfc.ir.types import Layout

    blocked = T(F32, (1, 32, 4, 4), Layout("aBcd16b"))
    assert infer(Add, blocked, blocked).result.type == blocked
    assert infer(Mul, blocked, T(F32, (32, 1, 1))).result.type == blocked
    assert infer(Add, blocked, T(F32, (1, 32, 4, 4))).result.type.layout is None


@pytest.mark.parametrize("kind", PRIMITIVES, ids=lambda k: k.name)
def test_wrong_element_types_are_refused_by_name(kind: Any) -> None:
    attributes = {"to": F32} if kind is Cast else {}
    for dtype in DTYPES.values():
        types = [T(dtype, (2,))] * len(kind.operand_fields)
        if kind is Where:
            types[0] = T(BOOL, (2,))
        if dtype in kind.dtypes:
            infer(kind, *types, **attributes)
        else:
            with pytest.raises(TfcError, match=f"{kind.name}: C1: .* {dtype}"):
                infer(kind, *types, **attributes)


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("C1: .*f32, f64", lambda: infer(Add, T(F32, ()), T(F64, ()))),
        ("C1: .*i32, i64", lambda: infer(Where, T(BOOL, ()), T(I32, ()), T(I64, ()))),
        (r"C2: \(2\) and \(3\) do not broadcast", lambda: infer(Add, T(F32, (2,)), T(F32, (3,)))),
        ("C2", lambda: infer(Where, T(BOOL, (2,)), T(I8, (3,)), T(I8, (3,)))),
        ("C3: .* of the condition is i8", lambda: infer(Where, T(I8, ()), T(I8, ()), T(I8, ()))),
        ("C1", lambda: infer(IsInf, T(I32, ()))),
    ],
)
def test_broken_constraints(message: str, build: Any) -> None:
    with pytest.raises(TfcError, match=message):
        build()


def test_numbers_of_exactness_and_order() -> None:
    assert Add.exact and Add.commutative and not Sub.commutative
    assert not OPS["exp"].exact and Cast.exact  # type: ignore[attr-defined]
    assert LogicalAnd.function == "and" and BitwiseNot.function == "not"
    assert set(NUMERIC) == {t for t in DTYPES.values() if not t.is_bool}
    assert make(Add, np.ones(1), np.ones(1)).name == "add"
