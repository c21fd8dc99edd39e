"""The checker of test files tells right outputs from wrong ones."""

from __future__ import annotations

import pytest

from tests.filecheck import CheckError, check, read_directives

OUTPUT = """\
func @a(%x: f32) {
  %0 = add(%x,   %x)
  %1 = mul(%0, %x)
  return %1
}
func @b() {
  %0 = sub()
  return %0
}
"""

HOLDS = [
    "// CHECK: add(%x, %x)",
    "// CHECK: func @b\n// CHECK: sub",
    "// CHECK: add\n// CHECK-NEXT: mul\n// CHECK-NEXT: return %1",
    "// CHECK: %1 =\n// CHECK-SAME: mul(\n// CHECK-SAME: %x)",
    "// CHECK: [[A:%[0-9]+]] = add\n// CHECK: mul([[A]], %x)",
    "// CHECK: add([[X:%\\w+]], [[X]])",
    "// CHECK: {{%[0-9]}} = sub{{\\(\\)}}",
    "// CHECK-NOT: div\n// CHECK: add\n// CHECK-NOT: add\n// CHECK: mul",
    "// CHECK-LABEL: func @a\n// CHECK-NOT: sub\n// CHECK-LABEL: func @b\n// CHECK-NOT: mul",
    "// CHECK-LABEL: func @a\n// CHECK: return\n// CHECK-LABEL: func @b\n// CHECK: return %0",
]

FAILS = [
    ("// CHECK: div", "line 1: CHECK: div"),
    ("// CHECK: mul\n// CHECK: add", "line 2"),
    ("// CHECK: add\n// CHECK-NEXT: return", "line 2: CHECK-NEXT"),
    ("// CHECK: add\n// CHECK-SAME: mul", "line 2: CHECK-SAME"),
    ("// CHECK: [[A:%[0-9]+]] = add\n// CHECK: mul(%x, [[A]])", "line 2"),
    ("// CHECK: add\n// CHECK-NOT: sub", "matches: %0 = sub()"),
    ("// CHECK-NOT: mul\n// CHECK: return", "matches: %1 = mul"),
    ("// CHECK-LABEL: func @a\n// CHECK: sub\n// CHECK-LABEL: func @b", "line 2"),
    ("// CHECK-LABEL: func @c", "CHECK-LABEL: func @c"),
    ("// CHECK: [[B]]", "was not captured"),
    ("// CHECK-NXT: add", "no directive"),
    ("// CHECK-NEXT: add", "needs a match before"),
]


@pytest.mark.parametrize("directives", HOLDS)
def test_holds(directives: str) -> None:
    check(OUTPUT, read_directives(directives))


@pytest.mark.parametrize(("directives", "message"), FAILS)
def test_fails(directives: str, message: str) -> None:
    with pytest.raises(CheckError) as error:
        check(OUTPUT, read_directives(directives))
    assert message in str(error.value)
