"""Products of tiles, a register tile at a time.

Each step of the inner axis loads a vector for each chunk and spreads one element for each line
over the lanes: lines x chunks accumulators stay in registers. A single column of results is a row
of inner products, with the lanes along the inner axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfc.backends.llvm.places import Coordinate
from tfc.backends.llvm.registers import Register, element_type
from tfc.ir.core import Value
from tfc.ir.expr import Dim, normal
from tfc.ir.types import DType
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering

STRAIGHT = 384
"""Multiplications that are written out before the inner axis becomes a loop."""


def block(lo: Lowering, shape: tuple[int, int], lane: int, dtype: DType) -> tuple[int, int]:
    """How many lines and chunks of the product are computed at once: what costs least."""
    lines, chunks = shape[1 - lane], -(-shape[lane] // lo.lanes)
    units = lo.registers_of(dtype)
    free = lo.target.vector_registers - 1
    best: tuple[float, int, int] | None = None
    for high in range(1, lines + 1):
        for wide in range(1, chunks + 1):
            if high * wide * units + wide * units > free and high * wide > 1:
                break
            cost = _cost(lines, chunks, high, wide, units)
            if best is None or cost < best[0]:
                best = cost, high, wide
    assert best is not None
    return best[1], best[2]


def _cost(lines: int, chunks: int, high: int, wide: int, units: int) -> float:
    """Cycles a step of the inner axis: two loads or products each, four to finish one."""
    total = 0.0
    for h, height_count in _parts(lines, high):
        for w, width_count in _parts(chunks, wide):
            work = max(h * w * units / 2, (h + w * units) / 2, 4.0)
            total += height_count * width_count * (work + 0.01)
    return total


def _parts(extent: int, size: int) -> list[tuple[int, int]]:
    """The sizes that an extent is cut into, and how many there are of each."""
    whole, rest = divmod(extent, size)
    return [(s, n) for s, n in ((size, whole), (rest, 1)) if s and n]


@dataclass(frozen=True)
class Product:
    """One product: its operands, and the type in which it accumulates."""

    lo: Lowering
    op: t.Dot
    dtype: DType

    def operand(self, value: Value, at: Coordinate, lane: int | None) -> Register:
        return self.lo.converter.convert(self.lo.pull(value, at, lane), self.dtype)

    def multiply_add(self, x: str, y: str, total: str, vector: bool) -> str:
        """x * y + total; a total of zero costs nothing."""
        writer, kind = self.lo.writer, self.lo.vectors.type(self.dtype, vector)
        prefix = "f" if self.dtype.is_float else ""
        if prefix and self.lo.target.fma and total != "zeroinitializer":
            element = element_type(self.dtype)
            return self.lo.vectors.intrinsic("fma", element, vector, x, y, total)
        product = writer.value(f"{prefix}mul {kind} {x}, {y}")
        if total == "zeroinitializer":
            return product
        return writer.value(f"{prefix}add {kind} {product}, {total}")

    def add(self, x: str, y: str, vector: bool) -> str:
        name = "fadd" if self.dtype.is_float else "add"
        return self.lo.writer.value(f"{name} {self.lo.vectors.type(self.dtype, vector)} {x}, {y}")


def compute(
    lo: Lowering, op: t.Dot, lines: Sequence[Dim], chunks: Sequence[Dim], lane: int | None
) -> None:
    """Computes and remembers the registers of a product; lines lie along the axis without lanes."""
    p = Product(lo, op, op.output.tile.dtype)
    if lane is None:
        _inner_products(p, lines, chunks)
        return
    places = [(i, j) if lane == 1 else (j, i) for i in lines for j in chunks]
    first = [_start(p, at, lane) for at in places]
    totals = _outer_products(p, lines, chunks, lane, first)
    for at, text in zip(places, totals, strict=True):
        lo.remember(op.output, at, lane, Register(text, p.dtype, True))


def _start(p: Product, at: Coordinate, lane: int) -> str:
    """The accumulator's register, or zero."""
    if p.op.accumulator is None:
        return "zeroinitializer"
    r = p.lo.vector(p.op.accumulator, at, lane)
    zero = not r.text.startswith("%") and _is_zero(p.op.accumulator)
    return "zeroinitializer" if zero else r.text


def _is_zero(value: Value) -> bool:
    return isinstance(value.producer, t.Full) and value.producer.value == 0


