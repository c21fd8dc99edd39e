"""Values with operators, and the LLVM instructions that the operators write.

A `Value` is a scalar or a vector of the lanes of its `Instructions`. Python numbers become
constants of the other operand's type. An instruction that was written before is not written again.
None has a fast-math flag: the rounding of each step is what is written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """A number format: its names here and in LLVM, and where its bits lie."""

    name: str
    llvm: str
    integer: str
    width: int
    mantissa: int
    bias: int

    @property
    def shifter(self) -> float:
        """Added to a modest number, leaves its nearest integer plus the bias in the low bits."""
        return 1.5 * 2.0**self.mantissa + self.bias

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def mantissa_mask(self) -> int:
        return (1 << self.mantissa) - 1

    @property
    def exponent_mask(self) -> int:
        return (1 << (self.width - 1)) - (1 << self.mantissa)

    def bits(self, number: float) -> int:
        """The encoding of the number."""
        return int.from_bytes(struct.pack("<f" if self.width == 32 else "<d", number), "little")

    def round(self, number: float) -> float:
        """The nearest number of this format."""
        return number if self.width == 64 else struct.unpack("<f", struct.pack("<f", number))[0]


F32 = Format("f32", "float", "i32", 32, 23, 127)
F64 = Format("f64", "double", "i64", 64, 52, 1023)
FORMATS = {"f32": F32, "f64": F64}
FORMATS_OF_BITS = {"i32": F32, "i64": F64}
LLVM_TYPES = {"f32": "float", "f64": "double", "i1": "i1", "i16": "i16", "i32": "i32", "i64": "i64"}


@dataclass(frozen=True, eq=False)
class Value:
    """An operand of LLVM instructions: `type` is the type of one lane (f32, f64, i1, i32, i64)."""

    body: Instructions
    type: str
    text: str

    @property
    def format(self) -> Format:
        """The number format of a number, or of the number whose bits this integer is."""
        return FORMATS.get(self.type) or FORMATS_OF_BITS[self.type]

    def like(self, number: float) -> Value:
        """A constant of the same type."""
        return self.body.constant(self.type, number)

    def __add__(self, other: Operand) -> Value:
        return self.body.binary("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.body.binary("add", self, other)

    def __sub__(self, other: Operand) -> Value:
        return self.body.binary("sub", self, other)

    def __rsub__(self, other: float) -> Value:
        return self.body.binary("sub", self.body.constant(self.type, other), self)

    def __mul__(self, other: Operand) -> Value:
        return self.body.binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.body.binary("mul", self, other)

    def __truediv__(self, other: Operand) -> Value:
        return self.body.binary("div", self, other)

    def __rtruediv__(self, other: float) -> Value:
        return self.body.binary("div", self.body.constant(self.type, other), self)

    def __neg__(self) -> Value:
        return self.body.instruction(
            self.type, f"fneg {self.body.type_text(self.type)} {self.text}"
        )

    def __abs__(self) -> Value:
        return self.body.intrinsic("fabs", self)

    def __and__(self, other: Value | int) -> Value:
        return self.body.binary("and", self, other)

    def __or__(self, other: Value | int) -> Value:
        return self.body.binary("or", self, other)

    def __xor__(self, other: Value | int) -> Value:
        return self.body.binary("xor", self, other)

    def __lshift__(self, amount: Value | int) -> Value:
        return self.body.binary("shl", self, amount)

    def __rshift__(self, amount: Value | int) -> Value:
        """A logical shift."""
        return self.body.binary("lshr", self, amount)

    def __lt__(self, other: Operand) -> Value:
        return self.body.compare("olt", "slt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.body.compare("ole", "sle", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.body.compare("ogt", "sgt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return self.body.compare("oge", "sge", self, other)

    def equals(self, other: Operand) -> Value:
        return self.body.compare("oeq", "eq", self, other)

    def differs(self, other: Operand) -> Value:
        """Unequal; a NaN differs from everything."""
        return self.body.compare("une", "ne", self, other)

    def is_nan(self) -> Value:
        return self.body.compare("uno", "ne", self, self)

    def unordered(self, other: Value) -> Value:
        """One of the two is NaN."""
        return self.body.compare("uno", "ne", self, other)

    def bits(self) -> Value:
        """The encoding, as an integer of the same width."""
        return self.body.cast("bitcast", self, self.format.integer)

    def number(self) -> Value:
        """The floating-point number of this encoding."""
        return self.body.cast("bitcast", self, self.format.name)


Operand = Value | float | int


class Instructions:
    """The lines of one function on vectors of `lanes` numbers (0: scalars), and what they need."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.lines: list[str] = []
        self.requirements: set[str] = set()
        self._written: dict[str, Value] = {}
        self._count = 0

    def type_text(self, type_name: str) -> str:
        """The LLVM type of a value of this type in all lanes."""
        llvm = LLVM_TYPES[type_name]
        return f"<{self.lanes} x {llvm}>" if self.lanes else llvm

    def suffix(self, type_name: str) -> str:
        """The type as it stands in the name of an intrinsic."""
        return f"v{self.lanes}{type_name}" if self.lanes else type_name

    def constant(self, type_name: str, number: float) -> Value:
        if type_name in FORMATS:
            rounded = FORMATS[type_name].round(float(number))
            literal = f"0x{F64.bits(rounded):016X}"
        else:
            literal = str(int(number))
        splat = f"splat ({LLVM_TYPES[type_name]} {literal})"
        return Value(self, type_name, splat if self.lanes else literal)

    def operand(self, like: Value, operand: Operand) -> Value:
        return operand if isinstance(operand, Value) else self.constant(like.type, operand)

    def fresh(self, stem: str) -> str:
        """A name that is not taken."""
        self._count += 1
        return f"{stem}{self._count}"

    def instruction(self, type_name: str, text: str) -> Value:
        """The value of this instruction, written unless it stands already."""
        if text not in self._written:
            name = self.fresh("%v")
            self.lines.append(f"  {name} = {text}")
            self._written[text] = Value(self, type_name, name)
        return self._written[text]

    def binary(self, operation: str, a: Value, b: Operand) -> Value:
        right = self.operand(a, b)
        assert a.type == right.type, f"{operation} of {a.type} and {right.type}"
        floating = "f" if a.type in FORMATS else ""
        text = f"{floating}{operation} {self.type_text(a.type)} {a.text}, {right.text}"
        return self.instruction(a.type, text)

    def compare(self, floating: str, integer: str, a: Value, b: Operand) -> Value:
        right = self.operand(a, b)
        kind = f"fcmp {floating}" if a.type in FORMATS else f"icmp {integer}"
        return self.instruction("i1", f"{kind} {self.type_text(a.type)} {a.text}, {right.text}")

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        like = a if isinstance(a, Value) else b
        assert isinstance(like, Value), "one choice must have a type"
        chosen = [f"{self.type_text(like.type)} {self.operand(like, c).text}" for c in (a, b)]
        test = f"{self.type_text('i1')} {condition.text}"
        return self.instruction(like.type, f"select {test}, {chosen[0]}, {chosen[1]}")

    def cast(self, operation: str, value: Value, type_name: str) -> Value:
        source = f"{self.type_text(value.type)} {value.text}"
        return self.instruction(type_name, f"{operation} {source} to {self.type_text(type_name)}")

    def intrinsic(self, name: str, first: Value, *rest: Operand) -> Value:
        """An LLVM intrinsic whose operands and result have one type."""
        operands = [first, *(self.operand(first, operand) for operand in rest)]
        text_type = self.type_text(first.type)
        function = f"@llvm.{name}.{self.suffix(first.type)}"
        return self.call(first.type, function, [f"{text_type} {v.text}" for v in operands])

    def call(
        self, type_name: str, function: str, arguments: Sequence[str], result: str | None = None
    ) -> Value:
        """A call of a declared function; each argument is its type and its value."""
        kinds = ", ".join(_type_of(argument) for argument in arguments)
        result = result or self.type_text(type_name)
        self.requirements.add(f"declare {result} {function}({kinds})")
        return self.instruction(type_name, f"call {result} {function}({', '.join(arguments)})")


def _type_of(argument: str) -> str:
    """The type of an argument written as `<16 x float> %v3` or `i32 4`."""
    return argument[: argument.index(">") + 1] if argument[0] == "<" else argument.split()[0]
