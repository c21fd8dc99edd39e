"""The op that writes values for a person to read."""

from __future__ import annotations

from typing import Any

from tfc.ir.core import Effect, Value, attribute, variadic
from tfc.ir.types import Type
from tfc.ops.stateful import HostOp


class Print(HostOp, name="print"):
    """Writes a line to the standard error stream: `message`, then the operands.

    Prints keep their order among each other.

    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %y = exp(%x) : tensor<4xf32>
      ^log: print(%y) {message = "exp:"}
      return %y after(^log)
    }
    ```
    """

    effects = Effect.WRITE
    values: list[Value] = variadic()
    message: str = attribute("str", default="")

    def infer(self) -> list[Type]:
        return []

    def host_call(self) -> tuple[str, dict[str, Any]]:
        dtypes = [v.tensor.dtype.name for v in self.values]
        return self.name, {"message": self.message, "dtypes": dtypes}
