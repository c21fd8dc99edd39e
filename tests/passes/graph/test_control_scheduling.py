"""control-scheduling: the lowest peak of small blocks, never above the given one, orders kept."""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pytest

from tests.models import LIGHT, MINILM, model
from tests.passes import stateful
from tests.passes.graph.device_graphs import device_module
from tests.passes.graph.test_partition import spread
from tests.passes.whole_models import TEXTS, whole_model
from tfc.driver import load_module
from tfc.interpret import interpret
from tfc.ir.core import Module, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.verifier import verify
from tfc.ops.base import static
from tfc.ops.state import Assign
from tfc.ops.stateful import StatefulOp
from tfc.passes.base import PassContext
from tfc.passes.graph.control_scheduling import ControlScheduling
from tfc.passes.graph.orders import Problem, alap, depth_first, exact, frees_most, improved
from tfc.passes.graph.partition import Partition
from tfc.passes.graph.placement import Placement
from tfc.passes.manager import parse_pipeline
from tfc.targets import resolve
from tfc.text import parse_module

CASES, SEED = 500, 77


def random_problem(seed: int, largest: int = 12) -> Problem:
    """A graph of values of many sizes with several readers, control edges, and inner needs."""
    r = Random(seed)
    count = r.randint(2, largest)
    sizes = [r.choice((0, 64, 128, 1024, 4096, r.randrange(1, 200) * 64)) for _ in range(count)]
    reads: list[list[int]] = []
    needs: list[list[int]] = []
    for op in range(count):
        read = [v for v in range(op) if r.random() < r.choice((0.15, 0.3))]
        control = [o for o in range(op) if r.random() < 0.05]
        reads.append([v for v in read if sizes[v]])
        needs.append(sorted({*read, *control}))
    inner = [r.choice((0, 0, 0, 512)) for _ in range(count)]
    return Problem(needs, [[v] for v in range(count)], reads, sizes, inner, [0.0] * count)


def lowest_peak(problem: Problem) -> int:
    """The lowest peak of all orders: a recursion over the sets of ops that have run."""
    everything = (1 << problem.count) - 1
    needs = [sum(1 << o for o in before) for before in problem.needs]
    readers = [0] * problem.count
    for op, values in enumerate(problem.reads):
        for value in values:
            readers[value] |= 1 << op

    @cache
    def live(done: int) -> int:
        held = [v for v in range(problem.count) if done >> v & 1 and readers[v] & ~done]
        return sum(problem.sizes[v] for v in held)

    @cache
    def rest(done: int) -> int:
        if done == everything:
            return 0
        found: list[int] = []
        for op in range(problem.count):
            if done >> op & 1 or needs[op] & ~done:
                continue
            now = live(done) + problem.sizes[op] + problem.inner[op]
            found.append(max(now, rest(done | 1 << op)))
        return min(found)

    return rest(0)


def is_right(problem: Problem, order: list[int]) -> bool:
    place = {op: n for n, op in enumerate(order)}
    return sorted(order) == list(range(problem.count)) and all(
        place[other] < place[op] for op in order for other in problem.needs[op]
    )


def test_small_blocks_get_the_lowest_peak() -> None:
    met = 0
    for seed in range(SEED, SEED + CASES):
        problem = random_problem(seed)
        order = improved(problem, list(range(problem.count)))
        assert is_right(problem, order)
        met += problem.peak(order) == lowest_peak(problem)
    assert met >= CASES * 0.95


def test_the_pass_meets_it_too() -> None:
    """As above, through IR: each op of `lowest` is one of the block."""
    met = cases = 0
    for seed in range(SEED, SEED + 100):
        module = device_module(seed, largest=12, constrained=0.0)
        context = PassContext()
        ControlScheduling().run(module, context)
        verify(module)
        peak, lowest = int(context.figures["@main peak after"]), peak_of_all_orders(module)
        assert lowest <= peak
        cases += 1
        met += lowest == peak
    assert met >= cases * 0.95


