"""The tile ops: what the body of a kernel is made of.

A tile is a rank-2 value of static logical shape (rows, cols); a backend pads it as it likes. Index
expressions are attributes: polynomials over dimensions (capitals), grid variables (`p0`, ...), loop
variables (`i0`, ...) and the two axis variables of an access, `r` (row) and `c` (column) of the
tile. Bounds are triples (lo, e, hi) laid end to end in `where`: an element counts if lo <= e < hi
for each.

Always holds: values are SSA; buffers do not alias, and outputs are not read, except one whose mode
is "inout", of which each program touches its own elements only; every point of the grid is
independent of the others. Loads, maps and transposes are lazy: a backend may compute them where
they are used, or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tfc.ir.core import (
    Block,
    Effect,
    Op,
    Value,
    attribute,
    operand,
    optional,
    region,
    result,
    result_type,
    variadic,
)
from tfc.ir.expr import Dim
from tfc.ir.types import BOOL, I64, DType, TileType, Type
from tfc.tile.functions import FUNCTIONS

if TYPE_CHECKING:
    from typing import Any

ROW, COLUMN = "r", "c"


def broadcast(op: Op, values: list[Value]) -> tuple[int, int]:
    """The shape that tiles broadcast to: an extent of 1 fits any."""
    rows = max(v.tile.rows for v in values)
    cols = max(v.tile.cols for v in values)
    for v in values:
        fits = v.tile.rows in (1, rows) and v.tile.cols in (1, cols)
        op.require(fits, "T1", f"a tile of {v.tile} does not broadcast to {rows}x{cols}")
    return rows, cols


class TileOp(Op):
    level: ClassVar[str] = "tile"
    own_symbols: ClassVar[tuple[str, ...]] = (ROW, COLUMN)


class Load(TileOp, name="load"):
    """Reads a tile of a buffer: element (r, c) is buffer[at(r, c)], or `other` out of bounds.

    With index tiles (i64, broadcast to the shape), `strides[k] * index_k[r, c]` is added to `at`.
    Outputs cannot be read.
    Example: `%x = load(%a) {at = (p0*128+c), where = [0, (p0), (R)]} : tile<1x128xf32>`.
    """

    buffer: Value = operand()
    indices: list[Value] = variadic()
    at: Dim = attribute("dim")
    where: tuple[Dim, ...] = attribute("dims", ())
    other: float = attribute("any", 0.0)
    strides: tuple[Dim, ...] = attribute("dims", ())
    type: TileType = result_type()
    output: Value = result()

    def verify(self) -> None:
        self.require(len(self.where) % 3 == 0, "T2", "`where` holds triples (lo, e, hi)")
        self.require(len(self.strides) == len(self.indices), "T3", "one stride for each index tile")
        self.require(
            self.output.tile.dtype == self.buffer.buffer.dtype, "T4", "element types differ"
        )
        mode = self.buffer.buffer.mode
        self.require(mode != "out", "T16", f"an output is read: {self.buffer.name}")


class Store(TileOp, name="store"):
    """Writes the elements of a tile that are in bounds.

    A value of extent 1 broadcasts to `rows` and `cols`.
    """

    effects: ClassVar[Effect] = Effect.WRITE
    buffer: Value = operand()
    value: Value = operand()
    at: Dim = attribute("dim")
    where: tuple[Dim, ...] = attribute("dims", ())

    def infer(self) -> list[Type]:
        self.require(len(self.where) % 3 == 0, "T2", "`where` holds triples (lo, e, hi)")
        same = self.value.tile.dtype == self.buffer.buffer.dtype
        self.require(same, "T4", f"a tile of {self.value.tile.dtype} into {self.buffer.buffer}")
        mode = self.buffer.buffer.mode
        self.require(mode != "in", "T17", f"an input is written: {self.buffer.name}")
        return []


class Full(TileOp, name="tile_full"):
    """A tile of one value: a number of the element type."""

    value: float | int | bool = attribute("any")
    type: TileType = result_type()
    output: Value = result()


class Index(TileOp, name="index"):
    """A tile of i64 whose element (r, c) is the value of an expression."""

    value: Dim = attribute("dim")
    type: TileType = result_type()
    output: Value = result()

    def verify(self) -> None:
        self.require(self.output.tile.dtype == I64, "T5", "index gives i64")


class InBounds(TileOp, name="in_bounds"):
    """A bool tile: whether lo <= e < hi holds for each triple of `where`.

    It is a bound like those of accesses, so that a backend drops it where it is proved.
    """

    where: tuple[Dim, ...] = attribute("dims", ())
    type: TileType = result_type()
    output: Value = result()

    def verify(self) -> None:
        self.require(len(self.where) % 3 == 0, "T2", "`where` holds triples (lo, e, hi)")
        self.require(self.output.tile.dtype == BOOL, "T5", "in_bounds gives bool")


class Map(TileOp, name="map"):
    """An elementwise function of `tfc/tile/functions.py`.

    Operands broadcast and have one element type.
    """

    operand_values: list[Value] = variadic()
    function: str = attribute("str")
    output: Value = result()

    def infer(self) -> list[Type]:
        values = self.operand_values
        self.require(self.function in FUNCTIONS, "T6", f"no function is named {self.function!r}")
        f = FUNCTIONS[self.function]
        self.require(len(values) == f.arity, "T7", f"{self.function} takes {f.arity} operands")
        dtype = values[0].tile.dtype
        self.require(all(v.tile.dtype == dtype for v in values), "T8", "element types differ")
        self.require(f.accepts(dtype), "T9", f"{self.function} is not defined on {dtype}")
        return [TileType(f.result_type(dtype), *broadcast(self, values))]


class Select(TileOp, name="select"):
    """x where the condition holds, else y."""

    condition: Value = operand()
    x: Value = operand()
    y: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        self.require(self.condition.tile.dtype == BOOL, "T10", "the condition must be bool")
        self.require(self.x.tile.dtype == self.y.tile.dtype, "T8", "element types differ")
        return [TileType(self.x.tile.dtype, *broadcast(self, [self.condition, self.x, self.y]))]


class TileCast(TileOp, name="tile_cast"):
    """Converts the element type, as the graph op `cast` does."""

    x: Value = operand()
    to: DType = attribute("dtype")
    output: Value = result()

    def infer(self) -> list[Type]:
        return [TileType(self.to, self.x.tile.rows, self.x.tile.cols)]


class Reduce(TileOp, name="reduce"):
    """Reduces the columns (axis 1) or rows (axis 0) of a tile to extent 1: sum, prod, max or min.

    max and min give NaN if any element is NaN. f32 sums may be reassociated.
    """

    x: Value = operand()
    function: str = attribute("str")
    axis: int = attribute("int", 1)
    output: Value = result()

    def infer(self) -> list[Type]:
        known = self.function in ("sum", "prod", "max", "min")
        self.require(known, "T11", f"no reduction is named {self.function!r}")
        t = self.x.tile
        return [TileType(t.dtype, t.rows, 1) if self.axis == 1 else TileType(t.dtype, 1, t.cols)]


class Dot(TileOp, name="dot"):
    """a (MxK) times b (KxN) plus the accumulator, in the accumulator's type (default: that of a).

    Products of f16, bf16 and 8-bit integers accumulate in an f32 or i32 accumulator, which must be
    given.
    """

    a: Value = operand()
    b: Value = operand()
    accumulator: Value | None = optional()
    output: Value = result()

    def infer(self) -> list[Type]:
        a, b = self.a.tile, self.b.tile
        self.require(a.cols == b.rows, "T12", f"the inner extents differ: {a} and {b}")
        acc = self.accumulator.tile if self.accumulator else TileType(a.dtype, a.rows, b.cols)
        self.require(acc.shape == (a.rows, b.cols), "T13", f"the accumulator is {acc}")
        return [acc]


class Transpose(TileOp, name="tile_transpose"):
    """Rows become columns: a view."""

    x: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        return [TileType(self.x.tile.dtype, self.x.tile.cols, self.x.tile.rows)]


class Stage(TileOp, name="stage"):
    """The same tile, computed now and kept in scratch memory of the thread; a no-op on a GPU."""

    x: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        return [self.x.tile]


class WrapIndex(TileOp, name="wrap_index"):
    """Counts negative indices from the end of an axis of `size`; out of range is a run-time error.

    After an error the value is 0, so that no access leaves its buffer. Elements out of `where` are
    not checked and give 0.
    """

    effects: ClassVar[Effect] = Effect.WRITE
    x: Value = operand()
    size: Dim = attribute("dim")
    where: tuple[Dim, ...] = attribute("dims", ())
    node: str = attribute("str", "")
    output: Value = result()

    def infer(self) -> list[Type]:
        self.require(self.x.tile.dtype == I64, "T5", "wrap_index takes i64")
        return [self.x.tile]


class For(TileOp, name="for"):
    """A counted loop with carried tiles: `index` runs from `start` below `stop` by `step` > 0.

    `%s = for(%z) {index = "i0", start = 0, stop = (K), step = 8} : tile<8x16xf32>
    do(%a: tile<8x16xf32>) { ... next(%b) }`. Carried tiles that fit the registers stay there;
    larger ones live in scratch. `unroll` asks for straight code.
    """

    inits: list[Value] = variadic()
    index: str = attribute("str")
    start: Dim = attribute("dim", 0)
    stop: Dim = attribute("dim")
    step: int = attribute("int", 1)
    unroll: bool = attribute("bool", False)
    do: Block = region()

    def binds(self) -> list[str]:
        return [self.index]

    def infer(self) -> list[Type]:
        return [v.type for v in self.inits]

    def verify(self) -> None:
        self.require(self.step > 0, "T14", "the step must be positive")
        yields = [v.type for v in self.do.terminator.inputs]
        self.require(
            yields == [v.type for v in self.inits], "T15", "yielded types differ from carried"
        )


class TileYield(TileOp, name="next"):
    """Ends the body of a loop with the next values of the carried tiles."""

    terminator: ClassVar[bool] = True
    values: list[Value] = variadic()

    def infer(self) -> list[Type]:
        return []


def bounds(where: tuple[Dim, ...]) -> list[tuple[Dim, Dim, Dim]]:
    """The triples (lo, e, hi) of a `where`."""
    return [(where[i], where[i + 1], where[i + 2]) for i in range(0, len(where), 3)]


def numpy_other(load: Load) -> Any:
    """The value of elements out of bounds, in the element type."""
    return load.output.tile.dtype.numpy.type(load.other)
