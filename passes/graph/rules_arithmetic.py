"""The algebraic rules of `canonicalize` on single elements, which keep every bit but NaN's sign.

So x + 0.0 stays (it turns -0.0 into 0.0), while x + -0.0 and x - 0.0 are x.
"""

from __future__ import annotations

import numpy as np

from tfc.ir.core import Op, Value
from tfc.ir.rewriting import Pattern, Rewriter, pattern
from tfc.ir.types import DType
from tfc.ops.arithmetic import Add, Div, Maximum, Minimum, Mul, Pow, Sub
from tfc.ops.base import Binary, Unary
from tfc.ops.cast import Cast
from tfc.ops.constant import constant
from tfc.ops.elementwise import Abs, Ceil, Floor, Neg, Round, Sign, Where
from tfc.ops.logic import (
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
)
from tfc.ops.piecewise import Relu
from tfc.passes.graph.known import inline_array, is_power_of_two, is_splat, splat


def _becomes(op: Op, value: Value, rewriter: Rewriter) -> bool:
    """Replaces an op by a value of the same type; not where a constant stretched the shape."""
    if op.result.type != value.type:
        return False
    rewriter.replace(op, value)
    return True


@pattern("commute-constant", Binary)
def commute_constant(op: Binary, rewriter: Rewriter) -> bool:
    """op(c, x) -> op(x, c), so that other rules look for constants on one side only."""
    is_left = inline_array(op.x) is not None and inline_array(op.y) is None
    if not op.commutative or not is_left:
        return False
    x, y = op.x, op.y
    rewriter.set_operand(op, 0, y)
    rewriter.set_operand(op, 1, x)
    return True


@pattern("add-zero", Add)
def add_zero(op: Add, rewriter: Rewriter) -> bool:
    """x + -0.0 -> x; of integers x + 0 -> x."""
    zero = -0.0 if op.x.tensor.dtype.is_float else 0
    return is_splat(op.y, zero) and _becomes(op, op.x, rewriter)


@pattern("sub-zero", Sub)
def sub_zero(op: Sub, rewriter: Rewriter) -> bool:
    """x - 0.0 -> x."""
    return is_splat(op.y, 0.0) and _becomes(op, op.x, rewriter)


@pattern("mul-one", Mul)
def mul_one(op: Mul, rewriter: Rewriter) -> bool:
    """x * 1 -> x."""
    return is_splat(op.y, 1) and _becomes(op, op.x, rewriter)


@pattern("div-one", Div)
def div_one(op: Div, rewriter: Rewriter) -> bool:
    """x / 1 -> x."""
    return is_splat(op.y, 1) and _becomes(op, op.x, rewriter)


@pattern("pow-one", Pow)
def pow_one(op: Pow, rewriter: Rewriter) -> bool:
    """x ** 1 -> x."""
    return is_splat(op.y, 1) and _becomes(op, op.x, rewriter)


@pattern("pow-two", Pow)
def pow_two(op: Pow, rewriter: Rewriter) -> bool:
    """x ** 2 -> x * x, which both are the square rounded once."""
    if not is_splat(op.y, 2) or op.result.type != op.x.type:
        return False
    rewriter.replace(op, rewriter.value(Mul(op.x, op.x)))
    return True


@pattern("div-power-of-two", Div)
def div_power_of_two(op: Div, rewriter: Rewriter) -> bool:
    """x / 2^k -> x * 2^-k, exact for floats, and faster."""
    number = is_power_of_two(op.y) if op.x.tensor.dtype.is_float else None
    if number is None:
        return False
    shape = [int(n) for n in op.y.tensor.shape if isinstance(n, int)]
    inverse = np.full(shape, 1 / number, op.y.tensor.dtype.numpy)
    rewriter.replace(op, rewriter.value(Mul(op.x, constant(rewriter, inverse))))
    return True


@pattern("add-neg", Add)
def add_neg(op: Add, rewriter: Rewriter) -> bool:
    """x + -y -> x - y; -x + y -> y - x."""
    for kept, negated in ((op.x, op.y), (op.y, op.x)):
        if isinstance(negated.owner, Neg):
            rewriter.replace(op, rewriter.value(Sub(kept, negated.owner.x)))
            return True
    return False


@pattern("sub-neg", Sub)
def sub_neg(op: Sub, rewriter: Rewriter) -> bool:
    """x - -y -> x + y."""
    if not isinstance(op.y.owner, Neg):
        return False
    rewriter.replace(op, rewriter.value(Add(op.x, op.y.owner.x)))
    return True


@pattern("mul-neg", Mul)
def mul_neg(op: Mul, rewriter: Rewriter) -> bool:
    """-x * -y -> x * y."""
    if not (isinstance(op.x.owner, Neg) and isinstance(op.y.owner, Neg)):
        return False
    rewriter.replace(op, rewriter.value(Mul(op.x.owner.x, op.y.owner.x)))
    return True


# ---- ops that undo or repeat one another

INVERSES = (Neg, LogicalNot, BitwiseNot)
IDEMPOTENT = (Abs, Ceil, Floor, Round, Sign, Relu)


@pattern("double-negation", Unary)
def double_negation(op: Unary, rewriter: Rewriter) -> bool:
    """-(-x) -> x, and so the logical and the bitwise not."""
    inner = op.x.owner
    if not isinstance(op, INVERSES) or not isinstance(inner, Unary) or type(inner) is not type(op):
        return False
    return _becomes(op, inner.x, rewriter)


