"""Sessions: any value is fed or fetched, each part is made once, the graph grows, runs in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc
from tfc.ir.run_errors import (
    AlreadyFedError,
    DeadValueError,
    InnerFrameError,
    MissingFeedError,
    NotDeclaredError,
    UninitializedError,
    UnknownNameError,
)
from tfc.runtime.state import State

TEXT = """\
module {
  variable @v : tensor<f32>
  func @main(%a: tensor<f32>, %b: tensor<f32>, %p: tensor<bool>) {
    %sum = add(%a, %b)
    %low, %high = switch(%sum, %p)
    %n = neg(%low)
    %e = mul(%high, %high)
    %m, %k = merge(%n, %e)
    %put = assign(@v, %a)
    %bump = assign_add(@v, %b)
    %v = read(@v) : tensor<f32>
    ^both: no_op() after(%put, %bump)
    return
  }
}
"""
EXECUTORS = ("interpreter", "compiled")


@pytest.fixture(params=EXECUTORS)
def session(request: pytest.FixtureRequest) -> tfc.Session:
    return tfc.Session(TEXT, executor=request.param)


def test_shapes_of_fetches(session: tfc.Session) -> None:
    feeds = {"a": 1.0, "b": 2.0}
    assert session.run("sum", feeds) == 3
    assert session.run("%sum", {"%a": 1.0, "b:0": 2.0}) == 3
    assert session.run(["sum", "a"], feeds) == [3, 1]
    assert session.run({"s": "sum"}, feeds) == {"s": 3}
    assert session.run(("m", "m:1"), {"sum": 3.0, "p": True}) == [9, 1]
    assert session.run("k", {"sum": 3.0, "p": False}) == 0
    assert session.run("e", {"high": 4.0}) == 16


def test_a_part_is_made_once(session: tfc.Session) -> None:
    made = [session.part(("a", "b"), ("sum",)), session.part(("b", "a"), ("sum",))]
    assert made[0] is made[1]
    session.extend("%twice = add(%sum, %sum)")
    assert session.part(("a", "b"), ("sum",)) is made[0]
    assert session.run("twice", {"sum": 4.0}) == 8


def test_state_lasts(session: tfc.Session) -> None:
    with pytest.raises(UninitializedError, match="v"):
        session.run("v")
    session.run((), {"a": 5.0, "b": 1.0}, "both")
    assert session.run("v") == 6
    assert session.run("bump", {"b": 2.0}) == 8
    session.reset()
    with pytest.raises(UninitializedError):
        session.run("v")


def test_sessions_share_a_state() -> None:
    state = State()
    first, second = (tfc.Session(TEXT, state=state, executor=e) for e in EXECUTORS)
    first.run((), {"a": 2.5}, ["put"])
    assert second.run("v") == 2.5
    second.run("bump", {"b": 1.0})
    assert first.run("v") == 3.5


def test_mistakes(session: tfc.Session) -> None:
    with pytest.raises(MissingFeedError, match="%b must be fed"):
        session.run("sum", {"a": 1.0})
    with pytest.raises(UnknownNameError, match="sun"):
        session.run("sun")
    with pytest.raises(UnknownNameError, match="sun"):
        session.run("sum", {"sun": 1.0})
    with pytest.raises(AlreadyFedError, match="%a is fed twice"):
        session.run("a", {"a": 1.0, "a:0": 2.0})
    with pytest.raises(DeadValueError, match="%e is dead"):
        session.run("e", {"sum": 1.0, "p": False})
    with pytest.raises(tfc.TfcError, match="no executor"):
        tfc.Session(TEXT, executor="gpu")


def test_extend(session: tfc.Session) -> None:
    session.extend(
        "variable @w : tensor<f32>\n%set = assign(@w, %sum) after(^both)\n^end: no_op() after(%set)"
    )
    session.run((), {"a": 1.0, "b": 2.0}, "end")
    session.extend("func @more(%c: tensor<f32>) {\n%w = read(@w) : tensor<f32>\n"
                   "%q = mul(%w, %c)\nreturn }")  # fmt: skip
    assert session.run("q", {"c": 3.0}) == 9
    with pytest.raises(tfc.TfcError, match="defined twice"):
        session.extend("%sum = neg(%a)")
    with pytest.raises(tfc.TfcError, match="%nothing is not defined"):
        session.extend("%z = neg(%nothing)")
    assert session.run("sum", {"a": 1.0, "b": 2.0}) == 3


def test_what_ran_in_a_part_does_not_run_again(session: tfc.Session) -> None:
    session.run((), {"a": 0.0}, "put")
    session.extend("%c = mul(%bump, %a)\n%d = neg(%a) after(%bump)")
    for turn in (1, 2):
        handle = session.partial_run_setup(["bump", "c", "d"], ["a", "b"])
        assert session.partial_run(handle, "bump", {"b": 1.0}) == turn
        assert session.partial_run(handle, ["c", "d"], {"a": 3.0}) == [3 * turn, -3]
        assert session.run("v") == turn
        with pytest.raises(AlreadyFedError):
            session.partial_run(handle, "c", {"a": 1.0})
        with pytest.raises(NotDeclaredError):
            session.partial_run(handle, "sum")


def test_a_dead_value_stays_dead_in_later_parts(session: tfc.Session) -> None:
    session.extend("%f = add(%e, %b)\n%g = add(%m, %b)\n%h = identity(%b) after(%e)")
    handle = session.partial_run_setup(["m", "f", "g", "h"], ["sum", "p", "b"])
    assert session.partial_run(handle, "m", {"sum": 3.0, "p": False}) == -3
    assert session.partial_run(handle, "g", {"b": 1.0}) == -2
    for name in ("f", "h"):
        with pytest.raises(DeadValueError):
            session.partial_run(handle, name)


def test_missing_feeds_of_a_part_leave_it_as_it_was(session: tfc.Session) -> None:
    handle = session.partial_run_setup(["sum"], ["a", "b"])
    with pytest.raises(MissingFeedError, match="%b"):
        session.partial_run(handle, "sum", {"a": 1.0})
    assert session.partial_run(handle, "sum", {"a": 1.0, "b": 1.0}) == 2


def test_what_lives_in_regions_is_not_fetched() -> None:
    session = tfc.Session(
        "func @main(%p: tensor<bool>, %x: tensor<f32>) -> (%y: tensor<f32>) {\n"
        "%y = if(%p) : tensor<f32> then {\n%e = exp(%x)\nyield %e\n} else {\nyield %x\n}\n"
        "return %y }",
        executor="interpreter",
    )
    with pytest.raises(InnerFrameError, match="%e: it lives in a region of `if`"):
        session.run("e", {"x": 1.0, "p": True})
    assert session.run("y", {"x": 1.0, "p": False}) == 1


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "graph.tfc"
    path.write_text(TEXT)
    session = tfc.Session(path, executor="interpreter")
    found = session.run("sum", {"a": np.float32(1), "b": np.float32(2)})
    assert found == 3 and found.dtype == np.float32


LOOPS = """\
variable @v : tensor<f32>
func @main(%x: tensor<f32>) {
  %one = constant {value = dense<1.0>} : tensor<f32>
  %three = constant {value = dense<3.0>} : tensor<f32>
  %a = enter(%x) {frame = "f"}
  %m, %i = merge(%a, %n) : tensor<f32>, tensor<i32>
  %l = less(%m, %three)
  %c = loop_cond(%l)
  %d, %b = switch(%m, %c)
  %s = add(%b, %one)
  %u = assign_add(@v, %s)
  %n = next_iteration(%s)
  %y = exit(%d)
  %e, %g = switch(%i, %c)
  %k = exit(%e)
  %t = add(%y, %y)
  %a2 = enter(%t) {frame = "f"}
  %k2 = enter(%y) {frame = "f", constant = true}
  %m2, %i2 = merge(%a2, %n2) : tensor<f32>, tensor<i32>
  %l2 = greater(%m2, %k2)
  %c2 = loop_cond(%l2)
  %d2, %b2 = switch(%m2, %c2)
  %s2 = sub(%b2, %one)
  %n2 = next_iteration(%s2)
  %z = exit(%d2)
  return
}
"""


@pytest.fixture(params=EXECUTORS)
def loops(request: pytest.FixtureRequest) -> tfc.Session:
    return tfc.Session(LOOPS, executor=request.param)


def test_two_loops_of_one_name_are_two_frames(loops: tfc.Session) -> None:
    assert loops.run(["y", "z", "k"], {"x": 0.5}) == [3.5, 3, 1]
    assert loops.run("z", {"y": 1.0}) == 1


def test_a_constant_that_is_fed_enters_the_frames_that_use_it(loops: tfc.Session) -> None:
    assert loops.run(["y", "z"], {"x": 0.5, "one": 0.25}) == [3, 3]


def test_a_loop_runs_once_in_parts(loops: tfc.Session) -> None:
    handle = loops.partial_run_setup(["y", "k", "z"], ["x"])
    assert loops.partial_run(handle, "y", {"x": 0.5}) == 3.5
    assert loops.partial_run(handle, ["k", "z"]) == [1, 3]


OUTPUTS = """
module {
  func @main(%x: tensor<2xf32>, %n: tensor<i32>) -> (%y: tensor<2xf32>, %z: tensor<2xf32>) {
    %a = neg(%x)
    %c = neg(%n)
    ^log: no_op() after(%a)
    return %a, %a
  }
}
"""


def test_names_of_outputs_are_names() -> None:
    """What a function gives has the name of its result too, in feeds as well."""
    session = tfc.Session(OUTPUTS, executor="interpreter")
    for found in session.run(["y", "z", "a", "%y", "a:0"], {"x": [1, 2]}):
        np.testing.assert_array_equal(found, [-1, -2])
    np.testing.assert_array_equal(session.run("z", {"y": [3, 4]}), [3, 4])
    handle = session.partial_run_setup(["z"], ["%x"])
    np.testing.assert_array_equal(session.partial_run(handle, "y", {"x:0": [5, 6]}), [-5, -6])


@pytest.mark.parametrize(
    ("fetches", "feeds", "message"),
    [
        ("y", {"x": [[1], [1, 2]]}, "is fed no array"),
        ("c", {"n": 2**31}, "is fed int64"),
        ("y", [1], "feeds are a dict"),
        ("y", {3: 1}, "cannot feed 3"),
        (3, {}, "cannot fetch 3"),
        (["y", None], {}, "cannot fetch None"),
        ("log", {}, "the label of an op"),
    ],
)
def test_what_is_no_feed_or_fetch(fetches: Any, feeds: Any, message: str) -> None:
    session = tfc.Session(OUTPUTS, executor="interpreter")
    with pytest.raises(tfc.TfcError, match=message):
        session.run(fetches, feeds)
