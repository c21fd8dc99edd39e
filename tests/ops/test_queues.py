"""Ops on queues, readers and checkpoints in a graph: what is refused, and their meaning."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc.ops
from tfc.interpret import interpret
from tfc.ir.core import Module
from tfc.ir.errors import TfcError
from tfc.ir.verifier import verify
from tfc.runtime.errors import CancelledError, OutOfRangeError, StateError
from tfc.runtime.state import State
from tfc.text.parse import parse_module
from tfc.text.print import print_module

assert tfc.ops

QUEUE = """module {
  resource @q : tensor<f32> {kind = "fifo_queue", capacity = 8}
  func @put(%x: tensor<f32>) -> () {
    ^put: enqueue(@q, %x)
    return after(^put)
  }
  func @many(%x: tensor<Sxf32>) -> () {
    ^put: enqueue_many(@q, %x)
    return after(^put)
  }
  func @close() -> () {
    ^close: queue_close(@q)
    return after(^close)
  }
  func @get() -> (%y: tensor<f32>) {
    %y = dequeue(@q) : tensor<f32>
    return %y
  }
  func @two() -> (%y: tensor<2xf32>) {
    %y = dequeue_many(@q) {count = 2} : tensor<2xf32>
    return %y
  }
  func @rest() -> (%n: tensor<i64>, %y: tensor<4xf32>) {
    %n, %y = dequeue_up_to(@q) {count = 4} : tensor<i64>, tensor<4xf32>
    return %n, %y
  }
  func @size() -> (%n: tensor<i64>) {
    %n = queue_size(@q) : tensor<i64>
    return %n
  }
}
"""


class Graph:
    """A module and its state; `graph("name", x=...)` calls a function."""

    def __init__(self, text: str, folder: Path | None = None) -> None:
        self.module: Module = parse_module(text)
        verify(self.module)
        assert print_module(parse_module(print_module(self.module))) == print_module(self.module)
        self.state = State(folder)

    def __call__(self, name: str, **inputs: Any) -> dict[str, np.ndarray]:
        arrays = {k: np.asarray(v, np.float32) for k, v in inputs.items()}
        return interpret(self.module, arrays, name, state=self.state)


def test_order_is_kept_across_calls() -> None:
    graph = Graph(QUEUE)
    for x in (1, 2, 3):
        graph("put", x=x)
    assert graph("size")["n"] == 3
    assert [float(graph("get")["y"]) for _ in range(2)] == [1, 2]
    assert graph("size")["n"] == 1 and graph("get")["y"] == 3


def test_a_closed_queue_drains_and_then_ends() -> None:
    graph = Graph(QUEUE)
    graph("many", x=[10, 20, 30])
    graph("close")
    assert graph("two")["y"].tolist() == [10, 20]
    assert graph("rest")["y"].tolist() == [30, 0, 0, 0]
    for name in ("get", "two", "rest"):
        with pytest.raises(TfcError, match="'q' is closed and has 0 elements left") as caught:
            graph(name)
        assert isinstance(caught.value.__cause__, OutOfRangeError)
    with pytest.raises(TfcError, match="'q' is closed") as caught:
        graph("put", x=1)
    assert isinstance(caught.value.__cause__, CancelledError)


def test_a_call_that_waits_goes_on_when_another_puts_something_in() -> None:
    graph = Graph(QUEUE)
    found: list[np.ndarray] = []
    thread = threading.Thread(target=lambda: found.append(graph("two")["y"]), daemon=True)
    thread.start()
    graph("put", x=1)
    time.sleep(0.1)
    assert not found
    graph("put", x=2)
    thread.join(10)
    assert found[0].tolist() == [1, 2]


def test_a_reader_and_a_queue_that_it_fills(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.float32))
    graph = Graph(
        """module {
          resource @r : tensor<f32> {kind = "npy_reader", files = "*.npy", batch = 2}
          resource @s : tensor<f32> {kind = "npy_reader", files = "*.npy", epochs = 2}
          resource @q : tensor<f32> {kind = "fifo_queue", capacity = 3, reader = @s}
          func @read() -> (%y: tensor<2xf32>) {
            %y = read_batch(@r) : tensor<2xf32>
            return %y
          }
          func @get() -> (%y: tensor<4xf32>) {
            %y = dequeue_many(@q) {count = 4} : tensor<4xf32>
            return %y
          }
        }""",
        tmp_path,
    )
    assert [graph("read")["y"].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert [graph("get")["y"].tolist() for _ in range(3)] == [
        [0, 1, 2, 3],
        [4, 5, 0, 1],
        [2, 3, 4, 5],
    ]
    for name in ("read", "get"):
        with pytest.raises(TfcError) as caught:
            graph(name)
        assert isinstance(caught.value.__cause__, OutOfRangeError)


def test_there_must_be_a_checkpoint(tmp_path: Path) -> None:
    text = """module {
      variable @v : tensor<f32>
      func @main() -> (%n: tensor<i64>) {
        %n = restore {of = [@v], path = "ck"} : tensor<i64>
        return %n
      }
    }"""
    with pytest.raises(TfcError, match="there is no checkpoint 'ck'") as caught:
        Graph(text, tmp_path)("main")
    assert isinstance(caught.value.__cause__, StateError)


def test_print(capsys: pytest.CaptureFixture[str]) -> None:
    text = """module {
      func @main(%x: tensor<2xf32>) -> () {
        %b = cast(%x) {to = bf16} : tensor<2xbf16>
        ^p: print(%x, %b) {message = "x:"}
        ^q: print() {message = "done"}
        return after(^p, ^q)
      }
    }"""
    Graph(text)("main", x=[1.5, -2])
    assert capsys.readouterr().err == "x: [ 1.5, -2. ] [ 1.5, -2. ]\ndone\n"


# ---- what is refused

Q = '{kind = "fifo_queue", capacity = 8}'


def function(resource: str, op: str, arguments: str = "%x: tensor<f32>") -> str:
    return f"""module {{
      variable @v : tensor<f32>
      resource @q : {resource}
      func @main({arguments}) -> () {{
        {op}
        return after({op.split(":")[0] if op.startswith("^") else op.split(" ")[0]})
      }}
    }}"""


@pytest.mark.parametrize(
    ("resource", "op", "message"),
    [
        (f"tensor<f32> {Q}", "^a: enqueue(@q, %x, %x)", "C1: @q gives tensor<f32> here"),
        (f"tensor<2xf32> {Q}", "^a: enqueue(@q, %x)", "C1: @q gives tensor<2xf32>"),
        (f"tensor<f32> {Q}", "^a: enqueue_many(@q)", "C1"),
        (f"tensor<f32> {Q}", "%y = dequeue(@q) : tensor<f64>", "C1"),
        (f"tensor<f32> {Q}", "%y = dequeue_many(@q) {count = 2} : tensor<3xf32>", "C1"),
        (f"tensor<f32> {Q}", "%y = dequeue_many(@q) {count = 0} : tensor<0xf32>", "C2: count is 0"),
        (f"tensor<f32> {Q}", "%y = dequeue_up_to(@q) {count = 2} : tensor<2xf32>", "C2"),
        (f"tensor<f32> {Q}", "%y = dequeue(@v) : tensor<f32>", "no resource @v"),
        (
            f"tensor<f32> {Q}",
            "%y = read_batch(@q) : tensor<1xf32>",
            "read_batch takes a npy_reader",
        ),
        (f"tensor<Sxf32> {Q}", "%y = dequeue(@q) : tensor<f32>", "dimensions are numbers"),
        ('tensor<f32> {kind = "fifo_queue"}', "%y = dequeue(@q) : tensor<f32>", "capacity is miss"),
        (
            'tensor<f32> {kind = "npy_reader", files = "../x"}',
            "%y = read_batch(@q) : tensor<1xf32>",
            "not below the folder",
        ),
        (
            'tensor<f32> {kind = "npy_reader", files = "x", batch = 3}',
            "%y = read_batch(@q) : tensor<2xf32>",
            "C1: @q gives tensor<3xf32>",
        ),
        (
            'tensor<f32> {kind = "fifo_queue", capacity = 8, reader = @v}',
            "%y = dequeue(@q) : tensor<f32>",
            "no resource 'v'",
        ),
        (
            f"tensor<f32> {Q}",
            '%y = restore {of = [@v, @w], path = "x"} : tensor<i64>',
            "the module has no @w",
        ),
        (f"tensor<f32> {Q}", '%y = restore {of = [], path = "x"} : tensor<i64>', "C1"),
        (f"tensor<f32> {Q}", '%y = restore {of = [@v, @v], path = "x"} : tensor<i64>', "C1"),
        (f"tensor<f32> {Q}", '%y = restore {of = [@v], path = "/x"} : tensor<i64>', "C2"),
        (f"tensor<f32> {Q}", '^s: save(%x) {of = [@v], path = "x"}', "C4"),
        (
            f"tensor<f32> {Q}",
            '%y = restore {of = [@v], path = "x", otherwise = 1.5} : tensor<i64>',
            "otherwise",
        ),
    ],
)
def test_errors(resource: str, op: str, message: str) -> None:
    with pytest.raises(TfcError, match=message):
        verify(parse_module(function(resource, op)))


def test_a_reader_that_fills_a_queue_is_read_by_nobody_else() -> None:
    text = """module {
      resource @r : tensor<f32> {kind = "npy_reader", files = "x"}
      resource @q : tensor<f32> {kind = "fifo_queue", capacity = 3, reader = @r}
      func @main() -> (%y: tensor<1xf32>) {
        %y = read_batch(@r) : tensor<1xf32>
        return %y
      }
    }"""
    with pytest.raises(TfcError, match="C2: the elements of @r go to @q"):
        verify(parse_module(text))
