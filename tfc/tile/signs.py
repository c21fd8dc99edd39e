"""What is known of the sign of a tile's elements, from the ops that compute it.

A softmax subtracts from each element the maximum of its row: a function of such a difference needs
no code for positive arguments.
"""

from __future__ import annotations

import math

from tfc.ir.core import Value
from tfc.tile import ops as t


def never_positive(value: Value) -> bool:
    """Whether each element is at most 0, or NaN: a difference from something as large."""
    op = value.producer
    if not isinstance(op, t.Map) or op.function != "sub" or not value.tile.dtype.is_float:
        return False
    x, y = op.operand_values
    return _at_least(y, x)


def _at_least(y: Value, x: Value) -> bool:
    """Whether y >= x in each element where neither is NaN, and y is NaN only where x - y is."""
    if y is x:
        return True
    match y.producer:
        case t.Reduce() as op:
            return op.function == "max" and op.x is x
        case t.Map() as op:
            return op.function == "maximum" and any(_at_least(v, x) for v in op.operand_values)
        case t.Select() as op:
            return _exchanges_lowest(op) and _at_least(op.y, x)
        case _:
            return False


def _exchanges_lowest(op: t.Select) -> bool:
    """Whether the select gives y, but for -inf a number: less than that is -inf alone."""
    test = op.condition.producer
    if not isinstance(test, t.Map) or test.function != "equal" or op.y not in test.operand_values:
        return False
    numbers = [v.producer.value for v in test.operand_values if isinstance(v.producer, t.Full)]
    return -math.inf in numbers and isinstance(op.x.producer, t.Full)
