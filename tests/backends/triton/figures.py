"""What the gate's kernels take on a GPU: `python -m tests.backends.triton.figures [--target T]`.

Nothing is run: registers and spilled bytes of a thread, bytes of shared memory of a program, and
how many loads from global memory there are of each width in bits (copies to shared memory, too).
"""

from __future__ import annotations

import argparse

from tests.backends.triton.graphs import GATE, kernels
from tfc.backends.triton.compile import Compiled, compile_kernel
from tfc.backends.triton.printer import PRECISIONS


def line(graph: str, precision: str, made: Compiled) -> str:
    widths = " ".join(f"{bits}:{n}" for bits, n in made.load_widths.items())
    mma = sorted({name.split(".")[0] for name in made.tensor_cores})
    grid = "x".join(str(n) for n in made.source.grid)
    return (
        f"{graph:34} {made.source.name:14} {precision:7} {grid:18} {made.warps:5} "
        f"{made.registers:5} {made.spills:6} {made.shared:7}  {widths:24} {' '.join(mma)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--only", default="", help="part of a graph's name")
    options = parser.parse_args()
    print(f"{'graph':34} {'kernel':14} {'f32 dot':7} {'grid':18} warps  regs spills  shared  loads")
    for graph in GATE:
        if options.only not in graph.name:
            continue
        for kernel in kernels(graph.module(), options.target).kernels.values():
            dots = any(op.name == "dot" for op in kernel.body.walk())
            for precision in PRECISIONS if dots else ("",):
                made = compile_kernel(kernel, options.target, precision=precision)
                print(line(graph.name, precision, made), flush=True)


if __name__ == "__main__":
    main()
