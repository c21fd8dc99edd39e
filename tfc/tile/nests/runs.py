"""Which axes of an output every access walks as one: they merge into one longer axis, a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfc.ir.core import Block
from tfc.ir.expr import Dim, Expr, ceildiv, normal, product, symbol
from tfc.tile.nest import Nest, coefficient, physical_index


@dataclass(frozen=True)
class Run:
    """Adjacent axes that count as one; the last of them is placed for all."""

    axes: tuple[int, ...]
    extent: Dim


def find_runs(nest: Nest, sizes: Sequence[Dim], accesses: Iterable[Expr]) -> list[Run]:
    """Merges the axes y0, y1, ... of `sizes` as far as all accesses allow."""
    expressions = list(dict.fromkeys(accesses))
    runs: list[list[int]] = []
    for axis in range(len(sizes)):
        if runs and all(_merges(e, axis - 1, axis, sizes[axis]) for e in expressions):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return [Run(tuple(axes), product([sizes[a] for a in axes])) for axes in runs]


def _merges(e: Expr, outer: int, inner: int, size: Dim) -> bool:
    a, b = coefficient(e, f"y{outer}"), coefficient(e, f"y{inner}")
    return a is not None and b is not None and a == b * size


def trace(name: str, group: Block, number: int) -> list[Expr]:
    """The expressions over the axes y0, y1, ... of an output that its accesses use."""
    nest = Nest(name, group)
    kind = nest.outputs[number].tensor
    for i, extent in enumerate(kind.physical):
        nest.axis(f"y{i}", extent)
    coordinates = [symbol(f"y{i}") for i in range(len(kind.physical))]
    nest.write(number, physical_index(kind, coordinates))
    return expressions_of(nest)


def expressions_of(nest: Nest) -> list[Expr]:
    """Every index expression of the ops built so far."""
    found: list[Expr] = []
    for op in nest.kernel.body.walk():
        for value in op.attributes.values():
            values = value if isinstance(value, tuple) else (value,)
            found.extend(v for v in values if isinstance(v, Expr))
    return found


def join_runs(nest: Nest, runs: Sequence[Run], axis: str = "y") -> list[str]:
    """Joins the axes `y0`, `y1`, ... of each run; the names that place them."""
    names: list[str] = []
    for run in runs:
        nest.join([f"{axis}{a}" for a in run.axes], run.extent)
        names.append(f"{axis}{run.axes[-1]}")
    return names


def split_extent(extent: Dim, tile: int) -> Dim:
    """How many tiles cover an extent."""
    return normal(ceildiv(extent, tile))
