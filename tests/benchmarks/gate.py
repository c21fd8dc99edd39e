"""The gate: kernels that `schedule` laid out, against a loop of multiply-adds in registers.

`python tests/benchmarks/gate.py [--target NAME] [--seconds S]`. Each graph goes through the
pipelines as `tfc compile` takes it; its kernels run in process on one core, checked against the
interpreter first, then timed in turns with the loop and a copy. Times are CPU times of the thread,
medians; read differences under 5 % as none.

Softmax is compared with a copy, which says little where the arrays fit a cache: then the copy takes
3.3 to 4.5 cycles for 8 floats (Zen 3, AVX2), so that 2.5 copies are 8 to 11, less than the work:

    maximum and a look for NaN          2.0 instructions    1.0 to 1.5 cycles
    difference, exp, store, sum          16 (10 multiply)   5 by the two pipes that multiply; loops
                                                            written by hand reach 7.1 to 7.9 in L1,
                                                            since adds share read ports with them
    product with 1 / sum, store           1                 1 (a store a cycle)

and across the lanes of a row some 20 instructions more. By hand, in C with all in L2: 12.0 cycles
with rows of 128, 10.6 with rows of 1000, which is what the kernels take. AVX-512 halves the work
and leaves the copy, so that there the limit holds.

Attention multiplies each score's exp by 4 * width flops only: 12 cycles beside 32 of products for 8
scores of heads 32 wide, so 72 % at most, and 66 % for 200 keys, which fill 208.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfc.backends.llvm.jit import LoadedCode, jit_kernels
from tfc.driver import load_module
from tfc.interpret import interpret
from tfc.ir.core import Module
from tfc.ir.weights import Weights
from tfc.passes.base import PassContext
from tfc.passes.manager import PassManager
from tfc.passes.pipeline_text import parse_pipeline
from tfc.targets import resolve
from tfc.text.parse import parse_module
from tfc.tile.interpret import kernel_symbols


@dataclass(frozen=True)
class Case:
    """A graph, its inputs' symbols, and the work of a run: flops, or bytes moved."""

    name: str
    kind: str
    text: str
    symbols: dict[str, int]
    flops: int = 0
    moved: int = 0
    limit: float = (
        0.8  # the share of the peak that must be reached; of a copy's time, how often more
    )


def contraction(m: int, n: int, k: int) -> Case:
    text = f"""module {{
  func @main(%x: tensor<{m}x{k}xf32>, %r: tensor<{m}x{n}xf32>) -> (%y: tensor<{m}x{n}xf32>) {{
    %w = constant {{value = @w}} : tensor<{k}x{n}xf32>
    %b = constant {{value = @b}} : tensor<{n}xf32>
    %h = matmul(%x, %w) : tensor<{m}x{n}xf32>
    %a = add(%h, %b) : tensor<{m}x{n}xf32>
    %g = gelu(%a) : tensor<{m}x{n}xf32>
    %y = add(%g, %r) : tensor<{m}x{n}xf32>
    return %y
  }}
}}"""
    return Case(
        f"contraction {m}x{n}x{k} bias gelu residual", "contraction", text, {}, 2 * m * n * k
    )


def convolution(c: int, o: int, h: int, kernel: int = 3, stride: int = 1) -> Case:
    p = kernel // 2
    out = (h + 2 * p - kernel) // stride + 1
    text = f"""module {{
  func @main(%x: tensor<1x{c}x{h}x{h}xf32>) -> (%y: tensor<1x{o}x{out}x{out}xf32>) {{
    %w0 = constant {{value = @w0}} : tensor<{c}x{c}x1x1xf32>
    %w = constant {{value = @w}} : tensor<{o}x{c}x{kernel}x{kernel}xf32>
    %b = constant {{value = @b}} : tensor<{o}xf32>
    %z = conv(%x, %w0) : tensor<1x{c}x{h}x{h}xf32>
    %h = conv(%z, %w, %b)
      {{strides = [{stride}, {stride}], low_pads = [{p}, {p}], high_pads = [{p}, {p}]}}
      : tensor<1x{o}x{out}x{out}xf32>
    %y = relu(%h) : tensor<1x{o}x{out}x{out}xf32>
    return %y
  }}
}}"""
    inside = sum(0 <= i * stride + k - p < h for i in range(out) for k in range(kernel))
    flops = 2 * c * o * inside**2  # what falls on padding is no work
    return Case(
        f"convolution {kernel}x{kernel} {c}->{o} at {h} bias relu", "convolution", text, {}, flops
    )


def softmax(rows: int, cols: int) -> Case:
    text = f"""module {{
  func @main(%x: tensor<Rx{cols}xf32>) -> (%y: tensor<Rx{cols}xf32>) {{
    %y = softmax(%x) {{axis = 1}} : tensor<Rx{cols}xf32>
    return %y
  }}
}}"""
    return Case(f"softmax {rows}x{cols}", "reduction", text, {"R": rows}, 0, 8 * rows * cols, 2.5)


