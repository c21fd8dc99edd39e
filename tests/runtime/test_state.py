"""State in the loader: variables, containers, calls that share them, host ops."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tfc
from tfc.bundle import BundleSpec
from tfc.interpret import interpret, state_of
from tfc.runtime.errors import CancelledError
from tfc.runtime.host import HOST_OPS
from tfc.runtime.state import State

COUNTER = """module {
  variable @total : tensor<4xf32>
  variable @steps : tensor<i64>
  func @init(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %zero = constant {value = dense<0>} : tensor<i64>
    %s = assign(@steps, %zero) : tensor<i64>
    %y = assign(@total, %x) : tensor<4xf32>
    return %y after(%s)
  }
  func @step(%x: tensor<4xf32>) -> (%y: tensor<4xf32>, %n: tensor<i64>) {
    %one = constant {value = dense<1>} : tensor<i64>
    %y = assign_add(@total, %x) : tensor<4xf32>
    %n = assign_add(@steps, %one) : tensor<i64>
    return %y, %n
  }
  func @peek() -> (%y: tensor<4xf32>) {
    %y = read(@total) : tensor<4xf32>
    return %y
  }
  func @pure(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %y = neg(%x) : tensor<4xf32>
    return %y
  }
}
"""
OTHER = """module {
  variable @steps : tensor<i64>
  variable @name : tensor<2xu8>
  variable @total : tensor<4xf32>
  func @main() -> (%y: tensor<4xf32>, %n: tensor<i64>) {
    %y = read(@total) : tensor<4xf32>
    %n = read(@steps) : tensor<i64>
    return %y, %n
  }
}
"""
QUEUE = """module {
  variable @last : tensor<4xf32>
  resource @q : tensor<4xf32> {kind = "fifo_queue", capacity = 2}
  func @put(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %y = neg(%x) : tensor<4xf32>
    ^put: enqueue(@q, %y)
    return %y after(^put)
  }
  func @take() -> (%y: tensor<4xf32>) {
    %t = dequeue(@q) : tensor<4xf32>
    %y = assign(@last, %t) : tensor<4xf32>
    return %y
  }
  func @look() -> (%y: tensor<4xf32>) {
    %y = read(@last) : tensor<4xf32>
    return %y
  }
}
"""
PARTS = """module {
  variable @v : tensor<4xf32>
  variable @w : tensor<4xf32>
  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>, %z: tensor<4xf32>) {
    %y, %z = partitioned_call(%x) {parts = [@left, @right]} : tensor<4xf32>, tensor<4xf32>
    return %y, %z
  }
  func @left(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %a = add(%x, %x) : tensor<4xf32>
    %y = assign(@w, %a) : tensor<4xf32>
    return %y
  }
  func @right(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %n = neg(%x) : tensor<4xf32>
    %y = assign(@v, %n) : tensor<4xf32>
    return %y
  }
}
"""
TRAINING = """module {
  variable @w : tensor<8x4xf32>
  variable @state : tensor<2xu64>
  resource @q : tensor<3x4xf32> {kind = "fifo_queue", capacity = 3}
  func @init(%x: tensor<8x4xf32>) -> (%r: tensor<3x4xf32>) {
    %seed = constant {value = dense<[7, 0]>} : tensor<2xu64>
    %s = assign(@state, %seed) : tensor<2xu64>
    %a = assign(@w, %x) : tensor<8x4xf32>
    %r = random_uniform(@state) {shape = [3, 4], dtype = f32} after(%s) : tensor<3x4xf32>
    ^e: enqueue(@q, %r)
    return %r after(%a, ^e)
  }
  func @step(%i: tensor<3xi64>, %n: tensor<i64>) -> (%y: tensor<8x4xf32>) {
    %u = dequeue(@q) : tensor<3x4xf32>
    %y = scatter_add(@w, %i, %u) : tensor<8x4xf32>
    ^saved: save(%n) {of = [@w, @state], path = "model", keep = 3} after(%y)
    %r = random_normal(@state) {shape = [3, 4], dtype = f32} : tensor<3x4xf32>
    ^e: enqueue(@q, %r)
    return %y after(^saved, ^e)
  }
  func @back() -> (%n: tensor<i64>, %w: tensor<8x4xf32>) {
    %n = restore {of = [@w, @state], path = "model"} : tensor<i64>
    %w = read(@w) after(%n) : tensor<8x4xf32>
    return %n, %w
  }
}
"""
X = np.array([1, 2, 3, 4], np.float32)


def compiled(text: str, folder: Path, name: str = "model") -> Path:
    path = folder / f"{name}.tfb"
    (folder / f"{name}.tfc").write_text(text)
    tfc.compile(folder / f"{name}.tfc", path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def counter(folder: Path) -> Path:
    return compiled(COUNTER, folder, "counter")


@pytest.fixture(scope="module")
def other(folder: Path) -> Path:
    return compiled(OTHER, folder, "other")


@pytest.fixture(scope="module")
def queue(folder: Path) -> Path:
    return compiled(QUEUE, folder, "queue")


@pytest.fixture
def container() -> Iterator[str]:
    name = "test container"
    yield name
    tfc.reset(name)


# ---- variables


def test_functions_share_the_variables(counter: Path) -> None:
    with tfc.load(counter) as bundle:
        run = {name: f.run for name, f in bundle.functions.items()}
        run["init"]({"x": X})
        for turn in range(3):
            found = run["step"]({"x": X})
            assert found["n"] == turn + 1
            np.testing.assert_array_equal(found["y"], X * (turn + 2))
        np.testing.assert_array_equal(run["peek"]({})["y"], X * 4)
        assert [str(v) for v in bundle.variables] == ["total: f32[4]", "steps: i64[]"]
        assert bundle.state.variables["steps"] == 3


def test_results_are_snapshots(counter: Path) -> None:
    with tfc.load(counter) as bundle:
        bundle.functions["init"].run({"x": X})
        before = bundle.functions["peek"].run({})["y"]
        bundle.functions["step"].run({"x": X})
        np.testing.assert_array_equal(before, X)


def test_nothing_is_assigned_at_first(counter: Path) -> None:
    with tfc.load(counter) as bundle:
        assert bundle.state.variables == {"total": None, "steps": None}
        with pytest.raises(tfc.StateError, match="the variable 'total' is not initialized"):
            bundle.functions["peek"].run({})
        with pytest.raises(tfc.StateError, match="'total' is not initialized"):
            _ = bundle.state["total"]


def test_variables_from_outside(counter: Path) -> None:
    with tfc.load(counter) as bundle:
        bundle.state["total"] = [1, 2, 3, 4]
        bundle.state["steps"] = np.int64(7)
        np.testing.assert_array_equal(bundle.functions["peek"].run({})["y"], X)
        assert bundle.functions["step"].run({"x": X})["n"] == 8
        np.testing.assert_array_equal(bundle.state["total"], 2 * X)
        for wrong in (np.zeros(4), np.zeros(5, np.float32), np.zeros((), np.float32)):
            with pytest.raises(tfc.StateError, match=r"'total' is float32\[4\], not"):
                bundle.state["total"] = wrong
        with pytest.raises(tfc.StateError, match="there is no variable 'x'; there are: 'total'"):
            bundle.state["x"] = X
        np.testing.assert_array_equal(bundle.state["total"], 2 * X)


def test_values_outlive_the_bundle(counter: Path) -> None:
    bundle = tfc.load(counter)
    bundle.functions["init"].run({"x": X})
    state = bundle.state
    bundle.close()
    np.testing.assert_array_equal(state["total"], X)
    again = tfc.load(counter, container=state)
    np.testing.assert_array_equal(again.functions["peek"].run({})["y"], X)


# ---- containers


def test_a_container_of_its_own_by_default(counter: Path) -> None:
    first, second = tfc.load(counter), tfc.load(counter)
    first.functions["init"].run({"x": X})
    with pytest.raises(tfc.StateError):
        second.functions["peek"].run({})


def test_a_named_container_is_shared_until_reset(counter: Path, container: str) -> None:
    first, second = (tfc.load(counter, container=container) for _ in range(2))
    first.functions["init"].run({"x": X})
    second.functions["step"].run({"x": X})
    np.testing.assert_array_equal(first.functions["peek"].run({})["y"], 2 * X)
    tfc.reset(container)
    for bundle in (first, second):
        with pytest.raises(tfc.StateError, match="not initialized"):
            bundle.functions["peek"].run({})
    tfc.reset("there is no such container")


def test_bundles_with_other_variables_share_those_of_one_name(
    counter: Path, other: Path, container: str
) -> None:
    train, serve = tfc.load(counter, container=container), tfc.load(other, container=container)
    train.functions["init"].run({"x": X})
    train.functions["step"].run({"x": X})
    found = serve.run({})
    np.testing.assert_array_equal(found["y"], 2 * X)
    assert found["n"] == 1
    assert list(train.state.variables) == ["total", "steps", "name"]


def test_a_variable_of_another_type_is_refused(counter: Path, folder: Path, container: str) -> None:
    tfc.load(counter, container=container)
    text = COUNTER.replace("4xf32", "5xf32")
    with pytest.raises(tfc.StateError, match=r"'total' is float32\[4\] in this container, not"):
        tfc.load(compiled(text, folder, "wider"), container=container)


# ---- calls at the same time


def test_no_update_is_lost(counter: Path) -> None:
    """Calls from four threads run one after another."""
    with tfc.load(counter, threads=1) as bundle:
        bundle.functions["init"].run({"x": np.zeros(4, np.float32)})
        step, ones = bundle.functions["step"], np.ones(4, np.float32)

        def work() -> None:
            for _ in range(500):
                step.run({"x": ones})

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bundle.state["steps"] == 2000
        assert bundle.state["total"].tolist() == [2000.0] * 4


def test_a_function_without_variables_waits_for_nobody(counter: Path) -> None:
    with tfc.load(counter) as bundle:
        bundle.functions["init"].run({"x": X})
        done = threading.Event()

        def call() -> None:
            bundle.functions["pure"].run({"x": X})
            done.set()

        def blocked() -> None:
            bundle.functions["peek"].run({})
            late.set()

        late = threading.Event()
        with bundle.state.lock:
            threads = [threading.Thread(target=work) for work in (call, blocked)]
            for thread in threads:
                thread.start()
            assert done.wait(10)
            assert not late.wait(0.1)
        for thread in threads:
            thread.join()


# ---- host ops


def test_random_numbers_queues_and_checkpoints_as_in_the_interpreter(folder: Path) -> None:
    path, x = compiled(TRAINING, folder, "training"), np.arange(32, dtype=np.float32)
    module = tfc.load_module(folder / "training.tfc")
    for place in ("here", "there"):
        (folder / place).mkdir()
    bundle, state = tfc.load(path, folder=folder / "here"), State(folder / "there")
    state_of(module, state)
    steps = [{"i": np.array([1, 5, 1]), "n": np.int64(n)} for n in range(3)]
    calls = [("init", {"x": x.reshape(8, 4)}), *(("step", s) for s in steps), ("back", {})]
    for name, feed in calls:
        found = bundle.functions[name].run(feed)
        wanted = interpret(module, feed, name, state=state)
        for output, array in wanted.items():
            np.testing.assert_allclose(found[output], array, rtol=1e-6, err_msg=f"{name} {output}")
        held = bundle.state.variables
        np.testing.assert_array_equal(held["state"], state["state"])
        np.testing.assert_allclose(held["w"], state["w"], rtol=1e-6)
    with tfc.load(path, folder=folder / "here") as again:
        assert again.functions["back"].run({})["n"] == 2
        np.testing.assert_array_equal(again.state["w"], bundle.state["w"])


def test_who_waits_for_an_element_holds_no_variables(queue: Path) -> None:
    with tfc.load(queue) as bundle:
        bundle.state["last"] = X
        found: list[np.ndarray] = []
        taker = threading.Thread(target=lambda: found.append(bundle.functions["take"].run({})["y"]))
        taker.start()
        time.sleep(0.1)
        np.testing.assert_array_equal(bundle.functions["look"].run({})["y"], X)
        bundle.functions["put"].run({"x": 3 * X})
        taker.join(10)
        np.testing.assert_array_equal(found[0], -3 * X)
        np.testing.assert_array_equal(bundle.state["last"], -3 * X)


def test_parts_of_a_call_share_what_it_has_locked(folder: Path) -> None:
    with tfc.load(compiled(PARTS, folder, "parts")) as bundle:
        assert bundle.main.info.stateful
        for turn in range(20):
            found = bundle.run({"x": X * turn})
            np.testing.assert_array_equal(found["y"], 2 * X * turn)
            np.testing.assert_array_equal(bundle.state["v"], found["z"])
            np.testing.assert_array_equal(bundle.state["w"], found["y"])


def test_closing_ends_calls_that_wait(queue: Path) -> None:
    bundle, errors = tfc.load(queue), list[BaseException]()

    def take() -> None:
        try:
            bundle.functions["take"].run({})
        except CancelledError as error:
            errors.append(error)

    taker = threading.Thread(target=take)
    taker.start()
    time.sleep(0.1)
    bundle.close()
    taker.join(10)
    assert len(errors) == 1


def test_an_exception_in_a_host_op_comes_through(
    queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(Exception):
        pass

    raised = Own("as it is")

    def fail(*_: object) -> list[np.ndarray]:
        raise raised

    with tfc.load(queue) as bundle:
        bundle.functions["put"].run({"x": X})
        monkeypatch.setitem(HOST_OPS, "enqueue", fail)
        with pytest.raises(Own) as caught:
            bundle.functions["put"].run({"x": X})
        assert caught.value is raised
        monkeypatch.undo()
        bundle.functions["put"].run({"x": 2 * X})
        np.testing.assert_array_equal(bundle.functions["take"].run({})["y"], -X)


def test_a_host_op_that_gives_something_else(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tfc.load(queue) as bundle:
        monkeypatch.setitem(HOST_OPS, "dequeue", lambda *_: [np.zeros(3, np.float32)])
        with pytest.raises(tfc.RunError, match=r"dequeue gave float32\[3\], not f32\[4\]"):
            bundle.functions["take"].run({})


def test_what_a_host_op_is_given_is_memory_in_place(
    queue: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []

    def look(_: object, __: object, arrays: list[np.ndarray], ___: object) -> list[np.ndarray]:
        seen.append((arrays[0].flags.writeable, arrays[0].ctypes.data))
        return []

    with tfc.load(queue) as bundle:
        monkeypatch.setitem(HOST_OPS, "enqueue", look)
        out = np.empty(4, np.float32)
        bundle.functions["put"].run({"x": X}, {"y": out})
        assert seen == [(False, out.ctypes.data)]


@pytest.mark.parametrize(
    "change",
    [
        {"host_ops": []},
        {"host_ops": None},
        {"host_ops": [{"function": "put", "number": 1}]},
        {"host_ops": [{"function": "put", "number": 0, "op": 3, "attributes": {}, "node": ""}]},
        {"resources": [{"name": "q"}]},
        {"resources": [3]},
    ],
)
def test_a_manifest_that_does_not_describe_them(change: dict[str, object], queue: Path) -> None:
    import json

    from tests.runtime import forge

    data = queue.read_bytes()
    with tfc.load(queue) as bundle:
        manifest = {**bundle.manifest, **change}
    with pytest.raises(tfc.BundleError, match=r"manifest\.json is damaged"):
        tfc.load(forge.with_manifest(data, json.dumps(manifest).encode()))


def test_only_bundles_with_host_ops_carry_what_runs_them(counter: Path, queue: Path) -> None:
    def names(path: Path) -> set[str]:
        with tfc.load(path) as bundle:
            return {m.name for m in bundle.members}

    assert "tfc_runtime/queues.py" not in names(counter)
    assert "tfc_runtime/queues.py" in names(queue)
    assert BundleSpec.__dataclass_fields__["variables"].default == ()
