"""A builder of kernels: tile ops where numbers broadcast, loops, names of index variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr, normal, symbol
from tfc.ir.types import I64, BufferType, DType, TileType
from tfc.tile import ops as t

Bounds = Sequence[tuple[Dim, Dim, Dim]]
R, C = symbol(t.ROW), symbol(t.COLUMN)


class KernelBuilder(Builder):
    """Builds one kernel.

    `program(i)` are the grid variables; `r` and `c` stand for the axes of a tile.
    """

    def __init__(self, name: str, buffers: dict[str, BufferType], grid: Sequence[Dim]) -> None:
        body = Block(buffers.values(), buffers)
        extents = [(f"p{i}", normal(n)) for i, n in enumerate(grid)]
        self.kernel = Kernel(name, body, extents)
        self._loops = 0
        super().__init__(body)

    def buffer(self, name: str) -> Value:
        return next(a for a in self.kernel.body.args if a.name == name)

    def program(self, axis: int) -> Expr:
        return symbol(f"p{axis}")

    # ---- memory

    def load(
        self,
        buffer: Value,
        at: Dim,
        shape: tuple[int, int],
        where: Bounds = (),
        other: float | int | bool = 0.0,
        gather: Sequence[tuple[Value, Dim]] = (),
    ) -> Value:
        """`gather` adds index tiles times strides to the address."""
        return self.value(
            t.Load(
                buffer,
                [v for v, _ in gather],
                at=normal(at),
                where=_flat(where),
                other=other,
                strides=tuple(normal(s) for _, s in gather),
                type=TileType(buffer.buffer.dtype, *shape),
            )
        )

    def store(self, buffer: Value, at: Dim, value: Value, where: Bounds = ()) -> None:
        self.add(t.Store(buffer, value, at=normal(at), where=_flat(where)))

    # ---- values

    def full(self, shape: tuple[int, int], value: float | int | bool, dtype: DType) -> Value:
        return self.value(t.Full(value, type=TileType(dtype, *shape)))

    def index(self, value: Dim, shape: tuple[int, int]) -> Value:
        """i64 values of an expression over `r` and `c`."""
        return self.value(t.Index(normal(value), type=TileType(I64, *shape)))

    def map(self, function: str, *values: Value | float | int | bool) -> Value:
        """An elementwise function; numbers take the element type of the first tile."""
        first = next(v for v in values if isinstance(v, Value))
        tiles = [
            v if isinstance(v, Value) else self.full((1, 1), v, first.tile.dtype) for v in values
        ]
        return self.value(t.Map(tiles, function=function))

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        return self.value(t.Select(condition, x, y))

    def cast(self, x: Value, to: DType) -> Value:
        return x if x.tile.dtype == to else self.value(t.TileCast(x, to=to))

    def reduce(self, function: str, x: Value, axis: int = 1) -> Value:
        return self.value(t.Reduce(x, function=function, axis=axis))

    def dot(self, a: Value, b: Value, accumulator: Value | None = None) -> Value:
        return self.value(t.Dot(a, b, accumulator))

    def transpose(self, x: Value) -> Value:
        return self.value(t.Transpose(x))

    def stage(self, x: Value) -> Value:
        return self.value(t.Stage(x))

    def wrap_index(self, x: Value, size: Dim, where: Bounds = (), node: str = "") -> Value:
        """`node` names the user's node in the error of an index out of range."""
        made = t.WrapIndex(x, size=normal(size), where=_flat(where), node=node)
        return self.value(made)

    # ---- control

    def loop(
        self,
        start: Dim,
        stop: Dim,
        step: int,
        inits: Sequence[Value],
        body: Callable[..., Sequence[Value] | None],
        *,
        unroll: bool = False,
    ) -> list[Value]:
        """body(index, *carried) gives the next carried values. Of a single trip only it is left."""
        first, last = as_expr(start).constant, as_expr(stop).constant
        if first is not None and last is not None and first + step >= last > first:
            return list(body(as_expr(first), *inits) or ())
        name = f"i{self._loops}"
        self._loops += 1
        block = Block([v.type for v in inits])
        with self.inside(block):
            carried = list(body(symbol(name), *block.args) or ())
            self.add(t.TileYield(carried))
        loop = t.For(
            list(inits),
            index=name,
            start=normal(start),
            stop=normal(stop),
            step=step,
            unroll=unroll,
            do=block,
        )
        return list(self.add(loop).results)


def _flat(where: Bounds) -> tuple[Dim, ...]:
    return tuple(normal(x) for triple in where for x in triple)