def layer_norm(rows: int, cols: int) -> Case:
    text = f"""module {{
  func @main(%x: tensor<Rx{cols}xf32>) -> (%y: tensor<Rx{cols}xf32>) {{
    %s = constant {{value = @s}} : tensor<{cols}xf32>
    %b = constant {{value = @b}} : tensor<{cols}xf32>
    %y = layer_norm(%x, %s, %b) {{axis = 1}} : tensor<Rx{cols}xf32>
    return %y
  }}
}}"""
    return Case(
        f"layer norm {rows}x{cols}", "reduction", text, {"R": rows}, 0, 8 * rows * cols, 2.5
    )


def attention(heads: int, t: int, d: int, symbolic: bool) -> Case:
    n = "T" if symbolic else str(t)
    kind = f"tensor<{heads}x{n}x{d}xf32>"
    text = f"""module {{
  func @main(%q: {kind}, %k: {kind}, %v: {kind}) -> (%y: {kind}) {{
    %y = attention(%q, %k, %v) {{scale = {d**-0.5}}} : {kind}
    return %y
  }}
}}"""
    name = f"attention {heads}x{t}x{d}{' symbolic' if symbolic else ''}"
    return Case(
        name, "attention", text, {"T": t} if symbolic else {}, 4 * heads * t * t * d, 0, 0.65
    )


CASES = [
    contraction(128, 768, 768),
    contraction(125, 768, 768),
    contraction(197, 1024, 640),
    convolution(64, 64, 56),
    convolution(128, 128, 28),
    convolution(256, 256, 14),
    convolution(512, 512, 7),
    convolution(96, 160, 30),
    convolution(64, 128, 56, 3, 2),
    softmax(1537, 128),
    softmax(301, 1000),
    layer_norm(511, 384),
    attention(12, 128, 64, False),
    attention(12, 128, 64, True),
    attention(8, 200, 32, True),
]


def prepared(case: Case, target: Any) -> tuple[Module, Module, dict[str, Any]]:
    """The graph, its kernels, and inputs."""
    import tfc.ops  # noqa: F401  registers the ops

    rng = np.random.default_rng(0)
    graph = parse_module(case.text, weights=random_weights(case.text, rng))
    inputs = {}
    for arg in graph.main.body.args:
        shape = [d if isinstance(d, int) else d.evaluate(case.symbols) for d in arg.tensor.shape]
        inputs[arg.name] = rng.standard_normal(shape).astype(np.float32)
    kernels = load_module(graph)
    passes = parse_pipeline("O3") + parse_pipeline("kernels")
    PassManager(passes).run(kernels, PassContext(target=target))
    return graph, kernels, inputs


def random_weights(text: str, rng: np.random.Generator) -> Weights:
    """Random values for the weights that a text names, of a scale that keeps activations near 1."""
    weights = Weights()
    for name, dims in re.findall(r"value = @(\w+)} : tensor<([\dx]+)xf32>", text):
        shape = tuple(int(n) for n in dims.split("x"))
        fan_in = max(1, int(np.prod(shape[1:] if len(shape) == 4 else shape[:1])))
        scale = fan_in**-0.5 if len(shape) > 1 else 1.0
        weights.add((rng.standard_normal(shape) * scale).astype(np.float32), name)
    return weights


ROUNDS = 4  # of the loop's body, so that counting costs nothing


def peak_loop(target: Any) -> tuple[Callable[[], None], int]:
    """A loop of multiply-adds on registers alone, and its flops."""
    from tfc.backends.llvm.compile import compile_kernel_text

    lanes = target.lanes(4)
    count = 24 if target.vector_registers > 16 else 12
    kind = f"<{lanes} x float>"
    phis = [
        f"  %a{i}.0 = phi {kind} [ zeroinitializer, %entry ], [ %a{i}.{ROUNDS}, %loop ]"
        for i in range(count)
    ]
    body: list[str] = []
    for step in range(ROUNDS):
        for i in range(count):
            old, new = f"%a{i}.{step}", f"%a{i}.{step + 1}"
            if target.fma:
                operands = f"{kind} %x, {kind} %y, {kind} {old}"
                body.append(f"  {new} = call {kind} @llvm.fma.v{lanes}f32({operands})")
            else:
                body.append(f"  %m{i}.{step} = fmul {kind} {old}, %x")
                body.append(f"  {new} = fadd {kind} %m{i}.{step}, %y")
    stores: list[str] = []
    for i in range(count):
        stores.append(f"  %p{i} = getelementptr {kind}, ptr %out, i64 {i}")
        stores.append(f"  store {kind} %a{i}.{ROUNDS}, ptr %p{i}, align 4")
    lines = [
        f'target triple = "{target.triple}"',
        f"declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})",
        "define void @peak(ptr %in, ptr %out, i64 %n) {",
        "entry:",
        f"  %x = load {kind}, ptr %in, align 4",
        f"  %q = getelementptr {kind}, ptr %in, i64 1",
        f"  %y = load {kind}, ptr %q, align 4",
        "  br label %loop",
        "loop:",
        "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
        *phis,
        *body,
        "  %j = add i64 %i, 1",
        "  %c = icmp slt i64 %j, %n",
        "  br i1 %c, label %loop, label %done",
        "done:",
        *stores,
        "  ret void",
        "}",
    ]
    text = "\n".join(lines) + "\n"
    code = LoadedCode(compile_kernel_text(text, target))
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        code.address("peak")
    )
    data, out = np.full(64, 0.5, np.float32), np.zeros(64 * 64, np.float32)
    trips = 25_000

    def call(keep: Any = (code, data, out)) -> None:
        run(data.ctypes.data, out.ctypes.data, trips)

    return call, trips * ROUNDS * count * lanes * 2


