"""Graphs that the tests of the Triton backend compile, with seeded weights and inputs."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tfc.ops  # registers the ops  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tfc.interpret import bind_symbols, interpret
from tfc.ir.core import Kernel, Module
from tfc.ir.types import DTYPES
from tfc.ir.weights import Weights
from tfc.passes.base import PassContext
from tfc.passes.manager import PassManager
from tfc.passes.pipeline_text import parse_pipeline
from tfc.passes.pipelines import PIPELINES
from tfc.targets import resolve
from tfc.text.parse import parse_module

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Graph:
    """The body of @main, its weights and the sizes of its symbols."""

    name: str
    text: str
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    dtype: str = "f32"
    tolerance: float = 1e-5

    def __str__(self) -> str:
        return self.name

    def module(self) -> Module:
        """The module as it is written."""
        weights = Weights()
        kind = DTYPES[self.dtype].numpy
        for name, shape in self.weights.items():
            scale = 1 / np.sqrt(max(1, np.prod(shape[1:]))) if len(shape) > 1 else 1.0
            weights.add((self._random(name, shape) * scale).astype(kind), name)
        return parse_module(f'module @m weights("w") {{\n{self.text}\n}}', weights=weights)

    def _random(self, name: str, shape: tuple[int, ...]) -> Array:
        seed = zlib.crc32(f"{self.name}.{name}".encode())
        return np.random.default_rng(seed).standard_normal(shape)

    def inputs(self, module: Module) -> dict[str, Array]:
        """Random inputs; integers are small and may index an axis from either end."""
        found: dict[str, Array] = {}
        for arg in module.main.body.args:
            shape = tuple(
                n if isinstance(n, int) else n.evaluate(self.sizes) for n in arg.tensor.shape
            )
            made = self._random(arg.name, shape)
            if arg.tensor.dtype.is_bool:
                found[arg.name] = made > 0
            elif arg.tensor.dtype.is_integer:
                found[arg.name] = (made * 2).astype(arg.tensor.dtype.numpy)
            else:
                found[arg.name] = made.astype(arg.tensor.dtype.numpy)
        return found


def kernels(module: Module, target: str = "sm_90", level: str = "O3") -> Module:
    """Runs the pipelines down to kernels, in place."""
    passes = [p for name in (level, "kernels") for e in PIPELINES[name] for p in parse_pipeline(e)]
    PassManager(passes).run(module, PassContext(target=resolve(target)))
    return module


def run_triton(module: Module, inputs: dict[str, Array], **options: Any) -> dict[str, Array]:
    """A module of launches, each run in Triton's interpreter."""
    import tfc.backends.triton.interpret as triton
    import tfc.tile.interpret as tile

    def run(kernel: Kernel, buffers: list[Array], symbols: dict[str, int], **_: Any) -> None:
        triton.run_kernel(kernel, buffers, symbols, **options)

    saved = tile.run_kernel
    tile.run_kernel = run  # type: ignore[assignment]
    try:
        return interpret(module, inputs)
    finally:
        tile.run_kernel = saved


def symbols_of(module: Module, inputs: dict[str, Array]) -> dict[str, int]:
    function = module.main
    return bind_symbols(module, function, [inputs[a.name] for a in function.body.args])


def error_of(found: dict[str, Array], wanted: dict[str, Array]) -> float:
    """The largest error over the scale of each output; infinite where NaN or infinities differ."""
    worst = 0.0
    for name, expected in wanted.items():
        w, f = expected.astype(np.float64), found[name].astype(np.float64)
        if not np.array_equal(np.where(np.isfinite(w), 0, w), np.where(np.isfinite(f), 0, f), True):
            return float("inf")
        finite = np.isfinite(w)
        scale = max(1.0, np.abs(w[finite]).max(initial=0))
        worst = max(worst, float(np.abs(f[finite] - w[finite]).max(initial=0)) / scale)
    return worst


