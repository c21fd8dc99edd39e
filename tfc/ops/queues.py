"""Ops on queues: put in, take out, close (arXiv 1603.04467, section 4.6).

A queue is a resource of the module that holds elements of its types:
`resource @q : tensor<4xf32>, tensor<i64> {kind = "fifo_queue", capacity = 32}`. A
"random_shuffle_queue" has a `seed` and gives a random one of the first `min_after_dequeue + 1` that
are left, and waits until there are so many. `reader = @r` has a thread fill it from a reader.
"""

from __future__ import annotations

from typing import Any

from tfc.ir.core import Effect, Module, Value, attribute, result, result_type, variadic
from tfc.ir.expr import Dim
from tfc.ir.types import I64, TensorType, Type
from tfc.ops.stateful import ResourceOp

KINDS = ("fifo_queue", "random_shuffle_queue")


class QueueOp(ResourceOp):
    """An op on the queue that `resource` names."""

    effects = Effect.BLOCKING | Effect.READ | Effect.WRITE
    kinds = KINDS

    def host_call(self) -> tuple[str, dict[str, Any]]:
        return self.name, {"resource": self.resource.name}

    def check_components(
        self, module: Module, values: list[Value], lead: tuple[Dim, ...] = ()
    ) -> None:
        """C1: the values are what an element holds, after leading axes that all have."""
        held = [_stacked(kind, lead) for kind in self.declared(module).types]
        found = [v.type for v in values]
        texts = [", ".join(map(str, types)) or "nothing" for types in (held, found)]
        text = f"@{self.resource.name} gives {texts[0]} here, not {texts[1]}"
        self.require(found == held, "C1", text)


def _stacked(kind: Type, lead: tuple[Dim, ...]) -> TensorType:
    assert isinstance(kind, TensorType)
    return TensorType(kind.dtype, (*lead, *kind.shape))


class Enqueue(QueueOp, name="enqueue"):
    """Puts an element into a queue; waits while it is full, and fails where it is closed.

    C1: the operands have the types of the queue's elements.

    ```mlir
    resource @q : tensor<4xf32>, tensor<i64> {kind = "fifo_queue", capacity = 8}
    func @main(%x: tensor<4xf32>, %i: tensor<i64>) -> (%y: tensor<4xf32>, %j: tensor<i64>) {
      ^put: enqueue(@q, %x, %i)
      %y, %j = dequeue(@q) after(^put) : tensor<4xf32>, tensor<i64>
      return %y, %j
    }
    ```
    """

    resource: Any = attribute("symbol")
    values: list[Value] = variadic()

    def infer(self) -> list[Type]:
        return []

    def verify_in(self, module: Module) -> None:
        self.check_components(module, self.values)


class EnqueueMany(QueueOp, name="enqueue_many"):
    """Puts the slices along axis 0 into a queue, one after another, as there is room for them.

    C1: the operands are stacks, all of one height, of the queue's elements.

    ```mlir
    resource @q : tensor<f32> {kind = "fifo_queue", capacity = 8}
    func @main(%x: tensor<3xf32>) -> (%n: tensor<i64>) {
      ^put: enqueue_many(@q, %x)
      %n = queue_size(@q) after(^put) : tensor<i64>
      return %n
    }
    ```
    """

    resource: Any = attribute("symbol")
    values: list[Value] = variadic()

    def infer(self) -> list[Type]:
        return []

    def verify_in(self, module: Module) -> None:
        height = self.values[0].tensor.shape[:1] if self.values else ()
        self.check_components(module, self.values, height)


class Dequeue(QueueOp, name="dequeue"):
    """Takes an element out of a queue; waits while there is none.

    Where the queue is closed and has too few elements left, it fails as out of range.

    C1: the results have the types of the queue's elements.

    ```mlir
    resource @q : tensor<4xf32> {kind = "random_shuffle_queue", capacity = 8, seed = 1}
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      ^put: enqueue(@q, %x)
      %y = dequeue(@q) after(^put) : tensor<4xf32>
      return %y
    }
    ```
    """

    resource: Any = attribute("symbol")
    types: list[Type] = result_type()
    outputs: list[Value] = result(variadic=True)

    def verify_in(self, module: Module) -> None:
        self.check_components(module, self.results)


