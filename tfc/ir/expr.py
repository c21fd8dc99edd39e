"""Integer expressions over symbols: dimensions of tensors, and indices inside kernels.

An `Expr` is a polynomial with integer coefficients in canonical form, so that equal polynomials
compare equal. Its atoms are symbols (a name) and calls of floordiv, mod, min and max on
expressions. Symbols whose name starts with a capital letter are dimensions and are never negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

Monomial: TypeAlias = "tuple[str, ...]"
Ranges: TypeAlias = "Mapping[str, tuple[Expr, Expr]]"  # symbol -> smallest and largest value


class Call(str):
    """An atom that is a function of two expressions; as a string it is its own text."""

    op: str
    lhs: Expr
    rhs: Expr

    def __new__(cls, op: str, lhs: Expr, rhs: Expr) -> Call:
        atom = super().__new__(cls, f"{op}({lhs},{rhs})")
        atom.op, atom.lhs, atom.rhs = op, lhs, rhs
        return atom


class Expr:
    """An immutable polynomial: monomials (sorted tuples of atoms) with their coefficients."""

    __slots__ = ("_hash", "_text", "terms")
    terms: dict[Monomial, int]

    def __init__(self, terms: dict[Monomial, int]) -> None:
        self.terms = terms
        self._hash: int | None = None
        self._text: str | None = None

    # ---- identity

    def __hash__(self) -> int:
        if self._hash is None:
            # A constant hashes as its integer, since it also compares equal to it.
            value = self.constant
            self._hash = hash(frozenset(self.terms.items())) if value is None else hash(value)
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Expr):
            return self.terms == other.terms
        return isinstance(other, int) and self.constant == other

    @property
    def constant(self) -> int | None:
        """The integer that this expression is, or None."""
        terms = self.terms
        if not terms:
            return 0
        return terms.get(()) if len(terms) == 1 else None

    # ---- arithmetic

    def __add__(self, other: Dim) -> Expr:
        terms = dict(self.terms)
        for monomial, factor in as_expr(other).terms.items():
            total = terms.get(monomial, 0) + factor
            if total:
                terms[monomial] = total
            else:
                del terms[monomial]
        return Expr(terms)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Dim) -> Expr:
        return self + -as_expr(other)

    def __rsub__(self, other: Dim) -> Expr:
        return as_expr(other) + -self

    def __mul__(self, other: Dim) -> Expr:
        if isinstance(other, int):
            return Expr({m: c * other for m, c in self.terms.items()}) if other else ZERO
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                key = tuple(sorted(m + n)) if m and n else m or n
                terms[key] = terms.get(key, 0) + c * d
        return Expr({m: c for m, c in terms.items() if c})

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Expr:
        divisor = as_expr(other)
        quotient = _divide_exactly(self, divisor)
        return quotient if quotient is not None else _call("floordiv", self, divisor)

    def __mod__(self, other: Dim) -> Expr:
        divisor = as_expr(other)
        exact = _divide_exactly(self, divisor)
        return ZERO if exact is not None else _call("mod", self, divisor)

    def __rfloordiv__(self, other: Dim) -> Expr:
        return as_expr(other) // self

    def __rmod__(self, other: Dim) -> Expr:
        return as_expr(other) % self

    def min(self, other: Dim) -> Expr:
        return self if self == other else _call("min", self, as_expr(other))

    def max(self, other: Dim) -> Expr:
        return self if self == other else _call("max", self, as_expr(other))

    # ---- structure

    def atoms(self) -> Iterator[str]:
        """Every atom, those inside calls too; repeated ones repeat."""
        for monomial in self.terms:
            for atom in monomial:
                yield atom
                if isinstance(atom, Call):
                    yield from atom.lhs.atoms()
                    yield from atom.rhs.atoms()

    def symbols(self) -> list[str]:
        """The names of its symbols, each once, in order of appearance."""
        return list(dict.fromkeys(a for a in self.atoms() if not isinstance(a, Call)))

    def substitute(self, values: Mapping[str, Dim]) -> Expr:
        """This expression with symbols replaced."""
        if not any(a in values for a in self.atoms()):
            return self
        total = ZERO
        for monomial, factor in self.terms.items():
            product: Expr = as_expr(factor)
            for atom in monomial:
                product = product * _substitute_atom(atom, values)
            total = total + product
        return total

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Its value, given that of every symbol."""
        total = 0
        for monomial, factor in self.terms.items():
            for atom in monomial:
                if isinstance(atom, Call):
                    lhs, rhs = atom.lhs.evaluate(values), atom.rhs.evaluate(values)
                    factor *= FUNCTIONS[atom.op](lhs, rhs)
                else:
                    factor *= values[atom]
            total += factor
        return total

    def __str__(self) -> str:
        if self._text is None:
            ordered = sorted(self.terms.items(), key=lambda t: (-len(t[0]), t[0]))
            self._text = "".join(map(_term_text, ordered)).removeprefix("+") or "0"
        return self._text

    __repr__ = __str__


