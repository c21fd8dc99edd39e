"""A kernel builder that knows the group of graph ops that it lowers.

A `Nest` evaluates values of the group where they are needed: `pull(value, index)` gives the tile of
a value at a logical index, which is a list of expressions over *axes* (named index variables with a
range, `y0`, `k1`). Where an axis runs in the kernel (`y1 = p0*8 + r`) is its placement; address
expressions are simplified with the ranges of the axes first, and again once the placement has been
put in, so that index maps of views, layouts and broadcasts fold away. Elementwise ops, views and
loads of operands thus fuse into any kernel without code of their own.

Always holds: f16 and bf16 are computed in f32 and rounded once at the store; a tile has extent 1
along an axis of the tile that its index does not use; an access that the placement can take out of
range is bounded.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, cast

from tfc.ir.core import Block, Op, Value
from tfc.ir.expr import ZERO, Call, Dim, Expr, as_expr, is_nonnegative, normal, simplify, symbol
from tfc.ir.types import BF16, BOOL, F16, F32, BufferType, DType, TensorType, TileType
from tfc.tile import ops as t
from tfc.tile.build import KernelBuilder

Index = list[Expr]
Bound = tuple[Expr, Expr, Expr]


class Pullable(Protocol):
    """A graph op that can be evaluated at an index inside of a kernel."""

    def pull(self, nest: Nest, index: Index, number: int) -> Value:
        """The tile of result `number` at a logical index."""
        ...


@dataclass(frozen=True)
class Place:
    """Where an axis runs: its value in the kernel, and whether it may leave its range."""

    value: Expr
    bounded: bool


class Nest(KernelBuilder):
    """Builds the kernel of one group: `group` is its body, whose last op yields the outputs."""

    def __init__(self, name: str, group: Block) -> None:
        self.group = group
        self.outputs = [v for v in group.terminator.operands if v is not None]
        buffers: dict[str, BufferType] = {}
        for i, arg in enumerate(group.args):
            kind = arg.tensor
            buffers[f"x{i}"] = BufferType(kind.dtype, _elements(kind))
        for i, value in enumerate(self.outputs):
            kind = value.tensor
            buffers[f"y{i}"] = BufferType(kind.dtype, _elements(kind), "out")
        super().__init__(name, buffers, [])
        args = self.kernel.body.args
        self._inputs = dict(zip(group.args, args, strict=False))
        self._output_buffers = args[len(group.args) :]
        self.rows, self.cols = 1, 1
        self.axes: dict[str, tuple[Expr, Expr]] = {}
        self._single: dict[str, Dim] = {}  # axes with one place only, 0
        self._joined: dict[str, tuple[list[str], Expr]] = {}  # last of a run -> the others, extent
        self.places: dict[str, Place] = {}
        self.guards: list[Bound] = []
        self._memo: list[dict[Any, Value]] = [{}]
        self._ranges: dict[str, tuple[Expr, Expr]] = {}
        self._turn = True  # whether loads whose rows are contiguous become transposed loads

    # ---- axes and their placement

    def axis(self, name: str, extent: Dim) -> Expr:
        """A new axis that counts from 0 below `extent`."""
        self.axes[name] = (ZERO, as_expr(extent) - 1)
        if extent == 1:
            self._single[name] = 0
        return symbol(name)

    def join(self, names: Sequence[str], extent: Dim) -> None:
        """Makes adjacent axes one run: whoever places the last of them places all.

        Every access must walk them as one (`find_runs`): then the run's position in the last axis,
        and 0 in the others, gives the same addresses.
        """
        if len(names) > 1:
            self._joined[names[-1]] = list(names[:-1]), as_expr(extent)

    def over_grid(self, extent: Dim) -> Expr:
        """A new grid variable, inside of those made before."""
        name = f"p{len(self.kernel.grid)}"
        self.kernel.grid.append((name, normal(extent)))
        self._ranges[name] = (ZERO, as_expr(extent) - 1)
        return symbol(name)

    def tile(self, rows: int, cols: int) -> None:
        """Sets the shape of the tiles that are pulled from here on."""
        self.rows, self.cols = rows, cols
        self._ranges |= {t.ROW: (ZERO, as_expr(rows - 1)), t.COLUMN: (ZERO, as_expr(cols - 1))}

    @contextmanager
    def placed(self, **places: Dim) -> Generator[None]:
        """Places axes for what is pulled inside; tiles made inside are forgotten after."""
        saved = self.places
        self.places = dict(saved)
        self.place(**places)
        try:
            with self.scope():
                yield
        finally:
            self.places = saved

    @contextmanager
    def placed_inside(self, **places: Dim) -> Generator[None]:
        """As `placed`, for values that are known to stay in the range of their axes."""
        saved = self.places
        self.places = saved | {n: Place(as_expr(v), False) for n, v in places.items()}
        try:
            with self.scope():
                yield
        finally:
            self.places = saved

    def place(self, **places: Dim) -> None:
        """Places axes for the rest of the kernel."""
        for name, value in places.items():
            others, _ = self._joined.get(name, ([], ZERO))
            self.places |= {other: Place(ZERO, False) for other in others}
            self.places[name] = self._place(name, as_expr(value))

    def _place(self, name: str, value: Expr) -> Place:
        low, last = self._limits(name)
        inside = is_nonnegative(last - value, self._ranges) and is_nonnegative(
            value - low, self._ranges
        )
        return Place(value, not inside)

    def _limits(self, name: str) -> tuple[Expr, Expr]:
        """The first and last position that an axis, or the run that it ends, can be placed at."""
        if name in self._joined:
            return ZERO, self._joined[name][1] - 1
        return self.axes[name]

    @contextmanager
    def ranged(self, variable: Expr, start: Dim, stop: Dim, step: int = 1) -> Generator[None]:
        """Says that a loop variable runs from `start` to `stop` by `step`; a number need not."""
        if not variable.symbols():
            yield
            return
        span = as_expr(stop) - start
        whole = span.constant is not None and span.constant % step == 0
        last = as_expr(stop) - (step if whole else 1)
        self._ranges[str(variable)] = (as_expr(start), last)
        yield
        del self._ranges[str(variable)]

    @contextmanager
    def scope(self) -> Generator[None]:
        """Tiles made inside are forgotten after: for the bodies of loops."""
        self._memo.append({})
        try:
            yield
        finally:
            self._memo.pop()

    @contextmanager
    def guarded(self, *guards: Bound) -> Generator[None]:
        """Accesses made inside are also bounded by lo <= e < hi, over axes."""
        self.guards.extend(guards)
        self._memo.append({})
        try:
            yield
        finally:
            self._memo.pop()
            del self.guards[len(self.guards) - len(guards) :]

    # ---- expressions

    def settle(self, e: Expr) -> Expr:
        """An expression over axes as one over the variables of the kernel."""
        simple = simplify(e, self.axes)
        found = {a: self.places[a].value for a in simple.symbols() if a in self.places}
        return simplify(simple.substitute(found), self._ranges) if found else simple

    def bounds(self, *used: Expr) -> list[Bound]:
        """The bounds that a read needs whose index uses these expressions."""
        symbols = {a for e in used for a in e.symbols()}
        guards = [
            (self.settle(low), self.settle(e), self.settle(high))
            for low, e, high in self.guards
            if self._concerns(e, symbols)
        ]
        return [b for b in [*self.place_bounds(*used), *guards] if not self._proved(b)]

    def _concerns(self, e: Expr, symbols: set[str]) -> bool:
        """Whether a guard over e is about an index of these symbols, as with no free axis."""
        free = set(e.substitute(self._single).symbols())
        return not free or not symbols.isdisjoint(free)

    def place_bounds(self, *used: Expr) -> list[Bound]:
        """The bounds of the axes that these expressions use, if their placement may leave them."""
        names = dict.fromkeys(a for e in used for a in e.symbols() if a in self.places)
        out: list[Bound] = []
        for name in names:
            place, (low, high) = self.places[name], self._limits(name)
            bound = (low, place.value, high + 1)
            if place.bounded and not self._proved(bound):
                out.append(bound)
        return out

    def _proved(self, bound: Bound) -> bool:
        low, e, high = bound
        return is_nonnegative(e - low, self._ranges) and is_nonnegative(high - 1 - e, self._ranges)

    def shape(self, *expressions: Expr) -> tuple[int, int]:
        """The shape of a tile whose elements depend on these (settled) expressions."""
        names = {a for e in expressions for a in e.symbols()}
        return (self.rows if t.ROW in names else 1, self.cols if t.COLUMN in names else 1)

    # ---- evaluation

    def pull(self, value: Value, index: Sequence[Expr]) -> Value:
        """The tile of a value of the group at a logical index over axes."""
        at = self._simplified(index)
        key = (value, *at)
        for memo in reversed(self._memo):
            if key in memo:
                return memo[key]
        if isinstance(value.owner, Op):
            made = cast(Pullable, value.owner).pull(self, at, value.index)
        else:
            made = self.read(value, at)
        self._memo[-1][key] = made
        return made

    def pull_in_place(self, value: Value, index: Sequence[Expr]) -> Value:
        """As `pull`, for an operand of a dot that is read a number at a time: never transposed."""
        self._turn = False
        try:
            return self.pull(value, index)
        finally:
            self._turn = True

    def zero_outside(self, tile: Value, *inside: Bound) -> Value:
        """An operand of a dot: 0 out of bounds, as loads are, also where it is a constant."""
        if _is_loaded(tile):
            return tile
        mask = self.mask(inside)
        dtype = tile.tile.dtype
        return (
            tile
            if mask is None
            else self.select(mask, tile, self.full((1, 1), zero_of(dtype), dtype))
        )

    def bind(self, value: Value, index: Sequence[Expr], tile: Value) -> None:
        """Says that a value has this tile at an index, in the current scope."""
        self._memo[-1][(value, *self._simplified(index))] = tile

    def _simplified(self, index: Sequence[Expr]) -> Index:
        return [simplify(e.substitute(self._single), self.axes) for e in index]

    def read(self, value: Value, index: Index, gather: Sequence[tuple[Value, Dim]] = ()) -> Value:
        """Loads an operand of the group; f16 and bf16 become f32."""
        kind = value.tensor
        at = self.settle(kind.address(index))
        where = self.bounds(*index)
        shape = self.shape(at, *(e for b in where for e in b))
        for tile, _ in gather:
            shape = max(shape[0], tile.tile.rows), max(shape[1], tile.tile.cols)
        buffer = self._inputs[value]
        if self._turn and not gather and _runs_along_rows(at, shape):
            return self.promote(self._load_transposed(buffer, at, shape, where))
        return self.promote(self.load(buffer, at, shape, where, zero_of(kind.dtype), gather))

    def _load_transposed(
        self, buffer: Value, at: Expr, shape: tuple[int, int], where: Sequence[Bound]
    ) -> Value:
        swap: dict[str, Dim] = {t.ROW: symbol(t.COLUMN), t.COLUMN: symbol(t.ROW)}
        swapped = [tuple(e.substitute(swap) for e in b) for b in where]
        tile = self.load(
            buffer,
            at.substitute(swap),
            (shape[1], shape[0]),
            cast("list[Bound]", swapped),
            zero_of(buffer.buffer.dtype),
        )
        return self.transpose(tile)

    def promote(self, tile: Value) -> Value:
        """f16 and bf16 tiles as f32."""
        return self.cast(tile, computed_in(tile.tile.dtype))

    def splat(self, value: float | int | bool, dtype: DType) -> Value:
        """A constant scalar of an element type, as it is computed with."""
        return self.full((1, 1), value, computed_in(dtype))

    def index_tile(self, e: Expr) -> Value:
        """i64 values of an expression over axes."""
        at = self.settle(e)
        return self.index(at, self.shape(at))

    def holds(self, bound: Bound) -> bool:
        """Whether a bound over axes is proved."""
        low, e, high = (self.settle(x) for x in bound)
        return self._proved((low, e, high))

    def mask(self, bounds: Sequence[Bound]) -> Value | None:
        """A bool tile that tells where lo <= e < hi holds for each; None where that is proved."""
        settled = [(self.settle(a), self.settle(e), self.settle(b)) for a, e, b in bounds]
        left = [b for b in settled if not self._proved(b)]
        if not left:
            return None
        flat = tuple(normal(e) for b in left for e in b)
        shape = self.shape(*(e for b in left for e in b))
        return self.value(t.InBounds(flat, type=TileType(BOOL, *shape)))

    def multiply_add(self, a: Value, b: Value, accumulator: Value) -> Value:
        """a * b + accumulator, rounded once where the target can."""
        if a.tile.dtype.is_float:
            return self.map("fma", a, b, accumulator)
        return self.map("add", self.map("mul", a, b), accumulator)

    # ---- results

    def write(self, number: int, index: Sequence[Expr]) -> None:
        """Pulls output `number` at a logical index and stores it."""
        value = self.outputs[number]
        self.write_tile(number, index, self.pull(value, index))

    def write_tile(self, number: int, index: Sequence[Expr], tile: Value) -> None:
        """Stores a tile of output `number` at a logical index; padding of blocks becomes zero."""
        kind = self.outputs[number].tensor
        at = self.settle(kind.address(list(index)))
        padding = padding_bounds(kind, index)
        mask = self.mask(padding) if padding else None
        if mask is not None:
            tile = self.select(
                mask, tile, self.full((1, 1), zero_of(tile.tile.dtype), tile.tile.dtype)
            )
        # A plain output has no place for the padding of blocks, which the guards leave out.
        where = self.place_bounds(*index) if kind.layout else self.bounds(*index)
        shape = self.shape(at)
        tile = self.spread(self.cast(tile, kind.dtype), shape)
        self.store(self._output_buffers[number], at, tile, where)

    def spread(self, tile: Value, shape: tuple[int, int]) -> Value:
        """A tile broadcast to a shape."""
        if tile.tile.shape == shape:
            return tile
        dtype = tile.tile.dtype
        yes = self.full(shape, True, BOOL)
        return self.select(yes, tile, self.full((1, 1), zero_of(dtype), dtype))

    def finish(self, hero: Value, index: Sequence[Expr], tile: Value) -> None:
        """Stores all outputs that follow from a hero's tile at an index: its epilogue.

        Elementwise ops keep the index; a view on the way moves it to where its element goes.
        """
        self.bind(hero, index, tile)
        where: dict[Value, list[Expr]] = {hero: list(index)}
        for op in self.group:
            moved = next((v for v in op.inputs if v in where), None)
            if moved is None or op.terminator:
                continue
            target = getattr(op, "target", None)
            if target is None:
                assert op.result.tensor.shape == moved.tensor.shape, f"{op.name} in an epilogue"
                where[op.result] = where[moved]
                continue
            landed = target(where[moved])
            assert landed is not None, f"{op.name} has no inverse and cannot be in an epilogue"
            where[op.result] = landed
            self.bind(op.result, landed, self.pull(moved, where[moved]))
        for number, output in enumerate(self.outputs):
            self.write(number, where[output])


def computed_in(dtype: DType) -> DType:
    """The element type in which a kernel computes on values of a type."""
    return F32 if dtype in (F16, BF16) else dtype


def physical_index(kind: TensorType, coordinates: Sequence[Expr]) -> Index:
    """The logical index of an element at coordinates of the dense array in memory."""
    if kind.layout is None:
        return list(coordinates)
    index = [ZERO] * kind.rank
    blocks = kind.layout.blocks
    for (axis, block), e in zip(kind.layout.loops, coordinates, strict=True):
        index[axis] = index[axis] + (e if block or axis not in blocks else e * blocks[axis])
    return index


def coefficient(e: Expr, name: str) -> Expr | None:
    """d e / d name where e is linear in the symbol, else None."""
    terms: dict[tuple[str, ...], int] = {}
    for monomial, factor in e.terms.items():
        inside = any(isinstance(a, Call) and name in Expr({(a,): 1}).symbols() for a in monomial)
        if inside or monomial.count(name) > 1:
            return None
        if name in monomial:
            rest = list(monomial)
            rest.remove(name)
            terms[tuple(rest)] = factor
    return Expr(terms)


def _runs_along_rows(at: Expr, shape: tuple[int, int]) -> bool:
    """Whether consecutive elements lie along the rows of the tile and not along its columns."""
    if min(shape) == 1:
        return False
    return coefficient(at, t.ROW) == 1 and coefficient(at, t.COLUMN) not in (None, 1)


def _is_loaded(tile: Value) -> bool:
    """Whether a tile is read from memory, where bounds give 0."""
    op = tile.producer
    while isinstance(op, t.TileCast | t.Transpose):
        op = op.x.producer
    return isinstance(op, t.Load)


def padding_bounds(kind: TensorType, index: Sequence[Expr]) -> list[Bound]:
    """Bounds that tell the elements of a blocked tensor from the padding of its last blocks."""
    if kind.layout is None:
        return []
    out: list[Bound] = []
    for axis, block in kind.layout.blocks.items():
        size = as_expr(kind.shape[axis])
        if (size % block).constant != 0:
            out.append((ZERO, index[axis], size))
    return out


def _elements(kind: TensorType) -> Dim:
    total: Expr = as_expr(1)
    for n in kind.physical:
        total = total * n
    return normal(total)


def zero_of(dtype: DType) -> float | int | bool:
    return 0.0 if dtype.is_float else False if dtype.is_bool else 0
