"""Bundles for several devices: the bits of one, parts that run at once, errors, locks."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.passes import stateful
from tests.passes.graph.device_graphs import device_module
from tests.passes.graph.test_partition import inputs_of, scattered, spread
from tfc import driver
from tfc.interpret import interpret
from tfc.ir.core import Module
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.verifier import verify
from tfc.passes.base import PassContext
from tfc.passes.graph.partition import Partition
from tfc.runtime import Bundle, load
from tfc.runtime.channels import Channels
from tfc.runtime.errors import CancelledError, RunError, StateError
from tfc.runtime.host import Context
from tfc.runtime.locks import CallLock
from tfc.runtime.partitions import run_partitions
from tfc.runtime.state import State
from tfc.text import parse_module

TWO = ("cpu:0", "cpu:1")
BRANCHES = """module {
  func @main(%x: tensor<Sx64xf32>) -> (%y: tensor<Sx64xf32>) {
    %a = exp(%x) on("/device:cpu:0") : tensor<Sx64xf32>
    %b = tanh(%x) on("/device:cpu:1") : tensor<Sx64xf32>
    %c = mul(%b, %b) on("/device:cpu:1") : tensor<Sx64xf32>
    %y = add(%a, %c) on("/device:cpu:0") : tensor<Sx64xf32>
    return %y
  }
}"""


def compiled(source: str | Module, folder: Path, **options: object) -> Bundle:
    module = parse_module(source) if isinstance(source, str) else source
    path = folder / "model.tfb"
    driver.compile(module, path, **options)  # pyright: ignore[reportArgumentType]
    return load(path, threads=1)


def test_the_bits_are_those_of_one_device(tmp_path: Path) -> None:
    one = compiled(BRANCHES.replace(":cpu:1", ":cpu:0"), tmp_path, devices=("cpu:0",))
    two = compiled(BRANCHES, tmp_path, devices=TWO)
    assert list(one.functions) == ["main"]
    assert sorted(two.functions) == ["main", "main/cpu:0", "main/cpu:1"]
    for rows in (1, 5, 33):
        x = np.random.default_rng(rows).normal(size=(rows, 64)).astype(np.float32)
        assert one.run({"x": x})["y"].tobytes() == two.run({"x": x})["y"].tobytes()


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    module = scattered(seed)
    inputs, state = inputs_of(module), State()
    expected = interpret(module, inputs, state=state)
    Partition().run(module, PassContext())
    with compiled(module, tmp_path, opt_level=1) as bundle:
        for name, array in bundle.run(inputs).items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-5)
        for name, value in state.variables.items():
            if value is not None:
                np.testing.assert_allclose(bundle.state[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", [1, 4])
def test_control_flow_and_state(seed: int, tmp_path: Path) -> None:
    """Functions that share variables over two devices: each call as in the interpreter."""
    module, _, calls = stateful.generate(seed, 16)
    expected = stateful.outcome(module, calls)
    spread(module, seed)
    Partition().run(module, PassContext())
    with compiled(module, tmp_path, opt_level=1) as bundle:
        for (function, inputs), wanted in zip(calls, expected, strict=True):
            found = bundle.functions[function].run(inputs)
            found |= {f"@{name}": bundle.state[name] for name in module.variables}
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def test_compressed(tmp_path: Path) -> None:
    bundle = compiled(BRANCHES, tmp_path, devices=TWO, compress="bf16")
    x = np.full((2, 64), 0.3, np.float32)
    exact = np.exp(x) + np.tanh(x) ** 2
    found = bundle.run({"x": x})["y"]
    assert 0 < np.abs(found - exact).max() < 2.0**-8


def test_many_callers_at_once(tmp_path: Path) -> None:
    bundle = compiled(BRANCHES, tmp_path, devices=TWO)
    wrong: list[int] = []

    def call(number: int) -> None:
        x = np.full((3, 64), number / 10, np.float32)
        for _ in range(20):
            y = bundle.run({"x": x})["y"]
            if not np.allclose(y, np.exp(x) + np.tanh(x) ** 2, rtol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


STATE = """module {
  variable @v : tensor<4xf32>
  variable @w : tensor<4xf32>
  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %a = assign_add(@v, %x) on("/device:cpu:0") : tensor<4xf32>
    %b = assign_add(@w, %x) on("/device:cpu:1") : tensor<4xf32>
    %y = add(%a, %b) on("/device:cpu:0") : tensor<4xf32>
    return %y
  }
}"""


def test_an_error_in_one_part_ends_the_call(tmp_path: Path) -> None:
    """@w is not assigned, which cpu:1 finds while cpu:0 waits for it; then a call is right."""
    bundle = compiled(STATE, tmp_path, devices=TWO)
    x = np.ones(4, np.float32)
    bundle.state["v"] = x
    with pytest.raises((StateError, RunError), match="w"):
        bundle.run({"x": x})
    bundle.state["v"], bundle.state["w"] = x, x
    np.testing.assert_array_equal(bundle.run({"x": x})["y"], 4 * x)


def test_calls_on_one_state_come_one_after_another(tmp_path: Path) -> None:
    """v and w grow together: no caller sees one without the other."""
    bundle = compiled(STATE, tmp_path, devices=TWO)
    zero, one = np.zeros(4, np.float32), np.ones(4, np.float32)
    bundle.state["v"], bundle.state["w"] = zero, zero
    seen: list[float] = []

    def call() -> None:
        for _ in range(25):
            seen.append(float(bundle.run({"x": one})["y"][0]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [2.0 * n for n in range(1, 101)]


def test_a_part_alone_is_refused(tmp_path: Path) -> None:
    bundle = compiled(BRANCHES, tmp_path, devices=TWO)
    with pytest.raises(RunError, match="not alone"):
        bundle.functions["main/cpu:1"].run({"x": np.ones((1, 64), np.float32)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": ("cpu:0", "gpu:0")}, "no code for GPUs"),
        ({"devices": ("/task:0/device:cpu:0", "/task:1/device:cpu:0")}, "several machines"),
        ({"compress": "bf16"}, "nothing to spread"),
        ({"devices": ("cpu:0", "cpu")}, "given twice"),
    ],
)
def test_refused(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises((TfcError, UnsupportedError), match=message):
        compiled(BRANCHES, tmp_path, **options)


def test_a_graph_for_a_gpu_can_be_shown(tmp_path: Path) -> None:
    out = tmp_path / "graph.tfc"
    text = BRANCHES.replace(":cpu:1", ":gpu:0")
    driver.compile(parse_module(text), out, devices=("cpu:0", "gpu:0"), emit="graph")
    assert 'func @"main/gpu:0"' in out.read_text()


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.tfb", "b.tfb")]
    for file in files:
        driver.compile(device_module(3, constrained=0.0), file, devices=TWO, opt_level=1)
    assert files[0].read_bytes() == files[1].read_bytes()


# ---- channels and locks


def test_channels_are_used_once() -> None:
    channels, context = Channels(1), Context(State())
    array = np.arange(3)
    channels.send("a", array)
    array[:] = 0
    np.testing.assert_array_equal(channels.receive("a", context), [0, 1, 2])  # a copy
    with pytest.raises(RunError, match="sent twice"):
        channels.send("a", array)
    with pytest.raises(RunError, match="no partition sends"):
        channels.receive("a", context)


def test_stopped_channels_wake_who_waits() -> None:
    channels, context = Channels(2), Context(State())
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            channels.receive("never", context)
        except CancelledError as error:
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    channels.stop()
    thread.join(10)
    assert not thread.is_alive() and len(caught) == 1


def test_threads_are_used_again(tmp_path: Path) -> None:
    """Also in a child process, which has none of its parent's threads."""
    bundle = compiled(BRANCHES, tmp_path, devices=TWO)
    inputs = {"x": np.ones((2, 64), np.float32)}
    expected = bundle.run(inputs)["y"]
    threads = threading.active_count()
    for _ in range(10):
        bundle.run(inputs)
    assert threading.active_count() == threads
    child = os.fork()
    if not child:
        right = bundle.run(inputs)["y"].tobytes() == expected.tobytes()
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_lock_of_calls() -> None:
    """Who acts for the holder gets in, others do not; releasing what is not held is an error."""
    lock = CallLock()
    inside: list[str] = []

    def enter(name: str, caller: object) -> None:
        with lock.acting_for(caller), lock:
            inside.append(name)

    with lock:
        friend = threading.Thread(target=enter, args=("friend", lock.caller()))
        friend.start()
        friend.join(10)
        stranger = threading.Thread(target=enter, args=("stranger", object()))
        stranger.start()
        stranger.join(0.05)
        assert inside == ["friend"] and stranger.is_alive()
    stranger.join(10)
    assert inside == ["friend", "stranger"]
    with pytest.raises(RuntimeError):
        lock.release()


