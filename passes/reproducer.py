"""Writes down how a pass fails: one `.tfc` file with the IR before it and the command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfc.ir.errors import TfcError
from tfc.passes.base import Pass
from tfc.passes.pipeline_text import pipeline_text
from tfc.report.files import write_file
from tfc.text.print import print_module

if TYPE_CHECKING:
    from tfc.ir.core import Module


class Reproducer:
    """Keeps the text of a module before each pass, and writes it to `path` when a pass fails.

    `weights` are the files that the module's weights come from, which the command names. A module
    with weights that passes made is written as it was at the start, with the whole pipeline.
    """

    def __init__(self, path: Path, weights: Sequence[Path] = ()) -> None:
        self.path = path
        self.weights = list(weights)
        self._given: frozenset[str] = frozenset()
        self._first = ""
        self._latest = ""
        self._derived = False

    def start(self, module: Module) -> None:
        self._given = frozenset(module.weights)
        self._first = self._latest = print_module(module)
        self._derived = False

    def changed(self, module: Module) -> None:
        self._latest = print_module(module)
        self._derived = not self._given.issuperset(module.weights)

    def write(self, passes: Sequence[Pass], failed: int, stop_after: int | None) -> str:
        """Writes the file for the pass of a number that failed; a line that says so."""
        # Counting rewrites only makes sense from the start.
        whole = self._derived or stop_after is not None
        text, part = (
            (self._first, passes[:failed]) if whole else (self._latest, passes[failed - 1 : failed])
        )
        command = ["tfc", "opt", "%s", "--pass-pipeline", shlex.quote(pipeline_text(part))]
        for file in self.weights:
            command += ["--weights", shlex.quote(str(file))]
        if stop_after is not None:
            command += ["--stop-after-rewrite", str(stop_after)]
        try:
            write_file(self.path, f"// RUN: {' '.join(command)}\n{text}")
        except TfcError as error:
            return f"no reproducer: {error}"
        return f"to see it again: tfc opt --run-reproducer {self.path}"
