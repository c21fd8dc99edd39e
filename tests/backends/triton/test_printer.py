"""The text of kernels: readable, the same for the same kernel; what it cannot say is refused."""

from __future__ import annotations

import pytest

import tfc.tile.ops  # registers the ops  # noqa: F401  # pyright: ignore[reportUnusedImport]
from tfc.backends.triton.printer import print_kernel, print_module
from tfc.ir.core import Kernel
from tfc.ir.errors import TfcError
from tfc.text.parse import parse_module

SUMS = """
kernel @sums(%x: buffer<(M*40)xf32>, %y: buffer<Mxf32, out>) grid(p0 = ceildiv(M,4)) {
  %0 = load(%x) {at = (160*p0+40*r+c), where = [0, (4*p0+r), (M)]} : tile<4x40xf32>
  %1 = reduce(%0) {function = "sum"} : tile<4x1xf32>
  store(%y, %1) {at = (4*p0+r), where = [0, (4*p0+r), (M)]}
}
"""
PRINTED = """import triton
import triton.language as tl


@triton.jit
def sum_of(a, b):
    return a + b


# grid floordiv(M+3,4) x 1 x 1, num_warps=4, num_stages=3
@triton.jit
def sums(x, y, M):
    p0 = tl.program_id(0)
    c64 = tl.arange(0, 64)[None, :]
    r4 = tl.arange(0, 4)[:, None]
    v0 = tl.load(x + (160*p0 + 40*r4 + c64), mask=(4*p0 + r4 < M) & (c64 < 40), other=0.0)
    v1 = tl.reduce(v0, 1, sum_of, keep_dims=True)
    tl.store(y + (4*p0 + r4), v1, mask=(4*p0 + r4 < M))
"""


def kernel(text: str) -> Kernel:
    return next(iter(parse_module(f"module @m {{\n{text}\n}}").kernels.values()))


def test_readable() -> None:
    """40 columns are padded to 64; bounds that hold are dropped, zeros need no mask in the sum."""
    assert print_kernel(kernel(SUMS)).text == PRINTED


def test_reductions_do_not_see_padding() -> None:
    source = print_kernel(kernel(SUMS.replace('"sum"', '"max"')))
    assert 'tl.where(c64 < 40, v0, float("-inf"))' in source.text
    assert "propagate_nan=tl.PropagateNan.ALL" in source.text


def test_sum_of_a_number_that_is_spread() -> None:
    text = """
    kernel @s(%y: buffer<1xi32, out>) grid(p0 = 1) {
      %0 = tile_full {value = 100} : tile<1x1xi32>
      %1 = tile_full {value = true} : tile<1x17xbool>
      %2 = select(%1, %0, %0) : tile<1x17xi32>
      %3 = reduce(%2) {function = "sum"} : tile<1x1xi32>
      store(%y, %3) {at = 0}
    }"""
    whole = "tl.full((1, 32), 100, tl.int32)"
    assert f"tl.reduce(tl.where(c32 < 17, {whole}, 0), 1," in print_kernel(kernel(text)).text


def test_dots_are_padded_to_sixteen() -> None:
    text = """
    kernel @d(%a: buffer<40xf32>, %b: buffer<40xf32>, %y: buffer<64xf32, out>) grid(p0 = 1) {
      %0 = load(%a) {at = (5*r+c)} : tile<8x5xf32>
      %1 = load(%b) {at = (8*r+c)} : tile<5x8xf32>
      %2 = map(%1) {function = "exp"} : tile<5x8xf32>
      %3 = dot(%0, %2) : tile<8x8xf32>
      store(%y, %3) {at = (8*r+c)}
    }"""
    lines = print_kernel(kernel(text)).text.splitlines()
    assert "    v0 = tl.load(a + (5*r8 + c16), mask=(c16 < 5), other=0.0)" in lines
    assert "    v1 = tl.load(b + (8*r16 + c8), mask=(r16 < 5), other=0.0)" in lines
    dot = 'tl.dot(v0, tl.where(r16 < 5, v2, 0.0), input_precision="ieee")'
    assert f"    v3 = {dot}" in lines