def peak_of_all_orders(module: Module) -> int:
    """The lowest peak by the recursion of `lowest_peak`, from the ops themselves."""
    ops = [op for op in module.main.body if not op.terminator]
    number = {op: n for n, op in enumerate(ops)}
    returned = set(module.main.body.terminator.inputs)
    needs: list[set[int]] = [set() for _ in ops]
    touched: dict[str, list[Op]] = {}
    made: list[int] = []
    reads: list[list[int]] = []
    for op in ops:
        n = number[op]
        if isinstance(op, StatefulOp):
            name = op.attributes["variable"].name
            for other in touched.get(name, []):
                if "read" not in (op.name, other.name) or op.name != other.name:
                    needs[n].add(number[other])
            touched.setdefault(name, []).append(op)
        needs[n] |= {number[v.producer] for v in op.inputs if v.producer is not None}
        needs[n] |= {number[o] for o in op.after}
        device = op.device
        if device is not None and not isinstance(device, str):
            needs[n].add(number[device.op])
        held = [v for v in op.results if shown(v) is v and shown(v) not in map(shown, returned)]
        made.append(sum(-(-int(str(v.tensor.bytes)) // 64) * 64 for v in held))
        roots = dict.fromkeys(shown(v).producer for v in op.inputs)
        reads.append([number[o] for o in roots if o is not None and made[number[o]]])
    return lowest_peak(
        Problem(
            [sorted(n) for n in needs],
            [[n] for n in range(len(ops))],
            reads,
            made,
            [0] * len(ops),
            [0.0] * len(ops),
        )
    )


def shown(value: Value) -> Value:
    """The value in whose memory this one lies: that which was assigned."""
    while isinstance(value.producer, Assign):
        value = value.producer.value
    return value


@pytest.mark.parametrize("seed", range(40))
def test_large_problems_never_get_worse(seed: int) -> None:
    problem = random_problem(seed, 80)
    given = problem.peak(range(problem.count))
    for make in (frees_most, depth_first, alap):
        assert is_right(problem, make(problem))
    order = improved(problem, list(range(problem.count)))
    assert is_right(problem, order)
    assert problem.least <= problem.peak(order) <= given


def test_a_window_alone_may_be_searched() -> None:
    """Only the part from 2 to 5 moves, and only if that lowers its peak."""
    needs = [[], [], [0], [1], [2], [3]]
    reads = [[], [], [0], [1], [2], [3]]
    sizes = [64, 64, 6400, 6400, 64, 64]
    problem = Problem(needs, [[n] for n in range(6)], reads, sizes, [0] * 6, [0.0] * 6)
    given = list(range(6))
    order = exact(problem, given, 2, 6)
    assert order is not None and order[:2] == [0, 1] and problem.peak(order) < problem.peak(given)
    order = exact(problem, order, 0, 6)
    assert order is not None and problem.peak(order) == lowest_peak(problem)
    assert exact(problem, order, 0, 6) is None


def inputs_of(module: Module, seed: int) -> dict[str, np.ndarray]:
    numbers = np.random.default_rng(seed)
    arguments = module.main.body.args
    return {a.name: numbers.random(static(a.tensor.shape), np.float32) for a in arguments}


@pytest.mark.parametrize("seed", range(60))
def test_numbers_and_conflicts_stay(seed: int) -> None:
    module = device_module(seed, constrained=0.0, sizes=(4, 8))
    inputs = inputs_of(module, seed)
    before = interpret(module, inputs)
    context = PassContext()
    ControlScheduling().run(module, context)
    assert int(context.figures["@main peak after"]) <= int(context.figures["@main peak before"])
    for name, array in interpret(module, inputs).items():
        np.testing.assert_array_equal(array, before[name])


def test_recvs_wait_until_they_are_needed() -> None:
    """The first user is last, so the recv is next to it; what is sent goes before."""
    module = parse_module(
        """module {
  func @main(%x: tensor<64x64xf32>) -> (%y: tensor<64x64xf32>) {
    %y = partitioned_call(%x) {parts = [@a, @b]} : tensor<64x64xf32>
    return %y
  }
  func @a(%x: tensor<64x64xf32>) -> (%y: tensor<64x64xf32>) {
    %r = recv {key = "r"} : tensor<64x64xf32>
    %a = exp(%x) : tensor<64x64xf32>
    %b = abs(%a) : tensor<64x64xf32>
    ^s: send(%b) {key = "b"}
    %y = add(%b, %r) : tensor<64x64xf32>
    return %y after(^s)
  }
  func @b(%x: tensor<64x64xf32>) {
    %n = neg(%x) : tensor<64x64xf32>
    ^s: send(%n) {key = "r"}
    %b = recv {key = "b"} : tensor<64x64xf32>
    %c = abs(%b) : tensor<64x64xf32>
    ^t: send(%c) {key = "c"}
    return after(^s, ^t)
  }
}"""
    )
    ControlScheduling().run(module, PassContext())
    names = [op.name for op in module.functions["a"].body]
    assert names == ["exp", "abs", "send", "recv", "add", "return"]
    names = [op.name for op in module.functions["b"].body]
    assert names.index("recv") > names.index("send")  # else each would wait for the other


@pytest.mark.parametrize("seed", range(30))
def test_partitions_still_meet(seed: int) -> None:
    """Whatever order each part gets, none waits for ever, and the numbers stay."""
    module = device_module(seed, constrained=0.3, sizes=(4, 8))
    for op in module.main.body:
        if isinstance(op.device, str) and "cpu" not in op.device:
            op.device = None
    inputs = inputs_of(module, seed)
    before = interpret(module, inputs)
    try:
        Placement(("cpu:0", "cpu:1")).run(module, PassContext())
    except TfcError as error:
        pytest.skip(f"nothing fits: {error}")
    Partition().run(module, PassContext())
    ControlScheduling().run(module, PassContext())
    verify(module)
    for name, array in interpret(module, inputs).items():
        np.testing.assert_array_equal(array, before[name])


REGION = """module {
  func @main(%n: tensor<i64>, %x: tensor<1024xf32>) -> (%y: tensor<f32>) {
    %zero = constant {value = dense<0>} : tensor<i64>
    %one = constant {value = dense<1>} : tensor<i64>
    %start = constant {value = dense<0.0>} : tensor<f32>
    %i, %y = while(%zero, %start) : tensor<i64>, tensor<f32>
        cond(%k: tensor<i64>, %a: tensor<f32>) {
      %c = less(%k, %n) : tensor<bool>
      yield %c
    } do(%k: tensor<i64>, %a: tensor<f32>) {
      %next = add(%k, %one) : tensor<i64>
      %p = exp(%x) : tensor<1024xf32>
      %q = sin(%x) : tensor<1024xf32>
      %r = reduce_sum(%p) {axes = [0]} : tensor<f32>
      %s = reduce_sum(%q) {axes = [0]} : tensor<f32>
      %t = add(%r, %s) : tensor<f32>
      %b = add(%a, %t) : tensor<f32>
      yield %next, %b
    }
    return %y
  }
}"""


def test_bodies_of_loops_are_ordered_too() -> None:
    module = parse_module(REGION)
    context = PassContext()
    assert ControlScheduling().run(module, context)
    peaks = [int(context.figures[f"@main peak {when}"]) for when in ("before", "after")]
    assert peaks == [8320, 4288]  # one large tensor less, and one sum more


@pytest.mark.parametrize("name", TEXTS)
def test_models_never_need_more_than_as_given(name: str) -> None:
    """Of the importer's order, and of kernels: the peak after is at most the one before."""
    for pipeline in ("prune", "O3,schedule,lower,dce"):
        module = whole_model(name)
        context = PassContext(target=resolve("x86-64-v3"))
        for transform in parse_pipeline(pipeline):
            transform.run(module, context)
        context.figures.clear()
        ControlScheduling().run(module, context)
        before, after = (context.figures[f"@main peak {when}"] for when in ("before", "after"))
        assert int(after) <= int(before)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_control_flow_and_state(first: int) -> None:
    """Each call of functions that share variables, and what it leaves, also cut for two devices."""
    for seed in range(first, first + 20):
        module, _, calls = stateful.generate(seed, 24)
        expected = stateful.outcome(module, calls)
        context = PassContext()
        if seed % 2:
            spread(module, seed)
            Partition().run(module, context)
        ControlScheduling().run(module, context)
        verify(module)
        for before, after in zip(expected, stateful.outcome(module, calls), strict=True):
            for name, array in before.items():
                same = np.asarray(array).tobytes() == np.asarray(after[name]).tobytes()
                assert same, (seed, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LIGHT, MINILM])
@pytest.mark.parametrize("pipeline", ["prune", "O3,schedule,lower,dce"])
def test_real_models_never_need_more_than_as_imported(name: str, pipeline: str) -> None:
    module = load_module(model(name))
    context = PassContext(target=resolve("x86-64-v4"))
    for transform in parse_pipeline(pipeline):
        transform.run(module, context)
    ControlScheduling().run(module, context)
    before, after = (int(context.figures[f"@main peak {when}"]) for when in ("before", "after"))
    assert after <= before
