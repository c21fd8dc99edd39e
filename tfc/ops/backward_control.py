"""Gradients through regions: `if` by an `if`, `scan` by a scan the other way, `while` as a scan.

What the backward region needs of the forward one is saved: it becomes a further result of the
forward op, so that nothing is computed twice and effects happen once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Op, Value
from tfc.ir.effects import home, outer_values
from tfc.ir.types import TensorType
from tfc.ops.backward import Backward, erase_unused, is_float, read_variable
from tfc.ops.constant import Constant, DimValue, Iota
from tfc.ops.control import If, Yield
from tfc.ops.loops import Scan

if TYPE_CHECKING:
    from tfc.ops.base import GraphOp


def wanted_outside(op: GraphOp, walk: Backward) -> list[Value]:
    """The outer values that the regions of an op use and whose gradients are wanted."""
    used = {v for inner in op.walk() if inner is not op for v in inner.inputs}
    return [v for v in outer_values(op) if v in used and v in walk.active]


# ---- if


def backward_if(op: If, walk: Backward) -> None:
    """An `if` of the same condition, whose branches give the gradients of what both use."""
    outside = wanted_outside(op, walk)
    gradients = [walk.of(v) for v in op.results]
    names = [n for n in walk.variables if reads(op, n)]
    kinds = [plain(v.tensor) for v in outside] + [plain(variable_type(op, n)) for n in names]
    if not kinds:
        return
    branches: list[Block] = []
    for forward in op.regions:
        inner = Backward(Builder(Block()), outside, names)
        ends = forward.terminator.inputs
        inner.run([o for o in forward if not o.terminator], zip(ends, gradients, strict=True))
        branches.append(ended(inner, _found(inner, outside, names, kinds)))
    made = If(op.condition, types=[*kinds], then=branches[0], else_=branches[1])
    for number, branch in enumerate(branches):
        _save_of_branch(op, number, branch)
    walk.builder.add(made)
    for value, gradient in zip(outside, made.results, strict=False):
        walk.add(value, gradient)
    for name, gradient in zip(names, made.results[len(outside) :], strict=True):
        walk.add_read(name, gradient)


def _found(
    inner: Backward, outside: list[Value], names: list[str], kinds: list[TensorType]
) -> list[Value]:
    """The gradients of outer values, then of variables, which a region adds to."""
    found = [*map(inner.of, outside), *map(inner.of_variable, names)]
    return [inner.or_zeros(g, k) for g, k in zip(found, kinds, strict=True)]


def ended(inner: Backward, values: list[Value]) -> Block:
    """The block of a walk, which yields values; what does not lead to them goes."""
    block = inner.builder.block
    end = block.append(Yield(values))
    erase_unused(block, block.first, end)
    return block


def _save_of_branch(op: If, number: int, backward: Block) -> None:
    """Values of a branch that its backward branch uses become results of the `if`."""
    forward, other = op.regions[number], op.regions[1 - number]
    for value in needed_of(forward, backward):
        op.results.append(Value(value.type, op, len(op.results), value.name))
        yield_too(forward, value)
        inner = Backward(Builder(other, other.terminator), ())
        yield_too(other, inner.do.zeros(plain(value.tensor)))
        replace_inside(backward, value, op.results[-1])


def yield_too(block: Block, value: Value) -> None:
    end = block.terminator
    end.set_operands([*end.operands, value])


def needed_of(forward: Block, backward: Block) -> list[Value]:
    """The values of a forward block that a backward one uses; what costs nothing is copied there.

    The copies stand first in the backward block.
    """
    found: dict[Value, None] = {}
    first = backward.first
    for op in list(backward.walk()):
        for value in op.inputs:
            if home(value) is forward:
                found[value] = None
    kept: list[Value] = []
    for value in found:
        maker = value.producer
        if isinstance(maker, Constant | Iota | DimValue):
            copy = backward.insert(maker.clone({}), first)
            replace_inside(backward, value, copy.results[0])
        else:
            kept.append(value)
    return kept


def replace_inside(block: Block, old: Value, new: Value) -> None:
    """Makes the ops of a block, and of their regions, use another value."""
    inside = set(block.walk())
    for user, index in list(old.uses):
        if user in inside:
            user.set_operand(index, new)


def plain(kind: TensorType) -> TensorType:
    return TensorType(kind.dtype, kind.shape)


def variable_type(op: Op, name: str) -> TensorType:
    """The type of a variable that is read somewhere before or inside of an op."""
    root: Block | None = op.parent
    while root is not None and isinstance(root.parent, Op):
        root = root.parent.parent
    assert root is not None, "the op is in no block"
    return next(o.results[0].tensor for o in root.walk() if read_variable(o) == name)


# ---- scan


def backward_scan(op: Scan, walk: Backward) -> None:
    """A scan from the other end that carries the gradients of the carried values.

    It also carries those of outer values, which it adds up; gradients of the sequences are its
    outputs.
    """
    outside = wanted_outside(op, walk)
    names = [n for n in walk.variables if reads(op, n)]
    kinds = [plain(v.tensor) for v in outside] + [plain(variable_type(op, n)) for n in names]
    floats = [i for i in range(op.carries) if is_float(op.do.args[i])]
    carried = [plain(op.do.args[i].tensor) for i in floats]
    given = [
        (op.do.terminator.inputs[i], g)
        for i in range(op.carries, len(op.results))
        if (g := walk.of(op.results[i])) is not None
    ]
    slices = [i for i in range(op.carries, len(op.do.args)) if op.arguments[i] in walk.active]

    block = Block([*carried, *kinds, *(_slice(g.tensor) for _, g in given)])
    inner = Backward(Builder(block), [*outside, *op.do.args], names)
    ends = [op.do.terminator.inputs[i] for i in floats] + [v for v, _ in given]
    arguments = block.args[: len(carried)] + block.args[len(carried) + len(kinds) :]
    inner.run([o for o in op.do if not o.terminator], zip(ends, arguments, strict=True))
    nexts = [inner.or_zeros(inner.of(op.do.args[i]), plain(op.do.args[i].tensor)) for i in floats]
    sums = block.args[len(carried) : len(carried) + len(kinds)]
    parts = [*map(inner.of, outside), *map(inner.of_variable, names)]
    nexts += [s if g is None else inner.do("add", s, g) for s, g in zip(sums, parts, strict=True)]
    pieces = [plain(op.do.args[i].tensor) for i in slices]
    nexts += [
        inner.or_zeros(inner.of(op.do.args[i]), k) for i, k in zip(slices, pieces, strict=True)
    ]
    ended(inner, nexts)

    initial = [
        walk.or_zeros(walk.of(op.results[i]), k) for i, k in zip(floats, carried, strict=True)
    ]
    initial += [walk.do.zeros(k) for k in kinds]
    sequences = [TensorType(k.dtype, (op.length, *k.shape)) for k in pieces]
    made = Scan(
        [*initial, *(g for _, g in given), *_saved(op, block)],
        carries=len(initial),
        length=op.length,
        types=[*carried, *kinds, *sequences],
        do=block,
        reverse=not op.reverse,
    )
    walk.builder.add(made)
    results = iter(made.results)
    for i in floats:
        walk.add(op.arguments[i], next(results))
    for value in outside:
        walk.add(value, next(results))
    for name in names:
        walk.add_read(name, next(results))
    for i in slices:
        walk.add(op.arguments[i], next(results))


def _saved(op: Scan, backward: Block) -> list[Value]:
    """The sequences of what the backward block uses of the forward one, whose uses it replaces."""
    found: list[Value] = []
    for value in needed_of(op.do, backward):
        if value in op.do.args[op.carries :]:
            found.append(op.arguments[value.index])
        else:
            kind = value.tensor
            sequence = TensorType(kind.dtype, (op.length, *kind.shape))
            op.results.append(Value(sequence, op, len(op.results), value.name))
            yield_too(op.do, value)
            found.append(op.results[-1])
        replace_inside(backward, value, backward.add_arg(plain(value.tensor), value.name))
    return found


def _slice(kind: TensorType) -> TensorType:
    return TensorType(kind.dtype, kind.shape[1:])


def reads(op: Op, name: str) -> bool:
    return any(read_variable(inner) == name for inner in op.walk())
