"""Ops a second of parsing, verifying and printing, at sizes that show whether the cost is linear.

Run as `python tests/benchmarks/text.py [--ops 1000 10000 100000]`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

import tfc.ops.arithmetic
import tfc.ops.control
import tfc.ops.linalg
import tfc.ops.normalization
import tfc.ops.softmax
import tfc.ops.transcendental
import tfc.ops.view  # noqa: F401
from tfc.ir.verifier import verify
from tfc.text import parse_module, print_module

T = TypeVar("T")


def layer(number: int, x: str) -> list[str]:
    """Five ops as a graph of a model has them: names, attributes, types, locations."""
    y = f"%l{number}"
    return [
        f'    {y}.m = matmul({x}, %w) : tensor<Bx64xf32> loc("/layer.{number}/MatMul")',
        f'    {y}.a = add({y}.m, %bias) : tensor<Bx64xf32> loc("/layer.{number}/Add")',
        f"    {y}.t = transpose({y}.a) {{permutation = [1, 0]}} : tensor<64xBxf32>",
        f"    {y}.u = transpose({y}.t) {{permutation = [1, 0]}} : tensor<Bx64xf32>",
        f'    {y} = tanh({y}.u) : tensor<Bx64xf32> loc("/layer.{number}/Tanh")',
    ]


def module_text(ops: int) -> str:
    arguments = "%x: tensor<Bx64xf32>, %w: tensor<64x64xf32>, %bias: tensor<64xf32>"
    lines = [f"module @bench {{\n  func @main({arguments}) -> (%y: tensor<Bx64xf32>) {{"]
    x = "%x"
    for number in range(ops // 5):
        lines += layer(number, x)
        x = f"%l{number}"
    return "\n".join([*lines, f"    return {x}", "  }", "}", ""])


def measure(work: Callable[[], T], repeat: int) -> tuple[float, T]:
    """The best of a few runs, in seconds of this thread."""
    best = float("inf")
    for _ in range(repeat):
        start = time.thread_time()
        result = work()
        best = min(best, time.thread_time() - start)
    return best, result  # pyright: ignore[reportPossiblyUnbound]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, nargs="+", default=[1000, 10_000, 100_000])
    print(f"{'ops':>8} {'parse/s':>10} {'verify/s':>10} {'print/s':>10}")
    for ops in parser.parse_args().ops:
        text = module_text(ops)
        repeat = max(1, min(5, 20_000 // ops))
        parsing, module = measure(lambda text=text: parse_module(text), repeat)
        verifying, _ = measure(lambda module=module: verify(module), repeat)
        printing, printed = measure(lambda module=module: print_module(module), repeat)
        assert printed == text, "the text does not come back"
        print(f"{ops:8} {ops / parsing:10.0f} {ops / verifying:10.0f} {ops / printing:10.0f}")


if __name__ == "__main__":
    main()