def contraction(m: int | str, n: int, k: int, dtype: str = "f32") -> Graph:
    """Bias, GELU and a residual around a product with a constant."""
    rows = str(m)
    kind = f"tensor<{rows}x{n}x{dtype}>"
    text = f"""
      func @main(%x: tensor<{rows}x{k}x{dtype}>, %r: {kind}) -> (%y: {kind}) {{
        %w = constant {{value = @w}} : tensor<{k}x{n}x{dtype}>
        %b = constant {{value = @b}} : tensor<{n}x{dtype}>
        %p = matmul(%x, %w) : {kind}
        %s = add(%p, %b) : {kind}
        %g = gelu(%s) : {kind}
        %y = add(%g, %r) : {kind}
        return %y
      }}"""
    sizes = {"M": 125} if m == "M" else {}
    error = {"f32": 1e-5, "f16": 3e-3, "bf16": 2e-2}[dtype]
    return Graph(
        f"contraction-{m}x{n}x{k}-{dtype}", text, {"w": (k, n), "b": (n,)}, sizes, dtype, error
    )


def convolution(
    c: int, size: int, o: int, kernel: int = 3, stride: int = 1, n: int = 1, groups: int = 1
) -> Graph:
    """Bias and ReLU after a padded convolution."""
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    w = (o, c // groups, kernel, kernel)
    text = f"""
      func @main(%x: tensor<{n}x{c}x{size}x{size}xf32>) -> (%y: tensor<{n}x{o}x{out}x{out}xf32>) {{
        %w = constant {{value = @w}} : tensor<{"x".join(map(str, w))}xf32>
        %b = constant {{value = @b}} : tensor<{o}xf32>
        %p = conv(%x, %w, %b) {{strides = [{stride}, {stride}], low_pads = [{pad}, {pad}],
          high_pads = [{pad}, {pad}], groups = {groups}}} : tensor<{n}x{o}x{out}x{out}xf32>
        %y = relu(%p) : tensor<{n}x{o}x{out}x{out}xf32>
        return %y
      }}"""
    name = f"convolution-{n}x{c}x{size}-{o}-{kernel}x{kernel}-s{stride}-g{groups}"
    return Graph(name, text, {"w": w, "b": (o,)})


def two_convolutions(c: int, size: int) -> Graph:
    """The second reads channels in blocks."""
    kind = f"tensor<1x{c}x{size}x{size}xf32>"
    body = "\n".join(
        f"""%w{i} = constant {{value = @w{i}}} : tensor<{c}x{c}x3x3xf32>
        %c{i} = conv({x}, %w{i}) {{low_pads = [1, 1], high_pads = [1, 1]}} : {kind}
        %r{i} = relu(%c{i}) : {kind}"""
        for i, x in enumerate(("%x", "%r0"))
    )
    text = f"func @main(%x: {kind}) -> (%y: {kind}) {{\n{body}\nreturn %r1\n}}"
    return Graph(f"two-convolutions-{c}x{size}", text, {"w0": (c, c, 3, 3), "w1": (c, c, 3, 3)})


def softmax(rows: int | str, n: int | str) -> Graph:
    kind = f"tensor<{rows}x{n}xf32>"
    text = f"""
      func @main(%x: {kind}) -> (%y: {kind}) {{
        %y = softmax(%x) {{axis = 1}} : {kind}
        return %y
      }}"""
    return Graph(f"softmax-{rows}x{n}", text, sizes={"S": 37, "N": 301})


def layer_norm(rows: int | str, n: int) -> Graph:
    kind = f"tensor<{rows}x{n}xf32>"
    text = f"""
      func @main(%x: {kind}) -> (%y: {kind}) {{
        %g = constant {{value = @g}} : tensor<{n}xf32>
        %b = constant {{value = @b}} : tensor<{n}xf32>
        %y = layer_norm(%x, %g, %b) {{axis = 1, epsilon = 1e-5}} : {kind}
        return %y
      }}"""
    return Graph(f"layer-norm-{rows}x{n}", text, {"g": (n,), "b": (n,)}, {"S": 37})


def attention(heads: int, t: int | str, s: int | str, d: int, mask: bool = False) -> Graph:
    more = f", %m: tensor<1x1x{t}x{s}xf32>" if mask else ""
    text = f"""
      func @main(%q: tensor<1x{heads}x{t}x{d}xf32>, %k: tensor<1x{heads}x{s}x{d}xf32>,
          %v: tensor<1x{heads}x{s}x{d}xf32>{more}) -> (%y: tensor<1x{heads}x{t}x{d}xf32>) {{
        %y = attention(%q, %k, %v{", %m" if mask else ""}) {{scale = {d**-0.5!r}}}
          : tensor<1x{heads}x{t}x{d}xf32>
        return %y
      }}"""
    name = f"attention-{heads}x{t}x{s}x{d}{'-mask' if mask else ''}"
    return Graph(name, text, sizes={"T": 75, "S": 101})


def turned(m: int, n: int) -> Graph:
    """An operand is transposed, others broadcast."""
    text = f"""
      func @main(%a: tensor<{m}x{n}xf32>, %b: tensor<{n}x{m}xf32>, %c: tensor<{n}xf32>)
          -> (%y: tensor<{m}x{n}xf32>) {{
        %t = transpose(%b) {{permutation = [1, 0]}} : tensor<{m}x{n}xf32>
        %p = mul(%a, %c) : tensor<{m}x{n}xf32>
        %s = add(%p, %t) : tensor<{m}x{n}xf32>
        %y = tanh(%s) : tensor<{m}x{n}xf32>
        return %y
      }}"""
    return Graph(f"turned-{m}x{n}", text)


def max_pool(n: int, c: int, size: int) -> Graph:
    out = (size + 2 - 3) // 2 + 1
    shape = f"tensor<{n}x{c}x{out}x{out}xf32>"
    text = f"""
      func @main(%x: tensor<{n}x{c}x{size}x{size}xf32>) -> (%y: {shape}) {{
        %y = max_pool(%x) {{kernel = [3, 3], strides = [2, 2], low_pads = [1, 1],
          high_pads = [1, 1]}} : {shape}
        return %y
      }}"""
    return Graph(f"max-pool-{n}x{c}x{size}", text)


def simple(name: str, signature: str, result: str, *lines: str, **sizes: int) -> Graph:
    """A graph of a few lines, the last of which makes %y."""
    body = "\n".join(lines)
    text = f"func @main({signature}) -> (%y: {result}) {{\n{body} : {result}\nreturn %y\n}}"
    return Graph(name, text, sizes=sizes)


GATE = (
    contraction(125, 768, 768),
    contraction(1024, 1024, 768),
    contraction(1024, 1024, 768, "f16"),
    convolution(64, 56, 64),
    convolution(64, 56, 64, n=8),
    two_convolutions(64, 28),
    softmax("S", 128),
    softmax("S", 1000),
    attention(12, 128, 128, 64),
    attention(12, "T", "S", 64),
    layer_norm("S", 384),
    turned(300, 200),
    max_pool(1, 64, 56),
)
"""The kernels that must compile without spills, at sizes of real models."""

SMALL = (
    contraction(125, 96, 80),
    contraction("M", 50, 40),
    convolution(16, 10, 24),
    two_convolutions(16, 6),
    softmax("S", 128),
    softmax(3, 1000),
    softmax("S", "N"),
    attention(2, 70, 70, 64),
    attention(2, "T", "S", 64),
    attention(1, 40, 40, 32, mask=True),
    layer_norm("S", 384),
    turned(70, 90),
    max_pool(1, 8, 13),
)
"""The same kinds at sizes that Triton's interpreter runs in a moment."""

SLOW_ODD = (
    contraction(200, 130, 66),
    convolution(3, 15, 16, kernel=7, stride=2),
    convolution(8, 5, 8, groups=2),
    convolution(20, 7, 20, stride=2, n=3),
    max_pool(2, 3, 7),
)
"""Shapes that no tile fits, and that the interpreter takes seconds for."""

ODD = (
    contraction(7, 5, 3),
    contraction(1, 100, 17),
    contraction(33, 1, 1),
    contraction(20, 33, 65, "f16"),
    contraction(20, 33, 65, "bf16"),
    convolution(16, 6, 16, groups=16),
    convolution(16, 7, 32, kernel=1),
    convolution(6, 5, 4),
    softmax(1, 1),
    softmax(3, 17),
    softmax(2, 20000),
    layer_norm(5, 33),
    attention(1, 1, 5, 20),
    attention(2, 5, 40, 33),
    attention(1, 70, "S", 128),
    turned(1, 33),
    simple("sum", "%x: tensor<50x37xf32>", "tensor<37xf32>", "%y = reduce_sum(%x) {axes = [0]}"),
    simple("mean", "%x: tensor<3x50x7xf32>", "tensor<3x1x7xf32>",
        "%y = reduce_mean(%x) {axes = [1], keepdims = true}"),
    simple("max", "%x: tensor<33x5xi32>", "tensor<i32>", "%y = reduce_max(%x) {axes = [0, 1]}"),
    simple("argmax", "%x: tensor<5x300xf32>", "tensor<5xi64>",
        "%y = argmax(%x) {axis = 1, keepdims = false}"),
    simple("argmin", "%x: tensor<50x3xf32>", "tensor<3xi64>",
        "%y = argmin(%x) {axis = 0, keepdims = false}"),
    simple("cumsum", "%x: tensor<4x9x5xf32>", "tensor<4x9x5xf32>", "%y = cumsum(%x) {axis = 1}"),
    simple("concat", "%x: tensor<4x9xf32>, %z: tensor<4x5xf32>", "tensor<4x14xf32>",
        "%y = concat(%x, %z) {axis = 1}"),
    simple("gather", "%x: tensor<9x5xf32>, %i: tensor<7xi64>", "tensor<7x5xf32>",
        "%y = gather(%x, %i) {axis = 0}"),
    simple("pad", "%x: tensor<4x5xf32>", "tensor<7x9xf32>",
        "%y = pad(%x) {low = [1, 2], high = [2, 2]}"),
    simple("integers", "%x: tensor<9x20xi32>, %z: tensor<20x5xi32>", "tensor<9x5xi32>",
        "%y = matmul(%x, %z)"),
    simple("doubles", "%x: tensor<9x20xf64>, %z: tensor<20x5xf64>", "tensor<9x5xf64>",
        "%y = matmul(%x, %z)"),
    simple("batches", "%x: tensor<2x3x9x20xf32>, %z: tensor<2x3x5x20xf32>", "tensor<2x3x9x5xf32>",
        "%t = transpose(%z) {permutation = [0, 1, 3, 2]} : tensor<2x3x20x5xf32>",
        "%y = matmul(%x, %t)"),
    simple("transpose", "%x: tensor<2x3x9x20xf32>", "tensor<9x2x20x3xf32>",
        "%y = transpose(%x) {permutation = [2, 0, 3, 1]}"),
    simple("conv1d", "%x: tensor<2x5x12xf32>, %w: tensor<4x5x3xf32>", "tensor<2x4x10xf32>",
        "%y = conv(%x, %w)"),
    simple("conv3d", "%x: tensor<1x2x4x4x4xf32>, %w: tensor<4x2x3x3x3xf32>",
        "tensor<1x4x2x2x2xf32>", "%y = conv(%x, %w)"),
    simple("average", "%x: tensor<1x16x6x6xf32>", "tensor<1x16x3x3xf32>",
        "%y = average_pool(%x) {kernel = [3, 3], strides = [2, 2], low_pads = [1, 1],"
        " high_pads = [1, 1], count_include_pad = false}"),
    simple("empty", "%x: tensor<0x5xf32>", "tensor<5xf32>", "%y = reduce_sum(%x) {axes = [0]}"),
    simple("scalar", "%x: tensor<f32>", "tensor<f32>", "%y = exp(%x)"),
)  # fmt: skip
"""Shapes that no tile fits, other types, other ops."""
