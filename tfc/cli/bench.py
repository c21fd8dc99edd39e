"""`tfc bench`: how long a bundle takes, and each of its kernels."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from tfc.cli.bundles import (
    BUNDLE,
    bundle_options,
    choose_steps,
    open_bundle,
    sizes_text,
)
from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    import numpy as np

    from tfc.runtime import Bundle, Function

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"
PROFILES = 20  # runs that time each kernel, of which the medians count
USUAL_SIZE = 1  # of dimensions that no --dim gives


@click.command(
    "bench",
    epilog="Example: tfc bench model.tfb --dim batch_size=1 --dim sequence_length=128 --threads 1",
)
@BUNDLE
@bundle_options
@click.option("--seconds", default=2.0, show_default=True, help="How long to measure.")
@click.option("--warmup", default=3, show_default=True, help="Runs before that.")
@click.option("--kernels/--no-kernels", default=True, show_default=True, help="Time kernels too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--profile-out",
    metavar="FILE",
    help="Write the seconds of each node, which `placement{cost=FILE}` reads.",
)
def command(
    bundle: str,
    seconds: float,
    warmup: int,
    kernels: bool,
    as_json: bool,
    profile_out: str | None,
    **options: Any,
) -> None:
    """Measure BUNDLE: median, 90th percentile and minimum of a run, throughput, peak memory.

    Inputs that are not given are random; dimensions that are not given are 1. Of several functions
    the last is measured, and the others run once before, so that it finds its variables.
    """
    started = time.perf_counter()
    opened = open_bundle(bundle, options)
    load_seconds = time.perf_counter() - started
    with opened:
        *before, last = choose_steps(opened, options, USUAL_SIZE)
        function, inputs = last.function, last.inputs
        for step in before:
            step.run()
        first = _timed(function, inputs)
        for _ in range(warmup):
            function.run(inputs)
        result = _summary(_measure(function, inputs, seconds))
        result |= {"load": load_seconds, "first_run": first, "peak_memory": _peak_memory()}
        result |= {"inputs": sizes_text(inputs), "target": opened.target}
        wanted = kernels or profile_out is not None
        result["kernels"] = kernel_times(opened, function, inputs) if wanted else []
    if profile_out is not None:
        write_profile(Path(profile_out), result["kernels"])
    click.echo(json.dumps(result, indent=1) if as_json else _text(result))


def _timed(function: Function, inputs: Arrays) -> float:
    started = time.perf_counter()
    function.run(inputs)
    return time.perf_counter() - started


def _measure(function: Function, inputs: Arrays, seconds: float) -> list[float]:
    """The seconds of single runs, one after another, at least 5."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        times.append(_timed(function, inputs))
    return times


def _summary(times: Sequence[float]) -> dict[str, Any]:
    import numpy as np

    median, p90 = (float(q) for q in np.quantile(np.array(times), (0.5, 0.9)))
    return {
        "runs": len(times),
        "median": median,
        "p90": p90,
        "min": min(times),
        "throughput": len(times) / sum(times),
    }


def _peak_memory() -> int:
    """The most bytes that this process held at once."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def kernel_times(opened: Bundle, function: Function, inputs: Arrays) -> list[dict[str, Any]]:
    """The median seconds of each kernel, with the nodes of the user's model that it computes."""
    import numpy as np

    ticks = [function.profile(inputs)[1] for _ in range(PROFILES)]
    medians = np.median(np.stack(ticks), axis=0) / 1e9
    details = opened.manifest.get("functions_detail", {}).get(function.name, {})
    launches: list[dict[str, Any]] = details.get("launches", [])
    known = launches if len(launches) == len(medians) else [{}] * len(medians)
    return [
        {"kernel": k.get("kernel", f"#{i}"), "seconds": float(s), "nodes": k.get("nodes", [])}
        for i, (k, s) in enumerate(zip(known, medians, strict=True))
    ]


def write_profile(path: Path, kernels: Sequence[dict[str, Any]]) -> None:
    """Seconds by node; the nodes of one kernel share its time.

    Raises TfcError where the file cannot be written, or no kernel names a node.
    """
    from tfc.report.files import write_file

    nodes: dict[str, float] = {}
    for kernel in kernels:
        for node in kernel["nodes"]:
            nodes[node] = nodes.get(node, 0.0) + kernel["seconds"] / len(kernel["nodes"])
    if not nodes:
        hint = "ops get names from the importer, or from `loc(...)` in the text"
        raise TfcError("no kernel names a node, so there is no profile", hint=hint)
    write_file(path, json.dumps({"kind": "cpu", "nodes": nodes}, indent=1) + "\n")


def _text(result: dict[str, Any]) -> str:
    from tfc.report.table import bytes_text, seconds_text, table

    lines = [
        f"{result['target']}, {result['inputs']}",
        "  ".join(f"{k} {seconds_text(result[k])}" for k in ("median", "p90", "min")),
        f"{result['throughput']:.1f} runs a second over {result['runs']} runs",
        f"load {seconds_text(result['load'])}, first run {seconds_text(result['first_run'])}, "
        f"peak memory {bytes_text(result['peak_memory'])}",
    ]
    total = sum(k["seconds"] for k in result["kernels"]) or 1.0
    if result["kernels"]:
        ordered = sorted(result["kernels"], key=lambda k: -k["seconds"])
        rows = [
            (k["kernel"], seconds_text(k["seconds"]), f"{k['seconds'] / total:.1%}", _nodes(k))
            for k in ordered
        ]
        lines += ["", table(("kernel", "time", "part", "nodes"), rows)]
    return "\n".join(lines)


def _nodes(kernel: dict[str, Any]) -> str:
    nodes: list[str] = kernel["nodes"]
    return ", ".join(nodes[:4]) + (f", and {len(nodes) - 4} more" if len(nodes) > 4 else "")
