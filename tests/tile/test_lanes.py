"""Any number of lanes gives the same numbers; what is no number of lanes is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tfc.backends.llvm.jit import jit_kernels
from tfc.ir.core import Kernel
from tfc.ir.errors import TfcError
from tfc.targets import resolve
from tfc.text import parse_module
from tfc.tile.interpret import run_kernel
from tfc.tile.lanes import lanes_of, natural_lanes

TEXT = """module {
  kernel @norm(%x: buffer<(40*S)xf32>, %y: buffer<(40*S)xf32, out>) grid(p0 = (ceildiv(S,2))) {
    %0 = load(%x) {at = (c+40*r+80*p0), where = [0, (r+2*p0), (S)]} : tile<2x40xf32>
    %1 = map(%0, %0) {function = "mul"} : tile<2x40xf32>
    %2 = reduce(%1) {function = "sum"} : tile<2x1xf32>
    %3 = map(%2) {function = "rsqrt"} : tile<2x1xf32>
    %4 = map(%0, %3) {function = "mul"} : tile<2x40xf32>
    store(%y, %4) {at = (c+40*r+80*p0), where = [0, (r+2*p0), (S)]}
  }
  kernel @blocks(%x: buffer<(64*S)xf32>, %y: buffer<(64*S)xf32, out>) grid(p0 = S) {
    %0 = load(%x) {at = (mod(c,4)+4*p0+4*S*floordiv(c,4))} : tile<1x64xf32>
    store(%y, %0) {at = (c+64*p0)}
  }
}"""


def kernel(name: str) -> Kernel:
    return parse_module(TEXT).kernels[name]


@pytest.mark.parametrize("name", ["norm", "blocks"])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 32])
def test_any_lanes(name: str, lanes: int) -> None:
    made = kernel(name)
    made.attributes["lanes"] = lanes
    symbols = {"S": 5}
    size = 5 * (40 if name == "norm" else 64)
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    expected = np.zeros(size, np.float32)
    run_kernel(made, [x, expected], symbols)
    found = np.zeros(size, np.float32)
    (compiled,) = jit_kernels([made], resolve("host"))
    compiled([x, found], symbols)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("lanes", [0, 1, 3, 128, -4, "wide", 4.0])
def test_what_is_no_number_of_lanes(lanes: object) -> None:
    made = kernel("norm")
    made.attributes["lanes"] = lanes  # type: ignore[assignment]
    with pytest.raises(TfcError, match=r"@norm: lanes = .*\n.*a power of two from 2 to 64"):
        lanes_of(made, resolve("x86-64-v3"))


def test_no_more_than_fit_the_target() -> None:
    made = kernel("norm")
    made.attributes["lanes"] = 16
    assert lanes_of(made, resolve("x86-64-v4")) == 16
    assert lanes_of(made, resolve("x86-64-v3")) == 8


def test_without_the_attribute_the_target_decides() -> None:
    made = kernel("norm")
    assert lanes_of(made, resolve("x86-64-v4")) == natural_lanes(made, resolve("x86-64-v4")) == 16
    assert lanes_of(made, resolve("x86-64-v2")) == 4


def test_what_lies_along_the_grid_does_not_cut_lanes() -> None:
    """A quotient of grid variables, as of a group of channels, is the same for a whole tile."""
    text = """module {
  kernel @groups(%x: buffer<1024xf32>, %y: buffer<1024xf32, out>) grid(p0 = 16) {
    %0 = load(%x) {at = (c+256*floordiv(p0,4)+64*mod(p0,4))} : tile<1x64xf32>
    store(%y, %0) {at = (c+64*p0)}
  }
}"""
    assert natural_lanes(parse_module(text).kernels["groups"], resolve("x86-64-v4")) == 16
