"""Each mistake in a text is one error that points at it and says what would be right."""

from __future__ import annotations

import pytest

import tfc.ops
import tfc.tile.ops
from tfc.ir.errors import TfcError
from tfc.text import parse_module

assert tfc.ops and tfc.tile.ops

# Where `~` stands the error must point; it is not part of the text.
IN_FUNCTION = {
    "unknown op": (
        "%a = ~mattmul(%x, %x) : tensor<2xf32>",
        "no op is named",
        "did you mean matmul",
    ),
    "unknown operand": (
        "%a = neg(~%y) : tensor<2xf32>",
        "%y is not defined",
        "before they are used",
    ),
    "nearest operand": ("%a = add(%x, ~%xx) : tensor<2xf32>", "%xx is not defined", "%x"),
    "later operand": ("%a = neg(~%b)\n%b = neg(%x)", "%b is not defined", "before"),
    "own operand": ("%a = neg(~%a) : tensor<2xf32>", "%a is not defined", ""),
    "defined twice": ("%a = neg(%x)\n~%a = neg(%x)", "%a is defined twice", "at 2:11"),
    "defined as argument": ("~%x = neg(%x)", "%x is defined twice", "argument"),
    "named twice": ("~%a, %a = split(%x) {axis = 0, sizes = [1, 1]}", "%a is defined twice", ""),
    "too many names": ("~%a, %b = neg(%x) : tensor<2xf32>", "1 results, 2 are named", ""),
    "no names": ("~%a = return %x", "0 results, 1 are named", ""),
    "bare operands": ("%a = neg ~%x", "operands stand in parentheses", "write `neg(%x)`"),
    "operand form": ("%a = neg(~x) : tensor<2xf32>", "'x' is no name of a value", "%name"),
    "operand comma": ("%a = add(%x ~%x) : tensor<2xf32>", "expected `,`", ""),
    "operand missing": ("%a = add(%x,~) : tensor<2xf32>", "expected a name", ""),
    "unclosed operands": ("%a = add~(%x, %x : tensor<2xf32>", "nothing closes this `(`", ""),
    "no symbol operand": ("%a = neg(~@w) : tensor<2xf32>", "takes no symbol here", ""),
    "unknown attribute": (
        "%a = softmax(%x) {~axes = 0}",
        "softmax has no attribute 'axes'",
        "did you mean axis",
    ),
    "attribute twice": ("%a = softmax(%x) {axis = 0, ~axis = 0}", "given twice", ""),
    "attribute comma": ("%a = softmax(%x) {axis = 0 ~axis = 0}", "expected `,` or `}`", ""),
    "attribute value": ("%a = softmax(%x) {axis = ~}", "expected a value", "a number"),
    "attribute word": ("%a = cast(%x) {to = ~flaot}", "'flaot' is no value", "number"),
    "attribute dtype": ("%a = cast(%x) {to = ~f31}", "'f31' is no value", "f32"),
    "reserved dtype": ("%a = cast(%x) {to = ~f8e5m2}", "f8e5m2 is reserved", ""),
    "attribute key": ("%a = softmax(%x) {axis = 0, ~0}", "the name of an attribute", "axis = 1"),
    "unclosed dictionary": (
        "%a = softmax(%x) ~{axis = 0\n%b = neg(%x)",
        "closes this dictionary",
        "`}`",
    ),
    "no key": ("%a = softmax(%x) {~0 = 0}", "the name of an attribute", "axis = 1"),
    "unclosed list": ("%a = reshape(%x) {shape = [2~}", "expected `,` or `]`", ""),
    "big integer": ("%a = softmax(%x) {axis = ~18446744073709551616}", "does not fit 64 bits", ""),
    "big float": ("%a = elu(%x) {alpha = ~1e999}", "out of range", "inf"),
    "bad escape": ('%a = gelu(%x) {approximate = "ta~\\qnh"}', "no character is written", "\\n"),
    "open string": ('%a = gelu(%x) {approximate = ~"tanh}', "has no end", ""),
    "bad symbol": ("%a = constant {value = ~@} : tensor<2xf32>", "a name after `@`", ""),
    "bad layout": ("%a = neg(%x) : tensor<2xf32, ~b>", "'b' is no layout of 1 axes", "aBcd16b"),
    "layout block": ("%a = neg(%x) : tensor<2x2xf32, ~ab16b>", "no layout of 2 axes", "capital"),
    "dense shape": (
        "%a = constant {value = dense<~[1.0]>} : tensor<2xf32>",
        "the shape 1, its type is tensor<2xf32>",
        "",
    ),
    "dense ragged": (
        "%a = constant {value = dense<[[1], [1, 2]~]>} : tensor<2x1xi8>",
        "lengths",
        "",
    ),
    "dense range": ("%a = constant {value = dense<[1, ~128]>} : tensor<2xi8>", "128 is no i8", ""),
    "dense float": ("%a = constant {value = dense<~1.5>} : tensor<i8>", "1.5 is no i8", ""),
    "dense overflow": (
        "%a = constant {value = dense<~1e39>} : tensor<f32>",
        "out of the range",
        "",
    ),
    "dense bool": ("%a = constant {value = dense<~1>} : tensor<bool>", "no element of bool", ""),
    "dense word": ("%a = constant {value = dense<~one>} : tensor<f32>", "no element of f32", ""),
    "dense nan": ("%a = constant {value = dense<~nan(0x1)>} : tensor<f32>", "no NaN of f32", ""),
    "dense hex": (
        '%a = constant {value = dense<~hex"00">} : tensor<f32>',
        "2 hex digits",
        "needs 8",
    ),
    "dense dynamic": ("%a = constant {value = dense<~1>} : tensor<Sxf32>", "a static shape", ""),
    "dense large": (
        "%a = constant {value = dense<~1>} : tensor<99999999999xf32>",
        "more than 16 MiB",
        "safetensors",
    ),
    "dense type": ("%a = neg(%x) {~value = dense<1>}", "no attribute 'value'", ""),
    "expression end": ("%a = reshape(%x) {shape = [(S ~S)]}", "over before 'S'", "functions"),
    "expression char": ("%a = reshape(%x) {shape = [(S ~/ 2)]}", "holds no '/'", "floordiv"),
    "expression open": ("%a = reshape(%x) {shape = [~(S]}", "nothing closes this `(`", ""),
    "expression call": (
        "%a = reshape(%x) {shape = [(~maxx(S, 1))]}",
        "no function",
        "did you mean max",
    ),
    "expression arity": ("%a = reshape(%x) {shape = [(max(S~))]}", "expected `,`", ""),
    "expression zero": ("%a = reshape(%x) {shape = [(~mod(S, 0))]}", "divides by zero", ""),
    "expression size": ("%a = reshape(%x) {shape = [(S + ~9223372036854775808)]}", "64 bits", ""),
    "expression name": ("%a = reshape(%x) {shape = [(max~)]}", "max takes two", "max(a, b)"),
    "dtype": ("%a = neg(%x) : tensor<2x~f33>", "no element type 'f33'", "f32"),
    "no dtype": ("%a = neg(%x) : tensor<2x~>", "the element type is missing", "f32"),
    "reserved type": ("%a = neg(%x) : tensor<2x~i4>", "i4 is reserved", ""),
    "complex type": ("%a = neg(%x) : tensor<2x~complex64>", "complex64 is reserved", ""),
    "string type": ("%a = neg(%x) : tensor<~string>", "string is reserved", ""),
    "type kind": ("%a = neg(%x) : ~tensr<2xf32>", "no type 'tensr'", "did you mean tensor"),
    "lower dim": ("%a = neg(%x) : tensor<~nxf32>", "'n' is no dimension", "capital"),
    "dim with x": ("%a = neg(%x) : tensor<~max_lenxf32>", "'ma' is no dimension", "lower-case x"),
    "open dim": ("%a = neg(%x) : tensor<~(S+1xf32>", "does not end in `)x`", ""),
    "negative dim": ("%a = neg(%x) : tensor<~(1-2)xf32>", "never negative", ""),
    "big dim": ("%a = neg(%x) : tensor<~99999999999999999999xf32>", "64 bits", ""),
    "tile rank": ("%a = neg(%x) : tile<~8xf32>", "two static dimensions", "tile<8x16xf32>"),
    "tile zero": ("%a = neg(%x) : tile<~0x8xf32>", "two static dimensions", ""),
    "tile layout": ("%a = neg(%x) : tile<8x8xf32, ~ab>", "a tile has no layout", ""),
    "buffer rank": ("%a = neg(%x) : buffer<~8x8xf32>", "one dimension, not 2", ""),
    "buffer mode": ("%a = neg(%x) : buffer<~8xf32, inn>", "no mode 'inn'", "inout"),
    "order": ("%a = neg(%x) : tensor<2xf32> ~after(%x)", "out of order", "after, on, types"),
    "clause twice": ("%a = softmax(%x) {axis = 0} ~{axis = 0}", "out of order", ""),
    "after argument": ("%a = neg(%x) after(~%x) : tensor<2xf32>", "an argument", ""),
    "after unknown": ("%a = neg(%x) after(~^log) : tensor<2xf32>", "^log is not defined", ""),
    "after form": ("%a = neg(%x) after(~log) : tensor<2xf32>", "no name of a value", ""),
    "label with results": ("~^a: neg(%x) : tensor<2xf32>", "needs no label", "after"),
    "device form": ("%a = neg(%x) on(~/cpu) : tensor<2xf32>", "expected a device", "colocate"),
    "colocate": ("%a = neg(%x) on(colocate(~%y)) : tensor<2xf32>", "%y is not defined", ""),
    "colocate several": ("%a = neg(%x) on(~colocate(%x, %x))", "one op", ""),
    "loc form": ("%a = neg(%x) : tensor<2xf32> loc(~a)", "expected a string", ""),
    "missing region": (
        "%a = ~if(%x) : tensor<2xf32> then {\nyield %x\n}",
        "if needs the region `else`",
        "",
    ),
    "other region": (
        "%a = if(%x) : tensor<2xf32> ~do {\nyield %x\n}",
        "if: unexpected region do",
        "then, else",
    ),
    "no regions": (
        "%a = neg(%x) : tensor<2xf32> ~do {\nyield %x\n}",
        "unexpected region",
        "no reg",
    ),
    "inner name": (
        "%a = if(%x) : tensor<2xf32> then {\n%i = neg(%x)\nyield %i\n} else {\nyield ~%i\n}",
        "%i is not defined",
        "",
    ),
    "shadowing": (
        "%a = if(%x) : tensor<2xf32> then {\n~%x = neg(%x)\nyield %x\n} else {\nyield %x\n}",
        "%x is defined twice",
        "",
    ),
    "region argument": (
        '%a = fusion(%x) {kind = "m"} : tensor<2xf32> do(~%u: buffer<2xf32>) {\nyield %u\n}',
        "arguments here are tensors or tiles",
        "",
    ),
    "infer explicit": ("%a = ~if(%x) then {\nyield %x\n} else {\nyield %x\n}", "must be given", ""),
    "infer mistake": ("%a = ~softmax(%x) {axis = 1}", "axis 1 is no axis of rank 1", ""),
    "infer missing": ("%a = ~add(%x)", "the operand y is missing", ""),
    "stray": ("~= neg(%x)", "unexpected '='", "the name of an op"),
    "stray type": ("%a = neg(%x) tensor~<2xf32>", "unexpected '<'", "types (`: tensor<f32>`)"),
}

