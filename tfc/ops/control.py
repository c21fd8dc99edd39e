"""Ops that hold regions, end them, or call kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfc.ir.core import (
    Block,
    Effect,
    Function,
    Op,
    SymbolRef,
    Value,
    attribute,
    operand,
    region,
    result,
    result_type,
    variadic,
)
from tfc.ir.expr import Dim
from tfc.ir.types import BOOL, TensorType, Type
from tfc.ops.base import GraphOp, is_composite

if TYPE_CHECKING:
    from tfc.ops.backward import Backward


class Return(Op, name="return"):
    """Ends a function and gives its results, which are the operands.

    C1: it ends the body of a function, which names as many outputs.

    ```mlir
    func @main(%x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
      return %x
    }
    ```
    """

    level = "any"
    terminator = True
    values: list[Value] = variadic()

    def infer(self) -> list[Type]:
        return []

    def verify(self) -> None:
        owner = self.parent.parent if self.parent else None
        self.require(isinstance(owner, Function), "C1", "it is not the end of a function")
        assert isinstance(owner, Function)
        names = len(owner.output_names)
        message = f"it gives {len(self.values)} values, @{owner.name} has {names} outputs"
        self.require(len(self.values) == names, "C1", message)


class Yield(Op, name="yield"):
    """Ends a region and gives the results of the op that holds it; see `if`.

    C1: it ends a region of an op.

    ```mlir
    func @main(%c: tensor<bool>, %x: tensor<f32>) -> (%y: tensor<f32>) {
      %y = if(%c) : tensor<f32> then {
        yield %x
      } else {
        %n = neg(%x) : tensor<f32>
        yield %n
      }
      return %y
    }
    ```
    """

    level = "any"
    terminator = True
    values: list[Value] = variadic()

    def infer(self) -> list[Type]:
        return []

    def verify(self) -> None:
        owner = self.parent.parent if self.parent else None
        self.require(isinstance(owner, Op), "C1", "it is not the end of a region")


class If(GraphOp, name="if"):
    """The results of the region `then` where the condition holds, else those of `else`.

    Only the region that is chosen runs. Both may use outer values.

    C1: the condition is a bool of rank 0.
    C2: both regions yield values of the result types.

    Source: ONNX If-21.

    ```mlir
    func @main(%c: tensor<bool>, %x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
      %y = if(%c) : tensor<Sxf32> then {
        %e = exp(%x) : tensor<Sxf32>
        yield %e
      } else {
        yield %x
      }
      return %y
    }
    ```
    """

    level = "any"
    condition: Value = operand()
    types: list[Type] = result_type()
    then: Block = region()
    else_: Block = region()
    outputs: list[Value] = result(variadic=True)

    def verify(self) -> None:
        self.check_rank(self.condition, 0, "C1", "the condition")
        self.check_dtype(self.condition, (BOOL,), "C1", "the condition")
        for name, block in (("then", self.then), ("else", self.else_)):
            self.require(not block.args, "C2", f"`{name}` has arguments")
            check_yield(self, block, name, "C2")

    def backward(self, walk: Backward) -> None:
        from tfc.ops.backward_control import backward_if

        backward_if(self, walk)


def check_yield(op: GraphOp, block: Block, name: str, constraint: str) -> None:
    """Requires that a region yields the results of its op."""
    end = block.last
    op.require(isinstance(end, Yield), constraint, f"`{name}` does not end with a yield")
    assert isinstance(end, Yield)
    found, wanted = [v.type for v in end.values], [v.type for v in op.results]
    text = f"`{name}` yields {_listed(found)}, the results are {_listed(wanted)}"
    op.require(found == wanted, constraint, text)


def _listed(types: list[Type]) -> str:
    return ", ".join(map(str, types)) or "nothing"


KINDS = ("map", "reduction", "contraction", "convolution", "pool", "attention", "concat", "scan")
"""What a group may be built around."""


def _one_of(names: tuple[str, ...]) -> str:
    return f"one of {', '.join(names)}"


def _counted(names: list[str]) -> str:
    return " and ".join(f"a {name}" for name in names) or "no op with a kernel of its own"


class Fusion(GraphOp, name="fusion"):
    """A group of ops that becomes one kernel. Its region uses only its own arguments.

    `kind` says what the group is built around, `schedule` how its kernel is laid out; both are
    written by passes.

    C1: the region has an argument of the type of each operand.
    C2: the region yields values of the result types.
    C3: no op of the region uses a value from outside.
    C4: `kind` is one of `KINDS`; a group of another kind than map holds one op that has such a
        kernel, or reductions, and no op with a kernel of another kind.
    C5: each op of the region is used there, and none holds a region, has an effect, or is a
        composite; attention is there only as its kernel can be built.

    ```mlir
    func @main(%x: tensor<Sxf32>, %b: tensor<f32>) -> (%y: tensor<Sxf32>) {
      %y = fusion(%x, %b) {kind = "map"} : tensor<Sxf32> do(%u: tensor<Sxf32>, %v: tensor<f32>) {
        %s = add(%u, %v) : tensor<Sxf32>
        %t = tanh(%s) : tensor<Sxf32>
        yield %t
      }
      return %y
    }
    ```
    """

    gradient_needs = "take gradients before ops are gathered to kernels"
    arguments: list[Value] = variadic()
    kind: str = attribute("str")
    types: list[Type] = result_type()
    do: Block = region()
    schedule: Any = attribute("any", default=())
    outputs: list[Value] = result(variadic=True)

    def verify(self) -> None:
        found, wanted = [a.type for a in self.do.args], [v.type for v in self.inputs]
        text = f"the arguments are {_listed(found)}, the operands {_listed(wanted)}"
        self.require(found == wanted, "C1", text)
        check_yield(self, self.do, "do", "C2")
        inside = set(self.do.args)
        for op in self.do.walk():
            outer = [v for v in op.inputs if v not in inside and not _is_within(v, self.do)]
            self.require(not outer, "C3", f"`{op.name}` uses {outer[:1]} from outside")
            plain = not op.regions and op.effects is Effect.NONE and not is_composite(op)
            plain = plain and getattr(op, "has_kernel", True)
            self.require(plain, "C5", f"`{op.name}` cannot be part of a kernel")
            used = op.terminator or any(v.uses for v in op.results)
            self.require(used, "C5", f"nothing uses `{op.name}`")
        self._check_kind()

    def _check_kind(self) -> None:
        self.require(self.kind in KINDS, "C4", f"the kind is {self.kind!r}", _one_of(KINDS))
        heroes = [hero for op in self.do if (hero := getattr(op, "hero", ""))]
        most = len(heroes) if self.kind == "reduction" else 1
        wanted = [] if self.kind == "map" else [self.kind] * max(1, most)
        text = f"a group of the kind {self.kind!r} holds {_counted(heroes)}"
        self.require(heroes == wanted, "C4", text)


def _is_within(value: Value, block: Block) -> bool:
    """Whether a value is made in a block or in a region of its ops."""
    place = value.owner.parent if isinstance(value.owner, Op) else value.owner
    while isinstance(place, Block):
        if place is block:
            return True
        place = place.parent.parent if isinstance(place.parent, Op) else None
    return False


class Launch(GraphOp, name="launch"):
    """Runs a kernel of the module over the operands, which are its first buffers.

    The results are the buffers after them, which the kernel writes. `offset` is the place of each
    in the arena in bytes, -1 for one that is not there; the pass `memory-planning` writes it.

    C1: `kernel` names a kernel.

    ```mlir
    func @main(%x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
      %y = launch(%x) {kernel = @copy} : tensor<Sxf32>
      return %y
    }
    kernel @copy(%a: buffer<Sxf32>, %b: buffer<Sxf32, out>) grid(p0 = S) {
      %t = load(%a) {at = (p0)} : tile<1x1xf32>
      store(%b, %t) {at = (p0)}
    }
    ```
    """

    gradient_needs = "take gradients before ops are gathered to kernels"
    level = "any"
    arguments: list[Value] = variadic()
    kernel: Any = attribute("any")
    types: list[TensorType] = result_type()
    offset: tuple[Dim, ...] = attribute("dims", default=())
    outputs: list[Value] = result(variadic=True)

    def verify(self) -> None:
        text = f"kernel is {self.kernel!r}"
        self.require(isinstance(self.kernel, SymbolRef), "C1", text, "as in {kernel = @name}")
