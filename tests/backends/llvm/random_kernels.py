"""Random kernels with data: the same seed gives the same kernel."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfc.ir.core import Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr, ceildiv, symbol
from tfc.ir.types import (
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    INTEGERS,
    U8,
    BufferType,
    DType,
)
from tfc.tile.build import C, KernelBuilder, R
from tfc.tile.functions import FUNCTIONS

Array = np.ndarray[Any, Any]

SHAPES = [
    *((1, 1), (3, 5), (1, 40), (8, 48), (17, 33), (64, 1), (4, 16), (1, 16), (16, 4), (2, 7)),
    *((5, 1), (33, 2), (6, 20), (20, 6), (1, 200), (31, 17)),
]
KINDS = [F32, F32, F32, F32, F64, F16, BF16, I32, I64, I8, U8, *INTEGERS, BOOL]
# Functions whose result jumps: only for operands that both sides compute alike.
JUMPY = {
    *("sign", "floor", "ceil", "round", "mod", "fmod", "is_nan", "is_infinite", "equal", "pow"),
    *("not_equal", "less", "less_equal", "greater", "greater_equal"),
}
EXACT = JUMPY - {"pow"} | {
    *("neg", "abs", "sqrt", "reciprocal", "add", "sub", "mul", "div", "maximum", "minimum"),
    *("not", "and", "or", "xor", "shift_left", "shift_right"),
}
# What grows fast makes everything after it infinite.
RARE = {"sinh", "cosh", "exp", "expm1", "pow", "tan"}


@dataclass
class RandomKernel:
    """A kernel, its buffers (outputs last, filled with something), and the values of symbols."""

    kernel: Kernel
    arrays: list[Array]
    symbols: dict[str, int]
    exact: bool
    text: str = ""


@dataclass
class Tile:
    """A tile of the kernel being made; `exact`: both sides compute it bit for bit."""

    value: Value
    exact: bool
    depth: int = 0

    @property
    def dtype(self) -> DType:
        return self.value.tile.dtype


@dataclass
class Plan:
    """What the kernel walks over: `sizes` as expressions and as numbers."""

    dims: tuple[Dim, Dim]
    numbers: tuple[int, int]
    shape: tuple[int, int]
    symbols: dict[str, int] = field(default_factory=dict)


class Generator:
    """Makes one kernel from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.inputs: list[tuple[DType, Dim, int]] = []
        self.plan = self._plan()
        self.special = self.random.random() < 0.2

    def _plan(self) -> Plan:
        shape = self.random.choice(SHAPES)
        symbols: dict[str, int] = {}
        dims: list[Dim] = []
        numbers: list[int] = []
        for name, extent in zip("MN", shape, strict=True):
            n = self.random.choice([extent, extent, 2 * extent, 2 * extent + 1, max(1, extent - 1)])
            n = 0 if self.random.random() < 0.02 else n
            numbers.append(n)
            if self.random.random() < 0.5:
                symbols[name] = n
                dims.append(symbol(name))
            else:
                dims.append(n)
        return Plan((dims[0], dims[1]), (numbers[0], numbers[1]), shape, symbols)

    # ---- the kernel

    def make(self) -> RandomKernel:
        """Builds twice: once to learn the buffers, once with them."""
        state = self.random.getstate()
        self.builder: KernelBuilder | None = None
        dtype = self.random.choice(KINDS)
        body = self.random.getstate()
        self._build({}, dtype)
        kinds = {f"x{i}": BufferType(t, n) for i, (t, n, _) in enumerate(self.inputs)}
        self._outputs(kinds)
        counts = [n for _, _, n in self.inputs]
        self.random.setstate(body)
        self.inputs = []
        tile = self._build(kinds, dtype)
        assert self.builder is not None and state is not None
        arrays = [self._data(kinds[f"x{i}"].dtype, n) for i, n in enumerate(counts)]
        arrays += [np.zeros(self.output[2], self.output[0].numpy)]
        return RandomKernel(self.builder.kernel, arrays, dict(self.plan.symbols), tile.exact)

    def _outputs(self, kinds: dict[str, BufferType]) -> None:
        kinds["y"] = BufferType(self.output[0], self.output[1], "out")

    def _build(self, kinds: dict[str, BufferType], dtype: DType) -> Tile:
        m, n = self.plan.dims
        rows, cols = self.plan.shape
        grid = [ceildiv(m, rows), ceildiv(n, cols)]
        self.builder = KernelBuilder("random", kinds or _Any(), grid)
        self.row = self.builder.program(0) * rows + R
        self.column = self.builder.program(1) * cols + C
        tile = self._tile(dtype, self.plan.shape, self.random.randint(1, 5))
        self._store(tile)
        return tile

    def _store(self, tile: Tile) -> None:
        b = self._b
        rows, cols = tile.value.tile.shape
        whole = (rows, cols) == self.plan.shape
        if whole:
            at, size, number = self._map(self.random.choice(["rows", "columns", "apart", "blocks"]))
            bounds = self._bounds(True, True)
        else:
            # One tile a program, behind one another.
            count = as_expr(b.kernel.grid[0][1]) * b.kernel.grid[1][1]
            place = b.program(0) * b.kernel.grid[1][1] + b.program(1)
            at, size = (place * rows + R) * cols + C, count * (rows * cols)
            number, bounds = size.evaluate(self.plan.symbols), []
        self.output = tile.dtype, size, number
        y = next((a for a in b.kernel.body.args if a.name == "y"), None)
        if y is None:
            y = b.kernel.body.add_arg(BufferType(tile.dtype, size, "out"), "y")
        b.store(y, at, tile.value, bounds)

    @property
    def _b(self) -> KernelBuilder:
        assert self.builder is not None
        return self.builder

    def _bounds(self, rows: bool, cols: bool) -> list[tuple[Dim, Dim, Dim]]:
        out: list[tuple[Dim, Dim, Dim]] = []
        if rows:
            out.append((0, self.row, self.plan.dims[0]))
        if cols:
            out.append((0, self.column, self.plan.dims[1]))
        return out

    def _map(self, kind: str) -> tuple[Expr, Dim, int]:
        """The address of (row, column) in a buffer, and the size of the buffer."""
        (m, n), (mm, nn) = self.plan.dims, self.plan.numbers
        row, column = self.row, self.column
        match kind:
            case "rows":
                return row * n + column, as_expr(m) * n, mm * nn
            case "columns":
                return column * m + row, as_expr(m) * n, mm * nn
            case "apart":
                return (row * n + column) * 3 + 1, as_expr(m) * n * 3 + 2, mm * nn * 3 + 2
            case "blocks":
                at = (column // 8 * m + row) * 8 + column % 8
                return at, ceildiv(n, 8) * m * 8, -(-nn // 8) * 8 * mm
            case "backwards":
                return as_expr(m) * n - 1 - (row * n + column), as_expr(m) * n, mm * nn
            case "row":
                return column, n, nn
            case "column":
                return row, m, mm
            case _:
                return as_expr(0), 1, 1

    def _buffer(self, dtype: DType, size: Dim, number: int) -> Value:
        name = f"x{len(self.inputs)}"
        self.inputs.append((dtype, size, number))
        body = self._b.kernel.body
        found = next((a for a in body.args if a.name == name), None)
        return found or body.add_arg(BufferType(dtype, size), name)

    # ---- tiles

    def _tile(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        """A tile of a type and shape."""
        narrow = dtype in (F16, BF16)
        if narrow and depth > 0:
            inner = self._tile(F32, shape, depth - 1)
            if inner.exact:
                return Tile(self._b.cast(inner.value, dtype), True)
            return self._load(dtype, shape)
        if depth <= 0:
            return self._leaf(dtype, shape)
        choices = [self._map_tile] * 5 + [self._select, self._cast, self._stage, self._reduce]
        choices += [self._turned, self._loop, self._dot, self._gather]
        if shape == self.plan.shape:
            choices += [self._window, self._contraction, self._contraction, self._online]
            choices += [self._rows_of_a_table]
        return self.random.choice(choices)(dtype, shape, depth - 1)

    def _leaf(self, dtype: DType, shape: tuple[int, int]) -> Tile:
        if self.random.random() < 0.15:
            return Tile(self._b.full((1, 1), self._number(dtype), dtype), True)
        if self.random.random() < 0.3 and dtype == I64 and shape == self.plan.shape:
            e = self.random.choice([self.row, self.column * 2 - self.row, self.column // 3])
            return Tile(self._b.index(e, shape), True)
        return self._load(dtype, shape)

    def _number(self, dtype: DType) -> float | int | bool:
        if dtype == BOOL:
            return self.random.random() < 0.5
        if dtype.is_float:
            return self.random.choice([0.5, -1.25, 3.0, 0.0, 2.0])
        return self.random.choice([0, 1, 3, 7, 100 if dtype.kind == "uint" else -5])

    def _load(self, dtype: DType, shape: tuple[int, int]) -> Tile:
        """A load of the plan's domain where the shape is its, else of a buffer of its own."""
        other = self._number(dtype)
        if shape == self.plan.shape:
            kind = self.random.choice(
                ["rows", "rows", "columns", "apart", "blocks", "backwards", "row", "column", "one"]
            )
            at, size, number = self._map(kind)
            rows, cols = kind not in ("row", "one"), kind not in ("column", "one")
            # Bounds beyond what the address needs are allowed too.
            bounds = self._bounds(rows or self.random.random() < 0.3, cols)
            buffer = self._buffer(dtype, size, number)
            if rows or cols:
                return Tile(self._b.load(buffer, at, shape, bounds, other), True)
            return Tile(self._spread(self._b.load(buffer, 0, (1, 1)), shape), True)
        rows, cols = shape
        at = R * cols + C if self.random.random() < 0.6 else C * rows + R
        size = rows * cols
        step = self.random.choice([1, 1, 2])
        buffer = self._buffer(dtype, size * step, size * step)
        bounds: list[tuple[Dim, Dim, Dim]] = []
        if self.random.random() < 0.3:
            bounds = [(self.random.randint(0, 1), C + self.random.randint(0, 2), cols)]
        return Tile(self._b.load(buffer, at * step, shape, bounds, other), True)

    def _spread(self, value: Value, shape: tuple[int, int]) -> Value:
        """A tile as one of another shape."""
        if value.tile.shape == shape:
            return value
        if all(n in (1, s) for n, s in zip(value.tile.shape, shape, strict=True)):
            yes = self._b.full(shape, True, BOOL)
            return self._b.select(yes, value, self._b.full((1, 1), 0, value.tile.dtype))
        raise AssertionError(f"{value} does not spread to {shape}")

    def _map_tile(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        names = [n for n, f in FUNCTIONS.items() if f.result == "same" and f.accepts(dtype)]
        operand = dtype
        if dtype == BOOL:
            operand = self.random.choice([F32, I32, BOOL, F64, U8, I64])
            names = [n for n, f in FUNCTIONS.items() if f.result == "bool" and f.accepts(operand)]
            if operand == BOOL:
                names += ["and", "or", "xor", "not"]
        name = self.random.choice(names)
        if name in RARE and self.random.random() < 0.7:
            name = "add" if "add" in names else name
        arity = FUNCTIONS[name].arity
        operands = [self._tile(operand, self._part(shape, i), depth) for i in range(arity)]
        exact = all(o.exact for o in operands)
        if operand.is_float and name in JUMPY and not exact:
            operands = [self._load(operand, shape) for _ in range(arity)]
            exact = True
        value = self._b.map(name, *(o.value for o in operands))
        exact = exact and (name in EXACT or not operand.is_float)
        return Tile(self._spread(value, shape), exact)

    def _part(self, shape: tuple[int, int], number: int) -> tuple[int, int]:
        """A shape that broadcasts to another; the first operand has all of it."""
        if number == 0 or self.random.random() < 0.6:
            return shape
        return self.random.choice([(shape[0], 1), (1, shape[1]), (1, 1)])

    def _select(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        c = self._tile(BOOL, self._part(shape, 1), depth)
        x, y = (self._tile(dtype, self._part(shape, i), depth) for i in (0, 1))
        value = self._b.select(c.value, x.value, y.value)
        return Tile(self._spread(value, shape), x.exact and y.exact and c.exact)

    def _cast(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        source = self.random.choice([t for t in KINDS if t != dtype])
        x = self._tile(source, shape, depth)
        if source.is_float and not dtype.is_float and not x.exact:
            x = self._load(source, shape)
        if dtype == BOOL and not x.exact:
            x = self._load(source, shape)
        return Tile(self._b.cast(x.value, dtype), x.exact)

    def _stage(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        x = self._tile(dtype, shape, depth)
        staged = self._b.stage(x.value)
        if self.random.random() < 0.5 or dtype in (F16, BF16, BOOL):
            return Tile(staged, x.exact)
        axis = self.random.randint(0, 1)
        total = self._b.reduce("max", staged, axis)
        return Tile(self._b.map("minimum", staged, total), x.exact)

    def _reduce(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        axis = self.random.randint(0, 1)
        extent = self.random.choice([1, 2, 5, 17, 40])
        if self.random.random() < 0.4:
            inner = shape
        else:
            inner = (shape[0], extent) if axis == 1 else (extent, shape[1])
        x = self._tile(dtype, inner, depth)
        names = ["max", "min"] if dtype == BOOL else ["sum", "max", "min", "sum", "prod"]
        name = self.random.choice(names)
        value = self._b.reduce(name, x.value, axis)
        exact = x.exact and (name in ("max", "min") or not dtype.is_float)
        return Tile(self._spread(value, shape), exact)

    def _turned(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        inner = self._tile(dtype, shape[::-1], depth)
        return Tile(self._b.transpose(inner.value), inner.exact)

    def _loop(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        """Carries one or two tiles over a loop whose last iteration may be partial."""
        if dtype in (F16, BF16):
            return self._load(dtype, shape)
        trips = self.random.choice([0, 1, 2, 5])
        step = self.random.choice([1, 1, 3])
        first = self._tile(dtype, shape, depth)
        second = self._tile(dtype, shape, 0)
        operand = self._tile(dtype, shape, 0)
        name = "or" if dtype == BOOL else self.random.choice(["add", "sub", "maximum"])
        both = self.random.random() < 0.5
        swap = self.random.random() < 0.5
        unroll = self.random.random() < 0.3

        def body(i: Expr, *carried: Value) -> list[Value]:
            x = self._b.map(name, carried[0], operand.value)
            if dtype != BOOL:
                x = self._b.map("add", x, self._b.cast(self._b.index(i, (1, 1)), dtype))
            if not both:
                return [self._spread(x, shape)]
            y = self._b.map(name, carried[1], carried[0])
            out = [self._spread(x, shape), self._spread(y, shape)]
            return out[::-1] if swap else out

        inits = [self._spread(first.value, shape)]
        if both:
            inits.append(self._spread(second.value, shape))
        found = self._b.loop(0, trips, step, inits, body, unroll=unroll)
        exact = first.exact and operand.exact and second.exact
        return Tile(found[-1], exact)

    def _dot(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        if dtype not in (F32, F64, I32):
            return self._load(dtype, shape)
        source = self.random.choice([F32, F16, BF16] if dtype == F32 else [dtype])
        if dtype == I32:
            source = self.random.choice([I32, I8, U8])
        k = self.random.choice([1, 3, 8, 20, 40])
        a = self._tile(source, (shape[0], k), depth)
        b = self._tile(source, (k, shape[1]), depth)
        a = Tile(self._spread(a.value, (shape[0], k)), a.exact)
        b = Tile(self._spread(b.value, (k, shape[1])), b.exact)
        start = self._tile(dtype, shape, 0)
        needs = source != dtype or self.random.random() < 0.5
        accumulator = self._spread(start.value, shape) if needs else None
        value = self._b.dot(a.value, b.value, accumulator)
        return Tile(value, not dtype.is_float and a.exact and b.exact)

    def _gather(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        """Elements of a table at indices that are computed."""
        size = self.random.choice([5, 37])
        index = self._part(shape, 1)
        numbers = self._load(I64, index)
        wrapped = self._b.map("mod", numbers.value, size)
        checked = self._b.wrap_index(self._b.map("sub", wrapped, self.random.choice([0, 3])), size)
        buffer = self._buffer(dtype, size * 2 + shape[1], size * 2 + shape[1])
        at = C if self.random.random() < 0.5 else as_expr(0)
        value = self._b.load(buffer, at, shape, gather=[(checked, 2)])
        return Tile(value, True)

    def _inner(self) -> tuple[Dim, int]:
        """The extent of an inner axis, as a dimension and as a number."""
        number = self.random.choice([0, 1, 7, 8, 16, 20, 33])
        if self.random.random() < 0.5:
            return number, number
        # Another kernel may have drawn the symbol before.
        number = self.plan.symbols.setdefault("K", number)
        return symbol("K"), number

    def _window(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        """Neighbours along the rows, some of them outside, summed up."""
        m, n = self.plan.dims
        size, number = as_expr(m) * n, self.plan.numbers[0] * self.plan.numbers[1]
        buffer = self._buffer(dtype, size, number)
        other = self._number(dtype)
        unroll = self.random.random() < 0.5

        def body(i: Expr, total: Value) -> list[Value]:
            row = self.row + i - 1
            bounds = [(0, row, m), (0, self.column, n)]
            x = self._b.load(buffer, row * n + self.column, shape, bounds, other)
            name = "or" if dtype == BOOL else "maximum"
            return [self._b.map(name, total, x)]

        if dtype in (F16, BF16):
            return self._load(dtype, shape)
        first = self._spread(self._b.full((1, 1), self._number(dtype), dtype), shape)
        (total,) = self._b.loop(0, 3, 1, [first], body, unroll=unroll)
        return Tile(total, True)

    def _contraction(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        """Rows times columns over an inner axis in steps, the last of which may be partial."""
        if dtype not in (F32, F64, I32):
            return self._load(dtype, shape)
        (m, n), (mm, nn) = self.plan.dims, self.plan.numbers
        k, kk = self._inner()
        step = self.random.choice([1, 4, 8, 16])
        a = self._buffer(dtype, as_expr(m) * k, mm * kk)
        b = self._buffer(dtype, as_expr(k) * n, kk * nn)
        turned = self.random.random() < 0.3

        def body(i: Expr, total: Value) -> list[Value]:
            inside = [(0, self.row, m), (0, i + C, k)]
            x = self._b.load(a, self.row * k + i + C, (shape[0], step), inside)
            if turned:
                column = self._b.program(1) * shape[1] + R
                bounds = [(0, i + C, k), (0, column, n)]
                y = self._b.load(b, column * k + i + C, (shape[1], step), bounds)
                return [self._b.dot(x, self._b.transpose(y), total)]
            bounds = [(0, i + R, k), (0, self.column, n)]
            y = self._b.load(b, (i + R) * n + self.column, (step, shape[1]), bounds)
            return [self._b.dot(x, y, total)]

        first = self._spread(self._b.full((1, 1), 0, dtype), shape)
        (total,) = self._b.loop(0, k, step, [first], body)
        if self.random.random() < 0.5:
            total = self._b.stage(total)
        return Tile(total, not dtype.is_float)

    def _online(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        """The largest element of each row and a sum, over blocks of an inner axis."""
        if dtype != F32:
            return self._load(dtype, shape)
        (m, _), (mm, _) = self.plan.dims, self.plan.numbers
        k, kk = self._inner()
        step = self.random.choice([4, 16])
        buffer = self._buffer(F32, as_expr(m) * k, mm * kk)

        def body(j: Expr, top: Value, total: Value) -> list[Value]:
            bounds = [(0, self.row, m), (0, j + C, k)]
            x = self._b.load(buffer, self.row * k + j + C, (shape[0], step), bounds, -3e38)
            best = self._b.map("maximum", top, self._b.reduce("max", x))
            scale = self._b.map("exp", self._b.map("sub", top, best))
            part = self._b.stage(self._b.map("exp", self._b.map("sub", x, best)))
            more = self._b.reduce("sum", part)
            return [best, self._b.map("add", self._b.map("mul", total, scale), more)]

        column = (shape[0], 1)
        first = self._spread(self._b.full((1, 1), -1e30, F32), column)
        zero = self._spread(self._b.full((1, 1), 0.0, F32), column)
        top, total = self._b.loop(0, k, step, [first, zero], body)
        both = self._b.map("add", self._b.map("minimum", top, 9.0), total)
        return Tile(self._spread(both, shape), False)

    def _rows_of_a_table(self, dtype: DType, shape: tuple[int, int], depth: int) -> Tile:
        """Row index[row] of a table, at the columns of the plan."""
        (m, n), (mm, nn) = self.plan.dims, self.plan.numbers
        size = 6
        buffer = self._buffer(dtype, as_expr(n) * size, nn * size)
        if self.random.random() < 0.5:
            inside: list[tuple[Dim, Dim, Dim]] = [(0, self.row, m)]
            source = self._buffer(I64, m, mm)
            numbers = self._b.load(source, self.row, (shape[0], 1), inside, 0)
            index = self._b.wrap_index(self._b.map("mod", numbers, size), size, inside)
        else:
            index = self._b.index(R % size, (shape[0], 1))
        if self.random.random() < 0.3:
            index = self._b.stage(index)
        both = self._bounds(self.random.random() < 0.7, True)
        value = self._b.load(buffer, self.column, shape, both, self._number(dtype), [(index, n)])
        return Tile(value, True)

    # ---- data

    def _data(self, dtype: DType, count: int) -> Array:
        if dtype == BOOL:
            return self.numbers.random(count) < 0.5
        if dtype.is_float:
            x = self.numbers.standard_normal(count)
            if self.special and count:
                marks = self.numbers.random(count) < 0.05
                x[marks] = self.numbers.choice([np.nan, np.inf, -np.inf, 0.0, -0.0], marks.sum())
            return x.astype(dtype.numpy)
        limits = np.iinfo(dtype.numpy)
        small = self.numbers.integers(-20 if dtype.kind == "int" else 0, 20, count)
        wide = self.numbers.integers(limits.min, limits.max, count, dtype.numpy, endpoint=True)
        return np.where(self.numbers.random(count) < 0.7, small, wide).astype(dtype.numpy)


class _Any(dict[str, BufferType]):
    """No buffers yet."""


def random_kernel(seed: int) -> RandomKernel:
    return Generator(seed).make()


__all__ = ["FLOATS", "RandomKernel", "random_kernel"]
