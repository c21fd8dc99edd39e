"""Hostile texts: a mutated text, a huge or deep one, gives an error or a valid module, and soon."""

from __future__ import annotations

import re
import textwrap
import time
from random import Random

import pytest

import tfc.ops
import tfc.tile.ops
from tfc.ir.core import OPS
from tfc.ir.errors import TfcError
from tfc.ir.verifier import verify
from tfc.text import parse_module, print_module

assert tfc.ops and tfc.tile.ops

TEXT = """\
module @m {schedule = ["a", 1.5, (2*S+1)]} {
  dim S = "sequence" in 1..512
  dim R
  variable @limit : tensor<f32>
  func @main(%x: tensor<BxSxf32>, %c: tensor<bool>) -> (%y: tensor<BxSxf32>, %2: tensor<Bxf64>) {
    %w = constant {value = dense<[[1.0, -0.0], [nan, inf]]>} : tensor<2x2xf32>
    %h = constant {value = dense<hex"00000080ffffffff">} : tensor<2xi32>
    %0 = softmax(%x) {axis = 1} : tensor<BxSxf32> loc("model:/softmax", "second \\"node\\"")
    %1 = add(%0, %x) after(%w) on("/job:worker/task:0/device:cpu:0") : tensor<BxSxf32>
    %"a/b:0" = transpose(%1) {permutation = [1, 0]} on(colocate(%1)) : tensor<SxBxf32>
    %2, %3 = split(%x) {axis = 1, sizes = [2, (S-2)]} : tensor<Bx2xf32>, tensor<Bx(S-2)xf32>
    %4 = concat(%2, %3) {axis = 1} : tensor<BxSxf32>
    %5 = slice(%4) {starts = [0, 0], limits = [(B), (S-1)], steps = [1, 1]} : tensor<Bx(S-1)xf32>
    %6 = clip(%1, _, _) : tensor<BxSxf32>
    %7 = if(%c) : tensor<BxSxf32> then {
      %8 = exp(%6) : tensor<BxSxf32>
      yield %8
    } else {
      yield %6
    }
    %f = fusion(%7) {kind = "map"} : tensor<BxSxf32> do(%u: tensor<BxSxf32>) {
      %t = tanh(%u) : tensor<BxSxf32>
      yield %t
    }
    %g = launch(%f) {kernel = @k} : tensor<SxBxf32, ba>
    %h.1 = reduce_sum(%5) {axes = [1], keepdims = false}
    %z = cast(%h.1) {to = f64} : tensor<Bxf64>
    return %f, %z after(%g)
  }
  kernel @k(%a: buffer<(B*S)xf32>, %b: buffer<(B*S)xf32, out>) grid(p0 = ceildiv(S,9)) {k = 1} {
    %zero = tile_full {value = 0.0} : tile<1x128xf32>
    %s = for(%zero) {index = "i0", stop = 4} : tile<1x128xf32> do(%v: tile<1x128xf32>) {
      %l = load(%a) {at = (p0*128+c), where = [0, (p0*128+c+0*i0), (B*S)]} : tile<1x128xf32>
      %m = map(%l, %v) {function = "add"} : tile<1x128xf32>
      next %m
    }
    store(%b, %s) {at = (p0*128+c), where = [0, (p0*128+c), (B*S)]}
  }
}
"""
PIECES = [
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "%",
    "@",
    "^",
    '"',
    ",",
    "=",
    ":",
    "x",
    "0",
    "-1",
    "_",
]
PIECES += [
    "9999999999999999999999",
    "tensor<f32>",
    "S",
    "%x",
    "\\",
    "//",
    "\n",
    "\u00e9",
    "\x00",
    "i4",
]
PIECES += [
    "floordiv(",
    "dense<",
    "nan",
    "1e999",
    "%0",
    "after(",
    "on(",
    "loc(",
    "do {",
    "S*",
    "Ab16a",
]


def mutate(text: str, random: Random) -> str:
    for _ in range(random.randrange(1, 4)):
        a = random.randrange(len(text) + 1)
        b = min(len(text), a + int(random.expovariate(0.2)))
        match random.randrange(6):
            case 0:
                text = text[:a] + text[b:]
            case 1:
                text = text[:a] + random.choice(PIECES) + text[a:]
            case 2:
                text = text[:a] + random.choice(PIECES) + text[b:]
            case 3:
                text = text[:b] + text[a:]
            case 4:
                place = random.randrange(len(text) + 1)
                text = text[:place] + text[a:b] + text[place:]
            case _:
                lines = text.split("\n")
                lines.insert(random.randrange(len(lines)), random.choice(lines))
                text = "\n".join(lines)
    return text


