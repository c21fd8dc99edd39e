"""`tfc run`: runs a bundle and prints or saves its outputs."""

from __future__ import annotations

from typing import Any

import click

from tfc.cli.bundles import BUNDLE, bundle_options, choose_steps, open_bundle


@click.command(
    "run",
    epilog="Example: tfc run model.tfb --input x=@x.npy --input n=3 --output-dir results",
)
@BUNDLE
@bundle_options
@click.option("--output-dir", metavar="DIR", help="Write each output to DIR/NAME.npy.")
def command(bundle: str, output_dir: str | None, **options: Any) -> None:
    """Run a function of BUNDLE, and print its outputs.

    Functions that use variables need those that assign them first: --function init --function
    train_step.
    """
    from tfc.runtime.main import print_outputs, save_outputs

    with open_bundle(bundle, options) as opened:
        steps = choose_steps(opened, options)
        outputs = [step.run() for step in steps][-1]
        if output_dir:
            save_outputs(outputs, output_dir)
        print_outputs(steps[-1].function.outputs, outputs)