Dim: TypeAlias = "int | Expr"

FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
}


def _term_text(term: tuple[Monomial, int]) -> str:
    monomial, factor = term
    sign = "-" if factor < 0 else "+"
    factors = [str(abs(factor))] if abs(factor) != 1 or not monomial else []
    return sign + "*".join(factors + [str(a) for a in monomial])


def _call(op: str, lhs: Expr, rhs: Expr) -> Expr:
    a, b = lhs.constant, rhs.constant
    if b == 0 and op in ("floordiv", "mod"):
        raise ZeroDivisionError(f"{op}({lhs},0)")
    if a is not None and b is not None:
        return as_expr(FUNCTIONS[op](a, b))
    if b == 1 and op == "floordiv":
        return lhs
    if op == "floordiv" and len(lhs.terms) == 1:
        ((monomial, factor),) = lhs.terms.items()
        inner = monomial[0] if len(monomial) == 1 and factor == 1 else None
        if isinstance(inner, Call) and inner.op == "floordiv":
            return inner.lhs // (inner.rhs * rhs)
    if op in ("min", "max") and str(rhs) < str(lhs):
        lhs, rhs = rhs, lhs
    return Expr({(Call(op, lhs, rhs),): 1})


def _substitute_atom(atom: str, values: Mapping[str, Dim]) -> Expr:
    if atom in values:
        return as_expr(values[atom])
    if isinstance(atom, Call):
        return apply(atom.op, atom.lhs.substitute(values), atom.rhs.substitute(values))
    return Expr({(atom,): 1})


def _divide_exactly(e: Expr, divisor: Expr) -> Expr | None:
    """The quotient where the divisor is a single term that divides each term of e, else None."""
    if len(divisor.terms) != 1:
        return Expr({(): 1}) if e == divisor and e.terms else None
    ((monomial, factor),) = divisor.terms.items()
    terms: dict[Monomial, int] = {}
    for m, c in e.terms.items():
        rest = _remove(m, monomial)
        if rest is None or c % factor:
            return None
        terms[rest] = c // factor
    return Expr(terms)