class DequeueMany(QueueOp, name="dequeue_many"):
    """Takes `count` elements out of a queue at once, stacked along axis 0.

    C1: the results are stacks of `count` of the queue's elements.
    C2: `count` is 1 or more.

    ```mlir
    resource @q : tensor<f32> {kind = "fifo_queue", capacity = 8}
    func @main(%x: tensor<3xf32>) -> (%y: tensor<2xf32>) {
      ^put: enqueue_many(@q, %x)
      %y = dequeue_many(@q) {count = 2} after(^put) : tensor<2xf32>
      return %y
    }
    ```
    """

    resource: Any = attribute("symbol")
    count: int = attribute("int")
    types: list[Type] = result_type()
    outputs: list[Value] = result(variadic=True)

    def verify(self) -> None:
        self.require(self.count >= 1, "C2", f"count is {self.count}")

    def verify_in(self, module: Module) -> None:
        self.check_components(module, self.results, (self.count,))

    def host_call(self) -> tuple[str, dict[str, Any]]:
        return self.name, {"resource": self.resource.name, "count": self.count}


class DequeueUpTo(QueueOp, name="dequeue_up_to"):
    """As `dequeue_many`, but what a closed queue has left where that is less, if it is anything.

    The first result is the number of elements; behind them the stacks hold zeros.

    C1: the results after the first are stacks of `count` of the queue's elements.
    C2: `count` is 1 or more, and the first result an i64 of rank 0.

    ```mlir
    resource @q : tensor<f32> {kind = "fifo_queue", capacity = 8}
    func @main(%x: tensor<3xf32>) -> (%n: tensor<i64>, %y: tensor<5xf32>) {
      ^put: enqueue_many(@q, %x)
      ^end: queue_close(@q) after(^put)
      %n, %y = dequeue_up_to(@q) {count = 5} after(^end) : tensor<i64>, tensor<5xf32>
      return %n, %y
    }
    ```
    """

    resource: Any = attribute("symbol")
    count: int = attribute("int")
    types: list[Type] = result_type()
    outputs: list[Value] = result(variadic=True)

    def verify(self) -> None:
        self.require(self.count >= 1, "C2", f"count is {self.count}")
        found = self.results[0].type if self.results else None
        self.require(found == TensorType(I64, ()), "C2", f"the first result is a {found}")

    def verify_in(self, module: Module) -> None:
        self.check_components(module, self.results[1:], (self.count,))

    def host_call(self) -> tuple[str, dict[str, Any]]:
        return self.name, {"resource": self.resource.name, "count": self.count}


class QueueSize(QueueOp, name="queue_size"):
    """How many elements a queue holds.

    ```mlir
    resource @q : tensor<f32> {kind = "fifo_queue", capacity = 8}
    func @main(%x: tensor<f32>) -> (%n: tensor<i64>) {
      ^put: enqueue(@q, %x)
      %n = queue_size(@q) after(^put) : tensor<i64>
      return %n
    }
    ```
    """

    effects = Effect.READ
    resource: Any = attribute("symbol")
    output: Value = result()

    def infer(self) -> list[Type]:
        return [TensorType(I64, ())]

    def verify_in(self, module: Module) -> None:
        self.declared(module)


class QueueClose(QueueOp, name="queue_close"):
    """Lets nothing into a queue any more; what is in it can still be taken out.

    What waits to be put in still comes in, or is cancelled with `cancel_pending`. It is an error to
    close a queue twice without that.

    ```mlir
    resource @q : tensor<f32> {kind = "fifo_queue", capacity = 8}
    func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
      ^put: enqueue(@q, %x)
      ^end: queue_close(@q) {cancel_pending = true} after(^put)
      %y = dequeue(@q) after(^end) : tensor<f32>
      return %y
    }
    ```
    """

    effects = Effect.READ | Effect.WRITE
    resource: Any = attribute("symbol")
    cancel_pending: bool = attribute("bool", default=False)

    def infer(self) -> list[Type]:
        return []

    def verify_in(self, module: Module) -> None:
        self.declared(module)

    def host_call(self) -> tuple[str, dict[str, Any]]:
        attributes = {"resource": self.resource.name, "cancel_pending": self.cancel_pending}
        return self.name, attributes
