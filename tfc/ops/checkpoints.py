"""Ops that keep state in files (arXiv 1603.04467, section 3.3)."""

from __future__ import annotations

from typing import Any

from tfc.ir.core import Effect, Module, SymbolRef, Value, attribute, operand, result
from tfc.ir.types import I64, TensorType, Type
from tfc.ops.stateful import HostOp, check_resources, resource_infos
from tfc.runtime.errors import LoaderError
from tfc.runtime.paths import check_relative


class CheckpointOp(HostOp):
    """An op on the variables and resources `of`, and on files `path-STEP.safetensors`.

    The files lie in the folder that the caller gives.
    """

    of: tuple[Any, ...]
    path: str

    def resources(self) -> tuple[str, ...]:
        return tuple(v.name for v in self.of if isinstance(v, SymbolRef))

    def check(self) -> None:
        """C1 and C2."""
        names = self.resources()
        fits = bool(names) and len(names) == len(self.of)
        self.require(fits, "C1", "`of` is no list of names", "such as [@weights, @queue]")
        self.require(len(set(names)) == len(names), "C1", "`of` has a name twice")
        try:
            check_relative(self.path, "it")
        except LoaderError as error:
            raise self.error(f"C2: {error}") from error

    def verify_in(self, module: Module) -> None:
        for name in self.resources():
            known = name in module.variables or name in module.resources
            self.require(known, "C1", f"the module has no variable or resource @{name}")
        check_resources(self, resource_infos(module), self.resources())


class Save(CheckpointOp, name="save"):
    """Writes variables, and the state of queues and readers, to one file of a step.

    The file is whole or not there, whenever the process is killed. All of it is the state of one
    moment. Then the files of the smallest steps are removed, so that `keep` are left.

    C1: `of` names variables and resources of the module, each once.
    C2: the path is relative and does not lead out of the folder.
    C3: `keep` is 1 or more.
    C4: the step is an i64 of rank 0.

    ```mlir
    variable @w : tensor<4xf32>
    func @main(%x: tensor<4xf32>, %step: tensor<i64>) -> (%y: tensor<i64>) {
      %a = assign(@w, %x) : tensor<4xf32>
      ^saved: save(%step) {of = [@w], path = "model", keep = 3} after(%a)
      %y = restore {of = [@w], path = "model"} after(^saved) : tensor<i64>
      return %y
    }
    ```
    """

    effects = Effect.BLOCKING | Effect.READ | Effect.WRITE
    step: Value = operand()
    of: tuple[Any, ...] = attribute("any")
    path: str = attribute("str")
    keep: int = attribute("int", default=1)

    def infer(self) -> list[Type]:
        return []

    def verify(self) -> None:
        self.check()
        self.require(self.keep >= 1, "C3", f"keep is {self.keep}")
        given = self.step.type
        self.require(given == TensorType(I64, ()), "C4", f"the step is a {given}")

    def host_call(self) -> tuple[str, dict[str, Any]]:
        attributes = {"of": list(self.resources()), "path": self.path, "keep": self.keep}
        return self.name, attributes


class Restore(CheckpointOp, name="restore"):
    """Gives variables, queues and readers the state in the newest whole file; the result is its
    step.

    The file is checked first: hash, names, types. Where there is no file at all, that is an error,
    or with `otherwise` nothing is restored and the result is that number.

    C1: `of` names variables and resources of the module, each once.
    C2: the path is relative and does not lead out of the folder.

    ```mlir
    variable @w : tensor<4xf32>
    func @main() -> (%step: tensor<i64>) {
      %step = restore {of = [@w], path = "none", otherwise = -1} : tensor<i64>
      return %step
    }
    ```
    """

    effects = Effect.BLOCKING | Effect.READ | Effect.WRITE
    of: tuple[Any, ...] = attribute("any")
    path: str = attribute("str")
    otherwise: Any = attribute("any", default=None)
    output: Value = result()

    def infer(self) -> list[Type]:
        return [TensorType(I64, ())]

    def verify(self) -> None:
        self.check()
        known = self.otherwise is None or type(self.otherwise) is int
        if not known:
            raise self.error(f"otherwise is {self.otherwise!r}", "it is a whole number")

    def host_call(self) -> tuple[str, dict[str, Any]]:
        attributes = {"of": list(self.resources()), "path": self.path, "otherwise": self.otherwise}
        return self.name, attributes
