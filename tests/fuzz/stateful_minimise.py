"""Makes a failing graph with state smaller.

`python -m tests.fuzz.stateful_minimise STAGE KIND SEED`, as in `'-O3 x86-64-v3' loops 7`.

Tried again and again: fewer calls, one output less, fewer control edges, fewer ops (each exchanged
for an operand, another value of its type or a constant), a function less. Each try runs in a
process of its own, so that crashes count.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.stateful_check import Checked, check_compiled, find_refused
from tests.fuzz.stateful_graphs import Call, StatefulCase, generate
from tfc.driver import clone_module
from tfc.ir.builder import Builder
from tfc.ir.core import Block, Module, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.verifier import verify
from tfc.ops.constant import scalar
from tfc.ops.view import Expand
from tfc.passes.base import PassContext
from tfc.passes.pipeline_text import parse_pipeline

SECONDS = 60  # that a try may take


def minimise(failure: dict[str, Any], kind: str, path: Path) -> Path:
    """Writes the smallest case that fails as a seed's does, with its calls."""
    stage, case = failure["stage"], generate(failure["seed"], kind)
    if fails(case, stage):
        while smaller := next((c for c in _smaller(case) if fails(c, stage)), None):
            case = smaller
    return save(case, path, f"{stage}: {failure['message'][:200]}")


def save(case: StatefulCase, path: Path, note: str) -> Path:
    """Writes a module as text, the calls as comments, their numbers in `.npz` files."""
    from tfc.text.print import print_module

    lines = [f"// {line}" for line in note.splitlines()]
    for i, call in enumerate(case.calls):
        bits = {n: np.asarray(a) for n, a in call.inputs.items()}
        bits = {n: a.view(np.uint16) if a.dtype.kind == "V" else a for n, a in bits.items()}
        np.savez(path.with_suffix(f".{i}.npz"), allow_pickle=False, **bits)
        lines.append(f"// call {i}: {call.function}")
        lines += [f"//   {n} = {str(a).replace(chr(10), ' ')}" for n, a in call.inputs.items()]
    path.write_text("\n".join([*lines, print_module(case.module)]))
    return path


# ---- whether it fails


def fails(case: StatefulCase, stage: str) -> bool:
    """Whether a stage of a case fails or crashes."""
    context = multiprocessing.get_context("fork")
    found = context.Value("i", 0)
    child = context.Process(target=_try, args=(case, stage, found))
    child.start()
    child.join(SECONDS)
    hangs = child.is_alive()
    child.kill()
    child.join()
    return hangs or (child.exitcode or 0) < 0 or found.value != 0


def _try(case: StatefulCase, stage: str, found: Any) -> None:
    checked = Checked(case)
    try:
        verify(case.module)
        fitting = find_refused([checked])
    except TfcError:
        return
    compiling = stage.startswith("compiling ")
    level, target = stage.removeprefix("compiling ").split()
    with tempfile.TemporaryDirectory() as folder:
        try:
            check_compiled(fitting, int(level[2:]), target, Path(folder) / "graph.tfb")
        except Exception:
            found.value = compiling
            return
    found.value = not compiling and any(f.stage == stage for f in checked.failures)


# ---- smaller ones


def _smaller(case: StatefulCase) -> Iterator[StatefulCase]:
    """Cases that are smaller, the smallest first."""
    for i in reversed(range(len(case.calls))):
        if len(case.calls) > 1:
            calls = [c for j, c in enumerate(case.calls) if j != i]
            yield StatefulCase(case.seed, case.module, calls)
    called = {c.function for c in case.calls}
    for name in case.module.functions:
        if name not in called:
            yield _changed(case, lambda m, n=name: m.functions.pop(n))
    for name, function in case.module.functions.items():
        for i in range(len(function.output_names)):
            yield _changed(case, lambda m, n=name, i=i: _drop_output(m, n, i))
    count = sum(1 for _ in case.module.walk())
    for number in reversed(range(count)):
        yield from _without(case, number)


def _changed(case: StatefulCase, change: Callable[[Module], Any]) -> StatefulCase:
    module = clone_module(case.module)
    change(module)
    parse_pipeline("prune")[0].run(module, PassContext())
    return StatefulCase(case.seed, module, [_fitting(module, c) for c in case.calls])


def _fitting(module: Module, call: Call) -> Call:
    known = {a.name for a in module.functions[call.function].body.args}
    return Call(call.function, {n: a for n, a in call.inputs.items() if n in known})


def _drop_output(module: Module, name: str, index: int) -> None:
    function = module.functions[name]
    end = function.body.terminator
    end.set_operands([v for i, v in enumerate(end.operands) if i != index])
    function.output_names = [n for i, n in enumerate(function.output_names) if i != index]


def _without(case: StatefulCase, number: int) -> Iterator[StatefulCase]:
    """Without an op's control edges; or with others in the place of its results."""
    op = _nth(case.module, number)
    if op.after:
        yield _changed(case, lambda m: _free(_nth(m, number)))
    if op.terminator or op.name == "constant":
        return
    for choose in (_operand, _constant, _earlier):
        if all(choose(v, None) for v in op.results):
            yield _changed(case, lambda m, c=choose: _exchange(_nth(m, number), c))


def _nth(module: Module, number: int) -> Op:
    return next(op for i, op in enumerate(module.walk()) if i == number)


def _exchange(op: Op, choose: Callable[[Value, Builder | None], Any]) -> None:
    builder = Builder.before_op(op)
    found = [choose(v, builder) for v in op.results]
    for user in list(op.control_users):
        user.remove_after(op)
    op.replace(found)


def _free(op: Op) -> None:
    for earlier in list(op.after):
        op.remove_after(earlier)


def _operand(value: Value, builder: Builder | None) -> Value | None:
    op = value.producer
    assert op is not None
    return next((v for v in op.inputs if v.type == value.type), None)


def _earlier(value: Value, builder: Builder | None) -> Value | None:
    """An argument of the blocks around, of the type."""
    op = value.producer
    assert op is not None
    block = op.parent
    while isinstance(block, Block):
        found = next((a for a in block.args if a.type == value.type), None)
        if found is not None:
            return found
        block = block.parent.parent if isinstance(block.parent, Op) else None
    return None


def _constant(value: Value, builder: Builder | None) -> Value | bool:
    kind = value.tensor
    if not kind.is_static:
        return False
    if builder is None:
        return True
    number = scalar(builder, 1, kind.dtype)
    return number if kind.rank == 0 else builder.value(Expand(number, kind.shape))


if __name__ == "__main__":
    asked = {"stage": sys.argv[1], "seed": int(sys.argv[3]), "message": ""}
    print(minimise(asked, sys.argv[2], Path(sys.argv[4] if len(sys.argv) > 4 else "smallest.tfc")))
