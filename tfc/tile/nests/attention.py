"""Attention: softmax(scale * q k^T + mask) v in one kernel, queries along the lanes.

Scores are kept transposed, keys on the rows: keys and values are read a number at a time where they
lie and never transposed, the softmax runs down the rows without crossing lanes, and any number of
keys will do. Long rows are taken in blocks of keys with a running maximum and sum (online softmax,
arXiv 1805.02867).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfc.ir.core import Block, Kernel, Value
from tfc.ir.expr import Dim, Expr, as_expr, symbol
from tfc.tile.build import C, R
from tfc.tile.nest import Nest, computed_in
from tfc.tile.nests.runs import split_extent
from tfc.tile.nests.schedule import AttentionSchedule


@dataclass(frozen=True)
class Operands:
    """query [..., T, D], key [..., S, D], value [..., S, E], mask broadcast to [..., T, S]."""

    query: Value
    key: Value
    value: Value
    mask: Value | None
    scale: float


def attention(
    name: str, group: Block, hero: Value, operands: Operands, schedule: AttentionSchedule
) -> Kernel:
    """hero [..., T, E]; the leading axes are one program each."""
    return _Attention(name, group, hero, operands, schedule).build()


class _Attention:
    def __init__(
        self, name: str, group: Block, hero: Value, operands: Operands, schedule: AttentionSchedule
    ) -> None:
        self.nest = Nest(name, group)
        self.hero, self.operands, self.schedule = hero, operands, schedule
        self.kind = computed_in(hero.tensor.dtype)
        shape = hero.tensor.shape
        self.batch = len(shape) - 2
        self.queries, self.width = shape[-2], _static(shape[-1])
        self.keys = operands.key.tensor.shape[-2]
        self.depth = _static(operands.key.tensor.shape[-1])

    def build(self) -> Kernel:
        nest, lanes = self.nest, self.schedule.queries
        self.index = [nest.axis(f"y{i}", n) for i, n in enumerate(self.hero.tensor.shape)]
        nest.axis("k0", self.keys)
        nest.axis("k1", self.depth)
        for i in range(self.batch):
            nest.place(**{f"y{i}": nest.over_grid(self.hero.tensor.shape[i])})
        block = nest.over_grid(split_extent(self.queries, lanes))
        nest.tile(1, lanes)
        nest.place(**{f"y{self.batch}": block * lanes + (C if lanes > 1 else 0)})
        total, weighted = self._softmax_of_values(self._query())
        # Where the rows of the output are the lanes, the last axis of the output lies on the rows.
        nest.tile(self.width, lanes)
        with nest.placed(**{f"y{self.batch + 1}": R if self.width > 1 else as_expr(0)}):
            out = nest.stage(nest.map("mul", weighted, nest.map("reciprocal", total)))
            self._store(out, block * lanes)
        return nest.kernel

    def _store(self, out: Value, first: Expr) -> None:
        """Turns the tile, so that the output's last axis runs along the columns again."""
        nest, lanes = self.nest, self.schedule.queries
        nest.tile(lanes, self.width)
        places = {
            f"y{self.batch}": first + (R if lanes > 1 else 0),
            f"y{self.batch + 1}": C if self.width > 1 else as_expr(0),
        }
        with nest.placed(**places):
            nest.finish(self.hero, self.index, nest.transpose(out))

    def _query(self) -> Value:
        """The scaled queries, transposed: depth on the rows, in scratch."""
        nest = self.nest
        nest.tile(self.depth, self.schedule.queries)
        with nest.placed(k1=R if self.depth > 1 else as_expr(0)):
            q = nest.pull(self.operands.query, self._at(self.operands.query, self._row, "k1"))
            q = nest.spread(q, (self.depth, self.schedule.queries))
        scaled = nest.map("mul", q, nest.full((1, 1), self.operands.scale, self.kind))
        return nest.stage(scaled)

    @property
    def _row(self) -> Expr:
        return self.index[self.batch]

    def _at(self, value: Value, row: Expr, column: str) -> list[Expr]:
        """The index of an operand at a row and a column; it may broadcast, of rank 0 or 1 too."""
        shape = value.tensor.shape
        whole = [*self.index[: self.batch], row, symbol(column)]
        own = whole[len(whole) - len(shape) :]
        return [as_expr(0) if n == 1 else e for n, e in zip(shape, own, strict=True)]

    def _scores(self, query: Value, first: Expr, keys: int) -> Value:
        """exp's argument: keys on the rows, queries on the columns; -inf where there is no key."""
        nest, lanes = self.nest, self.schedule.queries
        nest.tile(keys, self.depth)
        with nest.placed(
            k0=first + R if keys > 1 else first, k1=C if self.depth > 1 else as_expr(0)
        ):
            k = nest.pull(self.operands.key, self._at(self.operands.key, symbol("k0"), "k1"))
            k = nest.spread(k, (keys, self.depth))
        nest.tile(keys, lanes)
        scores = nest.dot(k, query)
        with nest.placed(k0=first + R if keys > 1 else first):
            if self.operands.mask is not None:
                mask = nest.pull(self.operands.mask, self._at(self.operands.mask, self._row, "k0"))
                scores = nest.map("add", scores, mask)
            inside = nest.mask([(as_expr(0), symbol("k0"), as_expr(self.keys))])
        if inside is not None:
            scores = nest.select(inside, scores, nest.full((1, 1), -math.inf, self.kind))
        return nest.stage(scores)

    def _values(self, p: Value, first: Expr, keys: int, acc: Value | None) -> Value:
        """acc + (p v)^T: the output's last axis on the rows."""
        nest = self.nest
        nest.tile(self.width, keys)
        with nest.placed(
            **{
                "k0": first + C if keys > 1 else first,
                f"y{self.batch + 1}": R if self.width > 1 else as_expr(0),
            }
        ):
            at = self._at(self.operands.value, symbol("k0"), f"y{self.batch + 1}")
            v = nest.pull_in_place(self.operands.value, at)
            v = nest.zero_outside(v, (as_expr(0), symbol("k0"), as_expr(self.keys)))
            v = nest.spread(v, (self.width, keys))
        return nest.dot(v, p, acc)

    def _softmax_of_values(self, query: Value) -> tuple[Value, Value]:
        """The sum of the weights and the weighted values, not divided yet."""
        nest, lanes, block = self.nest, self.schedule.queries, self.schedule.keys
        if isinstance(self.keys, int) and self.keys <= block:
            scores = self._scores(query, as_expr(0), self.keys)
            p = nest.stage(nest.map("exp", nest.map("sub", scores, nest.reduce("max", scores, 0))))
            return nest.reduce("sum", p, 0), self._values(p, as_expr(0), self.keys, None)
        inits = [
            nest.full((1, lanes), -math.inf, self.kind),
            nest.full((1, lanes), 0, self.kind),
            nest.full((self.width, lanes), 0, self.kind),
        ]

        rest = self.schedule.rest
        whole = as_expr(self.keys) // block * block if rest else as_expr(self.keys)
        carried = self._blocks_of_keys(query, as_expr(0), whole, block, inits)
        if whole != as_expr(self.keys):
            carried = self._blocks_of_keys(query, whole, as_expr(self.keys), rest, carried)
        _, total, weighted = carried
        keys = as_expr(self.keys)
        some = nest.mask([(as_expr(1), keys, keys + 1)])
        if some is not None:  # no weight of no key: the result is 0, not 0 / 0
            total = nest.select(some, total, nest.full((1, 1), 1.0, self.kind))
        return total, weighted

    def _blocks_of_keys(
        self, query: Value, start: Expr, stop: Expr, size: int, inits: Sequence[Value]
    ) -> list[Value]:
        """The running maximum, sum and weighted values after the keys from start below stop."""
        nest = self.nest

        def step(i: Expr, best: Value, total: Value, acc: Value) -> Sequence[Value]:
            with nest.ranged(i, start, stop, size), nest.scope():
                scores = self._scores(query, i, size)
                new = nest.map("maximum", best, nest.reduce("max", scores, 0))
                # A row that is masked so far has no maximum: keep its exponents at -inf, not NaN.
                lowest = nest.full((1, 1), -math.inf, self.kind)
                shift = nest.select(
                    nest.map("equal", new, lowest), nest.full((1, 1), 0.0, self.kind), new
                )
                p = nest.stage(nest.map("exp", nest.map("sub", scores, shift)))
                fade = nest.map("exp", nest.map("sub", best, shift))
                total = nest.map("fma", total, fade, nest.reduce("sum", p, 0))
                return [new, total, self._values(p, i, size, nest.map("mul", acc, fade))]

        return nest.loop(start, stop, size, inits, step)


def _static(n: Dim) -> int:
    assert isinstance(n, int), "the widths of heads are static"
    return n
