"""`tfc compile`: a model to a bundle, or to any text on the way there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfc.cli.sources import dimensions
from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    from tfc.driver import Summary

SUFFIXES = {
    "graph": ".graph.tfc",
    "tile": ".tile.tfc",
    "llvm": ".ll",
    "triton": ".triton.py",
    "asm": ".s",
    "obj": ".o",
    "bundle": ".tfb",
}


@click.command(
    "compile",
    epilog="Example: tfc compile model.onnx -o model.tfb --target x86-64-v3 --target host "
    "--dim batch_size=1..8",
)
@click.argument("source", metavar="MODEL", type=click.Path(exists=True, dir_okay=False))
@click.option("-o", "--output", metavar="FILE", help="Default: beside the model.")
@click.option(
    "-O",
    "opt_level",
    type=click.Choice(["0", "1", "2", "3"]),
    default="3",
    show_default=True,
    help="0: as written, 1: what keeps every bit, 2 and 3: sums may round in another order.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    default=("host",),
    metavar="NAME",
    help="May stand several times; they share the weights.  [default: host]",
)
@click.option(
    "--dim", multiple=True, metavar="NAME=N|LOW..HIGH", help="Fix or bound a symbolic dimension."
)
@click.option(
    "--feed",
    "feeds",
    multiple=True,
    metavar="NAME",
    help="Make a value of the graph an input; what only it needed goes.",
)
@click.option(
    "--fetch",
    "fetches",
    multiple=True,
    metavar="NAME",
    help="Make a value of the graph a result, instead of the model's own.",
)
@click.option(
    "--emit",
    type=click.Choice(list(SUFFIXES)),
    default="bundle",
    show_default=True,
    help="Where to stop.",
)
@click.option("--strict", is_flag=True, help="Refuse ops on one variable that nothing orders.")
@click.option(
    "--devices",
    metavar="cpu:0,cpu:1",
    help="Spread the ops over devices, each with a thread of its own.",
)
@click.option(
    "--compress",
    type=click.Choice(["bf16"]),
    help="What 32-bit floats become on their way between devices.",
)
@click.option(
    "--cost", metavar="FILE", help="Spread by what `tfc bench --profile-out FILE` measured."
)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
def command(
    source: str,
    output: str | None,
    opt_level: str,
    targets: tuple[str, ...],
    dim: tuple[str, ...],
    feeds: tuple[str, ...],
    fetches: tuple[str, ...],
    emit: str,
    strict: bool,
    devices: str | None,
    compress: str | None,
    cost: str | None,
    quiet: bool,
) -> None:
    """Compile MODEL, an ONNX file or a .tfc text of the graph or the tile level."""
    from tfc.driver import compile

    path = Path(output) if output else Path(source).with_suffix(SUFFIXES[emit])
    if path.resolve() == Path(source).resolve():
        raise TfcError("the output would replace the model", where=str(path))
    dims = {k: v if isinstance(v, int) else f"{v[0]}..{v[1]}" for k, v in dimensions(dim).items()}
    with _progress(quiet) as shown:
        summary = compile(
            source,
            path,
            target=targets,
            opt_level=int(opt_level),
            dims=dims,
            emit=emit,
            feeds=feeds,
            fetches=fetches,
            strict=strict,
            devices=[d.strip() for d in devices.split(",")] if devices else (),
            compress=compress or "",
            cost=cost or "",
            progress=shown,
        )
    if not quiet:
        click.echo(summary_text(summary), err=True)


def _progress(quiet: bool) -> Any:
    """A function that shows progress on a terminal, as a context; None elsewhere."""
    return nullcontext() if quiet or not sys.stderr.isatty() else _Bar()


class _Bar:
    """A progress bar of rich's for each step that has many parts."""

    def __enter__(self) -> Callable[[str, int, int], None]:
        # rich takes a while to import, and only a terminal needs it.
        from rich.console import Console
        from rich.progress import Progress

        self.bar = Progress(console=Console(stderr=True), transient=True)
        self.tasks: dict[str, Any] = {}
        self.bar.start()
        return self.show

    def show(self, step: str, done: int, total: int) -> None:
        if step not in self.tasks:
            self.tasks[step] = self.bar.add_task(step, total=total)
        self.bar.update(self.tasks[step], completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def summary_text(summary: Summary) -> str:
    """Sizes and times of a compilation."""
    from tfc.report.table import bytes_text, seconds_text

    parts = [f"{summary.path}: {bytes_text(summary.size)}"]
    if summary.kernels:
        parts.append(f"{summary.kernels} kernels")
    if summary.weights:
        parts.append(f"weights {bytes_text(summary.weights)}")
    parts += [f"code for {name} {bytes_text(size)}" for name, size in summary.code.items()]
    steps = ", ".join(f"{n} {seconds_text(s)}" for n, s in summary.seconds.items())
    total = seconds_text(sum(summary.seconds.values()))
    return f"{'; '.join(parts)}\n{total}: {steps}"
