"""Branches, loops and variables in native code: what the interpreter says, and where values lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc
import tfc.ops
import tfc.tile.ops
from tests.backends.llvm.lowered import HEAD, module_text
from tests.passes.stateful import generate
from tfc.interpret import interpret, state_of
from tfc.ir.errors import TfcError
from tfc.ir.memory import Held
from tfc.passes.graph.memory_planning import plan_memory
from tfc.text import parse_module

Array = np.ndarray[Any, Any]


def compiled(source: Any, folder: Path, **options: Any) -> tfc.Bundle:
    tfc.compile(source, folder / "model.tfb", **options)
    return tfc.load(folder / "model.tfb", threads=options.get("threads"))


def written(text: str, folder: Path) -> tfc.Bundle:
    (folder / "model.tfc").write_text(text)
    return compiled(folder / "model.tfc", folder)


def inputs(drawn: np.random.Generator) -> dict[str, Any]:
    """Of a function of `lowered`: whole numbers, so that halves are exact."""
    rows = int(drawn.integers(0, 4))
    return {
        "x": drawn.integers(-8, 8, 4).astype(np.float32),
        "y": drawn.integers(-8, 8, 4).astype(np.float32),
        "q": drawn.integers(-8, 8, (rows, 4)).astype(np.float32),
        "k": np.int64(drawn.integers(0, 5)),
    }


def outcome(run: Any) -> dict[str, Array] | str:
    """The outputs, or the variable that was not initialized."""
    try:
        return run()
    except (tfc.StateError, TfcError) as error:
        assert "is not initialized" in str(error)
        return str(error).partition("the variable ")[2].partition("\n")[0]


def check_same(found: Any, wanted: Any, what: str, **tolerance: float) -> None:
    assert isinstance(found, str) == isinstance(wanted, str), (what, found, wanted)
    if isinstance(found, str):
        assert found == wanted, what
        return
    for name, array in wanted.items():
        if array is None:
            assert found[name] is None, (what, name)
        elif tolerance:
            np.testing.assert_allclose(found[name], array, err_msg=f"{what} {name}", **tolerance)
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=f"{what} {name}")


def check_lowered(seed: int, count: int, folder: Path) -> None:
    """Random functions, each called three times, on one state."""
    path, drawn = folder / "random.tfc", np.random.default_rng(seed)
    path.write_text(module_text(seed, count))
    bundle, module = compiled(path, folder, opt_level=1), tfc.load_module(path)
    state = state_of(module)
    for turn in range(3 * count):
        name, feed = f"f{turn % count}", inputs(drawn)
        wanted = outcome(lambda n=name, f=feed: interpret(module, f, n, state=state))
        found = outcome(lambda n=name, f=feed: bundle.functions[n].run(f))
        check_same(found, wanted, f"seed {seed}, {name}, call {turn}")
        check_same(bundle.state.variables, state.variables, f"seed {seed}, after {name}")


@pytest.mark.parametrize("seed", range(3))
def test_random_functions(seed: int, tmp_path: Path) -> None:
    check_lowered(seed, 12, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 33))
def test_many_random_functions(seed: int, tmp_path: Path) -> None:
    check_lowered(seed, 40, tmp_path)


def check_graph(seed: int, level: int, folder: Path) -> None:
    bundle = compiled(generate(seed)[0], folder, opt_level=level)
    module, _, calls = generate(seed)
    state = state_of(module)
    for name, feed in calls:
        wanted = outcome(lambda n=name, f=feed: interpret(module, f, n, state=state))
        found = outcome(lambda n=name, f=feed: bundle.functions[n].run(f))
        check_same(found, wanted, f"seed {seed}, {name}", rtol=1e-4, atol=1e-5)
        left = bundle.state.variables
        check_same(left, state.variables, f"seed {seed}, after {name}", rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("seed", "level"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_random_graphs(seed: int, level: int, tmp_path: Path) -> None:
    check_graph(seed, level, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 1100, 50))
def test_many_random_graphs(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        check_graph(seed, seed % 4, tmp_path)


# ---- what is copied, and what is not


def rooms(body: str) -> list[tuple[int, bool]]:
    """Of each value that a function writes: how many places it may have, and whether one is fixed
    beforehand: an output, or a part of one; sorted.
    """
    module = parse_module(HEAD + body + "}\n")
    found = plan_memory(module, module.main).rooms.values()
    return sorted((len(r.offsets) + (r.target is not None), r.target is not None) for r in found)


LOOP = """  func @main(%n: tensor<i64>, %x: tensor<4xf32>) -> (%y: tensor<4xf32>) {{
    %z = constant {{value = dense<0>}} : tensor<i64>
    %k, %y, %w = while(%z, %x, %x) : tensor<i64>, tensor<4xf32>, tensor<4xf32>
        cond(%i: tensor<i64>, %a: tensor<4xf32>, %b: tensor<4xf32>) {{
      %c = launch(%i, %n) {{kernel = @less}} : tensor<bool>
      yield %c
    }} do(%i: tensor<i64>, %a: tensor<4xf32>, %b: tensor<4xf32>) {{
{body}
    }}
    return %y
  }}
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("yield %i, %b, %a", [(1, False)]),  # a swap moves pointers alone
        (
            "%j = launch(%i) {kernel = @next} : tensor<i64>\n"
            "%m = launch(%a, %b) {kernel = @mean} : tensor<4xf32>\nyield %j, %m, %b",
            [(1, False), (2, False), (2, True)],
        ),
        (  # the last two values are carried: three places by turns
            "%j = launch(%i) {kernel = @next} : tensor<i64>\n"
            "%m = launch(%a, %b) {kernel = @mean} : tensor<4xf32>\nyield %j, %b, %m",
            [(1, False), (2, False), (3, True)],
        ),
        (  # nothing reads the carried value when the next one is written
            "%j = launch(%i) {kernel = @next} : tensor<i64>\n"
            "%m = launch(%a, %x) {kernel = @mean} : tensor<4xf32>\n"
            "%o = launch(%m, %x) {kernel = @mean} : tensor<4xf32>\nyield %j, %o, %b",
            [(1, False), (1, False), (1, True), (2, False)],
        ),
    ],
)
def test_places_of_what_loops_carry(body: str, expected: list[tuple[int, bool]]) -> None:
    assert rooms(LOOP.format(body=body)) == expected


