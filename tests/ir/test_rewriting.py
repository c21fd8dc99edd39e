"""Patterns reach a fixed point, are counted, stop when told to, and cost what they touch."""

from __future__ import annotations

import time

import pytest

import tfc.ops
from tfc.ir.core import Location, Module, Op
from tfc.ir.rewriting import (
    ERASE_DEAD,
    MOST_NODES,
    Pattern,
    RewriteContext,
    Rewriter,
    apply_patterns,
    pattern,
)
from tfc.ir.verifier import verify
from tfc.ops.arithmetic import Add, Mul
from tfc.ops.elementwise import Neg
from tfc.ops.transcendental import Exp, Tanh
from tfc.text import parse_module, print_module

assert tfc.ops


@pattern("double-negation", Neg)
def double_negation(op: Neg, rewriter: Rewriter) -> bool:
    inner = op.x.producer
    if not isinstance(inner, Neg):
        return False
    rewriter.fuse(inner)
    rewriter.replace(op, inner.x)
    return True


@pattern("add-self", Add)
def add_self(op: Add, rewriter: Rewriter) -> bool:
    if op.x is not op.y:
        return False
    rewriter.replace(op, rewriter.value(Mul(op.x, op.x)))
    return True


@pattern("exp-to-tanh", Exp)
def exp_to_tanh(op: Exp, rewriter: Rewriter) -> bool:
    rewriter.replace(op, rewriter.value(Tanh(op.x)))
    return True


@pattern("tanh-to-exp", Tanh)
def tanh_to_exp(op: Tanh, rewriter: Rewriter) -> bool:
    rewriter.replace(op, rewriter.value(Exp(op.x)))
    return True


def function(body: str, result: str) -> Module:
    head = "func @f(%x: tensor<2xf32>, %c: tensor<bool>) -> (%y: tensor<2xf32>)"
    return parse_module(f"{head} {{\n{body}\nreturn {result}\n}}")


def names(module: Module) -> list[str]:
    return [op.name for op in module.walk()]


def test_fixed_point() -> None:
    body = "\n".join(["%a0 = neg(%x)", *(f"%a{i + 1} = neg(%a{i})" for i in range(6))])
    module = function(body, "%a6")
    context = RewriteContext()
    count = apply_patterns(module.main, [double_negation], context=context)
    assert names(module) == ["neg", "return"]
    assert context.fired == {"double-negation": 3, ERASE_DEAD: 3}
    assert count == context.count == 6
    verify(module)


def test_new_ops_and_users_are_visited_again() -> None:
    module = function("%a = neg(%x)\n%b = neg(%a)\n%s = add(%b, %x)", "%s")
    apply_patterns(module.main, [add_self, double_negation], context=RewriteContext())
    assert names(module) == ["mul", "return"]


def test_names_are_kept() -> None:
    module = function("%s = add(%x, %x)", "%s")
    apply_patterns(module.main, [add_self], context=RewriteContext())
    assert "%s = mul(%x, %x)" in print_module(module)


def test_regions_are_rewritten() -> None:
    module = function(
        "%r = if(%c) : tensor<2xf32> then {\n%a = add(%x, %x)\nyield %a\n} else {\nyield %x\n}",
        "%r",
    )
    apply_patterns(module.main, [add_self], context=RewriteContext())
    assert "mul" in names(module)
    verify(module)


def test_dead_ops_go_with_their_operands() -> None:
    module = function("%a = neg(%x)\n%b = exp(%a)\n%d = neg(%b)", "%x")
    context = RewriteContext()
    apply_patterns(module.main, [], context=context)
    assert names(module) == ["return"]
    assert context.fired == {ERASE_DEAD: 3}


@pytest.mark.parametrize("limit", range(8))
def test_stop_after(limit: int) -> None:
    body = "%a = add(%x, %x)\n%b = add(%a, %a)\n%n = neg(%b)\n%m = neg(%n)\n%d = add(%m, %m)"
    module = function(body, "%d")
    context = RewriteContext(stop_after=limit)
    count = apply_patterns(module.main, [add_self, double_negation], context=context)
    assert count == context.count == min(limit, 5)
    assert context.exhausted == (limit <= 5)
    verify(module)
    assert context.allow("other") == (limit > 5)


