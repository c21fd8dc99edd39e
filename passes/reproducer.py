"""Writes down how a pass fails: one `.tfc` file with the IR before it and the command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfc.ir.errors import TfcError
from tfc.passes.base import Pass, PassContext
from tfc.passes.pipeline_text import pipeline_text
from tfc.report.files import write_file
from tfc.report.modules import referenced_weights
from tfc.text import parse_module, print_module

if TYPE_CHECKING:
    from tfc.ir.core import Module
    from tfc.ir.weights import Weights


class Reproducer:
    """Keeps the text of a module from before all passes; writes to `path` when one fails.

    What the module was right before that pass is found by running those before it again, so that
    a run without a failure pays for one text only. `files` are those that the module's weights come
    from, which the command names.
    """

    def __init__(self, path: Path, files: Sequence[Path] = ()) -> None:
        self.path = path
        self.files = list(files)
        self._text = ""
        self._weights: Weights | None = None
        self._given: frozenset[str] = frozenset()

    def start(self, module: Module) -> None:
        self._text = print_module(module)
        self._weights = module.weights
        self._given = frozenset(module.weights)

    def write(self, passes: Sequence[Pass], failed: int, context: PassContext) -> str:
        """Writes the file for the pass of a number that failed; a line that says so."""
        before = ""
        if context.stop_after is None:  # counting rewrites makes sense from the start only
            before = self._before(passes[: failed - 1], context)
        part = passes[failed - 1 : failed] if before else passes[:failed]
        command = ["tfc", "opt", "%s", "--pass-pipeline", shlex.quote(pipeline_text(part))]
        for file in self.files:
            command += ["--weights", shlex.quote(str(file))]
        if context.target is not None:
            command += ["--target", shlex.quote(str(context.target))]
        if context.stop_after is not None:
            command += ["--stop-after-rewrite", str(context.stop_after)]
        try:
            write_file(self.path, f"// RUN: {' '.join(command)}\n{before or self._text}")
        except TfcError as error:
            return f"no reproducer: {error}"
        return f"to see it again: tfc opt --run-reproducer {shlex.quote(str(self.path))}"

    def _before(self, passes: Sequence[Pass], context: PassContext) -> str:
        """The text after some passes; empty if it needs weights that only these passes made."""
        from tfc.passes.manager import PassManager  # which imports this file

        module = parse_module(self._text, weights=self._weights)
        try:
            PassManager(passes, verify_each=False).run(module, PassContext(target=context.target))
        except Exception:
            return ""  # a pass that does not do the same again: show the whole run
        if not self._given.issuperset(referenced_weights(module)):
            return ""
        return print_module(module)
