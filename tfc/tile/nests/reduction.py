"""Reductions over axes, several over the same axes in one kernel: sums, softmax, normalisations.

The domain is the shape that is reduced. Where its innermost axis is reduced, a tile holds rows of
it and is reduced along the columns; else the lanes stay on the kept innermost axis and the reduced
axes lie on the rows and in loops.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr, symbol
from tfc.ir.types import I64, TensorType
from tfc.tile.build import C, R
from tfc.tile.nest import Nest, computed_in, padding_bounds, physical_index
from tfc.tile.nests.identity import identity
from tfc.tile.nests.runs import Run, expressions_of, find_runs, join_runs, split_extent
from tfc.tile.nests.schedule import ColumnSchedule, RowSchedule, check_fit

COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}
HEAVY = ("exp", "expm1", "log", "log1p", "erf", "tanh", "sigmoid", "softplus", "pow", "div")


@dataclass(frozen=True)
class Reduction:
    """One reduction of a group. `function` is sum, prod, max, min, argmax or argmin."""

    result: Value
    x: Value
    function: str
    axes: tuple[int, ...]
    keepdims: bool
    last: bool = False  # argmax and argmin: of equal elements the last

    def index(self, at: Sequence[Expr]) -> list[Expr]:
        """The index of the result, given that of an element of the domain."""
        if self.keepdims:
            return [as_expr(0) if a in self.axes else e for a, e in enumerate(at)]
        return [e for a, e in enumerate(at) if a not in self.axes]


@dataclass
class Domain:
    """The axes of what is reduced, merged to runs; `index` is the logical index of an element."""

    kind: TensorType
    index: list[Expr]
    kept: list[tuple[str, Dim]]
    reduced: list[tuple[str, Dim]]
    innermost_reduced: bool


def reduction(
    name: str, group: Block, reductions: Sequence[Reduction], schedule: RowSchedule | ColumnSchedule
) -> Kernel:
    """A kernel of all reductions of a group, of one domain and axes, and what follows."""
    runs = domain_runs(name, group, reductions)
    nest = Nest(name, group)
    domain = _domain(nest, reductions[0], runs)
    if isinstance(schedule, RowSchedule):
        check_fit(domain.innermost_reduced, "`stage` is for reductions of the innermost axis")
        _along_columns(nest, domain, reductions, schedule)
    else:
        check_fit(not domain.innermost_reduced, "the innermost axis is reduced: it needs `stage`")
        _along_rows(nest, domain, reductions, schedule)
    return nest.kernel


def domain_runs(name: str, group: Block, reductions: Sequence[Reduction]) -> list[Run]:
    """The runs of the domain's axes in memory; kept and reduced ones do not merge."""
    nest = Nest(name, group)
    kind = reductions[0].x.tensor
    sizes = kind.physical
    index = physical_index(kind, [nest.axis(f"y{i}", n) for i, n in enumerate(sizes)])
    nest.guards.extend(padding_bounds(kind, index))
    for r in reductions:
        nest.bind(r.result, r.index(index), _dummy(nest, r))
        nest.pull(r.x, index)
    for number, value in enumerate(nest.outputs):
        nest.write(number, output_index(value, reductions[0], index))
    fused = find_runs(nest, sizes, expressions_of(nest))
    reduced = _reduced_axes(reductions[0])
    out: list[Run] = []
    for run in fused:
        parts: list[list[int]] = []
        for axis in run.axes:
            if parts and (axis in reduced) == (parts[-1][-1] in reduced):
                parts[-1].append(axis)
            else:
                parts.append([axis])
        for axes in parts:
            extent: Expr = as_expr(1)
            for axis in axes:
                extent = extent * sizes[axis]
            out.append(Run(tuple(axes), extent if extent.constant is None else extent.constant))
    return out


def _dummy(nest: Nest, r: Reduction) -> Value:
    return nest.full((1, 1), 0, computed_in(r.result.tensor.dtype))


def _reduced_axes(r: Reduction) -> set[int]:
    """The axes of the array in memory that are reduced."""
    layout = r.x.tensor.layout
    if layout is None:
        return set(r.axes)
    assert not set(layout.blocks) & set(r.axes), "a blocked axis is not reduced"
    return {i for i, (axis, _) in enumerate(layout.loops) if axis in r.axes}


def output_index(value: Value, r: Reduction, index: list[Expr]) -> list[Expr]:
    """The index of an output: an element of the domain, or a result of the reduction."""
    rank = value.tensor.rank
    if value.tensor.shape == r.x.tensor.shape and rank == len(index):
        return index
    if rank == len(index):
        return [as_expr(0) if a in r.axes else e for a, e in enumerate(index)]
    return [e for a, e in enumerate(index) if a not in r.axes]


