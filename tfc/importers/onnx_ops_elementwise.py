"""ONNX operators of one element at a time: maths, comparison, logic, Cast, Where, Clip."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfc.importers.onnx_context import Context, Result, dtype_of_code
from tfc.importers.onnx_registry import Handler, importer
from tfc.ir.core import Value
from tfc.ir.types import BOOL, F64, DType

UNARY: dict[str, tuple[str, tuple[int, ...]]] = {
    "Abs": ("abs", (6, 13)),
    "Acos": ("acos", (7, 22)),
    "Acosh": ("acosh", (9, 22)),
    "Asin": ("asin", (7, 22)),
    "Asinh": ("asinh", (9, 22)),
    "Atan": ("atan", (7, 22)),
    "Atanh": ("atanh", (9, 22)),
    "BitwiseNot": ("bitwise_not", (18,)),
    "Ceil": ("ceil", (6, 13)),
    "Cos": ("cos", (7, 22)),
    "Cosh": ("cosh", (9, 22)),
    "Erf": ("erf", (9, 13)),
    "Exp": ("exp", (6, 13)),
    "Floor": ("floor", (6, 13)),
    "IsNaN": ("is_nan", (9, 13, 20)),
    "Log": ("log", (6, 13)),
    "Neg": ("neg", (6, 13)),
    "Not": ("logical_not", (1,)),
    "Reciprocal": ("reciprocal", (6, 13)),
    "Round": ("round", (11, 22)),
    "Sigmoid": ("sigmoid", (6, 13)),
    "Sign": ("sign", (9, 13)),
    "Sin": ("sin", (7, 22)),
    "Sinh": ("sinh", (9, 22)),
    "Softplus": ("softplus", (1, 22)),
    "Sqrt": ("sqrt", (6, 13)),
    "Tan": ("tan", (7, 22)),
    "Tanh": ("tanh", (6, 13)),
}
# operator -> op, the versions before broadcasting was numpy's, the others
BINARY: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "Add": ("add", (6,), (7, 13, 14)),
    "And": ("logical_and", (1,), (7,)),
    "BitwiseAnd": ("bitwise_and", (), (18,)),
    "BitwiseOr": ("bitwise_or", (), (18,)),
    "BitwiseXor": ("bitwise_xor", (), (18,)),
    "Div": ("div", (6,), (7, 13, 14)),
    "Equal": ("equal", (1,), (7, 11, 13, 19)),
    "Greater": ("greater", (1,), (7, 9, 13)),
    "GreaterOrEqual": ("greater_equal", (), (12, 16)),
    "Less": ("less", (1,), (7, 9, 13)),
    "LessOrEqual": ("less_equal", (), (12, 16)),
    "Mul": ("mul", (6,), (7, 13, 14)),
    "Or": ("logical_or", (1,), (7,)),
    "Sub": ("sub", (6,), (7, 13, 14)),
    "Xor": ("logical_xor", (1,), (7,)),
}
FOLDED = {"Max": ("maximum", (6, 8, 12, 13)), "Min": ("minimum", (6, 8, 12, 13)),
          "Sum": ("add", (6, 8, 13))}  # fmt: skip


def _unary(op: str) -> Handler:
    def convert(n: Context) -> Value:
        return n.make(op, n.value(0))

    return convert


def _binary(op: str) -> Handler:
    def convert(n: Context) -> Value:
        return n.make(op, n.value(0), n.value(1))

    return convert


def _binary_with_axis(op: str) -> Handler:
    def convert(n: Context) -> Value:
        x, y = n.value(0), n.value(1)
        return n.make(op, x, placed(n, x, y))

    return convert


def placed(n: Context, x: Value, y: Value) -> Value:
    """The second operand with the dimensions that broadcasting gave it before opset 7.

    It must say so (`broadcast`); `axis` is where its dimensions lie in the first operand's.
    """
    n.ignore("consumed_inputs")  # an early hint for reusing memory
    axis = n.int("axis", x.tensor.rank - y.tensor.rank)
    if not n.flag("broadcast"):
        n.require(x.tensor.rank == y.tensor.rank, "the ranks differ and `broadcast` is not set")
        return y
    axis += x.tensor.rank if axis < 0 else 0
    behind = x.tensor.rank - axis - y.tensor.rank
    n.require(axis >= 0 and behind >= 0, f"axis {axis} does not place the second operand")
    shape = (*y.tensor.shape, *[1] * behind)
    return n.make("reshape", y, shape=shape) if behind else y


def _folded(op: str) -> Handler:
    """Any number of operands, from the left."""

    def convert(n: Context) -> Value:
        n.require(bool(n.node.inputs), "needs an input")
        total, *others = n.values()
        for value in others:
            total = n.make(op, total, value)
        return total

    return convert


def _register(
    table: dict[str, tuple[str, tuple[int, ...]]], convert: Callable[[str], Handler]
) -> None:
    for op_type, (op, versions) in table.items():
        importer(op_type, *versions)(convert(op))


_register(UNARY, _unary)
_register(FOLDED, _folded)


for _op_type, (_op, _with_axis, _versions) in BINARY.items():
    importer(_op_type, *_with_axis)(_binary_with_axis(_op))
    importer(_op_type, *_versions)(_binary(_op))


@importer("Mean", 6, 8, 13)
def _(n: Context) -> Value:
    total = _folded("add")(n)
    assert isinstance(total, Value)
    count = len(n.node.inputs)
    return n.make("div", total, n.scalar(count, total.tensor.dtype)) if count > 1 else total


@importer("Mod", 10, 13, 28)
def _(n: Context) -> Value:
    truncates = n.flag("fmod")
    legal = truncates or n.version >= 28 or not n.type(0).dtype.is_float
    n.require(legal, "floats need fmod = 1 before opset 28")
    return n.make("fmod" if truncates else "mod", n.value(0), n.value(1))


@importer("BitShift", 11, 28)
def _(n: Context) -> Value:
    direction = n.string("direction")
    n.require(direction in ("LEFT", "RIGHT"), f"direction is {direction!r}, not LEFT or RIGHT")
    x, amount = n.value(0), n.value(1)
    if direction == "RIGHT" and x.tensor.dtype.kind == "int":
        amount = _at_most_all_but_one(n, amount)
    return n.make(f"shift_{direction.lower()}", x, amount)


def _at_most_all_but_one(n: Context, amount: Value) -> Value:
    """The amount of a signed shift to the right: beyond the width the sign is left."""
    dtype = amount.tensor.dtype
    most = n.scalar(dtype.bits - 1, dtype)
    negative = n.make("less", amount, n.scalar(0, dtype))
    return n.make("where", negative, most, n.make("minimum", amount, most))


@importer("Pow", 1)
def _(n: Context) -> Value:
    x, y = n.value(0), n.value(1)
    return n.make("pow", x, placed(n, x, y))


@importer("Pow", 7, 12, 13, 15)
def _(n: Context) -> Value:
    x, y = n.value(0), n.value(1)
    base, exponent = x.tensor.dtype, y.tensor.dtype
    if base == exponent:
        return n.make("pow", x, y)
    n.require(n.version >= 12, "base and exponent differ in element type before opset 12")
    if base.is_float or not exponent.is_float:
        return n.make("pow", x, cast(n, y, base))
    # An integer to a fraction: in f64, and rounded toward zero like any cast.
    return cast(n, n.make("pow", cast(n, x, F64), cast(n, y, F64)), base)


def cast(n: Context, value: Value, dtype: DType) -> Value:
    """The value with another element type."""
    return value if value.tensor.dtype == dtype else n.make("cast", value, to=dtype)


@importer("Cast", 6, 9, 13, 19, 21, 23, 24, 25, 28)
def _(n: Context) -> Value:
    n.ignore(*_float8_attributes(n))
    return cast(n, n.value(0), dtype_of_code(n.int("to")))


@importer("CastLike", 15, 19, 21, 23, 24, 25)
def _(n: Context) -> Value:
    n.ignore(*_float8_attributes(n))
    return cast(n, n.value(0), n.type(1).dtype)


def _float8_attributes(n: Context) -> list[str]:
    """What says how to round to 8-bit floats, which are refused anyway."""
    return ["saturate"] * (n.version >= 19) + ["round_mode"] * (n.version >= 24)


@importer("IsInf", 10, 20)
def _(n: Context) -> Value:
    positive, negative = n.flag("detect_positive", True), n.flag("detect_negative", True)
    return n.make("is_inf", n.value(0), positive=positive, negative=negative)


@importer("Where", 9, 16)
def _(n: Context) -> Value:
    return n.make("where", n.value(0), n.value(1), n.value(2))


@importer("Clip", 6)
def _(n: Context) -> Value:
    x = n.value(0)
    most = float(np.finfo(np.float32).max)  # ONNX's default, also for other floats
    bounds = (n.float("min", -most), n.float("max", most))
    low, high = (n.scalar(bound, x.tensor.dtype) for bound in bounds)
    return n.make("clip", x, low, high)


@importer("Clip", 11, 12, 13)
def _(n: Context) -> Value:
    return n.make("clip", n.value(0), _bound(n, 1), _bound(n, 2))


def _bound(n: Context, index: int) -> Value | None:
    bound = n.optional(index)
    return None if bound is None else as_scalar(n, bound)


def as_scalar(n: Context, value: Value) -> Value:
    """A value of one element, which exporters also write as [1], as rank 0."""
    if value.tensor.rank == 0:
        return value
    n.require(value.tensor.elements == 1, f"{value.tensor} has not one element")
    return n.make("reshape", value, shape=())


@importer("Dropout", 6)
def _(n: Context) -> Result:
    n.ignore("ratio")
    if not n.flag("is_test"):
        raise n.unsupported("training mode is not supported")
    return _undropped(n)


@importer("Dropout", 7, 10)
def _(n: Context) -> Result:
    n.ignore("ratio")
    return _undropped(n)


@importer("Dropout", 12, 13, 22)
def _(n: Context) -> Result:
    n.ignore("seed")
    n.entry(1)  # the ratio does not matter when nothing is dropped
    if n.has(2) and any(bool(e) for e in n.constant(2, "training_mode").reshape(-1)):
        raise n.unsupported("training mode is not supported")
    return _undropped(n)


def _undropped(n: Context) -> Result:
    """The operand, and that all of it is kept if somebody asks for that."""
    x = n.value(0)
    if len(n.node.outputs) < 2 or not n.node.outputs[1]:
        return x
    dtype = x.tensor.dtype if n.version < 10 else BOOL
    return [x, n.make("full", n.scalar(1, dtype), shape=x.tensor.shape)]
