"""Tensors of an ONNX model: element types, and values that stay in the file until asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfc.importers.mapped_file import Span
from tfc.importers.protobuf import BYTES, FIXED32, FIXED64, VARINT, fields, numbers
from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class ElementType:
    """An ONNX element type: its name in ONNX and in numpy (or ml_dtypes), its bits in raw data, and
    the field of TensorProto that holds values which are not raw."""

    name: str
    numpy: str
    bits: int
    field: int


FLOAT_DATA, INT32_DATA, STRING_DATA, INT64_DATA, DOUBLE_DATA, UINT64_DATA = 4, 5, 6, 7, 10, 11
WIRE_OF_FIELD = {
    FLOAT_DATA: FIXED32,
    INT32_DATA: VARINT,
    STRING_DATA: BYTES,
    INT64_DATA: VARINT,
    DOUBLE_DATA: FIXED64,
    UINT64_DATA: VARINT,
}
FIELD_NAMES = {
    FLOAT_DATA: "float_data",
    INT32_DATA: "int32_data",
    STRING_DATA: "string_data",
    INT64_DATA: "int64_data",
    DOUBLE_DATA: "double_data",
    UINT64_DATA: "uint64_data",
}

FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL = range(1, 10)
FLOAT16, DOUBLE, UINT32, UINT64, COMPLEX64, COMPLEX128, BFLOAT16 = range(10, 17)

MAX_RANK = 64  # numpy holds no more
ELEMENT_TYPES: dict[int, ElementType] = {
    FLOAT: ElementType("float", "float32", 32, FLOAT_DATA),
    UINT8: ElementType("uint8", "uint8", 8, INT32_DATA),
    INT8: ElementType("int8", "int8", 8, INT32_DATA),
    UINT16: ElementType("uint16", "uint16", 16, INT32_DATA),
    INT16: ElementType("int16", "int16", 16, INT32_DATA),
    INT32: ElementType("int32", "int32", 32, INT32_DATA),
    INT64: ElementType("int64", "int64", 64, INT64_DATA),
    STRING: ElementType("string", "object", 0, STRING_DATA),
    BOOL: ElementType("bool", "bool", 8, INT32_DATA),
    FLOAT16: ElementType("float16", "float16", 16, INT32_DATA),
    DOUBLE: ElementType("double", "float64", 64, DOUBLE_DATA),
    UINT32: ElementType("uint32", "uint32", 32, UINT64_DATA),
    UINT64: ElementType("uint64", "uint64", 64, UINT64_DATA),
    COMPLEX64: ElementType("complex64", "complex64", 64, FLOAT_DATA),
    COMPLEX128: ElementType("complex128", "complex128", 128, DOUBLE_DATA),
    BFLOAT16: ElementType("bfloat16", "bfloat16", 16, INT32_DATA),
    17: ElementType("float8e4m3fn", "float8_e4m3fn", 8, INT32_DATA),
    18: ElementType("float8e4m3fnuz", "float8_e4m3fnuz", 8, INT32_DATA),
    19: ElementType("float8e5m2", "float8_e5m2", 8, INT32_DATA),
    20: ElementType("float8e5m2fnuz", "float8_e5m2fnuz", 8, INT32_DATA),
    21: ElementType("uint4", "uint4", 4, INT32_DATA),
    22: ElementType("int4", "int4", 4, INT32_DATA),
    23: ElementType("float4e2m1", "float4_e2m1fn", 4, INT32_DATA),
    24: ElementType("float8e8m0", "float8_e8m0fnu", 8, INT32_DATA),
    25: ElementType("uint2", "uint2", 2, INT32_DATA),
    26: ElementType("int2", "int2", 2, INT32_DATA),
    27: ElementType("float6e2m3", "float6_e2m3fn", 6, INT32_DATA),
    28: ElementType("float6e3m2", "float6_e3m2fn", 6, INT32_DATA),
}


def element_name(code: int) -> str:
    """The name of an element type, also of one that does not exist."""
    known = ELEMENT_TYPES.get(code)
    return known.name if known else f"element type {code}"


@dataclass(frozen=True, slots=True)
class Raw:
    """Values as they lie in memory: little-endian, sub-byte types packed from the low bits."""

    span: Span


@dataclass(frozen=True, slots=True)
class Typed:
    """Values in a field of the tensor's message, which is walked again when they are asked for."""

    message: Span
    field: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant of the model; `dims` are not negative and fit the size of the data."""

    name: str
    dtype: int
    dims: tuple[int, ...]
    data: Raw | Typed

    @property
    def element(self) -> ElementType:
        return ELEMENT_TYPES[self.dtype]

    @property
    def elements(self) -> int:
        return math.prod(self.dims)

    @property
    def raw_bytes(self) -> int:
        """The size of the values as raw data."""
        return raw_size(self.elements, self.element.bits)

    @property
    def reference(self) -> Span | None:
        """Where the values lie in a file just as numpy would hold them, else None."""
        if isinstance(self.data, Raw) and self.element.bits >= 8 and self.dtype != BOOL:
            return self.data.span
        return None  # (a bool may be stored as any byte but 0)

    def error(self, what: str) -> TfcError:
        span = self.data.span if isinstance(self.data, Raw) else self.data.message
        return TfcError(f"tensor {self.name!r}: {what}", where=span.file.location)

    def array(self) -> np.ndarray[Any, np.dtype[Any]]:
        """The values; read-only and without a copy where the file holds them as numpy would."""
        if self.dtype == STRING:
            raise self.error("strings are no numbers")
        flat = self._raw() if isinstance(self.data, Raw) else self._typed(self.data)
        if len(flat) != self.elements:
            raise self.error(f"{len(flat)} values for dimensions {list(self.dims)}")
        return flat.reshape(self.dims)

    def strings(self) -> list[bytes]:
        """The values of a tensor of strings, in row-major order."""
        if self.dtype != STRING or not isinstance(self.data, Typed):
            raise self.error(f"holds {self.element.name}, not strings")
        span = self.data.message
        found = [bytes(Span(span.file, a, b).memory) for number, _, a, b in fields(span)
                 if number == STRING_DATA]  # fmt: skip
        if len(found) != self.elements:
            raise self.error(f"{len(found)} strings for dimensions {list(self.dims)}")
        return found

    def _raw(self) -> np.ndarray[Any, np.dtype[Any]]:
        import numpy as np

        assert isinstance(self.data, Raw)
        memory = self.data.span.memory
        if self.element.bits < 8:
            return self._unpack(np.frombuffer(memory, np.uint8))
        if self.dtype == BOOL:
            return np.frombuffer(memory, np.uint8) != 0
        return np.frombuffer(memory, numpy_dtype(self.dtype))

    def _typed(self, data: Typed) -> np.ndarray[Any, np.dtype[Any]]:
        import numpy as np

        found = numbers(data.message, data.field, WIRE_OF_FIELD[data.field])
        target = numpy_dtype(self.dtype)
        if data.field in (FLOAT_DATA, DOUBLE_DATA):
            per_element = target.itemsize // found.dtype.itemsize
            if len(found) % per_element:
                raise self.error("half of a complex number is missing")
            return found.view(target)
        if data.field == INT64_DATA:
            return found.view(np.int64)
        if data.field == UINT64_DATA:
            return self._narrowed(found, target)
        found = found.astype(np.uint32).view(np.int32)  # as protocol buffers read int32
        if self.dtype == BOOL:
            return found != 0
        bits = self.element.bits
        if bits in (2, 4):  # each number is one byte of the packed form
            return self._unpack(self._narrowed(found, np.dtype(np.uint8)))
        if target.kind in "iu":
            return self._narrowed(found, target)
        if bits == 6 and (found >> 6).any():
            raise self.error(f"a value does not fit {self.element.name}")
        return self._narrowed(found, np.dtype(f"u{target.itemsize}")).view(target)

    def _narrowed(
        self, values: np.ndarray[Any, np.dtype[Any]], target: np.dtype[Any]
    ) -> np.ndarray[Any, np.dtype[Any]]:
        narrow = values.astype(target)
        # Floats' bits may come sign-extended; any other loss of bits is a damaged file.
        same = narrow == values
        if (
            not same.all()
            and not (narrow[~same].astype(f"i{target.itemsize}") == values[~same]).all()
        ):
            raise self.error(f"a value does not fit {self.element.name}")
        return narrow

    def _unpack(self, data: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[Any]]:
        """Sub-byte values from bytes, the first in the lowest bits."""
        import numpy as np

        bits = self.element.bits
        group = 3 if bits == 6 else 1  # bytes that hold whole values
        data = np.pad(data, (0, -len(data) % group)).reshape(-1, group)
        words = data.astype(np.uint32) << np.arange(0, 8 * group, 8, dtype=np.uint32)
        shifts = np.arange(0, 8 * group, bits, dtype=np.uint32)
        values = words.sum(axis=1, dtype=np.uint32)[:, None] >> shifts
        values = (values & (2**bits - 1)).astype(np.uint8).reshape(-1)[: self.elements]
        if self.element.numpy.startswith("int"):  # carry the sign up to the byte's top
            values = (values << (8 - bits)).view(np.int8) >> (8 - bits)
        return values.view(numpy_dtype(self.dtype))


def numpy_dtype(code: int) -> np.dtype[Any]:
    """numpy's dtype of an element type, from ml_dtypes where numpy has none."""
    import numpy as np

    name = ELEMENT_TYPES[code].numpy
    if hasattr(np, name):
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def raw_size(elements: int, bits: int) -> int:
    """The bytes of raw data."""
    return -(-elements * bits // 8)
