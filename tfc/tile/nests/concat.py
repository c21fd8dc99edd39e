"""Joining tensors along an axis: each part goes to its place, with what is fused before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr, normal, product
from tfc.ir.types import TensorType
from tfc.tile.build import C
from tfc.tile.nest import Nest, padding_bounds, physical_index
from tfc.tile.nests.runs import Run, expressions_of, find_runs, join_runs
from tfc.tile.nests.schedule import MapSchedule


def concat(
    name: str, group: Block, parts: Sequence[Value], axis: int, schedule: MapSchedule
) -> Kernel:
    """The only output of the group is the parts one after the other along `axis`.

    In a blocked layout the parts are whole blocks.
    """
    nest = Nest(name, group)
    kind = nest.outputs[0].tensor
    cut = _outer_level(kind, axis)
    outer = [nest.over_grid(n) for n in kind.physical[:cut]]
    start: Dim = 0
    for number, part in enumerate(parts):
        _copy(nest, group, number, part, axis, start, outer, schedule.cols)
        start = normal(as_expr(start) + part.tensor.shape[axis])
    return nest.kernel


def _outer_level(kind: TensorType, axis: int) -> int:
    """The level of the array in memory at which the parts follow each other."""
    if kind.layout is None:
        return axis
    return kind.layout.loops.index((axis, 0))


def _copy(
    nest: Nest,
    group: Block,
    number: int,
    part: Value,
    axis: int,
    start: Dim,
    outer: Sequence[Expr],
    cols: int,
) -> None:
    """Loops over the levels of one part behind the outer ones, those that lie together as one."""
    kind = part.tensor
    sizes = kind.physical
    prefix = f"z{number}_"
    coordinates = [nest.axis(f"{prefix}{i}", n) for i, n in enumerate(sizes)]
    for i, e in enumerate(outer):
        nest.place(**{f"{prefix}{i}": e})
    runs = _runs(group, part, axis, start, len(outer))
    names = join_runs(nest, runs, prefix)
    index = physical_index(kind, coordinates)
    target = list(index)
    target[axis] = target[axis] + start
    size = min(cols, runs[-1].extent) if isinstance(runs[-1].extent, int) else cols

    def write() -> None:
        with nest.guarded(*padding_bounds(kind, index)):
            nest.write_tile(0, target, nest.pull(part, index))

    nest.tile(1, max(size, 1))
    _loops(nest, list(zip(names, (r.extent for r in runs), strict=True)), write)


def _loops(nest: Nest, levels: Sequence[tuple[str, Dim]], write: Callable[[], None]) -> None:
    """Places axes at loop variables, the last of them along the columns of tiles."""
    if not levels:
        write()
        return
    (name, extent), *inner = levels
    step = 1 if inner else nest.cols

    def body(i: Expr) -> None:
        place = i + (C if step > 1 else 0)
        with nest.ranged(i, 0, extent, step), nest.placed(**{name: place}):
            _loops(nest, inner, write)

    nest.loop(0, extent, step, [], body)


def _runs(group: Block, part: Value, axis: int, start: Dim, outer: int) -> list[Run]:
    """The runs of the levels behind the outer ones that reading the part and writing it allow."""
    trial = Nest("trial", group)
    kind = part.tensor
    sizes = kind.physical
    index = physical_index(kind, [trial.axis(f"y{i}", n) for i, n in enumerate(sizes)])
    target = list(index)
    target[axis] = target[axis] + start
    with trial.guarded(*padding_bounds(kind, index)):
        trial.write_tile(0, target, trial.pull(part, index))
    found = find_runs(trial, sizes, expressions_of(trial))
    runs: list[Run] = []
    for run in found:
        axes = tuple(a for a in run.axes if a >= outer)
        if axes:
            runs.append(Run(axes, product([sizes[a] for a in axes])))
    return runs