WHOLE = {
    "empty": ("~", "the text ends too early", "expected `module`"),
    "unclosed module": ("module {~", "the text ends too early", "`func`"),
    "unclosed function": ("module { func @f() {~", "the text ends too early", "`}`"),
    "two modules": ("module { }\n~module { }", "unexpected 'module'", "the end of the text"),
    "unknown item": ("module { ~fun @f() { return } }", "unexpected 'fun'", "`func`"),
    "function twice": ("func @f() { return }\nfunc ~@f() { return }", "@f is defined twice", ""),
    "kernel twice": ("kernel @f() { }\nkernel ~@f() { }", "@f is defined twice", ""),
    "variable twice": ("variable @f : tensor<f32>\nvariable ~@f : tensor<f32>", "twice", ""),
    "variable types": ("variable @f ~: tensor<f32>, tensor<f32>", "one type, not 2", ""),
    "dim twice": ("dim S\ndim ~S", "S is declared twice", ""),
    "dim name": ("dim ~s", "no symbol of a dimension", "capital"),
    "dim range": ("dim S ~in 3..2", "the range 3..2 is empty", ""),
    "dim bound": ("dim S ~in 1..99999999999999999999", "64 bits", ""),
    "argument twice": (
        "func @f(%x: tensor<f32>, ~%x: tensor<f32>) { return }",
        "two arguments",
        "",
    ),
    "argument types": ("func @f(%x~: tensor<f32>, tensor<f32>) { return }", "one type, not 2", ""),
    "argument kind": ("func @f(~%x: buffer<2xf32>) { return }", "arguments here are tensors", ""),
    "kernel argument": ("kernel @f(~%x: tensor<2xf32>) { }", "arguments here are buffers", ""),
    "no return": ("func ~@f() { }", "@f does not end in `return`", ""),
    "wrong end": ("func @f(%x: tensor<f32>) { %a = ~neg(%x) }", "does not end in `return`", ""),
    "result count": (
        "func @f(%x: tensor<f32>) { ~return %x }",
        "1 values, its signature has 0",
        "",
    ),
    "result type": (
        "func @f(%x: tensor<f32>) -> (~%y: tensor<f64>) { return %x }",
        "the result %y is tensor<f64>, but tensor<f32> returns",
        "",
    ),
    "result twice": (
        "func @f(%x: tensor<f32>) -> (%y: tensor<f32>, ~%y: tensor<f32>) { return %x, %x }",
        "two results have the name %y",
        "",
    ),
    "grid form": ("kernel @f() grid(~3) { }", "a name and `=`", "p0"),
    "grid extent": ("kernel @f() grid(p0 = ~*) { }", "expected `(`", ""),
    "open string": ('module weights(~"w) { }', "the string has no end", ""),
    "kernel isolated": (
        "func @f(%x: tensor<f32>) { return }\nkernel @k() { %a = stage(~%x) : tile<1x1xf32> }",
        "%x is not defined",
        "",
    ),
    "function isolated": (
        "func @f(%x: tensor<f32>) { return }\nfunc @g() { %a = neg(~%x) : tensor<f32> return }",
        "%x is not defined",
        "",
    ),
}


