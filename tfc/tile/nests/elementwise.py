"""Elementwise kernels: maps, moves, gathers; every output element by itself."""

from __future__ import annotations

from collections.abc import Sequence

from tfc.ir.core import Block, Kernel
from tfc.ir.expr import Dim, Expr
from tfc.tile.build import C, R
from tfc.tile.nest import Nest, padding_bounds, physical_index
from tfc.tile.nests.runs import Run, find_runs, join_runs, split_extent, trace
from tfc.tile.nests.schedule import MapSchedule


def elementwise(name: str, group: Block, schedule: MapSchedule) -> Kernel:
    """A kernel that computes each element of the outputs, which have one shape, from its index."""
    nest = Nest(name, group)
    kind = nest.outputs[0].tensor
    runs = output_runs(name, group)
    coordinates = [nest.axis(f"y{i}", n) for i, n in enumerate(kind.physical)]
    names = join_runs(nest, runs)
    place_tiles(nest, names, [r.extent for r in runs], schedule.rows, schedule.cols)
    index = physical_index(kind, coordinates)
    with nest.guarded(*padding_bounds(kind, index)):
        for number in range(len(nest.outputs)):
            nest.write(number, index)
    return nest.kernel


def output_runs(name: str, group: Block) -> list[Run]:
    """The runs that the accesses of all outputs allow."""
    nest = Nest(name, group)
    sizes = nest.outputs[0].tensor.physical
    accesses = [e for n in range(len(nest.outputs)) for e in trace(name, group, n)]
    return find_runs(nest, sizes, accesses)


def place_tiles(
    nest: Nest, names: Sequence[str], extents: Sequence[Dim], rows: int, cols: int
) -> None:
    """Puts the last axis on the columns, the one before on the rows, the others on the grid."""
    count = len(names)
    rows = rows if count > 1 else 1
    cols = cols if count > 0 else 1
    programs: list[Expr] = []
    for i, extent in enumerate(extents):
        tile = {count - 1: cols, count - 2: rows}.get(i, 1)
        programs.append(nest.over_grid(split_extent(extent, tile)))
    nest.tile(rows, cols)
    for i, name in enumerate(names):
        if i == count - 1:
            nest.place(**{name: programs[i] * cols + (C if cols > 1 else 0)})
        elif i == count - 2:
            nest.place(**{name: programs[i] * rows + (R if rows > 1 else 0)})
        else:
            nest.place(**{name: programs[i]})
