"""The state of lowering one kernel, and the heart of it: `pull` gives one register of a tile.

Loads, elementwise functions, casts and views are lazy: they are computed a register at a time
where they are used. A tile whose elements are needed more than once lives in registers (`pinned`:
reductions, carried tiles of loops) or in the thread's scratch memory (`ready`: stages, what does
not fit).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tfc.backends.llvm import arithmetic, memory, scratch
from tfc.backends.llvm.bounds import Bound, BoundTable
from tfc.backends.llvm.casts import Converter
from tfc.backends.llvm.indices import LANE_SYMBOL, Indices, lane_stride
from tfc.backends.llvm.places import SPARE_BYTES, Coordinate, Place, inside
from tfc.backends.llvm.registers import Register, Vectors, literal
from tfc.backends.llvm.separable import clampable
from tfc.backends.llvm.writer import Writer
from tfc.ir.core import Kernel, Value
from tfc.ir.expr import Dim, as_expr
from tfc.ir.types import BOOL, I64, DType
from tfc.tile import ops as t
from tfc.tile.signs import never_positive

if TYPE_CHECKING:
    from tfc.targets import Target


class Lowering:
    """What is known while the body of a kernel is emitted."""

    def __init__(self, kernel: Kernel, target: Target, lanes: int) -> None:
        # The links in tfc/ give each module two paths, which type checkers take for two classes.
        self.this: Any = self
        self.kernel = kernel
        self.target = target
        self.lanes = lanes
        self.writer = Writer()
        self.vectors = Vectors(self.writer, lanes)
        self.indices = Indices(self.writer, self.vectors)
        self.converter = Converter(self.vectors, target.half_conversions)
        self.bounds = BoundTable(kernel)
        self.pointers: dict[Value, str] = {}
        self.math: set[arithmetic.MathKey] = set()
        self.spare_bytes = 0
        self.reports_errors = False
        self.strings: dict[str, tuple[str, str]] = {}  # text -> name and definition
        self.scratch = scratch.Allocator(self.writer)
        self.places: dict[Value, Place] = {}  # scratch memory of values
        self._accesses: dict[t.Load | t.Store, Place] = {}
        self.begin_version(full=True)

    def begin_version(self, *, full: bool) -> None:
        """Starts a copy of the body, for full or for edge programs."""
        self.full = full
        self.whole: set[str] = set()
        self.pinned: dict[Value, int | None] = {}  # value -> the axis along which its lanes lie
        self.ready: set[Value] = set()  # values that lie in their scratch memory
        self.pending: list[t.Stage] = []  # stages that nothing has used yet
        self.writing: set[Value] = set()  # stages that are being computed

    @contextmanager
    def inner(self) -> Generator[None]:
        """For the body of a loop: what becomes known inside is forgotten after."""
        saved = dict(self.pinned), set(self.ready), list(self.pending)
        try:
            yield
        finally:
            self.pinned, self.ready, self.pending = saved

    # ---- small questions

    def is_active(self, bound: Bound) -> bool:
        """Whether a bound must be checked in the code that is being emitted."""
        if bound.open or (bound.full and not self.full):
            return True
        return not bound.whole <= self.whole

    def valid_lanes(self, shape: tuple[int, int], at: Coordinate, lane: int | None) -> int:
        """How many lanes of a register lie in the tile."""
        if lane is None:
            return 1
        start = at[lane]
        return min(self.lanes, shape[lane] - start) if isinstance(start, int) else self.lanes

    def can_mask(self, dtype: DType) -> bool:
        return dtype.bytes in self.target.masked_bytes

    def registers_of(self, dtype: DType) -> int:
        """How many of the processor's registers a vector of this type takes."""
        return max(1, self.lanes * dtype.bytes // self.target.vector_bytes)

    def node_name(self, op: t.WrapIndex) -> str:
        """A constant string: the user's own names of the nodes that an op came from."""
        from tfc.backends.llvm import errors

        self.reports_errors = True
        text = errors.node_text(op, self.this)
        if not text:
            return "null"
        data = "".join(f"\\{b:02X}" for b in text.encode() + b"\0")
        size = len(text.encode()) + 1
        if text not in self.strings:
            name = f"@tfc.node{len(self.strings)}"
            constant = f'{name} = private unnamed_addr constant [{size} x i8] c"{data}"'
            self.strings[text] = name, constant
        return self.strings[text][0]

    def spare_zeros(self) -> str:
        """Memory that may be read instead of what is out of bounds."""
        return "@tfc.zeros"

    def spare_room(self) -> str:
        """Memory that may be written instead of what is out of bounds."""
        if not self.spare_bytes:
            self.spare_bytes = SPARE_BYTES
            self.writer.entry.append(f"  %spare = alloca [{self.spare_bytes} x i8], align 64")
        return "%spare"

    # ---- places

    def place_of(self, op: t.Load | t.Store) -> Place:
        if op not in self._accesses:
            self._accesses[op] = self._make_place(op)
        return self._accesses[op]

    def _make_place(self, op: t.Load | t.Store) -> Place:
        bounds = tuple(self.bounds.of(op))
        kind = op.value.tile if isinstance(op, t.Store) else op.output.tile
        pointer = self.pointers[op.buffer]
        at = as_expr(op.at)
        if isinstance(op, t.Store):
            return Place(pointer, kind.dtype, kind.shape, at, bounds)
        clamps = {
            axis: tuple(b for b in bounds if b.full and clampable(self.kernel, op, b, axis))
            for axis in (0, 1)
        }
        strides = map(as_expr, op.strides)
        offsets = tuple(zip(op.indices, strides, strict=True))
        return Place(pointer, kind.dtype, kind.shape, at, bounds, op.other, offsets, clamps=clamps)

    # ---- registers

    def pull(self, value: Value, at: Coordinate, lane: int | None) -> Register:
        """The register of a tile that starts at a coordinate, its lanes along an axis, or a scalar.

        Along an axis of extent 1 the tile is the same everywhere: the result may be a scalar.
        """
        shape = value.tile.shape
        row = 0 if shape[0] == 1 else at[0]
        column = 0 if shape[1] == 1 else at[1]
        if lane is not None and shape[lane] == 1:
            lane = None
        key = (value, row, column, lane)
        found = self.writer.get(key)
        if found is None:
            found = self.writer.put(key, self._compute(value, (row, column), lane))
        return found

    def remember(self, value: Value, at: Coordinate, lane: int | None, r: Register) -> None:
        """Says that a register of a tile is known."""
        self.writer.put((value, *at, lane), r)

    def vector(self, value: Value, at: Coordinate, lane: int | None) -> Register:
        """The same as `pull`, as a vector if there is a lane axis."""
        r = self.pull(value, at, lane)
        if lane is None or r.vector:
            return r
        return Register(self.vectors.splat(r), r.dtype, True)

    def _compute(self, value: Value, at: Coordinate, lane: int | None) -> Register:
        if value in self.ready:
            return memory.read(self.this, self.places[value], at, lane)
        if value in self.pinned:
            return self._repack(value, at, lane)
        op = value.producer
        match op:
            case t.Load():
                return memory.read(self.this, self.place_of(op), at, lane)
            case t.Full():
                return self.vectors.full(op.value, value.tile.dtype)
            case t.Index():
                return self._index(op, at, lane)
            case t.InBounds():
                text = inside(self.this, self.bounds.of(op), value.tile.shape, at, lane)
                return Register(text or "true", BOOL, text is not None and lane is not None)
            case t.Map():
                operands = [self.pull(v, at, lane) for v in op.operand_values]
                function = self.function_of(op)
                return arithmetic.apply(
                    self.vectors, function, operands, fma=self.target.fma, needed=self.math
                )
            case t.Select():
                return self._select(op, at, lane)
            case t.TileCast():
                return self.converter.convert(self.pull(op.x, at, lane), op.to)
            case t.Transpose():
                turned = None if lane is None else 1 - lane
                return self.pull(op.x, (at[1], at[0]), turned)
            case t.Stage() if value in self.writing:
                r = self.vector(op.x, at, lane)
                memory.write(self.this, self.places[value], r, at, lane)
                return r
            case t.Dot():
                return self._dot(op, at, lane)
            case _:
                raise AssertionError(f"{value} of {op} is in no register at {at}, lanes {lane}")

    def function_of(self, op: t.Map) -> str:
        """The function, or what serves all arguments that come."""
        negative = op.function == "exp" and never_positive(op.operand_values[0])
        return "exp_of_negative" if negative else op.function

    def _dot(self, op: t.Dot, at: Coordinate, lane: int | None) -> Register:
        from tfc.backends.llvm import dots

        lines, chunks = ([at[0]], [at[1]]) if lane != 0 else ([at[1]], [at[0]])
        dots.compute(self.this, op, lines, chunks, lane)
        return self.writer.get((op.output, *at, lane))

    def _index(self, op: t.Index, at: Coordinate, lane: int | None) -> Register:
        places: list[Dim] = list(at)
        if lane is not None:
            places[lane] = LANE_SYMBOL + places[lane]
        e = self.indices.settle(op.value, {t.ROW: places[0], t.COLUMN: places[1]})
        if lane_stride(e) == 0:
            return Register(self.indices.value(e), I64, False)
        return Register(self.indices.vector(e), I64, True)

    def _select(self, op: t.Select, at: Coordinate, lane: int | None) -> Register:
        if _is_masked_alike(op):
            return self.pull(op.x, at, lane)
        condition = self.pull(op.condition, at, lane)
        if condition.text in ("true", "false"):
            return self.pull(op.x if condition.text == "true" else op.y, at, lane)
        x, y = self.pull(op.x, at, lane), self.pull(op.y, at, lane)
        vector = any(r.vector for r in (condition, x, y))
        if not vector:
            text = self.vectors.select(
                condition.text, self.vectors.type(x.dtype, False), x.text, y.text, False
            )
            return Register(text, x.dtype, False)
        kind = self.vectors.type(x.dtype, True)
        test, a, b = (self.vectors.splat(r) for r in (condition, x, y))
        return Register(self.vectors.select(test, kind, a, b, True), x.dtype, True)

    # ---- tiles in registers

    def layout_of(self, value: Value) -> int | None:
        """The axis of the lanes of a tile that is kept: its columns, or else its rows."""
        rows, cols = value.tile.shape
        return 1 if cols > 1 else 0 if rows > 1 else None

    def coordinates(self, value: Value, lane: int | None) -> list[Coordinate]:
        """Where the registers of a whole tile start."""
        rows, cols = value.tile.shape
        steps = [self.lanes if axis == lane else 1 for axis in (0, 1)]
        return [(r, c) for r in range(0, rows, steps[0]) for c in range(0, cols, steps[1])]

    def pin(self, value: Value, lane: int | None, registers: Sequence[Register]) -> None:
        """Keeps a tile in registers, given in the order of `coordinates`."""
        self.pinned[value] = lane
        for at, r in zip(self.coordinates(value, lane), registers, strict=True):
            self.remember(value, at, lane, r)

    def _repack(self, value: Value, at: Coordinate, lane: int | None) -> Register:
        """A register of a pinned tile whose lanes lie along another axis, or nowhere."""
        layout = self.pinned[value]
        row, column = at
        assert isinstance(row, int) and isinstance(column, int), f"{value} needs a fixed {at}"
        if lane is None:
            return self._pinned_scalar(value, (row, column), layout)
        count = self.valid_lanes(value.tile.shape, at, lane)
        steps = [(row + i, column) if lane == 0 else (row, column + i) for i in range(count)]
        scalars = [self.pull(value, step, None).text for step in steps]
        kind = self.vectors.type(value.tile.dtype, False)
        return Register(self.vectors.gather(scalars, kind), value.tile.dtype, True)

    def _pinned_scalar(self, value: Value, at: tuple[int, int], layout: int | None) -> Register:
        assert layout is not None, f"{value} has no register for {at}"
        start = list(at)
        start[layout] -= at[layout] % self.lanes
        r = self.writer.get((value, *start, layout))
        assert r is not None, f"{value} has no register for {at}"
        return self.vectors.extract(r, at[layout] % self.lanes) if r.vector else r


def _is_masked_alike(op: t.Select) -> bool:
    """Whether x is a load that gives y itself wherever the condition, its own bounds, fails."""
    test, load, other = (v.producer for v in (op.condition, op.x, op.y))
    if not isinstance(test, t.InBounds) or not isinstance(load, t.Load):
        return False
    if load.indices or test.where != load.where or not isinstance(other, t.Full):
        return False
    dtype = op.output.tile.dtype
    same = literal(load.other, dtype) == literal(other.value, dtype)
    return same and load.output.tile.shape == op.output.tile.shape
