"""Reads types: `tensor<Bx(S+1)xf32, aBcd16b>`, `tile<8x16xf32>`, `buffer<(R*128)xf32, out>`."""

from __future__ import annotations

import re

from tfc.ir.errors import UnsupportedError
from tfc.ir.expr import Dim, is_dimension_symbol, symbol
from tfc.ir.types import (
    DTYPES,
    RESERVED,
    BufferType,
    DType,
    Layout,
    TensorType,
    TileType,
    Type,
)
from tfc.text.expressions import read_expression
from tfc.text.source import Source, did_you_mean

MAX_RANK = 26  # a layout names each axis by a letter
MAX_INTEGER = 2**63
MAX_TILE = 2**20
MODES = ("in", "out", "inout")
_TYPE = re.compile(r"\s*([a-z]+)<([^<>]*)>", re.ASCII)
# `complex64` is an element type, though an x stands in it.
_DIM = re.compile(r"\s*(?!complex)(?:(\d+)|([A-Za-z_][A-Za-wyz0-9_]*))x", re.ASCII)
_SUFFIX = re.compile(r"([A-Za-z0-9_]*)\s*(?:,\s*(\S*)\s*)?", re.ASCII)
_TAG = re.compile(r"(?:[A-Za-z]|[1-9][0-9]{0,5}[a-z])+", re.ASCII)


class TypeReader:
    """Reads types of one source; equal texts give the same type."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._known: dict[str, list[Type]] = {}

    def list(self, offset: int, text: str) -> list[Type]:
        """The types of a token such as `: tensor<f32>, tensor<2xf32>` at an offset."""
        known = self._known.get(text)
        if known is None:
            matches = _TYPE.finditer(text, text.index(":") + 1)
            known = [self._read(offset, m) for m in matches]
            self._known[text] = known
        return known

    def single(self, offset: int, text: str) -> Type:
        """The type of a token that must hold one."""
        types = self.list(offset, text)
        if len(types) != 1:
            raise self.source.error(offset, f"expected one type, not {len(types)}")
        return types[0]

    def at(self, offset: int, text: str, start: int) -> tuple[Type, int]:
        """The type that begins at `start` of a text, and where it ends."""
        match = _TYPE.match(text, start)
        if match is None:
            raise self.source.error(offset + start, "expected a type", "such as `tensor<2xf32>`")
        return self._read(offset, match), match.end()

    def _read(self, offset: int, match: re.Match[str]) -> Type:
        kind, body = match[1], match[2]
        place = offset + match.start(2)
        dims, end = self._dims(place, body)
        suffix = _SUFFIX.fullmatch(body, end)
        if suffix is None:
            raise self.source.error(place + end, f"cannot read {body[end:]!r} as an element type")
        dtype = read_dtype(self.source, place + end, suffix[1])
        argument, at = suffix[2], place + suffix.start(2)
        match kind:
            case "tensor":
                return self._tensor(dtype, dims, argument, at)
            case "tile" if argument is None:
                return self._tile(dtype, dims, place)
            case "buffer":
                return self._buffer(dtype, dims, argument, place)
            case "tile":
                raise self.source.error(at, "a tile has no layout")
            case _:
                hint = did_you_mean(kind, ("tensor", "tile", "buffer"), _KINDS)
                raise self.source.error(offset + match.start(1), f"no type {kind!r}", hint)

    def _dims(self, offset: int, body: str) -> tuple[list[Dim], int]:
        """The dimensions of a shape, and where the element type begins."""
        dims: list[Dim] = []
        end = 0
        while True:
            place = end
            match = _DIM.match(body, end)
            if match is not None:
                dims.append(self._dim(offset + match.start(match.lastindex or 0), match))
                end = match.end()
            elif body[end:].lstrip().startswith("("):
                dim, end = self._parenthesised(offset, body, end)
                dims.append(dim)
            else:
                return dims, end + len(body[end:]) - len(body[end:].lstrip())
            if len(dims) > MAX_RANK:
                raise self.source.error(offset + place, f"a type has at most {MAX_RANK} dimensions")

    def _dim(self, place: int, match: re.Match[str]) -> Dim:
        if match[1]:
            if len(match[1]) > 19 or int(match[1]) >= MAX_INTEGER:
                raise self.source.error(place, "the dimension does not fit 64 bits")
            return int(match[1])
        if not is_dimension_symbol(match[2]):
            hint = "a symbol of a dimension begins with a capital and holds no lower-case x"
            raise self.source.error(place, f"{match[2]!r} is no dimension", hint)
        return symbol(match[2])

    def _parenthesised(self, offset: int, body: str, start: int) -> tuple[Dim, int]:
        opening = body.index("(", start)
        end, depth = opening + 1, 1
        while depth and end < len(body):
            depth += {"(": 1, ")": -1}.get(body[end], 0)
            end += 1
        if depth or body[end : end + 1] != "x":
            hint = "an expression as a dimension is `(S+1)x`"
            raise self.source.error(offset + opening, "the dimension does not end in `)x`", hint)
        dim = read_expression(self.source, offset + opening + 1, body[opening + 1 : end - 1])
        if isinstance(dim, int) and dim < 0:
            raise self.source.error(offset + opening, f"a dimension is never negative: {dim}")
        return dim, end + 1

    def _tensor(self, dtype: DType, dims: list[Dim], tag: str | None, place: int) -> Type:
        if tag is None:
            return TensorType(dtype, tuple(dims))
        return TensorType(dtype, tuple(dims), read_layout(self.source, place, tag, len(dims)))

    def _tile(self, dtype: DType, dims: list[Dim], place: int) -> Type:
        sizes = [d for d in dims if isinstance(d, int) and 0 < d <= MAX_TILE]
        if len(dims) != 2 or len(sizes) != 2:
            raise self.source.error(
                place, "a tile has two static dimensions", "such as `tile<8x16xf32>`"
            )
        return TileType(dtype, sizes[0], sizes[1])

    def _buffer(self, dtype: DType, dims: list[Dim], mode: str | None, place: int) -> Type:
        if len(dims) != 1:
            hint = "its number of elements, such as `buffer<(R*128)xf32, out>`"
            raise self.source.error(place, f"a buffer has one dimension, not {len(dims)}", hint)
        if mode is not None and mode not in MODES:
            raise self.source.error(place, f"no mode {mode!r}", f"there are {', '.join(MODES)}")
        return BufferType(dtype, dims[0], mode or "in")


_KINDS = "there are tensor, tile and buffer"


def read_dtype(source: Source, offset: int, name: str) -> DType:
    """The element type of a name at an offset; the reserved ones are refused by name."""
    if name in DTYPES:
        return DTYPES[name]
    if name in RESERVED:
        message = f"the element type {name} is reserved, not supported yet"
        raise UnsupportedError(message, position=source.position(offset))
    known = did_you_mean(name, DTYPES, f"there are {', '.join(DTYPES)}")
    if not name:
        raise source.error(offset, "the element type is missing", known)
    raise source.error(offset, f"no element type {name!r}", known)


def read_layout(source: Source, offset: int, tag: str, rank: int | None = None) -> Layout:
    """The layout of a tag; with a rank, it must be one of that many axes."""
    if not _TAG.fullmatch(tag):
        raise source.error(offset, f"no layout is written {tag!r}", "such as `aBcd16b`")
    layout = Layout(tag)
    axes = rank if rank is not None else len({c for c in tag.lower() if c.isalpha()})
    if not layout.is_valid(axes):
        hint = "each axis once, in lower case or as a capital with one block: `aBcd16b`"
        raise source.error(offset, f"{tag!r} is no layout of {axes} axes", hint)
    return layout
