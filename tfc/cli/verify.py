"""`tfc verify`: checks the bytes of a bundle, and its outputs against other ways to get them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from tfc.cli.bundles import (
    BUNDLE,
    Step,
    bundle_options,
    choose_steps,
    open_bundle,
    sizes_text,
)
from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    import numpy as np

    from tfc.runtime import Bundle

Arrays: TypeAlias = "Mapping[str, np.ndarray[Any, Any]]"
USUAL_SIZE = 3  # of dimensions that no --dim gives


@click.command(
    "verify",
    epilog="Example: tfc verify model.tfb --against model.onnx --dim batch_size=2",
)
@BUNDLE
@click.option(
    "--against",
    metavar="MODEL|interpreter",
    help="An ONNX model (run by ONNX Runtime), a .tfc text (interpreted), or `interpreter`: what "
    "the bundle was compiled from, interpreted. Without it, only the bytes are checked.",
)
@click.option(
    "--source",
    type=click.Path(exists=True, dir_okay=False),
    metavar="MODEL",
    help="What `interpreter` interprets. [default: the model beside the bundle]",
)
@bundle_options
@click.option(
    "--tolerance",
    default=1e-3,
    show_default=True,
    help="Of floats: the largest error, as a part of the output's largest magnitude.",
)
def command(
    bundle: str, against: str | None, source: str | None, tolerance: float, **options: Any
) -> None:
    """Check every byte of BUNDLE by its hash, then compare outputs; exit 1 if they differ.

    Inputs that are not given are random; dimensions that are not given are 3. Of several functions,
    which run in turn on the same variables, the outputs of the last are compared, and the variables
    where the reference has them.
    """
    from tfc.runtime import load

    load(bundle, check="all").close()
    click.echo(f"{bundle}: every member is what its hash says")
    if against is None:
        return
    with open_bundle(bundle, options) as opened:
        steps = choose_steps(opened, options, USUAL_SIZE)
        reference = _reference(opened, bundle, against, source)
        compared = [
            _compared(opened, step, reference(step.function.name, step.inputs), tolerance)
            for step in steps
        ]
    click.echo(f"against {against}, {sizes_text(steps[-1].inputs)}")
    _report(compared[-1], tolerance)


def _compared(
    opened: Bundle, step: Step, expected: Arrays, tolerance: float
) -> list[tuple[Any, ...]]:
    """Runs a function; a row for each output, and for each variable that the reference has."""
    outputs = step.run()
    held = opened.state.variables
    found = {f"@{name}": array for name, array in held.items() if array is not None}
    names = [t.name for t in step.function.outputs]
    names += [name for name in expected if name.startswith("@")]
    return [_row(name, {**outputs, **found}, expected, tolerance) for name in names]


def _report(rows: Sequence[tuple[Any, ...]], tolerance: float) -> None:
    from tfc.report.table import table

    head = ("output", "type", "max ulp", "max abs", "max rel", "of scale", "")
    click.echo(table(head, rows))
    wrong = [row[0] for row in rows if row[-1] != "ok"]
    if wrong:
        click.echo(f"beyond the tolerance of {tolerance:g}: {', '.join(wrong)}", err=True)
        click.get_current_context().exit(1)


# ---- other ways to compute the outputs


def _reference(
    opened: Bundle, bundle: str, against: str, source: str | None
) -> Callable[[str, Arrays], Arrays]:
    if against == "interpreter":
        return _interpreter(source or _source_beside(opened, Path(bundle)))
    if not Path(against).is_file():
        raise TfcError("there is no such file", where=against, hint="or say `interpreter`")
    if against.endswith(".tfc"):
        return _interpreter(against)
    return _onnx_runtime(against)


def _source_beside(opened: Bundle, bundle: Path) -> str:
    """The model beside the bundle whose hash the bundle knows."""
    wanted = opened.manifest.get("source_sha256")
    for path in sorted(p for s in ("*.tfc", "*.onnx") for p in bundle.parent.glob(s)):
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == wanted:
                return str(path)
    text = "the model that the bundle was compiled from is not beside it"
    raise TfcError(text, where=str(bundle), hint="name it with --source")


def _interpreter(source: str) -> Callable[[str, Arrays], Arrays]:
    from tfc.cli.sources import read_module
    from tfc.interpret import interpret, state_of

    module = read_module(source)
    state = state_of(module)

    def run(name: str, inputs: Arrays) -> Arrays:
        outputs = interpret(module, inputs, name, state=state)
        left = {f"@{n}": a for n, a in state.variables.items() if a is not None}
        return {**outputs, **left}

    return run


def _onnx_runtime(model: str) -> Callable[[str, Arrays], Arrays]:
    try:
        import onnxruntime
    except ImportError as error:
        hint = "pip install onnxruntime, or compare with `interpreter`"
        raise TfcError("ONNX Runtime is not installed", hint=hint) from error
    try:
        session: Any = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise TfcError(f"ONNX Runtime cannot load it: {error}", where=model) from error
    names = [output.name for output in session.get_outputs()]
    taken = [given.name for given in session.get_inputs()]

    def run(_: str, inputs: Arrays) -> Arrays:
        results: Any = session.run(names, {n: inputs[n] for n in taken if n in inputs})
        return dict(zip(names, results, strict=True))

    return run


# ---- comparison


def _row(name: str, outputs: Arrays, expected: Arrays, tolerance: float) -> tuple[Any, ...]:
    """A line of the report: the largest errors of an output, and whether they are small enough."""
    import numpy as np

    if name not in expected:
        raise TfcError(
            f"the reference has no output {name!r}", hint=f"it has {', '.join(expected)}"
        )
    if name not in outputs:
        return name, "", "", "", "", "", "is not assigned"
    got, want = outputs[name], np.asarray(expected[name])
    kind = f"{want.dtype}{list(want.shape)}"
    if got.shape != want.shape or got.dtype.itemsize != want.dtype.itemsize:
        return name, kind, "", "", "", "", f"is {got.dtype}{list(got.shape)}"
    found = errors(got.view(want.dtype), want)
    bad = found["of scale"] > tolerance or found["misplaced"]
    shown = [f"{found[k]:.3g}" for k in ("max ulp", "max abs", "max rel", "of scale")]
    return name, kind, *shown, "WRONG" if bad else "ok"


def errors(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> dict[str, float]:
    """The largest errors of an array: in units in the last place, absolute, relative, of its scale.

    "misplaced" counts NaN and infinities, and elements that are no floats, that differ.
    """
    import numpy as np

    kinds = ("max ulp", "max abs", "max rel", "of scale", "misplaced")
    zero: dict[str, float] = {kind: 0.0 for kind in kinds}  # noqa: C420 (for the type of the keys)
    if not want.size:
        return zero
    is_float = want.dtype.kind == "f" or want.dtype.name == "bfloat16"
    a, b = got.astype(np.float64), want.astype(np.float64)
    if not is_float:
        return zero | {
            "max abs": float(np.abs(a - b).max()),
            "misplaced": float((got != want).sum()),
        }
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.abs(a - b)[finite]
    if not apart.size:
        return zero | {"misplaced": float((~same).sum())}
    magnitude = np.abs(b)[finite]
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(apart > 0, apart / magnitude, 0)
    return {
        "max ulp": float(_ulps(got, want)[finite].max()),
        "max abs": float(apart.max()),
        "max rel": float(relative.max()),
        "of scale": float(apart.max() / (magnitude.max() or 1)),
        "misplaced": float((~finite & ~same).sum()),
    }


def _ulps(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """How many floats lie between two, with 0.0 and -0.0 as one."""
    import numpy as np

    bits = np.dtype(f"i{want.dtype.itemsize}")
    a, b = (np.ascontiguousarray(v).view(bits).astype(np.float64) for v in (got, want))
    lowest = -float(2 ** (8 * bits.itemsize - 1))
    ordered = [np.where(v < 0, lowest - v, v) for v in (a, b)]
    return np.abs(ordered[0] - ordered[1])
