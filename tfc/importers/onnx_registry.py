"""The ONNX operators that tfc imports: one function for each meaning that an operator has had.

A handler is registered with every version of the operator (the opset that brought it) that it
serves, so that a model's opset picks the right one and a version unknown to us is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tfc.importers.onnx_context import Context, Result

OLDEST_OPSET, NEWEST_OPSET = 6, 28

Handler: TypeAlias = "Callable[[Context], Result]"


@dataclass(frozen=True, slots=True)
class Registered:
    """A handler and the version of the operator that it was chosen for."""

    version: int
    handler: Handler


HANDLERS: dict[tuple[str, str], dict[int, Handler]] = {}


def importer(op_type: str, *versions: int, domain: str = "") -> Callable[[Handler], Handler]:
    """Registers a function as the importer of some versions of an operator."""

    def register(function: Handler) -> Handler:
        known = HANDLERS.setdefault((domain, op_type), {})
        for version in versions:
            assert version not in known, f"{op_type}-{version} is registered twice"
            known[version] = function
        return function

    return register


def find_handler(domain: str, op_type: str, opset: int) -> Registered | None:
    """The importer of an operator as an opset defines it."""
    known = HANDLERS.get((domain, op_type), {})
    version = max((v for v in known if v <= opset), default=0)
    return Registered(version, known[version]) if version else None


def nearest_names(domain: str, op_type: str) -> list[str]:
    """Names of operators that can be imported and look like this one."""
    names = [name for known, name in HANDLERS if known == domain and name != op_type]
    return get_close_matches(op_type, names, 2, 0.75)