def _outer_products(
    p: Product, lines: Sequence[Dim], chunks: Sequence[Dim], lane: int, totals: list[str]
) -> list[str]:
    depth = p.op.a.tile.cols
    size = len(lines) * len(chunks)
    kind = p.lo.vectors.type(p.dtype, True)
    # Few accumulators wait for each other: several sets of them take turns.
    sets = max(1, min(4, 8 // size, depth // 2))
    current = totals + ["zeroinitializer"] * (size * (sets - 1))

    def steps(start: Dim, count: int, totals: list[str]) -> list[str]:
        out = list(totals)
        _prime_operands(p, lines, chunks, lane, start, count)
        for i in range(count):
            offset = i % sets * size
            part = _step(p, lines, chunks, lane, normal(start + i), out[offset : offset + size])
            out[offset : offset + size] = part
        return out

    current = over_depth(p.lo, depth, size, kind, current, steps)
    for k in range(1, sets):
        for i in range(size):
            extra = current[k * size + i]
            if extra != "zeroinitializer":
                current[i] = p.add(current[i], extra, True)
    return current[:size]


def over_depth(
    lo: Lowering,
    depth: int,
    size: int,
    kind: str,
    totals: list[str],
    steps: Callable[[Dim, int, list[str]], list[str]],
) -> list[str]:
    """Runs steps(first, count, totals) over the inner axis: written out if short, else a loop."""
    if depth * size <= STRAIGHT or depth <= 8:
        return steps(0, depth, totals)
    unroll = max(1, min(lo.lanes, STRAIGHT // 3 // size))
    unroll = max(4, 1 << (unroll.bit_length() - 1))
    whole = depth // unroll
    if whole < 2:
        return steps(0, depth, totals)

    def body(counter: str, carried: list[str]) -> list[str]:
        index = lo.indices.counter(counter, 0, whole - 1)
        with lo.inner():
            out = steps(normal(index * unroll), unroll, carried)
        lo.indices.release(counter)
        return out

    carried = [(kind, total) for total in totals]
    totals = lo.writer.loop("0", str(whole), 1, carried, body)
    rest = depth - whole * unroll
    if rest:
        with lo.writer.forgetting():
            totals = steps(whole * unroll, rest, totals)
    return totals


def _prime_operands(
    p: Product, lines: Sequence[Dim], chunks: Sequence[Dim], lane: int, start: Dim, count: int
) -> None:
    from tfc.backends.llvm.blocks import prime

    inner = [normal(start + i) for i in range(count)]
    if lane == 1:
        prime(p.lo, p.op.b, inner, chunks, 1)
    else:
        prime(p.lo, p.op.a, chunks, inner, 0)


def _step(
    p: Product, lines: Sequence[Dim], chunks: Sequence[Dim], lane: int, k: Dim, totals: list[str]
) -> list[str]:
    """One element of the inner axis: every line times every chunk."""
    splat = p.lo.vectors.splat
    if lane == 1:
        vectors = [splat(p.operand(p.op.b, (k, j), 1)) for j in chunks]
        scalars = [p.operand(p.op.a, (i, k), None) for i in lines]
    else:
        vectors = [splat(p.operand(p.op.a, (j, k), 0)) for j in chunks]
        scalars = [p.operand(p.op.b, (k, i), None) for i in lines]
    out: list[str] = []
    for i, scalar in enumerate(scalars):
        spread = splat(scalar)
        for j, v in enumerate(vectors):
            total = totals[i * len(vectors) + j]
            out.append(p.multiply_add(spread, v, total, True))
    return out


# ---- inner products


def _inner_products(p: Product, lines: Sequence[Dim], chunks: Sequence[Dim]) -> None:
    """Single elements of the product, the lanes along the inner axis."""
    for row in lines:
        for column in chunks:
            text = _inner_product(p, row, column)
            if p.op.accumulator is not None:
                start = p.lo.pull(p.op.accumulator, (row, column), None)
                text = p.add(text, start.text, False)
            r = Register(text, p.dtype, False)
            p.lo.remember(p.op.output, (row, column), None, r)


def _inner_product(p: Product, row: Dim, column: Dim) -> str:
    lanes, depth = p.lo.lanes, p.op.a.tile.cols
    whole = depth // lanes
    kind = p.lo.vectors.type(p.dtype, True)
    sets = max(1, min(4, whole))

    def steps(start: Dim, count: int, totals: list[str]) -> list[str]:
        out = list(totals)
        for i in range(count):
            k = normal((start + i) * lanes)
            x = p.lo.vectors.splat(p.operand(p.op.a, (row, k), 1))
            y = p.lo.vectors.splat(p.operand(p.op.b, (k, column), 0))
            out[i % sets] = p.multiply_add(x, y, out[i % sets], True)
        return out

    totals = over_depth(p.lo, whole, 8, kind, ["zeroinitializer"] * sets, steps) if whole else []
    if depth % lanes:
        totals.append(_last_products(p, row, column, whole * lanes))
    while len(totals) > 1:
        totals = [p.add(totals[0], totals[1], True), *totals[2:]]
    return horizontal_sum(p.lo, p.dtype, totals[0])


def _last_products(p: Product, row: Dim, column: Dim, start: int) -> str:
    """The products beyond the last whole register, zero in the other lanes."""
    inside = p.lo.vectors.first_lanes(p.op.a.tile.cols - start)
    kind = p.lo.vectors.type(p.dtype, True)
    x = p.lo.vectors.splat(p.operand(p.op.a, (row, start), 1))
    y = p.lo.vectors.splat(p.operand(p.op.b, (start, column), 0))
    product = p.multiply_add(x, y, "zeroinitializer", True)
    return p.lo.vectors.select(inside, kind, product, "zeroinitializer", True)


def horizontal_sum(lo: Lowering, dtype: DType, text: str) -> str:
    """The sum of the lanes."""
    element = element_type(dtype)
    kind = lo.vectors.type(dtype, True)
    suffix = lo.vectors.suffix(element, True)
    if not dtype.is_float:
        return lo.writer.call(element, f"llvm.vector.reduce.add.{suffix}", f"{kind} {text}")
    name = f"llvm.vector.reduce.fadd.{suffix}"
    lo.writer.declare(f"{element} @{name}({element}, {kind})")
    return lo.writer.value(f"call reassoc {element} @{name}({element} -0.0, {kind} {text})")
