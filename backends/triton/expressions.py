"""Index expressions and bounds as Triton text.

The axis variables `r` and `c` become ranges of the padded extent, laid along the rows and the
columns; they are named after it (`r64`, `c32`) and made once at the top of the kernel. Parts of an
expression that are known for the whole program come first, so that Triton adds them as scalars.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from tfc.ir.core import Kernel
from tfc.ir.expr import ZERO, Call, Dim, Expr, Monomial, as_expr, extreme, is_nonnegative, simplify
from tfc.tile import ops as t


class Expressions:
    """Prints expressions over the variables of one kernel.

    `wide`: indices are 64-bit. `axes` collects the ranges that the text uses.
    """

    def __init__(self, kernel: Kernel, wide: bool) -> None:
        self.wide = wide
        self.axes: dict[tuple[str, int], str] = {}
        self.needs: dict[str, None] = {}  # helpers that the text calls
        self._ranges: dict[str, tuple[Expr, Expr]] = {
            name: (ZERO, as_expr(n) - 1) for name, n in kernel.grid
        }
        self._single: dict[str, Dim] = {name: 0 for name, n in kernel.grid if n == 1}
        self._casts = False  # whether each atom is cast to 64 bits

    @contextmanager
    def loop(self, op: t.For) -> Generator[None]:
        """Knows the range of a loop's variable inside."""
        outer = self._ranges.get(op.index)
        start, stop = as_expr(op.start), as_expr(op.stop)
        span = (stop - start).constant
        last = stop - 1 if span is None else start + max(0, -(-span // op.step) - 1) * op.step
        self._ranges[op.index] = start, last
        yield
        del self._ranges[op.index]
        if outer is not None:
            self._ranges[op.index] = outer

    # ---- expressions

    def axis(self, letter: str, extent: int) -> str:
        """The name of the range along an axis."""
        return self.axes.setdefault((letter, extent), f"{letter}{extent}")

    def text(self, e: Dim, logical: tuple[int, int], padded: tuple[int, int]) -> str:
        """An expression at the elements of a tile."""
        return self._sum(self.reduced(e, logical), logical, padded)

    def text64(self, e: Dim, logical: tuple[int, int], padded: tuple[int, int]) -> str:
        """The same, computed in 64 bits."""
        self._casts = not self.wide
        try:
            return self.text(e, logical, padded)
        finally:
            self._casts = False

    def reduced(self, e: Dim, logical: tuple[int, int]) -> Expr:
        """The expression without what a tile of this shape does not need."""
        single = dict(self._single)
        single |= {v: 0 for v, n in zip((t.ROW, t.COLUMN), logical, strict=True) if n == 1}
        found = as_expr(e).substitute(single)
        return simplify(found, self._at(logical))

    def _at(self, logical: tuple[int, int]) -> dict[str, tuple[Expr, Expr]]:
        rows, cols = logical
        axes = {t.ROW: (ZERO, as_expr(rows - 1)), t.COLUMN: (ZERO, as_expr(cols - 1))}
        return self._ranges | axes

    def _sum(self, e: Expr, logical: tuple[int, int], padded: tuple[int, int]) -> str:
        terms = sorted(e.terms.items(), key=lambda term: _order(*term))
        parts = [self._term(m, factor, logical, padded) for m, factor in terms]
        text = "".join(parts)
        return f"-{text[3:]}" if text.startswith(" - ") else text[3:] or "0"

    def _term(
        self, m: Monomial, factor: int, logical: tuple[int, int], padded: tuple[int, int]
    ) -> str:
        sign = " - " if factor < 0 else " + "
        factors = [str(abs(factor))] if abs(factor) != 1 or not m else []
        return sign + "*".join(factors + [self._atom(a, logical, padded) for a in m])

    def _atom(self, atom: str, logical: tuple[int, int], padded: tuple[int, int]) -> str:
        if not isinstance(atom, Call):
            extent = {t.ROW: padded[0], t.COLUMN: padded[1]}.get(atom)
            name = atom if extent is None else self.axis(atom, extent)
            return f"tl.cast({name}, tl.int64)" if self._casts else name
        a = self._sum(atom.lhs, logical, padded)
        b = self._sum(atom.rhs, logical, padded)
        if atom.op in ("min", "max"):
            return f"tl.{atom.op}imum({a}, {b})"
        sign = {"floordiv": "//", "mod": "%"}[atom.op]
        if is_nonnegative(atom.lhs, self._at(logical)):
            return f"({grouped(a)} {sign} {grouped(b)})"
        # Triton divides toward zero.
        helper = f"floor_{atom.op.removeprefix('floor')}"
        self.needs[helper] = None
        return f"{helper}({a}, {b})"

    # ---- bounds

    def mask(
        self, where: tuple[Dim, ...], logical: tuple[int, int], padded: tuple[int, int]
    ) -> list[tuple[str, frozenset[str]]]:
        """The comparisons that are not proved, each with the axes on which it depends."""
        out: list[tuple[str, frozenset[str]]] = []
        ranges = self._at(logical)
        for low, e, high in t.bounds(where):
            low, e, high = (self.reduced(x, logical) for x in (low, e, high))
            axes = frozenset({t.ROW, t.COLUMN}.intersection(e.symbols()))
            text = self._sum(e, logical, padded)
            if not _holds(e - low, ranges):
                out.append((f"({text} >= {self._sum(low, logical, padded)})", axes))
            if not _holds(high - 1 - e, ranges):
                out.append((f"({text} < {self._sum(high, logical, padded)})", axes))
        return out

    def below(self, e: Dim, logical: tuple[int, int], limit: int) -> bool:
        """Whether every value of an expression is proved to lie between 0 and the limit."""
        found, ranges = self.reduced(e, logical), self._at(logical)
        most = extreme(found, ranges, True).constant
        return most is not None and most < limit and is_nonnegative(found, ranges)


def padding(text: str, axis: str, logical: int, padded: int) -> list[tuple[str, frozenset[str]]]:
    """The comparison that tells the elements of an axis from its padding."""
    return [] if logical == padded else [(f"({text} < {logical})", frozenset({axis}))]


def conjunction(masks: Sequence[str]) -> str:
    return " & ".join(dict.fromkeys(masks))


def _holds(e: Expr, ranges: dict[str, tuple[Expr, Expr]]) -> bool:
    return is_nonnegative(simplify(e, ranges), ranges)


def grouped(text: str) -> str:
    """The text of an expression as a factor."""
    return text if text.isalnum() or _is_one(text) else f"({text})"


def _is_one(text: str) -> bool:
    """Whether a text is in parentheses from its first to its last character."""
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return place == len(text) - 1 and text.startswith("(")
    return False


def _order(monomial: Monomial, factor: int) -> tuple[int, bool, int, str]:
    """Scalars first, then what runs along the rows, the columns, both; longer products first."""
    symbols = set(Expr({monomial: 1}).symbols())
    along = (t.ROW in symbols) + 2 * (t.COLUMN in symbols)
    return along, factor < 0, -len(monomial), "*".join(monomial)


__all__ = ["Expressions", "conjunction", "grouped", "padding"]
