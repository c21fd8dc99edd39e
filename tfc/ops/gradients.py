"""The op `gradients`, and how it is replaced by the ops that compute them.

It is what the text of a training step says; the pass `gradients` expands it before anything else
looks at the graph.
"""

from __future__ import annotations

from collections.abc import Sequence

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Module, Op, Value, attribute, result, result_type, variadic
from tfc.ir.effects import effects_of, home
from tfc.ir.types import Type
from tfc.ops.backward import Backward, erase_unused, is_float, ops_before
from tfc.ops.base import GraphOp
from tfc.ops.counted_loops import as_scan, trip_count
from tfc.ops.loops import While


class Gradients(GraphOp, name="gradients"):
    """The gradients of the first `of` operands, in sum, by the others and by `variables`.

    A gradient by a variable is that by the values that the ops before read of it. With `seeded`
    the second `of` operands are the gradients of the first ones; else those are ones. Where there
    is no path the gradient is zeros. `recompute` lets the compiler compute cheap values again where
    the gradients need them, instead of keeping them (see the pass of that name).

    C1: there are `of` values, and as many gradients of theirs if `seeded`; all are floats.
    C2: the results have the types of the values, and then of the variables, that they are by.
    C3: all values are of the block that the op stands in.
    C4: a gradient given for a value has its type.

    Source: arXiv 1603.04467, section 4.1.

    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<f32>, %g: tensor<4xf32>) {
      %s = mul(%x, %x) : tensor<4xf32>
      %y = reduce_sum(%s) {axes = [0]} : tensor<f32>
      %g = gradients(%y, %x) : tensor<4xf32>
      return %y, %g
    }
    ```
    """

    differentiable = False  # it is gone before another one looks
    values: list[Value] = variadic()
    types: list[Type] = result_type()
    of: int = attribute("int", default=1)
    seeded: bool = attribute("bool", default=False)
    variables: tuple[str, ...] = attribute("strs", default=())
    recompute: bool = attribute("bool", default=False)
    outputs: list[Value] = result(variadic=True)

    @property
    def ys(self) -> list[Value]:
        return self.values[: self.of]

    @property
    def seeds(self) -> list[Value]:
        """The gradients that are given; none where they are ones."""
        return self.values[self.of : 2 * self.of] if self.seeded else []

    @property
    def xs(self) -> list[Value]:
        return self.values[self.of * (2 if self.seeded else 1) :]

    def verify(self) -> None:
        least = self.of * (2 if self.seeded else 1)
        text = f"it has {len(self.values)} operands"
        self.require(self.of >= 1 and least <= len(self.values), "C1", text)
        for value in self.values:
            self.require(is_float(value), "C1", f"{value} is no float")
        wanted = [v.type for v in self.xs]
        found = [v.type for v in self.results[: len(wanted)]]
        self.require(found == wanted, "C2", "the results are not of the types of the values")
        count = len(wanted) + len(self.variables)
        self.require(len(self.results) == count, "C2", f"there are {len(self.results)} results")
        for value in self.values:
            inside = self.parent is None or home(value) is self.parent
            self.require(inside, "C3", f"{value} is of another block")
        for y, seed in zip(self.ys, self.seeds, strict=False):
            self.require(y.type == seed.type, "C4", f"{seed} for {y}")

    def verify_in(self, module: Module) -> None:
        for name, value in zip(self.variables, self.results[len(self.xs) :], strict=True):
            held = module.variables.get(name)
            self.require(held is not None, "C2", f"the module has no variable @{name}")
            assert held is not None, "it was required"
            self.require(held.type == value.type, "C2", f"@{name} is a {held.type}")


def expand_all(body: Block) -> bool:
    """Replaces every `gradients` of a body, in order, by ops; whether there was one."""
    found = [op for op in body.walk() if isinstance(op, Gradients)]
    for op in found:
        expand(op)
    return bool(found)


def expand(op: Gradients) -> list[Value]:
    """Replaces one `gradients` by ops that stand in its place; the values of its results."""
    block = op.parent
    assert block is not None, "the op is in no block"
    count_loops(_leading_to(op))
    b, before, following = Builder.before_op(op), _leading_to(op), op.next
    last = op.previous
    walk = Backward(b, op.xs, op.variables)
    seeds = op.seeds or [walk.do.filled(1, y.tensor) for y in op.ys]
    walk.run(before, zip(op.ys, seeds, strict=True))
    found = [*map(walk.of, op.xs), *map(walk.of_variable, op.variables)]
    values = [walk.or_zeros(g, v.tensor) for g, v in zip(found, op.results, strict=True)]
    op.replace(values)
    erase_unused(block, last.next if last else block.first, following)
    return values


def _leading_to(op: Gradients) -> list[Op]:
    """The ops of the block that the values whose gradients are taken come from, in order."""
    block = op.parent
    assert block is not None, "the op is in no block"
    pending: list[Op] = [v.producer for v in op.ys if v.producer is not None]
    needed: set[Op] = set()
    while pending:
        maker = pending.pop()
        if maker in needed or maker.parent is not block:
            continue
        needed.add(maker)
        used = [v for inner in maker.walk() for v in inner.inputs]
        pending.extend(v.producer for v in used if v.producer is not None)
    return [o for o in ops_before(block, op) if o in needed]


def count_loops(ops: Sequence[Op]) -> None:
    """Makes scans of the loops among ops and inside of them, which is how they save values.

    One of which nobody knows how often it runs stays, if it can run again: without effects.
    """
    loops = [inner for op in ops for inner in op.walk() if isinstance(inner, While)]
    for loop in loops:
        if loop.maximum >= 0 or trip_count(loop) is not None or effects_of(loop):
            as_scan(loop)
