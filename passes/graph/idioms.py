"""What the rules of `raise-idioms` share: constants, products, and which ops may become one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from tfc.ir.core import Op, Value
from tfc.ir.rewriting import Rewriter
from tfc.ir.types import DType
from tfc.ops.arithmetic import Add, Div, Mul, Pow
from tfc.ops.base import Binary
from tfc.passes.graph.known import splat

OpT = TypeVar("OpT", bound=Op)
MOST_FACTORS = 8  # of a product that is taken apart; idioms have fewer


def number(value: Value | None) -> float | None:
    """The number that every element of a constant is."""
    found = splat(value)
    return None if found is None else float(found)


def near(found: float | None, wanted: float, dtype: DType, ulps: float = 1) -> bool:
    """Whether a number is the wanted one, to within units in the last place of the element type."""
    if found is None or not np.isfinite(found):
        return False
    return abs(found - wanted) <= ulps * precision(dtype) * abs(wanted)


def precision(dtype: DType) -> float:
    """The distance from 1 to the next number of a float type."""
    return 2.0 ** -{"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[dtype.name]


def producer(value: Value | None, kind: type[OpT]) -> OpT | None:
    """The op that makes a value, if it is of this class."""
    maker = value.producer if value is not None else None
    return maker if isinstance(maker, kind) else None


def either_way(op: Binary) -> Iterator[tuple[Value, Value]]:
    """The operands of a commutative op, in both orders."""
    yield op.x, op.y
    yield op.y, op.x


class Shifted(NamedTuple):
    """x + constant, and the op that adds."""

    x: Value
    constant: float
    add: Add


def shifted(value: Value) -> Shifted | None:
    """A value as the sum of another one and a constant."""
    add = producer(value, Add)
    if add is None:
        return None
    for x, c in either_way(add):
        constant = number(c)
        if constant is not None and x.type == value.type:
            return Shifted(x, constant, add)
    return None


# ---- products


@dataclass
class Product:
    """A product taken apart: its constant factors as one number, the others, the ops between."""

    scale: float = 1.0
    factors: list[Value] = field(default_factory=list[Value])
    parts: list[Op] = field(default_factory=list[Op])

    def single(self) -> Value | None:
        """The one factor beside constants."""
        return self.factors[0] if len(self.factors) == 1 else None


def product_of(value: Value) -> Product:
    """A value as a product; one that is none has itself as its only factor.

    Ops with other users below the outermost are not taken apart, nor are very long products.
    """
    found = Product()
    _take_apart(value, found)
    return found


def _take_apart(value: Value, found: Product) -> None:
    constant = number(value)
    if constant is not None:
        found.scale *= constant
    elif not _is_open(value, found):
        found.factors.append(value)
    else:
        maker = value.producer
        assert isinstance(maker, Mul | Div)
        found.parts.append(maker)
        _take_apart(maker.x, found)
        divisor = number(maker.y) if isinstance(maker, Div) else None
        if divisor is None:
            _take_apart(maker.y, found)
        else:
            found.scale /= divisor


def _is_open(value: Value, found: Product) -> bool:
    """Whether a value is a product that may be taken apart further."""
    small = len(found.parts) + len(found.factors) < MOST_FACTORS
    alone = not found.parts or len(value.uses) == 1
    return small and alone and _is_product(value.producer)


def _is_product(op: Op | None) -> bool:
    """Whether an op is x * y, or x / c with a constant."""
    if isinstance(op, Div):
        return op.x.tensor.dtype.is_float and number(op.y) not in (None, 0.0)
    return isinstance(op, Mul) and op.x.tensor.dtype.is_float


def power_of(factors: Iterable[Value], x: Value) -> tuple[float, list[Op]] | None:
    """n where the factors' product is x ** n, and the ops that say so."""
    total, parts = 0.0, list[Op]()
    for factor in factors:
        if factor is x:
            total += 1
            continue
        power = producer(factor, Pow)
        exponent = number(power.y) if power and power.x is x else None
        if exponent is None or power is None:
            return None
        total += exponent
        parts.append(power)
    return total, parts


# ---- groups


def may_become_one(root: Op, parts: Iterable[Op]) -> bool:
    """Whether nothing outside uses what is between, and all stand in one block on one device."""
    members = {root, *parts}
    for op in members - {root}:
        if op.parent is not root.parent:
            return False  # what is computed before a loop would move into it
        if op.device != root.device or any(u not in members for v in op.results for u in v.users):
            return False
    return True


def become(root: Op, parts: Iterable[Op], new: Op, rewriter: Rewriter) -> None:
    """Puts an op in the place of a group, with the locations and control inputs of all of it."""
    group = list(dict.fromkeys((root, *parts)))
    rewriter.fuse(*group)
    new.device = root.device
    for earlier in [e for op in group for e in op.after if e not in group]:
        new.add_after(earlier)
    rewriter.replace(root, rewriter.value(new))
