"""Which differences cannot be positive."""

from __future__ import annotations

import pytest

from tfc.text.parse import parse_module
from tfc.tile.ops import Store
from tfc.tile.signs import never_positive


def proved(text: str) -> bool:
    """Whether it is proved of the tile that the kernel stores."""
    kernels = parse_module(
        f"""module {{
  kernel @k(%x: buffer<64xf32>, %b: buffer<8xf32>, %y: buffer<64xf32, out>) {{
    %0 = load(%x) {{at = (8*r+c)}} : tile<8x8xf32>
    %1 = load(%b) {{at = (r)}} : tile<8x1xf32>
    {text}
    store(%y, %9) {{at = (8*r+c)}}
  }}
}}"""
    ).kernels
    (store,) = [op for op in kernels["k"].body if isinstance(op, Store)]
    return never_positive(store.value)


ROW_MAXIMUM = '%2 = reduce(%0) {function = "max"} : tile<8x1xf32>'
LARGER = f'{ROW_MAXIMUM} %3 = map(%1, %2) {{function = "maximum"}} : tile<8x1xf32>'


def shifted(number: str, other: str = "%3") -> str:
    """The row's maximum with a number in the place of -inf."""
    return f"""{LARGER}
    %4 = tile_full {{value = {number}}} : tile<1x1xf32>
    %5 = map({other}, %4) {{function = "equal"}} : tile<8x1xbool>
    %6 = tile_full {{value = 0.0}} : tile<1x1xf32>
    %7 = select(%5, %6, %3) : tile<8x1xf32>"""


@pytest.mark.parametrize(
    "before, x, y",
    [
        (ROW_MAXIMUM, "%0", "%2"),
        (LARGER, "%0", "%3"),
        (LARGER, "%1", "%3"),
        (shifted("-inf"), "%0", "%7"),
        ("", "%0", "%0"),
    ],
)
def test_differences_from_something_as_large(before: str, x: str, y: str) -> None:
    shape = "8x1" if x == "%1" else "8x8"
    assert proved(f'{before} %9 = map({x}, {y}) {{function = "sub"}} : tile<{shape}xf32>')


@pytest.mark.parametrize(
    "before, x, y",
    [
        (ROW_MAXIMUM, "%2", "%0"),  # the other way round
        (ROW_MAXIMUM.replace("max", "min"), "%0", "%2"),
        (ROW_MAXIMUM, "%1", "%2"),  # the maximum of something else
        (LARGER.replace("maximum", "minimum"), "%0", "%3"),
        (shifted("0.0"), "%0", "%7"),  # a 0 in the place of another number
        (shifted("-inf", "%2"), "%0", "%7"),  # where something else is -inf
    ],
)
def test_other_differences(before: str, x: str, y: str) -> None:
    assert not proved(f'{before} %9 = map({x}, {y}) {{function = "sub"}} : tile<8x8xf32>')


def test_other_functions() -> None:
    assert not proved(f'{ROW_MAXIMUM} %9 = map(%0, %2) {{function = "add"}} : tile<8x8xf32>')
