"""`tfc demo`: compiles a small model to a bundle, and runs it on handwritten digits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import numpy as np

DATA = Path(__file__).parent / "demo_data"
SHOWN = 6  # digits that are drawn
SHADES = " .:-=+*#%@"  # of pixels, which are 0 to 16


@click.command("demo", epilog="Example: tfc demo -o digits.tfb")
@click.option("-o", "--output", default="digits.tfb", show_default=True, metavar="FILE")
@click.option("--target", default="host", show_default=True, metavar="NAME")
def command(output: str, target: str) -> None:
    """Compile a classifier of handwritten digits, run it, and say what to try next.

    The model is a .tfc text with weights of our own; examples/01_digits shows how it was trained.
    """
    import numpy as np

    from tfc.cli.compile import summary_text
    from tfc.driver import compile
    from tfc.runtime import load

    click.echo(f"Compiling {DATA / 'digits.tfc'} for {target}")
    click.echo(summary_text(compile(DATA / "digits.tfc", output, target=target)))
    images, labels = np.load(DATA / "images.npy"), np.load(DATA / "labels.npy")
    started = time.perf_counter()
    with load(output) as bundle:
        loaded = time.perf_counter()
        scores = bundle(images)[0]
        finished = time.perf_counter()
    click.echo(f"\n{draw(images[:SHOWN])}")
    click.echo("predicted " + "".join(f"{n:<10}" for n in scores[:SHOWN].argmax(1)))
    click.echo(_results(scores, labels, loaded - started, finished - loaded))
    click.echo(_next(output))


def draw(images: np.ndarray[Any, Any]) -> str:
    """Images side by side, a character a pixel."""
    rows = [[_line(image, y) for image in images.reshape(len(images), 8, 8)] for y in range(8)]
    return "\n".join(" " * 10 + "  ".join(row) for row in rows)


def _line(image: np.ndarray[Any, Any], y: int) -> str:
    return "".join(SHADES[int(p) * (len(SHADES) - 1) // 16] for p in image[y])


def _results(
    scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], load: float, run: float
) -> str:
    from tfc.report.table import seconds_text

    right = int((scores.argmax(1) == labels).sum())
    return (
        f"\n{right} of {len(labels)} digits that it never saw are right\n"
        f"loading took {seconds_text(load)}, the first run {seconds_text(run)} "
        f"({seconds_text(run / len(labels))} a digit)"
    )


def _next(output: str) -> str:
    """The three commands to try next."""
    return (
        "\nTry next:\n"
        f"  tfc inspect {output}\n"
        f"  tfc bench {output} --dim batch_size=64\n"
        f"  tfc opt {DATA / 'digits.tfc'} -p O3,kernels --print-ir-after-change"
    )