def median_time(functions: list[Callable[[], None]], seconds: float) -> list[float]:
    """The median CPU time of each, all measured in turns."""
    times: list[list[float]] = [[] for _ in functions]
    for f in functions:
        f()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 7:
        for f, t in zip(functions, times, strict=True):
            start = time.thread_time()
            f()
            t.append(time.thread_time() - start)
    return [statistics.median(t) for t in times]


def measure(case: Case, target: Any, seconds: float) -> str:
    graph, module, inputs = prepared(case, target)
    expected = interpret(graph, inputs)
    launches = [op for op in module.main.body if op.name == "launch"]
    arrays: dict[Any, np.ndarray] = {}
    for arg in module.main.body.args:
        arrays[arg] = inputs[arg.name]
    run: Callable[[], None] | None = None
    kernels = [module.kernels[op.attributes["kernel"].name] for op in launches]
    compiled = jit_kernels(kernels, target)
    for op, kernel, code in zip(launches, kernels, compiled, strict=True):
        buffers = [_packed(v, arrays, module) for v in op.inputs]
        for v in op.results:
            shape = [
                d if isinstance(d, int) else d.evaluate(case.symbols) for d in v.tensor.physical
            ]
            arrays[v] = np.full(shape, np.nan, np.float32)
            buffers.append(arrays[v])
        flat = [b.reshape(-1) for b in buffers]
        call = code.prepare(flat, {s: case.symbols[s] for s in kernel_symbols(kernel)})
        call.run()
        if kernel.name.partition("_")[0] == case.kind:
            run = call.run  # the last kernel of the kind is the one that is measured
    assert run is not None, f"no kernel is a {case.kind}"
    out = module.main.body.terminator.inputs[0]
    array = arrays[out]
    kind = out.tensor
    shape = tuple(d if isinstance(d, int) else d.evaluate(case.symbols) for d in kind.shape)
    plain = kind.layout.unpack(array, shape) if kind.layout else array.reshape(shape)
    wanted = next(iter(expected.values()))
    error = float(np.abs(plain - wanted).max() / np.abs(wanted).max())
    peak, peak_flops = peak_loop(target)
    if case.flops:
        mine, loop = median_time([run, peak], seconds)
        share = case.flops / mine / (peak_flops / loop)
        verdict = "ok" if share >= case.limit else "BELOW"
        reached, most = case.flops / mine / 1e9, peak_flops / loop / 1e9
        figures = f"{reached:7.1f} GFLOP/s  {share:6.1%} of {most:.0f}, limit {case.limit:.0%}"
    else:
        source = np.ones(case.moved // 8, np.float32)
        target_array = np.ones_like(source)
        mine, copy = median_time([run, lambda: np.copyto(target_array, source)], seconds)
        verdict = "ok" if mine <= case.limit * copy else "ABOVE"
        moved, times = case.moved / mine / 1e9, mine / copy
        figures = f"{moved:7.1f} GB/s  {times:5.2f} times a copy, limit {case.limit}"
    return f"{case.name:46} {mine * 1e6:8.1f} us {figures} error {error:.0e} {verdict}"


def _packed(value: Any, arrays: dict[Any, np.ndarray], module: Module) -> np.ndarray:
    if value not in arrays:
        constant = value.producer
        if constant.name == "reshape":
            return _packed(constant.inputs[0], arrays, module)
        array = constant.array(module.weights)
        layout = value.tensor.layout
        arrays[value] = np.ascontiguousarray(layout.pack(array) if layout else array)
    return arrays[value]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", default="host")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    target = resolve(options.target)
    print(f"target {target.name}, one core")
    for case in CASES:
        if options.only in case.name:
            print(measure(case, target, options.seconds), flush=True)


if __name__ == "__main__":
    main()
