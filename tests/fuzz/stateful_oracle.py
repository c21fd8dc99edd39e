"""What calls in a row of functions with state should give, and how far compiled code may lie off.

How far is told by runs that err at random in each rounding (`tolerance.py`) and go through the same
calls, each with a state of its own: where rounding moves a branch or an index, what comes of it is
not compared. Compiled code must fail where the interpreter does, unless what could not be read (a
variable that is not assigned, an index out of range) is used by nothing: whatever is put in its
place, outputs and variables are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from tests.fuzz import data
from tests.fuzz.stateful_graphs import Call, StatefulCase
from tests.fuzz.tolerance import (
    FACTOR,
    MORE_FACTOR,
    MORE_TRIALS,
    ROOM,
    TRIALS,
    Expected,
    NoisyRun,
    decomposed,
    difference_of,
    expected_of,
    held,
)
from tfc.driver import clone_module
from tfc.interpret import (
    Run,
    Symbols,
    _input_arrays,
    bind_symbols,
    check_entry,
    interpret,
    state_of,
)
from tfc.ir.core import Module, Op
from tfc.ir.errors import TfcError
from tfc.ops.base import GraphOp, static
from tfc.ops.indexing import Indexing
from tfc.ops.state import Read
from tfc.ops.stateful import HostOp, StatefulOp, bits_of
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.runtime.errors import InputError, RunError, StateError
from tfc.runtime.host import Context
from tfc.runtime.state import State

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


@dataclass
class Outcome:
    """What a call gave, with variables after it as `@name`; `error` where it failed.

    A forgiving run has both.
    """

    arrays: Arrays = field(default_factory=Arrays)
    error: str = ""


class ForgivingRun(Run):
    """A run that goes on with any numbers where something cannot be read; `error` is the first."""

    def __init__(self, module: Module, symbols: Symbols, state: State, seed: int) -> None:
        super().__init__(module, symbols, state)
        self.fill = np.random.default_rng(seed)
        self.error = ""

    def computed(self, op: GraphOp, arrays: list[Array | None]) -> Any:
        try:
            return super().computed(op, arrays)
        except TfcError as error:
            if not isinstance(op, Read | Indexing):
                raise
            self.error = self.error or str(error)
            (kind,) = (v.tensor for v in op.results)
            return data.draw(self.fill, kind.dtype, static(kind.shape), "usual")


class NoisyCall(ForgivingRun, NoisyRun):
    """A noisy run on a state. Variables and queues hold what they are declared to hold."""

    def __init__(
        self, module: Module, symbols: Symbols, state: State, seed: int, *noise: Any
    ) -> None:
        NoisyRun.__init__(self, module, symbols, seed, *noise)
        self.state = self.context.state = state
        self.fill = np.random.default_rng(seed)
        self.error = ""
        self.noise = seed, *noise

    def results(self, op: GraphOp) -> list[Array]:
        return Run.results(self, op) if isinstance(op, StatefulOp) else super().results(op)

    def computed(self, op: GraphOp, arrays: list[Array | None]) -> Any:
        if isinstance(op, HostOp):
            given = [a for a in arrays if a is not None]
            kinds = [v.tensor.dtype.numpy for v in op.inputs]
            return super().computed(op, [a.astype(k) for a, k in zip(given, kinds, strict=True)])
        return super().computed(op, arrays)

    def call_function(self, name: str, arrays: Sequence[Array], context: Context) -> list[Array]:
        """A part runs with noise too, of its own: it has a thread of its own."""
        function = self.module.functions[name]
        seed = self.noise[0] + 2 * list(self.module.functions).index(name)
        pairs = zip(function.body.args, arrays, strict=True)
        given = [a.view(arg.tensor.dtype.numpy) for arg, a in pairs]
        symbols = bind_symbols(self.module, function, given)
        run = NoisyCall(self.module, symbols, self.state, seed, *self.noise[1:])
        run.context = replace(context, call=run.call_function)
        given = [held(a, self.wide) for a in given]
        run.values.update(zip(function.body.args, given, strict=True))
        with np.errstate(all="ignore"):
            found = run.block(function.body)
        self.error = self.error or run.error
        kinds = [v.tensor.dtype.numpy for v in function.body.terminator.inputs]
        return [bits_of(a.astype(k)) for a, k in zip(found, kinds, strict=True)]


def outcome_of(run: Callable[[], Arrays], state: State) -> Outcome:
    """What a run gives and leaves in a state; its error where it fails as it may."""
    try:
        outputs = run()
    except (TfcError, InputError, RunError, StateError) as error:
        return Outcome(error=str(error))
    return Outcome(outputs | variables_of(state))


def variables_of(state: State) -> Arrays:
    """Each variable as `@name`, and whether it is assigned as `@name?`."""
    found: Arrays = {}
    for name, array in state.variables.items():
        found[f"@{name}?"] = np.asarray(array is not None)
        if array is not None:
            found[f"@{name}"] = array
    return found


def copy_variables(source: State, target: State, name_of: Callable[[str], str] = str) -> None:
    """Makes the variables of a state those of another, where they have other names."""
    for name, array in source.variables.items():
        if array is None:
            target.forget(name_of(name))
        else:
            target.write(name_of(name), array)


class Oracle:
    """What each call of a case should give."""

    def __init__(self, case: StatefulCase) -> None:
        self.case = case
        self.outcomes: list[Outcome] = []
        self.states: list[State] = []  # the variables before each call, and at the end
        self._run_all()
        self._trials: dict[tuple[int, bool], list[list[Outcome]]] = {}
        self.compared = 0
        self.elements = 0

    def _run_all(self) -> None:
        module, state = self.case.module, state_of(self.case.module)
        self._keep(state)
        for call in self.case.calls:
            found = outcome_of(
                lambda c=call: interpret(module, c.inputs, c.function, state=state), state
            )
            self.outcomes.append(found)
            self._keep(state)

    def _keep(self, state: State) -> None:
        kept = state_of(self.case.module)
        copy_variables(state, kept)
        self.states.append(kept)

    @cached_property
    def _spelt(self) -> tuple[Module, set[Op]]:
        """With regions alone, and composites spelt out."""
        module = clone_module(self.case.module)
        PassManager(parse_pipeline("prune,functionalize")).run(module)
        return decomposed(module)

    def difference(self, index: int, found: Outcome, wide: bool) -> str:
        """Where a call's outcome is wrong, in words; empty where it is right.

        `wide`: several ops may have become one that computes in f64.
        """
        wanted = self.outcomes[index]
        if found.error and wanted.error:
            return ""
        if not found.error and not wanted.error and same_bits(wanted.arrays, found.arrays):
            self._count([(a.size, a.size) for a in wanted.arrays.values()])
            return ""
        first = self._difference(index, found, TRIALS, FACTOR, wide)
        return first and self._difference(index, found, MORE_TRIALS, MORE_FACTOR, wide)

    def _difference(
        self, index: int, found: Outcome, trials: int, factor: float, wide: bool
    ) -> str:
        wanted, runs = self.outcomes[index], [t[index] for t in self._runs(trials, wide)]
        if found.error:
            failing = any(r.error for r in runs)
            return "" if failing else f"it fails: {found.error}"
        if wanted.error:
            if not all(r.error for r in runs):
                return ""
            forgiven = [self._forgiven(index, seed) for seed in (1, 2)]
            if not same_bits(*forgiven):
                return f"it does not fail: {wanted.error}"
            wanted = Outcome(forgiven[0])
        return self._arrays(wanted.arrays, found.arrays, [r.arrays for r in runs], factor)

    def _arrays(self, wanted: Arrays, found: Arrays, runs: list[Arrays], factor: float) -> str:
        for name, array in wanted.items():
            if any(name not in r for r in runs):
                continue  # rounding decides whether a variable is assigned
            if name not in found:
                return f"{name} is missing"
            expected = expected_of(array, [r[name] for r in runs], factor)
            self._count([_counts(expected)])
            wrong = difference_of(expected, found[name])
            if wrong:
                return f"{name}{wrong}"
        return ""

    def _count(self, counts: Sequence[tuple[int, int]]) -> None:
        self.compared += sum(n for n, _ in counts)
        self.elements += sum(n for _, n in counts)

    # ---- other runs

    def _forgiven(self, index: int, seed: int) -> Arrays:
        """What a call gives where anything stands for what cannot be read."""
        module, _ = self._spelt
        call, state = self.case.calls[index], state_of(module)
        copy_variables(self.states[index], state)
        found = _outcome(module, call, state, lambda s: ForgivingRun(module, s, state, seed))
        return found.arrays or {"nothing": np.asarray(seed)}

    def _runs(self, trials: int, wide: bool) -> list[list[Outcome]]:
        key = trials, wide
        if key not in self._trials:
            room = ROOM if wide else 1.0
            self._trials[key] = [self._trial(seed, room, False) for seed in range(trials)]
            self._trials[key] += [self._trial(0, 1.0, True)] if wide else []
        return self._trials[key]

    def _trial(self, seed: int, room: float, wide: bool) -> list[Outcome]:
        """All calls in turn; after an error with the variables of the run without noise."""
        module, casts = self._spelt
        state = state_of(module)
        found: list[Outcome] = []
        for index, call in enumerate(self.case.calls):
            noise = (100 * seed + 2 * index + seed % 2, casts, wide, room)
            found.append(
                _outcome(module, call, state, lambda s, n=noise: NoisyCall(module, s, state, *n))
            )
            if found[-1].error or self.outcomes[index].error:
                copy_variables(self.states[index + 1], state)
        return found


def _outcome(
    module: Module, call: Call, state: State, make: Callable[[Symbols], ForgivingRun]
) -> Outcome:
    """What a call gives in a run of another kind."""
    function = module.functions[call.function]
    try:
        arrays = _input_arrays(function, call.inputs)
        symbols = bind_symbols(module, function, arrays)
        check_entry(function, symbols)
        run = make(symbols)
        wide = isinstance(run, NoisyCall) and run.wide
        noisy = isinstance(run, NoisyCall)
        given = [held(a, wide) if noisy else a for a in arrays]
        run.values.update(zip(function.body.args, given, strict=True))
        with np.errstate(all="ignore"):
            found = run.block(function.body)
    except TfcError as error:
        return Outcome(error=str(error))
    kinds = [v.tensor.dtype.numpy for v in function.body.terminator.inputs]
    typed = [a.astype(k) for a, k in zip(found, kinds, strict=True)]
    outputs = dict(zip(function.output_names, typed, strict=True))
    return Outcome(outputs | variables_of(state), run.error)


def same_bits(a: Arrays, b: Arrays) -> bool:
    """Whether all arrays are the same, to the sign of a zero and the bits of a NaN."""
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and a[n].tobytes() == b[n].tobytes()
        for n in a
    )


def _counts(expected: Expected) -> tuple[int, int]:
    return int(expected.compared.sum()), expected.value.size
