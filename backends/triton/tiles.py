"""Values as they stand in the text of a kernel, and the lines that make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfc.backends.triton import functions as f
from tfc.backends.triton.expressions import Expressions
from tfc.backends.triton.extents import Extents
from tfc.ir.core import Kernel, Value
from tfc.tile import ops as t

Shape = tuple[int, int]
SCALAR: Shape = (0, 0)


@dataclass(frozen=True)
class Tile:
    """A value as it stands in the text.

    `shape`: the extents in the text, 1 where the value does not vary; SCALAR for a number. `value`
    is that of a literal. `zero`: whether the padding along each axis is known to hold zeros.
    """

    text: str
    shape: Shape = SCALAR
    value: float | int | bool | None = None
    zero: tuple[bool, bool] = (False, False)


class Writer:
    """Writes the lines of one kernel; `tiles` are the values that it has written."""

    def __init__(self, kernel: Kernel, wide: bool) -> None:
        self.kernel, self.wide = kernel, wide
        self.lines: list[str] = []
        self.depth = 1
        self.tiles: dict[Value, Tile] = {}
        self.extents = Extents(kernel)
        self.expressions = Expressions(kernel, wide)
        self._count = 0

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, text: str) -> str:
        """A new name for the value of an expression."""
        name = f"v{self._count}"
        self._count += 1
        self.write(f"{name} = {text}")
        return name

    def padded(self, value: Value) -> Shape:
        return self.extents.padded(value)

    def atom(self, value: Value, bare: bool = True) -> str:
        """A value as an operand; `bare`: a number may stand as it is."""
        tile = self.tiles[value]
        dtype = value.tile.dtype
        if tile.value is None or (bare and f.fits_literal(tile.value, dtype)):
            return tile.text
        return f"tl.full((1, 1), {tile.text}, {f.name_of(dtype)})"

    def atoms(self, values: Sequence[Value]) -> list[str]:
        """Operands that broadcast; at least one of them is more than a bare number."""
        known = [self.tiles[v].value is not None for v in values]
        first_bare = not all(known)
        return [self.atom(v, first_bare or i > 0) for i, v in enumerate(values)]

    def whole(self, value: Value) -> str:
        """A value in its full padded shape."""
        tile, shape = self.tiles[value], self.padded(value)
        if tile.shape == shape:
            return tile.text
        if tile.shape == SCALAR:
            return f"tl.full({shape}, {tile.text}, {f.name_of(value.tile.dtype)})"
        return f"tl.broadcast_to({tile.text}, {shape})"

    def common(self, values: Sequence[Value]) -> Shape:
        """The shape to which operands broadcast, as `atoms` writes them."""
        if all(self.tiles[v].value is not None for v in values):
            return (1, 1)
        shapes = [self._written(v) for v in values]
        return max(s[0] for s in shapes), max(s[1] for s in shapes)

    def _written(self, value: Value) -> Shape:
        tile = self.tiles[value]
        bare = tile.value is None or f.fits_literal(tile.value, value.tile.dtype)
        return tile.shape if bare else (1, 1)

    def masked(self, value: Value, axis: int, neutral: float | int | bool) -> str:
        """A whole tile with the padding of an axis replaced."""
        logical, padded = value.tile.shape[axis], self.padded(value)[axis]
        text = self.whole(value)
        if logical == padded or (neutral == 0 and self.tiles[value].zero[axis]):
            return text
        name = self.expressions.axis((t.ROW, t.COLUMN)[axis], padded)
        dtype = value.tile.dtype
        filler = f.literal(neutral)
        if not f.fits_literal(neutral, dtype):
            filler = f"tl.full((1, 1), {filler}, {f.name_of(dtype)})"
        return f"tl.where({name} < {logical}, {text}, {filler})"


def offset(buffer: str, at: str) -> str:
    if at == "0":
        return buffer
    return f"{buffer} + {at}" if at.isalnum() else f"{buffer} + ({at})"


def shape_along(axes: frozenset[str], padded: Shape) -> Shape:
    """The shape of a tile that varies along these axes."""
    if not axes:
        return SCALAR
    return (padded[0] if t.ROW in axes else 1, padded[1] if t.COLUMN in axes else 1)


def axes_of(shape: Shape) -> frozenset[str]:
    return frozenset(a for a, n in zip((t.ROW, t.COLUMN), shape, strict=True) if n > 1)
