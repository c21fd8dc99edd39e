"""README and the tour in examples/ work word by word: what they show is written, run and compared.

In a page, a block that begins with ```` ```python my_ops.py ```` (or another language and file) is
written to that file, and a block of `console` is run: lines after `$ ` are commands, the lines
below them what they print, errors too, where `...` stands for anything. A block of `sh` is not run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["", *(p.parent.name for p in sorted((ROOT / "examples").glob("0*/README.md")))]
CHECKOUT = ("tfc", "passes", "backends", "grammar", "tests", "pyproject.toml")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code of a page; `file` is what its first line names, if it does."""

    language: str
    file: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*(g or "" for g in m.groups())) for m in BLOCK.finditer(page.read_text())]


def commands(console: str) -> Iterator[tuple[str, str]]:
    """Each command of a console with the output that is shown for it."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        lines = part.split("\n")
        last = next(i for i, line in enumerate(lines) if not line.endswith("\\"))
        yield "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])


def run(command: str, folder: Path, checkout: Path = ROOT) -> str:
    """What a command prints, errors too. `tfc` and `python` are those of this environment."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    return done.stdout + ("" if done.returncode == 0 else f"exit status {done.returncode}\n")


def assert_output(command: str, found: str, shown: str) -> None:
    """`...` stands for anything; a command without output below it only has to succeed."""
    if shown.strip():
        pattern = ".*?".join(re.escape(part) for part in _lines(shown).split("..."))
        right = re.fullmatch(pattern, _lines(found), re.DOTALL) is not None
    else:
        right = "exit status" not in found
    if not right:
        pytest.fail(f"$ {command}\n{found}\n--- but the page shows\n{shown}", pytrace=False)


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    """A copy of the examples and the README above them; links become files."""
    shutil.copyfile(ROOT / "README.md", tmp_path / "README.md")
    return Path(shutil.copytree(ROOT / "examples", tmp_path / "examples"))


@pytest.mark.parametrize("name", PAGES, ids=lambda n: n or "README")
def test_page(name: str, tour: Path) -> None:
    folder = tour / name if name else tour.parent
    shown = [b for b in blocks(folder / "README.md") if b.file or b.language == "console"]
    assert shown, f"{name} shows nothing that a test can run"
    for block in shown:
        if block.file:
            target = folder / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)
            continue
        for command, output in commands(block.text):
            assert_output(command, run(command, folder), output)


@pytest.mark.parametrize(
    ("name", "code", "test"),
    [
        ("06_add_an_op", "tfc/ops/squareplus.py", "tests/ops/test_squareplus.py"),
        ("07_add_a_pass", "passes/graph/expand_powers.py", "tests/passes/graph/expand_powers.tfc"),
    ],
)
def test_in_tree_it_takes_one_file_and_one_test(
    name: str, code: str, test: str, tmp_path: Path
) -> None:
    """In a copy of the checkout, with the two files in their places and nothing else."""
    checkout = tmp_path / "checkout"
    for part in CHECKOUT:
        _copy(ROOT / part, checkout / part)
    page = blocks(ROOT / "examples" / name / "README.md")
    (source,) = (b for b in page if b.language == "python" and b.file.startswith("my_"))
    (checkout / code).write_text(source.text)
    (shown,) = (b for b in page if b.file == test)
    (checkout / test).parent.mkdir(parents=True, exist_ok=True)
    (checkout / test).write_text(shown.text)
    (command,) = (b.text.strip() for b in page if b.language == "sh" and "pytest" in b.text)
    found = run(command, checkout, checkout)
    passed = re.search(r"(\d+) passed", found)
    assert passed and int(passed[1]) >= 3 and "failed" not in found, found
    assert "error" not in found.lower(), found


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        return
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, target, symlinks=True, ignore=ignored)


def test_every_page_is_in_the_list() -> None:
    listed = re.findall(r"^\| \[(\w+)\]", (ROOT / "examples/README.md").read_text(), re.MULTILINE)
    assert listed == [*PAGES[1:], "c"]


def test_console_reader() -> None:
    assert list(commands("$ a \\\n  b\nout\n$ c\n")) == [("a \\\n  b", "out\n"), ("c", "")]
    assert_output("x", "took 3 s\n", "took ... s")
    with pytest.raises(pytest.fail.Exception, match="the page shows"):
        assert_output("x", "took 3 s, more\n", "took ... s")
    with pytest.raises(pytest.fail.Exception, match="exit status 2"):
        assert_output("x", run("exit 2", ROOT), "")
