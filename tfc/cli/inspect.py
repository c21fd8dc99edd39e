"""`tfc inspect`: what is in a bundle, without running it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from tfc.cli.bundles import BUNDLE
from tfc.cli.sources import dimensions
from tfc.report.table import bytes_text, table

if TYPE_CHECKING:
    from tfc.runtime import Bundle, Function


@click.command("inspect", epilog="Example: tfc inspect model.tfb --dim S=128 --kernels")
@BUNDLE
@click.option("--dim", multiple=True, metavar="NAME=N", help="Show sizes in numbers.")
@click.option("--kernels", is_flag=True, help="A line for each launch of a kernel.")
@click.option("--manifest", is_flag=True, help="Print manifest.json and nothing else.")
@click.option("--target", metavar="NAME", help="The code to open. [default: the best here]")
def command(
    bundle: str, dim: tuple[str, ...], kernels: bool, manifest: bool, target: str | None
) -> None:
    """Show signature, targets, sizes, memory plan, kernels and changes of layout of BUNDLE."""
    from tfc.runtime import load

    sizes = {k: n for k, n in dimensions(dim).items() if isinstance(n, int)}
    with load(bundle, target=target) as opened:
        if manifest:
            click.echo(json.dumps(opened.manifest, indent=1))
            return
        click.echo("\n".join(_lines(opened, sizes, kernels)))


def _lines(opened: Bundle, sizes: Mapping[str, int], kernels: bool) -> Iterator[str]:
    manifest = opened.manifest
    yield f"sha256 {opened.sha256}; pipeline of -O{manifest.get('opt_level', '?')}"
    tools: dict[str, str] = manifest.get("tools", {})
    yield f"made by {', '.join(f'{k} {v}' for k, v in tools.items()) or 'unknown tools'}"
    for function in opened.functions.values():
        yield ""
        yield function.signature()
        yield from _symbols(function)
        yield from _effects(function)
        detail: dict[str, Any] = manifest.get("functions_detail", {}).get(function.name, {})
        yield from _plan(function, detail, sizes)
        yield from layout_changes(detail)
        if kernels:
            yield from _launches(detail)
    yield from _variables(opened)
    yield ""
    rows = [(t.name, ", ".join(t.requires) or "nothing special") for t in opened.targets]
    yield table(("target", "needs"), rows)
    yield ""
    members = [(m.name, m.size, bytes_text(m.size)) for m in opened.members]
    yield table(("member", "bytes", ""), members)


def _symbols(function: Function) -> Iterator[str]:
    for symbol in function.symbols:
        high = "" if symbol.maximum is None else symbol.maximum
        short = f" ({symbol.symbol} in the IR)" if symbol.symbol != symbol.name else ""
        yield f"  {symbol.name}{short}: {symbol.minimum}..{high}"


def _effects(function: Function) -> Iterator[str]:
    if function.info.stateful:
        yield "  reads or writes variables"
    if function.info.host_ops:
        yield f"  {function.info.host_ops} ops run in the loader"


def _variables(opened: Bundle) -> Iterator[str]:
    """The variables, and how large they are."""
    if not opened.variables:
        return
    state = opened.state
    rows = [
        (f"@{v.name}", str(v).partition(": ")[2], state.nbytes(v.name)) for v in opened.variables
    ]
    yield ""
    yield table(("variable", "type", "bytes"), rows)


def _plan(function: Function, detail: Mapping[str, Any], sizes: Mapping[str, int]) -> Iterator[str]:
    """The size of the arena, and of it in numbers where the sizes are known."""
    launches: list[dict[str, Any]] = detail.get("launches", [])
    names = list(dict.fromkeys(launch["kernel"] for launch in launches))
    yield f"  {len(launches)} launches of {len(names)} kernels"
    arena = str(detail.get("arena", "0"))
    bound = {s.symbol: sizes[n] for s in function.symbols for n in (s.name, s.symbol) if n in sizes}
    value = _evaluate(arena, bound)
    yield f"  arena: {arena} bytes" + ("" if value is None else f" = {bytes_text(value)}")


def _evaluate(text: str, symbols: Mapping[str, int]) -> int | None:
    """The value of an expression of dimensions; None where a symbol is not known."""
    from tfc.text.expressions import read_expression
    from tfc.text.source import Source

    expression = read_expression(Source(text, "<arena>"), 0, text)
    if isinstance(expression, int):
        return expression
    known = all(s in symbols for s in expression.symbols())
    return expression.evaluate(symbols) if known else None


def layout_changes(detail: Mapping[str, Any]) -> Iterator[str]:
    """The launches that write another layout than they read."""
    for launch in detail.get("launches", []):
        read = [_layout(t) for t in launch.get("operands", []) if _rank(t) > 1]
        written = [_layout(t) for t in launch.get("results", []) if _rank(t) > 1]
        for before in dict.fromkeys(read):
            for after in dict.fromkeys(written):
                if before != after:
                    nodes = ", ".join(launch["nodes"][:3])
                    yield f"  layout {before} -> {after} in {launch['kernel']} ({nodes})"


def _layout(kind: str) -> str:
    match = re.search(r", (\w+)>$", kind)
    return match[1] if match else "plain"


def _rank(kind: str) -> int:
    return kind.partition(",")[0].count("x")


def _launches(detail: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (n, launch["kernel"], "x".join(launch["grid"]) or "1", ", ".join(launch["offset"]),
         ", ".join(launch["results"]), ", ".join(launch["nodes"]))
        for n, launch in enumerate(detail.get("launches", []))
    ]  # fmt: skip
    yield ""
    yield table(("", "kernel", "grid", "offset", "results", "nodes"), rows)
