"""Tables, units, differences, and files that are written whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tfc.cli.verify import errors
from tfc.ir.errors import TfcError
from tfc.ir.weights import Weights, open_safetensors
from tfc.report.diff import coloured, unified
from tfc.report.files import write_file, write_pieces, write_safetensors
from tfc.report.table import bytes_text, seconds_text, table


def test_numbers_stand_to_the_right() -> None:
    assert table(("pass", "ops"), [("cse", 3), ("dce", 1200)]).splitlines() == [
        "pass   ops",
        "----  ----",
        "cse      3",
        "dce   1200",
    ]


def test_a_table_without_rows() -> None:
    assert table(("a", "b"), []) == "a  b\n-  -"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (bytes_text(0), "0 B"),
        (bytes_text(1023), "1023 B"),
        (bytes_text(1536), "1.5 KiB"),
        (bytes_text(69 << 20), "69.0 MiB"),
        (bytes_text(3 << 30), "3.00 GiB"),
        (seconds_text(3.1e-6), "3.1 us"),
        (seconds_text(0.012), "12.0 ms"),
        (seconds_text(1.5), "1.50 s"),
    ],
)
def test_units(text: str, wanted: str) -> None:
    assert text == wanted


def test_differences_are_coloured() -> None:
    lines = list(unified("a\nb\n", "a\nc\n", "cse"))
    assert lines[:2] == ["--- before cse", "+++ after cse"]
    assert "\x1b[31m-b" in coloured(lines)
    assert "\x1b[32m+c" in coloured(lines)
    assert not list(unified("a", "a", "cse"))


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_file(path, "old")

    def pieces() -> Iterator[bytes]:
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pieces(path, pieces())
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_a_write_to_nowhere_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(TfcError, match="No such file"):
        write_file(tmp_path / "none" / "x", "text")


def test_safetensors_come_back(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(3, dtype=np.int8),
        "b": np.array([[1.5, np.nan]], ml_dtypes.bfloat16),
        "c": np.zeros((2, 0), np.float64),
        "d/e.f": np.array(True),
        "g": np.arange(4, dtype=np.float32).reshape(2, 2),
    }
    weights = Weights()
    for name, array in arrays.items():
        weights.add(array, name)
    write_safetensors(tmp_path / "w.safetensors", weights, list(arrays))
    found = open_safetensors(tmp_path / "w.safetensors", "")
    for name, array in arrays.items():
        held = found.array(name)
        assert held.dtype == array.dtype
        assert held.shape == array.shape
        assert held.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("got", "want", "ulp", "misplaced"),
    [
        (1.0, 1.0, 0, 0),
        (np.nextafter(np.float32(1), np.float32(2)), 1.0, 1, 0),
        (np.float32(1e-45), np.float32(-1e-45), 2, 0),
        (0.0, -0.0, 0, 0),
        (np.nan, np.nan, 0, 0),
        (np.nan, 1.0, 0, 1),
        (np.inf, -np.inf, 0, 1),
    ],
)
def test_errors(got: float, want: float, ulp: float, misplaced: float) -> None:
    found = errors(np.array([got, 2.0], np.float32), np.array([want, 2.0], np.float32))
    assert (found["max ulp"], found["misplaced"]) == (ulp, misplaced)


def test_errors_of_integers() -> None:
    a = np.array([1, 5], np.int64)
    assert errors(a, a)["misplaced"] == 0
    assert errors(a + 1, a) == {
        "max ulp": 0.0, "max abs": 1.0, "max rel": 0.0, "of scale": 0.0, "misplaced": 2.0,
    }  # fmt: skip


def test_errors_of_half_precision_are_in_its_own_ulps() -> None:
    a = np.array([1.0], ml_dtypes.bfloat16)
    assert errors(np.array([1.0078125], ml_dtypes.bfloat16), a)["max ulp"] == 1
