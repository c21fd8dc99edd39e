"""Checks that a module holds together: what every pass may rely on and must leave behind."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tfc.ir.core import Op


def check_fields(op: Op) -> None:
    """Operands, attributes and regions are those that the op's class declares."""
    _check_operands(op)
    for name, value in op.attributes.items():
        known = op.attribute_fields.get(name)
        if known is None:
            raise op.error(f"there is no attribute {name!r}", _nearest(name, op.attribute_fields))
        if wrong := known.check(value):
            raise op.error(wrong)
    for name, field in op.attribute_fields.items():
        if field.required and name not in op.attributes:
            raise op.error(f"the attribute {name} is missing")
    if len(op.regions) != len(op.region_fields):
        wanted = ", ".join(f.name for f in op.region_fields) or "none"
        raise op.error(f"it has {len(op.regions)} regions", f"its regions are: {wanted}")


def _check_operands(op: Op) -> None:
    fields = op.operand_fields
    variadic = bool(fields) and fields[-1].variadic
    if len(op.operands) > len(fields) and not variadic:
        wanted = ", ".join(f.name for f in fields) or "none"
        raise op.error(f"{len(op.operands)} operands are too many", f"its operands are: {wanted}")
    for number, field in enumerate(fields):
        missing = number >= len(op.operands) or op.operands[number] is None
        if field.required and missing:
            raise op.error(f"the operand {field.name} is missing")
    if variadic and any(v is None for v in op.operands[len(fields) - 1 :]):
        raise op.error(f"an operand of {fields[-1].name} is missing")


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, 3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(names)}" if names else "it has none"