def test_nested_loops_share_their_places() -> None:
    """The inner loop goes on where the outer one is: two places for both, and no copy."""
    body = """  func @main(%p: tensor<bool>, %x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %q, %y = while(%p, %x) : tensor<bool>, tensor<4xf32>
        cond(%q0: tensor<bool>, %a: tensor<4xf32>) {
      yield %q0
    } do(%q0: tensor<bool>, %a: tensor<4xf32>) {
      %r, %i = while(%q0, %a) : tensor<bool>, tensor<4xf32>
          cond(%q1: tensor<bool>, %b: tensor<4xf32>) {
        yield %q1
      } do(%q1: tensor<bool>, %b: tensor<4xf32>) {
        %m = launch(%b, %x) {kernel = @mean} : tensor<4xf32>
        %f = launch(%m, %x) {kernel = @below} : tensor<bool>
        yield %f, %m
      }
      yield %r, %i
    }
    return %y
  }
"""
    assert rooms(body) == [(1, False), (2, True)]


def test_a_read_is_no_copy_unless_the_variable_changes() -> None:
    kept = """  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %v = read(@v) : tensor<4xf32>
    %m = launch(%v, %x) {kernel = @mean} : tensor<4xf32>
    %a = assign(@v, %m) : tensor<4xf32>
    return %a
  }
"""
    assert rooms(kept) == [(1, True)]
    changed = kept.replace("return %a", "return %v")
    assert rooms(changed) == [(1, True), (1, True)]


