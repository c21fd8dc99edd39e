"""Calls the functions of a compiled mutant in turn on one state: each gives what the oracle says.

What waits for longer than a test should (a queue that nobody fills) is interrupted, in interpreter
and bundle alike: both must wait. Files that a module writes are gone before the next run of it.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
from collections.abc import Generator, Iterator, Mapping
from functools import cached_property
from types import FrameType
from typing import Any

from tests.fuzz.stateful_graphs import Call, StatefulCase
from tests.fuzz.stateful_oracle import Oracle, copy_variables, outcome_of, variables_of
from tests.fuzz.stateful_oracle import Outcome as CallOutcome
from tests.fuzz.tolerance import decomposed
from tfc.driver import clone_module
from tfc.ir.core import Module, Op, Value
from tfc.ops.control import Fusion
from tfc.ops.stateful import HostOp
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.runtime.errors import CancelledError
from tfc.runtime.host_calls import HostCalls
from tfc.runtime.state import State

SECONDS = 5.0  # that a run may wait, and the interpreter may compute
MORE_SECONDS = 25.0  # that all runs with noise may take
LOOK_AGAIN = 1.0


class TooLarge(Exception):
    """The mutant asks for more than a test should compute."""


# ---- limits of time


WAITS = (HostOp.run_in.__code__, HostCalls._call.__code__)
"""Where a host op runs, which may wait for ever."""


@contextlib.contextmanager
def limited(seconds: float, *, patient: bool = False) -> Generator[None]:
    """Interrupts what runs for longer: a host op is cancelled, what computes is too large.

    `patient`: only what waits is interrupted; compiled code that hangs is for others to notice.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        del number
        if any(f.f_code in WAITS for f in _outwards(frame)):
            raise CancelledError("it waits for too long")
        if not patient:
            raise TooLarge(f"it takes more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, LOOK_AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


@contextlib.contextmanager
def fresh_folder() -> Generator[None]:
    """An empty working folder, where relative paths of the module lead."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield


# ---- the oracle


class MutantOracle(Oracle):
    """One whose runs begin with no files, and end in time."""

    def _run_all(self) -> None:
        with limited(SECONDS), fresh_folder():
            super()._run_all()

    def _forgiven(self, index: int, seed: int) -> dict[str, Any]:
        with fresh_folder():
            return super()._forgiven(index, seed)

    def _trial(self, seed: int, room: float, wide: bool) -> list[CallOutcome]:
        with fresh_folder():
            return super()._trial(seed, room, wide)

    @cached_property
    def _spelt(self) -> tuple[Module, set[Op]]:
        return decomposed(spelt(self.case.module))


def spelt(module: Module) -> Module:
    """A copy in which the ops of groups stand in the functions themselves, with all gradients."""
    copy = inlined(module)
    PassManager(parse_pipeline("prune,functionalize,prune,gradients")).run(copy)
    return copy


def inlined(module: Module) -> Module:
    """A copy in which the ops of groups stand in the functions themselves."""
    copy = clone_module(module)
    for function in copy.functions.values():
        for op in list(function.body):
            if isinstance(op, Fusion):
                _inline(op, function.body)
    return copy


def _inline(group: Fusion, block: Any) -> None:
    mapping: dict[Value, Value] = dict(zip(group.do.args, group.inputs, strict=True))
    inner: Op
    for inner in group.do:
        if not inner.terminator:
            block.insert(inner.clone(mapping), group)
    group.replace([mapping[v] for v in group.do.terminator.inputs])


# ---- calls


def functions_of(module: Module) -> list[str]:
    """Those that are called: @main, which may run others, else all in turn."""
    return ["main"] if "main" in module.functions else list(module.functions)


def check_calls(
    module: Module, bundle: Any, inputs: Mapping[str, Mapping[str, Any]]
) -> tuple[str, str]:
    """Whether calls of functions, each with its inputs, give what they should, and why not."""
    calls = [Call(name, given) for name, given in inputs.items()]
    oracle = MutantOracle(StatefulCase(0, module, calls))
    bundle.state.reset()
    verdicts: list[tuple[str, str]] = []
    with fresh_folder():
        for index in range(len(calls)):
            verdicts.append(_check_call(oracle, index, bundle))
            if verdicts[-1][0] == "wrong":
                return verdicts[-1]
            if verdicts[-1][0] == "stopped" and module.resources:
                break  # what a queue holds is then open
    bundle.state.reset()
    return next((v for v in verdicts if v[0] == "right"), verdicts[0])


def _check_call(oracle: MutantOracle, index: int, bundle: Any) -> tuple[str, str]:
    call, wanted = oracle.case.calls[index], oracle.outcomes[index]
    with limited(SECONDS, patient=True):
        function = bundle.functions[call.function]
        found = outcome_of(lambda: function.run(call.inputs), State())
    if not found.error:
        found.arrays |= variables_of(bundle.state)
    with limited(MORE_SECONDS):
        wrong = oracle.difference(index, found, wide=True)
    if wrong:
        return "wrong", f"call {index} of @{call.function}: {wrong}"
    if found.error or wanted.error:
        copy_variables(oracle.states[index + 1], bundle.state)
    return ("stopped", wanted.error) if wanted.error else ("right", "")
