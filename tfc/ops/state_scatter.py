"""Ops that change slices of a variable at indices along its first axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tfc.ir.core import Effect, Module, Value, attribute, operand, result, result_type
from tfc.ir.types import TensorType
from tfc.ops.arithmetic import Sub
from tfc.ops.base import INDICES, NUMERIC, SIGNED, Array, Composite, narrow, widen
from tfc.ops.constant import scalar
from tfc.ops.elementwise import Neg
from tfc.ops.indexing import wrapped
from tfc.ops.scatter import ScatterNd
from tfc.ops.state import Assign, Read
from tfc.ops.stateful import VariableOp
from tfc.ops.view import Unsqueeze

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.runtime.state import State


class ScatterChange(VariableOp, Composite):
    """Combines the slices of a variable at indices with updates; the result is its new value.

    A negative index counts from the end; one out of range is an error. The updates of one slice are
    applied in order. `REDUCTION` is that of `scatter_nd`.
    """

    variable: Any = attribute("symbol")
    indices: Value = operand()
    updates: Value = operand()
    type: TensorType = result_type()
    output: Value = result()
    effects = Effect.READ | Effect.WRITE
    gradient_needs = "take gradients of what is read of the variable, not of its updates"
    REDUCTION: ClassVar[str] = "none"

    def verify(self) -> None:
        self.check_dtype(self.indices, INDICES, "C2", "the indices")
        kind, given = self.output.tensor, self.updates.tensor
        self.require(kind.rank > 0, "C3", "the variable has rank 0")
        wanted = TensorType(kind.dtype, (*self.indices.tensor.shape, *kind.shape[1:]))
        self.require(given == wanted, "C3", f"the updates are a {given}, not a {wanted}")

    def verify_in(self, module: Module) -> None:
        held, given = self.declared(module), self.output.type
        self.require(held.type == given, "C1", f"@{held.name} is a {held.type}, not a {given}")

    def run(self, state: State, indices: Array, updates: Array) -> Array:
        held = state.read(self.variable.name)
        places = wrapped(self, indices, held.shape[0], 0)
        return self.updated(state, self.combined(held, places, updates))

    def combined(self, held: Array, places: Array, updates: Array) -> Array:
        """The new value in numpy."""
        rows = updates.reshape(-1, *held.shape[1:])
        for place, row in zip(places.reshape(-1), rows, strict=True):
            held[place] = row
        return held

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        raise self.error("the op has no gradient", self.gradient_needs)

    def decompose(self, b: Builder) -> list[Value]:
        old = b.add(Read(self.variable, self.output.tensor))
        for op in self.after:
            old.add_after(op)
        vectors = b.value(Unsqueeze(self.indices, (self.indices.tensor.rank,)))
        changed = ScatterNd(old.result, vectors, self.composed(b), self.REDUCTION)
        return [b.value(Assign(self.variable, b.value(changed)))]

    def composed(self, b: Builder) -> Value:
        """What is combined with the old slices."""
        return self.updates


class ScatterArithmetic(ScatterChange):
    """One that combines numbers, by a function of numpy."""

    def verify(self) -> None:
        super().verify()
        self.check_dtype(self.updates, NUMERIC, "C4", "the updates")

    def combined(self, held: Array, places: Array, updates: Array) -> Array:
        wide = widen(held).copy()
        with np.errstate(all="ignore"):
            self.function().at(wide, places, widen(updates))
        return narrow(wide, held.dtype)

    def function(self) -> np.ufunc:
        """Combines an old slice and an update."""
        raise NotImplementedError(f"{self.name} combines nothing")


class ScatterUpdate(ScatterChange, name="scatter_update"):
    """Replaces slices of a variable at indices; the result is its new value.

    C1: the type that is given is the variable's.
    C2: the indices are i32 or i64.
    C3: the variable has an axis, and the updates the shape of the indices, then of a slice.

    ```mlir
    variable @v : tensor<8x4xf32>
    func @main(
      %x: tensor<8x4xf32>, %i: tensor<3xi64>, %u: tensor<3x4xf32>
    ) -> (%y: tensor<8x4xf32>) {
      %a = assign(@v, %x) : tensor<8x4xf32>
      %y = scatter_update(@v, %i, %u) after(%a) : tensor<8x4xf32>
      return %y
    }
    ```
    """


class ScatterAdd(ScatterArithmetic, name="scatter_add"):
    """Adds to slices of a variable at indices; the result is its new value.

    C1: the type that is given is the variable's.
    C2: the indices are i32 or i64.
    C3: the variable has an axis, and the updates the shape of the indices, then of a slice.
    C4: they hold numbers.

    ```mlir
    variable @v : tensor<8x4xf32>
    func @main(
      %x: tensor<8x4xf32>, %i: tensor<3xi64>, %u: tensor<3x4xf32>
    ) -> (%y: tensor<8x4xf32>) {
      %a = assign(@v, %x) : tensor<8x4xf32>
      %y = scatter_add(@v, %i, %u) after(%a) : tensor<8x4xf32>
      return %y
    }
    ```
    """

    REDUCTION = "add"

    def function(self) -> np.ufunc:
        return np.add


class ScatterSub(ScatterArithmetic, name="scatter_sub"):
    """Subtracts from slices of a variable at indices; the result is its new value.

    C1: the type that is given is the variable's.
    C2: the indices are i32 or i64.
    C3: the variable has an axis, and the updates the shape of the indices, then of a slice.
    C4: they hold numbers.

    ```mlir
    variable @v : tensor<8x4xf32>
    func @main(
      %x: tensor<8x4xf32>, %i: tensor<3xi64>, %u: tensor<3x4xf32>
    ) -> (%y: tensor<8x4xf32>) {
      %a = assign(@v, %x) : tensor<8x4xf32>
      %y = scatter_sub(@v, %i, %u) after(%a) : tensor<8x4xf32>
      return %y
    }
    ```
    """

    REDUCTION = "add"

    def function(self) -> np.ufunc:
        return np.subtract

    def composed(self, b: Builder) -> Value:
        dtype = self.updates.tensor.dtype
        if dtype in SIGNED:
            return b.value(Neg(self.updates))
        return b.value(Sub(scalar(b, 0, dtype), self.updates))


class ScatterMin(ScatterArithmetic, name="scatter_min"):
    """Keeps the smaller elements of slices of a variable and updates; the result is its new value.

    C1: the type that is given is the variable's.
    C2: the indices are i32 or i64.
    C3: the variable has an axis, and the updates the shape of the indices, then of a slice.
    C4: they hold numbers.

    ```mlir
    variable @v : tensor<8x4xf32>
    func @main(
      %x: tensor<8x4xf32>, %i: tensor<3xi64>, %u: tensor<3x4xf32>
    ) -> (%y: tensor<8x4xf32>) {
      %a = assign(@v, %x) : tensor<8x4xf32>
      %y = scatter_min(@v, %i, %u) after(%a) : tensor<8x4xf32>
      return %y
    }
    ```
    """

    REDUCTION = "min"

    def function(self) -> np.ufunc:
        return np.minimum


class ScatterMax(ScatterArithmetic, name="scatter_max"):
    """Keeps the larger elements of slices of a variable and updates; the result is its new value.

    C1: the type that is given is the variable's.
    C2: the indices are i32 or i64.
    C3: the variable has an axis, and the updates the shape of the indices, then of a slice.
    C4: they hold numbers.

    ```mlir
    variable @v : tensor<8x4xf32>
    func @main(
      %x: tensor<8x4xf32>, %i: tensor<3xi64>, %u: tensor<3x4xf32>
    ) -> (%y: tensor<8x4xf32>) {
      %a = assign(@v, %x) : tensor<8x4xf32>
      %y = scatter_max(@v, %i, %u) after(%a) : tensor<8x4xf32>
      return %y
    }
    ```
    """

    REDUCTION = "max"

    def function(self) -> np.ufunc:
        return np.maximum