WRITTEN = """  func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (%z: tensor<4xf32>) {{
    {first}
    %m = launch(%x, %y) {{kernel = @mean}} : tensor<4xf32>
    {between}
    %a = assign(@v, %m) : tensor<4xf32>
    %z = launch({last}) {{kernel = @mean}} : tensor<4xf32>
    return %z
  }}
"""


@pytest.mark.parametrize(
    ("first", "between", "last", "direct"),
    [
        ("", "", "%x, %a", True),
        ("%r = read(@v) : tensor<4xf32>", "", "%x, %a", True),
        ("%r = read(@v) : tensor<4xf32>", "", "%r, %x", True),  # the read is copied
        ("", "%r = read(@v) : tensor<4xf32>", "%x, %r", False),
        ("", "%r = read(@u) : tensor<4xf32>", "%x, %r", False),  # it may fail
        ("", "%r = assign(@u, %x) : tensor<4xf32>", "%x, %r", True),
        ("", "%r = launch(%x, %m) {kernel = @mean} : tensor<4xf32>", "%x, %r", True),
    ],
)
def test_what_is_assigned_is_written_to_the_variable(
    first: str, between: str, last: str, direct: bool
) -> None:
    text = WRITTEN.format(first=first, between=between, last=last)
    module = parse_module(HEAD + text + "}\n")
    targets = [r.target for r in plan_memory(module, module.main).rooms.values()]
    assert (Held("v") in targets) == direct


def test_slices_are_read_and_written_in_place(tmp_path: Path) -> None:
    body = """  func @main(%q: tensor<Sx4xf32>, %x: tensor<4xf32>) -> (%y: tensor<Sx4xf32>) {
    %h, %y = scan(%x, %q) {carries = 1, length = (S)} : tensor<4xf32>, tensor<Sx4xf32>
        do(%a: tensor<4xf32>, %b: tensor<4xf32>) {
      %m = launch(%a, %b) {kernel = @mean} : tensor<4xf32>
      %o = launch(%b, %x) {kernel = @mean} : tensor<4xf32>
      yield %m, %o
    }
    return %y
  }
"""
    assert rooms(body) == [(1, True), (1, True), (2, False)]
    text = emitted(body, tmp_path)
    assert "call void @llvm.memcpy.p0.p0.i64(" not in text


def test_what_is_carried_and_given_out_is_not_copied(tmp_path: Path) -> None:
    body = """  func @main(%q: tensor<Sx4xf32>, %x: tensor<4xf32>) -> (%y: tensor<Sx4xf32>) {
    %h, %y = scan(%x, %q) {carries = 1, length = (S)} : tensor<4xf32>, tensor<Sx4xf32>
        do(%a: tensor<4xf32>, %b: tensor<4xf32>) {
      %m = launch(%a, %b) {kernel = @mean} : tensor<4xf32>
      yield %m, %m
    }
    return %y
  }
"""
    assert rooms(body) == [(1, True), (1, True)]
    assert "call void @llvm.memcpy.p0.p0.i64(" not in emitted(body, tmp_path)


def emitted(body: str, folder: Path) -> str:
    """The LLVM text of a module."""
    (folder / "model.tfc").write_text(HEAD + body + "}\n")
    tfc.compile(folder / "model.tfc", folder / "model.ll", emit="llvm", target="x86-64-v3")
    return (folder / "model.ll").read_text()


# ---- errors


def test_a_variable_that_was_not_assigned(tmp_path: Path) -> None:
    text = """module {
  variable @weight : tensor<4xf32>
  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %w = read(@weight) : tensor<4xf32> loc("model:/w")
    %y = add(%w, %x) : tensor<4xf32>
    return %y
  }
}
"""
    bundle = written(text, tmp_path)
    with pytest.raises(tfc.StateError) as caught:
        bundle.run({"x": np.zeros(4, np.float32)})
    expected = "model:/w: the variable 'weight' is not initialized: assign it first"
    assert str(caught.value) == expected
    bundle.state["weight"] = [1, 2, 3, 4]
    assert bundle.run({"x": np.zeros(4, np.float32)})["y"].tolist() == [1, 2, 3, 4]