def test_precision() -> None:
    text = """
    kernel @d(%a: buffer<64xf32>, %y: buffer<256xf32, out>) grid(p0 = 1) {precision = "tf32x3"} {
      %0 = load(%a) {at = (16*r+c)} : tile<16x16xf32>
      %1 = dot(%0, %0) : tile<16x16xf32>
      store(%y, %1) {at = (16*r+c)}
    }"""
    assert 'input_precision="tf32x3"' in print_kernel(kernel(text)).text
    assert 'input_precision="tf32"' in print_kernel(kernel(text), precision="tf32").text
    with pytest.raises(TfcError, match="no precision is named 'double'"):
        print_kernel(kernel(text), precision="double")


def test_half_precision_stays_for_tensor_cores() -> None:
    text = """
    kernel @d(%a: buffer<256xbf16>, %y: buffer<256xf32, out>) grid(p0 = 1) {
      %0 = load(%a) {at = (16*r+c)} : tile<16x16xbf16>
      %1 = tile_cast(%0) {to = f32} : tile<16x16xf32>
      %2 = dot(%1, %1) : tile<16x16xf32>
      store(%y, %2) {at = (16*r+c)}
    }"""
    assert "tl.dot(v0, v0, " in print_kernel(kernel(text)).text


def test_many_axes_are_one() -> None:
    text = """
    kernel @g(%y: buffer<(M*N*30)xf32, out>) grid(p0 = M, p1 = N, p2 = 5, p3 = 6) {
      %0 = tile_full {value = 1.0} : tile<1x1xf32>
      store(%y, %0) {at = (30*N*p0+30*p1+6*p2+p3)}
    }"""
    source = print_kernel(kernel(text))
    assert source.programs({"M": 2, "N": 3}) == (180, 1, 1)
    for line in ("p0 = program // (30*N)", "p1 = program // 30 % N", "p3 = program % 6"):
        assert f"    {line}\n" in source.text


def test_sizes_beyond_32_bits() -> None:
    source = print_kernel(kernel(SUMS))
    assert source.programs({"M": 1 << 20}) == (1 << 18, 1, 1)
    with pytest.raises(TfcError, match=r"40\*M is 2147483680, too large for 32-bit indices"):
        source.programs({"M": (1 << 31) // 40 + 1})
    wide = print_kernel(kernel(SUMS), wide=True)
    assert wide.arguments[-1].type == "i64"
    assert wide.programs({"M": 1 << 31}) == (1 << 29, 1, 1)
    static = print_kernel(kernel(SUMS.replace("M", "100000000")))
    assert "p0 = tl.program_id(0).to(tl.int64)" in static.text


def test_names_that_python_takes() -> None:
    with pytest.raises(TfcError, match="the name 'in' cannot stand in Triton source"):
        print_kernel(kernel(SUMS.replace("%x", "%in")))
    with pytest.raises(TfcError, match="the name 'r4'"):
        print_kernel(kernel(SUMS.replace("%x", "%r4")))


def test_one_file_of_a_module() -> None:
    module = parse_module(f"module @m {{\n{SUMS}\n{SUMS.replace('@sums', '@more')}\n}}")
    text = print_module(module)
    assert text.count("def sum_of") == 1
    assert text.count("import triton\n") == 1
    assert compile(text, "module.triton.py", "exec")


def test_launch_numbers() -> None:
    text = SUMS.replace("ceildiv(M,4))", "ceildiv(M,4)) {warps = 2, stages = 5}")
    source = print_kernel(kernel(text))
    assert (source.warps, source.stages) == (2, 5)
    with pytest.raises(TfcError, match="warps = 3"):
        print_kernel(kernel(text.replace("warps = 2", "warps = 3")))
