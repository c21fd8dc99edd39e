"""Names for the symbolic dimensions of an ONNX model, and sizes that the user fixes for some."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tfc.ir.core import DimInfo
from tfc.ir.errors import TfcError
from tfc.ir.expr import Dim, is_dimension_symbol, symbol

LEGAL = re.compile(r"[A-Z][A-Za-z0-9_]*")


class Symbols:
    """Gives each of the model's dimension names a symbol (a capital first, no lower-case x).

    `fixed` gives sizes to some, by the model's name or by the symbol; those become numbers.
    """

    def __init__(self, names: Iterable[str], fixed: Mapping[str, int]) -> None:
        self.infos: dict[str, DimInfo] = {}
        self._dims: dict[str, Dim] = {}
        names = list(dict.fromkeys(names))
        symbols = _chosen(names)
        _check_fixed(symbols, fixed)
        for name, chosen in symbols.items():
            size = fixed.get(name, fixed.get(chosen))
            self._dims[name] = symbol(chosen) if size is None else size
            if size is None:
                self.infos[chosen] = DimInfo(name)

    def __getitem__(self, name: str) -> Dim:
        return self._dims[name]


def _chosen(names: list[str]) -> dict[str, str]:
    """A symbol for each name: the name itself where it is legal."""
    taken = {name for name in names if _is_legal(name)}
    chosen: dict[str, str] = {}
    for name in names:
        free = (c for c in _candidates(name) if c not in taken)
        chosen[name] = name if _is_legal(name) else next(free)
        taken.add(chosen[name])
    return chosen


def _check_fixed(symbols: Mapping[str, str], fixed: Mapping[str, int]) -> None:
    for name, size in fixed.items():
        if name not in symbols and name not in symbols.values():
            known = ", ".join(symbols) or "none"
            raise TfcError(f"no dimension is named {name!r}", hint=f"the model's are: {known}")
        if size < 0:
            raise TfcError(f"dimension {name!r} cannot be {size}")


def _is_legal(name: str) -> bool:
    return bool(LEGAL.fullmatch(name)) and is_dimension_symbol(name)


def _candidates(name: str) -> Iterator[str]:
    """batch_size gives B, BS, then B2, B3, ..."""
    words = re.findall(r"[A-Za-z][A-Za-z0-9]*", name) or ["D"]
    yield words[0][0].upper()
    yield "".join(word[0].upper() for word in words)
    count = 2
    while True:
        yield f"{words[0][0].upper()}{count}"
        count += 1
