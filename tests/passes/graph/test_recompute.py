"""recompute: the peak falls, the bits stay, in the interpreter and in a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc
import tfc.ops
from tfc.interpret import interpret
from tfc.ir.core import Module
from tfc.ir.verifier import verify
from tfc.passes.base import PassContext
from tfc.passes.graph.recompute import Recompute
from tfc.passes.pipeline_text import parse_pipeline
from tfc.text.parse import parse_module
from tfc.text.print import print_module

assert tfc.ops
LAYERS, WIDTH, BATCH = 6, 16, 64


def layers() -> str:
    """A chain of matrix products and activations, and the mean of the squares of its end."""
    square, wide = f"tensor<{WIDTH}x{WIDTH}xf32>", f"tensor<{BATCH}x{WIDTH}xf32>"
    lines, last = list[str](), "%x"
    for i in range(LAYERS):
        lines.append(f"  %h{i} = matmul({last}, %w{i}) : {wide}")
        lines.append(f"  %m{i} = sigmoid(%h{i}) : {wide}")
        lines.append(f"  %a{i} = mul(%m{i}, %h{i}) : {wide}")
        last = f"%a{i}"
    lines.append(f"  %s = mul({last}, {last}) : {wide}")
    lines.append("  %loss = reduce_mean(%s) {axes = [0, 1]} : tensor<f32>")
    weights = ", ".join(f"%w{i}: {square}" for i in range(LAYERS))
    body = "\n".join(lines)
    return (
        f"func @main(%x: {wide}, {weights}) -> (%loss: tensor<f32>) {{\n{body}\n  return %loss\n}}"
    )


def inputs() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = {"x": (BATCH, WIDTH)} | {f"w{i}": (WIDTH, WIDTH) for i in range(LAYERS)}
    return {n: generator.normal(size=s).astype(np.float32) / 3 for n, s in shapes.items()}


def trained() -> Module:
    module = parse_module(layers())
    tfc.gradients(module, "loss", [f"w{i}" for i in range(LAYERS)])
    return module


def run(module: Module, pipeline: str) -> PassContext:
    context = PassContext()
    for step in parse_pipeline(pipeline):
        step.run(module, context)
        verify(module)
    return context


def test_the_peak_falls_and_the_bits_stay() -> None:
    plain, module = trained(), trained()
    run(plain, "decompose,cse,dce")
    context = run(module, "decompose,cse,dce,recompute")
    before, after = context.figures["peak before"], context.figures["peak after"]
    assert isinstance(before, int) and isinstance(after, int) and after < 0.8 * before
    run(module, "cse,canonicalize,dce")
    assert any(op.name == "optimization_barrier" for op in module.walk())
    expected, found = interpret(plain, inputs()), interpret(module, inputs())
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)


def test_no_more_than_the_limit_asks_for() -> None:
    counts: list[Any] = []
    for limit in (0, 30000, 10**9):
        module = trained()
        context = PassContext()
        changed = Recompute(limit=limit).run(module, context)
        counts.append(context.figures.get("recomputed", 0))
        assert changed == bool(counts[-1])
    assert counts[0] >= counts[1] and counts[2] == 0


def test_the_pass_gradients_and_the_op_ask_for_it() -> None:
    module = parse_module(layers())
    run(module, "gradients{of=loss,wrt=[w0,w1],recompute=true}")
    assert any(op.name == "optimization_barrier" for op in module.walk())
    text = layers().replace("return %loss", "return %g").replace("%loss: tensor<f32>)", GRADIENT)
    line = "%g = gradients(%loss, %w0) {recompute = true}"
    text = text.replace("  return %g", f"  {line} : tensor<{WIDTH}x{WIDTH}xf32>\n  return %g")
    module = parse_module(text)
    run(module, "gradients")
    assert any(op.name == "optimization_barrier" for op in module.walk())


GRADIENT = f"%g: tensor<{WIDTH}x{WIDTH}xf32>)"


def test_a_bundle_gives_the_same_bits(tmp_path: Path) -> None:
    results: list[tuple[Any, ...]] = []
    for number, pipeline in enumerate(("decompose,cse,dce", "decompose,cse,dce,recompute")):
        module = trained()
        run(module, pipeline)
        path = tmp_path / f"{number}.tfb"
        source = tmp_path / f"{number}.tfc"
        source.write_text(print_module(module))
        tfc.compile(source, path, opt_level=1)
        results.append(tfc.load(path)(*inputs().values()))
    for plain, again in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, again)


@pytest.mark.parametrize("text", ["recompute{limit=1000}"])
def test_text(text: str) -> None:
    assert [str(p) for p in parse_pipeline(text)] == [text]
