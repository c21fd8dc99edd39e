"""The manager: levels, options as text, the order of instruments, what counts as a change."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pytest

from tfc.ir.core import Module
from tfc.ir.errors import TfcError
from tfc.passes.base import PASSES, Pass, PassContext, all_passes, make_pass, register
from tfc.passes.manager import Instrument, PassManager, Step, parse_pipeline, pipeline_text
from tfc.passes.pipelines import PIPELINES
from tfc.passes.validate import difference
from tfc.text import parse_module

TEXT = """module {
  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %a = exp(%x) : tensor<4xf32>
    %b = exp(%x) : tensor<4xf32>
    %y = add(%a, %b) : tensor<4xf32>
    return %y
  }
}"""
TILE = """module {
  kernel @copy(%a: buffer<64xf32>, %b: buffer<64xf32, out>) grid(p0 = 1) {
    %t = load(%a) {at = (c)} : tile<1x64xf32>
    store(%b, %t) {at = (c)}
  }
}"""


@register("test-options")
@dataclass(frozen=True)
class Options(Pass):
    """A pass of every kind of option."""

    count: int = 3
    ratio: float = 0.5
    on: bool = False
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] = (1, 2)
    file: str = ""
    limit: int | None = None


def teardown_module() -> None:
    del PASSES["test-options"]  # the registry is shared with other tests


@pytest.mark.parametrize(
    "text",
    [
        "test-options",
        "test-options{count=-4}",
        "test-options{ratio=0.25,on=true}",
        "test-options{names=gelu+softmax,sizes=3+4+5}",
        'test-options{file="a b,c=d.json"}',
        "test-options{limit=7}",
    ],
)
def test_options_as_text(text: str) -> None:
    (found,) = parse_pipeline(text)
    assert str(found) == text
    assert pipeline_text(parse_pipeline(f" {text} , cse ")) == f"{text},cse"


def test_options_read_by_their_types() -> None:
    found = make_pass("test-options", {"sizes": "7", "on": "true", "limit": "none"})
    assert found == Options(sizes=(7,), on=True)


def test_a_flag_may_stand_alone() -> None:
    assert parse_pipeline("canonicalize{fold-scales}") == parse_pipeline(
        "canonicalize{fold-scales=true}"
    )


def test_an_empty_pipeline() -> None:
    assert parse_pipeline("") == []


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_name_passes_that_exist(name: str) -> None:
    assert parse_pipeline(name)


def test_every_pass_is_named_as_its_file() -> None:
    for name, cls in all_passes().items():
        if cls.__module__.startswith("tfc."):
            assert cls.__module__.rpartition(".")[2] == name.replace("-", "_")
            assert cls.summary()
            assert all(f.name.islower() for f in fields(cls))


def test_steps_say_what_happened() -> None:
    steps = PassManager(parse_pipeline("dce,cse")).run(parse_module(TEXT))
    assert [(s.number, s.name, s.changed, s.ops_before, s.ops_after) for s in steps] == [
        (1, "dce", False, 4, 4),
        (2, "cse", True, 4, 3),
    ]
    assert [s.fired for s in steps] == [{}, {"cse": 1}]


def test_instruments_are_called_in_order() -> None:
    calls: list[str] = []

    class Log(Instrument):
        def start(self, module: Module) -> None:
            calls.append("start")

        def before(self, step: Step, module: Module) -> None:
            calls.append(f"before {step.name}")

        def after(self, step: Step, module: Module) -> None:
            calls.append(f"after {step.name}")

        def end(self, module: Module) -> None:
            calls.append("end")

    PassManager(parse_pipeline("cse,dce"), instruments=[Log()]).run(parse_module(TEXT))
    assert calls == ["start", "before cse", "after cse", "before dce", "after dce", "end"]


def test_rewrites_are_counted_over_the_whole_pipeline() -> None:
    passes = parse_pipeline("cse,canonicalize,decompose")
    context = PassContext()
    PassManager(passes).run(parse_module(TEXT), context)
    assert context.count == 1
    stopped = PassContext(stop_after=1)
    steps = PassManager(passes).run(parse_module(TEXT), stopped)
    assert [s.name for s in steps] == ["cse"]


def test_a_pass_refuses_another_level() -> None:
    with pytest.raises(TfcError, match="the pass raise-idioms takes IR of the graph level"):
        PassManager(parse_pipeline("raise-idioms")).run(parse_module(TILE))


def test_a_module_that_is_not_valid_is_refused_at_once() -> None:
    module = parse_module(TEXT)
    module.main.output_names = ["y", "y"]
    with pytest.raises(TfcError, match="two results"):
        PassManager([]).run(module)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (1.0, 1.0, True),
        (1.0, 1.00001, True),
        (1.0, 1.1, False),
        (np.nan, np.nan, True),
        (np.nan, 1.0, False),
        (np.inf, np.inf, True),
        (np.inf, -np.inf, False),
        (1e30, np.inf, False),
        (0.0, -0.0, True),
    ],
)
def test_what_validate_takes_as_the_same(before: float, after: float, same: bool) -> None:
    a, b = (np.array([x, 1.0], np.float32) for x in (before, after))
    assert (difference(a, b) == "") == same


def test_integers_must_be_equal() -> None:
    a = np.array([1, 2], np.int32)
    assert difference(a, a + 1) == "[0] was 1, it is 2 (2 of 2 differ)"
    assert difference(a, a.astype(np.int64)).startswith("it was int32")
    assert difference(a[:0], a[:0]) == ""