def test_an_index_out_of_range_in_a_loop(tmp_path: Path) -> None:
    """The call fails, and what was assigned before stays assigned."""
    text = """module {
  variable @last : tensor<i64>
  func @main(%x: tensor<3xf32>, %n: tensor<i64>) -> (%y: tensor<f32>) {
    %zero = constant {value = dense<0>} : tensor<i64>
    %one = constant {value = dense<1>} : tensor<i64>
    %s = constant {value = dense<0.0>} : tensor<f32>
    %k, %y = while(%zero, %s) : tensor<i64>, tensor<f32> cond(%i: tensor<i64>, %t: tensor<f32>) {
      %c = less(%i, %n) : tensor<bool>
      yield %c
    } do(%i: tensor<i64>, %t: tensor<f32>) {
      %set = assign(@last, %i) : tensor<i64>
      %e = gather(%x, %i) {axis = 0} after(%set) : tensor<f32> loc("model:/pick")
      %u = add(%t, %e) : tensor<f32>
      %j = add(%i, %one) : tensor<i64>
      yield %j, %u
    }
    return %y
  }
}
"""
    bundle = written(text, tmp_path)
    x = np.array([1, 2, 4], np.float32)
    assert bundle.run({"x": x, "n": 3})["y"] == 7
    with pytest.raises(tfc.RunError, match=r"model:/pick.*index 3 .* out of range"):
        bundle.run({"x": x, "n": 5})
    assert bundle.state["last"] == 3
    assert bundle.run({"x": x, "n": 2})["y"] == 3


def test_a_length_below_zero(tmp_path: Path) -> None:
    text = """func @main(%x: tensor<Sx4xf32>, %h: tensor<4xf32>) -> (%y: tensor<4xf32>) {
  %p = slice(%x) {starts = [1, 0], limits = [(S), 4], steps = [1, 1]} : tensor<(S-1)x4xf32>
  %y = scan(%h, %p) {carries = 1, length = (S-1)} : tensor<4xf32>
      do(%a: tensor<4xf32>, %b: tensor<4xf32>) {
    %c = add(%a, %b) : tensor<4xf32>
    yield %c
  }
  return %y
}
"""
    bundle = written(text, tmp_path)
    feed = {"x": np.ones((3, 4), np.float32), "h": np.zeros(4, np.float32)}
    assert bundle.run(feed)["y"].tolist() == [2, 2, 2, 2]
    with pytest.raises(tfc.LoaderError):
        bundle.run(feed | {"x": np.ones((0, 4), np.float32)})


def test_the_number_of_threads_changes_no_bit(tmp_path: Path) -> None:
    (tmp_path / "model.tfc").write_text(module_text(7, 6))
    tfc.compile(tmp_path / "model.tfc", tmp_path / "model.tfb")
    one, four = (tfc.load(tmp_path / "model.tfb", threads=n) for n in (1, 4))
    drawn = np.random.default_rng(7)
    for turn in range(12):
        name, feed = f"f{turn % 6}", inputs(drawn)
        found = [outcome(lambda b=b, n=name, f=feed: b.functions[n].run(f)) for b in (one, four)]
        check_same(found[0], found[1], name)


def test_profiles_count_launches_in_regions(tmp_path: Path) -> None:
    bundle = compiled(parse_module(HEAD + LOOP.format(body=COUNTING) + "}\n"), tmp_path)
    _, ticks = bundle.main.profile({"n": 5, "x": np.ones(4, np.float32)})
    assert len(ticks) == 3 and (ticks > 0).all()
    launches = bundle.manifest["functions_detail"]["main"]["launches"]
    assert [launch["kernel"] for launch in launches] == ["less", "next", "mean"]


COUNTING = """      %j = launch(%i) {kernel = @next} : tensor<i64>
      %m = launch(%a, %b) {kernel = @mean} : tensor<4xf32>
      yield %j, %m, %b
"""
