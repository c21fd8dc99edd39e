"""Queues, readers, random numbers and checkpoints from a bundle: what the interpreter does, bit by
bit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc.ops
import tfc.tile.ops
from tfc.driver import compile
from tfc.interpret import interpret
from tfc.ir.errors import TfcError
from tfc.runtime import Bundle, load
from tfc.runtime.errors import CancelledError, OutOfRangeError, StateError
from tfc.runtime.state import State
from tfc.text.parse import parse_module

assert tfc.ops and tfc.tile.ops

TEXT = """module {
  variable @state : tensor<2xu64>
  variable @v : tensor<8x4xf32>
  variable @b : tensor<2xbf16>
  resource @q : tensor<4xf32>, tensor<2xbf16> {
    kind = "random_shuffle_queue", capacity = 8, min_after_dequeue = 3, seed = 9
  }
  resource @r : tensor<4xf32> {kind = "npy_reader", files = "x-*.npy", batch = 2, epochs = 2}
  func @start(%x: tensor<8x4xf32>, %y: tensor<8x2xbf16>, %b: tensor<2xbf16>) -> (%n: tensor<i64>) {
    %seed = constant {value = dense<[7, 0]>} : tensor<2xu64>
    %s = assign(@state, %seed) : tensor<2xu64>
    %w = assign(@v, %x) : tensor<8x4xf32>
    %c = assign(@b, %b) : tensor<2xbf16>
    ^put: enqueue_many(@q, %x, %y) after(%s, %w, %c)
    %n = queue_size(@q) after(^put) : tensor<i64>
    return %n
  }
  func @step(%step: tensor<i64>) -> (
    %u: tensor<3x5xf32>, %n: tensor<6xf32>, %k: tensor<2xi64>, %e: tensor<2x4xf32>,
    %f: tensor<2x2xbf16>, %v: tensor<8x4xf32>, %b: tensor<2xbf16>
  ) {
    %u = random_uniform(@state) {shape = [3, 5], dtype = f32} : tensor<3x5xf32>
    %n = random_normal(@state) {shape = [6], dtype = f32} : tensor<6xf32>
    %k = random_integers(@state) {shape = [2], dtype = i64, low = 0, high = 8} : tensor<2xi64>
    %e, %f = dequeue_many(@q) {count = 2} : tensor<2x4xf32>, tensor<2x2xbf16>
    ^back: enqueue_many(@q, %e, %f)
    %x = read_batch(@r) : tensor<2x4xf32>
    %sum = add(%e, %x) : tensor<2x4xf32>
    %v = scatter_add(@v, %k, %sum) : tensor<8x4xf32>
    %b = read(@b) : tensor<2xbf16>
    ^print: print(%k, %b) {message = "drawn"}
    ^save: save(%step) {of = [@state, @v, @b, @q, @r], path = "ck/m", keep = 2}
    return %u, %n, %k, %e, %f, %v, %b after(^print, ^save, ^back)
  }
  func @back() -> (%step: tensor<i64>) {
    %step = restore {of = [@state, @v, @b, @q, @r], path = "ck/m", otherwise = -1} : tensor<i64>
    return %step
  }
  func @get() -> (%y: tensor<4xf32>, %z: tensor<2xbf16>) {
    %y, %z = dequeue(@q) : tensor<4xf32>, tensor<2xbf16>
    return %y, %z
  }
  func @put(%x: tensor<4xf32>, %y: tensor<2xbf16>) -> () {
    ^put: enqueue(@q, %x, %y)
    return after(^put)
  }
  func @close() -> () {
    ^close: queue_close(@q) {cancel_pending = true}
    return after(^close)
  }
}
"""

Call = Callable[..., "dict[str, Any]"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "m.tfb"
    compile(parse_module(TEXT), path)
    return path


def files(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for number, rows in enumerate((3, 2)):
        np.save(folder / f"x-{number}.npy", np.arange(rows * 4, dtype=np.float32).reshape(rows, 4))
    return folder


def by_bundle(bundle: Bundle) -> Call:
    return lambda name, **inputs: bundle.functions[name].run(inputs)


def by_interpreter(folder: Path) -> Call:
    module, state = parse_module(TEXT), State(folder)
    return lambda name, **inputs: interpret(module, inputs, name, state=state)


@pytest.fixture
def bundle(compiled: Path, tmp_path: Path) -> Iterator[Bundle]:
    with load(compiled, folder=files(tmp_path / "bundle")) as opened:
        yield opened


def start(call: Call) -> None:
    import ml_dtypes

    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    y = np.arange(16).reshape(8, 2).astype(ml_dtypes.bfloat16)
    assert call("back")["step"] == -1
    assert call("start", x=x, y=y, b=y[3])["n"] == 8


def same(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert list(a) == list(b)
    for name in a:
        if name == "n" and a[name].dtype == np.float32:  # logarithm, cosine: of each its own
            np.testing.assert_allclose(a[name], b[name], rtol=6e-7)
        else:
            assert a[name].dtype == b[name].dtype and a[name].tobytes() == b[name].tobytes(), name


def test_bundle_and_interpreter_do_the_same(
    bundle: Bundle, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = by_bundle(bundle), by_interpreter(files(tmp_path / "own"))
    for call in calls:
        start(call)
    for step in range(5):
        a, b = (call("step", step=np.array(step)) for call in calls)
        same(a, b)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 10 and lines[::2] == lines[1::2]
    held = [(tmp_path / f / "ck/m-4.safetensors").read_bytes() for f in ("bundle", "own")]
    assert held[0] == held[1]
    with pytest.raises(OutOfRangeError, match="'r' is at its end"):
        calls[0]("step", step=np.array(5))


def test_each_goes_on_from_what_the_other_has_saved(
    compiled: Path, bundle: Bundle, tmp_path: Path
) -> None:
    call = by_bundle(bundle)
    start(call)
    for step in range(3):
        call("step", step=np.array(step))
    after = by_interpreter(tmp_path / "bundle")
    assert after("back")["step"] == 2
    with load(compiled, folder=tmp_path / "bundle") as again:
        assert by_bundle(again)("back")["step"] == 2
        expected = call("step", step=np.array(3))
        same(after("step", step=np.array(3)), expected)
        same(by_bundle(again)("step", step=np.array(3)), expected)


def test_a_compiled_call_waits_and_lets_others_run(bundle: Bundle) -> None:
    import ml_dtypes

    call = by_bundle(bundle)
    found: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: found.append(call("get")), daemon=True)
    thread.start()
    for number in range(4):
        assert not found
        element = np.full(4, number, np.float32), np.full(2, number, ml_dtypes.bfloat16)
        call("put", x=element[0], y=element[1])
        time.sleep(0.05)
    thread.join(10)
    assert float(found[0]["y"][0]) == float(found[0]["z"][0]) in (0, 1, 2, 3)
    call("close")
    with pytest.raises(CancelledError, match="'q' is closed"):
        call("put", x=element[0], y=element[1])
    for _ in range(3):
        call("get")
    with pytest.raises(OutOfRangeError, match="0 elements left"):
        call("get")


def test_without_a_folder(compiled: Path) -> None:
    with load(compiled) as opened, pytest.raises(StateError, match="needs a folder"):
        by_bundle(opened)("back")
    with pytest.raises(TfcError, match="needs a folder"):
        interpret(parse_module(TEXT), {}, "back")


def test_sizes_that_change_from_call_to_call(tmp_path: Path) -> None:
    text = """module {
  resource @q : tensor<2xf32> {kind = "fifo_queue", capacity = 90}
  func @main(%x: tensor<Sx2xf32>) -> (%y: tensor<2x2xf32>, %n: tensor<i64>) {
    ^put: enqueue_many(@q, %x)
    %y = dequeue_many(@q) {count = 2} after(^put) : tensor<2x2xf32>
    %n = queue_size(@q) after(%y) : tensor<i64>
    return %y, %n
  }
}"""
    compile(parse_module(text), tmp_path / "m.tfb")
    line, found = list[float](), list[float]()
    with load(tmp_path / "m.tfb") as opened:
        for number, rows in enumerate((2, 5, 2, 3, 0, 2, 64, 2)):
            x = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2) + 1000 * number
            line.extend(x.flat)
            y, n = opened(x)
            found.extend(y.flat)
            assert found == line[: len(found)], f"in call {number}"
            assert n == (len(line) - len(found)) / 2
