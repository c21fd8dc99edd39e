"""Checkpoints: what is held, files that are whole or not there, what is checked on the way back."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tfc.runtime.checkpoints import load, newest, restore, save, snapshot
from tfc.runtime.errors import StateError
from tfc.runtime.host import Context, OutputType, ResourceInfo, declare_resources
from tfc.runtime.state import State

VARIABLES = {
    "w": np.dtype(np.float32),
    "a name/with: signs": np.dtype(np.int8),
    "b": np.dtype(ml_dtypes.bfloat16),
    "flag": np.dtype(np.bool_),
    "none": np.dtype(np.float64),
}
NAMES = [*VARIABLES, "q"]


def state_of(folder: Path, fill: float | None = None) -> State:
    """A state of variables of many types, and a queue; filled, but for one, with a number."""
    state = State(folder)
    types = (OutputType("f32", (2,)), OutputType("bf16", ()))
    declare_resources(state, [ResourceInfo("q", "fifo_queue", types, {"capacity": 9})])
    for name, dtype in VARIABLES.items():
        state.declare(name, dtype, (2, 3))
        if fill is not None and name != "none":
            state.write(name, np.arange(6).reshape(2, 3).astype(dtype) * dtype.type(fill))
    if fill is not None:
        elements = (np.full((3, 2), fill, np.float32), np.full(3, 7, np.uint16))
        state.resource("q").enqueue(Context(state), elements)
    return state


def held(state: State) -> tuple[dict[str, bytes | None], int]:
    values = {n: None if a is None else a.tobytes() for n, a in state.variables.items()}
    return values, state.resource("q").size()


def write(folder: Path, step: int, keep: int = 9, path: str = "ck") -> State:
    state = state_of(folder, float(step))
    save(str(folder), path, snapshot(state, NAMES, step), keep)
    return state


def back(folder: Path, state: State) -> int:
    found = newest(str(folder), "ck")
    assert found is not None
    restore(state, NAMES, found[0], found[1])
    return found[0].step


def test_everything_comes_back(tmp_path: Path) -> None:
    state = write(tmp_path, 3)
    other = state_of(tmp_path, 8.0)
    other.write("none", np.ones((2, 3)))
    assert back(tmp_path, other) == 3
    assert held(other) == held(state)
    assert other.variables["none"] is None
    x, y = other.resource("q").dequeue(Context(other), 1)
    assert x.tolist() == [[3, 3]] and y.tolist() == [7]


def test_other_tools_read_the_file(tmp_path: Path) -> None:
    write(tmp_path, 2)
    found = safetensors.numpy.load_file(tmp_path / "ck-2.safetensors")
    assert found["w"].tolist() == [[0, 2, 4], [6, 8, 10]]
    assert found["b"].dtype == ml_dtypes.bfloat16 and found["flag"].dtype == np.bool_
    assert set(found) == {*VARIABLES, "@q/0", "@q/1"} - {"none"}


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        write(tmp_path / name, 5)
    a, b = ((tmp_path / n / "ck-5.safetensors").read_bytes() for n in "ab")
    assert a == b


def test_the_newest_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 10, 9):
        write(tmp_path, step, keep=2)
    write(tmp_path, 7, path="other")
    names = ["ck-10.safetensors", "ck-9.safetensors", "other-7.safetensors"]
    assert sorted(os.listdir(tmp_path)) == names
    assert back(tmp_path, state_of(tmp_path)) == 10
    write(tmp_path, 3, keep=1)
    assert sorted(os.listdir(tmp_path))[:2] == ["ck-10.safetensors", "ck-3.safetensors"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "ck-4.safetensors.partial").write_bytes(b"half")
    (tmp_path / "ck-other.partial").write_bytes(b"not ours")
    write(tmp_path, 5)
    assert sorted(os.listdir(tmp_path)) == ["ck-5.safetensors", "ck-other.partial"]


def test_a_folder_below_is_made(tmp_path: Path) -> None:
    write(tmp_path, 5, path="a/b/ck")
    assert newest(str(tmp_path), "a/b/ck")
    assert newest(str(tmp_path), "a/c/ck") is None


@pytest.mark.parametrize("place", ["length", "header", "metadata", "data", "short", "long"])
def test_a_damaged_file_is_passed_over(place: str, tmp_path: Path) -> None:
    state = write(tmp_path, 3)
    write(tmp_path, 4)
    file = tmp_path / "ck-4.safetensors"
    data = bytearray(file.read_bytes())
    places = {"length": 1, "header": 9, "data": len(data) - 1}
    if place in places:
        data[places[place]] ^= 0x40
    elif place == "metadata":
        at = data.index(b'\\"drawn\\": 0')
        data[at + 11 : at + 12] = b"1"
    else:
        data = data[:-1] if place == "short" else data + b"x"
    file.write_bytes(data)
    other = state_of(tmp_path, 8.0)
    with pytest.warns(UserWarning, match="ck-4"):
        assert back(tmp_path, other) == 3
    assert held(other) == held(state)
    (tmp_path / "ck-3.safetensors").unlink()
    with pytest.warns(UserWarning), pytest.raises(StateError, match="ck-4"):
        newest(str(tmp_path), "ck")


def test_another_safetensors_file_is_no_checkpoint(tmp_path: Path) -> None:
    safetensors.numpy.save_file({"w": np.zeros(3)}, tmp_path / "ck-1.safetensors")
    with pytest.raises(StateError, match="no checkpoint of this format"):
        load(str(tmp_path), "ck-1.safetensors")


def test_a_state_that_does_not_fit_is_left_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, 3)
    found = load(str(tmp_path), "ck-3.safetensors")

    other = State(tmp_path)
    types = (OutputType("f32", (2,)), OutputType("bf16", ()))
    declare_resources(other, [ResourceInfo("q", "fifo_queue", types, {"capacity": 9})])
    for name, dtype in VARIABLES.items():
        other.declare(name, dtype, (2, 4) if name == "flag" else (2, 3))
    with pytest.raises(StateError, match=r"bool\[2, 3\] for the variable 'flag', which is bool"):
        restore(other, NAMES, found, "it")
    assert all(a is None for a in other.variables.values()) and other.resource("q").size() == 0

    state = state_of(tmp_path, 1.0)
    before = held(state)
    with pytest.raises(StateError, match="it also holds 'q'"):
        restore(state, NAMES[:-1], found, "it")
    with pytest.raises(StateError, match="it does not hold 'more'"):
        restore(state, [*NAMES, "more"], found, "it")
    assert held(state) == before


@pytest.mark.parametrize("path", ["../ck", "/tmp/ck", "a/../../ck"])
def test_paths_out_of_the_folder_are_refused(path: str, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(StateError, match=r"folder|path"):
        save(str(inner), path, snapshot(state_of(inner, 1.0), NAMES, 1), 1)
    assert os.listdir(inner) == []


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    os.symlink(tmp_path, inner / "out")
    with pytest.raises(StateError, match="leads out of the folder"):
        save(str(inner), "out/ck", snapshot(state_of(inner, 1.0), NAMES, 1), 1)


def test_a_write_that_fails_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ck-1.safetensors").mkdir()
    with pytest.raises(StateError, match="cannot save 'ck'"):
        write(tmp_path, 1)
