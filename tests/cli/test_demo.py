"""`tfc demo` recognises the digits, and the commands that it prints to try next work as printed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tfc.cli import main
from tfc.cli.demo import DATA, draw


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def output(folder: Path) -> str:
    return _tfc("demo", "-o", str(folder / "some where")).output


def _tfc(*words: str) -> Result:
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def test_accuracy(output: str) -> None:
    match = re.search(r"(\d+) of (\d+) digits are right", output)
    assert match, output
    right, count = map(int, match.groups())
    assert count == len(np.load(DATA / "labels.npy"))
    assert right >= 0.98 * count


def test_says_sizes_and_times(output: str, folder: Path) -> None:
    size = (folder / "some where/digits.tfb").stat().st_size
    assert f"to {size / 1024:.1f} KiB" in output
    assert re.search(r"compiled in [\d.]+ m?s", output)
    assert re.search(r"a run on one digit [\d.]+ [um]?s, on all 360 [\d.]+ [um]?s", output)
    assert re.search(r"predicted  \d .*\nright is   \d ", output)


def test_three_commands_to_try_next(output: str) -> None:
    commands = list(_commands(output))
    assert len(commands) == 3
    for words in commands:
        _tfc(*words)


def _commands(output: str) -> Iterator[list[str]]:
    for line in output.partition("Try next:")[2].splitlines():
        if line.strip():
            first, *words = shlex.split(line)
            assert first == "tfc"
            yield words


def test_draws_every_shade() -> None:
    image = np.zeros((1, 1, 8, 8), np.uint8)
    image[0, 0, 2, 3], image[0, 0, 2, 4] = 16, 8
    lines = draw(image).split("\n")
    assert len(lines) == 8
    assert lines[2].strip() == "@@=="
    assert not lines[3].strip()
