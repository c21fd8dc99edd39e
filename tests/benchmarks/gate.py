"""Speed of hand-built kernels against the processor: `python tests/benchmarks/gate.py [--target T]`.

Each kernel is checked first. Times are thread CPU time, medians, measured in turns with a loop of
multiply-adds in registers (for kernels that compute) or a copy of the same bytes (for those that move).
"""

from __future__ import annotations

import argparse
import ctypes
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfc.backends.llvm.compile import compile_kernel_text, emit_asm
from tfc.backends.llvm.jit import LoadedCode, RunnableKernel
from tfc.backends.llvm.lower import lower_kernel
from tfc.ir.core import Kernel, Value
from tfc.ir.expr import Dim, Expr, ceildiv, symbol
from tfc.ir.types import F32, BufferType
from tfc.targets import Target, resolve
from tfc.tile.build import C, KernelBuilder, R

Array = np.ndarray[Any, Any]


@dataclass
class Case:
    """A kernel with its data; `work` is its multiplications and additions, or the bytes it moves."""

    name: str
    kernel: Kernel
    arrays: list[Array]
    symbols: dict[str, int]
    expected: Array
    work: float
    unit: str  # "F" or "B"


def aligned(*shape: int) -> Array:
    n = math.prod(shape)
    raw = np.empty(n * 4 + 64, np.uint8)
    start = (-raw.ctypes.data) % 64
    return raw[start : start + n * 4].view(np.float32).reshape(shape)


def random(*shape: int) -> Array:
    out = aligned(*shape)
    out[...] = np.random.default_rng(math.prod(shape)).standard_normal(shape)
    return out


def buffers(**sizes: Dim) -> dict[str, BufferType]:
    """The last one is the output."""
    last = list(sizes)[-1]
    return {n: BufferType(F32, s, "out" if n == last else "in") for n, s in sizes.items()}


# ---- contraction


