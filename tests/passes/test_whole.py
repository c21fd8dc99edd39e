"""Small models through whole pipelines: passes keep the numbers, levels resume from text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.passes.whole_models import TEXTS, inputs, whole_model
from tfc import driver
from tfc.interpret import interpret
from tfc.ir.verifier import verify
from tfc.passes.base import PassContext
from tfc.passes.manager import PassManager, parse_pipeline
from tfc.passes.validate import Validate, difference
from tfc.runtime import load
from tfc.targets import resolve
from tfc.text import parse_module, print_module

MODELS = list(TEXTS)
SIZES = ((1, 1), (3, 5))
RUNS = [
    ("O3", "x86-64-v4"),
    *(
        pytest.param(level, target, marks=pytest.mark.slow)
        for level in ("O0", "O1", "O2", "O3")
        for target in ("x86-64-v2", "x86-64-v3", "sm_90")
    ),
]


@pytest.mark.parametrize(("level", "target"), RUNS)
@pytest.mark.parametrize("name", MODELS)
def test_every_pass_keeps_the_numbers(name: str, level: str, target: str) -> None:
    """Also says truly whether it changed the text, and leaves what is printed and read again."""
    module = whole_model(name)
    text = print_module(module)
    context = PassContext(target=resolve(target))
    for transform in [p for e in (level, "kernels") for p in parse_pipeline(e)]:
        (step,) = PassManager([transform], instruments=[Validate()]).run(module, context)
        after = print_module(module)
        assert step.changed == (after != text), transform
        text = after
    verify(module, level="tile")
    assert module.kernels
    again = parse_module(text, weights=module.weights)
    assert print_module(again) == text
    for size in SIZES:
        found, expected = (interpret(m, inputs(name, *size)) for m in (again, whole_model(name)))
        for output, array in expected.items():
            assert not difference(array, found[output]), output


def test_passes_without_optimisation_keep_the_numbers() -> None:
    test_every_pass_keeps_the_numbers("moves", "O0", "x86-64-v2")


def emitted(source: object, folder: Path, name: str, emit: str, level: int = 3) -> Path:
    path = folder / f"{name}.tfc"
    driver.compile(source, path, opt_level=level, emit=emit)  # type: ignore[arg-type]
    return path


@pytest.mark.parametrize(("name", "level"), [*((name, 3) for name in MODELS), ("moves", 0)])
def test_each_level_resumes_from_its_text(name: str, level: int, tmp_path: Path) -> None:
    """The text of a level is the same whether it is reached in one go or from a text before it."""
    model = whole_model(name)
    direct = emitted(model, tmp_path, "direct", "tile", level).read_text()
    graph = emitted(model, tmp_path, "graph", "graph", level)
    tile = emitted(graph, tmp_path, "tile", "tile", level)
    again = emitted(tile, tmp_path, "again", "tile", level)
    for path in (tile, again):
        assert path.read_text().replace(f'"{path.stem}.saf', '"direct.saf') == direct
    code = emitted(model, tmp_path, "code", "llvm", level).read_text()
    assert emitted(graph, tmp_path, "from_graph", "llvm", level).read_text() == code


@pytest.mark.parametrize("name", ["cnn", "transformer"])
def test_a_bundle_from_each_level_gives_the_same(name: str, tmp_path: Path) -> None:
    model = whole_model(name)
    graph = emitted(model, tmp_path, "graph", "graph")
    tile = emitted(graph, tmp_path, "tile", "tile")
    bundles = []
    for number, source in enumerate((model, graph, tile)):
        driver.compile(source, tmp_path / f"{number}.tfb")
        bundles.append(load(tmp_path / f"{number}.tfb"))
    for size in SIZES:
        given = inputs(name, *size)
        expected = interpret(model, given)
        direct, *others = (bundle.run(given) for bundle in bundles)
        for output, array in expected.items():
            assert not difference(array, direct[output]), output
            for other in others:
                np.testing.assert_array_equal(other[output], direct[output])


def test_a_changed_schedule_is_taken(tmp_path: Path) -> None:
    """What a user edits in the text of a level is what is compiled."""
    module = whole_model("mlp")
    passes = [p for e in ("O3", "schedule") for p in parse_pipeline(e)]
    PassManager(passes).run(module, PassContext(target=resolve("host")))
    text = print_module(module)
    chosen = 'kind = "contraction", schedule = "rows='
    changed = text.replace(chosen, chosen + "1")
    assert changed != text
    edited = parse_module(changed, weights=module.weights)
    tile = emitted(edited, tmp_path, "tile", "tile").read_text()
    assert tile != emitted(module, tmp_path, "other", "tile").read_text()
    PassManager(parse_pipeline("kernels")).run(edited, PassContext(target=resolve("host")))
    given = inputs("mlp", 3, 5)
    for output, array in interpret(whole_model("mlp"), given).items():
        assert not difference(array, interpret(edited, given)[output])
