"""Tile kernels as Triton source: readable Python text, the same for the same kernel.

Tile shapes are logical; here they are padded (see `extents`) and what lies in the padding is
masked: accesses do not touch it, reductions see their neutral element, dots see zeros. A tile that
does not vary along an axis is kept at extent 1 there, or as a scalar, until an op needs it whole.
"""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Collection

from tfc.backends.triton import functions as f
from tfc.backends.triton.expressions import conjunction, grouped
from tfc.backends.triton.memory import Memory
from tfc.backends.triton.source import Argument, Source, file_text, is_wide, limits_of
from tfc.backends.triton.tiles import Tile, shape_along
from tfc.ir.core import Block, Kernel, Module, Op, Value
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.expr import Dim, as_expr, normal, product
from tfc.ir.types import BF16, F16, F32, I8, I32, DType
from tfc.tile import ops as t
from tfc.tile.interpret import kernel_symbols
from tfc.tile.nests.identity import identity

PRECISIONS = ("ieee", "tf32", "tf32x3")
LARGEST_AXIS = 65535  # of the grid's second and third axes
RESERVED = re.compile(
    rf"[rcv]\d+|tl|triton|libdevice|errors|program|range|float|{'|'.join(f.HELPERS)}"
)
"""Names that the text gives a meaning of its own."""


def print_kernel(kernel: Kernel, *, precision: str = "", wide: bool = False) -> Source:
    """The Triton source of a kernel.

    precision: how products of f32 are computed; ieee in full, tf32 keeps 11 bits of each factor,
    tf32x3 nearly all. If it is not given, the kernel's attribute of that name says so, else ieee.
    wide: 64-bit indices even where the static sizes do not ask for them; else symbolic sizes must
    stay in `Source.limits`.

    Raises UnsupportedError for an op or a type that Triton does not have.
    """
    precision = precision or str(kernel.attributes.get("precision", PRECISIONS[0]))
    if precision not in PRECISIONS:
        raise TfcError(
            f"no precision is named {precision!r}",
            where=f"kernel @{kernel.name}",
            hint=f"one of {', '.join(PRECISIONS)}",
        )
    _check_names(kernel)
    return _Printer(kernel, precision, wide or is_wide(kernel)).source()


def _check_names(kernel: Kernel) -> None:
    """Raises TfcError for a name of the kernel that the text cannot use."""
    names = [kernel.name, *(a.name for a in kernel.body.args), *(name for name, _ in kernel.grid)]
    names += [op.index for op in kernel.body.walk() if isinstance(op, t.For)]
    for name in [*names, *kernel_symbols(kernel)]:
        if not name.isidentifier() or keyword.iskeyword(name) or RESERVED.fullmatch(name):
            raise TfcError(
                f"the name {name!r} cannot stand in Triton source",
                where=f"kernel @{kernel.name}",
                hint="rename it",
            )


def _launch_number(kernel: Kernel, name: str, usual: int, possible: Collection[int]) -> int:
    """An attribute of a kernel that says how it is launched."""
    value = kernel.attributes.get(name, usual)
    if not isinstance(value, int) or value not in possible:
        raise TfcError(
            f"{name} = {value}",
            where=f"kernel @{kernel.name}",
            hint=f"one of {', '.join(map(str, possible))}",
        )
    return value


def print_module(module: Module, *, precision: str = "", wide: bool = False) -> str:
    """One Triton file of all kernels of a module."""
    kernels = module.kernels.values()
    return file_text([print_kernel(k, precision=precision, wide=wide) for k in kernels])


