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


@dataclass(frozen=True)
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
        return parse_module(f"module @m weights(\"w\") {{\n{self.text}\n}}", weights=weights)

    def _random(self, name: str, shape: tuple[int, ...]) -> Array:
        seed = zlib.crc32(f"{self.name}.{name}".encode())
        return np.random.default_rng(seed).standard_normal(shape)

    def inputs(self, module: Module) -> dict[str, Array]:
        """Random inputs; integers are small and may index an axis from either end."""
        found: dict[str, Array] = {}
        for arg in module.main.body.args:
            shape = tuple(n if isinstance(n, int) else n.evaluate(self.sizes) for n in arg.tensor.shape)
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
    for name, w in wanted.items():
        f = found[name].astype(np.float64)
        w = w.astype(np.float64)
        if not np.array_equal(np.isfinite(f), np.isfinite(w)):
            return float("inf")
        same = np.where(np.isfinite(w), f - w, np.where(f == w, 0, np.isnan(f) * np.isnan(w) - 1))
        worst = max(worst, float(np.abs(same).max(initial=0) / max(1.0, np.abs(w[np.isfinite(w)]).max(initial=0))))
    return worst


def contraction(m: int | str, n: int, k: int, dtype: str = "f32") -> Graph:
    """Bias, GELU and a residual around a product with a constant."""
    rows = str(m)
    text = f"""
      func @main(%x: tensor<{rows}x{k}x{dtype}>, %r: tensor<{rows}x{n}x{dtype}>) -> (%y: tensor<{rows}x{n}x{dtype}>) {{
        %w = constant {{value = @w}} : tensor<{k}x{n}x{dtype}>
        %b = constant {{value = @b}} : tensor<{n}x{dtype}>
        %p = matmul(%x, %w) : tensor<{rows}x{n}x{dtype}>
        %s = add(%p, %b) : tensor<{rows}x{n}x{dtype}>
        %g = gelu(%s) : tensor<{rows}x{n}x{dtype}>
        %y = add(%g, %r) : tensor<{rows}x{n}x{dtype}>
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
        %y = attention(%q, %k, %v{", %m" if mask else ""}) {{scale = {d**-0.5!r}}} : tensor<1x{heads}x{t}x{d}xf32>
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
    text = f"""
      func @main(%x: tensor<{n}x{c}x{size}x{size}xf32>) -> (%y: tensor<{n}x{c}x{out}x{out}xf32>) {{
        %y = max_pool(%x) {{kernel = [3, 3], strides = [2, 2], low_pads = [1, 1], high_pads = [1, 1]}}
          : tensor<{n}x{c}x{out}x{out}xf32>
        return %y
      }}"""
    return Graph(f"max-pool-{n}x{c}x{size}", text)
