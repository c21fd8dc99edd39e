"""The cases of passes: what must hold of the graph after the pass that a case names."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tfc
import tfc.ops
from tests.dataflow.test_cases import name_of
from tests.dataflow.translate import CASES, KIND_OF_OP, MORE_CASES, Case, translate
from tfc.interpret import Run, interpret
from tfc.ir.core import Module, Op, Value
from tfc.passes.graph.feed_fetch import restrict
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.text.parse import parse_module

assert tfc.ops
CASES_OF_PASSES = [c for c in [*CASES, *MORE_CASES] if "property" in c]
PASSES = {
    "cse": "cse",
    "constant_folding": "constant-folding",
    "prune": "prune",
    "dependency": "control-edges",
    "loop_invariant": "functionalize,loop-invariant-code-motion",
    "constant_branch": "functionalize,constant-branches",
    "arithmetic": "canonicalize",
    "fusion": "O3,kernels",
    "partition": "placement,partition",
}
"""The passes here that do what the cases call a pass; loops and branches become regions first."""
READS = ("identity", "read")  # an Identity of a variable reads it
KINDS = {name: (kind,) for name, kind in KIND_OF_OP.items()} | {
    "Identity": READS,
    "Switch": ("switch", "if"),
    "Merge": ("merge", "if"),
}


def after_pass(case: Case) -> Module:
    """The graph, which gives what the case fetches, after the pass."""
    module = parse_module(translate(case))
    wanted = case["property"]
    fetched = [name for step in case["steps"] for name in step["fetches"]]
    fetch = wanted.get("fetch", list(dict.fromkeys(fetched)))
    restrict(module.main, (), fetch, wanted.get("target", ()))
    PassManager(parse_pipeline(PASSES[wanted["pass"]])).run(module)
    return module


def named(module: Module) -> dict[str, Value | Op]:
    """Values and labels of all functions by name; a value that is returned by the output's name."""
    found: dict[str, Value | Op] = {}
    for function in module.functions.values():
        found |= {a.name: a for a in function.body.args}
        for op in function.body.walk():
            found |= {v.name: v for v in op.results if v.name}
            found |= {op.label: op} if op.label else {}
        end = function.body.terminator
        found |= dict(zip(function.output_names, end.inputs, strict=True))
    return found


def maker(found: Value | Op) -> Op | None:
    return found.producer if isinstance(found, Value) else found


def runs_before(first: Op, second: Op) -> bool:
    """Whether data or control edges lead from one op to another."""
    pending, seen = [second], set[Op]()
    while pending:
        op = pending.pop()
        if op is first:
            return True
        if op not in seen:
            seen.add(op)
            pending += [v.producer for v in op.inputs if v.producer is not None]
            pending += op.after
    return False


@pytest.mark.parametrize("case", CASES_OF_PASSES, ids=map(name_of, CASES_OF_PASSES))
def test_property(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    module = after_pass(case)
    checks = 0
    for name, wanted in case["property"].items():
        check = globals().get(f"check_{name}")
        if name == "executions":
            check_executions(case, module, wanted, monkeypatch)
            checks += 1
        elif check is not None:
            check(module, wanted)
            checks += 1
        else:
            assert name in ("pass", "fetch", "target", "fetched_inner", "no_crash"), name
    assert checks


def check_count(module: Module, wanted: dict[str, int]) -> None:
    found = Counter(op.name for op in module.walk())
    for kind, count in wanted.items():
        assert sum(found[name] for name in KINDS[kind]) == count, kind


def check_keep(module: Module, wanted: list[str]) -> None:
    for name in wanted:
        op = maker(named(module)[name])
        assert op is None or op.name != "constant", f"{name} was computed"


def check_gone(module: Module, wanted: list[str]) -> None:
    assert not set(wanted) & set(named(module))


def check_exactly(module: Module, wanted: list[str]) -> None:
    touched = {name for op in module.walk() for name in op.resources()}
    assert set(named(module)) | touched == set(wanted)


def check_const_values(module: Module, wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        op: Any = maker(named(module)[name])
        assert op.name == "constant"
        np.testing.assert_array_equal(op.array(module.weights), value)


def check_max_constant_bytes(module: Module, wanted: int) -> None:
    sizes = [op.result.tensor.bytes for op in module.walk() if op.name == "constant"]
    assert all(isinstance(n, int) and n <= wanted for n in sizes)


def check_must_run_before(module: Module, wanted: list[list[str]]) -> None:
    for first, second in wanted:
        a, b = maker(named(module)[first]), maker(named(module)[second])
        assert a is not None and b is not None and runs_before(a, b)


def check_control_edges(module: Module, wanted: int) -> None:
    assert sum(len(op.after) for op in module.walk()) == wanted


def check_max_kernels(module: Module, wanted: int) -> None:
    assert 0 < len(module.kernels) <= wanted
    assert sum(op.name == "launch" for op in module.walk()) <= wanted


def check_min_send_count(module: Module, wanted: int) -> None:
    assert sum(op.name == "send" for op in module.walk()) >= wanted


def check_executions(
    case: Case, module: Module, wanted: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs the steps and counts."""
    counts: Counter[str] = Counter()
    run_op = Run.op

    def counted(self: Run, op: Op) -> None:
        counts.update(v.name for v in op.results)
        run_op(self, op)

    monkeypatch.setattr(Run, "op", counted)
    for step in case["steps"]:
        counts.clear()
        inputs = {
            a.name: np.asarray(step["feeds"][a.name], a.tensor.dtype.numpy)
            for a in module.main.body.args
        }
        outputs = interpret(module, inputs)
        for name, value in step["fetches"].items():
            np.testing.assert_allclose(outputs[name], value)
        assert {name: counts[name] for name in wanted} == wanted
