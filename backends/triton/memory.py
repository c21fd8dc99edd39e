"""Loads, stores and checks of indices as Triton text."""

from __future__ import annotations

from tfc.backends.triton import functions as f
from tfc.backends.triton.expressions import conjunction, grouped, padding
from tfc.backends.triton.source import ErrorSite
from tfc.backends.triton.tiles import SCALAR, Shape, Tile, Writer, axes_of, offset, shape_along
from tfc.ir.core import Kernel, Value
from tfc.ir.expr import Dim
from tfc.tile import ops as t


class Memory(Writer):
    """Writes what touches memory; `sites` are the checks of indices so far."""

    def __init__(self, kernel: Kernel, wide: bool) -> None:
        super().__init__(kernel, wide)
        self.sites: list[ErrorSite] = []

    def _load(self, op: t.Load) -> Tile:
        logical, padded = op.output.tile.shape, self.padded(op.output)
        at, axes = self._address(op.at, logical, padded)
        least = SCALAR
        for index, stride in zip(op.indices, op.strides, strict=True):
            text, extra = self._gathered(index, stride)
            at, axes = f"{at} + {text}", axes | extra
            least = max(least, min(self.tiles[index].shape, (1, 1)))
        masks = self.expressions.mask(op.where, logical, padded)
        masks += self._padding(axes, logical, padded)
        zero = t.ROW in axes and op.other == 0, t.COLUMN in axes and op.other == 0
        every = axes.union(*(along for _, along in masks))
        pointer = offset(op.buffer.name, at)
        if every != axes:
            pointer = f"{pointer} + tl.full({shape_along(every, padded)}, 0, tl.int32)"
        inside = conjunction([m for m, _ in masks])
        mask = f", mask={inside}, other={f.literal(op.other)}" if inside else ""
        shape = shape_along(every, padded) if every else least
        return Tile(self.fresh(f"tl.load({pointer}{mask})"), shape, zero=zero)

    def _address(self, at: Dim, logical: Shape, padded: Shape) -> tuple[str, frozenset[str]]:
        e = self.expressions.reduced(at, logical)
        axes = frozenset({t.ROW, t.COLUMN}.intersection(e.symbols()))
        return self.expressions.text(e, logical, padded), axes

    def _gathered(self, index: Value, stride: Dim) -> tuple[str, frozenset[str]]:
        tile = self.tiles[index]
        scale = self.expressions.text(stride, (1, 1), (1, 1))
        text = tile.text if self.wide else f"tl.cast({tile.text}, tl.int32)"
        along = zip((t.ROW, t.COLUMN), tile.shape, strict=True)
        axes = frozenset(a for a, n in along if n > 1)
        return (text if scale == "1" else f"{text}*{grouped(scale)}"), axes

    def _padding(
        self, axes: frozenset[str], logical: Shape, padded: Shape
    ) -> list[tuple[str, frozenset[str]]]:
        """The comparisons that keep accesses out of the padding of these axes."""
        out: list[tuple[str, frozenset[str]]] = []
        for letter, n, p in zip((t.ROW, t.COLUMN), logical, padded, strict=True):
            if letter in axes and n != p:
                out += padding(self.expressions.axis(letter, p), letter, n, p)
        return out

    def _store(self, op: t.Store) -> None:
        logical, padded = op.value.tile.shape, self.padded(op.value)
        at, axes = self._address(op.at, logical, padded)
        tile = self.tiles[op.value]
        masks = self.expressions.mask(op.where, logical, padded)
        masks += self._padding(axes, logical, padded)
        every = axes.union(axes_of(tile.shape), *(along for _, along in masks))
        pointer = offset(op.buffer.name, at)
        if every != axes or (not axes and tile.shape != SCALAR):
            shape = shape_along(every, padded) if every else (1, 1)
            pointer = f"{pointer} + tl.full({shape}, 0, tl.int32)"
        inside = conjunction([m for m, _ in masks])
        mask = f", mask={inside}" if inside else ""
        self.write(f"tl.store({pointer}, {tile.text}{mask})")

    def _wrap_index(self, op: t.WrapIndex) -> Tile:
        logical, padded = op.x.tile.shape, self.padded(op.x)
        tile = self.tiles[op.x]
        x = self.atom(op.x, bare=False)
        size = self.expressions.text(op.size, (1, 1), (1, 1))
        wrapped = self.fresh(f"tl.where({x} < 0, {x} + {size}, {x})")
        masks = self.expressions.mask(op.where, logical, padded)
        shape = tile.shape if tile.value is None else (1, 1)
        masks += self._padding(axes_of(shape), logical, padded)
        axes = axes_of(shape).union(*(along for _, along in masks))
        checked = conjunction([m for m, _ in masks])
        inside = self.fresh(f"({wrapped} >= 0) & ({wrapped} < {size})")
        wrong = f"~{inside} & {checked}" if checked else f"~{inside}"
        self._report(op, x, self.fresh(wrong), shape_along(axes, padded) if axes else shape)
        good = f"{inside} & {checked}" if checked else inside
        text = self.fresh(f"tl.where({good}, {wrapped}, 0)")
        return Tile(text, shape_along(axes, padded) if axes else shape)

    def _report(self, op: t.WrapIndex, x: str, wrong: str, shape: Shape) -> None:
        """Writes a flag and the index to this op's place in the error buffer."""
        place = 2 * len(self.sites)
        self.sites.append(ErrorSite(op.node, op.size))
        zeros = f" + tl.full({shape}, 0, tl.int32)" if shape != SCALAR else ""
        self.write(f"tl.store(errors + {place + 1}{zeros}, {x}, mask={wrong})")
        self.write(f"tl.store(errors + {place}{zeros}, 1, mask={wrong})")
