"""`--validate`: interprets a module around each pass, and names the first that moved numbers.

Every function runs on random data and on edge cases (NaN, infinities, signed zeros, the limits of
integers), for a few bindings of the symbols. Variables begin with such data too, and count as
results. Data that the function itself refuses is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.interpret import bind_symbols, evaluated_type, interpret, state_of
from tfc.ir.core import Function, Module
from tfc.ir.errors import TfcError
from tfc.ir.expr import as_expr
from tfc.ir.types import DTYPES, DType, TensorType
from tfc.passes.manager import Instrument, Step

if TYPE_CHECKING:
    from tfc.ops.base import Array

SIZES = ((2, 3, 4, 5), (1, 1, 1, 1), (7, 7, 7, 7), (0, 2, 3, 1))  # of the symbols, in turn
MOST_BINDINGS = 2  # that a function runs with, of those that it takes
TOLERANCE = {
    "f64": 1e-9,
    "f32": 1e-4,
    "f16": 1e-2,
    "bf16": 6e-2,
}  # of an element and the usual size
EDGES = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 0.5, -2.5, 1e-40, 3.0, -7.25]


class NumbersMoved(TfcError):
    """A pass changed what a function computes."""

    exit_code = 1


@dataclass(frozen=True)
class Case:
    """Inputs of a function, and what it gave for them before the pass."""

    function: str
    label: str
    inputs: dict[str, Array]
    variables: dict[str, Array]
    outputs: dict[str, Array]


@dataclass
class Validate(Instrument):
    """Raises NumbersMoved after the pass that changed the results."""

    seed: int = 0
    cases: list[Case] = field(default_factory=list[Case])
    signature: tuple[str, ...] = ()

    def start(self, module: Module) -> None:
        self.signature = _signature(module)
        self.cases = [c for f in module.functions.values() for c in self._cases(module, f)]

    def after(self, step: Step, module: Module) -> None:
        if not step.changed:
            return
        signature = _signature(module)
        if signature != self.signature:  # dimensions were bound: some data fits no more
            self.signature = signature
            self.cases = [c for c in self.cases if _fits(c, module)]
        self.cases = [_rerun(case, step, module) for case in self.cases]
        if not self.cases:
            self.start(module)

    def _cases(self, module: Module, function: Function) -> list[Case]:
        cases: list[Case] = []
        refused = TfcError("it has none")
        for symbols in _bindings(module, function):
            found: list[Case] = []
            for label, inputs, variables in self._data(module, function, symbols):
                try:
                    outputs = _outputs(module, function.name, inputs, variables)
                except TfcError as error:
                    refused = error
                    continue
                found.append(Case(function.name, label, inputs, variables, outputs))
            cases += found
            if len({case.label for case in cases}) >= MOST_BINDINGS * 3:
                break
        if not cases:
            text = f"@{function.name} ran on none of the data that --validate has"
            raise TfcError(text, hint=str(refused))
        return cases

    def _data(
        self, module: Module, function: Function, symbols: dict[str, int]
    ) -> Iterator[tuple[str, dict[str, Array], dict[str, Array]]]:
        bound = ", ".join(f"{s}={n}" for s, n in symbols.items())
        suffix = f" with {bound}" if bound else ""
        for kind, draw in (("random", _random), ("small", _small), ("edge-case", _edges)):
            generator = np.random.Generator(np.random.PCG64(self.seed))
            found: list[dict[str, Array]] = []
            for items in (function.body.args, module.variables.values()):
                types = {i.name: evaluated_type(i.type, symbols) for i in items}
                found.append({n: draw(generator, t.dtype, _sizes(t)) for n, t in types.items()})
            yield f"{kind} data{suffix}", found[0], found[1]


def _bindings(module: Module, function: Function) -> Iterator[dict[str, int]]:
    types = [arg.tensor for arg in function.body.args]
    names = list(dict.fromkeys(s for t in types for n in t.shape for s in as_expr(n).symbols()))
    for sizes in SIZES if names else SIZES[:1]:
        bound: dict[str, int] = {}
        for i, name in enumerate(names):
            info = module.dims.get(name)
            low = info.smallest if info and info.smallest is not None else 0
            high = info.largest if info and info.largest is not None else max(low, 1 << 20)
            bound[name] = min(max(sizes[i % len(sizes)], low), high)
        yield bound


def _sizes(kind: TensorType) -> tuple[int, ...]:
    return tuple(int(as_expr(n).evaluate({})) for n in kind.shape)


def _outputs(
    module: Module, function: str, inputs: dict[str, Array], variables: dict[str, Array]
) -> dict[str, Array]:
    """What a function gives, and the variables after it as `@name`."""
    state = state_of(module)
    for name, array in variables.items():
        if name in module.variables:
            state.write(name, array)
    outputs = interpret(module, inputs, function, state=state)
    left = {f"@{n}": a for n, a in state.variables.items() if a is not None}
    return outputs | left


# ---- data


def _random(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Floats around 0, integers of every size."""
    if dtype.is_float:
        return generator.standard_normal(shape).astype(dtype.numpy)
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    limits = np.iinfo(dtype.numpy)
    return generator.integers(limits.min, limits.max, shape, dtype=dtype.numpy, endpoint=True)


