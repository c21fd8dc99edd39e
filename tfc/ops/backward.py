"""Walks ops backward and adds up the gradients of what they use (arXiv 1603.04467, section 4.1).

Always holds: a gradient has the plain type of its value; values that are no floats have none; the
contributions to a value are added in the order in which they are found, so that the result is the
same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tfc.ir.core import Block, Effect, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.types import TensorType
from tfc.ops.base import GraphOp
from tfc.ops.calculus import Calculus

if TYPE_CHECKING:
    from tfc.ir.builder import Builder


class Backward:
    """One walk: the gradients so far, by value; `active` are the values that want one.

    `variables` are names of variables whose reads want one. New ops go to the builder's place.
    """

    def __init__(
        self, builder: Builder, active: Iterable[Value], variables: Sequence[str] = ()
    ) -> None:
        self.builder = builder
        self.do = Calculus(builder)
        self.active = dict.fromkeys(v for v in active if is_float(v))
        self.variables = tuple(variables)
        self._parts: dict[Value, list[Value]] = {}
        self.reads: dict[str, list[Value]] = {name: [] for name in variables}
        self._inner_reads: dict[str, list[Value]] = {name: [] for name in variables}

    def add(self, value: Value, gradient: Value) -> None:
        """Adds to the gradient of a value, if that wants one."""
        if value in self.active:
            plain = (value.tensor.dtype, value.tensor.shape)
            found = (gradient.tensor.dtype, gradient.tensor.shape)
            assert found == plain, f"a gradient of {gradient.type} for {value}"
            self._parts.setdefault(value, []).append(gradient)

    def of(self, value: Value) -> Value | None:
        """The gradient of a value; None where it is zero."""
        parts = self._parts.get(value)
        if not parts:
            return None
        total = parts[0]
        for part in parts[1:]:
            total = self.do("add", total, part)
        self._parts[value] = [total]
        return total

    def of_variable(self, name: str) -> Value | None:
        """The sum of the gradients of the values that were read of a variable."""
        parts = [g for v in self.reads[name] if (g := self.of(v)) is not None]
        parts += self._inner_reads[name]
        total = parts[0] if parts else None
        for part in parts[1:]:
            assert total is not None, "there is a first part"
            total = self.do("add", total, part)
        return total

    def add_read(self, name: str, gradient: Value) -> None:
        """Adds to the gradient of a variable what reads inside of a region contribute."""
        self._inner_reads[name].append(gradient)

    def or_zeros(self, gradient: Value | None, kind: TensorType) -> Value:
        """A gradient, which is zeros where there is none."""
        return self.do.zeros(kind) if gradient is None else gradient

    def run(self, ops: Sequence[Op], seeds: Iterable[tuple[Value, Value | None]]) -> None:
        """Walks ops, which stand in order, from the last to the first.

        `seeds` are values and the gradients that they have from elsewhere.
        """
        for op in ops:
            self._activate(op)
        for value, gradient in seeds:
            if gradient is not None:
                self.add(value, gradient)
        for op in reversed(ops):
            if any(v in self._parts for v in op.results) and self.depends(op):
                self._visit(op)

    def _activate(self, op: Op) -> None:
        """What an active value leads to is active; so is what is read of a variable."""
        name = read_variable(op)
        if name in self.reads:
            self.reads[name].append(op.results[0])
        elif not self.depends(op):
            return
        self.active.update((v, None) for v in op.results if is_float(v))

    def depends(self, op: Op) -> bool:
        """Whether a gradient may pass through an op."""
        if not getattr(op, "differentiable", False):
            return False
        return any(
            read_variable(inner) in self.reads or any(v in self.active for v in inner.inputs)
            for inner in op.walk()
        )

    def _visit(self, op: Op) -> None:
        assert isinstance(op, GraphOp), f"{op.name} is no op of the graph level"
        if read_variable(op) in self.reads:
            return
        block = self.builder.block
        last = self.builder.before.previous if self.builder.before else block.last
        with self.builder.at(op.location):
            op.backward(self)
        made = last.next if last else block.first
        while made is not None and made is not self.builder.before:
            if made.device is None and isinstance(op.device, str):
                made.device = op.device
            made = made.next


def is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float


def read_variable(op: Op) -> str:
    """The name of the variable that an op reads and gives; empty for other ops."""
    from tfc.ops.state import Read

    return op.variable.name if isinstance(op, Read) else ""


def through(
    op: GraphOp,
    decompose: Callable[[Builder], list[Value]],
    b: Builder,
    gradients: Sequence[Value | None],
) -> list[Value | None]:
    """The gradients by the operands of an op, through the ops that it is made of."""
    last = b.before.previous if b.before else b.block.last
    values = decompose(b)
    made: list[Op] = []
    part = last.next if last else b.block.first
    while part is not None and part is not b.before:
        made.append(part)
        part = part.next
    walk = Backward(b, op.inputs)
    walk.run(made, zip(values, gradients, strict=True))
    found: list[Value | None] = []
    for index, operand in enumerate(op.operands):
        first = operand is not None and operand not in op.operands[:index]
        found.append(walk.of(operand) if first and operand is not None else None)
    return found


def ops_before(block: Block, op: Op) -> list[Op]:
    """The ops of a block before one of them."""
    found: list[Op] = []
    for other in block:
        if other is op:
            return found
        found.append(other)
    raise TfcError("the op is not in the block")


def erase_unused(block: Block, first: Op | None, end: Op | None) -> None:
    """Erases the ops from `first` before `end` that nothing uses and that have no effect."""
    op = end.previous if end else block.last
    while op is not None:
        previous = None if op is first else op.previous
        used = any(v.uses for v in op.results) or op.control_users or op.terminator
        pure = all(inner.effects is Effect.NONE for inner in op.walk() if not inner.terminator)
        if not used and pure:
            op.erase()
        op = previous