class _Printer(Memory):
    def __init__(self, kernel: Kernel, precision: str, wide: bool) -> None:
        super().__init__(kernel, wide)
        self.precision = precision

    # ---- the whole

    def source(self) -> Source:
        self.block(self.kernel.body)
        self.lines = _without_unused(self.lines)
        arguments = self._arguments()
        grid, decoded = self._grid()
        names = ", ".join(a.name for a in arguments)
        head = ["@triton.jit", f"def {self.kernel.name}({names}):"]
        body = [*head, *(f"    {line}" for line in (*decoded, *self._axes())), *self.lines]
        helpers = [f"@triton.jit\n{text}" for name, text in f.HELPERS.items() if name in self.needs]
        imports = ["import triton", "import triton.language as tl"]
        if "libdevice" in self.needs:
            imports.append("from triton.language.extra import libdevice")
        return Source(
            name=self.kernel.name,
            imports=tuple(imports),
            helpers=tuple(helpers),
            function="\n".join(body),
            arguments=tuple(arguments),
            grid=grid,
            sites=tuple(self.sites),
            limits=() if self.wide else limits_of(self.kernel, grid),
            warps=_launch_number(self.kernel, "warps", 4, (1, 2, 4, 8, 16, 32)),
            stages=_launch_number(self.kernel, "stages", 3, range(1, 9)),
            origin=self.kernel.location.nodes,
        )

    @property
    def needs(self) -> dict[str, None]:
        return self.expressions.needs

    def _arguments(self) -> list[Argument]:
        index = "i64" if self.wide else "i32"
        out = [
            Argument(a.name, f"*{f.signature_of(a.buffer.dtype)}") for a in self.kernel.body.args
        ]
        out += [Argument(name, index) for name in kernel_symbols(self.kernel)]
        return [*out, Argument("errors", "*i64")] if self.sites else out

    def _grid(self) -> tuple[tuple[Dim, Dim, Dim], list[str]]:
        """The launch grid, and the lines that give the grid variables their values."""
        axes = [(name, n) for name, n in self.kernel.grid if n != 1]
        outer = [n for _, n in axes[:-1]]
        cast = ".to(tl.int64)" if self.wide else ""
        fits = len(axes) <= 3 and all(isinstance(n, int) and n <= LARGEST_AXIS for n in outer)
        if fits:
            turned = [n for _, n in reversed(axes)] + [1, 1, 1]
            last = len(axes) - 1
            lines = [f"{p} = tl.program_id({last - i}){cast}" for i, (p, _) in enumerate(axes)]
            return (turned[0], turned[1], turned[2]), lines
        lines = [f"program = tl.program_id(0){cast}"]
        for i, (name, n) in enumerate(axes):
            inner = as_expr(product([m for _, m in axes[i + 1 :]]))
            behind = self.expressions.text(inner, (1, 1), (1, 1))
            text = f"program // {grouped(behind)}" if inner.constant != 1 else "program"
            size = grouped(self.expressions.text(n, (1, 1), (1, 1)))
            lines.append(f"{name} = {text}" + (f" % {size}" if i else ""))
        return (product([n for _, n in axes]), 1, 1), lines

    def _axes(self) -> list[str]:
        cast = ".to(tl.int64)" if self.wide else ""
        return [
            f"{name} = tl.arange(0, {n}){'[:, None]' if letter == t.ROW else '[None, :]'}{cast}"
            for (letter, n), name in sorted(self.expressions.axes.items())
        ]

    # ---- lines

    def block(self, block: Block) -> None:
        for op in block:
            if not op.terminator:
                made = getattr(self, f"_{op.name}")(op)
                if made is not None:
                    self.tiles[op.result] = made

    def refuse(self, op: Op, what: str) -> UnsupportedError:
        """The error of something that Triton does not have."""
        return UnsupportedError(
            f"{what} on a GPU",
            where=f"kernel @{self.kernel.name}, {op.name}",
            hint="place it on a CPU",
        )

    # ---- values as operands

    # ---- values

    def _tile_full(self, op: t.Full) -> Tile:
        kind = op.output.tile
        value = op.value
        if kind.dtype.is_float:
            value = float(value)
        return Tile(f.literal(value), value=value, zero=(value == 0, value == 0))

    def _index(self, op: t.Index) -> Tile:
        logical, padded = op.output.tile.shape, self.padded(op.output)
        e = self.expressions.reduced(op.value, logical)
        if e.constant is not None:
            return Tile(str(e.constant), value=e.constant)
        if self.wide or self.expressions.below(e, logical, 1 << 31):
            text = f"tl.cast({self.expressions.text(e, logical, padded)}, tl.int64)"
        else:
            text = self.expressions.text64(e, logical, padded)
        axes = frozenset({t.ROW, t.COLUMN}.intersection(e.symbols()))
        return Tile(self.fresh(text), shape_along(axes, padded))

    def _in_bounds(self, op: t.InBounds) -> Tile:
        logical, padded = op.output.tile.shape, self.padded(op.output)
        masks = self.expressions.mask(op.where, logical, padded)
        if not masks:
            return Tile("True", value=True)
        axes = frozenset[str]().union(*(along for _, along in masks))
        text = conjunction([m for m, _ in masks])
        if not axes:
            text = f"tl.cast({text}, tl.int1)"
        return Tile(self.fresh(text), shape_along(axes, padded))

    def _map(self, op: t.Map) -> Tile:
        values = op.operand_values
        dtype = values[0].tile.dtype
        spelled = f.spell(op.function, dtype, self.atoms(values))
        if spelled is None:
            raise self.refuse(op, f"the function {op.function} of {dtype} is not known")
        self.needs.update(dict.fromkeys(spelled.needs))
        return Tile(self.fresh(spelled.text), self.common(values))

    def _select(self, op: t.Select) -> Tile:
        condition = self.tiles[op.condition]
        if condition.value is not None:
            return self.tiles[op.x if condition.value else op.y]
        x, y = self.atoms([op.x, op.y])
        return Tile(
            self.fresh(f"tl.where({condition.text}, {x}, {y})"),
            self.common([op.condition, op.x, op.y]),
        )

    def _tile_cast(self, op: t.TileCast) -> Tile:
        source = op.x.tile.dtype
        if source == op.to:
            return self.tiles[op.x]
        tile = self.tiles[op.x]
        text = self.fresh(f.cast(self.atom(op.x, bare=False), source, op.to))
        rows, cols = tile.shape if tile.value is None else (1, 1)
        if source.is_float and op.to.is_integer:  # the ends of the range are tiles
            rows, cols = max(rows, 1), max(cols, 1)
        return Tile(text, (rows, cols), zero=tile.zero)

    def _tile_transpose(self, op: t.Transpose) -> Tile:
        tile = self.tiles[op.x]
        if max(tile.shape) <= 1:
            return tile
        rows, cols = tile.shape
        return Tile(
            self.fresh(f"tl.trans({tile.text})"), (cols, rows), zero=(tile.zero[1], tile.zero[0])
        )

    def _stage(self, op: t.Stage) -> Tile:
        return self.tiles[op.x]

    # ---- reductions and dots

    def _reduce(self, op: t.Reduce) -> Tile:
        kind, axis = op.x.tile, op.axis
        if kind.shape[axis] == 1:
            return self.tiles[op.x]
        text = self.masked(op.x, axis, identity(op.function, kind.dtype))
        self.needs[f"{op.function}_of"] = None
        if kind.dtype.is_bool:
            text = f"tl.cast({text}, tl.int32)"
        text = f"tl.reduce({text}, {axis}, {op.function}_of, keep_dims=True)"
        if kind.dtype.is_bool:
            text += " != 0"
        rows, cols = self.padded(op.x)
        return Tile(self.fresh(text), (rows, 1) if axis == 1 else (1, cols))

    def _dot(self, op: t.Dot) -> Tile:
        dtype = op.output.tile.dtype
        a, b = _narrow(op.a), _narrow(op.b)
        if a.tile.dtype != b.tile.dtype:
            a, b = op.a, op.b
        eights = dtype == I32 and a.tile.dtype == I8 and b.tile.dtype == I8
        if op.a.tile.cols == 1 or not (dtype.is_float or eights):
            return self._products(op, dtype)
        zero = 0.0 if dtype.is_float else 0
        left, right = self.masked(a, 1, zero), self.masked(b, 0, zero)
        accumulator = f", {self.whole(op.accumulator)}" if op.accumulator else ""
        options = f', input_precision="{self.precision}"'
        if dtype != F32:
            options = f", out_dtype={f.name_of(dtype)}"
        text = self.fresh(f"tl.dot({left}, {right}{accumulator}{options})")
        return Tile(text, self.padded(op.output))

    def _products(self, op: t.Dot, dtype: DType) -> Tile:
        """A dot without tensor cores: one product, or integers, which wrap."""
        kind = f.name_of(dtype)
        if op.a.tile.cols == 1:
            a, b = self.atom(op.a, bare=False), self.atom(op.b, bare=False)
            text = f"tl.cast({a}, {kind}) * tl.cast({b}, {kind})"
        else:
            a, b = self.masked(op.a, 1, 0), self.masked(op.b, 0, 0)
            a, b = self.fresh(f"tl.cast({a}, {kind})"), self.fresh(f"tl.cast({b}, {kind})")
            self.needs["sum_of"] = None
            text = f"tl.reduce({a}[:, :, None] * {b}[None, :, :], 1, sum_of)"
        if op.accumulator is not None:
            text = f"{self.atom(op.accumulator, bare=False)} + {text}"
        text = self.fresh(text)
        shape = self.padded(op.output)
        return Tile(self.fresh(f"tl.broadcast_to({text}, {shape})"), shape)

    # ---- control

    def _for(self, op: t.For) -> None:
        names = [self.fresh(self.whole(v)) for v in op.inits]
        for value, name in zip(op.do.args, names, strict=True):
            self.tiles[value] = Tile(name, self.padded(value))
        start, stop = (self.expressions.text(e, (1, 1), (1, 1)) for e in (op.start, op.stop))
        fixed = isinstance(normal(op.start), int) and isinstance(normal(op.stop), int)
        kind = "tl.static_range" if op.unroll and fixed else "range"
        step = f", {op.step}" if op.step != 1 else ""
        self.write(f"for {op.index} in {kind}({start}, {stop}{step}):")
        self.depth += 1
        if self.wide:
            self.write(f"{op.index} = tl.cast({op.index}, tl.int64)")
        with self.expressions.loop(op):
            first = len(self.lines)
            self.block(op.do)
            yields = [self.whole(v) for v in op.do.terminator.inputs]
            if yields:
                self.write(f"{', '.join(names)} = {', '.join(yields)}")
            elif len(self.lines) == first:
                self.write("pass")
        self.depth -= 1
        for value, name in zip(op.results, names, strict=True):
            self.tiles[value] = Tile(name, self.padded(value))


def _without_unused(lines: list[str]) -> list[str]:
    """The lines without values that no other line uses."""
    uses = Counter(name for line in lines for name in re.findall(r"\bv\d+\b", line))
    kept: list[str] = []
    for line in reversed(lines):
        made = re.match(r" *(v\d+) = ", line)
        if made and uses[made[1]] == 1:
            uses.subtract(re.findall(r"\bv\d+\b", line))
        else:
            kept.append(line)
    return kept[::-1]


def _narrow(value: Value) -> Value:
    """The f16 or bf16 tile that a value is the exact f32 image of, else the value."""
    producer = value.producer
    if not isinstance(producer, t.TileCast) or value.tile.dtype != F32:
        return value
    narrow = producer.x.tile.dtype
    return producer.x if narrow in (F16, BF16) else value


__all__ = ["PRECISIONS", "print_kernel", "print_module"]
