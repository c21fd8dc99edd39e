"""What connects the functions that one function was cut into: send, recv, and their call."""

from __future__ import annotations

from typing import Any

from tfc.ir.core import (
    Effect,
    Function,
    Module,
    SymbolRef,
    Value,
    attribute,
    operand,
    result,
    result_type,
    variadic,
)
from tfc.ir.types import TensorType, Type
from tfc.ops.stateful import HostOp

MEETING = "the channels of a call"
"""What `send` and `recv` touch: so passes keep the order in which a function sends and waits."""


class _Channel(HostOp):
    """A host op on the tensor `key` of the running call."""

    def resources(self) -> tuple[str, ...]:
        return (MEETING,)

    def host_call(self) -> tuple[str, dict[str, Any]]:
        return self.name, {"key": self.attributes["key"]}


class Send(_Channel, name="send"):
    """Hands a tensor to the partition of the same call that receives it; never waits.

    Source: arXiv 1603.04467, section 3.2.2.

    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %y = partitioned_call(%x) {parts = [@"main/cpu:0", @"main/cpu:1"]} : tensor<4xf32>
      return %y
    }
    func @"main/cpu:0"(%x: tensor<4xf32>) {
      %a = exp(%x) : tensor<4xf32>
      ^sent: send(%a) {key = "a to cpu:1"}
      return after(^sent)
    }
    func @"main/cpu:1"(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = recv() {key = "a to cpu:1"} : tensor<4xf32>
      %y = neg(%a) : tensor<4xf32>
      return %y
    }
    ```
    """

    level = "any"
    effects = Effect.WRITE
    value: Value = operand()
    key: str = attribute("str")

    def infer(self) -> list[Type]:
        return []


class Recv(_Channel, name="recv"):
    """The tensor that another partition of the same call sends; waits for it.

    An error where that partition fails, or ends without sending it.

    Source: arXiv 1603.04467, section 3.2.2.

    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>, %z: tensor<4xf32>) {
      %y, %z = partitioned_call(%x) {parts = [@"main/cpu:0", @"main/cpu:1"]}
          : tensor<4xf32>, tensor<4xf32>
      return %y, %z
    }
    func @"main/cpu:0"(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %y = exp(%x) : tensor<4xf32>
      ^sent: send(%y) {key = "y to cpu:1"}
      return %y after(^sent)
    }
    func @"main/cpu:1"(%x: tensor<4xf32>) -> (%z: tensor<4xf32>) {
      %a = recv() {key = "y to cpu:1"} : tensor<4xf32>
      %z = neg(%a) : tensor<4xf32>
      return %z
    }
    ```
    """

    level = "any"
    effects = Effect.READ | Effect.BLOCKING
    key: str = attribute("str")
    type: TensorType = result_type()
    output: Value = result()


class PartitionedCall(HostOp, name="partitioned_call"):
    """Runs functions of the module at the same time, each with all operands.

    The results are those of the first part, then those of the second, and so on. Each part runs on
    a thread of its own; if one fails, all end with its error.

    C1: `parts` names functions of the module that hold no partitioned calls themselves.
    C2: each part takes inputs of the types of the operands.
    C3: the results are of the types of the parts' results.
    C4: what a part receives is of the type of what is sent under its key.

    ```mlir
    func @main(%x: tensor<Sxf32>) -> (%y: tensor<Sxf32>, %z: tensor<Sxf32>) {
      %y, %z = partitioned_call(%x) {parts = [@left, @right]} : tensor<Sxf32>, tensor<Sxf32>
      return %y, %z
    }
    func @left(%x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
      %y = exp(%x) : tensor<Sxf32>
      return %y
    }
    func @right(%x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
      %y = neg(%x) : tensor<Sxf32>
      return %y
    }
    ```
    """

    level = "any"
    effects = Effect.READ | Effect.WRITE | Effect.BLOCKING
    arguments: list[Value] = variadic()
    parts: Any = attribute("any")
    types: list[Type] = result_type()
    outputs: list[Value] = result(variadic=True)

    def host_call(self) -> tuple[str, dict[str, Any]]:
        return self.name, {"parts": [part.name for part in self.parts]}

    def verify(self) -> None:
        named = isinstance(self.parts, tuple) and all(isinstance(p, SymbolRef) for p in self.parts)
        self.require(bool(named and self.parts), "C1", "parts must be a list of functions")

    def verify_in(self, module: Module) -> None:
        given = [v.type for v in self.inputs]
        results: list[Type] = []
        for part in self.parts:
            function = module.functions.get(part.name)
            if function is None:
                raise self.error(f"C1: the module has no function @{part.name}")
            nested = any(isinstance(op, PartitionedCall) for op in function.body.walk())
            self.require(not nested, "C1", f"@{part.name} calls partitions itself")
            fits = [a.type for a in function.body.args] == given
            self.require(fits, "C2", f"@{part.name} takes inputs of other types")
            if function.body.last is not None:
                results += [v.type for v in function.body.last.inputs]
        found = [v.type for v in self.results]
        texts = [", ".join(map(str, types)) or "nothing" for types in (found, results)]
        text = f"the results are {texts[0]}, those of the parts {texts[1]}"
        self.require(found == results, "C3", text)
        self._check_channels([module.functions[part.name] for part in self.parts])

    def _check_channels(self, parts: list[Function]) -> None:
        """C4."""
        ops = [op for part in parts for op in part.body.walk()]
        sent = {op.key: op.value.tensor for op in ops if isinstance(op, Send)}
        for op in ops:
            if isinstance(op, Recv) and op.key in sent:
                given, wanted = sent[op.key], op.output.tensor
                text = f"{op.key!r} is sent as {given}, and received as {wanted}"
                self.require(_may_be(given, wanted), "C4", text)


def _may_be(a: TensorType, b: TensorType) -> bool:
    """Whether two types may be one, once symbols of their dimensions have values."""
    if a.dtype != b.dtype or a.rank != b.rank:
        return False
    pairs = zip(a.shape, b.shape, strict=True)
    return all(m == n for m, n in pairs if isinstance(m, int) and isinstance(n, int))
