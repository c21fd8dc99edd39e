"""Makes a failing graph smaller: `python -m tests.fuzz.minimise STAGE TARGET SEED`.

Tried again and again: one output, fewer ops (each exchanged for an input with the numbers that it
gave, or for one of its operands), numbers for symbols, one set of data. Each try runs in a process
of its own, so that crashes count.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.check import (
    LEVEL_STAGES,
    Checked,
    Failure,
    check_alone,
    check_bound,
    check_compiled,
    check_pipeline,
    check_text,
)
from tests.fuzz.graphs import Case, Data, generate
from tfc.driver import clone_module
from tfc.interpret import Run, _input_arrays, bind_symbols
from tfc.ir.core import Module, Op, Value
from tfc.passes.base import PassContext
from tfc.passes.pipeline_text import parse_pipeline

SECONDS = 60  # that a try may take


def minimise(failure: dict[str, Any], path: Path) -> Path:
    """Writes the smallest graph that fails as a seed's does, and its inputs beside it."""
    stage, target = failure["stage"], failure["target"]
    case = generate(failure["seed"])
    if fails(case, stage, target):
        while smaller := next((c for c in _smaller(case) if fails(c, stage, target)), None):
            case = smaller
    return save(case, path, f"{stage}, {target}: {failure['message'][:200]}")


def save(case: Case, path: Path, note: str) -> Path:
    """Writes a module as text, with its numbers in `.npz` files."""
    from tfc.text.print import print_module

    lines = [f"// {line}" for line in note.splitlines()]
    for i, data in enumerate(case.data):
        np.savez(path.with_suffix(f".{i}.npz"), **_storable(data.inputs))
        lines.append(f"// data {i}: {data.label}")
    weights = {n: case.module.weights.array(n) for n in case.module.weights}
    if weights:
        np.savez(path.with_suffix(".weights.npz"), **_storable(weights))
    path.write_text("\n".join([*lines, print_module(case.module)]))
    return path


def _storable(arrays: dict[str, Any]) -> dict[str, Any]:
    return {n: a.view(np.uint16) if a.dtype.kind == "V" else a for n, a in arrays.items()}


# ---- whether it fails


def fails(case: Case, stage: str, target: str) -> bool:
    """Whether a stage of a case fails or crashes."""
    context = multiprocessing.get_context("fork")
    found = context.Value("i", 0)
    child = context.Process(target=_try, args=(case, stage, target, found))
    child.start()
    child.join(SECONDS)
    hangs = child.is_alive()
    child.kill()
    child.join()
    return hangs or (child.exitcode or 0) < 0 or found.value != 0


def _try(case: Case, stage: str, target: str, found: Any) -> None:
    checked = Checked(case)
    if not checked.runs:
        return
    _run_stage(checked, stage, target)
    found.value = any(_alike(f, stage) for f in checked.failures)


def _alike(failure: Failure, stage: str) -> bool:
    return failure.stage == stage


def _run_stage(checked: Checked, stage: str, target: str) -> None:
    if stage == "text":
        check_text(checked)
    elif stage.endswith(" alone"):
        check_alone(checked)
        check_bound(checked)
    elif (level := _level(stage)) is not None and stage.split()[-1] in LEVEL_STAGES:
        check_pipeline(checked, level, target)
    else:
        with tempfile.TemporaryDirectory() as folder:
            for each in (0, 3) if level is None else (level,):
                try:
                    check_compiled([checked], each, target, Path(folder) / "graph.tfb")
                except Exception as error:
                    checked.fail(stage, "", f"{type(error).__name__}: {error}")


def _level(stage: str) -> int | None:
    for word in stage.split():
        if word[:2] == "-O" and word[2:].isdigit():
            return int(word[2:])
    return None


# ---- smaller ones


def _smaller(case: Case) -> Iterator[Case]:
    """Cases that are smaller, the smallest first."""
    yield from (Case(case.seed, case.module, [d]) for d in case.data if len(case.data) > 1)
    function = case.module.main
    for i in range(len(function.output_names)):
        if len(function.output_names) > 1:
            yield _changed(case, lambda m, i=i: _keep_output(m, i))
    if len(case.data) == 1 and case.data[0].symbols:
        yield _bound(case)
    for number in reversed(range(len(function.body) - 1)):
        yield from _without(case, number)
    for name in _unused_inputs(case.module):
        yield _changed(case, lambda m, name=name: _drop_input(m, name))


