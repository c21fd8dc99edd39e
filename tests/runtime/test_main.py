"""The command line of a bundle, run as a file of its own with nothing but Python and numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import forge, stand_in
from tfc.bundle import write
from tfc.runtime import load
from tfc.runtime.main import main


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("main") / "model.tfb"
    write(path, stand_in.spec())
    return path


def run(path: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = main(str(path), list(arguments))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


GOOD = ("--input", "x=2x4xf32=1", "--input", "y=0 1 2 3 4 5 6 7", "--input", "pick=1")


@pytest.fixture
def numpy_only(tmp_path: Path) -> dict[str, str]:
    """An environment in which Python finds numpy and nothing else that is installed."""
    folder = tmp_path / "numpy-only"
    folder.mkdir()
    installed = Path(np.__file__).parent
    for name in (installed.name, "numpy.libs"):
        if (installed.parent / name).exists():
            (folder / name).symlink_to(installed.parent / name)
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return {"PATH": f"{python.parent}:/usr/bin:/bin", "PYTHONPATH": str(folder)}


def test_a_bundle_runs_by_itself(path: Path, numpy_only: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [f"./{path.name}", *GOOD, "--output-dir", str(tmp_path / "results")],
        cwd=path.parent,
        env=numpy_only,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "sum: f32[2, 4]"
    total = np.load(tmp_path / "results" / "sum.npy")
    np.testing.assert_array_equal(total, np.arange(8).reshape(2, 4) + 1 + stand_in.BIAS)
    np.testing.assert_array_equal(np.load(tmp_path / "results" / "row.npy"), total[1])


def test_without_numpy_it_says_so(path: Path, numpy_only: dict[str, str]) -> None:
    environment = {**numpy_only, "PYTHONPATH": ""}
    done = subprocess.run([path], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "this bundle needs numpy" in done.stderr
    assert "Traceback" not in done.stderr


def test_help(path: Path, numpy_only: dict[str, str]) -> None:
    done = subprocess.run([path, "--help"], env=numpy_only, capture_output=True, text=True)
    assert done.returncode == 0
    assert "usage: model.tfb" in done.stdout and "example: model.tfb --input" in done.stdout


def test_a_bundle_that_was_moved_and_renamed_still_runs(
    path: Path, numpy_only: dict[str, str], tmp_path: Path
) -> None:
    other = tmp_path / "a folder" / "renamed"
    other.parent.mkdir()
    other.write_bytes(path.read_bytes())
    other.chmod(0o755)
    done = subprocess.run([other, *GOOD], env=numpy_only, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_values(path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    x = tmp_path / "x.npy"
    np.save(x, np.full((2, 4), 3, np.float32))
    expected = "[[ 3.5  3.   7.  14. ]\n [ 7.5  7.  11.  18. ]]"
    y = "y=2x4xf32=[0 1 2 3][4,5,6,7]"
    for spelled in (f"x=@{x}", "x=3,3,3,3,3,3,3,3", "x=2x4xf32=3 3 3 3 3 3 3 3", "x=2x4xf32=3"):
        status, out, err = run(
            path, "--input", spelled, "--input", y, "--input", "pick=i64=0", capsys=capsys
        )
        assert (status, err) == (0, "")
        assert expected in out
    status, out, _ = run(path, "--function", "turn", "--input", "v=3xbf16=1 2.5 -1", capsys=capsys)
    assert status == 0 and "w: bf16[3]\n[-1.   2.5  1. ]" in out


def test_zeros_where_only_a_shape_is_given(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = ("--input", "x=2x4xf32", "--input", "y=2x4xf32", "--input", "pick=0")
    assert "row: f32[4]\n[ 0.5 -1.   2.   8. ]" in run(path, *inputs, capsys=capsys)[1]


def test_random_is_seeded(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = ("--input", "x=random", "--input", "y=2x4xf32=random", "--input", "pick=random")
    first = run(path, *inputs, "--dim", "batch_size=2", capsys=capsys)
    assert first[0] == 0
    assert run(path, *inputs, "--dim", "batch_size=2", capsys=capsys) == first
    other = run(path, *inputs, "--dim", "batch_size=2", "--seed", "1", capsys=capsys)
    assert other[0] == 0 and other != first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--input", "x=1x4xf32"), 'input "y" is missing; main(x: f32[batch_size, 4]'),
        (("--input", "z=1"), "--input z=1: expected NAME=VALUE; main("),
        (("--input", "x=@/no/such.npy"), "No such file or directory: '/no/such.npy'"),
        (("--input", "x=@{path}"), "is no .npy file"),
        (("--input", "x=2x4xf64=1"), 'input "x" is given as f64, expected f32'),
        (("--input", "x=2x4xf32=1 2 3"), "3 numbers for a tensor of 8 elements"),
        (("--input", "x=a b"), "'a b' is not f32"),
        (("--input", "pick=1.5"), "'1.5' is not i64"),
        (("--input", "pick=99999999999999999999"), "is not i64"),
        (("--input", "x=1 2 3"), "give it with the numbers, as in x=2x3xf32="),
        (("--input", "x=random"), '--dim "batch_size=2"'),
        (("--input", "x=1x4xf32", "--input", "x=1x4xf32"), 'input "x" is given twice'),
        (("--dim", "batch_size"), "--dim batch_size: expected NAME=N"),
        (("--function", "other"), "no function 'other'; the bundle has main, turn"),
        (("--target", "x86-64-v9"), "no code for 'x86-64-v9'; it has baseline"),
        ((*GOOD[:-1], "pick=7", "--output-dir", "{path}/x"), "index 7 along axis 0"),
        ((*GOOD, "--output-dir", "{path}/x"), "Not a directory"),
    ],
)
def test_mistakes(
    path: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [a.replace("{path}", str(path)) for a in arguments]
    status, out, err = run(path, *filled, capsys=capsys)
    assert message in err and err.startswith("error: ") and out == ""
    assert status == (1 if "index" in message else 2)


def test_mistakes_in_options_exit_2(path: Path) -> None:
    for wrong in (["--threads", "0"], ["--unknown"], ["--seed", "x"]):
        with pytest.raises(SystemExit) as caught:
            main(str(path), wrong)
        assert caught.value.code == 2


def test_damage_shows_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(stand_in.bundle_bytes())
    index, _ = forge.extents(bytes(data))
    data[index.offset] ^= 1
    damaged = tmp_path / "damaged.tfb"
    damaged.write_bytes(data)
    status, _, err = run(damaged, *GOOD, capsys=capsys)
    assert status == 2 and "index.bin is damaged" in err
    status, _, err = run(tmp_path / "none.tfb", *GOOD, capsys=capsys)
    assert status == 2 and "No such file" in err


def test_output_files_of_odd_names(tmp_path: Path) -> None:
    from tfc.runtime.main import save_outputs

    names = ("a/b:0", "a_b:0", "../../x", "")
    save_outputs({n: np.zeros(1) for n in names}, str(tmp_path / "out"))
    assert sorted(os.listdir(tmp_path / "out")) == ["_.._x.npy", "_.npy", "a_b_0.npy", "a_b_0_.npy"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_the_bundle_uses_its_own_loader(path: Path) -> None:
    """Whatever tfc is installed: the module that runs comes from the file."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-v", path, "--help"], env=environment, capture_output=True, text=True
    )
    assert f"import 'tfc_runtime.main' # <zipimporter object \"{path}" in done.stderr
    assert "import 'tfc.runtime'" not in done.stderr
    assert load(path).target == "baseline"