def survives(text: str) -> bool:
    """Whether a text is a valid module; what is none must give an error of ours."""
    try:
        module = parse_module(text)
        verify(module)
    except TfcError as error:
        assert str(error)
        return False
    printed = print_module(module)
    assert print_module(parse_module(printed)) == printed
    return True


def run_mutations(count: int, seed: int) -> None:
    random = Random(seed)
    valid = 0
    for _ in range(count):
        text = mutate(TEXT, random)
        try:
            valid += survives(text)
        except Exception as error:
            raise AssertionError(f"{error!r} from\n{text}") from error
    assert 0 < valid < count


def test_text_is_valid() -> None:
    assert survives(TEXT)


def test_mutations() -> None:
    run_mutations(1000, 1)


@pytest.mark.slow
def test_many_mutations() -> None:
    run_mutations(5000, 2)


EXAMPLES = {
    name: textwrap.dedent(found[1])
    for name, cls in sorted(OPS.items())
    if (found := re.search(r"```mlir\n(.*?)```", cls.__doc__ or "", re.DOTALL))
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_mutated_examples(name: str) -> None:
    """No mutation of an op's example breaks its inference or verification."""
    random = Random(name)
    for _ in range(10):
        text = mutate(EXAMPLES[name], random)
        untyped = re.sub(r"\) : tensor<[^<>]*>$", ")", text, flags=re.MULTILINE)
        survives(random.choice([text, untyped]))


def function(body: str) -> str:
    return f"func @f(%x: tensor<Sxf32>) {{\n{body}\nreturn\n}}"


N = 20_000
BOMBS = {
    "regions": '%a = fusion(%x) {kind = "m"} : tensor<Sxf32> do(%u: tensor<Sxf32>) {\n' * 2000,
    "lists": "%a = reshape(%x) {shape = " + "[" * N + "]" * N + "}",
    "parentheses": "%a = reshape(%x) {shape = [" + "(" * N + "S" + ")" * N + "]}",
    "dimension": "%a = neg(%x) : tensor<" + "(" * N + "S" + ")" * N + "xf32>",
    "calls": "%a = neg(%x) : tensor<(" + "max(S," * N + "1" + ")" * N + ")xf32>",
    "product": "%a = neg(%x) : tensor<(" + "*".join(["(A+B+C+D+E+F+G+H+1)"] * 40) + ")xf32>",
    "power": "%a = neg(%x) : tensor<(" + "*".join(["99999999999"] * 4000) + ")xf32>",
    "sum": "%a = neg(%x) : tensor<(" + "+".join(f"S{i}" for i in range(N)) + ")xf32>",
    "minus": "%a = neg(%x) : tensor<(" + "-" * N + "S)xf32>",
    "rank": "%a = neg(%x) : tensor<" + "2x" * N + "f32>",
    "dense depth": "%a = constant {value = dense<" + "[" * N + "]" * N + ">} : tensor<f32>",
    "dense size": "%a = constant {value = dense<0>} : tensor<9999999x9999999xf32>",
    "dense zero": "%a = constant {value = dense<[]>} : tensor<0x9999999999x9999999999xf32>",
    "digits": "%a = softmax(%x) {axis = " + "9" * N + "}",
    "tag": "%a = neg(%x) : tensor<2xf32, " + "a16b" * N + ">",
    "open operands": "%a = neg(" * N,
    "open dictionaries": "%a = neg {a = " * N,
    "open strings": '%a = neg {a = "' * N,
    "types": "%a = neg : " + "tensor<2xf32>, " * N,
    "keywords": "do(%a: " * N,
    "spaces": " " * (50 * N) + "~",
    "comments": "//\n" * (10 * N) + "~",
    "quotes": '"' * N,
    "name": "%" + "a" * (50 * N) + " = nag",
    "results": ", ".join(f"%r{i}" for i in range(N)) + " = split(%x) {axis = 0, sizes = []}",
    "carets": "^" * N,
    "escapes": '%a = gelu(%x) {approximate = "' + "\\\\" * N + '\\q"}',
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    start = time.thread_time()
    with pytest.raises(TfcError):
        parse_module(function(BOMBS[name]))
    assert time.thread_time() - start < 1
