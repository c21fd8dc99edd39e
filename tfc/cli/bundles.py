"""What commands share that open bundles: their inputs, and the loader's errors as the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfc.cli.sources import dimensions
from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    import numpy as np

    from tfc.runtime import Bundle, Function

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "--input",
        "values",
        multiple=True,
        metavar="NAME=VALUE",
        help="@file.npy, a number, 1,2,3, 2x3xf32=1 2 3 4 5 6, random, 2x3xf32=random. "
        "Inputs that are not given are random.",
    ),
    click.option(
        "--inputs",
        "folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="A folder with NAME.npy for each input.",
    ),
    click.option("--dim", multiple=True, metavar="NAME=N", help="A size, for random inputs."),
    click.option("--seed", default=0, show_default=True, help="Of random inputs."),
    click.option(
        "--function",
        "functions",
        multiple=True,
        metavar="NAME",
        help="The function to run. [default: main] Given several times, they run in turn on the "
        "same variables, and the last one counts.",
    ),
    click.option(
        "--files",
        type=click.Path(exists=True, file_okay=False),
        metavar="DIR",
        help="Where readers and checkpoints have their files.",
    ),
    click.option("--threads", type=click.IntRange(1), metavar="N", help="[default: all cores]"),
    click.option("--target", metavar="NAME", help="The code to use. [default: the best here]"),
)
BUNDLE = click.argument("bundle", type=click.Path(exists=True, dir_okay=False))


def bundle_options(command: CommandT) -> CommandT:
    """Adds the options that say what a bundle runs on."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def open_bundle(path: str, options: Mapping[str, Any]) -> Bundle:
    from tfc.runtime import load

    threads, target, folder = (options[name] for name in ("threads", "target", "files"))
    return load(path, threads=threads, target=target, folder=folder)


@dataclass(frozen=True)
class Step:
    """A function that is to be run, and its inputs."""

    function: Function
    inputs: dict[str, np.ndarray[Any, Any]]

    def run(self) -> dict[str, np.ndarray[Any, Any]]:
        return self.function.run(self.inputs)


def choose_steps(
    bundle: Bundle, options: Mapping[str, Any], usual_size: int | None = None
) -> list[Step]:
    """The functions to run, with the inputs that the options describe; others are random.

    `usual_size` is what sizes are taken for that no `--dim` gives; without it they must be given.
    """
    functions = [_function(bundle, name) for name in options["functions"]] or [bundle.main]
    known = [t.name for f in functions for t in f.inputs]
    for value in options["values"]:
        if not any(value.startswith(f"{name}=") for name in known):
            signatures = "; ".join(f.signature() for f in functions)
            raise TfcError(f"--input {value}: expected NAME=VALUE", hint=signatures)
    return [Step(f, _inputs(f, options, usual_size)) for f in functions]


def _function(bundle: Bundle, name: str) -> Function:
    if name not in bundle.functions:
        raise TfcError(
            f"there is no function {name!r}", hint=f"it has {', '.join(bundle.functions)}"
        )
    return bundle.functions[name]


def _inputs(
    function: Function, options: Mapping[str, Any], usual_size: int | None
) -> dict[str, np.ndarray[Any, Any]]:
    from tfc.runtime.main import read_inputs

    names = [f"{t.name}=" for t in function.inputs]
    given = [v for v in options["values"] if v.startswith(tuple(names))]
    given += _from_folder(function, options["folder"])
    sizes = {k: n for k, n in dimensions(options["dim"]).items() if isinstance(n, int)}
    for symbol in function.symbols if usual_size is not None else ():
        if symbol.name not in sizes and usual_size is not None:
            most = usual_size if symbol.maximum is None else symbol.maximum
            sizes[symbol.name] = max(symbol.minimum, min(usual_size, most))
    for symbol in function.symbols:  # dimensions go by the model's name or by tfc's
        if symbol.symbol in sizes:
            sizes.setdefault(symbol.name, sizes[symbol.symbol])
    named = [tensor.name for tensor in function.inputs]
    absent = [n for n in named if not any(v.startswith(f"{n}=") for v in given)]
    return read_inputs(function, [*given, *(f"{n}=random" for n in absent)], sizes, options["seed"])


def _from_folder(function: Function, folder: Path | None) -> list[str]:
    if folder is None:
        return []
    found = [f"{t.name}=@{folder / file_name(t.name)}" for t in function.inputs]
    for tensor in function.inputs:
        if not (folder / file_name(tensor.name)).is_file():
            text = f"there is no {file_name(tensor.name)} for the input {tensor.name}"
            raise TfcError(text, where=str(folder))
    return found


def file_name(tensor: str) -> str:
    """The file of a tensor in a folder, as `tfc run --output-dir` names it."""
    import re

    return (re.sub(r"[^\w.+-]", "_", tensor).lstrip(".") or "_") + ".npy"


def sizes_text(inputs: Mapping[str, np.ndarray[Any, Any]], names: Sequence[str] = ()) -> str:
    """The shapes of inputs, for a report."""
    shown = names or list(inputs)
    return ", ".join(f"{n}: {list(inputs[n].shape)}" for n in shown)