def check(marked: str, message: str, hint: str) -> None:
    text = marked.replace("~", "")
    before = marked[: marked.index("~")]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    with pytest.raises(TfcError) as caught:
        parse_module(text, file="f.tfc")
    error = caught.value
    assert error.position is not None
    assert message in error.message
    assert hint in error.hint or hint in error.message
    shown = error.position.line, error.position.column
    assert shown == (line, column), f"\n{error}"
    assert error.position.text == text.split("\n")[line - 1]


@pytest.mark.parametrize("name", IN_FUNCTION)
def test_in_function(name: str) -> None:
    body, message, hint = IN_FUNCTION[name]
    inside = "\n".join(f"     {line}" for line in body.split("\n"))
    check(f"func @f(%x: tensor<2xf32>) {{\n{inside}\n  return\n}}", message, hint)


@pytest.mark.parametrize("name", WHOLE)
def test_whole_texts(name: str) -> None:
    check(*WHOLE[name])


def test_error_shows_line_and_caret() -> None:
    with pytest.raises(TfcError) as caught:
        parse_module("func @f() {\n  %a = nag(%x)\n}", file="f.tfc")
    first, line, caret, *_ = str(caught.value).split("\n")
    assert first == "f.tfc:2:8: no op is named 'nag'"
    assert caret.index("^") == line.index("nag")


def test_long_lines_are_cut() -> None:
    body = "%a = add(%x, %x)" + " " * 5000 + "{axes = 1}" + " " * 5000
    with pytest.raises(TfcError) as caught:
        parse_module(f"func @f(%x: tensor<f32>) {{\n{body}\n}}")
    _, line, caret, *_ = str(caught.value).split("\n")
    assert len(line) < 140
    assert caret.index("^") == line.index("axes")