def _small(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Positive numbers below 2, which indices and logarithms take too."""
    if dtype.is_float:
        return (generator.random(shape) * 2).astype(dtype.numpy)
    return generator.integers(0, 2, shape).astype(dtype.numpy)


def _edges(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.is_float:
        return generator.choice(np.array(EDGES), shape).astype(dtype.numpy)
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(np.bool_)
    limits = np.iinfo(dtype.numpy)
    values = [0, 1, 2, limits.max, limits.min, limits.max - 1]
    return generator.choice(np.array(values, dtype.numpy), shape)


# ---- comparison


def _signature(module: Module) -> tuple[str, ...]:
    """What decides which inputs functions take, and which outputs they give."""
    heads = [
        f"@{f.name} {', '.join(map(repr, f.body.args))} -> {', '.join(f.output_names)}"
        for f in module.functions.values()
    ]
    heads += [f"@{v.name} {v.type}" for v in module.variables.values()]
    return (*heads, *(f"{name} {info}" for name, info in module.dims.items()))


def _fits(case: Case, module: Module) -> bool:
    function = module.functions.get(case.function)
    if function is None or set(case.inputs) != {arg.name for arg in function.body.args}:
        return False
    if set(case.outputs) != set(function.output_names):
        return False
    arrays = [case.inputs[arg.name] for arg in function.body.args]
    try:
        bind_symbols(module, function, arrays)
    except TfcError:
        return False
    return True


def _rerun(case: Case, step: Step, module: Module) -> Case:
    where = f"@{case.function} on {case.label}"
    try:
        outputs = _outputs(module, case.function, case.inputs, case.variables)
    except TfcError as error:
        text = f"after the pass {step.transform}, number {step.number}, {where} fails: {error}"
        raise NumbersMoved(text) from error
    for name, before in case.outputs.items():
        wrong = difference(before, outputs[name])
        if wrong:
            text = f"the pass {step.transform}, number {step.number}, moved the numbers of {where}"
            raise NumbersMoved(text, hint=f"{_written(name)}: {wrong}")
    return Case(case.function, case.label, case.inputs, case.variables, outputs)


def _written(name: str) -> str:
    return name if name.startswith("@") else f"%{name}"


def difference(before: Array, after: Array) -> str:
    """Where two arrays differ beyond the tolerance, in words; empty if they do not."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return f"it was {before.dtype}{before.shape}, it is {after.dtype}{after.shape}"
    if not before.size:
        return ""
    wrong = _differs(before, after)
    if not wrong.any():
        return ""
    worst = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = ", ".join(map(str, worst))
    count = int(wrong.sum())
    return f"[{place}] was {before[worst]}, it is {after[worst]} ({count} of {before.size} differ)"


def _differs(before: Array, after: Array) -> Any:
    name = next(t.name for t in DTYPES.values() if t.numpy == before.dtype)
    if name not in TOLERANCE:
        return before != after
    a, b = before.astype(np.float64), after.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    usual = float(np.median(np.abs(a[finite]))) if finite.any() else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(a - b) > TOLERANCE[name] * (np.abs(a) + usual)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(finite, far, ~same)
