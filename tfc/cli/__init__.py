"""The command `tfc`. Each subcommand is a file here, imported when it is called for.

A file of this folder defines `command`; `tfc import` is in `import_.py`, all others are named as
their command. Nothing heavy is imported before a command runs, so that `tfc --help` is quick.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any

import click

from tfc.ir.errors import TfcError

COMMANDS = ("import", "opt", "compile", "run", "verify", "bench", "inspect", "ops", "demo")
MODULES = {"import": "import_"}


class Commands(click.Group):
    """Loads a command when it is asked for, and turns a user's mistake into one message."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"tfc.cli.{MODULES.get(cmd_name, cmd_name)}")
        return module.command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            code = _exit_code(error)
            if code is None or os.environ.get("TFC_DEBUG"):
                raise
            click.echo(f"error: {error}", err=True)
            ctx.exit(code)


def _exit_code(error: Exception) -> int | None:
    """What the command ends with for a mistake of the user's; None for one of ours."""
    if isinstance(error, TfcError):
        return error.exit_code
    loader = sys.modules.get("tfc.runtime.errors")  # loaded if one of its errors was raised
    if loader is not None and isinstance(error, loader.LoaderError):
        return 1 if isinstance(error, loader.RunError) else 2
    return 2 if isinstance(error, OSError | MemoryError) else None


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: tfc compile model.onnx -o model.tfb, then tfc run model.tfb --input x=random",
)
@click.version_option(package_name="tfc")
@click.option(
    "--load",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Load ops and passes from a Python file first.",
)
def main(files: tuple[str, ...]) -> None:
    """Compile dataflow graphs to native code, and look at every step between.

    TFC_DEBUG=1 in the environment shows where in tfc an error arose.
    """
    for file in files:
        load_file(file)


def load_file(file: str) -> None:
    """Runs a Python file, whose ops and passes register themselves."""
    from importlib.util import module_from_spec, spec_from_file_location

    importlib.import_module("tfc.ops")  # first, so that a clash of names shows in the file
    name = "tfc_loaded_" + re.sub(r"\W", "_", os.path.abspath(file))
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise TfcError("it is no Python file", where=file, hint="--load takes a .py file")
    module = sys.modules[name] = module_from_spec(spec)  # where dataclasses and inspect look
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise TfcError(f"it does not load: {type(error).__name__}: {error}", where=file) from error


__all__ = ["main"]
