"""Types: element types, tensors with symbolic dimensions and layouts, tiles, buffers of kernels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from tfc.ir.expr import Dim, Expr, as_expr, ceildiv, normal, product

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class DType:
    """An element type; `kind` is "float", "int", "uint" or "bool", `bits` its size in memory."""

    name: str
    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        import numpy as np

        if self.name == "bf16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        prefix = {"float": "f", "int": "i", "uint": "u", "bool": "?"}[self.kind]
        return np.dtype(prefix if self.is_bool else f"{prefix}{self.bytes}")

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


F64, F32 = DType("f64", "float", 64), DType("f32", "float", 32)
F16, BF16 = DType("f16", "float", 16), DType("bf16", "float", 16)
I8, I16, I32, I64 = (DType(f"i{n}", "int", n) for n in (8, 16, 32, 64))
U8, U16, U32, U64 = (DType(f"u{n}", "uint", n) for n in (8, 16, 32, 64))
BOOL = DType("bool", "bool", 8)

DTYPES: dict[str, DType] = {
    t.name: t for t in (F64, F32, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64, BOOL)
}
FLOATS = (F64, F32, F16, BF16)
INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
RESERVED = (
    *("i4", "u4", "i2", "u2", "f4e2m1", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"),
    *("f8e8m0fnu", "complex64", "complex128", "string"),
)


# By name, since making numpy's bf16 imports ml_dtypes, which few modules need.
_BY_NUMPY_NAME = {"bfloat16": BF16, "bool": BOOL} | {
    f"{t.kind}{t.bits}": t for t in (F64, F32, F16, *INTEGERS)
}


def dtype_of(array_type: np.dtype[Any]) -> DType:
    """The element type of a numpy dtype; KeyError where tfc has none."""
    if not array_type.isnative:
        raise KeyError(array_type)
    return _BY_NUMPY_NAME[array_type.name]


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory, as a oneDNN format tag.

    Letters a, b, c, ... are the axes in the order of nesting, outermost first; a capital letter is
    the outer part of a blocked axis, and `16b` its inner part: NCHW in blocks of 16 channels is
    "aBcd16b". Blocks are padded to full with zeros.
    """

    tag: str

    def __str__(self) -> str:
        return self.tag

    @cached_property
    def loops(self) -> tuple[tuple[int, int], ...]:
        """(axis, block) a level, outermost first; block is 0 for a whole axis or the outer part."""
        levels: list[tuple[int, int]] = []
        size = ""
        for char in self.tag:
            if char.isdigit():
                size += char
            else:
                levels.append((ord(char.lower()) - ord("a"), int(size or 0)))
                size = ""
        return tuple(levels)

    @cached_property
    def blocks(self) -> dict[int, int]:
        """axis -> size of its block."""
        return {axis: block for axis, block in self.loops if block}

    def is_valid(self, rank: int) -> bool:
        outer = [axis for axis, block in self.loops if not block]
        inner = [axis for axis, block in self.loops if block]
        blocked = {ord(c.lower()) - ord("a") for c in self.tag if c.isupper()}
        return (
            sorted(outer) == list(range(rank))
            and len(set(inner)) == len(inner)
            and blocked == set(inner)
        )

    def physical(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """The dense shape in memory."""
        out: list[Dim] = []
        for axis, block in self.loops:
            if block:
                out.append(block)
            elif axis in self.blocks:
                out.append(normal(ceildiv(shape[axis], self.blocks[axis])))
            else:
                out.append(shape[axis])
        return tuple(out)

    def address(self, shape: tuple[Dim, ...], index: list[Expr]) -> Expr:
        """The offset, in elements, of the element at an index of the plain tensor."""
        total = as_expr(0)
        stride: Expr = as_expr(1)
        sizes = self.physical(shape)
        for (axis, block), size in zip(reversed(self.loops), reversed(sizes), strict=True):
            e = index[axis]
            if block:
                e = e % block
            elif axis in self.blocks:
                e = e // self.blocks[axis]
            total = total + e * stride
            stride = stride * size
        return total

    def pack(self, array: np.ndarray) -> np.ndarray:
        """The array as it lies in memory (its shape is `physical`), padded with zeros."""
        import numpy as np

        blocks = self.blocks
        padding = [(0, -n % blocks.get(a, 1)) for a, n in enumerate(array.shape)]
        if any(p for _, p in padding):
            array = np.pad(array, padding)
        split: list[int] = []
        place: dict[tuple[int, bool], int] = {}
        for axis, n in enumerate(array.shape):
            block = blocks.get(axis, 0)
            place[axis, False] = len(split)
            split.append(n // block if block else n)
            if block:
                place[axis, True] = len(split)
                split.append(block)
        order = [place[axis, bool(block)] for axis, block in self.loops]
        return np.ascontiguousarray(array.reshape(split).transpose(order))

    def unpack(self, array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """The plain array of a packed one."""
        import numpy as np

        order = sorted(
            range(len(self.loops)), key=lambda i: (self.loops[i][0], self.loops[i][1] > 0)
        )
        blocks = self.blocks
        full = [-(-n // blocks.get(a, 1)) * blocks.get(a, 1) for a, n in enumerate(shape)]
        plain = array.transpose(order).reshape(full)
        return np.ascontiguousarray(plain[tuple(slice(0, n) for n in shape)])


def shape_text(shape: tuple[Dim, ...]) -> str:
    """`2xSx(S+1)x`, with the cross that leads to the element type."""
    return "".join(f"{_dim_text(d)}x" for d in shape)


def _dim_text(dim: Dim) -> str:
    text = str(dim)
    return text if text.isalnum() or text.replace("_", "").isalnum() else f"({text})"


@dataclass(frozen=True)
class TensorType:
    """A dense tensor; `layout` None is row-major."""

    dtype: DType
    shape: tuple[Dim, ...]
    layout: Layout | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(normal(d) for d in self.shape))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Dim:
        """The number of elements of the plain tensor."""
        return product(self.shape)

    @property
    def physical(self) -> tuple[Dim, ...]:
        """The shape in memory."""
        return self.layout.physical(self.shape) if self.layout else self.shape

    @property
    def bytes(self) -> Dim:
        """The size in memory."""
        return normal(as_expr(product(self.physical)) * self.dtype.bytes)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    def address(self, index: list[Expr]) -> Expr:
        """The offset, in elements, of an index."""
        if self.layout:
            return self.layout.address(self.shape, index)
        total = as_expr(0)
        for i, size in zip(index, self.shape, strict=True):
            total = total * size + i
        return total

    def __str__(self) -> str:
        layout = f", {self.layout}" if self.layout else ""
        return f"tensor<{shape_text(self.shape)}{self.dtype}{layout}>"


@dataclass(frozen=True)
class TileType:
    """A tile of a kernel: rows times columns, logical and static; (1, 1) is a scalar."""

    dtype: DType
    rows: int
    cols: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.cols

    def __str__(self) -> str:
        return f"tile<{self.rows}x{self.cols}x{self.dtype}>"


@dataclass(frozen=True)
class BufferType:
    """An argument of a kernel: `mode` is "in", "out" or "inout"; `elements` its size in memory."""

    dtype: DType
    elements: Dim
    mode: str = "in"

    def __post_init__(self) -> None:
        object.__setattr__(self, "elements", normal(self.elements))

    def __str__(self) -> str:
        mode = "" if self.mode == "in" else f", {self.mode}"
        return f"buffer<{_dim_text(self.elements)}x{self.dtype}{mode}>"


Type: TypeAlias = TensorType | TileType | BufferType
