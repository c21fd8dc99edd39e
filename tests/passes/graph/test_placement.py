"""placement: every result is feasible, near the best there is, and quick."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.passes.graph.device_graphs import DEVICES, device_module
from tests.passes.graph.optimum import optimum
from tfc.interpret import interpret
from tfc.ir.core import Colocate, Module, Op
from tfc.ir.devices import parse_device, parse_devices
from tfc.ir.errors import TfcError
from tfc.ir.verifier import verify
from tfc.ops.base import static
from tfc.ops.stateful import StatefulOp
from tfc.passes.base import PassContext
from tfc.passes.graph.costs import Costs
from tfc.passes.graph.device_groups import device_groups
from tfc.passes.graph.placement import Placement, simulated
from tfc.passes.graph.simulation import Edge, Tasks, place
from tfc.text import parse_module, print_module

GRAPHS, SEED = 1000, 20260


class Wanted:
    """What a module asks for, said without the code under test: groups by repeated merging."""

    def __init__(self, module: Module) -> None:
        self.ops = [op for op in module.main.body if not op.terminator]
        place = {op: i for i, op in enumerate(self.ops)}
        pairs: list[tuple[int, int]] = []
        touched: dict[str, int] = {}
        for i, op in enumerate(self.ops):
            if isinstance(op.device, Colocate):
                pairs.append((place[op.device.op], i))
            if isinstance(op, StatefulOp):
                name = op.attributes["variable"].name
                pairs.append((touched.setdefault(name, i), i))
        self.group = list(range(len(self.ops)))
        while any(self.group[a] != self.group[b] for a, b in pairs):
            for a, b in pairs:
                least = min(self.group[a], self.group[b])
                self.group[a] = self.group[b] = least
        self.texts = [op.device if isinstance(op.device, str) else None for op in self.ops]

    def fits(self, number: int, device: str) -> bool:
        text = self.texts[number]
        state = isinstance(self.ops[number], StatefulOp)
        right = text is None or parse_device(text).fits(parse_devices((device,))[0])
        return right and not (state and device.startswith("gpu"))

    def possible(self) -> bool:
        groups = {g: [i for i, h in enumerate(self.group) if h == g] for g in self.group}
        return all(
            any(all(self.fits(i, d) for i in members) for d in DEVICES)
            for members in groups.values()
        )


def test_random_graphs_are_placed_where_they_may_be() -> None:
    refused = 0
    for seed in range(SEED, SEED + GRAPHS):
        module = device_module(seed)
        wanted = Wanted(module)
        if not wanted.possible():
            refused += 1
            with pytest.raises(TfcError, match=r"asks for"):
                Placement(DEVICES).run(module, PassContext())
            continue
        Placement(DEVICES).run(module, PassContext())
        verify(module)
        short = {op: parse_device(str(op.device)).short for op in wanted.ops}
        for number, op in enumerate(wanted.ops):
            assert wanted.fits(number, short[op]), (seed, op)
            assert short[op] == short[wanted.ops[wanted.group[number]]], (seed, op)
    assert 50 < refused < GRAPHS - 500  # both kinds are there


@pytest.mark.parametrize("seed", range(20))
def test_the_numbers_stay(seed: int) -> None:
    module = device_module(seed, constrained=0.0)
    numbers = np.random.default_rng(seed)
    inputs = {
        a.name: numbers.random(static(a.tensor.shape), np.float32) for a in module.main.body.args
    }
    before = interpret(module, inputs)
    Placement(DEVICES).run(module, PassContext())
    for name, array in interpret(module, inputs).items():
        np.testing.assert_array_equal(array, before[name])


def tasks_of_module(module: Module) -> Tasks:
    devices = parse_devices(DEVICES)
    groups = device_groups(module, devices)
    home: dict[Op, object] = {op: group for group in groups for op in group.ops}
    return simulated(module.main, home, devices, Costs())  # pyright: ignore[reportArgumentType]


def random_tasks(seed: int) -> Tasks:
    """Tasks whose times differ by device and whose edges weigh as much as they do."""
    r = Random(seed)
    count, devices = r.randint(2, 10), r.choice((2, 2, 3))
    weight = r.choice((0.1, 1.0, 3.0))
    edges: list[list[Edge]] = []
    for task in range(count):
        sources = [s for s in range(task) if r.random() < 0.3]
        costs = [r.uniform(0, 5) * weight for _ in sources]
        edges.append(
            [
                Edge(s, [[0.0 if a == b else c for b in range(devices)] for a in range(devices)])
                for s, c in zip(sources, costs, strict=True)
            ]
        )
    groups = max(1, int(count * r.choice((1, 1, 0.7))))
    group = [t % groups if r.random() < 0.8 else r.randrange(groups) for t in range(count)]
    some = [sorted(r.sample(range(devices), r.randint(1, devices))) for _ in range(groups)]
    allowed = [a if r.random() < 0.3 else list(range(devices)) for a in some]
    seconds = [[r.uniform(0.1, 10) for _ in range(devices)] for _ in range(count)]
    return Tasks(seconds, edges, group, allowed)


def ratio(tasks: Tasks) -> float:
    found = place(tasks).makespan
    return found / optimum(tasks, found)


@pytest.mark.parametrize("graphs", [200, pytest.param(GRAPHS, marks=pytest.mark.slow)])
def test_small_graphs_are_near_the_optimum(graphs: int) -> None:
    """Of the graphs above all that can be placed and have up to 10 ops."""
    ratios: list[float] = []
    for seed in range(SEED, SEED + graphs):
        module = device_module(seed)
        if len(module.main.body) <= 11 and Wanted(module).possible():
            ratios.append(ratio(tasks_of_module(module)))
    assert len(ratios) > graphs // 10
    assert np.mean(ratios) < 1.1


def test_small_sets_of_tasks_are_near_the_optimum() -> None:
    """Harder ones: times that differ by device, edges that weigh as much."""
    assert np.mean([ratio(random_tasks(seed)) for seed in range(100)]) < 1.1


def test_ten_thousand_ops_take_less_than_five_seconds() -> None:
    module = device_module(1, largest=10)
    lines = [
        f"%n{i} = matmul(%n{max(0, i - 7)}, %n{i - 1}) : tensor<64x64xf32>"
        for i in range(1, 10_001)
    ]
    head = "func @main(%n0: tensor<64x64xf32>) -> (%y: tensor<64x64xf32>) {"
    module = parse_module("\n".join(["module {", head, *lines, "return %n10000", "}", "}"]))
    started = time.process_time()
    Placement(DEVICES).run(module, PassContext())
    assert time.process_time() - started < 5
    assert {parse_device(str(op.device)).kind for op in module.main.body if not op.terminator}


CLASH = """module {
  variable @v : tensor<4xf32>
  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %a = assign(@v, %x) on("/device:cpu:0") : tensor<4xf32>
    %y = assign_add(@v, %x) after(%a) on("/device:cpu:1") : tensor<4xf32>
    return %y
  }
}"""


def test_a_clash_names_ops_and_constraints() -> None:
    with pytest.raises(TfcError) as caught:
        Placement(DEVICES).run(parse_module(CLASH), PassContext())
    text = str(caught.value)
    for part in ("%a (assign)", "%y (assign_add)", "/device:cpu:0", "/device:cpu:1", "@v"):
        assert part in text


@pytest.mark.parametrize(
    ("devices", "constraint", "message"),
    [
        (("cpu:0",), "/device:gpu", r"no device fits: %y \(assign\) asks for /device:gpu"),
        (("cpu:0", "gpu:0"), "/device:gpu", r"no gpu runs %y \(assign\)"),
        (("tpu:0",), "/device:tpu", "of no known kind"),
    ],
)
def test_impossible(devices: tuple[str, ...], constraint: str, message: str) -> None:
    text = (
        CLASH.replace(" after(%a)", "").replace("%a = assign", "%b = read").replace("@v, %x", "@v")
    )
    lines = [line for line in CLASH.splitlines() if "assign_add" not in line]
    text = "\n".join(lines).replace("%a", "%y").replace("/device:cpu:0", constraint)
    with pytest.raises(TfcError, match=message):
        Placement(devices).run(parse_module(text), PassContext())


TWO = """module {
  func @main(%x: tensor<64x64xf32>) -> (%p: tensor<64x64xf32>, %q: tensor<64x64xf32>) {
    %p = exp(%x) : tensor<64x64xf32> loc("left")
    %q = exp(%x) : tensor<64x64xf32> loc("right")
    return %p, %q
  }
}"""


def test_a_profile_decides(tmp_path: Path) -> None:
    """Two short ops are not worth a second device; measured as long ones they are."""
    apart: list[int] = []
    for seconds in (1e-9, 1.0):
        file = tmp_path / "profile.json"
        file.write_text(json.dumps({"kind": "cpu", "nodes": {"left": seconds, "right": seconds}}))
        module = parse_module(TWO)
        context = PassContext()
        Placement(("cpu:0", "cpu:1"), str(file)).run(module, context)
        apart.append(len({op.device for op in module.main.body if not op.terminator}))
        assert float(context.figures["@main simulated us"]) == pytest.approx(seconds * 1e6, abs=0.1)
    assert apart[1] == 2


@pytest.mark.parametrize("text", ["{}", "[]", "nothing", '{"kind": "cpu", "nodes": {"a": -1}}'])
def test_bad_profiles(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text)
    with pytest.raises(TfcError, match="profile"):
        Placement(cost=str(file)).run(parse_module(TWO), PassContext())
    with pytest.raises(TfcError, match="cannot read"):
        Placement(cost=str(tmp_path / "none")).run(parse_module(TWO), PassContext())


def test_a_second_time_it_changes_nothing() -> None:
    module = parse_module(TWO)
    assert Placement(("cpu:0", "cpu:1")).run(module, PassContext())
    text = print_module(module)
    assert not Placement(("cpu:0", "cpu:1")).run(module, PassContext())
    assert print_module(module) == text
