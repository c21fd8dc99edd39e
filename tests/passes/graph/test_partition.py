"""partition: the same bits on several devices, each tensor sent once; errors reach the call."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.passes import stateful
from tests.passes.graph.device_graphs import device_module
from tfc.interpret import interpret, needed_ops
from tfc.ir.core import Colocate, Module
from tfc.ir.devices import parse_devices
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.verifier import verify
from tfc.ops.base import static
from tfc.ops.constant import Constant
from tfc.ops.partitions import Recv, Send
from tfc.ops.stateful import StatefulOp
from tfc.passes.base import PassContext
from tfc.passes.graph.device_groups import device_groups
from tfc.passes.graph.partition import Partition
from tfc.runtime import partitions
from tfc.runtime.channels import Channels
from tfc.runtime.host import Context
from tfc.runtime.state import State
from tfc.text import parse_module, print_module

GRAPHS, SEED = 300, 4242
FULL = "/job:localhost/replica:0/task:0/device:cpu:{}"
MADE: list[Channels] = []


class _Kept(Channels):
    """Channels that the test can look at after the call."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        MADE.append(self)


@pytest.fixture(autouse=True)
def kept_channels(monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    monkeypatch.setattr(partitions, "Channels", _Kept)


def scattered(seed: int) -> Module:
    """A random graph, each op on a random one of two or three devices; variables on one."""
    module = device_module(seed, constrained=0.0, sizes=(4, 8))
    r = Random(seed)
    count = r.choice((2, 2, 3))
    home: dict[str, int] = {}
    for op in module.main.body:
        if op.terminator or isinstance(op.device, Colocate):
            continue
        number = r.randrange(count)
        if isinstance(op, StatefulOp):
            number = home.setdefault(op.attributes["variable"].name, number)
        op.device = FULL.format(number)
    for op in module.main.body:
        if isinstance(op.device, Colocate):
            other = op.device.op
            same = other.device
            if isinstance(op, StatefulOp):
                same = FULL.format(home.setdefault(op.attributes["variable"].name, 0))
            op.device = same
    return module


def inputs_of(module: Module) -> dict[str, Any]:
    numbers = np.random.default_rng(0)
    arguments = module.main.body.args
    return {a.name: numbers.random(static(a.tensor.shape), np.float32) for a in arguments}


def crossing(module: Module) -> set[tuple[object, str]]:
    """(tensor, device) of what crosses, counted without the code under test."""
    needed = needed_ops(module.main.body)
    return {
        (value, str(op.device))
        for op in module.main.body
        if op in needed and not op.terminator
        for value in op.inputs
        if value.producer is not None and value.producer.device != op.device
    }


def test_random_graphs_give_the_same_bits() -> None:
    cut = tensors = 0
    for seed in range(SEED, SEED + GRAPHS):
        module = scattered(seed)
        inputs, expected = inputs_of(module), crossing(module)
        before_state, after_state = State(), State()
        before = interpret(module, inputs, state=before_state)
        Partition().run(module, PassContext())
        verify(module)
        assert print_module(parse_module(print_module(module))) == print_module(module)
        MADE.clear()
        after = interpret(module, inputs, state=after_state)
        for name, array in before.items():
            assert array.tobytes() == after[name].tobytes(), seed
        for name, value in before_state.variables.items():
            other = after_state.variables[name]
            assert (value is None) == (other is None), (seed, name)
            assert value is None or other is None or value.tobytes() == other.tobytes()
        if not MADE:
            continue
        cut += 1
        sent = [key for key in MADE[0].sent if not key.startswith("after ")]
        assert len(set(MADE[0].sent)) == len(MADE[0].sent)
        assert len(sent) == len(expected), seed
        tensors += len(sent)
    assert cut > GRAPHS * 0.8 and tensors > GRAPHS


def test_one_recv_for_each_tensor_and_device() -> None:
    module = parse_module(
        """module {
  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %a = exp(%x) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<4xf32>
    %b = abs(%a) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<4xf32>
    %c = add(%a, %b) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<4xf32>
    %d = neg(%a) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<4xf32>
    %y = add(%c, %d) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<4xf32>
    return %y
  }
}"""
    )
    Partition().run(module, PassContext())
    ops = list(module.walk())
    assert sum(isinstance(op, Send) for op in ops) == sum(isinstance(op, Recv) for op in ops) == 1


CONTROL = """module {
  variable @v : tensor<f32>
  func @main(%x: tensor<f32>) -> (%y: tensor<f32>, %z: tensor<f32>) {
    %one = constant {value = dense<1.0>} : tensor<f32>
    %a = assign(@v, %x) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<f32>
    %y = exp(%one) after(%a) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<f32>
    %z = read(@v) after(%y) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<f32>
    return %y, %z
  }
}"""


def test_control_edges_cross() -> None:
    module = parse_module(CONTROL)
    Partition().run(module, PassContext())
    interpret(module, {"x": np.float32(2)})
    assert MADE[0].sent == ["after a to cpu:1", "after y to cpu:0"]
    sizes = [op.inputs[0].tensor.bytes for op in module.walk() if isinstance(op, Send)]
    assert sizes == [1, 1]


def test_constants_go_wherever_they_are_used() -> None:
    module = parse_module(CONTROL.replace("%z = read(@v)", "%z = add(%one, %x)"))
    Partition().run(module, PassContext())
    held = [sum(isinstance(op, Constant) for op in f.body) for f in module.functions.values()]
    assert held == [0, 2, 2]  # its own, and what control edges send


def test_compressed_tensors_are_rounded_to_nearest_even() -> None:
    text = """module {
  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %a = abs(%x) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<4xf32>
    %y = neg(%a) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<4xf32>
    return %y
  }
}"""
    module = parse_module(text)
    Partition("bf16").run(module, PassContext())
    verify(module)
    ulp = 2.0**-7
    x = np.array([1 + ulp / 2, 1 + ulp * 1.5, 1 + ulp * 0.51, 3], np.float32)
    y = interpret(module, {"x": x})["y"]
    np.testing.assert_array_equal(y, [-1.0, -(1 + 2 * ulp), -(1 + ulp), -3])
    assert [str(op.inputs[0].type) for op in module.walk() if isinstance(op, Send)] == [
        "tensor<4xbf16>"
    ]
    with pytest.raises(TfcError, match="cannot compress"):
        Partition("f16").run(parse_module(text), PassContext())


REGION = """module {
  func @main(%c: tensor<bool>, %x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
    %a = exp(%x) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<Sxf32>
    %y = if(%c) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<Sxf32> then {
      %b = neg(%a) DEVICE : tensor<Sxf32>
      yield %b
    } else {
      yield %x
    }
    return %y
  }
}"""


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_lies_on_one_device(taken: bool) -> None:
    module = parse_module(REGION.replace("DEVICE", ""))
    inputs = {"c": np.array(taken), "x": np.arange(3, dtype=np.float32)}
    before = interpret(module, inputs)["y"]
    Partition().run(module, PassContext())
    np.testing.assert_array_equal(interpret(module, inputs)["y"], before)
    assert MADE[0].sent == ["a to cpu:1"]


def test_a_branch_is_not_cut() -> None:
    module = parse_module(REGION.replace("DEVICE", 'on("/device:cpu:0")'))
    with pytest.raises(UnsupportedError, match=r"%b \(neg\) asks for /device:cpu:0, but %y \(if\)"):
        Partition().run(module, PassContext())


def test_what_has_no_device_is_refused() -> None:
    text = CONTROL.replace('on("/job:localhost/replica:0/task:0/device:cpu:1") ', "")
    with pytest.raises(TfcError, match=r"%y \(exp\) names no device"):
        Partition().run(parse_module(text), PassContext())


def test_a_variable_on_two_devices_is_refused() -> None:
    text = CONTROL.replace(
        '%z = read(@v) after(%y) on("/job:localhost/replica:0/task:0/device:cpu:0',
        '%z = read(@v) after(%y) on("/job:localhost/replica:0/task:0/device:cpu:1',
    )
    with pytest.raises(TfcError, match="both touch @v"):
        Partition().run(parse_module(text), PassContext())


def test_sizes_found_in_data_do_not_cross() -> None:
    """No input tells N, which only the first part would know."""
    text = REGION.replace("DEVICE", "").replace("module {", "module {\n  dim N in 1..4", 1)
    text = text.replace("tensor<Sxf32>", "tensor<Nxf32>").replace("%x: tensor<N", "%x: tensor<S")
    text = text.replace("exp(%x)", "slice(%x) {starts = [0], limits = [(N)], steps = [1]}").replace(
        "yield %x", "yield %a"
    )
    with pytest.raises(UnsupportedError, match="found in data"):
        Partition().run(parse_module(text), PassContext())


# ---- errors


def test_an_error_in_one_part_ends_all() -> None:
    """cpu:1 reads what was never assigned while cpu:0 waits for it."""
    module = parse_module(
        """module {
  variable @v : tensor<f32>
  func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
    %a = read(@v) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<f32>
    %y = add(%a, %x) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<f32>
    return %y
  }
}"""
    )
    Partition().run(module, PassContext())
    for _ in range(3):  # and what ran it is ready for the next call
        with pytest.raises(TfcError, match="not initialized"):
            interpret(module, {"x": np.float32(1)})
    state = State()
    with pytest.raises(TfcError, match="not initialized"):
        interpret(module, {"x": np.float32(1)}, state=state)
    state["v"] = np.float32(2)
    assert interpret(module, {"x": np.float32(1)}, state=state)["y"] == 3


def test_a_wait_that_cannot_end_is_an_error() -> None:
    """Each part waits for the other one."""
    module = parse_module(
        """module {
  func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
    %y = partitioned_call(%x) {parts = [@one, @two]} : tensor<f32>
    return %y
  }
  func @one(%x: tensor<f32>) -> (%y: tensor<f32>) {
    %y = recv {key = "b"} : tensor<f32>
    ^s: send(%y) {key = "a"}
    return %y after(^s)
  }
  func @two(%x: tensor<f32>) {
    %a = recv {key = "a"} : tensor<f32>
    ^s: send(%a) {key = "b"}
    return after(^s)
  }
}"""
    )
    with pytest.raises(TfcError, match="no partition sends"):
        interpret(module, {"x": np.float32(1)})
    with pytest.raises(TfcError, match="not alone"):
        interpret(module, {"x": np.float32(1)}, "one")


def test_cancelling_the_call_ends_its_parts() -> None:
    context = Context(State())
    waiting = threading.Event()

    def receives(inner: Context) -> list[Any]:
        waiting.set()
        return [inner.channels.receive("a", inner)]

    def holds(inner: Context) -> list[Any]:
        assert waiting.wait(10)
        context.cancelled.set()
        while True:
            inner.check()

    with pytest.raises(Exception, match="cancelled"):
        partitions.run_partitions([receives, holds], context)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[@one, @two]", "[@one, @three]"), "has no @three"),
        (("[@one, @two]", "[]"), "C1"),
        (("[@one, @two]", "[@one, @main]"), "calls partitions itself"),
        (("[@one, @two]} : tensor<f32>", "[@two]} : tensor<f32>"), "C3"),
        (("func @two(%x: tensor<f32>)", "func @two(%x: tensor<4xf32>)"), "C2"),
    ],
)
def test_mistakes_in_a_call(change: tuple[str, str], message: str) -> None:
    text = """module {
  func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
    %y = partitioned_call(%x) {parts = [@one, @two]} : tensor<f32>
    return %y
  }
  func @one(%x: tensor<f32>) -> (%y: tensor<f32>) {
    return %x
  }
  func @two(%x: tensor<f32>) {
    return
  }
}"""
    assert change[0] in text
    with pytest.raises(TfcError, match=message):
        verify(parse_module(text.replace(*change)))


# ---- variables, control edges, nested control flow


def spread(module: Module, seed: int, count: int = 2) -> None:
    """Puts each group of ops that must lie together on a random device."""
    r = Random(seed)
    devices = parse_devices(tuple(f"cpu:{n}" for n in range(count)))
    for group in device_groups(module, devices):
        device = str(r.choice(devices))
        for op in group.ops:
            op.device = device


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_control_flow_and_state(first: int) -> None:
    """Functions that share variables, with loops and branches: each call, and what it leaves."""
    crossed = 0
    for seed in range(first, first + 20):
        module, _, calls = stateful.generate(seed, 24)
        expected = stateful.outcome(module, calls)
        spread(module, seed, 2 + seed % 2)
        Partition().run(module, PassContext())
        verify(module)
        MADE.clear()
        for before, after in zip(expected, stateful.outcome(module, calls), strict=True):
            assert before.keys() == after.keys(), seed
            for name, array in before.items():
                same = np.asarray(array).tobytes() == np.asarray(after[name]).tobytes()
                assert same, (seed, name)
        crossed += sum(len(channels.sent) for channels in MADE)
    assert crossed > 40
