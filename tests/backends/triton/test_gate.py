"""Graphs scheduled for a GPU: right in Triton's interpreter, no spills, whole as text."""

from __future__ import annotations

from functools import cache

import pytest

import tfc.tile.interpret
from tests.backends.triton.graphs import (
    GATE,
    ODD,
    SLOW_ODD,
    SMALL,
    Array,
    Graph,
    error_of,
    kernels,
    layer_norm,
    run_triton,
    softmax,
    turned,
)
from tfc.backends.llvm.jit import jit_kernels
from tfc.backends.llvm.lower import lower_kernel
from tfc.backends.triton.compile import compile_kernel
from tfc.backends.triton.printer import PRECISIONS, print_kernel
from tfc.interpret import interpret
from tfc.ir.core import Kernel, Module
from tfc.targets import resolve
from tfc.text.parse import parse_module
from tfc.text.print import print_module

QUICK_NAMES = "contraction-125x768x768-f32", "softmax-Sx1000", "attention-12xTxSx64"
QUICK = tuple(g for g in GATE if g.name in QUICK_NAMES)


@cache
def scheduled(graph: Graph, target: str = "sm_90") -> Module:
    return kernels(graph.module(), target)


def check(graph: Graph, target: str = "sm_90") -> None:
    module = graph.module()
    inputs = graph.inputs(module)
    found = run_triton(scheduled(graph, target), inputs)
    assert error_of(found, interpret(module, inputs)) <= graph.tolerance


@pytest.mark.parametrize("graph", SMALL, ids=str)
def test_right(graph: Graph) -> None:
    check(graph)


@pytest.mark.parametrize("graph", ODD, ids=str)
def test_right_for_odd_shapes(graph: Graph) -> None:
    check(graph)


@pytest.mark.slow
@pytest.mark.parametrize("graph", SLOW_ODD, ids=str)
def test_right_for_more_odd_shapes(graph: Graph) -> None:
    check(graph)


@pytest.mark.parametrize("graph", [softmax(5, 20), layer_norm(6, 40), turned(9, 20)], ids=str)
def test_right_with_the_schedule_of_a_cpu(graph: Graph) -> None:
    """The tiles of another target are slow, not wrong."""
    check(graph, "x86-64-v3")


@pytest.mark.slow
@pytest.mark.parametrize("graph", SMALL, ids=str)
def test_all_right_with_the_schedule_of_a_cpu(graph: Graph) -> None:
    check(graph, "x86-64-v3")


def assert_fits(graph: Graph, precision: str) -> None:
    """No spills; something contiguous is loaded 16 bytes at a time if rows have a static length."""
    for kernel in scheduled(graph).kernels.values():
        made = compile_kernel(kernel, precision=precision)
        assert made.spills == 0, f"{kernel.name}: {made.registers} registers, {made.spills} spilled"
        assert made.registers < 255
        assert made.shared <= 227 << 10
        if graph in QUICK:
            assert made.load_widths.get("128", 0) > 0, made.load_widths


@pytest.mark.parametrize("graph", QUICK, ids=str)
def test_no_spills(graph: Graph) -> None:
    assert_fits(graph, "ieee")


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("graph", [*GATE, *SMALL, *ODD, *SLOW_ODD], ids=str)
def test_no_spills_in_any(graph: Graph, precision: str) -> None:
    assert_fits(graph, precision)


@pytest.mark.parametrize("target", ["sm_90", "x86-64-v3"])
@pytest.mark.parametrize("graph", SMALL, ids=str)
def test_text_is_whole(graph: Graph, target: str) -> None:
    """Kernels print as text, which parses back to the same, and lower from what was parsed."""
    module = scheduled(graph, target)
    text = print_module(module)
    parsed = parse_module(text, weights=module.weights)
    assert print_module(parsed) == text
    for name, kernel in parsed.kernels.items():
        assert print_kernel(kernel).text == print_kernel(module.kernels[name]).text
        assert lower_kernel(kernel, resolve("x86-64-v3"), "k").text


@pytest.mark.slow
@pytest.mark.parametrize("graph", SMALL, ids=str)
def test_a_cpu_runs_the_schedule_of_a_gpu(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """One set of ops: what is scheduled for either compiles for both."""
    module = graph.module()
    inputs = graph.inputs(module)

    def run(kernel: Kernel, buffers: list[Array], symbols: dict[str, int]) -> None:
        (compiled,) = jit_kernels([kernel], "x86-64-v3")
        compiled(buffers, symbols)

    monkeypatch.setattr(tfc.tile.interpret, "run_kernel", run)
    found = interpret(scheduled(graph), inputs)
    monkeypatch.undo()
    assert error_of(found, interpret(module, inputs)) <= graph.tolerance
