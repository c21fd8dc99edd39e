"""Runs a list of passes: verifies between them, counts, times, and lets instruments look on.

A pass that raises leaves a reproducer: one file with the IR before it and the command that runs it
again. Two runs of the same list on the same module do the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tfc.ir.errors import TfcError
from tfc.ir.verifier import verify
from tfc.passes.base import Pass, PassContext
from tfc.passes.pipeline_text import parse_pipeline, pipeline_text

if TYPE_CHECKING:
    from tfc.ir.core import Module
    from tfc.passes.reproducer import Reproducer

__all__ = ["Instrument", "PassFailure", "PassManager", "Step", "parse_pipeline", "pipeline_text"]


@dataclass
class Step:
    """One pass of a run, and what came of it; times in seconds."""

    number: int
    transform: Pass
    changed: bool = False
    seconds: float = 0.0
    verify_seconds: float = 0.0
    ops_before: int = 0
    ops_after: int = 0
    fired: dict[str, int] = field(default_factory=dict[str, int])
    figures: dict[str, int | str] = field(default_factory=dict[str, "int | str"])

    @property
    def name(self) -> str:
        return self.transform.name


class Instrument:
    """Looks on while a pipeline runs; called around each pass that did not fail."""

    def start(self, module: Module) -> None:
        """Called once, before the first pass."""

    def before(self, step: Step, module: Module) -> None:
        """Called before a pass."""

    def after(self, step: Step, module: Module) -> None:
        """Called after a pass, when the module is verified."""

    def end(self, module: Module) -> None:
        """Called once, after the last pass."""


class PassFailure(TfcError):
    """A pass broke off by a mistake of ours, or left a module that is not valid."""

    exit_code = 70  # as in sysexits.h: an internal error


class PassManager:
    """A list of passes that runs on modules. `reproducer` writes the IR down when a pass raises."""

    def __init__(
        self,
        passes: Sequence[Pass],
        *,
        verify_each: bool = True,
        instruments: Sequence[Instrument] = (),
        reproducer: Reproducer | None = None,
    ) -> None:
        self.passes = list(passes)
        self.verify_each = verify_each
        self.instruments = list(instruments)
        self.reproducer = reproducer

    def run(self, module: Module, context: PassContext | None = None) -> list[Step]:
        """Runs every pass, or as many as `context.stop_after` rewrites allow; what each did."""
        shared = context or PassContext()
        verify(module)
        if self.reproducer:
            self.reproducer.start(module)
        for instrument in self.instruments:
            instrument.start(module)
        steps: list[Step] = []
        level = "any"
        for number, transform in enumerate(self.passes, 1):
            if shared.exhausted:
                break
            step = Step(number, transform)
            level = self._run_one(step, module, shared, level)
            steps.append(step)
        for instrument in self.instruments:
            instrument.end(module)
        return steps

    def _run_one(self, step: Step, module: Module, context: PassContext, level: str) -> str:
        """Runs a pass on a module of a level; the level that it leaves."""
        for instrument in self.instruments:
            instrument.before(step, module)
        _check_accepts(step.transform, module, level)
        promised = level if step.transform.promises == "any" else step.transform.promises
        step.ops_before = _count(module)
        fired = dict(context.fired)
        context.figures, context.pass_name = {}, step.name
        try:
            self._transform(step, module, context, promised)
        except Exception as error:
            raise self._failure(step, error, context) from error
        rules = context.fired.items()
        step.fired = {r: n - fired.get(r, 0) for r, n in rules if n != fired.get(r, 0)}
        step.figures = context.figures
        step.ops_after = _count(module)
        for instrument in self.instruments:
            instrument.after(step, module)
        return promised

    def _transform(self, step: Step, module: Module, context: PassContext, level: str) -> None:
        started = time.perf_counter()
        step.changed = step.transform.run(module, context)
        step.seconds = time.perf_counter() - started
        if self.verify_each:
            try:
                # A pass that was stopped half-way need not have reached the level that it promises.
                verify(module, level="any" if context.exhausted else level)
            except TfcError as error:
                raise AssertionError(f"it left a module that is not valid: {error}") from error
            step.verify_seconds = time.perf_counter() - started - step.seconds

    def _failure(self, step: Step, error: Exception, context: PassContext) -> TfcError:
        """What to raise for an error of a pass, naming the reproducer."""
        note = ""
        if self.reproducer:
            note = self.reproducer.write(self.passes, step.number, context)
        if isinstance(error, TfcError):
            error.hint = "\n  ".join(filter(None, [error.hint, note]))
            return error
        kind = type(error).__name__
        return PassFailure(f"the pass {step.transform} failed: {kind}: {error}", hint=note)


def _check_accepts(transform: Pass, module: Module, level: str) -> None:
    if transform.level in ("any", level):
        return
    try:
        verify(module, level=transform.level)
    except TfcError as error:
        text = f"the pass {transform.name} takes IR of the {transform.level} level"
        raise TfcError(text, hint=str(error)) from error


def _count(module: Module) -> int:
    return sum(1 for _ in module.walk())