@pattern("idempotent", Unary)
def idempotent(op: Unary, rewriter: Rewriter) -> bool:
    """f(f(x)) -> f(x) for abs, ceil, floor, round, sign, relu."""
    repeated = isinstance(op, IDEMPOTENT) and type(op.x.owner) is type(op)
    return repeated and _becomes(op, op.x, rewriter)


@pattern("abs-neg", Abs)
def abs_neg(op: Abs, rewriter: Rewriter) -> bool:
    """abs(-x) -> abs(x)."""
    if not isinstance(op.x.owner, Neg):
        return False
    rewriter.set_operand(op, 0, op.x.owner.x)
    return True


LATTICE = (Maximum, Minimum, LogicalAnd, LogicalOr, BitwiseAnd, BitwiseOr)


@pattern("same-operands", Binary)
def same_operands(op: Binary, rewriter: Rewriter) -> bool:
    """op(x, x) -> x for maximum, minimum, and, or."""
    return isinstance(op, LATTICE) and op.x is op.y and _becomes(op, op.x, rewriter)


ASSOCIATIVE_INTEGER = (Add, Mul, BitwiseAnd, BitwiseOr, BitwiseXor)
ASSOCIATIVE = (Maximum, Minimum, LogicalAnd, LogicalOr)


@pattern("reassociate-constants", Binary)
def reassociate_constants(op: Binary, rewriter: Rewriter) -> bool:
    """op(op(x, c), d) -> op(x, op(c, d)) where exact: integers, maximum, minimum, and, or."""
    exact = isinstance(op, ASSOCIATIVE) or (
        isinstance(op, ASSOCIATIVE_INTEGER) and op.x.tensor.dtype.is_integer
    )
    inner = op.x.owner
    if not exact or not isinstance(inner, Binary) or type(inner) is not type(op):
        return False
    c, d = inline_array(inner.y), inline_array(op.y)
    if c is None or d is None or inline_array(inner.x) is not None:
        return False
    folded = np.asarray(op.reference(c, d))
    if folded.nbytes > max(c.nbytes, d.nbytes):
        return False
    rewriter.fuse(inner)
    rewriter.replace(op, rewriter.value(type(op)(inner.x, constant(rewriter, folded))))
    return True


@pattern("logical-constant", Binary)
def logical_constant(op: Binary, rewriter: Rewriter) -> bool:
    """x and true -> x, x or false -> x; x and false -> false, x or true -> true."""
    if not isinstance(op, LogicalAnd | LogicalOr) or splat(op.y) is None:
        return False
    neutral = bool(splat(op.y)) == isinstance(op, LogicalAnd)
    return _becomes(op, op.x if neutral else op.y, rewriter)


# ---- choices and casts


@pattern("where-constant", Where)
def where_constant(op: Where, rewriter: Rewriter) -> bool:
    """where(true, x, y) -> x; where(false, x, y) -> y."""
    chosen = splat(op.condition)
    return chosen is not None and _becomes(op, op.x if chosen else op.y, rewriter)


@pattern("where-same", Where)
def where_same(op: Where, rewriter: Rewriter) -> bool:
    """where(c, x, x) -> x."""
    return op.x is op.y and _becomes(op, op.x, rewriter)


@pattern("where-not", Where)
def where_not(op: Where, rewriter: Rewriter) -> bool:
    """where(not c, x, y) -> where(c, y, x)."""
    negated = op.condition.owner
    if not isinstance(negated, LogicalNot):
        return False
    rewriter.replace(op, rewriter.value(Where(negated.x, op.y, op.x)))
    return True


@pattern("cast-same", Cast)
def cast_same(op: Cast, rewriter: Rewriter) -> bool:
    """A cast to the type that the operand has."""
    return _becomes(op, op.x, rewriter)


@pattern("cast-cast", Cast)
def cast_cast(op: Cast, rewriter: Rewriter) -> bool:
    """A cast after one that loses nothing -> one cast."""
    inner = op.x.owner
    if not isinstance(inner, Cast):
        return False
    first, middle = inner.x.tensor.dtype, inner.to
    same_kind = first.is_float == middle.is_float
    if not loses_nothing(first, middle) or not (same_kind or op.to.is_float or op.to.is_bool):
        return False
    rewriter.replace(op, rewriter.value(Cast(inner.x, to=op.to)))
    return True


MANTISSA_BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
EXPONENT_BITS = {"f64": 11, "f32": 8, "f16": 5, "bf16": 8}


def loses_nothing(source: DType, target: DType) -> bool:
    """Whether every value of one type is one of the other."""
    if source == target or source.is_bool:
        return True
    if target.is_bool:
        return False
    if source.is_float:
        return (
            target.is_float
            and MANTISSA_BITS[target.name] >= MANTISSA_BITS[source.name]
            and EXPONENT_BITS[target.name] >= EXPONENT_BITS[source.name]
        )
    signed = source.kind == "int"
    bits = source.bits - signed
    if target.is_float:
        return bits <= MANTISSA_BITS[target.name] and bits < 2 ** (EXPONENT_BITS[target.name] - 1)
    if signed and target.kind == "uint":
        return False
    return bits <= target.bits - (target.kind == "int")


RULES: tuple[Pattern, ...] = (
    commute_constant,
    add_zero,
    sub_zero,
    mul_one,
    div_one,
    pow_one,
    pow_two,
    div_power_of_two,
    add_neg,
    sub_neg,
    mul_neg,
    double_negation,
    idempotent,
    abs_neg,
    same_operands,
    reassociate_constants,
    logical_constant,
    where_constant,
    where_same,
    where_not,
    cast_same,
    cast_cast,
)
