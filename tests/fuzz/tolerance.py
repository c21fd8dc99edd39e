"""How far compiled results may lie from the interpreter's: what rounding does to each graph.

The graph runs several times with every rounding replaced by a random one: each op's result moves by
as much as compiled code may round it differently, sums by what another order of their terms can do.
How far outputs move is their tolerance; one that jumps between trials (to another integer, to
NaN or infinity) is not compared. So moves of data stay exact, and what is ill-conditioned is known
to be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfc.interpret import Run, Symbols, _input_arrays, bind_symbols, evaluated
from tfc.ir.builder import Builder
from tfc.ir.core import Block, Module, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.types import DType, dtype_of
from tfc.ops.attention import Attention
from tfc.ops.base import GraphOp, View
from tfc.ops.cast import Cast
from tfc.ops.indexing import Indexing

Array = np.ndarray[Any, Any]

TRIALS, MORE_TRIALS = 3, 30
ROOM = 1e-3  # that factors which are folded into the terms of a sum may take
FACTOR, MORE_FACTOR = 6.0, 12.0  # of the largest move in the trials

ARITHMETIC = {"add", "sub", "mul", "div", "sqrt", "rsqrt", "reciprocal", "mod", "fmod", "iota"}
EXACT = {
    *(
        "neg",
        "abs",
        "sign",
        "floor",
        "ceil",
        "round",
        "is_nan",
        "where",
        "concat",
        "pad",
        "constant",
    ),
    *("reduce_max", "reduce_min", "max_pool", "maximum", "minimum", "cast", "equal", "not_equal"),
    *("less", "less_equal", "greater", "greater_equal"),
}
ANY_ZERO = {"maximum", "minimum", "reduce_max", "reduce_min", "max_pool", "reduce_sum", "matmul"}
ANY_ZERO |= {"conv", "average_pool", "cumsum", "attention", "mod"}
"""Ops whose zeros have a sign that is left open."""


@dataclass(frozen=True)
class Format:
    """A float type: its relative precision, smallest normal number, and that of its sums."""

    epsilon: float
    normal: float
    sum_epsilon: float
    sum_largest: float


def _format(dtype: DType) -> Format:
    import ml_dtypes

    own, wide = ml_dtypes.finfo(dtype.numpy), np.finfo("f8" if dtype.name == "f64" else "f4")
    epsilon, normal = float(own.eps), float(own.smallest_normal)
    return Format(epsilon, normal, float(wide.eps), float(wide.max))


FORMATS: dict[str, Format] = {}


def format_of(dtype: DType) -> Format:
    if dtype.name not in FORMATS:
        FORMATS[dtype.name] = _format(dtype)
    return FORMATS[dtype.name]


class NoisyRun(Run):
    """A run in which each rounding errs at random.

    16-bit floats are held as f32: kernels do so between the ops that they join. Every other run
    rounds the results of each op all the same, as if no two were joined. A `wide` run holds all
    floats as f64 and does not err: so do ops that became one, which overflow later or never. Sums
    whose terms exceed `room` times the largest float may overflow on the way.
    """

    def __init__(
        self,
        module: Module,
        symbols: Symbols,
        seed: int,
        casts: Collection[Op] = (),
        wide: bool = False,
        room: float = 1.0,
    ) -> None:
        super().__init__(module, symbols)
        self.room = room
        self.casts = casts
        self.generator = np.random.default_rng(seed)
        self.rounds = seed % 2 == 0 and not wide
        self.wide = wide

    def results(self, op: GraphOp) -> list[Array]:
        if op in self.casts and not self.rounds:
            return [self.values[op.inputs[0]]]
        found = super().results(op)
        if self.wide and isinstance(op, Cast) and op.to.is_float:
            return [self.values[op.inputs[0]].astype(np.float64)]
        if self.wide or op.regions or isinstance(op, View | Indexing):
            return found
        arrays = [self.values[v] for v in op.inputs]
        with np.errstate(all="ignore"):
            return [
                self._moved(op, arrays, np.asarray(a)) if v.tensor.dtype.is_float else a
                for v, a in zip(op.results, found, strict=True)
            ]

    def checked(self, op: GraphOp, value: Value, array: Array) -> Array:
        return held(array, self.wide)

    def _uniform(self, shape: tuple[int, ...]) -> Array:
        return self.generator.uniform(-1, 1, shape)

    def _moved(self, op: GraphOp, arrays: list[Array], array: Array) -> Array:
        dtype = op.results[0].tensor.dtype
        kind = format_of(dtype)
        moved = array.astype(np.float64)
        size = np.where(np.isfinite(moved), np.abs(moved), 0)
        if op.hero and op.name not in EXACT:
            moved += self._uniform(moved.shape) * kind.epsilon * size
            moved = self._reordered(op, arrays, moved, kind)
        elif op.name in ARITHMETIC:
            if op.name in ("add", "sub") and self.room < 1:
                # What ops become may round the addends, where the sum of these is exact.
                addends = [np.where(np.isfinite(a), np.abs(a), 0) for a in arrays]
                size = np.maximum(size, np.maximum(*addends))
            size = np.maximum(size, kind.normal)
            moved += self._uniform(moved.shape) * 1.5 * kind.epsilon * size
        elif op.name not in EXACT:
            moved += self._uniform(moved.shape) * 3 * kind.epsilon * size
            # What is smaller than a normal number may be flushed to 0.
            flush = (size < 2 * kind.normal) & (self.generator.random(moved.shape) < 0.5)
            moved = np.where(flush, np.copysign(0, moved), moved)
        if op.name in ANY_ZERO:
            flip = self.generator.random(moved.shape) < 0.5
            moved = np.where((moved == 0) & flip, -moved, moved)
        if self.rounds or isinstance(op, Cast):
            moved = moved.astype(dtype.numpy)
        return held(moved.astype(array.dtype))

    def _reordered(self, op: GraphOp, arrays: list[Array], moved: Array, kind: Format) -> Array:
        """What adding up in another order, or by fused operations, may change."""
        bare = evaluated(op, self.symbols)
        # In float64, so that what overflows on the way is seen.
        sizes = [a if a.dtype.kind in "iu" else np.abs(a.astype(np.float64)) for a in arrays]
        finite = [np.where(np.isfinite(a), a, 0) for a in sizes]
        size = np.asarray(_widened(bare, finite))
        terms = _terms(op, arrays, moved)
        error = kind.sum_epsilon * (1 + 0.5 * np.sqrt(terms)) * np.maximum(size, kind.normal)
        jump = self.generator.choice([np.nan, 1.0, -1.0], moved.shape)
        open_ = size * (terms if op.name == "average_pool" else 1) > kind.sum_largest * self.room
        if op.name == "conv":
            open_ = open_ | _pads_infinities(bare, arrays)
        if op.name == "reduce_prod":
            open_ = open_ | _leaves_range(bare, finite[0], kind)
        return np.where(open_, jump, moved + self._uniform(moved.shape) * error)


def held(array: Array, wide: bool = False) -> Array:
    """An array as a run holds it: 16-bit floats as f32, or all floats as f64."""
    dtype = dtype_of(array.dtype)
    if not dtype.is_float or (dtype.bits > 16 and not wide):
        return array
    return array.astype(np.float64 if wide else np.float32)


def _widened(op: GraphOp, arrays: list[Array]) -> Any:
    """An op's result in the element type of other operands than it was made for."""
    found = op.reference(*_with_absent(op, arrays))
    return found[0] if isinstance(found, tuple) else found