def test_numbers_go_on_over_passes() -> None:
    context = RewriteContext(stop_after=3)
    for _ in range(2):
        module = function("%a = add(%x, %x)\n%b = add(%a, %a)", "%b")
        apply_patterns(module.main, [add_self], context=context)
    assert context.count == 3
    assert context.fired == {"add-self": 3}
    assert names(module) == ["mul", "add", "return"]


def test_locations_are_kept_and_fused() -> None:
    module = function(
        '%a = add(%x, %x) loc("a")\n%b = neg(%a) loc("b")\n%d = neg(%b) loc("d")', "%d"
    )
    apply_patterns(module.main, [add_self, double_negation], context=RewriteContext())
    (op, _) = module.walk()
    assert op.location.nodes == ("a", "d", "b")
    assert op.location.position is not None


def test_fused_locations_are_bounded() -> None:
    body = ['%a0 = exp(%x) loc("start")']
    body += [f'%a{i + 1} = neg(%a{i}) loc("n{i}")' for i in range(400)]
    module = function("\n".join(body), "%a400")
    apply_patterns(module.main, [double_negation], context=RewriteContext())
    assert names(module) == ["exp", "return"]
    assert len(next(module.walk()).location.nodes) <= MOST_NODES


def test_control_edges_survive() -> None:
    module = function("%a = add(%x, %x)\n%b = exp(%x) after(%a)\n%d = add(%b, %a)", "%d")
    apply_patterns(module.main, [add_self], context=RewriteContext())
    assert "exp(%x) after(%a)" in print_module(module)
    verify(module)


def test_base_classes_and_any_root() -> None:
    seen: list[str] = []

    class Watch(Pattern):
        name = "watch"

        def rewrite(self, op: Op, rewriter: Rewriter) -> bool:
            seen.append(op.name)
            return False

    module = function("%a = neg(%x)", "%a")
    assert apply_patterns(module.main, [Watch()], context=RewriteContext()) == 0
    assert seen == ["neg", "return"]


def test_rules_that_undo_each_other_are_found() -> None:
    module = function("%a = exp(%x)", "%a")
    with pytest.raises(AssertionError, match="no fixed point"):
        apply_patterns(module.main, [exp_to_tanh, tanh_to_exp], context=RewriteContext())


def test_a_rule_that_hides_its_change_is_found() -> None:
    @pattern("liar", Neg)
    def liar(op: Neg, rewriter: Rewriter) -> bool:
        rewriter.value(Exp(op.x))
        return False

    with pytest.raises(AssertionError, match="the rule liar changed neg"):
        apply_patterns(function("%a = neg(%x)", "%a").main, [liar], context=RewriteContext())


def test_remarks() -> None:
    context = RewriteContext(pass_name="fusion")
    op = function('%a = neg(%x) loc("/node")', "%a").main.body.first
    assert op is not None
    context.remark("epilogue", op, "two users")
    (remark,) = context.remarks
    assert (remark.rule, remark.location.nodes) == ("epilogue", ("/node",))
    assert str(remark) == "/node: fusion: epilogue: neg: two users"


def test_fuse_takes_the_location_of_other_ops() -> None:
    @pattern("both", Exp)
    def both(op: Exp, rewriter: Rewriter) -> bool:
        inner = op.x.producer
        if not isinstance(inner, Neg):
            return False
        rewriter.fuse(inner)
        rewriter.replace(op, rewriter.value(Tanh(inner.x)))
        return True

    module = function('%a = neg(%x) loc("a")\n%b = exp(%a) loc("b")', "%b")
    apply_patterns(module.main, [both], context=RewriteContext())
    assert next(module.walk()).location.nodes == ("b", "a")
    assert next(module.walk()).location.fused(Location(("c",))).nodes == ("b", "a", "c")


def test_cost_is_linear() -> None:
    """Ten times the ops take less than twenty times as long."""

    def seconds(count: int) -> float:
        body = ["%a0 = neg(%x)", *(f"%a{i + 1} = neg(%a{i})" for i in range(count))]
        module = function("\n".join(body), f"%a{count}")
        start = time.thread_time()
        apply_patterns(module.main, [double_negation], context=RewriteContext())
        return time.thread_time() - start

    small = min(seconds(500) for _ in range(3))
    assert min(seconds(5000) for _ in range(2)) < 20 * small
