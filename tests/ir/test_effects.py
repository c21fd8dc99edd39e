"""What conflicts, what nobody would miss, and barriers that stay linear."""

from __future__ import annotations

import tfc.ops  # noqa: F401  registers the ops
from tfc.ir.core import Effect, Module, Op, effects_of, resources_of
from tfc.ir.effects import accesses_of, conflicts, is_barrier, is_dead, is_pure, waits_of
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.text import parse_module

TEXT = """module {
  variable @v : tensor<f32>
  variable @w : tensor<f32>
  func @main(%x: tensor<f32>, %p: tensor<bool>) -> (%y: tensor<f32>) {
    %a = assign(@v, %x) : tensor<f32>
    %b = read(@v) : tensor<f32>
    %c = read(@v) : tensor<f32>
    %d = read(@w) : tensor<f32>
    %e = if(%p) : tensor<f32> then {
      %f = read(@w) : tensor<f32>
      %g = assign(@v, %f) : tensor<f32>
      yield %b after(%g)
    } else {
      yield %x
    }
    %h = assign(@w, %c) after(%e) : tensor<f32>
    %n = neg(%d) : tensor<f32>
    return %h
  }
}"""


def ops_of(module: Module) -> dict[str, Op]:
    return {v.name: op for op in module.main.body.walk() for v in op.results}


def test_an_op_conflicts_with_the_last_it_must_follow() -> None:
    ops = ops_of(parse_module(TEXT))
    names = {op: name for name, op in ops.items()}
    found = conflicts(op for op in ops.values() if op.parent is ops["a"].parent)
    assert {names[op]: [names[o] for o in before] for op, before in found.items()} == {
        "b": ["a"],
        "c": ["a"],
        "e": ["b", "c", "a"],
        "h": ["d", "e"],
    }


def test_regions_count_for_their_op() -> None:
    ops = ops_of(parse_module(TEXT))
    branch = ops["e"]
    assert effects_of(branch) == Effect.READ | Effect.WRITE
    assert resources_of(branch) == ("w", "v")
    assert accesses_of(branch) == {"w": Effect.READ, "v": Effect.WRITE}
    assert waits_of(branch) == [ops["b"]]
    assert not is_pure(branch)
    assert is_pure(ops["d"])
    assert [n for n, op in ops.items() if is_dead(op)] == ["n"]


def wide(count: int) -> Module:
    """Many ops before a `no_op`, and many after it."""
    lines = [f"%a{i} = assign(@v{i}, %x) : tensor<f32>" for i in range(count)]
    lines.append(f"^all: no_op() after({', '.join(f'%a{i}' for i in range(count))})")
    lines += [f"%b{i} = assign(@w{i}, %x) after(^all) : tensor<f32>" for i in range(count)]
    lines.append(f"return after({', '.join(f'%b{i}' for i in range(count))})")
    variables = [f"variable @{n}{i} : tensor<f32>" for n in "vw" for i in range(count)]
    head = ["module {", *variables, "func @main(%x: tensor<f32>) -> () {"]
    return parse_module("\n".join([*head, *lines, "}", "}"]))


def test_a_barrier_of_many_stays_linear() -> None:
    module = wide(50)
    barrier = next(op for op in module.main.body if op.name == "no_op")
    assert is_barrier(barrier)
    assert not is_dead(barrier)
    PassManager(parse_pipeline("prune,control-edges,dce,lower")).run(module)
    ops = list(module.main.body)
    assert not any(op.name == "no_op" for op in ops)
    assert sum(len(op.after) for op in ops) < 300
    before: dict[Op, set[Op]] = {}
    for op in ops:
        before[op] = {e for o in op.after for e in (o, *before[o])}
    named = {op.attributes["variable"].name: op for op in ops if not op.terminator}
    assert all(named["v0"] in before[op] for name, op in named.items() if name[0] == "w")
    assert len(before[named["w7"]]) == 50