def _domain(nest: Nest, r: Reduction, runs: Sequence[Run]) -> Domain:
    kind = r.x.tensor
    reduced_axes = _reduced_axes(r)
    index = physical_index(kind, [nest.axis(f"y{i}", n) for i, n in enumerate(kind.physical)])
    nest.guards.extend(padding_bounds(kind, index))
    names = join_runs(nest, runs)
    kept: list[tuple[str, Dim]] = []
    reduced: list[tuple[str, Dim]] = []
    for name, run in zip(names, runs, strict=True):
        (reduced if run.axes[-1] in reduced_axes else kept).append((name, run.extent))
    innermost = bool(runs) and runs[-1].axes[-1] in reduced_axes
    return Domain(kind, index, kept, reduced, innermost)


# ---- the innermost axis is reduced: rows on the rows, elements along the columns


def _along_columns(
    nest: Nest, domain: Domain, reductions: Sequence[Reduction], schedule: RowSchedule
) -> None:
    name, extent = domain.reduced[-1]
    whole = schedule.cols == 0
    single = isinstance(extent, int) and len(domain.reduced) == 1
    check_fit(single or not whole, "only rows of one axis of known size are one tile: give `cols`")
    cols = extent if whole and isinstance(extent, int) else schedule.cols
    nest.tile(schedule.rows, cols)
    _place_kept(nest, domain.kept, schedule.rows, R)
    if whole:
        nest.place(**{name: C})
        _whole_rows(nest, domain, reductions, schedule.stage)
        return
    for r in reductions:
        nest.bind(r.result, r.index(domain.index), _accumulate(nest, domain, r, C, cols, 1))
    _write_outputs(nest, domain, reductions[0], C, cols)


def _whole_rows(nest: Nest, domain: Domain, reductions: Sequence[Reduction], stage: bool) -> None:
    """Each row is one tile, so that what is computed once serves reductions and outputs."""
    for r in reductions:
        x = nest.pull(r.x, domain.index)
        x = nest.spread(x, (x.tile.rows, nest.cols))
        if stage and len(r.x.uses) > 1 and _is_heavy(r.x):
            x = nest.stage(x)
            nest.bind(r.x, domain.index, x)
        nest.bind(
            r.result,
            r.index(domain.index),
            _combine_lanes(nest, r, x, _positions(nest, domain, r), 1),
        )
    for number, value in enumerate(nest.outputs):
        nest.write(number, output_index(value, reductions[0], domain.index))


def _is_heavy(value: Value) -> bool:
    """Whether the value is costly to compute again."""
    op = value.producer
    if op is None:
        return False
    return getattr(op, "function", "") in HEAVY or any(_is_heavy(v) for v in op.inputs)


# ---- the innermost axis is kept: it lies along the columns


def _along_rows(
    nest: Nest, domain: Domain, reductions: Sequence[Reduction], schedule: ColumnSchedule
) -> None:
    rows = schedule.rows if domain.reduced else 1
    nest.tile(rows, schedule.cols)
    _place_kept(nest, domain.kept, schedule.cols, C)
    for r in reductions:
        nest.bind(r.result, r.index(domain.index), _accumulate(nest, domain, r, R, rows, 0))
    _write_outputs(nest, domain, reductions[0], R, rows)


# ---- shared


def _place_kept(nest: Nest, kept: Sequence[tuple[str, Dim]], tile: int, lane: Expr) -> None:
    """The last kept axis goes to the tile, the others to the grid."""
    for i, (name, extent) in enumerate(kept):
        size = tile if i == len(kept) - 1 else 1
        program = nest.over_grid(split_extent(extent, size))
        nest.place(**{name: program * size + (lane if size > 1 else 0)})


def _positions(nest: Nest, domain: Domain, r: Reduction) -> Value | None:
    """The position along the reduced axis of each element, for argmax and argmin."""
    if not r.function.startswith("arg"):
        return None
    (axis,) = r.axes
    return nest.index_tile(domain.index[axis])


@contextmanager
def _reduced_tile(
    nest: Nest, domain: Domain, variables: Sequence[Expr], lane: Expr, size: int
) -> Generator[None]:
    """Places the reduced axes at loop variables, the last of them along a tile axis."""
    places: dict[str, Dim] = {}
    for (name, _), i in zip(domain.reduced[:-1], variables[:-1], strict=True):
        places[name] = i
    if domain.reduced:
        places[domain.reduced[-1][0]] = variables[-1] + (lane if size > 1 else 0)
    with nest.placed(**places):
        yield


