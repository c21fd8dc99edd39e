"""`tfc demo`: compiles a small model to a bundle, and runs it on handwritten digits."""

from __future__ import annotations

import shlex
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

if TYPE_CHECKING:
    import numpy as np

    from tfc.driver import Summary

    Array: TypeAlias = "np.ndarray[Any, Any]"

DATA = Path(__file__).parent / "demo_data"
FILES = ("digits.tfc", "digits.safetensors", "images.npy", "labels.npy")
SHADES = " .:-=+*#%@"  # of pixels, which are 0 to 16
MARGIN = " " * 11  # before pictures, as wide as the words before predictions
RUNS = 30


@click.command("demo", epilog="Example: tfc demo -o /tmp/digits")
@click.option(
    "-o",
    "--output",
    "folder",
    default="tfc-demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder for the files; those of the same names are replaced.",
)
@click.option("--target", default="host", show_default=True, metavar="NAME")
def command(folder: Path, target: str) -> None:
    """Compile a classifier of handwritten digits, run it, and say what to try next.

    The model is a .tfc text with weights of our own; examples/01_digits trains it.
    """
    # numpy and the compiler take a while to import, which --help need not wait for.
    import numpy as np

    from tfc.driver import compile
    from tfc.runtime import load

    copy_data(folder)
    click.echo(f"{folder}: the model {FILES[0]}, its weights, and digits that it never saw")
    bundle = folder / "digits.tfb"
    click.echo(_compiled(compile(folder / FILES[0], bundle, target=target)))
    images, labels = np.load(folder / "images.npy"), np.load(folder / "labels.npy")
    started = time.perf_counter()
    with load(bundle) as opened:
        loading = time.perf_counter() - started
        digits = opened.run({"image": images})["digit"]
        one = _median(lambda: opened.run({"image": images[:1]}))
        every = _median(lambda: opened.run({"image": images}))
    click.echo(f"\n{pictures(images, labels, digits)}\n")
    right = int((digits == labels).sum())
    click.echo(f"{right} of {len(labels)} digits are right: {right / len(labels):.1%}")
    click.echo(_times(loading, one, every, len(labels)))
    click.echo(_next(folder))


def copy_data(folder: Path) -> None:
    """Copies the model and its data to a folder, which it makes."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copyfile(DATA / name, folder / name)


def _compiled(summary: Summary) -> str:
    from tfc.report.table import bytes_text, seconds_text

    code = ", ".join(f"code {bytes_text(size)} ({name})" for name, size in summary.code.items())
    return (
        f"{summary.path}: compiled in {seconds_text(sum(summary.seconds.values()))} to "
        f"{bytes_text(summary.size)}\n  {summary.kernels} kernels; {code}, "
        f"weights {bytes_text(summary.weights)}, the rest is what loads it"
    )


def _median(run: Callable[[], object]) -> float:
    """The median of the seconds that a run takes."""
    seconds: list[float] = []
    for _ in range(RUNS):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def pictures(images: Array, labels: Array, digits: Array) -> str:
    """Four digits: the first of three labels, and one that was not recognised if there is one."""
    first: dict[int, int] = {}
    for i, label in enumerate(labels):
        if digits[i] == label:
            first.setdefault(int(label), i)
    wrong = [i for i in range(len(labels)) if labels[i] != digits[i]][:1]
    shown = [*first.values()][: 4 - len(wrong)] + wrong
    return "\n".join(
        [
            draw(images[shown]),
            "predicted  " + "".join(f"{digits[i]:<18}" for i in shown).rstrip(),
            "right is   " + "".join(f"{labels[i]:<18}" for i in shown).rstrip(),
        ]
    )


def draw(images: Array) -> str:
    """Images side by side, two characters a pixel."""
    rows = [[_line(image[y]) for image in images.reshape(len(images), 8, 8)] for y in range(8)]
    return "\n".join((MARGIN + "  ".join(row)).rstrip() for row in rows)


def _line(pixels: Array) -> str:
    return "".join(2 * SHADES[int(p) * (len(SHADES) - 1) // 16] for p in pixels)


def _times(loading: float, one: float, every: float, count: int) -> str:
    from tfc.report.table import seconds_text

    return (
        f"loading took {seconds_text(loading)}, a run on one digit {seconds_text(one)}, "
        f"on all {count} {seconds_text(every)}"
    )


def _next(folder: Path) -> str:
    """The three commands to try next."""
    model, bundle, images, output = (
        shlex.quote(str(folder / name))
        for name in ("digits.tfc", "digits.tfb", "images.npy", "optimised.tfc")
    )
    return (
        "\nTry next:\n"
        f"  tfc opt {model} -p O3 --print-ir-after-change -o {output}\n"
        f"  tfc bench {bundle} --dim batch=64\n"
        f"  tfc verify {bundle} --against interpreter --input image=@{images}"
    )