def contraction(
    m: int, n: int, k: int, rows: int, cols: int, *, plain: bool, depth: int = 8, strips: int = 1
) -> Case:
    """y[M, n] = a[M, k] b[k, n], b in panels of 16 columns; with bias, GELU and a residual."""
    size = symbol("M")
    names = {"a": size * k, "b": n * k}
    if not plain:
        names |= {"bias": n, "residual": size * n}
    b = KernelBuilder(
        "contraction", buffers(**names, y=size * n), [n // cols, ceildiv(size, rows * strips)]
    )
    column = b.program(0) * cols + C
    panel = (column // 16) * (k * 16) + column % 16

    def strip(i: Expr) -> None:
        row = b.program(1) * (rows * strips) + i + R
        inside = [(0, row, size)]

        def step(kk: Expr, acc: Value) -> list[Value]:
            x = b.load(b.buffer("a"), row * k + kk + C, (rows, depth), inside)
            w = b.load(b.buffer("b"), panel + (kk + R) * 16, (depth, cols))
            return [b.dot(x, w, acc)]

        (acc,) = b.loop(0, k, depth, [b.full((rows, cols), 0.0, F32)], step)
        if not plain:
            x = b.map("add", b.stage(acc), b.load(b.buffer("bias"), column, (1, cols)))
            g = b.map("add", b.map("erf", b.map("mul", x, 0.5**0.5)), 1.0)
            x = b.map("mul", b.map("mul", x, 0.5), g)
            acc = b.map(
                "add", x, b.load(b.buffer("residual"), row * n + column, (rows, cols), inside)
            )
        b.store(b.buffer("y"), row * n + column, acc, inside)

    b.loop(0, rows * strips, rows, [], strip)
    a, w, bias, residual, y = random(m, k), random(k, n), random(n), random(m, n), aligned(m, n)
    packed = aligned(n // 16, k, 16)
    packed[...] = w.reshape(k, n // 16, 16).transpose(1, 0, 2)
    expected = a.astype(np.float64) @ w
    arrays = [a, packed, y]
    if not plain:
        x = expected + bias
        expected = 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) + residual
        arrays = [a, packed, bias, residual, y]
    kind = "contraction" if plain else "contraction+gelu"
    return Case(f"{kind} {m}x{n}x{k} {rows}x{cols}", b.kernel, arrays, {"M": m}, expected,
                2.0 * m * n * k, "F")  # fmt: skip


# ---- convolution


def convolution(channels: int, size: int, outputs: int, pixels: int, block: int) -> Case:
    """3x3, stride 1, x[c/16, h+2, w+2, 16] padded already, y[o/16, h, w, 16]; with bias and ReLU."""
    padded = size + 2
    b = KernelBuilder(
        "convolution",
        buffers(
            x=channels * padded * padded,
            w=outputs * channels * 9,
            bias=outputs,
            y=outputs * size * size,
        ),
        [outputs // block, size, -(-size // pixels)],
    )
    o, oh, ow = b.program(0), b.program(1), b.program(2) * pixels + R
    bound = [(0, ow, size)] if size % pixels else []
    column = o * block + C
    loads = (channels // 16, 3, 3)

    def tap(c: Expr, kh: Expr, kw: Expr, acc: Value) -> list[Value]:
        at = ((c * padded + oh + kh) * padded + ow + kw) * 16 + C
        x = b.load(b.buffer("x"), at, (pixels, 16), bound)
        row = (((column // 16) * loads[0] + c) * 3 + kh) * 3 + kw
        w = b.load(b.buffer("w"), (row * 16 + R) * 16 + column % 16, (16, block))
        return [b.dot(x, w, acc)]

    (acc,) = b.loop(0, loads[0], 1, [b.full((pixels, block), 0.0, F32)], lambda c, a:
        b.loop(0, 3, 1, [a], lambda kh, a:
            b.loop(0, 3, 1, [a], lambda kw, a: tap(c, kh, kw, a))))  # fmt: skip
    y = b.map("maximum", b.map("add", acc, b.load(b.buffer("bias"), column, (1, block))), 0.0)
    b.store(b.buffer("y"), (((column // 16) * size + oh) * size + ow) * 16 + column % 16, y, bound)
    x = random(channels // 16, padded, padded, 16)
    w = random(outputs // 16, channels // 16, 3, 3, 16, 16)
    bias, out = random(outputs), aligned(outputs // 16, size, size, 16)
    expected = np.zeros((outputs // 16, 16, size, size))
    for kh in range(3):
        for kw in range(3):
            part = x[:, kh : kh + size, kw : kw + size].astype(np.float64)
            expected += np.einsum("chwi,bcio->bohw", part, w[:, :, kh, kw].astype(np.float64))
    expected = np.maximum(expected + bias.reshape(-1, 16, 1, 1), 0).transpose(0, 2, 3, 1)
    work = 2.0 * channels * outputs * 9 * size * size
    name = f"convolution {channels}->{outputs} {size}x{size} {pixels}x{block}"
    return Case(name, b.kernel, [x, w, bias, out], {}, expected, work, "F")


# ---- rows


def softmax(rows: int, n: int, high: int) -> Case:
    size = symbol("M")
    b = KernelBuilder("softmax", buffers(x=size * n, y=size * n), [ceildiv(size, high)])
    row = b.program(0) * high + R
    inside = [(0, row, size)]
    x = b.load(b.buffer("x"), row * n + C, (high, n), inside)
    e = b.stage(b.map("exp", b.map("sub", x, b.reduce("max", x))))
    y = b.map("mul", e, b.map("reciprocal", b.reduce("sum", e)))
    b.store(b.buffer("y"), row * n + C, y, inside)
    data, out = random(rows, n), aligned(rows, n)
    wide = np.exp(data.astype(np.float64) - data.max(1, keepdims=True))
    expected = wide / wide.sum(1, keepdims=True)
    return Case(f"softmax {rows}x{n} rows {high}", b.kernel, [data, out], {"M": rows}, expected,
                8.0 * rows * n, "B")  # fmt: skip


def layer_norm(rows: int, n: int, high: int) -> Case:
    size = symbol("M")
    b = KernelBuilder("layer_norm", buffers(x=size * n, g=n, b=n, y=size * n), [ceildiv(size, high)])
    row = b.program(0) * high + R
    inside = [(0, row, size)]
    x = b.load(b.buffer("x"), row * n + C, (high, n), inside)
    d = b.map("sub", x, b.map("mul", b.reduce("sum", x), 1 / n))
    variance = b.map("mul", b.reduce("sum", b.map("mul", d, d)), 1 / n)
    scaled = b.map("mul", d, b.map("rsqrt", b.map("add", variance, 1e-5)))
    y = b.map("mul", scaled, b.load(b.buffer("g"), C, (1, n)))
    y = b.map("add", y, b.load(b.buffer("b"), C, (1, n)))
    b.store(b.buffer("y"), row * n + C, y, inside)
    data, g, bias, out = random(rows, n), random(n), random(n), aligned(rows, n)
    wide = data.astype(np.float64)
    wide = wide - wide.mean(1, keepdims=True)
    expected = wide / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-5) * g + bias
    return Case(f"layer norm {rows}x{n} rows {high}", b.kernel, [data, g, bias, out], {"M": rows},
                expected, 8.0 * rows * n, "B")  # fmt: skip


# ---- attention


def attention(heads: int, t: int, d: int, strip: int) -> Case:
    """softmax(q k^T / sqrt(d)) v, a head a program: k is transposed once, queries come in strips."""
    count = heads * t * d
    b = KernelBuilder("attention", buffers(q=count, k=count, v=count, y=count), [heads])
    head = b.program(0) * (t * d)
    turned = b.stage(b.transpose(b.load(b.buffer("k"), head + R * d + C, (t, d))))

    def rows(i: Expr) -> None:
        row = head + (i + R) * d + C
        q = b.load(b.buffer("q"), row, (strip, d))
        s = b.stage(b.map("mul", b.dot(q, turned), d**-0.5))
        p = b.stage(b.map("exp", b.map("sub", s, b.reduce("max", s))))
        total = b.reduce("sum", p)
        o = b.dot(p, b.load(b.buffer("v"), head + R * d + C, (t, d)))
        b.store(b.buffer("y"), row, b.map("mul", o, b.map("reciprocal", total)))

    b.loop(0, t, strip, [], rows)
    q, k, v, y = (random(heads, t, d) for _ in range(4))
    s = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) / math.sqrt(d)
    e = np.exp(s - s.max(2, keepdims=True))
    expected = e / e.sum(2, keepdims=True) @ v
    work = 4.0 * heads * t * t * d
    return Case(f"attention {heads}x{t}x{d} strip {strip}", b.kernel, [q, k, v, y], {}, expected,
                work, "F")  # fmt: skip


# ---- measuring


class Peak:
    """A loop of multiply-adds in registers: what the processor can do."""

    def __init__(self, target: Target) -> None:
        lanes, count = target.lanes(4), 12
        kind = f"<{lanes} x float>"
        phis = "\n".join(
            f"  %a{i} = phi {kind} [ %x, %entry ], [ %n{i}, %loop ]" for i in range(count)
        )
        if target.fma:
            step = "  %n{0} = call {1} @llvm.fma.v{2}f32({1} %a{0}, {1} %y, {1} %x)"
        else:
            step = "  %m{0} = fmul {1} %a{0}, %y\n  %n{0} = fadd {1} %m{0}, %x"
        steps = "\n".join(step.format(i, kind, lanes) for i in range(count))
        sums = "\n".join(
            f"  %s{i + 1} = fadd {kind} %s{i}, %n{i}" if i else f"  %s1 = fadd {kind} %n0, %n0"
            for i in range(count)
        )
        text = f"""
target triple = "{target.triple}"
declare {kind} @llvm.fma.v{lanes}f32({kind}, {kind}, {kind})
define void @peak(ptr %p, i64 %n) {{
entry:
  %x = load {kind}, ptr %p, align 4
  %q = getelementptr i8, ptr %p, i64 64
  %y = load {kind}, ptr %q, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
{phis}
{steps}
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %n
  br i1 %c, label %loop, label %done
done:
{sums}
  store {kind} %s{count}, ptr %p, align 4
  ret void
}}
"""
        self._loaded = LoadedCode(compile_kernel_text(text, target))
        kind_of_call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self._function = kind_of_call(self._loaded.address("peak"))
        self._data = np.zeros(64, np.float32)
        self.steps = 20000
        self.flops = 2.0 * lanes * count * self.steps

    def run(self) -> None:
        self._function(self._data.ctypes.data, self.steps)


def interleaved(first: Callable[[], None], second: Callable[[], None], seconds: float) -> tuple[float, float]:
    """Median thread CPU times of two functions that run in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    first(), second()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 5:
        for run, out in zip((first, second), times, strict=True):
            start = time.thread_time()
            run()
            out.append(time.thread_time() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def measure(case: Case, target: Target, peak: Peak, seconds: float, show: bool) -> None:
    start = time.perf_counter()
    code = lower_kernel(case.kernel, target)
    lowering = time.perf_counter() - start
    if show:
        print(emit_asm(code.text, target))
    compiled = compile_kernel_text(code.text, target)
    total = time.perf_counter() - start
    run = RunnableKernel(case.kernel, code, LoadedCode(compiled))
    case.arrays[-1][...] = np.nan
    flat = [a.reshape(-1) for a in case.arrays]
    call = run.prepare(flat, case.symbols)
    call.run()
    error = np.abs(case.arrays[-1].reshape(case.expected.shape) - case.expected).max()
    error /= max(1.0, np.abs(case.expected).max())
    assert error < 1e-5, f"{case.name}: error {error}"
    if case.unit == "F":
        mine, other = interleaved(call.run, peak.run, seconds)
        rate, limit = case.work / mine / 1e9, peak.flops / other / 1e9
        text = f"{rate:7.1f} GFLOP/s {100 * rate / limit:5.0f} % of the peak of {limit:.0f}"
    else:
        source = np.concatenate([a.reshape(-1) for a in case.arrays[:1]])
        copy = np.empty_like(source)
        mine, other = interleaved(call.run, lambda: np.copyto(copy, source), seconds)
        text = f"{case.work / mine / 1e9:7.1f} GB/s    {mine / other:5.2f} times a copy"
    print(
        f"{case.name:36s} {mine * 1e6:8.0f} us {text:44s} error {error:.0e}  "
        f"lowering {lowering * 1e3:4.0f} ms, LLVM {1e3 * (total - lowering):4.0f} ms, "
        f"{len(compiled)} bytes",
        flush=True,
    )


def cases(target: Target) -> list[Case]:
    wide = target.vector_registers == 32
    tiles = [(8, 48), (14, 32)] if wide and target.avx512 else [(6, 16), (4, 24)]
    out: list[Case] = []
    for rows, cols in tiles:
        if 768 % cols == 0:
            out.append(contraction(128, 768, 768, rows, cols, plain=True))
            out.append(contraction(125, 768, 768, rows, cols, plain=True))
            out.append(contraction(128, 768, 768, rows, cols, plain=False))
            out.append(contraction(125, 768, 768, rows, cols, plain=False))
    pixels, block = (14, 32) if target.avx512 else (6, 16)
    out.append(convolution(64, 56, 64, pixels, block))
    out.append(convolution(128, 28, 128, pixels, block))
    out.append(convolution(256, 14, 256, pixels, block))
    out += [softmax(1537, 128, 1), softmax(1537, 128, 4), softmax(301, 1000, 1)]
    out += [layer_norm(511, 384, 1), layer_norm(511, 384, 4)]
    out += [attention(12, 128, 64, strip) for strip in (4, 8)]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="host")
    parser.add_argument("--only", default="", help="run the cases whose name has this in it")
    parser.add_argument("--seconds", type=float, default=0.4, help="for each case")
    parser.add_argument("--asm", action="store_true", help="print the assembly")
    options = parser.parse_args()
    target = resolve(options.target)
    peak = Peak(target)
    for case in cases(target):
        if options.only in case.name:
            measure(case, target, peak, options.seconds, options.asm)


if __name__ == "__main__":
    main()