def _loops(
    nest: Nest,
    domain: Domain,
    size: int,
    inits: Sequence[Value],
    body: Callable[[list[Expr], list[Value]], Sequence[Value]],
) -> list[Value]:
    """Loops over all reduced axes, the last by tiles of `size`."""

    def nested(level: int, variables: list[Expr], carried: list[Value]) -> list[Value]:
        if level == len(domain.reduced):
            with nest.scope():
                return list(body(variables, carried))
        _, extent = domain.reduced[level]
        step = size if level == len(domain.reduced) - 1 else 1

        def inner(i: Expr, *values: Value) -> list[Value]:
            if not i.symbols():
                return nested(level + 1, [*variables, i], list(values))
            with nest.ranged(i, 0, extent, step):
                return nested(level + 1, [*variables, i], list(values))

        return nest.loop(0, extent, step, carried, inner)

    return nested(0, [], list(inits))


def _accumulate(
    nest: Nest, domain: Domain, r: Reduction, lane: Expr, size: int, axis: int
) -> Value:
    """Partial results element by element over all tiles, then across the tile."""
    shape = _partial_shape(nest, domain, r, lane, size)
    kind = computed_in(r.x.tensor.dtype)
    base = r.function.removeprefix("arg")
    start = identity(base, r.x.tensor.dtype)
    inits = [nest.full(shape, start, kind)]
    if r.function.startswith("arg"):
        inits.append(nest.full(shape, 0, I64))

    def body(variables: list[Expr], carried: list[Value]) -> list[Value]:
        with _reduced_tile(nest, domain, variables, lane, size):
            x = nest.pull(r.x, domain.index)
            inside = nest.mask(_reduced_bounds(domain))
            if inside is not None:
                x = nest.select(inside, x, nest.full((1, 1), start, kind))
            x = nest.spread(x, shape)
            if len(carried) == 1:
                return [nest.map(COMBINE[base], carried[0], x)]
            return _better(nest, r, carried, x, _positions(nest, domain, r), inside)

    out = _loops(nest, domain, size, inits, body)
    return _combine_lanes(nest, r, out[0], out[1] if len(out) > 1 else None, axis)


def _partial_shape(
    nest: Nest, domain: Domain, r: Reduction, lane: Expr, size: int
) -> tuple[int, int]:
    with _reduced_tile(nest, domain, [as_expr(0)] * len(domain.reduced), lane, size):
        at = [nest.settle(e) for e in domain.index]
    return nest.shape(*at)


def _reduced_bounds(domain: Domain) -> list[tuple[Expr, Expr, Expr]]:
    return [(as_expr(0), symbol(name), as_expr(extent)) for name, extent in domain.reduced]


def _better(
    nest: Nest,
    r: Reduction,
    carried: list[Value],
    x: Value,
    position: Value | None,
    inside: Value | None,
) -> list[Value]:
    """Keeps for each element the best so far and its position; NaN is better than any number."""
    best, where = carried
    assert position is not None
    compare = ("greater" if r.function == "argmax" else "less") + ("_equal" if r.last else "")
    better = nest.map(compare, x, best)
    if x.tile.dtype.is_float:
        nan = nest.map("is_nan", x)
        old = nest.map("is_nan", best)
        new_nan = nan if r.last else nest.map("and", nan, nest.map("not", old))
        better = nest.map("or", new_nan, nest.map("and", better, nest.map("not", old)))
    if inside is not None:
        better = nest.map("and", better, inside)
    return [
        nest.select(better, x, best),
        nest.select(better, nest.spread(position, x.tile.shape), where),
    ]


def _combine_lanes(nest: Nest, r: Reduction, x: Value, position: Value | None, axis: int) -> Value:
    """The result of a tile along the reduced axis."""
    base = r.function.removeprefix("arg")
    best = x if _extent(x, axis) == 1 else nest.reduce(base, x, axis)
    if position is None:
        return best
    if _extent(x, axis) == 1:
        return position
    hit = nest.map("equal", x, best)
    if x.tile.dtype.is_float:
        hit = nest.map("or", hit, nest.map("and", nest.map("is_nan", x), nest.map("is_nan", best)))
    edge = identity("max" if r.last else "min", I64)
    position = nest.select(hit, nest.spread(position, x.tile.shape), nest.full((1, 1), edge, I64))
    return nest.reduce("max" if r.last else "min", position, axis)


def _extent(x: Value, axis: int) -> int:
    return x.tile.cols if axis == 1 else x.tile.rows


def _write_outputs(nest: Nest, domain: Domain, r: Reduction, lane: Expr, size: int) -> None:
    """Reduced outputs once, those of the domain's shape for every element."""
    full = [
        n for n, v in enumerate(nest.outputs) if output_index(v, r, domain.index) is domain.index
    ]
    for number, value in enumerate(nest.outputs):
        if number not in full:
            nest.write(number, output_index(value, r, domain.index))

    def body(variables: list[Expr], carried: list[Value]) -> list[Value]:
        with _reduced_tile(nest, domain, variables, lane, size):
            for number in full:
                nest.write(number, domain.index)
        return carried

    if full:
        _loops(nest, domain, size, [], body)
