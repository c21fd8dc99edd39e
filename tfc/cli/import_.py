"""`tfc import`: an ONNX model as `.tfc` text, its weights as a safetensors file beside it."""

from __future__ import annotations

from pathlib import Path

import click

from tfc.cli.sources import dimensions, write_module


@click.command("import", epilog="Example: tfc import model.onnx -o model.tfc --dim batch_size=1")
@click.argument("source", metavar="MODEL", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-o", "--output", metavar="FILE", help="Default: beside the model; - is the standard output."
)
@click.option("--dim", multiple=True, metavar="NAME=N", help="Fix a dimension of the model.")
def command(source: str, output: str | None, dim: tuple[str, ...]) -> None:
    """Import MODEL, an ONNX file.

    What it holds that is not supported is listed in full: each node with its op and types.
    """
    from tfc.importers.onnx import import_onnx

    sizes = {name: n for name, n in dimensions(dim).items() if isinstance(n, int)}
    module = import_onnx(source, dims=sizes)
    path = output or str(Path(source).with_suffix(".tfc"))
    write_module(module, path)
    if path != "-":
        ops = sum(len(f.body) for f in module.functions.values())
        click.echo(f"{path}: {ops} ops, {len(module.weights)} weights", err=True)
