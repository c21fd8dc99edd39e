"""Index expressions as i64 values, each part computed at the outermost place where it is known.

Beyond the symbols of the kernel an expression may hold counters of loops that the lowering makes,
and `LANE`, the number of the lane: such an expression is a vector.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfc.ir.expr import (
    ZERO,
    Call,
    Dim,
    Expr,
    Monomial,
    as_expr,
    is_nonnegative,
    simplify,
    symbol,
)

if TYPE_CHECKING:
    from tfc.backends.llvm.registers import Vectors
    from tfc.backends.llvm.writer import Writer

LANE = "%lane"
LANE_SYMBOL = symbol(LANE)


class Indices:
    """The values of symbols and of expressions over them."""

    def __init__(self, writer: Writer, vectors: Vectors) -> None:
        self.writer = writer
        self.vectors = vectors
        self.values: dict[str, tuple[str, int]] = {}  # symbol -> (value, depth where it is known)
        self.ranges: dict[str, tuple[Expr, Expr]] = {LANE: (ZERO, as_expr(vectors.lanes - 1))}
        self.replaced: dict[str, Expr] = {}  # variables of tile loops -> expressions of counters

    # ---- symbols

    def bind(self, name: str, value: str, low: Dim = 0, high: Dim | None = None) -> None:
        """Gives a symbol its value, known from the current place on, and its range."""
        self.values[name] = value, self.writer.depth
        if high is not None:
            self.ranges[name] = as_expr(low), as_expr(high)

    def release(self, name: str) -> None:
        del self.values[name]
        self.ranges.pop(name, None)

    def counter(self, value: str, low: Dim = 0, high: Dim | None = None) -> Expr:
        """A new symbol for the counter of a loop."""
        self.bind(value, value, low, high)
        return symbol(value)

    @contextmanager
    def replacing(self, name: str, by: Expr) -> Generator[None]:
        """Inside, the variable of a tile loop is this expression."""
        outer = self.replaced.get(name)
        self.replaced[name] = by
        try:
            yield
        finally:
            if outer is None:
                del self.replaced[name]
            else:
                self.replaced[name] = outer

    def settle(self, e: Dim, more: Mapping[str, Dim] | None = None) -> Expr:
        """An attribute's expression over symbols that have values, simplified."""
        known: dict[str, Dim] = dict(self.replaced)
        if more:
            known.update(more)
        return simplify(as_expr(e).substitute(known), self.ranges)

    def at_least(self, e: Expr, low: int) -> bool:
        """Whether e >= low is proved."""
        return is_nonnegative(e - low, self.ranges)

    # ---- scalars

    def depth(self, e: Expr) -> int:
        return max((self._atom_depth(a) for m in e.terms for a in m), default=0)

    def _atom_depth(self, atom: str) -> int:
        if isinstance(atom, Call):
            return max(self.depth(atom.lhs), self.depth(atom.rhs))
        return self.values[atom][1]

    def value(self, dim: Dim) -> str:
        """The value of an expression, as an i64 operand."""
        e = as_expr(dim)
        constant = e.constant
        if constant is not None:
            return str(constant)
        depth = self.depth(e)
        memo = self.writer.remembered_at(depth)
        if e not in memo:
            memo[e] = self._sum(e, depth)
        return memo[e]

    def _sum(self, e: Expr, depth: int) -> str:
        """The terms of outer places first, then the others one by one."""
        outer: dict[Monomial, int] = {}
        inner: list[tuple[Monomial, int]] = []
        for monomial, factor in e.terms.items():
            known = max((self._atom_depth(a) for a in monomial), default=0) < depth
            if known and depth:
                outer[monomial] = factor
            else:
                inner.append((monomial, factor))
        total = self.value(Expr(outer)) if outer else None
        for monomial, factor in inner:
            term = self._product(monomial, factor, depth)
            total = term if total is None else self._at(depth, f"add nsw i64 {total}, {term}")
        assert total is not None, "an empty sum is a constant"
        return total

    def _product(self, monomial: Monomial, factor: int, depth: int) -> str:
        if not monomial:
            return str(factor)
        ordered = sorted(monomial, key=self._atom_depth)
        outer = [a for a in ordered if self._atom_depth(a) < depth]
        inner = ordered[len(outer) :]
        if outer:
            total = self.value(Expr({tuple(sorted(outer)): factor}))
        else:
            total, inner = self._atom(inner[0]), inner[1:]
            if factor != 1:
                total = self._at(depth, f"mul nsw i64 {total}, {factor}")
        for atom in inner:
            total = self._at(depth, f"mul nsw i64 {total}, {self._atom(atom)}")
        return total

    def _at(self, depth: int, text: str) -> str:
        return self.writer.value_at(depth, text)

    def _atom(self, atom: str) -> str:
        if not isinstance(atom, Call):
            return self.values[atom][0]
        depth = self._atom_depth(atom)
        if atom.op in ("min", "max"):
            self.writer.declare(f"i64 @llvm.s{atom.op}.i64(i64, i64)")
            x, y = self.value(atom.lhs), self.value(atom.rhs)
            return self._at(depth, f"call i64 @llvm.s{atom.op}.i64(i64 {x}, i64 {y})")
        x, y = self.value(atom.lhs), self._divisor(atom.rhs, depth)
        if is_nonnegative(atom.lhs, self.ranges):
            return self._at(depth, f"{_UNSIGNED[atom.op]} i64 {x}, {y}")
        rest = self._at(depth, f"srem i64 {x}, {y}")
        low = self._at(depth, f"ashr i64 {rest}, 63")
        if atom.op == "mod":
            added = self._at(depth, f"and i64 {low}, {y}")
            return self._at(depth, f"add nsw i64 {rest}, {added}")
        quotient = self._at(depth, f"sdiv i64 {x}, {y}")
        return self._at(depth, f"add nsw i64 {quotient}, {low}")

    def _divisor(self, e: Expr, depth: int) -> str:
        """A divisor, at least 1: a dimension may be 0 where nothing is computed in the end."""
        y = self.value(e)
        if e.constant is not None:
            assert e.constant > 0, f"a division by {e}"
            return y
        self.writer.declare("i64 @llvm.smax.i64(i64, i64)")
        return self._at(depth, f"call i64 @llvm.smax.i64(i64 {y}, i64 1)")

    # ---- vectors

    def vector(self, e: Expr) -> str:
        """The value of an expression over LANE, an i64 for each lane."""
        depends = {m: c for m, c in e.terms.items() if _has_lane(m)}
        rest = Expr({m: c for m, c in e.terms.items() if m not in depends})
        kind = self.vectors.type_text("i64", True)
        total = None if rest == 0 and depends else self._splat(rest)
        for monomial, factor in depends.items():
            if monomial == (LANE,):
                term = self.vectors.iota("i64", factor)
            else:
                term = self._vector_term(monomial, factor, kind)
            add = f"add nsw {kind} {total}, {term}"
            total = term if total is None else self.writer.pure(add)
        assert total is not None
        return total

    def _splat(self, e: Expr) -> str:
        return self.vectors.splat_text(self.value(e), "i64")

    def _vector_term(self, monomial: Monomial, factor: int, kind: str) -> str:
        plain = tuple(a for a in monomial if not _has_lane((a,)))
        total = self._splat(Expr({plain: factor}))
        for atom in monomial:
            if atom in plain:
                continue
            if isinstance(atom, Call):
                value = self._vector_call(atom, kind)
            else:
                value = self.vectors.iota("i64")
            total = self.writer.pure(f"mul nsw {kind} {total}, {value}")
        return total

    def _vector_call(self, atom: Call, kind: str) -> str:
        x, y = self.vector(atom.lhs), self.vector(atom.rhs)
        if atom.op in ("min", "max"):
            return self.vectors.intrinsic(f"s{atom.op}", "i64", True, x, y)
        if atom.rhs.constant is None:
            y = self.vectors.intrinsic("smax", "i64", True, y, "splat (i64 1)")
        if is_nonnegative(atom.lhs, self.ranges):
            return self.writer.pure(f"{_UNSIGNED[atom.op]} {kind} {x}, {y}")
        rest = self.writer.pure(f"srem {kind} {x}, {y}")
        low = self.writer.pure(f"ashr {kind} {rest}, splat (i64 63)")
        if atom.op == "mod":
            added = self.writer.pure(f"and {kind} {low}, {y}")
            return self.writer.pure(f"add nsw {kind} {rest}, {added}")
        quotient = self.writer.pure(f"sdiv {kind} {x}, {y}")
        return self.writer.pure(f"add nsw {kind} {quotient}, {low}")


_UNSIGNED = {"floordiv": "udiv", "mod": "urem"}


def _has_lane(monomial: Monomial) -> bool:
    return any(
        a == LANE or (isinstance(a, Call) and (LANE in a.lhs.symbols() or LANE in a.rhs.symbols()))
        for a in monomial
    )


def lane_stride(e: Expr) -> int | Expr | None:
    """How far apart neighbouring lanes are; None where e is not linear in LANE."""
    terms: dict[Monomial, int] = {}
    for monomial, factor in e.terms.items():
        if not _has_lane(monomial):
            continue
        if monomial.count(LANE) != 1 or any(
            isinstance(a, Call) and _has_lane((a,)) for a in monomial
        ):
            return None
        rest = list(monomial)
        rest.remove(LANE)
        terms[tuple(rest)] = factor
    stride = Expr(terms)
    constant = stride.constant
    return stride if constant is None else constant


def without_lane(e: Expr) -> Expr:
    """The value at lane 0 of an expression that is linear in LANE."""
    return Expr({m: c for m, c in e.terms.items() if not _has_lane(m)})
