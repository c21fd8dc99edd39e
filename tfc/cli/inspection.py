"""The options that show what passes do, which `opt` and `compile` share, and what they mean."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tfc.passes.base import PassContext
    from tfc.passes.manager import Instrument, Step

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
EVERY = "*"


class InspectedCommand(click.Command):
    """Lets `--print-ir-before` and `--print-ir-after` stand without a value: every pass."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        bare = ("--print-ir-before", "--print-ir-after")
        return super().parse_args(ctx, [f"{a}={EVERY}" if a in bare else a for a in args])


OPTIONS = (
    click.option("--print-ir-before", metavar="[=PASS,...]", help="Print the IR before passes."),
    click.option("--print-ir-after", metavar="[=PASS,...]", help="Print the IR after passes."),
    click.option("--print-ir-after-change", is_flag=True, help="Print what each pass changed."),
    click.option(
        "--dump-dir",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write NNN-pass.tfc after each pass.",
    ),
    click.option("--timing", is_flag=True, help="How long each pass took."),
    click.option("--statistics", is_flag=True, help="Ops before and after, rules that fired."),
    click.option("--remarks", is_flag=True, help="Why a fold or a fusion did not happen."),
    click.option(
        "--validate", is_flag=True, help="Interpret around each pass; fail where numbers move."
    ),
    click.option(
        "--stop-after-rewrite",
        type=click.IntRange(0),
        metavar="N",
        help="Stop after so many rewrites, counted over all passes.",
    ),
)


def inspection_options(command: CommandT) -> CommandT:
    """Adds the options to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def instruments(options: dict[str, Any], weights: Sequence[Path]) -> list[Instrument]:
    """What looks on while passes run, by the options. `weights` are the files of the constants."""
    from tfc.passes.instruments import DumpFolder, PrintAfter, PrintBefore, PrintChanges

    found: list[Instrument] = []
    if options["print_ir_before"]:
        found.append(PrintBefore(_names(options["print_ir_before"])))
    if options["print_ir_after"]:
        found.append(PrintAfter(_names(options["print_ir_after"])))
    if options["print_ir_after_change"]:
        found.append(PrintChanges(colour=sys.stderr.isatty()))
    if options["dump_dir"]:
        found.append(DumpFolder(options["dump_dir"], weights))
    if options["validate"]:
        from tfc.passes.validate import Validate

        found.append(Validate())
    return found


def _names(text: str) -> tuple[str, ...]:
    from tfc.passes.base import find_pass

    names = () if text == EVERY else tuple(text.split(","))
    for name in names:
        find_pass(name)  # a name that no pass has is a mistake, not a pass that never prints
    return names


def report(options: dict[str, Any], steps: Sequence[Step], context: PassContext) -> None:
    """Prints what was asked for to the standard error."""
    from tfc.report.passes import statistics, timing

    if context.exhausted:
        last = steps[-1].name if steps else "none"
        click.echo(f"stopped after rewrite {context.count}; the last pass was {last}", err=True)
    if options["timing"]:
        click.echo(timing(steps), err=True)
    if options["statistics"]:
        click.echo(statistics(steps), err=True)
    if options["remarks"]:
        for remark in context.remarks:
            click.echo(f"remark: {remark}", err=True)
