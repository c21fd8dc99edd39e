"""The verifier refuses each way in which a module can be wrong, and says where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tfc.ops
import tfc.tile.ops
from tfc.ir.core import Module, Op
from tfc.ir.errors import TfcError
from tfc.ir.expr import symbol
from tfc.ir.types import F32, TensorType
from tfc.ir.verifier import verify
from tfc.ir.weights import Weights
from tfc.ops.arithmetic import Add
from tfc.ops.transcendental import Exp
from tfc.text import parse_module

assert tfc.ops and tfc.tile.ops

VALID = """\
dim R
variable @v : tensor<f32>
func @main(%x: tensor<BxSxf32>, %c: tensor<bool>) -> (%y: tensor<BxSxf32>) {
  %w = constant {value = @w0} : tensor<2xf32>
  %a = softmax(%x) {axis = 1} : tensor<BxSxf32>
  %b = if(%c) : tensor<BxSxf32> then {
    %e = exp(%a) after(%w) : tensor<BxSxf32>
    yield %e
  } else {
    yield %x
  }
  %d = launch(%b) {kernel = @k} on("/job:worker/task:*/device:cpu") : tensor<BxSxf32>
  return %d after(%a)
}
kernel @k(%a: buffer<(B*S)xf32>, %b: buffer<(B*S)xf32, out>) grid(p0 = ceildiv(B*S,8)) {
  %z = tile_full {value = 0.0} : tile<1x8xf32>
  %s = for(%z) {index = "i0", stop = (R)} : tile<1x8xf32> do(%u: tile<1x8xf32>) {
    %l = load(%a) {at = (p0*8+c+i0), where = [0, (p0*8+c), (B*S)]} : tile<1x8xf32>
    next %l
  }
  store(%b, %s) {at = (p0*8+c)}
}
"""


def parse(text: str) -> Module:
    weights = Weights("w.safetensors")
    weights.define("w0", TensorType(F32, (2,)), lambda: np.zeros(2, "f4"))
    return parse_module(text, weights=weights)


def test_valid() -> None:
    verify(parse(VALID))


# ---- what a text can say: (part of VALID, what stands instead, message, hint)

TEXTS = {
    "declared type": (
        "{axis = 1} : tensor<BxSxf32>",
        "{axis = 1} : tensor<SxBxf32>",
        "declared as tensor<SxBxf32>, but inferred as tensor<BxSxf32>",
        "",
    ),
    "constraint": ("{axis = 1}", "{axis = 2}", "axis 2 is no axis of rank 2", ""),
    "attribute kind": ("{axis = 1}", '{axis = "1"}', "axis must be int, not '1'", ""),
    "missing attribute": (" {axis = 1}", "", "the attribute axis is missing", ""),
    "missing operand": ("softmax(%x)", "softmax", "the operand x is missing", ""),
    "extra operand": ("softmax(%x)", "softmax(%x, %x)", "2 operands are too many", "x"),
    "absent variadic": ("launch(%b)", "launch(_)", "an operand of arguments is missing", ""),
    "unnamed result": (
        "  %a = softmax(%x) {axis = 1} : tensor<BxSxf32>\n",
        "  softmax(%x) {axis = 1}\n  %a = exp(%x)\n",
        "declared as nothing, but inferred as tensor<BxSxf32>",
        "",
    ),
    "operand kind": ("load(%a)", "load(%z)", "%z is a tile<1x8xf32>, where a buffer is needed", ""),
    "tile in function": (
        "%a = softmax(%x) {axis = 1} : tensor<BxSxf32>",
        "%a = tile_full {value = 0.0} : tile<1x8xf32>",
        "an op of the tile level does not stand here",
        "",
    ),
    "tensor in kernel": (
        "%z = tile_full {value = 0.0} : tile<1x8xf32>",
        "%z = full(%a) {shape = []} : tile<1x8xf32>",
        "an op of the graph level does not stand here",
        "",
    ),
    "tile type in function": (
        "{value = @w0} : tensor<2xf32>",
        "{value = @w0} : tile<2x2xf32>",
        "where values are tensors",
        "",
    ),
    "unbound symbol": (
        "%w = constant {value = @w0} : tensor<2xf32>",
        "%w = launch(%x) {kernel = @k} : tensor<Txf32>",
        "tensor<Txf32>",
        "",
    ),
    "unbound in attribute": (
        "%a = softmax(%x) {axis = 1} : tensor<BxSxf32>",
        "%g = dim_value {value = (T+1)}\n  %a = exp(%x)",
        "value: the symbol T is bound by no input",
        "`dim T`",
    ),
    "unbound in kernel": (
        "at = (p0*8+c+i0)",
        "at = (p1*8+c+i0)",
        "at: the symbol p1",
        "the grid or of a loop",
    ),
    "loop variable outside": (
        "store(%b, %s) {at = (p0*8+c)}",
        "store(%b, %s) {at = (p0*8+i0)}",
        "the symbol i0",
        "a loop around",
    ),
    "unbound in grid": ("ceildiv(B*S,8)", "ceildiv(B*T,8)", "the extent of p0: the symbol T", ""),
    "unbound in buffer": ("%a: buffer<(B*S)xf32>", "%a: buffer<(B*T)xf32>", "the symbol T", ""),
    "unbound dim": ("stop = (R)", "stop = (Q)", "stop: the symbol Q", ""),
    "loop variable twice": ('index = "i0"', 'index = "p0"', "the symbol p0 is bound already", ""),
    "device": ('/device:cpu"', '/device"', "no device is written", "/device:cpu:0"),
    "empty device": ("/job:worker/task:*/device:cpu", "", "no device is written", ""),
    "weight": ("@w0", "@w1", "'w.safetensors' has no weight @w1", "there are w0"),
    "weight type": (
        "{value = @w0} : tensor<2xf32>",
        "{value = @w0} : tensor<3xf32>",
        "is tensor<2xf32>, but the constant tensor<3xf32>",
        "",
    ),
    "kernel name": ("{kernel = @k}", "{kernel = @kk}", "there is no kernel @kk", "did you mean k"),
    "buffers": (
        "launch(%b)",
        "launch(%b, %b)",
        "2 operands and 1 results, but @k has 2 buffers",
        "",
    ),
    "buffer mode": (
        "buffer<(B*S)xf32, out>",
        "buffer<(B*S)xf32, inout>",
        "%b of @k is buffer<(B*S)xf32, inout>",
        "a result cannot be",
    ),
    "buffer size": (
        "%a: buffer<(B*S)xf32>",
        "%a: buffer<(B*R)xf32>",
        "but tensor<BxSxf32> is passed",
        "",
    ),
    "terminator inside": (
        "    yield %e",
        "    yield %e\n    yield %e",
        "it ends its block, but ops follow",
        "",
    ),
    "no terminator": ("    yield %e\n", "", "a region does not end in a terminator", "yield"),
    "empty region": ("    yield %x\n", "", "a region does not end in a terminator", ""),
    "wrong terminator": ("    yield %x", "    return %x", "not the end of a function", ""),
    "yielded type": ("    yield %x", "    yield %c", "`else` yields tensor<bool>", ""),
    "return inside": (
        "  %w = constant",
        "  return %x\n  %w = constant",
        "it ends its block, but ops follow",
        "",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts(name: str) -> None:
    old, new, message, hint = TEXTS[name]
    assert VALID.count(old) >= 1
    with pytest.raises(TfcError) as caught:
        verify(parse(VALID.replace(old, new, 1)))
    error = caught.value
    assert message in error.message, str(error)
    assert hint in error.hint or hint in error.message, str(error)
    assert error.position is not None, str(error)


def test_position_is_that_of_the_op() -> None:
    with pytest.raises(TfcError) as caught:
        verify(parse(VALID.replace("axis = 1", "axis = 2")))
    position = caught.value.position
    assert position is not None
    assert position.text[position.column - 1 :].startswith("softmax")


def test_levels() -> None:
    module = parse(VALID)
    with pytest.raises(TfcError, match="this is the graph level"):
        verify(module, level="graph")
    with pytest.raises(TfcError, match="an op of the graph level does not stand here"):
        verify(module, level="tile")
    verify(
        parse_module("func @f(%x: tensor<f32>) -> (%y: tensor<f32>) { return %x }"), level="graph"
    )


# ---- what only a wrong pass can do


def find(module: Module, name: str) -> Op:
    return next(op for op in module.walk() if op.name == name)


def use_later(module: Module) -> None:
    find(module, "softmax").set_operand(0, find(module, "launch").result)


def use_other_function(module: Module) -> None:
    other = parse_module("func @g(%q: tensor<BxSxf32>) { return }").main.body.args[0]
    find(module, "softmax").set_operand(0, other)


def use_inner(module: Module) -> None:
    find(module, "launch").set_operand(0, find(module, "exp").result)


def use_outer_in_kernel(module: Module) -> None:
    find(module, "store").set_operand(1, find(module, "softmax").result)


def forget_use(module: Module) -> None:
    del find(module, "exp").operands[0].uses[find(module, "exp"), 0]  # pyright: ignore


def keep_use(module: Module) -> None:
    detached = Exp(module.main.body.args[0])
    assert detached.parent is None


def after_later(module: Module) -> None:
    find(module, "softmax").add_after(find(module, "launch"))


def after_inner(module: Module) -> None:
    find(module, "launch").add_after(find(module, "exp"))


def after_one_sided(module: Module) -> None:
    find(module, "launch").after.append(find(module, "softmax"))


def control_user_one_sided(module: Module) -> None:
    find(module, "softmax").control_users[find(module, "launch")] = None


def colocated_later(module: Module) -> None:
    from tfc.ir.core import Colocate

    find(module, "softmax").device = Colocate(find(module, "launch"))


def lost_parent(module: Module) -> None:
    find(module, "softmax").parent = None


def lost_link(module: Module) -> None:
    find(module, "launch").previous = None


def lost_count(module: Module) -> None:
    module.main.body.length += 1


def lost_region(module: Module) -> None:
    find(module, "if").regions.pop()


def lost_owner(module: Module) -> None:
    find(module, "softmax").result.owner = find(module, "exp")


def lost_body(module: Module) -> None:
    module.main.body.parent = None


def lost_region_parent(module: Module) -> None:
    find(module, "if").regions[0].parent = module.main


def lost_argument(module: Module) -> None:
    module.main.body.args[0].index = 1


def odd_attribute(module: Module) -> None:
    find(module, "launch").attributes["kernel"] = object()


def unknown_attribute(module: Module) -> None:
    find(module, "softmax").attributes["axes"] = 1


def other_name(module: Module) -> None:
    module.main.name = "mane"


def no_argument_name(module: Module) -> None:
    module.main.body.args[0].name = ""


def same_argument_names(module: Module) -> None:
    module.main.body.args[0].name = "c"


def same_outputs(module: Module) -> None:
    module.main.output_names = ["y", "y"]


def too_many_outputs(module: Module) -> None:
    module.main.output_names = ["y", "z"]


def same_grid_names(module: Module) -> None:
    module.kernels["k"].grid *= 2


def buffer_in_function(module: Module) -> None:
    module.main.body.args[1].type = module.kernels["k"].body.args[0].type


def tensor_in_kernel(module: Module) -> None:
    module.kernels["k"].body.args[0].type = module.main.body.args[0].type


def odd_symbol(module: Module) -> None:
    module.main.body.args[1].type = TensorType(F32, (symbol("batch"),))


def no_return(module: Module) -> None:
    module.main.body.terminator.erase()


def empty_body(module: Module) -> None:
    module.main.body.clear()


BREAKS: list[tuple[Callable[[Module], None], str]] = [
    (use_later, "is not defined before it"),
    (use_other_function, "is not defined before it"),
    (use_inner, "is not defined before it"),
    (use_outer_in_kernel, "is not defined before it"),
    (forget_use, "does not know that it is used here"),
    (keep_use, "uses on record"),
    (after_later, "which is not defined before it"),
    (after_inner, "which is not defined before it"),
    (after_one_sided, "does not know that this runs after it"),
    (control_user_one_sided, "does not know that it runs after this"),
    (colocated_later, "it is colocated with"),
    (lost_parent, "not where its block says"),
    (lost_link, "not where its block says"),
    (lost_count, "lost count"),
    (lost_region, "it has 1 regions"),
    (lost_owner, "belongs elsewhere"),
    (lost_body, "its body belongs elsewhere"),
    (lost_region_parent, "a region belongs elsewhere"),
    (lost_argument, "belongs elsewhere"),
    (odd_attribute, "which is no attribute"),
    (unknown_attribute, "there is no attribute 'axes'"),
    (other_name, "its own name is 'mane'"),
    (no_argument_name, "a argument has no name"),
    (same_argument_names, "two arguments have the name 'c'"),
    (same_outputs, "two results have the name 'y'"),
    (too_many_outputs, "it gives 1 values, @main has 2 outputs"),
    (same_grid_names, "two grid variables have the name 'p0'"),
    (buffer_in_function, "must be a tensor"),
    (tensor_in_kernel, "must be a buffer"),
    (odd_symbol, "'batch' is no symbol"),
    (no_return, "does not end in `return`"),
    (empty_body, "does not end in `return`"),
]


@pytest.mark.parametrize(("change", "message"), BREAKS, ids=lambda b: getattr(b, "__name__", ""))
def test_breaks(change: Callable[[Module], None], message: str) -> None:
    module = parse(VALID)
    change(module)
    with pytest.raises(TfcError) as caught:
        verify(module)
    assert message in caught.value.message


LOOP = """\
func @f(%x: tensor<f32>) -> (%y: tensor<f32>) {
  %e = enter(%x) {frame = "loop"}
  %m, %i = merge(%e, %n) : tensor<f32>, tensor<i32>
  %p = greater(%m, %e)
  %c = loop_cond(%p)
  %d, %b = switch(%m, %c)
  %t = tanh(%b)
  %n = next_iteration(%t)
  %y = exit(%d)
  return %y
}
"""


def test_merge_may_use_what_comes_later() -> None:
    module = parse_module(LOOP)
    verify(module)
    other = parse_module("func @g(%q: tensor<f32>) { return }").main.body.args[0]
    find(module, "merge").set_operand(1, other)
    with pytest.raises(TfcError, match="not defined in this function"):
        verify(module)
    find(module, "merge").set_operand(1, find(module, "tanh").result)
    with pytest.raises(TfcError, match="is not defined before it"):
        verify(module)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "tanh(%b)",
            "add(%b, %x)",
            "%x is in the function, but the others are in the frame",
        ),
        ("exit(%d)", "exit(%x)", "its operand is in no frame"),
        ("loop_cond(%p)", "loop_cond(%o)", "it is in no frame"),
        ("return %y", "return %t", "%t lives in the frame 'loop'"),
        ("next_iteration(%t)", "next_iteration(%o)", "it is in no frame"),
        ("{frame", "{parallel_iterations = 0, frame", "C2: parallel_iterations is 0"),
        ('"loop"', '""', "C3: the frame has no name"),
    ],
)
def test_frames_are_consistent(old: str, new: str, message: str) -> None:
    text = LOOP.replace(old, new)
    if "%o" in new:
        kind = "greater(%x, %x)" if "cond" in new else "neg(%x)"
        text = text.replace("  %e =", f"  %o = {kind}\n  %e =")
    with pytest.raises(TfcError) as caught:
        verify(parse_module(text))
    assert message in caught.value.message


def test_cost_is_linear() -> None:
    """Ten times the ops take less than twenty times as long."""
    import time

    def seconds(count: int) -> float:
        module = parse_module("func @f(%x: tensor<f32>) -> (%y: tensor<f32>) { return %x }")
        body, x = module.main.body, module.main.body.args[0]
        for _ in range(count):
            x = body.insert(Add(x, x), body.last).result
        start = time.thread_time()
        verify(module)
        return time.thread_time() - start

    small = min(seconds(500) for _ in range(3))
    assert min(seconds(5000) for _ in range(2)) < 20 * small
