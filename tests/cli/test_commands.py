"""The commands that make, run and look into bundles, on one small model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tfc.cli import COMMANDS, main

MODEL = """module {
  dim B = "batch"
  func @main(%x: tensor<Bx8xf32>, %n: tensor<i32>) -> (%y: tensor<Bx3xf32>, %m: tensor<i32>) {
    %w = constant {value = dense<0.5>} : tensor<8x3xf32>
    %p = matmul(%x, %w) : tensor<Bx3xf32> loc("product")
    %y = tanh(%p) : tensor<Bx3xf32> loc("squash")
    %m = add(%n, %n) : tensor<i32>
    return %y, %m
  }
}
"""


def tfc(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments])
    raised = result.exception
    assert raised is None or isinstance(raised, SystemExit), raised
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "model.tfc").write_text(MODEL)
    result = tfc("compile", folder / "model.tfc")
    assert f"{folder / 'model.tfb'}: " in result.stderr
    assert "code for x86-64" in result.stderr
    return folder / "model.tfb"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(name: str) -> None:
    assert "Example: tfc" in tfc(name, "--help").stdout


def test_help_lists_the_commands() -> None:
    listed = tfc("--help").stdout
    assert all(f"\n  {name} " in listed for name in COMMANDS)


# ---- compile


@pytest.mark.parametrize(
    ("emit", "holds"),
    [
        ("graph", 'kind = "'),
        ("tile", "kernel @"),
        ("llvm", "define "),
        ("asm", ".text"),
    ],
)
def test_emit(bundle: Path, emit: str, holds: str, tmp_path: Path) -> None:
    source = bundle.with_suffix(".tfc")
    tfc("compile", source, "--emit", emit, "-o", tmp_path / "out.tfc", "-q")
    assert holds in (tmp_path / "out.tfc").read_text()


def test_what_was_emitted_compiles_on(bundle: Path, tmp_path: Path) -> None:
    for emit in ("graph", "tile"):
        stop = tmp_path / f"{emit}.tfc"
        tfc("compile", bundle.with_suffix(".tfc"), "--emit", emit, "-o", stop)
        tfc("compile", stop, "-o", tmp_path / f"{emit}.tfb")
        tfc("verify", tmp_path / f"{emit}.tfb", "--against", bundle.with_suffix(".tfc"))


def test_dimensions(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "fixed.tfb"
    tfc("compile", bundle.with_suffix(".tfc"), "-o", out, "--dim", "batch=2")
    assert "x: f32[2, 8]" in tfc("inspect", out).stdout
    tfc("compile", bundle.with_suffix(".tfc"), "-o", out, "--dim", "batch=1..4")
    assert "batch (B in the IR): 1..4" in tfc("inspect", out).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dim", "batch=x"), "expected NAME=N or NAME=SMALLEST..LARGEST"),
        (("--dim", "batch=4..1"), "the range is empty"),
        (("--dim", "b=4"), "no dimension 'b'"),
        (("--target", "mmx"), "no target is named 'mmx'"),
        (("-O", "7"), "'7' is not one of"),
    ],
)
def test_mistakes(bundle: Path, options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "x.tfb")
    assert message in tfc("compile", bundle.with_suffix(".tfc"), *out, *options, code=2).stderr
    assert not (tmp_path / "x.tfb").exists()


def test_the_model_is_not_overwritten(bundle: Path) -> None:
    source = bundle.with_suffix(".tfc")
    assert "would replace the model" in tfc("compile", source, "-o", source, code=2).stderr


# ---- run


def test_run_prints_and_saves(bundle: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    given = ("--input", f"x=@{tmp_path / 'x.npy'}", "--input", "n=21")
    result = tfc("run", bundle, *given, "--output-dir", tmp_path / "out")
    assert "m: i32[]\n42" in result.stdout
    y = np.load(tmp_path / "out" / "y.npy")
    assert np.allclose(y, np.tanh(4.0), atol=1e-6)


def test_run_takes_a_folder(bundle: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 8), np.float32))
    assert "there is no n.npy" in tfc("run", bundle, "--inputs", tmp_path, code=2).stderr
    np.save(tmp_path / "n.npy", np.array(3, np.int32))
    assert "m: i32[]\n6" in tfc("run", bundle, "--inputs", tmp_path).stdout


def test_run_says_what_is_wrong(bundle: Path) -> None:
    assert "how large batch is" in tfc("run", bundle, code=2).stderr
    wrong = tfc("run", bundle, "--input", "x=2x9xf32=1", code=2).stderr
    assert 'input "x"' in wrong
    assert "there is no function 'f'" in tfc("run", bundle, "--function", "f", code=2).stderr


def test_run_refuses_what_is_no_bundle(bundle: Path) -> None:
    assert "no tfc bundle" in tfc("run", bundle.with_suffix(".tfc"), code=2).stderr


# ---- verify


def test_verify_against_the_interpreter(bundle: Path) -> None:
    result = tfc("verify", bundle, "--against", "interpreter")
    assert "every member is what its hash says" in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[-1] for line in lines if line and line[0] in ("y", "m")] == ["ok", "ok"]


def test_verify_finds_a_difference(bundle: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tfc"
    other.write_text(MODEL.replace("dense<0.5>", "dense<0.51>"))
    result = tfc("verify", bundle, "--against", other, code=1)
    assert "WRONG" in result.stdout
    assert "beyond the tolerance of 0.001: y" in result.stderr
    tfc("verify", bundle, "--against", other, "--tolerance", "0.5")


def test_verify_finds_damage(bundle: Path, tmp_path: Path) -> None:
    data = bytearray(bundle.read_bytes())
    data[len(data) // 3] ^= 1
    (tmp_path / "damaged.tfb").write_bytes(data)
    assert "damaged" in tfc("verify", tmp_path / "damaged.tfb", code=2).stderr


def test_verify_needs_the_source(bundle: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone.tfb"
    alone.write_bytes(bundle.read_bytes())
    error = tfc("verify", alone, "--against", "interpreter", code=2).stderr
    assert "name it with --source" in error
    tfc("verify", alone, "--against", "interpreter", "--source", bundle.with_suffix(".tfc"))


# ---- bench, inspect


def test_bench_as_json(bundle: Path) -> None:
    result = tfc("bench", bundle, "--dim", "batch=4", "--seconds", "0.01", "--json")
    found = json.loads(result.stdout)
    assert found["min"] <= found["median"] <= found["p90"]
    assert found["throughput"] > 0
    assert found["peak_memory"] > 1 << 20
    assert "product" in [node for kernel in found["kernels"] for node in kernel["nodes"]]


def test_bench_writes_a_profile(bundle: Path, tmp_path: Path) -> None:
    """The nodes that kernels name are in it, with times that placement can read."""
    file = tmp_path / "profile.json"
    result = tfc("bench", bundle, "--seconds", "0.01", "--json", "--profile-out", file)
    kernels = json.loads(result.stdout)["kernels"]
    profile = json.loads(file.read_text())
    assert profile["kind"] == "cpu"
    assert set(profile["nodes"]) == {node for k in kernels for node in k["nodes"]}
    whole = sum(k["seconds"] for k in kernels if k["nodes"])
    assert sum(profile["nodes"].values()) == pytest.approx(whole)


def test_bench_as_text(bundle: Path) -> None:
    output = tfc("bench", bundle, "--seconds", "0.01").stdout
    assert "runs a second" in output
    assert "product, squash" in output


def test_inspect(bundle: Path) -> None:
    output = tfc("inspect", bundle, "--kernels", "--dim", "batch=4").stdout
    for part in (
        "main(x: f32[batch, 8], n: i32[]) -> (y: f32[batch, 3], m: i32[])",
        "batch (B in the IR): 0..",
        "arena: ",
        "code/x86-64",
        "product, squash",
    ):
        assert part in output
    manifest = json.loads(tfc("inspect", bundle, "--manifest").stdout)
    assert manifest["opt_level"] == 3


# ---- ops


def test_ops() -> None:
    table = tfc("ops").stdout
    assert "softmax" in table
    rows = json.loads(tfc("ops", "--format", "json", "--level", "graph").stdout)
    (softmax,) = [row for row in rows if row["op"] == "softmax"]
    assert softmax["kind"] == "composite"
    assert softmax["source"] == "ONNX Softmax-13"
    assert all(row["level"] == "graph" for row in rows)
    assert tfc("ops", "--format", "markdown").stdout.startswith("| op |")


def test_ops_of_a_name() -> None:
    shown = tfc("ops", "softmax").stdout
    assert "tfc/ops/softmax.py:" in shown
    assert "attribute axis: int" in shown
    assert "did you mean softmax" in tfc("ops", "sofmax", code=2).stderr
