"""Ops on variables: read, assign, add to, subtract from (arXiv 1603.04467, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ir.core import Effect, Module, Value, attribute, operand, result, result_type
from tfc.ir.types import TensorType, Type
from tfc.ops.arithmetic import Add, Sub
from tfc.ops.base import NUMERIC, Array, Composite, narrow, widen
from tfc.ops.elementwise import Neg
from tfc.ops.stateful import VariableOp

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.runtime.state import State


class Read(VariableOp, name="read"):
    """The value that a variable has when this runs; an error where none was assigned yet.

    C1: the type is that of the variable.

    ```mlir
    variable @v : tensor<4xf32>
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = assign(@v, %x) : tensor<4xf32>
      %y = read(@v) after(%a) : tensor<4xf32>
      return %y
    }
    ```
    """

    level = "any"
    effects = Effect.READ
    variable: Any = attribute("symbol")
    type: TensorType = result_type()
    output: Value = result()

    def verify_in(self, module: Module) -> None:
        held, given = self.declared(module), self.output.type
        self.require(held.type == given, "C1", f"@{held.name} is a {held.type}, not a {given}")

    def run(self, state: State) -> Array:
        return state.read(self.variable.name)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        return []


class _Update(VariableOp):
    """Changes a variable; the result is its new value."""

    variable: Any = attribute("symbol")
    value: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        return [self.value.type]

    def verify_in(self, module: Module) -> None:
        held, given = self.declared(module), self.value.type
        self.require(held.type == given, "C1", f"@{held.name} is a {held.type}, not a {given}")


class Assign(_Update, name="assign"):
    """Sets a variable; the result is the value.

    C1: the value has the variable's type.

    ```mlir
    variable @v : tensor<4xf32>
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %y = assign(@v, %x) : tensor<4xf32>
      return %y
    }
    ```
    """

    level = "any"
    effects = Effect.WRITE

    def run(self, state: State, value: Array) -> Array:
        return self.updated(state, value)

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """The result is the value; what later ops read of the variable is another matter."""
        return gradients


class _Change(_Update, Composite):
    """Changes a variable by its old value; another write comes before or after, never between."""

    effects = Effect.READ | Effect.WRITE
    commutes = True

    def verify(self) -> None:
        self.check_dtype(self.value, NUMERIC, "C2", "the value")

    def decompose(self, b: Builder) -> list[Value]:
        old = b.add(Read(self.variable, self.value.tensor))
        for op in self.after:
            old.add_after(op)
        return [b.value(Assign(self.variable, self.changed(b, old.result)))]

    def run(self, state: State, value: Array) -> Array:
        old = state.read(self.variable.name)
        with np.errstate(all="ignore"):
            new = self.combined(widen(old), widen(value))
        return self.updated(state, narrow(new, old.dtype))

    def combined(self, old: Array, value: Array) -> Array:
        """The new value in numpy."""
        raise NotImplementedError(f"{self.name} changes nothing")

    def changed(self, b: Builder, old: Value) -> Value:
        """The new value, made by other ops."""
        raise NotImplementedError(f"{self.name} changes nothing")

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """That by the value, as if the old one were constant."""
        (g,) = gradients
        return [None if g is None else self.share(b, g)]

    def share(self, b: Builder, g: Value) -> Value:
        """The gradient by the value for that by the result."""
        return g


class AssignAdd(_Change, name="assign_add"):
    """Adds to a variable; the result is the sum.

    C1: the value has the variable's type.
    C2: it holds numbers.

    ```mlir
    variable @v : tensor<4xf32>
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = assign(@v, %x) : tensor<4xf32>
      %y = assign_add(@v, %x) after(%a) : tensor<4xf32>
      return %y
    }
    ```
    """

    def combined(self, old: Array, value: Array) -> Array:
        return old + value

    def changed(self, b: Builder, old: Value) -> Value:
        return b.value(Add(old, self.value))


class AssignSub(_Change, name="assign_sub"):
    """Subtracts from a variable; the result is the difference.

    C1: the value has the variable's type.
    C2: it holds numbers.

    ```mlir
    variable @v : tensor<4xf32>
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = assign(@v, %x) : tensor<4xf32>
      %y = assign_sub(@v, %x) after(%a) : tensor<4xf32>
      return %y
    }
    ```
    """

    def combined(self, old: Array, value: Array) -> Array:
        return old - value

    def changed(self, b: Builder, old: Value) -> Value:
        return b.value(Sub(old, self.value))

    def share(self, b: Builder, g: Value) -> Value:
        return b.value(Neg(g))