def _with_absent(op: GraphOp, arrays: list[Array]) -> list[Array | None]:
    given = iter(arrays)
    return [None if v is None else next(given) for v in op.operands]


def _pads_infinities(op: GraphOp, arrays: list[Array]) -> Array:
    """Where a weight that is no number meets padding, whose product with it code may leave out."""
    weight = (~np.isfinite(arrays[1].astype(np.float64))).astype(np.float64)
    bias = [np.zeros(a.shape) for a in arrays[2:]]
    met = np.asarray(_widened(op, [np.ones(arrays[0].shape), weight, *bias]))
    total = weight.sum(tuple(range(1, weight.ndim)))
    return met < total.reshape(-1, *[1] * (weight.ndim - 2))


def _leaves_range(op: GraphOp, sizes: Array, kind: Format) -> Array:
    """Where a product of some of the factors overflows or vanishes on the way."""
    sizes = np.where(sizes == 0, 1, sizes)
    most, least = (np.asarray(_widened(op, [f(sizes, 1.0)])) for f in (np.maximum, np.minimum))
    return (most > kind.sum_largest) | (least < 1 / kind.sum_largest)


def _terms(op: GraphOp, arrays: list[Array], result: Array) -> int:
    """How many terms an element of the result has."""
    match op.name:
        case "matmul":
            return arrays[0].shape[-1]
        case "conv":
            return arrays[1].size // max(arrays[1].shape[0], 1)
        case "average_pool":
            return int(np.prod(op.attributes["kernel"]))
        case "cumsum":
            return arrays[0].shape[op.attributes["axis"]]
        case "attention":
            return arrays[1].shape[-2] + arrays[1].shape[-1]
        case _:
            return arrays[0].size // max(result.size, 1)


