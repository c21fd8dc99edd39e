"""Reads integer expressions: `2*S+1`, `max(S, 4)`, `ceildiv(R, 128)`.

Sizes are bounded, so that a hostile text costs no more than its length: depth of nesting, size of
integers, number of terms of a product.
"""

from __future__ import annotations

import re

from tfc.ir.expr import FUNCTIONS, Dim, Expr, apply, as_expr, normal, symbol
from tfc.text.source import Source, did_you_mean

MAX_DEPTH = 40
MAX_TERMS = 1000
MAX_INTEGER = 2**63
OPERATORS = (*FUNCTIONS, "ceildiv")
_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_]*)|([-+*(),]))", re.ASCII)


class ExpressionReader:
    """A recursive descent over one text; `offset` is where it stands in the source."""

    def __init__(self, source: Source, offset: int, text: str) -> None:
        self.source = source
        self.offset = offset
        self.text = text
        self.place = 0  # of the next token
        self.end = 0
        self.number = self.name = self.punctuation = ""
        self.advance()

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.end)
        if match is None:
            rest = self.text[self.end :].lstrip()
            self.place = len(self.text) - len(rest)
            if rest:
                raise self.error(f"an expression holds no {rest[0]!r}", OPERATOR_HINT)
            self.number = self.name = self.punctuation = ""
            return
        self.number, self.name, self.punctuation = (part or "" for part in match.groups())
        self.place, self.end = match.start(match.lastindex or 0), match.end()

    def error(self, message: str, hint: str = "") -> Exception:
        return self.source.error(self.offset + self.place, message, hint)

    def expect(self, punctuation: str) -> None:
        if self.punctuation != punctuation:
            raise self.error(f"expected `{punctuation}` in the expression")
        self.advance()

    def whole(self) -> Dim:
        value = self.sum(0)
        if self.number or self.name or self.punctuation:
            found = self.number or self.name or self.punctuation
            raise self.error(f"the expression is over before {found!r}", OPERATOR_HINT)
        return normal(value)

    def sum(self, depth: int) -> Expr:
        if depth > MAX_DEPTH:
            raise self.error(f"the expression nests deeper than {MAX_DEPTH}")
        total = self.signed_product(depth)
        while self.punctuation in ("+", "-"):
            total = self.bounded(total + self.signed_product(depth))
        return total

    def signed_product(self, depth: int) -> Expr:
        sign = -1 if self.punctuation == "-" else 1
        if self.punctuation in ("+", "-"):
            self.advance()
        total = self.factor(depth)
        while self.punctuation == "*":
            self.advance()
            total = self.multiply(total, self.factor(depth))
        return total * sign

    def multiply(self, lhs: Expr, rhs: Expr) -> Expr:
        if len(lhs.terms) * len(rhs.terms) > MAX_TERMS:
            raise self.error(f"the expression has more than {MAX_TERMS} terms")
        return self.bounded(lhs * rhs)

    def bounded(self, value: Expr) -> Expr:
        if len(value.terms) > MAX_TERMS:
            raise self.error(f"the expression has more than {MAX_TERMS} terms")
        if any(abs(factor) >= MAX_INTEGER for factor in value.terms.values()):
            raise self.error("an integer of the expression does not fit 64 bits")
        return value

    def factor(self, depth: int) -> Expr:
        if self.number:
            if len(self.number) > 19 or int(self.number) >= MAX_INTEGER:
                raise self.error("the integer does not fit 64 bits")
            value = as_expr(int(self.number))
            self.advance()
            return value
        if self.name:
            return self.symbol_or_call(depth)
        self.expect("(")
        value = self.sum(depth + 1)
        self.expect(")")
        return value

    def symbol_or_call(self, depth: int) -> Expr:
        name, place = self.name, self.place
        self.advance()
        if self.punctuation != "(":
            if name in OPERATORS:
                raise self.error(f"{name} takes two expressions", f"write `{name}(a, b)`")
            return symbol(name)
        if name not in OPERATORS:
            self.place = place
            raise self.error(
                f"no function of expressions is named {name!r}",
                did_you_mean(name, OPERATORS, OPERATOR_HINT),
            )
        self.advance()
        lhs = self.sum(depth + 1)
        self.expect(",")
        rhs = self.sum(depth + 1)
        self.expect(")")
        if rhs == 0 and name not in ("min", "max"):
            self.place = place
            raise self.error("the expression divides by zero")
        return self.bounded(apply(name, lhs, rhs))


OPERATOR_HINT = f"there are + - * and the functions {', '.join(OPERATORS)}"


def read_expression(source: Source, offset: int, text: str) -> Dim:
    """The expression that stands at an offset of the source."""
    return ExpressionReader(source, offset, text).whole()
