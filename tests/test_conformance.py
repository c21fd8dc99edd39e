"""onnx's backend tests: one of each family in every run; all of them are slow tests."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import conformance
from tests.conformance import Arrays, Case, DataSet, run_cases
from tfc.driver import clone_module
from tfc.driver import compile as compile_module
from tfc.importers.onnx import import_onnx
from tfc.interpret import interpret
from tfc.ir.core import Module, SymbolRef
from tfc.ir.errors import UnsupportedError
from tfc.ir.weights import Weights
from tfc.runtime import load

STORED = Path(conformance.data_folder())
CONVERTED = (
    *("AvgPool1d_stride", "AvgPool2d", "BatchNorm2d_eval", "Conv1d_dilated", "Conv2d_depthwise"),
    *("Conv2d_depthwise_padded", "Conv2d_groups", "Conv2d_strided", "Conv3d_groups", "Embedding"),
    *("GLU_dim", "Linear", "MaxPool2d_stride_padding_dilation", "PixelShuffle", "ReplicationPad2d"),
)
OPERATORS = ("addmm", "chunk", "conv", "index", "permute2", "reduced_mean", "repeat", "view")
NODES = (
    *("and_", "argmax", "argmin", "bitshift", "bitwisexor", "cast", "clip", "celu", "concat"),
    *("cosh", "depthtospace", "div", "eyelike", "erf", "flatten", "gather", "gatherelements"),
    *("gathernd", "gelu", "gemm", "globalmaxpool", "hardmax", "hardswish", "isinf"),
    *("instance_normalization", "layernormalization", "less_or_equal", "lrn", "logsoftmax"),
    *("matmul", "mean", "mod", "mish", "pow", "prelu", "rmsnormalization", "round", "shrink"),
    *("sign", "softplus", "spacetodepth", "transpose", "where", "xor"),
)
"""Modules of onnx's node tests, of each of which the first case is taken."""


def quick_cases() -> list[Case]:
    folders = [STORED / "pytorch-converted" / f"test_{name}" for name in CONVERTED]
    folders += [STORED / "pytorch-operator" / f"test_operator_{name}" for name in OPERATORS]
    stored = [conformance.stored_case(folder, folder.parent.name) for folder in folders]
    return stored + [_first_case(name) for name in NODES]


def _first_case(name: str) -> Case:
    package = import_module("onnx.backend.test.case.node")
    module = import_module(f"onnx.backend.test.case.node.{name}")
    # A module's cases are made when it is imported, or were, by an earlier test.
    op_types = {value.__name__ for value in vars(module).values() if isinstance(value, type)}
    tests: list[Any] = vars(package)["_NodeTestCases"]
    found = (t for t in tests if t.model.graph.node[0].op_type in op_types)
    return conformance.generated_case(next(found))


@pytest.mark.filterwarnings("ignore")
def test_one_case_of_each_family(tmp_path: Path) -> None:
    """All in one bundle, which compiles faster than many; interpreted too."""
    cases = quick_cases()
    assert len(cases) >= 60
    modules = [_imported(case, tmp_path / str(i)) for i, case in enumerate(cases)]
    compile_module(merged(modules), tmp_path / "all.tfb")
    with load(tmp_path / "all.tfb") as bundle:
        for index, (case, module) in enumerate(zip(cases, modules, strict=True)):
            function = bundle.functions[f"f{index}"]
            names = [info.name for info in function.inputs]

            def interpreted(arrays: Arrays, m: Module = module, n: list[str] = names) -> Arrays:
                return list(interpret(m, conformance.named(n, arrays)).values())

            def compiled(arrays: Arrays, f: Any = function, n: list[str] = names) -> Arrays:
                return list(f.run(conformance.named(n, arrays)).values())

            for data in case.sets:
                assert not conformance.wrong(case, data, interpreted), case.name
                assert not conformance.wrong(case, data, compiled), case.name


def _imported(case: Case, folder: Path) -> Module:
    folder.mkdir()
    return import_onnx(conformance.placed(case, folder))


def merged(modules: list[Module]) -> Module:
    """One module with the functions f0, f1, ...; none may have symbols."""
    whole = Module(Weights(), "all")
    for index, module in enumerate(modules):
        function = clone_module(module).main
        for op in function.body.walk():
            value = op.attributes.get("value")
            if op.name == "constant" and isinstance(value, SymbolRef):
                op.set_attribute(
                    "value", SymbolRef(whole.weights.add(module.weights.array(value.name)))
                )
        assert not module.dims
        function.name = f"f{index}"
        whole.functions[function.name] = function
    return whole


# ---- the runner


def case_of(name: str) -> Case:
    return Case(name, b"", [DataSet([], [np.float32(1)])])


ENDS: dict[str, Callable[[], Arrays]] = {
    "right": lambda: [np.float32(1)],
    "wrong": lambda: [np.float32(2)],
    "shape": lambda: [np.ones(1, np.float32)],
    "dies": lambda: os._exit(7),
    "hangs": lambda: time.sleep(60) or [],
    "after": lambda: [np.float32(1)],
}


def engine(model: Path, folder: Path) -> Callable[[Arrays], Arrays]:
    name = _NAMES[int(folder.name)]
    if name == "refused":
        raise UnsupportedError("no such thing")
    if name == "raises":
        raise ValueError("oh")
    return lambda arrays: ENDS[name]()


_NAMES = ("right", "wrong", "dies", "shape", "refused", "hangs", "raises", "after")


def test_each_end_of_a_case_is_told() -> None:
    cases = [case_of(name) for name in _NAMES]
    outcomes = {o.name: o for o in run_cases(cases, engine, jobs=1, timeout=1)}
    assert {name: o.verdict for name, o in outcomes.items()} == {
        **{"right": "pass", "after": "pass", "wrong": "wrong", "shape": "wrong"},
        **{"refused": "refused", "raises": "error", "dies": "crash", "hangs": "timeout"},
    }
    assert outcomes["wrong"].message == "output 0: [] is 2.0, not 1.0 (1 of 1 differ)"
    assert outcomes["dies"].message == "exit code 7"
    assert "ValueError: oh" in outcomes["raises"].message


# ---- all of them


@pytest.mark.slow
def test_all_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance.main(["--interpreter", "--only", "^(?!light)"]) == 0, capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_all_compiled(level: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance.main(["--compiled", level]) == 0, capsys.readouterr().out
