"""`tfc opt`: what its options print, write and refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tfc.cli import main
from tfc.ir.weights import Weights, open_safetensors
from tfc.report.files import write_safetensors

MODEL = """module {
  func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
    %a = exp(%x) : tensor<4xf32>
    %b = exp(%x) : tensor<4xf32>
    %y = add(%a, %b) : tensor<4xf32>
    return %y
  }
}
"""
BROKEN_PASS = '''
from dataclasses import dataclass

from tfc.ir.core import Module
from tfc.passes.base import PASSES, Pass, PassContext, register

if "break" not in PASSES:

    @register("break")
    @dataclass(frozen=True)
    class Break(Pass):
        """Breaks off, or leaves what is not valid, or moves the numbers."""

        how: str = "assert"

        def run(self, module: Module, context: PassContext) -> bool:
            last = module.main.body.terminator
            assert self.how != "assert", "told to break"
            if self.how == "invalid":
                last.previous.detach()
            if self.how == "numbers":
                last.set_operand(0, module.main.body.args[0])
            return True
'''


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.tfc"
    path.write_text(MODEL)
    (tmp_path / "broken.py").write_text(BROKEN_PASS)
    return path


def tfc(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    raised = result.exception
    assert raised is None or isinstance(raised, SystemExit), raised
    assert result.exit_code == code, result.output
    return result


def test_output_to_a_file(model: Path) -> None:
    result = tfc("opt", model, "-p", "cse", "-o", "out.tfc")
    assert result.output == ""
    assert "add(%a, %a)" in Path("out.tfc").read_text()
    assert tfc("opt", "out.tfc").stdout == Path("out.tfc").read_text()


def test_standard_input(model: Path) -> None:
    result = CliRunner().invoke(main, ["opt", "-", "-p", "cse"], input=MODEL)
    assert "add(%a, %a)" in result.stdout


def test_print_before_and_after(model: Path) -> None:
    result = tfc("opt", model, "-p", "cse,dce", "--print-ir-before", "--print-ir-after=dce")
    assert result.stderr.count("// IR before 001 cse\n") == 1
    assert result.stderr.count("// IR before 002 dce\n") == 1
    assert result.stderr.count("// IR after") == 1
    assert "// IR after 002 dce\n" in result.stderr


def test_print_of_a_pass_that_does_not_exist(model: Path) -> None:
    assert "no pass is named 'cso'" in tfc("opt", model, "--print-ir-after=cso", code=2).stderr


def test_print_changes(model: Path) -> None:
    result = tfc("opt", model, "-p", "dce,cse,dce", "--print-ir-after-change")
    assert "--- before 002 cse" in result.stderr
    assert "-    %b = exp(%x)" in result.stderr
    assert "001" not in result.stderr
    assert "003" not in result.stderr


def test_dumps_are_one_a_pass(model: Path) -> None:
    tfc("opt", model, "-p", "cse,dce", "--dump-dir", "dump")
    names = sorted(p.name for p in Path("dump").iterdir())
    assert names == ["000-input.tfc", "001-cse.tfc", "002-dce.tfc"]
    assert "add(%a, %a)" in Path("dump/001-cse.tfc").read_text()


def test_timing_and_statistics(model: Path) -> None:
    result = tfc("opt", model, "-p", "cse", "--timing", "--statistics")
    assert " in all" in result.stderr
    lines = [line.split() for line in result.stderr.splitlines()]
    assert ["1", "cse", "4", "3"] in lines
    assert ["cse", "1"] in lines


def test_list_passes() -> None:
    output = tfc("opt", "--list-passes").stdout
    assert "constant-folding\n    Replaces ops whose operands are constants" in output
    assert "max-bytes: int = 1048576" in output
    assert "Pipelines" in output


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("cso", "did you mean cse?"),
        ("cse{deep=true}", "cse has no option 'deep'"),
        ("constant-folding{max-byte=3}", "did you mean max-bytes?"),
        ("constant-folding{max-bytes=many}", "expected an int"),
        ("canonicalize{fold-scales=1}", "expected true or false"),
        ("cse,,dce", "expected a pass"),
        ("cse,", "expected a pass"),
        ("cse{", "expected a pass"),
        ("constant-folding{max-bytes}", "expected an int"),
        ("clean{x=1}", "takes no options"),
    ],
)
def test_mistakes_in_a_pipeline(model: Path, pipeline: str, message: str) -> None:
    assert message in tfc("opt", model, "-p", pipeline, code=2).stderr


def test_mistakes_in_the_text_point_there(model: Path) -> None:
    model.write_text(MODEL.replace("exp(%x)", "exq(%x)", 1))
    error = tfc("opt", model, code=2).stderr
    assert f"error: {model}:3:10: no op is named 'exq'" in error
    assert "^" in error


def test_a_missing_file(model: Path) -> None:
    assert "No such file" in tfc("opt", "none.tfc", code=2).stderr


def test_stop_after_rewrite(model: Path) -> None:
    result = tfc("opt", model, "-p", "cse,canonicalize", "--stop-after-rewrite", 0)
    assert result.stdout == MODEL
    assert "stopped after rewrite 0" in result.stderr


# ---- passes that fail


def test_a_reproducer_runs_again(model: Path) -> None:
    load = ("--load", "broken.py")
    result = tfc(*load, "opt", model, "-p", "cse,break,dce", code=70)
    assert "the pass break failed: AssertionError: told to break" in result.stderr
    reproducer = Path("model.reproducer.tfc")
    first, _, rest = reproducer.read_text().partition("\n")
    assert first == "// RUN: tfc opt %s --pass-pipeline break"
    assert "add(%a, %a)" in rest  # as cse left it
    assert f"tfc opt --run-reproducer {reproducer}" in result.stderr
    again = tfc(*load, "opt", "--run-reproducer", reproducer, code=70)
    assert "told to break" in again.stderr


def test_a_module_that_is_not_valid_is_noticed(model: Path) -> None:
    load = ("--load", "broken.py")
    result = tfc(*load, "opt", model, "-p", "break{how=invalid}", code=70)
    assert "it left a module that is not valid" in result.stderr
    assert "--pass-pipeline 'break{how=invalid}'" in Path("model.reproducer.tfc").read_text()


def test_validate_names_the_pass(model: Path) -> None:
    load = ("--load", "broken.py")
    result = tfc(*load, "opt", model, "-p", "cse,break{how=numbers},dce", "--validate", code=1)
    assert "the pass break{how=numbers}, number 2, moved the numbers of @main" in result.stderr
    assert tfc("opt", model, "-p", "cse,dce", "--validate").exit_code == 0


def test_what_is_loaded_must_load(model: Path) -> None:
    Path("bad.py").write_text("import nothing_of_this_name")
    assert "it does not load: ModuleNotFoundError" in tfc("--load", "bad.py", "ops", code=2).stderr


# ---- weights

WEIGHTS_MODEL = """module weights("model.safetensors") {
  func @main(%x: tensor<2048xi32>) -> (%y: tensor<2048xi32>, %z: tensor<2048xi32>) {
    %w = constant {value = @w} : tensor<2048xi32>
    %one = constant {value = dense<1>} : tensor<i32>
    %v = add(%w, %one) : tensor<2048xi32>
    %y = add(%x, %v) : tensor<2048xi32>
    %z = add(%x, %w) : tensor<2048xi32>
    return %y, %z
  }
}
"""


@pytest.fixture
def weighted(model: Path) -> Path:
    weights = Weights()
    weights.add(np.arange(2048, dtype=np.int32), "w")
    write_safetensors(model.parent / "model.safetensors", weights, ["w"])
    model.write_text(WEIGHTS_MODEL)
    return model


def test_weights_stay_where_they_are(weighted: Path) -> None:
    tfc("opt", weighted, "-p", "cse", "-o", "out.tfc")
    assert 'weights("model.safetensors")' in Path("out.tfc").read_text()
    assert not Path("out.safetensors").exists()


def test_new_weights_are_written(weighted: Path) -> None:
    tfc("opt", weighted, "-p", "constant-folding,dce", "-o", "out.tfc")
    assert 'weights("out.safetensors")' in Path("out.tfc").read_text()
    found = open_safetensors(Path("out.safetensors"), "")
    assert "w" in found
    (name,) = set(found) - {"w"}
    assert np.array_equal(found.array(name), np.arange(1, 2049))
    tfc("opt", "out.tfc", "-p", "cse", "--validate")


def test_an_output_elsewhere_takes_its_weights_along(weighted: Path) -> None:
    Path("sub").mkdir()
    tfc("opt", weighted, "-o", "sub/out.tfc")
    assert 'weights("out.safetensors")' in Path("sub/out.tfc").read_text()
    tfc("opt", "sub/out.tfc")


def test_another_file_of_that_name_is_not_taken(weighted: Path) -> None:
    Path("sub").mkdir()
    Path("sub/model.safetensors").write_bytes(b"not these")
    tfc("opt", weighted, "-o", "sub/out.tfc")
    assert 'weights("out.safetensors")' in Path("sub/out.tfc").read_text()


def test_dumps_hold_no_copy_of_the_weights_and_run_on(weighted: Path) -> None:
    tfc("opt", weighted, "-p", "constant-folding,dce", "--dump-dir", "dump")
    assert set(open_safetensors(Path("dump/derived.safetensors"), "")) != {"w"}
    assert "w" not in set(open_safetensors(Path("dump/derived.safetensors"), ""))
    files = ("--weights", "model.safetensors", "--weights", "dump/derived.safetensors")
    last = Path("dump/002-dce.tfc")
    assert last.read_text().startswith(f"// tfc opt %s --weights {weighted.parent}/model")
    assert "add" in tfc("opt", last, *files, "-p", "cse", "--validate").stdout


def test_a_reproducer_names_the_weights(weighted: Path) -> None:
    load = ("--load", "broken.py")
    tfc(*load, "opt", weighted, "-p", "constant-folding,break", "--reproducer", "sub.tfc", code=70)
    text = Path("sub.tfc").read_text()
    # Passes made weights that no file has, so it starts from the beginning.
    assert "--pass-pipeline constant-folding,break" in text
    assert f"--weights {weighted.parent / 'model.safetensors'}" in text
    assert "told to break" in tfc(*load, "opt", "--run-reproducer", "sub.tfc", code=70).stderr


def test_weights_from_another_file(weighted: Path) -> None:
    other = Weights()
    other.add(np.zeros(2048, np.int32), "w")
    write_safetensors(Path("zeros.safetensors"), other, ["w"])
    tfc("opt", weighted, "--weights", "zeros.safetensors", "-o", "zeros.tfc")
    assert 'weights("zeros.safetensors")' in Path("zeros.tfc").read_text()
