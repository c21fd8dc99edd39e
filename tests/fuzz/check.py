"""What is checked of a random graph: its text, each pass alone and in turn, the compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.fuzz.graphs import Case, Data
from tests.fuzz.tolerance import Oracle
from tfc.driver import clone_module
from tfc.interpret import interpret
from tfc.ir.core import Kernel, Module, SymbolRef
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.verifier import verify
from tfc.ir.weights import Weights
from tfc.passes.base import PassContext
from tfc.passes.pipeline_text import parse_pipeline
from tfc.passes.pipelines import KERNELS, LEVELS
from tfc.targets import resolve
from tfc.tile.interpret import run_kernel

Array = np.ndarray[Any, Any]

ALONE = (
    *("prune", "entry-checks", "constant-folding", "canonicalize", "cse", "dce", "raise-idioms"),
    *(
        "canonicalize{fold-scales=true}",
        "decompose",
        "kernel-forms",
        "layout",
        "control-scheduling",
    ),
)
"""The passes that run on any graph by themselves; the others need those before them."""

MOVERS = ("control-scheduling", "vectorize", "parallelize", "memory-planning")
"""Passes that leave kernels as they are: any data shows a wrong one, and kernels run slowly."""

MERGING = ("-O2", "-O3", "raise-idioms", "fold-scales")
"""The stages in which several ops may become one that rounds, and overflows, once."""

LEVEL_STAGES = {entry for level in LEVELS for entry in (*level, *KERNELS)}
"""The last words of the stages that `check_pipeline` checks."""


def strictly(kernel: Kernel, buffers: Sequence[Array], symbols: Mapping[str, int]) -> None:
    """Runs a kernel: no two programs may write one element, and all must be written."""
    for arg, array in zip(kernel.body.args, buffers, strict=True):
        if arg.buffer.mode == "out":
            array.view(np.uint8)[...] = 0xA5
    run_kernel(kernel, buffers, symbols, exclusive=True)


@dataclass
class Failure:
    """What went wrong: at which stage, on which data, and how."""

    seed: int
    stage: str
    data: str
    message: str

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.stage}, {self.data}: {self.message}"


@dataclass
class Run:
    """One set of data and what the interpreter gave for it."""

    data: Data
    oracle: Oracle


@dataclass
class Checked:
    """A case with its expected results; data that the interpreter refuses is left out."""

    case: Case
    failures: list[Failure] = field(default_factory=list[Failure])
    refused: dict[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def runs(self) -> list[Run]:
        found: list[Run] = []
        for data in self.case.data:
            try:
                outputs = interpret(self.case.module, data.inputs)
            except TfcError as error:
                self.refused[data.label] = str(error)
                continue
            found.append(Run(data, Oracle(self.case.module, data.inputs, outputs)))
        return found

    def fail(self, stage: str, data: str, message: str) -> None:
        self.failures.append(Failure(self.case.seed, stage, data, message))

    def compare(self, stage: str, run: Run, outputs: dict[str, Array]) -> bool:
        """Whether all outputs are right."""
        wide = any(word in stage for word in MERGING)
        for name in run.oracle.outputs:
            wrong = run.oracle.difference(name, outputs[name], wide)
            if wrong:
                self.fail(stage, run.data.label, f"{name}{wrong}")
                return False
        return True

    def interpreted(self, stage: str, module: Module, runs: Sequence[Run] | None = None) -> bool:
        """Whether the interpreter still gives the same."""
        for run in self.runs if runs is None else runs:
            try:
                with patch("tfc.tile.interpret.run_kernel", strictly):
                    outputs = interpret(module, run.data.inputs)
            except Exception as error:
                self.fail(stage, run.data.label, f"{type(error).__name__}: {error}")
                return False
            if not self.compare(stage, run, outputs):
                return False
        return True


def check_text(checked: Checked, module: Module | None = None, stage: str = "text") -> None:
    """A module, else the graph, prints, parses, and is the same."""
    from tfc.text.parse import parse_module
    from tfc.text.print import print_module

    module = module or checked.case.module
    text = print_module(module)
    try:
        again = print_module(parse_module(text, weights=module.weights))
    except TfcError as error:
        checked.fail(stage, "", str(error))
        return
    if again != text:
        checked.fail(stage, "", "it is another text when parsed and printed")


def transformed(
    checked: Checked, module: Module, entry: str, stage: str, context: PassContext
) -> bool | None:
    """Runs a pass; whether it changed the module, None where it failed."""
    (transform,) = parse_pipeline(entry)
    try:
        changed = transform.run(module, context)
        verify(module)
    except UnsupportedError as error:
        if not chooses(checked.case):
            checked.fail(stage, "", f"{type(error).__name__}: {error}")
        return None
    except Exception as error:
        checked.fail(stage, "", f"{type(error).__name__}: {error}")
        return None
    return changed


def chooses(case: Case) -> bool:
    """Whether a graph holds an `if`, which compiled code refuses by name."""
    return any(op.name == "if" for op in case.module.main.body)


def check_alone(checked: Checked) -> None:
    """Each pass that runs on any graph."""
    for entry in ALONE:
        module = clone_module(checked.case.module)
        if transformed(checked, module, entry, f"{entry} alone", PassContext()):
            checked.interpreted(f"{entry} alone", module)


def check_bound(checked: Checked) -> None:
    """The graph with numbers in the place of its symbols, as `--dim` puts them there."""
    if not checked.runs or not checked.runs[0].data.symbols:
        return
    symbols = checked.runs[0].data.symbols
    entry = 'bind-dims{dims="' + "+".join(f"{n}:{v}" for n, v in symbols.items()) + '"}'
    module = clone_module(checked.case.module)
    if transformed(checked, module, entry, "bind-dims alone", PassContext()):
        runs = [r for r in checked.runs if r.data.symbols == symbols]
        checked.interpreted("bind-dims alone", module, runs)


def check_pipeline(checked: Checked, level: int, target: str) -> None:
    """Each pass of a level, and those that make kernels, one after another."""
    module = clone_module(checked.case.module)
    context = PassContext(target=resolve(target))
    for entry in (*LEVELS[level], *KERNELS):
        stage = f"-O{level} {entry}"
        changed = transformed(checked, module, entry, stage, context)
        if changed is None or (entry == "lower" and checked.case.large):
            return
        runs = checked.runs[:1] if entry in MOVERS else checked.runs
        if changed and not checked.interpreted(stage, module, runs):
            return
        if entry in ("fusion", "unroll"):
            check_text(checked, module, f"text after {stage}")


# ---- compiled code


def merged(cases: Sequence[Case]) -> Module:
    """One module with a function for each case, which is named by its seed."""
    whole = Module(Weights(), "fuzz")
    for case in cases:
        copy = clone_module(case.module)
        function = copy.main
        function.name = function_name(case)
        for op in function.body.walk():
            value = op.attributes.get("value")
            if op.name == "constant" and isinstance(value, SymbolRef):
                name = whole.weights.add(copy.weights.array(value.name))
                op.set_attribute("value", SymbolRef(name))
        whole.functions[function.name] = function
        whole.dims.update(copy.dims)
    return whole


def function_name(case: Case) -> str:
    return f"f{case.seed}"


def check_compiled(checked: Sequence[Checked], level: int, target: str, path: Path) -> None:
    """Compiles all cases at once, and runs each on its data; those with an `if` are left out."""
    from tfc.driver import compile as compile_module
    from tfc.runtime import load

    checked = [c for c in checked if not chooses(c.case)]
    if not checked:
        return
    compile_module(merged([c.case for c in checked]), path, target=target, opt_level=level)
    with load(path, threads=2) as bundle, load(path, threads=1) as single:
        for one in checked:
            name = function_name(one.case)
            functions = bundle.functions[name], single.functions[name]
            run_compiled(one, *functions, f"-O{level} {target}")


def run_compiled(checked: Checked, function: Any, single: Any, stage: str) -> None:
    """Runs the code of a case; stops at the first wrong result.

    On one thread, as `single`, it must give the same bits.
    """
    from tfc.runtime.errors import InputError, RunError

    for data in checked.case.data:
        run = next((r for r in checked.runs if r.data is data), None)
        try:
            outputs = function.run(data.inputs)
        except Exception as error:
            if run is not None or not isinstance(error, InputError | RunError):
                checked.fail(stage, data.label, f"{type(error).__name__}: {error}")
                return
            continue
        if run is None and "out of range" not in checked.refused[data.label]:
            # An index need not be looked at where its element is not used; sizes always are.
            checked.fail(stage, data.label, f"not refused: {checked.refused[data.label]}")
            return
        if run is not None and not checked.compare(stage, run, outputs):
            return
        alone = single.run(data.inputs)
        if any(outputs[n].tobytes() != alone[n].tobytes() for n in outputs):
            checked.fail(stage, data.label, "other bits on one thread")
            return
