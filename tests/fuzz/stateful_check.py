"""Compiles random modules with state, and makes their calls: each gives what the oracle says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.fuzz.check import Failure
from tests.fuzz.stateful_graphs import StatefulCase
from tests.fuzz.stateful_oracle import Oracle, copy_variables, outcome_of, variables_of
from tfc.driver import clone_module
from tfc.ir.core import Function, Module, Op, SymbolRef
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.weights import Weights
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.runtime.state import State

WAITING = ("wait for each other", "no structured form")
"""What is said where loops in primitive form, in the order of the text, have no regions."""


@dataclass
class Checked:
    """A case, what is expected, what failed."""

    case: StatefulCase
    failures: list[Failure] = field(default_factory=list[Failure])
    refused: bool = False

    @cached_property
    def oracle(self) -> Oracle:
        return Oracle(self.case)

    def fail(self, stage: str, where: str, message: str) -> None:
        self.failures.append(Failure(self.case.seed, stage, where, message))

    def renamed(self, name: str) -> str:
        """A name of the case in the module of all."""
        return f"{name}_{self.case.seed}"

    def own_variables(self, state: State) -> dict[str, Any]:
        """Those of the case, by its own names."""
        names = {
            f"@{self.renamed(n)}{end}": f"@{n}{end}"
            for n in self.case.module.variables
            for end in ("", "?")
        }
        return {names[n]: array for n, array in variables_of(state).items() if n in names}


def merged(cases: Sequence[Checked]) -> Module:
    """One module with the functions, variables and resources of all, named by their seeds."""
    whole = Module(Weights(), "fuzz")
    for checked in cases:
        copy = clone_module(checked.case.module)
        own = {*copy.variables, *copy.resources}
        for op in copy.walk():
            _rename(op, own, checked)
        for kind in ("variables", "resources", "functions"):
            for name, item in getattr(copy, kind).items():
                getattr(whole, kind)[checked.renamed(name)] = _with_name(
                    item, checked.renamed(name)
                )
        whole.dims.update(copy.dims)
    return whole


def _with_name(item: Any, name: str) -> Any:
    """A function of another name, or a copy of a variable or resource."""
    if isinstance(item, Function):
        item.name = name
        return item
    return replace(item, name=name)


def _rename(op: Op, names: set[str], checked: Checked) -> None:
    for attribute, value in list(op.attributes.items()):
        if isinstance(value, SymbolRef) and value.name in names:
            op.set_attribute(attribute, SymbolRef(checked.renamed(value.name)))


def find_refused(cases: Sequence[Checked]) -> list[Checked]:
    """The cases that have regions; the others are loops in primitive form that wait for others."""
    found: list[Checked] = []
    for checked in cases:
        try:
            PassManager(parse_pipeline("prune,functionalize")).run(
                clone_module(checked.case.module)
            )
        except (TfcError, UnsupportedError) as error:
            checked.refused = any(text in str(error) for text in WAITING)
            if not checked.refused:
                checked.fail("functionalize", "", str(error))
            continue
        found.append(checked)
    return found


def check_compiled(cases: Sequence[Checked], level: int, target: str, path: Path) -> None:
    """Compiles all cases at once, and makes the calls of each."""
    from tfc.driver import compile as compile_module
    from tfc.runtime import load

    compile_module(merged(cases), path, target=target, opt_level=level)
    with load(path, threads=2) as bundle:
        for checked in cases:
            call_all(checked, bundle, f"-O{level} {target}", level >= 2)


def call_all(checked: Checked, bundle: Any, stage: str, wide: bool) -> None:
    """Stops at the first wrong outcome; after an error the variables are the interpreter's."""
    oracle = checked.oracle
    for index, call in enumerate(checked.case.calls):
        function = bundle.functions[checked.renamed(call.function)]
        try:
            found = outcome_of(lambda f=function, c=call: f.run(c.inputs), State())
        except Exception as error:
            checked.fail(stage, f"call {index}", f"{type(error).__name__}: {error}")
            return
        found.arrays |= {} if found.error else checked.own_variables(bundle.state)
        wrong = oracle.difference(index, found, wide)
        if wrong:
            checked.fail(stage, f"call {index} of {call.function}", wrong)
            return
        if found.error or oracle.outcomes[index].error:
            if checked.case.module.resources:
                return  # what a queue holds is then open
            copy_variables(oracle.states[index + 1], bundle.state, checked.renamed)