def _remove(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    rest = list(monomial)
    for atom in atoms:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


ZERO = Expr({})


def as_expr(value: Dim) -> Expr:
    return value if isinstance(value, Expr) else Expr({(): int(value)} if value else {})


def symbol(name: str) -> Expr:
    return Expr({(name,): 1})


def apply(op: str, lhs: Dim, rhs: Dim) -> Expr:
    """floordiv, ceildiv, mod, min or max of two expressions."""
    a, b = as_expr(lhs), as_expr(rhs)
    match op:
        case "floordiv":
            return a // b
        case "ceildiv":
            return ceildiv(a, b)
        case "mod":
            return a % b
        case "min":
            return a.min(b)
        case "max":
            return a.max(b)
        case _:
            raise ValueError(f"no function of expressions is named {op!r}")


def ceildiv(lhs: Dim, rhs: Dim) -> Expr:
    a, b = as_expr(lhs), as_expr(rhs)
    exact = _divide_exactly(a, b)
    return exact if exact is not None else (a + b - 1) // b


def normal(dim: Dim) -> Dim:
    """A dimension in its one form: an int where it is constant."""
    if isinstance(dim, Expr):
        value = dim.constant
        return dim if value is None else value
    return int(dim)


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    total: Expr = as_expr(1)
    for dim in dims:
        total = total * dim
    return normal(total)


def is_dimension_symbol(name: str) -> bool:
    return name[:1].isupper() and "x" not in name


# ---- what can be proved


def extreme(e: Expr, ranges: Ranges, top: bool) -> Expr:
    """An upper (top) or lower bound of e over the ranges, as an expression of the other symbols.

    Terms with several ranged symbols take each at its own extreme, which bounds them where all
    ranges and factors are not negative; calls over ranged symbols are bounded only by what their
    kind implies.
    """
    total = ZERO
    for monomial, factor in e.terms.items():
        upper = top if factor > 0 else not top
        part: Expr = as_expr(factor)
        for atom in monomial:
            part = part * _extreme_atom(atom, ranges, upper)
        total = total + part
    if any(a in ranges for a in total.symbols()):
        return extreme(total, ranges, top)
    return total


def _extreme_atom(atom: str, ranges: Ranges, upper: bool) -> Expr:
    if not isinstance(atom, Call):
        return ranges[atom][1 if upper else 0] if atom in ranges else Expr({(atom,): 1})
    if not any(a in ranges for a in (*atom.lhs.atoms(), *atom.rhs.atoms())):
        return Expr({(atom,): 1})
    match atom.op:
        case "mod":
            return atom.rhs - 1 if upper else ZERO
        case "floordiv":
            return extreme(atom.lhs, ranges, upper) // atom.rhs
        case _:
            lhs, rhs = extreme(atom.lhs, ranges, upper), extreme(atom.rhs, ranges, upper)
            return lhs.min(rhs) if atom.op == "min" else lhs.max(rhs)


def is_nonnegative(e: Expr, ranges: Ranges | None = None) -> bool:
    """Whether e >= 0 is proved for every value of its symbols within the ranges."""
    low = extreme(e, ranges, False) if ranges else e
    return all(c >= 0 and all(_atom_nonnegative(a) for a in m) for m, c in low.terms.items())


def _atom_nonnegative(atom: str) -> bool:
    if not isinstance(atom, Call):
        return True  # dimensions, grid, loop and axis variables count from 0
    both = is_nonnegative(atom.lhs), is_nonnegative(atom.rhs)
    return any(both) if atom.op == "max" else atom.op == "mod" or all(both)


def simplify(e: Expr, ranges: Ranges) -> Expr:
    """e with every floordiv, mod, min and max removed whose value the ranges decide."""
    if not any(isinstance(a, Call) for m in e.terms for a in m):
        return e
    total = ZERO
    for monomial, factor in e.terms.items():
        part: Expr = as_expr(factor)
        for atom in monomial:
            part = part * _simplify_atom(atom, ranges)
        total = total + part
    return _rejoin(total)


def _rejoin(e: Expr) -> Expr:
    """e with d * floordiv(x, d) + mod(x, d) written as x."""
    for monomial, factor in e.terms.items():
        for atom in monomial:
            if isinstance(atom, Call) and atom.op == "mod" and atom.rhs.terms:
                rest = Expr({_remove(monomial, (atom,)) or (): factor})
                other = rest * atom.rhs * (atom.lhs // atom.rhs)
                if all(e.terms.get(m) == c for m, c in other.terms.items()):
                    return _rejoin(e - rest * Expr({(atom,): 1}) - other + rest * atom.lhs)
    return e


def _simplify_atom(atom: str, ranges: Ranges) -> Expr:
    if not isinstance(atom, Call):
        return Expr({(atom,): 1})
    lhs, rhs = simplify(atom.lhs, ranges), simplify(atom.rhs, ranges)
    if atom.op in ("min", "max"):
        smaller = lhs if is_nonnegative(rhs - lhs, ranges) else None
        if smaller is None and is_nonnegative(lhs - rhs, ranges):
            smaller = rhs
        if smaller is None:
            return apply(atom.op, lhs, rhs)
        larger = rhs if smaller is lhs else lhs
        return smaller if atom.op == "min" else larger
    whole, rest = _split(lhs, rhs)
    if is_nonnegative(rest, ranges) and is_nonnegative(rhs - 1 - rest, ranges):
        return whole if atom.op == "floordiv" else rest
    coarse = _coarsen(rest, rhs.constant, ranges)
    if coarse is not None:
        step, many, low = coarse
        blocks = as_expr(rhs.constant or 1) // step
        return whole + many // blocks if atom.op == "floordiv" else many % blocks * step + low
    if whole.terms and atom.op == "mod":
        return rest % rhs
    if whole.terms:
        return whole + rest // rhs
    return apply(atom.op, lhs, rhs)


def _coarsen(e: Expr, divisor: int | None, ranges: Ranges) -> tuple[int, Expr, Expr] | None:
    """e = step * many + low with 0 <= low < step and a step that divides the divisor, or None."""
    if divisor is None or len(e.terms) < 2:
        return None
    steps = {math.gcd(c, divisor) for m, c in e.terms.items() if m}
    for step in sorted(steps - {1, divisor}, reverse=True):
        many = Expr({m: c // step for m, c in e.terms.items() if c % step == 0})
        low = e - many * step
        if is_nonnegative(low, ranges) and is_nonnegative(step - 1 - low, ranges):
            return step, many, low
    return None


def _split(e: Expr, divisor: Expr) -> tuple[Expr, Expr]:
    """e = divisor * whole + rest, term by term."""
    if len(divisor.terms) != 1:
        return ZERO, e
    ((monomial, factor),) = divisor.terms.items()
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in e.terms.items():
        left = _remove(m, monomial)
        if left is None:
            rest[m] = c
            continue
        quotient, remainder = divmod(c, factor)
        if quotient:
            whole[left] = quotient
        if remainder:
            rest[m] = remainder
    return Expr(whole), Expr(rest)
