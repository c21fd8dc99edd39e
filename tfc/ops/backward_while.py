"""Gradients through a `while` whose number of iterations is not known: by running it again.

How much there is to save is not known before it runs, so nothing is saved but the number of the
iterations: the backward loop computes what iteration k began with from the first values again. Of n
iterations that are about n * n / 2 more; `{maximum = ...}` on the loop avoids them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Op, Value
from tfc.ops.arithmetic import Add, Sub
from tfc.ops.backward import Backward, is_float
from tfc.ops.backward_control import ended, plain, wanted_outside, yield_too
from tfc.ops.constant import constant
from tfc.ops.control import Yield
from tfc.ops.logic import Greater, Less

if TYPE_CHECKING:
    from tfc.ops.loops import While

ZERO, ONE = np.array(0, np.int64), np.array(1, np.int64)


def backward_while(op: While, walk: Backward) -> None:
    """A loop that counts down; it carries the gradients of carried and sums of those of others."""
    from tfc.ops.loops import While

    outside = wanted_outside(op, walk)
    kinds = [plain(v.tensor) for v in outside]
    floats = [i for i, v in enumerate(op.results) if is_float(v)]
    carried = [plain(op.results[i].tensor) for i in floats]
    given = [walk.or_zeros(walk.of(op.results[i]), k) for i, k in zip(floats, carried, strict=True)]
    initial = [_count(op), *given, *map(walk.do.zeros, kinds)]
    types = [v.type for v in initial]

    cond, do = Block(types), Block(types)
    b = Builder(cond)
    more: Op = b.add(Greater(cond.args[0], constant(b, ZERO)))
    b.add(Yield(more.results))
    b = Builder(do)
    left: Op = b.add(Sub(do.args[0], constant(b, ONE)))
    state = _again(op, left.results[0], b)
    mapping = dict(zip(op.do.args, state, strict=True))
    made = [b.add(inner.clone(mapping)) for inner in op.do if not inner.terminator]
    ends = [mapping.get(v, v) for v in op.do.terminator.inputs]
    inner = Backward(b, [*outside, *state])
    inner.run(made, zip([ends[i] for i in floats], do.args[1:], strict=False))
    nexts = [inner.or_zeros(inner.of(state[i]), k) for i, k in zip(floats, carried, strict=True)]
    parts = map(inner.of, outside)
    sums = do.args[1 + len(floats) :]
    nexts += [s if g is None else inner.do("add", s, g) for s, g in zip(sums, parts, strict=True)]
    ended(inner, [*left.results, *nexts])

    loop: Op = walk.builder.add(While(initial, types=types, cond=cond, do=do))
    results = iter(loop.results[1:])
    for i in floats:
        walk.add(op.carried[i], next(results))
    for value in outside:
        walk.add(value, next(results))


def _count(op: While) -> Value:
    """Makes a loop count its iterations; how many there were."""
    zero = constant(Builder.before_op(op), ZERO)
    op.set_operands([*op.operands, zero])
    op.cond.add_arg(zero.type)
    argument = op.do.add_arg(zero.type)
    b = Builder(op.do, op.do.terminator)
    following: Op = b.add(Add(argument, constant(b, ONE)))
    yield_too(op.do, following.results[0])
    op.results.append(Value(zero.type, op, len(op.results), ""))
    return op.results[-1]


def _again(op: While, count: Value, b: Builder) -> list[Value]:
    """The values that a loop, which counts, carries after so many iterations."""
    from tfc.ops.loops import While

    types = [v.type for v in op.results]
    cond, do = Block(types), Block(types)
    inside = Builder(cond)
    more: Op = inside.add(Less(cond.args[-1], count))
    inside.add(Yield(more.results))
    mapping = dict(zip(op.do.args, do.args, strict=True))
    for inner in op.do:
        do.append(inner.clone(mapping))
    loop: Op = b.add(While(list(op.carried), types=types, cond=cond, do=do))
    return list(loop.results)