def test_an_interrupt_ends_all_parts() -> None:
    """Ctrl-C reaches the caller when every part has ended."""
    context, ended = Context(State()), threading.Event()

    def quick(inner: Context) -> list[np.ndarray]:
        signal.raise_signal(signal.SIGINT)
        return []

    def slow(inner: Context) -> list[np.ndarray]:
        try:
            return [inner.channels.receive("never", inner)]
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_partitions([quick, slow], context)
    assert ended.is_set()
    assert run_partitions([lambda c: [], lambda c: []], Context(State())) == []


MEETING = """module {
  func @main(%x: tensor<4xf32>) -> (%y: tensor<TYPE>) {
    %y = partitioned_call(%x) {parts = [@left, @right]} : tensor<TYPE>
    return %y
  }
  func @left(%x: tensor<4xf32>) {
    ^sent: send(%x) {key = "x"}
    return after(^sent)
  }
  func @right(%x: tensor<4xf32>) -> (%y: tensor<TYPE>) {
    %y = recv() {key = "x"} : tensor<TYPE>
    return %y
  }
}"""


@pytest.mark.parametrize("kind", ["4xi32", "4xf64", "5xf32", "2x2xf32", "f32"])
def test_what_is_received_is_of_the_type_that_is_sent(kind: str) -> None:
    """The verifier refuses other types; where none looked, the receiver does."""
    module = parse_module(MEETING.replace("TYPE", kind))
    with pytest.raises(TfcError, match="C4: 'x' is sent as tensor<4xf32>, and received as"):
        verify(module)
    with pytest.raises(TfcError, match=r"recv: the tensor 'x' arrived as float32\[4\], not"):
        interpret(module, {"x": np.zeros(4, np.float32)})
