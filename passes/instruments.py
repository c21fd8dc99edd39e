"""What looks on while a pipeline runs: prints, differences and dumps of the IR."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tfc.passes.manager import Instrument, Step
from tfc.report.diff import coloured, unified
from tfc.report.files import make_folder, write_file, write_safetensors
from tfc.text.print import print_module

if TYPE_CHECKING:
    from tfc.ir.core import Module

Write: TypeAlias = "Callable[[str], None]"


def to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass
class PrintBefore(Instrument):
    """Prints the IR before the passes of some names, or before all of them."""

    names: tuple[str, ...] = ()
    write: Write = to_stderr

    def before(self, step: Step, module: Module) -> None:
        if not self.names or step.name in self.names:
            self.write(f"// IR before {step.number:03} {step.transform}\n{print_module(module)}")


@dataclass
class PrintAfter(Instrument):
    """Prints the IR after the passes of some names, or after all of them."""

    names: tuple[str, ...] = ()
    write: Write = to_stderr

    def after(self, step: Step, module: Module) -> None:
        if not self.names or step.name in self.names:
            self.write(f"// IR after {step.number:03} {step.transform}\n{print_module(module)}")


@dataclass
class PrintChanges(Instrument):
    """Prints the difference that each pass made, and nothing of a pass that made none."""

    colour: bool = False
    write: Write = to_stderr
    _text: str = ""

    def start(self, module: Module) -> None:
        self._text = print_module(module)

    def after(self, step: Step, module: Module) -> None:
        text = print_module(module) if step.changed else self._text
        lines = list(unified(self._text, text, f"{step.number:03} {step.transform}"))
        self._text = text
        if lines:
            self.write(coloured(lines) if self.colour else "\n".join(lines))


@dataclass
class DumpFolder(Instrument):
    """Writes `000-input.tfc` and, after each pass, `NNN-pass.tfc`.

    Weights stay references into the files that they came from. Those that passes made are written
    at the end, once, to `derived.safetensors`; the first line of each text is the command that
    takes it up again.
    """

    folder: Path
    weights: Sequence[Path] = ()
    _given: frozenset[str] = frozenset()

    def start(self, module: Module) -> None:
        make_folder(self.folder)
        self._given = frozenset(module.weights)
        self._write("000-input.tfc", module)

    def after(self, step: Step, module: Module) -> None:
        self._write(f"{step.number:03}-{step.name}.tfc", module)

    def end(self, module: Module) -> None:
        derived = [name for name in module.weights if name not in self._given]
        if derived:
            write_safetensors(self.folder / "derived.safetensors", module.weights, derived)

    def _write(self, name: str, module: Module) -> None:
        files = list(self.weights)
        if not self._given.issuperset(module.weights):
            files.append(self.folder / "derived.safetensors")
        options = "".join(f" --weights {shlex.quote(str(file))}" for file in files)
        write_file(self.folder / name, f"// tfc opt %s{options}\n{print_module(module)}")
