"""Collects the `.tfc` files with `// RUN:` lines as tests, which run in this process.

A line `// RUN: tfc opt %s --pass-pipeline 'cse,dce'` runs the command; its output, errors too, is
compared with the `// CHECK` lines of the file (see `filecheck.py`). It runs in a new folder; `%s`
is the file, `%t` a path for what the command writes. `not` before the command says that it must
fail, `--check-prefix=NAME` behind it uses the lines `// NAME:` instead.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.filecheck import CheckError, check, read_directives

_RUN = re.compile(r"//\s*RUN:\s*(.*)")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """The whole suite runs on all cores, but what is named on the command line in this process."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return len(os.sched_getaffinity(0)) if whole else 0


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".tfc" and "// RUN:" in file_path.read_text():
        return TextFile.from_parent(parent, path=file_path)
    return None


class TextFile(pytest.File):
    """A `.tfc` file: each of its RUN lines is a test."""

    def collect(self) -> Iterator[pytest.Item]:
        for number, line in enumerate(_RUN.findall(self.path.read_text()), 1):
            yield RunLine.from_parent(self, name=f"run{number}", command=line)


class RunLine(pytest.Item):
    def __init__(self, *, command: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.command = command

    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            text = self.command.replace("%s", shlex.quote(str(self.path)))
            words = shlex.split(text.replace("%t", f"{folder}/out"))
            prefix, fails = "CHECK", words[0] == "not"
            if match := re.fullmatch(r"--check-prefix=(\w+)", words[-1]):
                prefix = match[1]
                words.pop()
            output = _run(words[1:] if fails else words, fails)
        directives = read_directives(self.path.read_text(), prefix)
        if not directives:
            raise CheckError(f"the file has no {prefix} lines")
        check(output, directives)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CheckError):
            return f"{self.path}\n{self.command}\n{excinfo.value}"
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"{self.name}: {self.command}"


def _run(words: list[str], fails: bool) -> str:
    """The output of a command, with its errors."""
    from click.testing import CliRunner

    from tfc.cli import main

    if words[0] != "tfc":
        raise CheckError(f"a RUN line runs tfc, not {words[0]}")
    result = CliRunner().invoke(main, words[1:])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if (result.exit_code != 0) != fails:
        wanted = "a failure" if fails else "0"
        raise CheckError(f"exit code {result.exit_code}, not {wanted}:\n{result.output}")
    return result.output
