"""Einsum: sums over what one operand has alone, then products of two operands at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tfc.importers.onnx_context import Context
from tfc.importers.onnx_registry import importer
from tfc.ir.core import Value
from tfc.ir.expr import Dim, product

ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor whose axes have labels: letters, or `*0`, `*1`, ... for those of an ellipsis."""

    value: Value
    labels: tuple[str, ...]

    def size(self, label: str) -> Dim:
        return self.value.tensor.shape[self.labels.index(label)]


@importer("Einsum", 12, 28)
def _(n: Context) -> Value:
    values = n.values()
    n.require(bool(values), "needs an input")
    equation = n.string("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    parts = [_split(n, part) for part in left.split(",")]
    n.require(len(parts) == len(values), f"{equation!r} has {len(parts)} terms")
    terms = [_labelled(n, value, part) for value, part in zip(values, parts, strict=True)]
    output = _output(n, terms, parts, _split(n, right) if arrow else None)
    _check_sizes(n, terms)
    total, *others = [_without_alone(n, t, terms, output) for t in terms]
    for number, other in enumerate(others):
        later = {label for term in others[number + 1 :] for label in term.labels}
        total = _multiplied(n, total, other, later | set(output))
    return _arranged(n, _summed(n, total, output), output)


def _split(n: Context, text: str) -> list[str]:
    """The labels of a part of the equation, an ellipsis as one."""
    found = re.fullmatch(r"([A-Za-z]*)(\.\.\.)?([A-Za-z]*)", text)
    if found is None:
        raise n.error(f"{text!r} is no term of an equation")
    return [*found[1], *([ELLIPSIS] if found[2] else []), *found[3]]


def _labelled(n: Context, value: Value, part: Sequence[str]) -> Term:
    rank, named = value.tensor.rank, len(part) - (ELLIPSIS in part)
    n.require(rank >= named and (ELLIPSIS in part or rank == named), f"{value.tensor} for {part}")
    # Axes of an ellipsis are counted from its end, by which they broadcast.
    dots = [f"*{k}" for k in reversed(range(rank - named))]
    labels = [label for part_ in part for label in (dots if part_ == ELLIPSIS else [part_])]
    if len(set(labels)) < len(labels):
        raise n.unsupported("a label that comes twice in one term (a diagonal) is not supported")
    return Term(value, tuple(labels))


def _output(
    n: Context, terms: Sequence[Term], parts: Sequence[list[str]], given: list[str] | None
) -> tuple[str, ...]:
    """The labels of the result; without an arrow those that come once, in alphabetical order."""
    most = max((sum(label.startswith("*") for label in t.labels) for t in terms), default=0)
    dots = [f"*{k}" for k in reversed(range(most))]
    if given is None:
        named = [label for part in parts for label in part if label != ELLIPSIS]
        once = sorted(label for label in set(named) if named.count(label) == 1)
        return (*dots, *once)
    known = {label for t in terms for label in t.labels}
    labels = [label for part in given for label in (dots if part == ELLIPSIS else [part])]
    unknown = [label for label in labels if label not in known]
    n.require(not unknown, f"the result has {unknown}, which no term has")
    n.require(len(set(labels)) == len(labels), f"the result has a label twice: {labels}")
    if ELLIPSIS not in given and most:
        raise n.unsupported("an ellipsis that is summed is not supported")
    return tuple(labels)


def _check_sizes(n: Context, terms: Sequence[Term]) -> None:
    sizes: dict[str, Dim] = {}
    for term in terms:
        for label in term.labels:
            size = term.size(label)
            if label.startswith("*") and 1 in (size, sizes.get(label, 1)):
                size = size if size != 1 else sizes.get(label, 1)
            known = sizes.setdefault(label, size)
            if label.startswith("*") and known == 1:
                sizes[label] = size
                continue
            n.require(known == size, f"label {label} has the sizes {known} and {size}")


def _without_alone(n: Context, term: Term, terms: Sequence[Term], output: Sequence[str]) -> Term:
    """The term summed over what neither another term nor the result has."""
    kept = {label for other in terms if other is not term for label in other.labels}
    return _summed(n, term, kept | set(output))


def _summed(n: Context, term: Term, kept: Sequence[str] | set[str]) -> Term:
    axes = tuple(axis for axis, label in enumerate(term.labels) if label not in kept)
    if not axes:
        return term
    value = n.make("reduce_sum", term.value, axes=axes, keepdims=False)
    return Term(value, tuple(label for label in term.labels if label in kept))


def _multiplied(n: Context, a: Term, b: Term, needed: set[str]) -> Term:
    """The product of two terms, summed over what both have and nobody needs."""
    both = [label for label in a.labels if label in b.labels]
    summed = [label for label in both if label not in needed]
    batch = [label for label in both if label in needed]
    rows = [label for label in a.labels if label not in both]
    columns = [label for label in b.labels if label not in both]
    sizes = {label: b.size(label) for label in b.labels}
    sizes |= {
        label: a.size(label) for label in a.labels if a.size(label) != 1 or label not in sizes
    }
    lhs = _matrix(n, a, batch, rows, summed)
    rhs = _matrix(n, b, batch, summed, columns)
    made = n.make("matmul", lhs, rhs)
    labels = (*batch, *rows, *columns)
    return Term(n.make("reshape", made, shape=tuple(sizes[x] for x in labels)), labels)


def _matrix(
    n: Context, term: Term, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> Value:
    """The axes in front of two, into which all others are joined."""
    value = _arranged(n, term, (*batch, *rows, *columns))
    sizes = [term.size(label) for label in batch]
    joined = [product([term.size(label) for label in part]) for part in (rows, columns)]
    return n.make("reshape", value, shape=(*sizes, *joined))


def _arranged(n: Context, term: Term, labels: Sequence[str]) -> Value:
    order = tuple(term.labels.index(label) for label in labels)
    if order == tuple(range(len(order))):
        return term.value
    return n.make("transpose", term.value, permutation=order)
