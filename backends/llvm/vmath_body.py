"""What the kernels of vector maths are written with: arithmetic, AVX-512, control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfc.backends.llvm.vmath_value import F64, FORMATS, LLVM_TYPES, Instructions, Operand, Value

REGISTER = 512
"""Bits of a register of AVX-512."""


class Body(Instructions):
    """The body of one function whose result has format `element`."""

    def __init__(self, element: str, lanes: int, *, fma: bool, avx512: bool) -> None:
        super().__init__(lanes)
        self.element = element
        self.has_fma = fma
        self.avx512 = avx512
        self._block = "entry"

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
        return self.operand(x, result)

    def sqrt(self, value: Value) -> Value:
        return self.intrinsic("sqrt", value)

    def copysign(self, magnitude: Operand, sign: Value) -> Value:
        return self.intrinsic("copysign", self.operand(sign, magnitude), sign)

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

    def register_literal(self, numbers: Sequence[float]) -> str:
        """A register of f32 constants, as an argument of `avx512_call`."""
        words = ", ".join(f"float 0x{F64.bits(number):016X}" for number in numbers)
        return f"<{len(numbers)} x float> <{words}>"

    def avx512_call(self, type_name: str, name: str, *arguments: Value | str) -> Value:
        """An AVX-512 intrinsic, once for each register; `{register}` is the type of its result."""
        form = FORMATS[type_name]
        count = REGISTER // form.width
        register = f"<{count} x {form.llvm}>"
        function = f"@llvm.x86.avx512.{name}.512"
        result = Value(self, type_name, "poison")
        for first in range(0, self.lanes, count):
            written = [
                self._part(argument, first, count)
                if isinstance(argument, Value)
                else argument.format(register=register)
                for argument in arguments
            ]
            part = self.call(type_name, function, written, result=register)
            result = self._with_part(result, part, first, count)
        return result

    def _part(self, value: Value, first: int, count: int) -> str:
        """The argument that holds `count` lanes from the first one."""
        kind = f"<{count} x {LLVM_TYPES[value.type]}>"
        if count == self.lanes:
            return f"{kind} {value.text}"
        function = f"@llvm.vector.extract.v{count}{value.type}.{self.suffix(value.type)}"
        arguments = [f"{self.type_text(value.type)} {value.text}", f"i64 {first}"]
        return f"{kind} {self.call(value.type, function, arguments, result=kind).text}"

    def _with_part(self, whole: Value, part: Value, first: int, count: int) -> Value:
        if count == self.lanes:
            return part
        kind = f"<{count} x {LLVM_TYPES[part.type]}>"
        function = f"@llvm.vector.insert.{self.suffix(part.type)}.v{count}{part.type}"
        vector = f"{self.type_text(part.type)} {whole.text}"
        return self.call(part.type, function, [vector, f"{kind} {part.text}", f"i64 {first}"])

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
        """Repeats `step` on each number of a table, one for all lanes, and the carried values."""
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