def decomposed(module: Module) -> tuple[Module, set[Op]]:
    """A copy in which composites are spelt out, as compiled code computes them.

    Also the casts that end what attention is spelt with: its kernel need not round there.
    """
    from tfc.driver import clone_module
    from tfc.passes.base import PassContext, find_pass

    copy = clone_module(module)
    decompose, context = find_pass("decompose")(), PassContext()
    decompose.run(copy, context)
    casts: set[Op] = set()
    for op in [op for function in copy.functions.values() for op in function.body]:
        if isinstance(op, Attention):
            (result,) = op.decompose(Builder.before_op(op))
            if isinstance(result.producer, Cast):
                casts.add(result.producer)
            op.replace([result])
    decompose.run(copy, context)
    return copy, casts


@dataclass
class Expected:
    """What an output should be: `compared` elements are within `tolerance` of `value`."""

    value: Array
    compared: Array
    tolerance: Array


class Oracle:
    """What the outputs of a module should be for some inputs."""

    def __init__(
        self, module: Module, inputs: Mapping[str, Array], outputs: dict[str, Array]
    ) -> None:
        self.outputs = outputs
        self._inputs = inputs
        self._spelt, self._casts = decomposed(module)
        self._known: dict[tuple[int, bool], dict[str, Expected]] = {}

    def difference(self, name: str, found: Array, wide: bool = False) -> str:
        """Where an output is wrong, in words; empty where it is right.

        `wide`: several ops may have become one that computes in f64.
        """
        if not difference_of(self._expected(TRIALS, FACTOR, wide)[name], found):
            return ""
        return difference_of(self._expected(MORE_TRIALS, MORE_FACTOR, wide)[name], found)

    def compared(self) -> tuple[int, int]:
        """How many elements are compared, and how many there are."""
        known = list(next(iter(self._known.values()), {}).values())
        return sum(int(e.compared.sum()) for e in known), sum(e.value.size for e in known)

    def _expected(self, trials: int, factor: float, wide: bool) -> dict[str, Expected]:
        key = trials, wide
        if key not in self._known:
            room = ROOM if wide else 1.0
            runs = [self._trial(seed, room) for seed in range(trials)]
            runs += [self._trial(0, wide=True)] if wide else []
            self._known[key] = {
                name: expected_of(value, [r[name] for r in runs if r is not None], factor)
                for name, value in self.outputs.items()
            }
        return self._known[key]

    def _trial(self, seed: int, room: float = 1.0, wide: bool = False) -> dict[str, Array] | None:
        function = self._spelt.main
        arrays = _input_arrays(function, self._inputs)
        symbols = bind_symbols(self._spelt, function, arrays)
        run = NoisyRun(self._spelt, symbols, seed, self._casts, wide, room)
        given = (held(a, wide) for a in arrays)
        run.values.update(zip(function.body.args, given, strict=True))
        with np.errstate(all="ignore"), contextlib.suppress(TfcError):
            found = run.block(function.body)
            kinds = [v.tensor.dtype.numpy for v in function.body.terminator.inputs]
            outputs = [a.astype(k) for a, k in zip(found, kinds, strict=True)]
            return dict(zip(function.output_names, outputs, strict=True))
        return None  # an index that rounding moved out of range


def expected_of(value: Array, trials: list[Array], factor: float) -> Expected:
    if not dtype_of(value.dtype).is_float:
        same = np.ones(value.shape, bool)
        for t in trials:
            same &= t == value
        return Expected(value, same, np.zeros(value.shape))
    wide = value.astype(np.float64)
    compared, spread = np.ones(value.shape, bool), np.zeros(value.shape)
    with np.errstate(all="ignore"):
        for t in trials:
            other = t.astype(np.float64)
            finite = np.isfinite(wide) & np.isfinite(other)
            alike = (np.isnan(wide) & np.isnan(other)) | (wide == other)
            compared &= finite | alike
            spread = np.maximum(spread, np.where(finite, np.abs(other - wide), 0))
        moved = spread > 0
        kind = format_of(dtype_of(value.dtype))
        rounding = kind.epsilon * np.maximum(np.abs(wide), kind.normal)
        tolerance = np.where(moved, spread * factor + rounding, 0)
    return Expected(value, compared, tolerance)


def difference_of(expected: Expected, found: Array) -> str:
    value = expected.value
    if found.dtype != value.dtype or found.shape != value.shape:
        return f"it is {found.dtype}{list(found.shape)}, not {value.dtype}{list(value.shape)}"
    wrong = expected.compared & _differs(expected, found)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = f"{int(wrong.sum())} of {value.size} differ"
    near = f"within {expected.tolerance[place]:.3g}" if expected.tolerance[place] else "exactly"
    return f"{list(place)} is {found[place]}, not {value[place]} {near} ({count})"


def _differs(expected: Expected, found: Array) -> Array:
    value = expected.value
    if not dtype_of(value.dtype).is_float:
        return np.asarray(found != value)
    a, b = value.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= expected.tolerance)
    return ~(same | near)


__all__ = ["Block", "Expected", "NoisyRun", "Op", "Oracle"]
