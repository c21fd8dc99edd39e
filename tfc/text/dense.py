"""Constants in the text: `dense<0.5>`, `dense<[[1, 2], [3, 4]]>`, `dense<hex"0000803f">`.

One number fills the whole tensor. Long data and what no decimal gives exactly stand as the bytes in
memory, row by row, little-endian. A NaN other than the usual one shows its bits in the element
type: `nan(0x7fc00001)`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tfc.ir.types import DType, TensorType, dtype_of
from tfc.text.numbers import nan_bits, read_number
from tfc.text.source import Source

if TYPE_CHECKING:
    import numpy as np

LONGEST_LIST = 64  # elements that are written one by one
MAX_BYTES = 16 << 20  # of a constant that stands in the text
MAX_DEPTH = 26
_HEX = re.compile(r'\s*hex"([0-9a-fA-F]*)"\s*')
_MARK = re.compile(r"\s*([\[\],]|[^\[\],\s]+)\s*")


# ---- reading


def read_dense(source: Source, offset: int, text: str, type: TensorType) -> np.ndarray:
    """The array of a type that the inside of `dense<...>` at an offset describes."""
    shape = tuple(d for d in type.shape if isinstance(d, int))
    if len(shape) != type.rank:
        raise source.error(offset, f"a constant needs a static shape, not {type}")
    size, extent = 1, 1
    for n in shape:
        size, extent = size * n, extent * max(n, 1)
    if extent * type.dtype.bytes > MAX_BYTES:
        hint = "large constants belong into the safetensors file that the module names"
        raise source.error(offset, f"the constant has more than {MAX_BYTES >> 20} MiB", hint)
    match = _HEX.fullmatch(text)
    if match is not None:
        return _from_bytes(source, offset, match[1], type.dtype, size).reshape(shape)
    return _from_items(source, offset, text, type, shape, size)


def _from_bytes(source: Source, offset: int, digits: str, dtype: DType, size: int) -> np.ndarray:
    import numpy as np

    wanted = 2 * size * dtype.bytes
    if len(digits) != wanted:
        raise source.error(offset, f"{len(digits)} hex digits where the type needs {wanted}")
    data = bytes.fromhex(digits)
    if dtype.is_bool and data.strip(b"\x00\x01"):
        raise source.error(offset, "a bool is the byte 00 or 01")
    return np.frombuffer(data, dtype.numpy)


def _from_items(
    source: Source, offset: int, text: str, type: TensorType, shape: tuple[int, ...], size: int
) -> np.ndarray:
    import numpy as np

    reader = _ListReader(source, offset, text)
    found = reader.whole()
    values = np.empty(len(reader.items), type.dtype.numpy)
    for index, (place, item) in enumerate(reader.items):
        try:
            _set_element(values, index, item, type.dtype)
        except ValueError as error:
            raise source.error(offset + place, str(error)) from None
    if found == () and type.rank:
        return np.full(shape, values[0], values.dtype) if size else np.empty(shape, values.dtype)
    if found != shape and (size or len(values)):
        shown = "x".join(map(str, found)) or "of a scalar"
        raise source.error(offset, f"the constant has the shape {shown}, its type is {type}")
    return values.reshape(shape)


def _set_element(values: np.ndarray, index: int, text: str, dtype: DType) -> None:
    """Reads one element; ValueError says what is wrong."""
    import numpy as np

    bits = nan_bits(text)
    if bits is not None and dtype.is_float:
        pattern = values.view(f"u{dtype.bytes}")
        if bits < 1 << dtype.bits:
            pattern[index] = bits
        if bits >= 1 << dtype.bits or values[index] == values[index]:
            raise ValueError(f"{text} is no NaN of {dtype}")
        return
    number = read_number(text)
    if number is None or isinstance(number, bool) != dtype.is_bool:
        raise ValueError(f"{text!r} is no element of {dtype}")
    if dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        if isinstance(number, float) or not limits.min <= number <= limits.max:
            raise ValueError(f"{text} is no {dtype}")
    with np.errstate(all="ignore"):
        values[index] = number
        overflows = dtype.is_float and np.isinf(values[index]) and not np.isinf(number)
    if overflows:
        raise ValueError(f"{text} is out of the range of {dtype}")


class _ListReader:
    """Reads nested lists of equal lengths; `items` are the elements in order, with their places."""

    def __init__(self, source: Source, offset: int, text: str) -> None:
        self.source = source
        self.offset = offset
        self.text = text
        self.items: list[tuple[int, str]] = []
        self.end = 0
        self.place = 0
        self.mark = ""
        self.advance()

    def advance(self) -> None:
        match = _MARK.match(self.text, self.end)
        self.mark = match[1] if match else ""
        self.place = match.start(1) if match else len(self.text)
        self.end = match.end() if match else len(self.text)

    def error(self, message: str) -> Exception:
        return self.source.error(self.offset + self.place, message)

    def whole(self) -> tuple[int, ...]:
        """The shape."""
        shape = self.value(0)
        if self.mark:
            raise self.error(f"the constant is over before {self.mark!r}")
        return shape

    def value(self, depth: int) -> tuple[int, ...]:
        if self.mark in ("", ",", "]"):
            raise self.error("expected a number or a list")
        if self.mark != "[":
            self.items.append((self.place, self.mark))
            self.advance()
            return ()
        if depth == MAX_DEPTH:
            raise self.error(f"the lists nest deeper than {MAX_DEPTH}")
        self.advance()
        return self.list(depth)

    def list(self, depth: int) -> tuple[int, ...]:
        """The shape of a list whose bracket has been read."""
        count = 0
        inner: tuple[int, ...] = ()
        while self.mark != "]":
            shape = self.value(depth + 1)
            if count and shape != inner:
                raise self.error("the lists have different lengths")
            inner = shape
            count += 1
            if self.mark not in (",", "]"):
                raise self.error("expected `,` or `]`")
            if self.mark == ",":
                self.advance()
        self.advance()
        return (count, *inner)


# ---- printing


def dense_text(array: np.ndarray) -> str:
    """What stands inside `dense<...>`."""
    flat = array.reshape(-1)
    dtype = dtype_of(array.dtype)
    if not flat.size:
        return "[]"
    raw = flat.view(f"u{dtype.bytes}")
    if bool((raw == raw[0]).all()):
        return _element_text(flat, 0, dtype)
    if flat.size > LONGEST_LIST:
        return f'hex"{array.tobytes().hex()}"'
    texts = [_element_text(flat, i, dtype) for i in range(flat.size)]
    return _nest(texts, array.shape)


def _element_text(flat: np.ndarray, index: int, dtype: DType) -> str:
    """An element; a float as the shortest decimal that reads back to its bits."""
    value: Any = flat[index]
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    if value != value:
        bits = int(flat.view(f"u{dtype.bytes}")[index])
        return "nan" if bits == _usual_nan(dtype) else f"nan(0x{bits:0{dtype.bits // 4}x})"
    short = repr(float(str(value)))
    exact = repr(float(value))
    return short if dtype.numpy.type(float(short)) == value else exact


def _usual_nan(dtype: DType) -> int:
    import numpy as np

    return int(np.array([np.nan], dtype.numpy).view(f"u{dtype.bytes}")[0])


def _nest(texts: list[str], shape: tuple[int, ...]) -> str:
    for n in reversed(shape):
        texts = [f"[{', '.join(texts[i : i + n])}]" for i in range(0, len(texts), n)]
    return texts[0]
