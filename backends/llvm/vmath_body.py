"""Writes the text of one vector maths function: values with operators, constants, intrinsics, control flow.

A `Value` is a scalar or a vector of the body's lane count; arithmetic on it appends LLVM instructions to its
`Body`. Python numbers become constants of the other operand's type. An instruction that was written before
is not written again. No instruction carries a fast-math flag: the rounding of each step is what is written here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
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
        """Added to a number of modest size, leaves its nearest integer, plus the bias, in the low bits."""
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
REGISTER = 512
"""Bits of a register of AVX-512."""
FORMATS_OF_BITS = {"i32": F32, "i64": F64}
LLVM_TYPES = {"f32": "float", "f64": "double", "i1": "i1", "i16": "i16", "i32": "i32", "i64": "i64"}


@dataclass(frozen=True, eq=False)
class Value:
    """An operand of LLVM instructions: `type` is the type of one lane (f32, f64, i1, i32, i64)."""

    body: Body
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


class Body:
    """The instructions of one function whose result has format `element` and `lanes` lanes (0: a scalar)."""

    def __init__(self, element: str, lanes: int, *, fma: bool, avx512: bool) -> None:
        self.element = element
        self.lanes = lanes
        self.has_fma = fma
        self.avx512 = avx512
        self.lines: list[str] = []
        self.requirements: set[str] = set()
        self._written: dict[str, Value] = {}
        self._count = 0
        self._block = "entry"

    # Text of types and constants.

    def type_text(self, type_name: str) -> str:
        llvm = LLVM_TYPES[type_name]
        return f"<{self.lanes} x {llvm}>" if self.lanes else llvm

    def _suffix(self, type_name: str) -> str:
        return f"v{self.lanes}{type_name}" if self.lanes else type_name

    def constant(self, type_name: str, number: float) -> Value:
        if type_name in FORMATS:
            rounded = FORMATS[type_name].round(float(number))
            literal = f"0x{F64.bits(rounded):016X}"
        else:
            literal = str(int(number))
        splat = f"splat ({LLVM_TYPES[type_name]} {literal})"
        return Value(self, type_name, splat if self.lanes else literal)

    def _operand(self, like: Value, operand: Operand) -> Value:
        return operand if isinstance(operand, Value) else self.constant(like.type, operand)

    # Instructions.

    def fresh(self, stem: str) -> str:
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
        right = self._operand(a, b)
        assert a.type == right.type, f"{operation} of {a.type} and {right.type}"
        floating = "f" if a.type in FORMATS else ""
        text = f"{floating}{operation} {self.type_text(a.type)} {a.text}, {right.text}"
        return self.instruction(a.type, text)

    def compare(self, floating: str, integer: str, a: Value, b: Operand) -> Value:
        right = self._operand(a, b)
        kind = f"fcmp {floating}" if a.type in FORMATS else f"icmp {integer}"
        return self.instruction("i1", f"{kind} {self.type_text(a.type)} {a.text}, {right.text}")

    def select(self, condition: Value, a: Operand, b: Operand) -> Value:
        like = a if isinstance(a, Value) else b
        assert isinstance(like, Value), "one choice must have a type"
        chosen = [f"{self.type_text(like.type)} {self._operand(like, c).text}" for c in (a, b)]
        test = f"{self.type_text('i1')} {condition.text}"
        return self.instruction(like.type, f"select {test}, {chosen[0]}, {chosen[1]}")

    def cast(self, operation: str, value: Value, type_name: str) -> Value:
        source = f"{self.type_text(value.type)} {value.text}"
        return self.instruction(type_name, f"{operation} {source} to {self.type_text(type_name)}")

    def intrinsic(self, name: str, first: Value, *rest: Operand) -> Value:
        """An LLVM intrinsic whose operands and result have one type."""
        operands = [first, *(self._operand(first, operand) for operand in rest)]
        text_type = self.type_text(first.type)
        function = f"@llvm.{name}.{self._suffix(first.type)}"
        return self.call(first.type, function, [f"{text_type} {v.text}" for v in operands])

    def call(
        self, type_name: str, function: str, arguments: Sequence[str], result: str | None = None
    ) -> Value:
        """A call of a declared function; each argument is its type and its value."""
        kinds = ", ".join(_type_of(argument) for argument in arguments)
        result = result or self.type_text(type_name)
        self.requirements.add(f"declare {result} {function}({kinds})")
        return self.instruction(type_name, f"call {result} {function}({', '.join(arguments)})")

    # Arithmetic.

    def fma(self, a: Value, b: Operand, c: Operand) -> Value:
        """a * b + c, rounded once where the processor can."""
        if self.has_fma:
            return self.intrinsic("fma", a, b, c)
        return a * b + c

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's rule; coefficients from the lowest power up."""
        result: Operand = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(x, result, coefficient)
        return self._operand(x, result)

    def sqrt(self, value: Value) -> Value:
        return self.intrinsic("sqrt", value)

    def copysign(self, magnitude: Operand, sign: Value) -> Value:
        return self.intrinsic("copysign", self._operand(sign, magnitude), sign)

    def at_most(self, value: Value, limit: float) -> Value:
        """The smaller of the two; NaN stays NaN."""
        return self.select(value > limit, limit, value)

    def at_least(self, value: Value, limit: float) -> Value:
        """The larger of the two; NaN stays NaN."""
        return self.select(value < limit, limit, value)

    def round_even(self, value: Value) -> Value:
        return self.intrinsic("roundeven", value)

    def widened(self, value: Value) -> Value:
        return self.cast("fpext", value, "f64") if value.type == "f32" else value

    def narrowed(self, value: Value) -> Value:
        return value if value.type == self.element else self.cast("fptrunc", value, self.element)

    def quality(self, x: Value) -> str:
        """Which coefficients serve: f32, f64, or `short`, arithmetic in f64 for a result in f32."""
        return "short" if x.type != self.element else x.type

    # AVX-512.

    def fills_registers(self, value: Value) -> bool:
        """Whether the value is one or more whole registers of a processor that has AVX-512."""
        bits = self.lanes * value.format.width
        return self.avx512 and bits > 0 and bits % REGISTER == 0

    def avx512_call(self, name: str, *arguments: Value | str) -> Value:
        """An AVX-512 intrinsic, once for each register; `{register}` in an argument stands for its type."""
        values = [argument for argument in arguments if isinstance(argument, Value)]
        form = values[0].format
        count = REGISTER // form.width
        register = f"<{count} x {form.llvm}>"
        result = Value(self, form.name, "poison")
        for first in range(0, self.lanes, count):
            written = [
                f"{register} {self._part(argument, first, count)}"
                if isinstance(argument, Value)
                else argument.format(register=register)
                for argument in arguments
            ]
            function = f"@llvm.x86.avx512.{name}.512"
            part = self.call(form.name, function, written, result=register)
            result = self._with_part(result, part, first, count)
        return result

    def _part(self, value: Value, first: int, count: int) -> str:
        """The operand that holds `count` lanes from the first one."""
        if count == self.lanes:
            return value.text
        form = value.format
        function = f"@llvm.vector.extract.v{count}{form.name}.{self._suffix(form.name)}"
        arguments = [f"{self.type_text(form.name)} {value.text}", f"i64 {first}"]
        return self.call(form.name, function, arguments, result=f"<{count} x {form.llvm}>").text

    def _with_part(self, whole: Value, part: Value, first: int, count: int) -> Value:
        if count == self.lanes:
            return part
        form = whole.format
        function = f"@llvm.vector.insert.{self._suffix(form.name)}.v{count}{form.name}"
        vector = f"{self.type_text(form.name)} {whole.text}"
        arguments = [vector, f"<{count} x {form.llvm}> {part.text}", f"i64 {first}"]
        return self.call(form.name, function, arguments)

    # Control flow.

    def if_any(
        self, condition: Value, rare: Callable[[], Sequence[Value]], common: Sequence[Value]
    ) -> list[Value]:
        """What `rare` computes if the condition holds in any lane, else `common`."""
        branch, join = self.fresh("rare"), self.fresh("join")
        self.lines.append(f"  br i1 {self._any(condition)}, label %{branch}, label %{join}")
        before, written = self._block, dict(self._written)
        self._open(branch)
        computed = rare()
        self.lines.append(f"  br label %{join}")
        after, self._written = self._block, written
        self._open(join)
        return [
            self._phi(a.type, [(a.text, after), (b.text, before)])
            for a, b in zip(computed, common, strict=True)
        ]

    def while_any(
        self,
        carried: Sequence[Value],
        condition: Callable[[Sequence[Value]], Value],
        step: Callable[[Sequence[Value]], Sequence[Value]],
    ) -> list[Value]:
        """Repeats `step` on the carried values while the condition holds in any lane."""
        head, again, done = self.fresh("head"), self.fresh("again"), self.fresh("done")
        before = self._block
        self.lines.append(f"  br label %{head}")
        self._open(head)
        place = len(self.lines)
        names = [Value(self, value.type, self.fresh("%v")) for value in carried]
        test = self._any(condition(names))
        self.lines.append(f"  br i1 {test}, label %{again}, label %{done}")
        written = dict(self._written)
        self._open(again)
        following = step(names)
        self.lines.append(f"  br label %{head}")
        self.lines[place:place] = [
            _phi_text(name, self.type_text(name.type), first.text, before, later.text, self._block)
            for name, first, later in zip(names, carried, following, strict=True)
        ]
        self._written = written
        self._open(done)
        return names

    def for_each(
        self,
        name: str,
        numbers: Sequence[float],
        carried: Sequence[Value],
        step: Callable[[Value, Sequence[Value]], Sequence[Value]],
    ) -> Sequence[Value]:
        """Repeats `step` on each number of a constant table, the same for all lanes, and the carried values."""
        table = self._table(name, numbers)
        before, head, done = self._block, self.fresh("each"), self.fresh("done")
        index, following, more = (self.fresh("%i") for _ in range(3))
        self.lines.append(f"  br label %{head}")
        self._open(head)
        place = len(self.lines)
        names = [Value(self, value.type, self.fresh("%v")) for value in carried]
        written = dict(self._written)
        results = step(self._splat_of(table, len(numbers), index), names)
        phis = [
            _phi_text(n, self.type_text(n.type), f.text, before, r.text, head)
            for n, f, r in zip(names, carried, results, strict=True)
        ]
        self.lines[place:place] = [
            f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{head} ]",
            *phis,
        ]
        self.lines += [
            f"  {following} = add i64 {index}, 1",
            f"  {more} = icmp ult i64 {following}, {len(numbers)}",
            f"  br i1 {more}, label %{head}, label %{done}",
        ]
        self._written = written
        self._open(done)
        return results

    def _table(self, name: str, numbers: Sequence[float]) -> str:
        values = ", ".join(f"double 0x{F64.bits(number):016X}" for number in numbers)
        table = f"@tfc.{name}"
        kind = f"[{len(numbers)} x double]"
        self.requirements.add(f"{table} = internal unnamed_addr constant {kind} [{values}]")
        return table

    def _splat_of(self, table: str, count: int, index: str) -> Value:
        """A number of the table in all lanes."""
        place, number, first = (self.fresh("%t") for _ in range(3))
        self.lines += [
            f"  {place} = getelementptr [{count} x double], ptr {table}, i64 0, i64 {index}",
            f"  {number} = load double, ptr {place}, align 8",
        ]
        if not self.lanes:
            return Value(self, "f64", number)
        vector = self.type_text("f64")
        self.lines.append(f"  {first} = insertelement {vector} poison, double {number}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.instruction("f64", f"shufflevector {vector} {first}, {vector} poison, {mask}")

    def _any(self, condition: Value) -> str:
        if not self.lanes:
            return condition.text
        function = f"@llvm.vector.reduce.or.v{self.lanes}i1"
        self.requirements.add(f"declare i1 {function}({self.type_text('i1')})")
        argument = f"{self.type_text('i1')} {condition.text}"
        return self.instruction("i1", f"call i1 {function}({argument})").text

    def _open(self, block: str) -> None:
        self.lines.append(f"{block}:")
        self._block = block

    def _phi(self, type_name: str, sources: Sequence[tuple[str, str]]) -> Value:
        pairs = ", ".join(f"[ {text}, %{block} ]" for text, block in sources)
        return self.instruction(type_name, f"phi {self.type_text(type_name)} {pairs}")


def _phi_text(result: Value, kind: str, first: str, before: str, later: str, after: str) -> str:
    return f"  {result.text} = phi {kind} [ {first}, %{before} ], [ {later}, %{after} ]"


def _type_of(argument: str) -> str:
    """The type of an argument written as `<16 x float> %v3` or `i32 4`."""
    return argument[: argument.index(">") + 1] if argument[0] == "<" else argument.split()[0]
