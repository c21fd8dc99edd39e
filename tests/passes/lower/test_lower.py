"""What `lower` and `schedule` refuse, with a text that says why."""

from __future__ import annotations

import pytest

from tfc.ir.errors import TfcError
from tfc.passes.base import PassContext
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.targets import resolve
from tfc.text import parse_module

SUM = "%1 = reduce_sum(%0) {axes = [1]} : tensor<Sxf32>"
PRODUCT = "%1 = matmul(%0, %0) : tensor<4x4xf32>"


def lower(
    kind: str,
    schedule: str,
    body: str = "%1 = neg(%0) : tensor<Sx4xf32>",
    operand: str = "Sx4",
    result: str = "Sx4",
    pipeline: str = "lower",
) -> None:
    text = f"""module {{
      func @main(%x: tensor<{operand}xf32>) -> (%y: tensor<{result}xf32>) {{
        %y = fusion(%x) {{kind = "{kind}", schedule = "{schedule}"}} : tensor<{result}xf32>
            do(%0: tensor<{operand}xf32>) {{
          {body}
          yield %1
        }}
        return %y
      }}
    }}"""
    context = PassContext(target=resolve("x86-64-v3"))
    PassManager(parse_pipeline(pipeline)).run(parse_module(text), context)


@pytest.mark.parametrize(
    ("kind", "schedule", "message"),
    [
        ("map", "", "the group has no schedule\n.*run the pass `schedule` before `lower`"),
        ("mop", "rows=1", "the kind is 'mop'\n.*one of map, "),
        ("map", "rows=1,columns=4", "the schedule 'rows=1,columns=4' does not fit a map"),
        ("map", "rows=1,cols=four", "does not fit a map"),
        ("map", "rows=1", "does not fit a map"),
        ("contraction", "rows=1,cols=4", "a group of the kind 'contraction' holds no op"),
    ],
)
def test_what_is_no_schedule(kind: str, schedule: str, message: str) -> None:
    with pytest.raises(TfcError, match=f"(?s){message}"):
        lower(kind, schedule)


def test_schedules_that_the_shapes_do_not_allow() -> None:
    with pytest.raises(TfcError, match="'rows=1,cols=4' does not fit a contraction"):
        lower("contraction", "rows=1,cols=4", PRODUCT, operand="4x4", result="4x4")
    with pytest.raises(TfcError, match="'rows=1,cols=4' does not fit: the innermost axis is red"):
        lower("reduction", "rows=1,cols=4", SUM, result="S")
    columns = SUM.replace("[1]", "[0]").replace("Sxf32", "4xf32")
    with pytest.raises(TfcError, match="does not fit: `stage` is for reductions of the innermost"):
        lower("reduction", "rows=1,cols=4,stage=1", columns, result="4")
    unknown = SUM.replace("Sxf32", "4xf32")
    with pytest.raises(TfcError, match="only rows of one axis of known size are one tile"):
        lower("reduction", "rows=1,cols=0,stage=1", unknown, operand="4xS", result="4")
    staged = "rows=1,cols=4,depth=1,strip=0,stage-output=0,stage-rhs=1"
    square = "%1 = matmul(%0, %0) : tensor<SxSxf32>"
    with pytest.raises(TfcError, match="only if its depth is a number"):
        lower("contraction", staged, square, operand="SxS", result="SxS")


def test_sizes_of_zero_have_schedules() -> None:
    text = """module {
      func @main(%x: tensor<1x16x4x0xf32>, %i: tensor<0x16xf32>)
          -> (%y: tensor<1x16x4x0xf32>, %z: tensor<1x16x4x0xf32>, %p: tensor<0x24xf32>) {
        %w = constant {value = dense<0.5>} : tensor<16x16x1x1xf32>
        %v = constant {value = dense<0.5>} : tensor<16x16x3x1xf32>
        %u = constant {value = dense<0.5>} : tensor<16x24xf32>
        %y = conv(%x, %w) : tensor<1x16x4x0xf32>
        %z = conv(%x, %v) {low_pads = [1, 0], high_pads = [1, 0]} : tensor<1x16x4x0xf32>
        %p = matmul(%i, %u) : tensor<0x24xf32>
        return %y, %z, %p
      }
    }"""
    for target in ("x86-64-v2", "x86-64-v4"):
        context = PassContext(target=resolve(target))
        module = parse_module(text)
        PassManager([p for e in ("O3", "kernels") for p in parse_pipeline(e)]).run(module, context)
        assert module.kernels
