"""Conversions of element types in registers, as the graph op `cast` defines them.

f16 and bf16 are bits in registers. Where the target has no instructions, and for bf16 everywhere
(the instruction flushes denormals), integer arithmetic rounds to nearest even; a NaN stays one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfc.backends.llvm.registers import Register, Vectors, element_type, literal
from tfc.ir.types import BF16, BOOL, F16, F32, F64, I16, I32, I64, DType

if TYPE_CHECKING:
    from tfc.backends.llvm.writer import Writer


@dataclass(frozen=True)
class Converter:
    """Converts registers for a target; `half_instructions`: it converts f16 to f32 and back."""

    vectors: Vectors
    half_instructions: bool

    @property
    def writer(self) -> Writer:
        return self.vectors.writer

    def convert(self, r: Register, to: DType) -> Register:
        """A register as another element type."""
        if r.dtype == to:
            return r
        if to == BOOL:
            return self._truth(r)
        if r.dtype == BOOL:
            one, zero = literal(1, to), literal(0, to)
            return self._choose(r, one, zero, to)
        if r.dtype.is_float:
            return self._from_float(r, to)
        if to.is_float:
            return self._from_integer(r, to)
        return self._between_integers(r, to)

    # ---- small instructions

    def _do(self, text: str, to: DType, vector: bool) -> Register:
        return Register(self.writer.pure(text), to, vector)

    def _instruction(self, name: str, r: Register, to: DType) -> Register:
        source = self.vectors.type(r.dtype, r.vector)
        return self._do(f"{name} {source} {r.text} to {self._type(to, r)}", to, r.vector)

    def _type(self, dtype: DType, like: Register) -> str:
        return self.vectors.type(dtype, like.vector)

    def _constant(self, value: float | int, like: Register) -> str:
        return self.vectors.constant(value, like.dtype, like.vector)

    def _binary(self, name: str, x: Register, y: Register | float | int) -> Register:
        text = y.text if isinstance(y, Register) else self._constant(y, x)
        return self._do(f"{name} {self._type(x.dtype, x)} {x.text}, {text}", x.dtype, x.vector)

    def _compare(self, name: str, x: Register, y: Register | float | int) -> Register:
        text = y.text if isinstance(y, Register) else self._constant(y, x)
        return self._do(f"{name} {self._type(x.dtype, x)} {x.text}, {text}", BOOL, x.vector)

    def _select(self, c: Register, x: Register, y: Register) -> Register:
        kind = self._type(x.dtype, x)
        return Register(
            self.vectors.select(c.text, kind, x.text, y.text, x.vector), x.dtype, x.vector
        )

    def _choose(self, c: Register, x: str, y: str, dtype: DType) -> Register:
        element = element_type(dtype)
        chosen = [self.vectors.fill(t, element, c.vector) for t in (x, y)]
        kind = self.vectors.type(dtype, c.vector)
        return Register(
            self.vectors.select(c.text, kind, chosen[0], chosen[1], c.vector), dtype, c.vector
        )

    def _bits(self, r: Register) -> Register:
        """The encoding of a float."""
        return self._instruction("bitcast", r, I32 if r.dtype == F32 else I64)

    def _like(self, value: int, like: Register) -> Register:
        return Register(self._constant(value, like), like.dtype, like.vector)

    # ---- the kinds of conversion

    def _truth(self, r: Register) -> Register:
        if r.dtype in (F16, BF16):
            return self._compare("icmp ne", self._binary("and", r, 0x7FFF), 0)
        return self._compare("fcmp une" if r.dtype.is_float else "icmp ne", r, 0)

    def _between_integers(self, r: Register, to: DType) -> Register:
        if to.bits == r.dtype.bits:
            return Register(r.text, to, r.vector)
        if to.bits < r.dtype.bits:
            return self._instruction("trunc", r, to)
        return self._instruction("sext" if r.dtype.kind == "int" else "zext", r, to)

    def _from_integer(self, r: Register, to: DType) -> Register:
        signed = r.dtype.kind == "int"
        if to.bits == 16:
            return self._from_float(self._exact_enough(r), to)
        return self._instruction("sitofp" if signed else "uitofp", r, to)

    def _exact_enough(self, r: Register) -> Register:
        """An integer as a float from which rounding again gives the right 16-bit float."""
        signed = r.dtype.kind == "int"
        name = "sitofp" if signed else "uitofp"
        if r.dtype.bits <= 16:
            return self._instruction(name, r, F32)
        if r.dtype.bits == 64:
            r = self._odd_integer(r, signed)
        return self._instruction(name, r, F64)

    def _odd_integer(self, r: Register, signed: bool) -> Register:
        """A huge 64-bit integer whose lost bits are collected in the last one that stays."""
        size = r
        if signed:
            kind = self._type(r.dtype, r)
            name = f"llvm.abs.{self.vectors.suffix('i64', r.vector)}"
            text = self.writer.call(kind, name, f"{kind} {r.text}", "i1 false")
            size = Register(text, r.dtype, r.vector)
        huge = self._compare("icmp ugt", size, 1 << 53)
        lost = self._binary("and", r, 0x7FF)
        sticky = self._choose(self._compare("icmp ne", lost, 0), "2048", "0", r.dtype)
        kept = self._binary("or", self._binary("and", r, ~0x7FF), sticky)
        return self._select(huge, kept, r)

    def _from_float(self, r: Register, to: DType) -> Register:
        if r.dtype.bits == 16:
            return self.convert(self._widen(r), to)
        if to.is_integer:
            return self._saturate(r, to)
        if to.bits == 16:
            single = self._round_to_odd(r) if r.dtype == F64 else r
            return self._narrow_half(single) if to == F16 else self._narrow_brain(single)
        return self._instruction("fpext" if to == F64 else "fptrunc", r, to)

    def _saturate(self, r: Register, to: DType) -> Register:
        """Toward zero, out of range to the limits, NaN to 0."""
        sign = "si" if to.kind == "int" else "ui"
        target = self.vectors.suffix(element_type(to), r.vector)
        source = self.vectors.suffix(element_type(r.dtype), r.vector)
        function = f"llvm.fpto{sign}.sat.{target}.{source}"
        argument = f"{self._type(r.dtype, r)} {r.text}"
        return Register(self.writer.call(self._type(to, r), function, argument), to, r.vector)

    # ---- 16-bit floats

    def _widen(self, r: Register) -> Register:
        if r.dtype == BF16:
            bits = self._instruction("zext", Register(r.text, I16, r.vector), I32)
            return self._instruction("bitcast", self._binary("shl", bits, 16), F32)
        if self.half_instructions:
            return self._half_text(r, "fpext", "half", "float", F32)
        wide = self._instruction("zext", Register(r.text, I16, r.vector), I32)
        sign = self._binary("shl", self._binary("and", wide, 0x8000), 16)
        magnitude = self._binary("shl", self._binary("and", wide, 0x7FFF), 13)
        number = self._instruction("bitcast", magnitude, F32)
        scaled = self._bits(self._binary("fmul", number, 2.0**112))
        special = self._binary("or", magnitude, 0x7F800000)
        huge = self._compare("icmp uge", magnitude, 0x0F800000)
        bits = self._binary("or", self._select(huge, special, scaled), sign)
        return self._instruction("bitcast", bits, F32)

    def _half_text(self, r: Register, name: str, source: str, target: str, to: DType) -> Register:
        """A conversion by instruction: f16 exists as LLVM's half only inside of it."""
        from_kind = self.vectors.type_text(source, r.vector)
        to_kind = self.vectors.type_text(target, r.vector)
        text = r.text
        if source == "half":
            text = self.writer.pure(f"bitcast {self._type(r.dtype, r)} {text} to {from_kind}")
        text = self.writer.pure(f"{name} {from_kind} {text} to {to_kind}")
        if target == "half":
            text = self.writer.pure(f"bitcast {to_kind} {text} to {self._type(to, r)}")
        return Register(text, to, r.vector)

    def _round_to_odd(self, r: Register) -> Register:
        """f64 as f32, toward zero, with the last bit set where it is inexact."""
        single = self._instruction("fptrunc", r, F32)
        back = self._instruction("fpext", single, F64)
        bits = self._bits(single)
        inexact = self._compare("fcmp one", back, r)
        larger = self._compare("fcmp ogt", self._absolute(back), self._absolute(r))
        lower = self._binary("sub", bits, 1)
        toward_zero = self._select(larger, lower, bits)
        odd = self._binary("or", toward_zero, 1)
        return self._instruction("bitcast", self._select(inexact, odd, bits), F32)

    def _absolute(self, r: Register) -> Register:
        text = self.vectors.intrinsic("fabs", element_type(r.dtype), r.vector, r.text)
        return Register(text, r.dtype, r.vector)

    def _to_16(self, bits: Register, to: DType) -> Register:
        narrow = self._instruction("trunc", bits, I16)
        return Register(narrow.text, to, bits.vector)

    def _narrow_brain(self, r: Register) -> Register:
        bits = self._bits(r)
        last = self._binary("and", self._binary("lshr", bits, 16), 1)
        rounded = self._binary("add", self._binary("add", bits, 0x7FFF), last)
        quiet = self._binary("or", bits, 0x400000)
        nan = self._compare("fcmp uno", r, r)
        chosen = self._select(nan, quiet, rounded)
        return self._to_16(self._binary("lshr", chosen, 16), BF16)

    def _narrow_half(self, r: Register) -> Register:
        if self.half_instructions:
            return self._half_text(r, "fptrunc", "float", "half", F16)
        bits = self._bits(r)
        sign = self._binary("and", self._binary("lshr", bits, 16), 0x8000)
        size = self._binary("and", bits, 0x7FFFFFFF)
        # Normal numbers: round at bit 13 and move the exponent; a carry runs up to infinity.
        last = self._binary("and", self._binary("lshr", size, 13), 1)
        shifted = self._binary("add", self._binary("sub", size, 0x38000000 - 0xFFF), last)
        normal = self._binary("lshr", shifted, 13)
        # Denormal ones: adding 0.5 lets the processor round at the last bit of f16.
        number = self._instruction("bitcast", size, F32)
        tiny = self._binary("sub", self._bits(self._binary("fadd", number, 0.5)), 0x3F000000)
        small = self._compare("icmp ult", size, 0x38800000)
        result = self._select(small, tiny, normal)
        huge = self._compare("icmp uge", size, 0x47800000)
        nan = self._compare("icmp ugt", size, 0x7F800000)
        payload = self._binary(
            "or", self._binary("and", self._binary("lshr", size, 13), 0x1FF), 0x7E00
        )
        limit = self._select(nan, payload, self._like(0x7C00, bits))
        chosen = self._binary("or", self._select(huge, limit, result), sign)
        return self._to_16(chosen, F16)
