"""The forms that the text admits, and what they become."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import tfc.ops
import tfc.tile.ops
from tfc.ir.core import (
    OPS,
    Colocate,
    Module,
    Op,
    SymbolRef,
    Value,
    attribute,
    result,
    result_type,
)
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import F32, I8, Layout, TensorType
from tfc.ir.weights import Weights
from tfc.ops.control import Fusion
from tfc.text import parse_file, parse_module, print_module

assert tfc.ops and tfc.tile.ops

S = symbol("S")


def ops(body: str, arguments: str = "%x: tensor<2xf32>") -> list[Op]:
    module = parse_module(f"func @f({arguments}) {{\n{body}\nreturn\n}}")
    return list(module.main.body)


def value(text: str) -> Any:
    """The attribute `schedule` of a fusion, which may be anything."""
    attributes = f'{{kind = "m", schedule = {text}}}'
    op, _ = ops(f"%a = fusion(%x) {attributes} : tensor<f32> do() {{ yield }}")
    assert isinstance(op, Fusion)
    return op.schedule


def test_module_around_is_optional() -> None:
    text = "func @f(%x: tensor<f32>) -> (%y: tensor<f32>) { return %x }"
    assert print_module(parse_module(text)) == print_module(parse_module(f"module {{ {text} }}"))


def test_names() -> None:
    module = parse_module(
        'func @f(%"a b": tensor<f32>, %463: tensor<f32>) -> (%463: tensor<f32>) {\n'
        '%7 = neg(%"a b")  %"8" = neg(%7)  %"plain" = neg(%"8")  return %plain }'
    )
    body = module.main.body
    assert [a.name for a in body.args] == ["a b", "463"]
    assert [op.results[0].name for op in body if op.results] == ["", "8", "plain"]
    assert module.main.output_names == ["463"]


def test_types_may_be_left_out() -> None:
    a, b, *_ = ops(
        "%a = transpose(%x) {permutation = [1, 0]}\n"
        "%p, %q = split(%a) {axis = 1, sizes = [1, (S-1)]}",
        "%x: tensor<Sx2xf32>",
    )
    assert a.result.type == TensorType(F32, (2, S))
    assert [v.tensor.shape for v in b.results] == [(2, 1), (2, S - 1)]


def test_comments_and_spaces() -> None:
    a, *_ = ops("// one\n%a\n  = // two\nneg\n(%x)// three\n  :   tensor<2xf32> // %b")
    assert a.name == "neg"


def test_control_and_devices() -> None:
    a, b, c, d, e = ops(
        '%a = neg(%x) on("/device:gpu:*")\n^l: store(%x, %a) {at = 0}\n'
        "%c = neg(%a) after(%a, ^l) on(colocate(%a))\n%d = neg(%c) on(colocate(^l))"
    )
    assert a.device == "/device:gpu:*"
    assert b.label == "l"
    assert c.after == [a, b]
    assert list(b.control_users) == [c]
    assert c.device == Colocate(a) and d.device == Colocate(b)
    assert e.name == "return"


def test_locations() -> None:
    a, *_ = ops('%a = neg(%x) loc("model:/a", "b \\"c\\"")')
    assert a.location.nodes == ("model:/a", 'b "c"')
    assert a.location.position is not None
    assert (a.location.position.line, a.location.position.column) == (2, 6)


def test_absent_operands() -> None:
    a, b, *_ = ops("%a = clip(%x, _, %m)\n%b = clip(%x)", "%x: tensor<2xf32>, %m: tensor<f32>")
    assert [v is None for v in a.operands] == [False, True, False]
    assert [v is None for v in b.operands] == [False, True, True]


def test_defaults_are_dropped() -> None:
    a, b, *_ = ops("%a = elu(%x) {alpha = 1.0}\n%b = elu(%x) {alpha = 1}")
    assert a.attributes == {} and b.attributes == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("-5", -5),
        ("18446744073709551615", 2**64 - 1),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("2.", 2.0),
        ("0x1.8p3", 12.0),
        ("-inf", -math.inf),
        ("f32", F32),
        ("@w", SymbolRef("w")),
        ('@"w/0"', SymbolRef("w/0")),
        ("layout<aBc8b>", Layout("aBc8b")),
        ('"a\\n\\u{1f600}\\""', 'a\n\U0001f600"'),
        (
            "(2*S+max(S, 3)-ceildiv(S,2))",
            2 * S + S.max(3) - (S + 1) // 2,
        ),
        ("(3+4)", 7),
        ("[]", ()),
        ('[1, [2.0, [true]], "x"]', (1, (2.0, (True,)), "x")),
    ],
)
def test_attribute_values(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected and type(found) is type(expected)


def test_floats_keep_their_bits() -> None:
    assert struct.pack("<d", value("-0.0")) == struct.pack("<d", -0.0)
    assert struct.pack("<d", value("nan(0xfff8000000000001)")) == bytes.fromhex("010000000000f8ff")


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("0.5", "2x2xf32", np.full((2, 2), 0.5, "f4")),
        ("3", "i64", np.array(3, "i8")),
        ("[[1, 2], [3, 4]]", "2x2xu8", np.array([[1, 2], [3, 4]], "u1")),
        ("[true, false]", "2xbool", np.array([True, False])),
        ("[]", "0x3xf32", np.empty((0, 3), "f4")),
        ("[[], []]", "2x0xf32", np.empty((2, 0), "f4")),
        ("7", "0xf32", np.empty((0,), "f4")),
        ('hex"0000803f000000bf"', "2xf32", np.array([1.0, -0.5], "f4")),
        ("[nan(0x7fc00001), -inf]", "2xf32", np.array([0x7FC00001, 0xFF800000], "u4").view("f4")),
        ("[nan(0x7c01)]", "1xf16", np.array([0x7C01], "u2").view("f2")),
    ],
)
def test_dense(text: str, kind: str, expected: np.ndarray) -> None:
    a, *_ = ops(f"%a = constant {{value = dense<{text}>}} : tensor<{kind}>")
    found = a.attributes["value"].array
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def test_dense_with_a_type_of_its_own() -> None:
    found = value("dense<1> : tensor<2xi8>")
    assert found.type == TensorType(I8, (2,))


def test_dims() -> None:
    module = parse_module('module { dim S = "seq len" in 1..512 dim T in ..4 dim U in 2.. dim V }')
    found = [(d.model_name, d.smallest, d.largest) for d in module.dims.values()]
    assert found == [("seq len", 1, 512), ("", None, 4), ("", 2, None), ("", None, None)]


def test_layouts() -> None:
    text = "func @f(%x: tensor<1x64xSxSxf32, aBcd16b>) { return }"
    assert parse_module(text).main.body.args[0].tensor.layout == Layout("aBcd16b")


# ---- ops of later issues


@pytest.fixture
def later_ops() -> Iterator[None]:
    """`test_read(@v)` takes a symbol."""

    class Read(Op, name="test_read"):
        variable: SymbolRef = attribute("symbol")
        type: TensorType = result_type()
        output: Value = result()

    yield
    del OPS[Read.name]


@pytest.mark.usefixtures("later_ops")
def test_symbols_before_operands() -> None:
    body = "    %a = test_read(@v) : tensor<f32>\n    return\n"
    text = f"module {{\n  variable @v : tensor<f32>\n  func @f() {{\n{body}  }}\n}}\n"
    module = parse_module(text)
    assert next(iter(module.main.body)).attributes == {"variable": SymbolRef("v")}
    assert print_module(module) == text


def test_merge_names_what_comes_later() -> None:
    merged = "%m, %i = merge(%x, %n) : tensor<2xf32>, tensor<i32>"
    merge, following, _ = ops(f"{merged}\n%n = neg(%m)")
    assert merge.operands[1] is following.result
    assert (merge, 1) in following.result.uses
    with pytest.raises(TfcError, match="%n is not defined"):
        ops(merged)


# ---- files


def write(folder: Path, weights: str) -> Path:
    path = folder / "model.tfc"
    path.write_text(
        f'module weights("{weights}") {{ func @f() -> (%w: tensor<2xf32>) {{\n'
        "%w = constant {value = @w0} : tensor<2xf32> return %w } }"
    )
    return path


def test_weights_beside_the_text(tmp_path: Path) -> None:
    save_file({"w0": np.array([1, 2], "f4")}, tmp_path / "model.safetensors")
    module = parse_file(write(tmp_path, "model.safetensors"))
    assert module.weights.array("w0").tolist() == [1, 2]
    assert module.weights.file == "model.safetensors"


def test_given_weights_are_kept() -> None:
    given = Module(Weights("mine")).weights
    assert parse_module('module weights("other") { }', weights=given).weights is given


@pytest.mark.parametrize(
    "weights", ["../model.safetensors", "/etc/passwd", "a/../../b", "link", ""]
)
def test_weights_outside_are_refused(tmp_path: Path, weights: str) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    save_file({"w0": np.array([1, 2], "f4")}, tmp_path / "model.safetensors")
    (folder / "link").symlink_to(tmp_path / "model.safetensors")
    with pytest.raises(TfcError, match="outside of the folder"):
        parse_file(write(folder, weights))


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(TfcError, match="cannot read the text"):
        parse_file(tmp_path / "none.tfc")
    with pytest.raises(TfcError, match="cannot read the weights"):
        parse_file(write(tmp_path, "none.safetensors"))
    (tmp_path / "bytes.tfc").write_bytes(b"\xff")
    with pytest.raises(TfcError, match="not UTF-8"):
        parse_file(tmp_path / "bytes.tfc")
