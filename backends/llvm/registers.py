"""Registers of tiles and the small instructions that move values between them.

A register is a scalar or a vector of the kernel's lane count. f16 and bf16 are held as their bits
(i16), bool as i1; in memory bool is a byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from tfc.backends.llvm.writer import Writer
from tfc.ir.types import BOOL, F32, F64, DType

_REGISTER = {"f64": "double", "f32": "float", "f16": "i16", "bf16": "i16", "bool": "i1"}


def element_type(dtype: DType) -> str:
    """LLVM's type of an element in a register."""
    return _REGISTER.get(dtype.name) or f"i{dtype.bits}"


def memory_type(dtype: DType) -> str:
    """LLVM's type of an element in memory."""
    return "i8" if dtype == BOOL else element_type(dtype)


@dataclass(frozen=True)
class Register:
    """An SSA name or a constant; a vector has the kernel's lane count."""

    text: str
    dtype: DType
    vector: bool


def literal(value: float | int | bool, dtype: DType) -> str:
    """A constant of an element type, as LLVM writes it."""
    if dtype == BOOL:
        return "true" if value else "false"
    if dtype in (F32, F64):
        rounded = float(np.float32(value)) if dtype == F32 else float(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if dtype.is_float:
        bits = np.asarray(value, np.float64).astype(dtype.numpy).view(np.int16)
        return str(int(bits))
    limit = 1 << dtype.bits
    wrapped = int(value) % limit
    return str(wrapped - limit if wrapped >= limit // 2 else wrapped)


class Vectors:
    """Moves between scalars and vectors of `lanes` lanes."""

    def __init__(self, writer: Writer, lanes: int) -> None:
        self.writer = writer
        self.lanes = lanes

    # ---- types and constants

    def type_text(self, element: str, vector: bool) -> str:
        return f"<{self.lanes} x {element}>" if vector else element

    def type(self, dtype: DType, vector: bool) -> str:
        return self.type_text(element_type(dtype), vector)

    def suffix(self, element: str, vector: bool) -> str:
        """The mangled type in the name of an intrinsic."""
        short = {"float": "f32", "double": "f64"}.get(element, element)
        return f"v{self.lanes}{short}" if vector else short

    def constant(self, value: float | int | bool, dtype: DType, vector: bool) -> str:
        return self.fill(literal(value, dtype), element_type(dtype), vector)

    def fill(self, text: str, element: str, vector: bool) -> str:
        """A literal as a scalar or in all lanes."""
        return f"splat ({element} {text})" if vector else text

    def full(self, value: float | int | bool, dtype: DType) -> Register:
        return Register(literal(value, dtype), dtype, False)

    def iota(self, element: str, step: int = 1, start: int = 0) -> str:
        lanes = ", ".join(f"{element} {start + i * step}" for i in range(self.lanes))
        return f"<{lanes}>"

    def first_lanes(self, count: int) -> str:
        """A mask of the first lanes."""
        return f"<{', '.join(f'i1 {str(i < count).lower()}' for i in range(self.lanes))}>"

    # ---- moves

    def splat_text(self, text: str, element: str) -> str:
        """A scalar in all lanes."""
        if not text.startswith("%"):
            return self.fill(text, element, True)
        kind = self.type_text(element, True)
        first = self.writer.pure(f"insertelement {kind} poison, {element} {text}, i64 0")
        mask = f"<{self.lanes} x i32> zeroinitializer"
        return self.writer.pure(f"shufflevector {kind} {first}, {kind} poison, {mask}")

    def splat(self, register: Register) -> str:
        """The text of a register as a vector."""
        if register.vector:
            return register.text
        return self.splat_text(register.text, element_type(register.dtype))

    def extract(self, register: Register, lane: int) -> Register:
        """One lane of a vector as a scalar."""
        kind = self.type(register.dtype, True)
        text = self.writer.pure(f"extractelement {kind} {register.text}, i64 {lane}")
        return Register(text, register.dtype, False)

    def gather(self, scalars: list[str], element: str) -> str:
        """A vector of scalars; lanes beyond them are zero."""
        kind = self.type_text(element, True)
        text = "zeroinitializer"
        for i, scalar in enumerate(scalars):
            text = self.writer.value(f"insertelement {kind} {text}, {element} {scalar}, i64 {i}")
        return text

    def widened(self, text: str, element: str, count: int) -> str:
        """A vector of `count` lanes as one of all lanes; the others are zero."""
        if count == self.lanes:
            return text
        kind = f"<{count} x {element}>"
        lanes = ", ".join(f"i32 {min(i, count)}" for i in range(self.lanes))
        return self.writer.pure(
            f"shufflevector {kind} {text}, {kind} zeroinitializer, <{self.lanes} x i32> <{lanes}>"
        )

    def narrowed(self, text: str, element: str, count: int) -> str:
        """The first lanes of a vector; of one lane a scalar."""
        if count == self.lanes:
            return text
        kind = self.type_text(element, True)
        if count == 1:
            return self.writer.pure(f"extractelement {kind} {text}, i64 0")
        lanes = ", ".join(f"i32 {i}" for i in range(count))
        return self.writer.pure(
            f"shufflevector {kind} {text}, {kind} poison, <{count} x i32> <{lanes}>"
        )

    def joined(self, texts: list[str], element: str) -> str:
        """Vectors one after another as one vector; a power of two of them."""
        size = self.lanes
        while len(texts) > 1:
            kind = f"<{size} x {element}>"
            lanes = ", ".join(f"i32 {i}" for i in range(2 * size))
            texts = [
                self.writer.pure(
                    f"shufflevector {kind} {a}, {kind} {b}, <{2 * size} x i32> <{lanes}>"
                )
                for a, b in zip(texts[::2], texts[1::2], strict=True)
            ]
            size *= 2
        return texts[0]

    def parted(self, text: str, element: str, count: int) -> list[str]:
        """The vectors of which a longer one consists."""
        kind = f"<{count * self.lanes} x {element}>"
        parts: list[str] = []
        for first in range(0, count * self.lanes, self.lanes):
            lanes = ", ".join(f"i32 {first + i}" for i in range(self.lanes))
            parts.append(
                self.writer.pure(
                    f"shufflevector {kind} {text}, {kind} poison, <{self.lanes} x i32> <{lanes}>"
                )
            )
        return parts

    # ---- instructions

    def intrinsic(self, name: str, element: str, vector: bool, *operands: str) -> str:
        """An intrinsic whose operands and result have one type."""
        kind = self.type_text(element, vector)
        function = f"llvm.{name}.{self.suffix(element, vector)}"
        return self.writer.call(kind, function, *(f"{kind} {o}" for o in operands))

    def select(self, condition: str, kind: str, x: str, y: str, vector: bool) -> str:
        """x where the condition holds, else y; a condition that is known costs nothing."""
        if condition in ("true", "splat (i1 true)"):
            return x
        if condition in ("false", "splat (i1 false)"):
            return y
        test = self.type_text("i1", vector)
        return self.writer.pure(f"select {test} {condition}, {kind} {x}, {kind} {y}")

    def any(self, mask: str) -> str:
        """Whether a lane of a mask holds."""
        kind = self.type_text("i1", True)
        return self.writer.call("i1", f"llvm.vector.reduce.or.v{self.lanes}i1", f"{kind} {mask}")