def _changed(case: Case, change: Callable[[Module], None]) -> Case:
    module = clone_module(case.module)
    change(module)
    parse_pipeline("prune")[0].run(module, PassContext())
    known = {a.name for a in module.main.body.args}
    data = [
        Data(d.label, d.symbols, {n: a for n, a in d.inputs.items() if n in known})
        for d in case.data
    ]
    return Case(case.seed, module, data)


def _keep_output(module: Module, index: int) -> None:
    function = module.main
    end = function.body.terminator
    end.set_operands([end.operands[index]])
    function.output_names = [function.output_names[index]]


def _drop_input(module: Module, name: str) -> None:
    body = module.main.body
    body.args = [a for a in body.args if a.name != name]
    for i, arg in enumerate(body.args):
        arg.index = i


def _unused_inputs(module: Module) -> list[str]:
    """Inputs that nothing reads and that tell no symbol."""
    body = module.main.body
    used = [a for a in body.args if a.uses]
    text = " ".join(str(v.type) for op in body for v in op.results)
    told = {str(n) for a in used for n in a.tensor.shape}
    return [
        a.name
        for a in body.args
        if not a.uses
        and all(isinstance(n, int) or str(n) in told or str(n) not in text for n in a.tensor.shape)
    ]


def _bound(case: Case) -> Case:
    """With the numbers of the data in the place of symbols."""
    dims = "+".join(f"{n}:{v}" for n, v in case.data[0].symbols.items())

    def bind(module: Module) -> None:
        parse_pipeline(f'bind-dims{{dims="{dims}"}}')[0].run(module, PassContext())

    found = _changed(case, bind)
    return Case(case.seed, found.module, [Data(d.label, {}, d.inputs) for d in found.data])


def _without(case: Case, number: int) -> Iterator[Case]:
    """With an op exchanged for one of its operands, or for inputs."""
    op = list(case.module.main.body)[number]
    if op.terminator or op.name == "constant":
        return
    if len(op.results) == 1:
        for i, value in enumerate(op.inputs):
            if value.type == op.results[0].type:
                yield _changed(case, lambda m, i=i: _bypass(_nth(m, number), i))
    arrays = [_values(case, d, op) for d in case.data]
    if all(a is not None for a in arrays):
        yield _as_inputs(case, number, arrays)  # type: ignore[arg-type]


def _nth(module: Module, number: int) -> Op:
    return list(module.main.body)[number]


def _bypass(op: Op, index: int) -> None:
    op.replace([op.inputs[index]])


def _as_inputs(case: Case, number: int, arrays: list[list[Any]]) -> Case:
    taken = {a.name for a in case.module.main.body.args}
    fresh = (name for i in itertools.count() if (name := f"v{i}") not in taken)
    names = list(itertools.islice(fresh, len(arrays[0])))

    def cut(module: Module) -> None:
        op = _nth(module, number)
        made: list[Value] = []
        for name, value in zip(names, op.results, strict=True):
            made.append(module.main.body.add_arg(value.type, name))
        op.replace(made)

    data = [
        Data(d.label, d.symbols, d.inputs | dict(zip(names, found, strict=True)))
        for d, found in zip(case.data, arrays, strict=True)
    ]
    return _changed(Case(case.seed, case.module, data), cut)


def _values(case: Case, data: Data, op: Op) -> list[Any] | None:
    """What the results of an op are."""
    function = case.module.main
    arrays = _input_arrays(function, data.inputs)
    run = Run(case.module, bind_symbols(case.module, function, arrays))
    run.values.update(zip(function.body.args, arrays, strict=True))
    with np.errstate(all="ignore"):
        try:
            run.block(function.body)
        except Exception:
            return None
    return [run.values[v] for v in op.results] if op.results[0] in run.values else None


if __name__ == "__main__":
    asked = {"stage": sys.argv[1], "target": sys.argv[2], "seed": int(sys.argv[3]), "message": ""}
    print(minimise(asked, Path(sys.argv[4] if len(sys.argv) > 4 else "smallest.tfc")).read_text())
