"""The elementwise functions of tiles on registers, as LLVM instructions.

Integer division and shifts never trap; NaN passes through `maximum` and `minimum`. What a
processor has no instruction for comes from `vmath`. No instruction carries a fast-math flag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfc.backends.llvm.registers import Register, Vectors, element_type
from tfc.ir.errors import UnsupportedError
from tfc.ir.types import BOOL, DType
from tfc.tile.functions import FUNCTIONS

if TYPE_CHECKING:
    from tfc.backends.llvm.writer import Writer


MathKey = tuple[str, str, int]
"""A function of vector maths, its element type, and the lanes (0: a scalar)."""


@dataclass(frozen=True)
class Operands:
    """What the operands of one function have in common, and the instructions on them."""

    vectors: Vectors
    dtype: DType
    vector: bool
    fma: bool
    needed: set[MathKey]

    @property
    def writer(self) -> Writer:
        return self.vectors.writer

    @property
    def element(self) -> str:
        return element_type(self.dtype)

    @property
    def kind(self) -> str:
        return self.vectors.type(self.dtype, self.vector)

    @property
    def signed(self) -> bool:
        return self.dtype.kind == "int"

    def constant(self, value: float | int | bool) -> str:
        return self.vectors.constant(value, self.dtype, self.vector)

    def do(self, instruction: str, *operands: str) -> str:
        return self.writer.pure(f"{instruction} {self.kind} {', '.join(operands)}")

    def intrinsic(self, name: str, *operands: str) -> str:
        return self.vectors.intrinsic(name, self.element, self.vector, *operands)

    def absolute(self, x: str) -> str:
        """The absolute value of integers; that of the smallest is itself."""
        function = f"llvm.abs.{self.vectors.suffix(self.element, self.vector)}"
        return self.writer.call(self.kind, function, f"{self.kind} {x}", "i1 false")

    def compare(self, predicate: str, x: str, y: str) -> str:
        """`predicate` is that of fcmp for floats (olt), without sign or order for integers (lt)."""
        instruction = "fcmp" if self.dtype.is_float else "icmp"
        return self.writer.pure(f"{instruction} {predicate} {self.kind} {x}, {y}")

    def order(self, relation: str, x: str, y: str) -> str:
        """x `relation` y, where relation is lt, le, gt or ge."""
        prefix = "o" if self.dtype.is_float else "s" if self.signed else "u"
        return self.compare(prefix + relation, x, y)

    def select(self, condition: str, x: str, y: str) -> str:
        return self.vectors.select(condition, self.kind, x, y, self.vector)

    def logic(self, instruction: str, x: str, y: str) -> str:
        """An instruction on truth values."""
        kind = self.vectors.type_text("i1", self.vector)
        return self.writer.pure(f"{instruction} {kind} {x}, {y}")


def apply(
    vectors: Vectors, function: str, operands: list[Register], *, fma: bool, needed: set[MathKey]
) -> Register:
    """A function of registers of one type; `needed` collects what vector maths must define."""
    dtype = operands[0].dtype
    vector = any(r.vector for r in operands)
    texts = [vectors.splat(r) if vector else r.text for r in operands]
    o = Operands(vectors, dtype, vector, fma, needed)
    table = _FLOATS if dtype.is_float else _BOOLS if dtype == BOOL else _INTEGERS
    compute = table.get(function)
    text = compute(o, *texts) if compute else _library(o, function, *texts)
    known = FUNCTIONS.get(function)  # a variant for some arguments only is of vector maths
    return Register(text, known.result_type(dtype) if known else dtype, vector)


def _library(o: Operands, function: str, *operands: str) -> str:
    """A call of vector maths."""
    from tfc.backends.llvm import vmath

    if function not in vmath.FUNCTIONS:
        raise UnsupportedError(f"the function {function} on {o.dtype} has no code for this target")
    key = function, o.dtype.name, o.vectors.lanes if o.vector else 0
    o.needed.add(key)
    arguments = ", ".join(f"{o.kind} {x}" for x in operands)
    return o.writer.pure(f"call {o.kind} {vmath.symbol(*key)}({arguments})")


def apply_together(
    vectors: Vectors, function: str, operands: Sequence[Register], *, needed: set[MathKey]
) -> list[Register]:
    """A function of vector maths of a power of two of registers, by one call."""
    from tfc.backends.llvm import vmath

    dtype, element = operands[0].dtype, element_type(operands[0].dtype)
    wide = len(operands) * vectors.lanes
    key = function, dtype.name, wide
    needed.add(key)
    kind = f"<{wide} x {element}>"
    argument = vectors.joined([vectors.splat(r) for r in operands], element)
    result = vectors.writer.pure(f"call {kind} {vmath.symbol(*key)}({kind} {argument})")
    parts = vectors.parted(result, element, len(operands))
    return [Register(text, dtype, True) for text in parts]


# ---- floats


def _sign_float(o: Operands, x: str) -> str:
    below = o.select(o.compare("olt", x, o.constant(0.0)), o.constant(-1.0), x)
    return o.select(o.compare("ogt", x, o.constant(0.0)), o.constant(1.0), below)


def _maximum_float(o: Operands, x: str, y: str) -> str:
    # The comparison fails for NaN and gives y; x is given where it is NaN itself.
    larger = o.select(o.compare("ogt", x, y), x, y)
    return o.select(o.compare("uno", x, x), x, larger)


def _minimum_float(o: Operands, x: str, y: str) -> str:
    smaller = o.select(o.compare("olt", x, y), x, y)
    return o.select(o.compare("uno", x, x), x, smaller)


def _fma(o: Operands, x: str, y: str, z: str) -> str:
    if o.fma:
        return o.intrinsic("fma", x, y, z)
    return o.do("fadd", o.do("fmul", x, y), z)


def _rsqrt(o: Operands, x: str) -> str:
    return o.do("fdiv", o.constant(1.0), o.intrinsic("sqrt", x))


def _is_infinite(o: Operands, x: str) -> str:
    return o.compare("oeq", o.intrinsic("fabs", x), o.constant(float("inf")))


_Function = Callable[..., str]


def _modulo_float(o: Operands, x: str, y: str) -> str:
    """The sign of the result is that of y, of a zero too."""
    rest = _library(o, "fmod", x, y)
    zero = o.constant(0.0)
    opposite = o.logic("xor", o.compare("olt", rest, zero), o.compare("olt", y, zero))
    wrong = o.logic("and", opposite, o.compare("une", rest, zero))
    moved = o.select(wrong, o.do("fadd", rest, y), rest)
    return o.select(o.compare("oeq", rest, zero), o.intrinsic("copysign", zero, y), moved)


def _instruction(name: str) -> _Function:
    def function(o: Operands, *operands: str) -> str:
        return o.do(name, *operands)

    return function


def _intrinsic(name: str) -> _Function:
    def function(o: Operands, *operands: str) -> str:
        return o.intrinsic(name, *operands)

    return function


def _comparison(predicate: str) -> _Function:
    def function(o: Operands, x: str, y: str) -> str:
        return o.compare(predicate, x, y)

    return function


def _order(relation: str) -> _Function:
    def function(o: Operands, x: str, y: str) -> str:
        return o.order(relation, x, y)

    return function


def _reciprocal(o: Operands, x: str) -> str:
    return o.do("fdiv", o.constant(1.0), x)


def _is_nan(o: Operands, x: str) -> str:
    return o.compare("uno", x, x)


_ORDERS: dict[str, _Function] = {
    "less": _order("lt"),
    "less_equal": _order("le"),
    "greater": _order("gt"),
    "greater_equal": _order("ge"),
}
_FLOATS: dict[str, _Function] = _ORDERS | {
    "neg": _instruction("fneg"),
    "abs": _intrinsic("fabs"),
    "sign": _sign_float,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "round": _intrinsic("roundeven"),
    "sqrt": _intrinsic("sqrt"),
    "rsqrt": _rsqrt,
    "reciprocal": _reciprocal,
    "is_nan": _is_nan,
    "is_infinite": _is_infinite,
    "add": _instruction("fadd"),
    "sub": _instruction("fsub"),
    "mul": _instruction("fmul"),
    "div": _instruction("fdiv"),
    "mod": _modulo_float,
    "maximum": _maximum_float,
    "minimum": _minimum_float,
    "equal": _comparison("oeq"),
    "not_equal": _comparison("une"),
    "fma": _fma,
}


# ---- integers


def _sign_integer(o: Operands, x: str) -> str:
    zero, one = o.constant(0), o.constant(1)
    positive = o.select(o.order("gt", x, zero), one, zero)
    return o.select(o.order("lt", x, zero), o.constant(-1), positive) if o.signed else positive


def _divisor(o: Operands, y: str) -> tuple[str, str, str]:
    """A divisor that does not trap, and where y is 0 and where -1."""
    zero = o.compare("eq", y, o.constant(0))
    if not o.signed:
        return o.select(zero, o.constant(1), y), zero, ""
    minus = o.compare("eq", y, o.constant(-1))
    unsafe = o.logic("or", zero, minus)
    return o.select(unsafe, o.constant(1), y), zero, minus


def _divide(o: Operands, x: str, y: str) -> str:
    divisor, zero, minus = _divisor(o, y)
    quotient = o.do("sdiv" if o.signed else "udiv", x, divisor)
    if minus:
        quotient = o.select(minus, o.do("sub", o.constant(0), x), quotient)
    return o.select(zero, o.constant(0), quotient)


def _remainder(o: Operands, x: str, y: str) -> str:
    # By 1 the remainder is 0, which is right for the divisors 0 and -1 too.
    return o.do("srem" if o.signed else "urem", x, _divisor(o, y)[0])


def _modulo(o: Operands, x: str, y: str) -> str:
    rest = _remainder(o, x, y)
    if not o.signed:
        return rest
    differs = o.compare("slt", o.do("xor", rest, y), o.constant(0))
    wrong = o.logic("and", o.compare("ne", rest, o.constant(0)), differs)
    return o.select(wrong, o.do("add", rest, y), rest)


def _power(o: Operands, x: str, y: str) -> str:
    """By squaring; a negative power is 0 unless x is 1 or -1."""
    zero, one = o.constant(0), o.constant(1)
    base = x
    if o.signed:
        unit = o.compare("eq", o.absolute(x), one)
        base = o.select(o.compare("slt", y, zero), o.select(unit, x, zero), x)

    def step(_: str, carried: list[str]) -> list[str]:
        total, square, bits = carried
        odd = o.compare("ne", o.do("and", bits, one), zero)
        total = o.select(odd, o.do("mul", total, square), total)
        return [total, o.do("mul", square, square), o.do("lshr", bits, one)]

    first = [(o.kind, one), (o.kind, base), (o.kind, y)]
    return o.writer.loop("0", str(o.dtype.bits), 1, first, step)[0]


def _shift(instruction: str) -> _Function:
    def shift(o: Operands, x: str, y: str) -> str:
        # As an unsigned number a negative amount is too large as well.
        inside = o.compare("ult", y, o.constant(o.dtype.bits))
        amount = o.select(inside, y, o.constant(0))
        name = "ashr" if instruction == "shr" and o.signed else {"shr": "lshr"}.get(instruction)
        return o.select(inside, o.do(name or instruction, x, amount), o.constant(0))

    return shift


def _extreme(which: str) -> _Function:
    def function(o: Operands, x: str, y: str) -> str:
        return o.intrinsic(f"{'s' if o.signed else 'u'}{which}", x, y)

    return function


def _neg_integer(o: Operands, x: str) -> str:
    return o.do("sub", o.constant(0), x)


def _abs_integer(o: Operands, x: str) -> str:
    return o.absolute(x) if o.signed else x


def _not(o: Operands, x: str) -> str:
    return o.do("xor", x, o.constant(True if o.dtype == BOOL else -1))


_INTEGERS: dict[str, _Function] = _ORDERS | {
    "neg": _neg_integer,
    "abs": _abs_integer,
    "sign": _sign_integer,
    "not": _not,
    "add": _instruction("add"),
    "sub": _instruction("sub"),
    "mul": _instruction("mul"),
    "div": _divide,
    "mod": _modulo,
    "fmod": _remainder,
    "pow": _power,
    "maximum": _extreme("max"),
    "minimum": _extreme("min"),
    "and": _instruction("and"),
    "or": _instruction("or"),
    "xor": _instruction("xor"),
    "shift_left": _shift("shl"),
    "shift_right": _shift("shr"),
    "equal": _comparison("eq"),
    "not_equal": _comparison("ne"),
}

_BOOLS: dict[str, _Function] = _ORDERS | {
    "not": _not,
    "and": _instruction("and"),
    "or": _instruction("or"),
    "xor": _instruction("xor"),
    "maximum": _instruction("or"),
    "minimum": _instruction("and"),
    "equal": _comparison("eq"),
    "not_equal": _comparison("ne"),
}
