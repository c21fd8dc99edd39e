"""Ops that read elements from files (arXiv 1603.04467, section 4.5).

A reader is a resource: `resource @r : tensor<8x8xf32>, tensor<i64> {kind = "npy_reader", files =
["images-*.npy", "labels-*.npy"], batch = 32, epochs = 3}`. The others are a "safetensors_reader"
(`names` of its arrays) and a "tfrecord_reader". Files lie in the folder that the caller gives.
"""

from __future__ import annotations

from typing import Any

from tfc.ir.core import Effect, Module, SymbolRef, Value, attribute, result, result_type
from tfc.ir.types import TensorType, Type
from tfc.ops.stateful import ResourceOp

KINDS = ("npy_reader", "safetensors_reader", "tfrecord_reader")


class ReadBatch(ResourceOp, name="read_batch"):
    """The next `batch` elements of a reader, stacked along axis 0.

    A thread of the reader's own reads `prefetch` batches ahead. Where fewer elements are left, it
    fails as out of range.

    C1: the results are stacks of `batch` of the reader's elements.
    C2: the elements do not go to a queue.

    ```mlir
    resource @r : tensor<4xf32> {kind = "npy_reader", files = "x-*.npy", batch = 2, epochs = 3}
    func @main() -> (%y: tensor<2x4xf32>) {
      %y = read_batch(@r) : tensor<2x4xf32>
      return %y
    }
    ```
    """

    effects = Effect.BLOCKING | Effect.READ | Effect.WRITE
    kinds = KINDS
    resource: Any = attribute("symbol")
    types: list[Type] = result_type()
    outputs: list[Value] = result(variadic=True)

    def verify_in(self, module: Module) -> None:
        held = self.declared(module)
        batch = held.attributes.get("batch", 1)
        wanted: list[Type] = []
        for kind in held.types:
            assert isinstance(kind, TensorType), "`declared` checks it"
            wanted.append(TensorType(kind.dtype, (batch, *kind.shape)))
        found = [v.type for v in self.results]
        texts = [", ".join(map(str, types)) or "nothing" for types in (wanted, found)]
        self.require(found == wanted, "C1", f"@{held.name} gives {texts[0]}, not {texts[1]}")
        for queue in module.resources.values():
            fed = queue.attributes.get("reader") == SymbolRef(held.name)
            self.require(not fed, "C2", f"the elements of @{held.name} go to @{queue.name}")

    def host_call(self) -> tuple[str, dict[str, Any]]:
        return self.name, {"resource": self.resource.name}
