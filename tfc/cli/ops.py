"""`tfc ops`: the graph ops and the tile ops, in a table made from their classes."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
from typing import TYPE_CHECKING

import click

from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    from tfc.ir.core import Op

COLUMNS = ("op", "level", "kind", "reference", "gradient", "exact", "effects", "source")


@click.command("ops", epilog="Example: tfc ops softmax")
@click.argument("name", required=False)
@click.option("--level", type=click.Choice(["graph", "tile", "any"]), help="Only ops of a level.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
)
def command(name: str | None, level: str | None, form: str) -> None:
    """List all ops, or show what NAME means, takes and gives, and where it lives.

    Ops from elsewhere are listed after `tfc --load my_ops.py ops`.
    """
    ops = load_ops()
    if name is not None:
        click.echo(describe(name, ops))
        return
    rows = [row(op) for op in ops.values() if level in (None, op.level)]
    click.echo(FORMS[form](rows))


def load_ops() -> dict[str, type[Op]]:
    """Every op, sorted by name."""
    from tfc.ir.core import OPS

    importlib.import_module("tfc.ops")
    importlib.import_module("tfc.tile.ops")
    return dict(sorted(OPS.items()))


def row(op: type[Op]) -> dict[str, str]:
    """What the table says of an op."""
    return {
        "op": op.name,
        "level": op.level,
        "kind": _kind(op),
        "reference": "yes" if _defines(op, "reference") else "",
        "gradient": _gradient(op),
        "exact": "yes" if getattr(op, "exact", False) else "",
        "effects": "" if not op.effects else str(op.effects).removeprefix("Effect."),
        "source": source(op),
    }


def _kind(op: type[Op]) -> str:
    from tfc.ops.base import Elementwise, View, is_composite

    if op.terminator:
        return "terminator"
    if is_composite(op):
        return "composite"
    if op.level == "tile":
        return "tile"
    return next((k.__name__.lower() for k in (Elementwise, View) if issubclass(op, k)), "primitive")


def _defines(op: type[Op], method: str) -> bool:
    """Whether an op has a method of its own, or one of a family's, beyond the base class's."""
    owner = next((k for k in op.__mro__ if method in vars(k)), None)
    return owner is not None and owner.__name__ not in ("Op", "GraphOp", "TileOp")


def _gradient(op: type[Op]) -> str:
    """Whether an op has a gradient; "none" where no gradient passes through it."""
    if op.level == "tile" or op.terminator or getattr(op, "gradient_needs", ""):
        return ""
    return "yes" if getattr(op, "differentiable", False) else "none"


def source(op: type[Op]) -> str:
    """What the docstring names as the op's source."""
    match = re.search(
        r"Source:\s*(.*?)(?:\.\s|\.$|\n\s*\n)", (op.__doc__ or "") + "\n\n", re.DOTALL
    )
    return " ".join(match[1].split()) if match else ""


def describe(name: str, ops: dict[str, type[Op]]) -> str:
    """The docstring of an op, its fields, and its file and line."""
    if name not in ops:
        import difflib

        close = difflib.get_close_matches(name, ops, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else "`tfc ops` lists all"
        raise TfcError(f"no op is named {name!r}", hint=hint)
    op = ops[name]
    lines = [f"{name}: {_kind(op)}, level {op.level}, {place(op)}", "", inspect.getdoc(op) or ""]
    lines += ["", f"operands: {', '.join(map(_operand, op.operand_fields)) or 'none'}"]
    for field in op.attribute_fields.values():
        default = "" if field.required else f" = {field.default}"
        lines.append(f"attribute {field.name}: {field.kind}{default}")
    if op.region_fields:
        lines.append(f"regions: {', '.join(f.name for f in op.region_fields)}")
    return "\n".join(lines)


def _operand(field: object) -> str:
    from tfc.ir.fields import OperandField

    assert isinstance(field, OperandField)
    return f"{field.name}{'*' if field.variadic else '' if field.required else '?'}"


def place(op: type[Op]) -> str:
    """The file and line of a class; the file relative to where one stands, if it is below."""
    file, line = inspect.getsourcefile(op), inspect.getsourcelines(op)[1]
    assert file is not None, f"{op.name} has no file"
    relative = os.path.relpath(file)
    return f"{file if relative.startswith('..') else relative}:{line}"


def _text(rows: list[dict[str, str]]) -> str:
    from tfc.report.table import table

    return f"{table(COLUMNS, [list(r.values()) for r in rows])}\n{len(rows)} ops"


def _markdown(rows: list[dict[str, str]]) -> str:
    lines = [COLUMNS, tuple("---" for _ in COLUMNS), *(tuple(r.values()) for r in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _json(rows: list[dict[str, str]]) -> str:
    return json.dumps(rows, indent=1)


FORMS = {"text": _text, "markdown": _markdown, "json": _json}
