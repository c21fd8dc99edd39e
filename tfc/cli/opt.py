"""`tfc opt`: runs passes on a module and shows what they do."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click

from tfc.cli.inspection import InspectedCommand, inspection_options, instruments, report
from tfc.cli.sources import STDIN, read_module, write_module

HEADER = "// RUN: tfc opt %s "


class OptCommand(InspectedCommand):
    """With `--run-reproducer` the first line of the file says the options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--run-reproducer" in args:
            args = _reproducer_arguments([a for a in args if a != "--run-reproducer"])
        return super().parse_args(ctx, args)


def _reproducer_arguments(args: list[str]) -> list[str]:
    """The arguments with those that the file's first line says in front."""
    for file in args:
        if not file.startswith("-") and Path(file).is_file():
            with open(file, encoding="utf-8", errors="replace") as text:
                first = text.readline()
            if first.startswith(HEADER):
                return [*shlex.split(first.removeprefix(HEADER)), *args]
    raise click.UsageError(f"--run-reproducer needs a file that begins with `{HEADER}...`")


def _list_passes(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from tfc.passes.base import all_passes, option_types
    from tfc.passes.pipelines import PIPELINES

    for name, cls in all_passes().items():
        options = "".join(f"\n      {key}: {kind}" for key, kind in option_types(cls).items())
        click.echo(f"{name}\n    {cls.summary()}{options}")
    click.echo("\nPipelines, which stand for their passes in --pass-pipeline:")
    for name, entries in PIPELINES.items():
        click.echo(f"{name}\n    {','.join(entries)}")
    ctx.exit()


@click.command(
    "opt",
    cls=OptCommand,
    epilog="Example: tfc opt in.tfc --pass-pipeline 'constant-folding{max-bytes=65536},cse,dce' "
    "--print-ir-after-change --statistics -o out.tfc",
)
@click.argument("source", metavar="INPUT")
@click.option("-o", "--output", default=STDIN, metavar="FILE", help="Default: standard output.")
@click.option("--pass-pipeline", "-p", default="", metavar="TEXT", help="As in the example.")
@click.option(
    "--weights",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Take the weights from this safetensors file or ONNX model.",
)
@click.option("--target", default="", metavar="NAME", help="What passes optimise for.")
@click.option(
    "--verify-each/--no-verify-each",
    default=True,
    show_default=True,
    help="Verify the module after each pass.",
)
@click.option("--strict", is_flag=True, help="Refuse ops on one variable that nothing orders.")
@inspection_options
@click.option(
    "--reproducer",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where the IR goes when a pass fails. [default: INPUT.reproducer.tfc, here]",
)
@click.option("--run-reproducer", is_flag=True, help="Take the options from INPUT's first line.")
@click.option(
    "--list-passes",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_passes,
    help="List passes, their options, and pipelines.",
)
def command(source: str, output: str, weights: tuple[str, ...], **options: Any) -> None:
    """Run passes on INPUT, a .tfc text of any level (- is the standard input) or an ONNX model."""
    from tfc.passes.base import PassContext
    from tfc.passes.manager import PassManager, parse_pipeline
    from tfc.passes.reproducer import Reproducer
    from tfc.report.modules import weight_files

    passes = parse_pipeline(options["pass_pipeline"])
    module = read_module(source, weights)
    files = [Path(w).resolve() for w in weights] or weight_files(Path(source), module)
    known = list(module.weights)
    manager = PassManager(
        passes,
        verify_each=options["verify_each"],
        instruments=instruments(options, files),
        reproducer=Reproducer(options["reproducer"] or _reproducer_path(source), files),
    )
    context = PassContext(
        stop_after=options["stop_after_rewrite"],
        target=_target(options),
        strict=options["strict"],
    )
    steps = manager.run(module, context)
    report(options, steps, context)
    write_module(module, output, known, files[0] if len(files) == 1 else None)


def _target(options: dict[str, Any]) -> Any:
    if not options["target"]:
        return None
    from tfc.targets import resolve

    return resolve(options["target"])


def _reproducer_path(source: str) -> Path:
    return Path(f"{'stdin' if source == STDIN else Path(source).stem}.reproducer.tfc")
