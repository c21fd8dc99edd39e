"""Loops as regions, and the op that only waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ir.core import Block, Op, Value, attribute, region, result, result_type, variadic
from tfc.ir.expr import Dim
from tfc.ir.types import BOOL, I64, TensorType, Type
from tfc.ops.arithmetic import Add
from tfc.ops.base import Array, GraphOp
from tfc.ops.constant import constant
from tfc.ops.control import Yield, check_yield
from tfc.ops.logic import Less, LogicalAnd

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ops.backward import Backward


class NoOp(GraphOp, name="no_op"):
    """Does nothing: what runs after it runs after all that it runs after.

    ```mlir
    variable @v : tensor<f32>
    variable @w : tensor<f32>
    func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
      %a = assign(@v, %x) : tensor<f32>
      %b = assign(@w, %x) : tensor<f32>
      ^all: no_op() after(%a, %b)
      %y = read(@v) after(^all) : tensor<f32>
      return %y
    }
    ```
    """

    differentiable = False

    def infer(self) -> list[Type]:
        return []

    def reference(self, *arrays: Array) -> tuple[Array, ...]:
        return ()


class While(GraphOp, name="while"):
    """Carries values through `do` as long as `cond` of them yields true.

    Both regions get the carried values as arguments and may use outer values. The results are the
    carried values at the end: the operands themselves where `cond` is false at once.

    C1: both regions have an argument of the type of each operand, which are the result types.
    C2: `cond` yields a bool of rank 0.
    C3: `do` yields values of the result types.
    C4: `maximum` is not negative; where it is given the loop ends after so many iterations anyway,
        so that a backward loop can save what it needs. `cond` still runs once more than `do`.

    Source: arXiv 1603.04467, section 4.4; ONNX Loop-21 in its form without scan outputs; TensorFlow
    while_loop, as for `maximum_iterations`.

    ```mlir
    func @main(%n: tensor<i64>, %x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
      %zero = constant {value = dense<0>} : tensor<i64>
      %one = constant {value = dense<1>} : tensor<i64>
      %i, %y = while(%zero, %x) : tensor<i64>, tensor<Sxf32>
          cond(%k: tensor<i64>, %a: tensor<Sxf32>) {
        %c = less(%k, %n) : tensor<bool>
        yield %c
      } do(%k: tensor<i64>, %a: tensor<Sxf32>) {
        %next = add(%k, %one) : tensor<i64>
        %b = tanh(%a) : tensor<Sxf32>
        yield %next, %b
      }
      return %y
    }
    ```
    """

    level = "any"
    carried: list[Value] = variadic()
    types: list[Type] = result_type()
    cond: Block = region()
    do: Block = region()
    maximum: int = attribute("int", default=-1)
    outputs: list[Value] = result(variadic=True)

    def verify(self) -> None:
        self.require(self.maximum >= -1, "C4", f"at most {self.maximum} iterations")
        types = [v.type for v in self.results]
        for name, block in (("cond", self.cond), ("do", self.do)):
            fits = [a.type for a in block.args] == types == [v.type for v in self.inputs]
            text = f"the arguments of `{name}`, the operands and the results differ in type"
            self.require(fits, "C1", text)
        end = self.cond.last
        yields = [v.type for v in end.values] if isinstance(end, Yield) else []
        self.require(yields == [TensorType(BOOL, ())], "C2", "`cond` does not yield one bool")
        check_yield(self, self.do, "do", "C3")

    def backward(self, walk: Backward) -> None:
        from tfc.ops.backward_while import backward_while

        backward_while(self, walk)

    def decompose(self, b: Builder) -> list[Value]:
        """The same loop without `maximum`, which counts by a carried value of its own."""
        zero, one, most = (constant(b, np.int64(n)) for n in (0, 1, self.maximum))
        types = [v.type for v in self.results]
        cond, do = (Block([TensorType(I64, ()), *types]) for _ in range(2))
        with b.inside(cond):
            (test,), waits = _copied(self.cond, cond)
            below = b.value(Less(cond.args[0], most))
            _yield(b, [b.value(LogicalAnd(below, test))], waits)
        with b.inside(do):
            values, waits = _copied(self.do, do)
            _yield(b, [b.value(Add(do.args[0], one)), *values], waits)
        kinds = [TensorType(I64, ()), *types]
        return b.add(While([zero, *self.carried], types=kinds, cond=cond, do=do)).results[1:]


def _copied(region: Block, block: Block) -> tuple[list[Value], list[Op]]:
    """Copies the ops of a region behind a counter; what it yields there, and after which ops."""
    mapping: dict[Value, Value] = dict(zip(region.args, block.args[1:], strict=True))
    known: dict[Op, Op] = {}
    for op in region:
        if not op.terminator:
            block.append(op.clone(mapping, known))
    end = region.terminator
    return [mapping.get(v, v) for v in end.inputs], [known.get(o, o) for o in end.after]


def _yield(b: Builder, values: list[Value], waits: list[Op]) -> None:
    end = b.add(Yield(values))
    for op in waits:
        end.add_after(op)


class Scan(GraphOp, name="scan"):
    """Runs `do` once for each index along axis 0 of the sequences, carrying values along.

    The first `carries` operands are the values that are carried, the others sequences, of which
    `do` gets one slice without axis 0 at a time. It yields the next carried values, then a slice of
    each output. The results are the last carried values, then the outputs, whose axis 0 is as long
    as that of the sequences. `reverse` begins at the end, and fills the outputs from there.

    C1: 0 <= `carries` <= the number of operands.
    C2: `length` is the size of axis 0 of each sequence and of each output, and not negative.
    C3: `do` has an argument of the type of each carried value, then of a slice of each sequence.
    C4: `do` yields values of the types of the carried values, then of a slice of each output.

    Source: ONNX Scan-21, with axis 0 alone.

    ```mlir
    func @main(%x: tensor<Sx4xf32>, %h: tensor<4xf32>) -> (%y: tensor<Sx4xf32>) {
      %last, %y = scan(%h, %x) {carries = 1, length = (S)} : tensor<4xf32>, tensor<Sx4xf32>
          do(%a: tensor<4xf32>, %b: tensor<4xf32>) {
        %s = add(%a, %b) : tensor<4xf32>
        %t = tanh(%s) : tensor<4xf32>
        yield %t, %s
      }
      return %y
    }
    ```
    """

    level = "any"
    arguments: list[Value] = variadic()
    carries: int = attribute("int")
    length: Dim = attribute("dim")
    types: list[Type] = result_type()
    do: Block = region()
    reverse: bool = attribute("bool", default=False)
    outputs: list[Value] = result(variadic=True)

    @property
    def initial(self) -> list[Value]:
        """The operands that are carried."""
        return self.arguments[: self.carries]

    @property
    def sequences(self) -> list[Value]:
        return self.arguments[self.carries :]

    def verify(self) -> None:
        count = len(self.arguments)
        text = f"{self.carries} of {count} operands cannot be carried"
        self.require(0 <= self.carries <= min(count, len(self.results)), "C1", text)
        negative = isinstance(self.length, int) and self.length < 0
        self.require(not negative, "C2", f"the length is {self.length}")
        for value in (*self.sequences, *self.results[self.carries :]):
            size = value.tensor.shape[:1]
            self.require(size == (self.length,), "C2", f"{value} is not {self.length} long")
        carried = [v.type for v in self.initial]
        wanted: list[Any] = [*carried, *map(_slice_of, self.sequences)]
        found: list[Any] = [a.type for a in self.do.args]
        self.require(found == wanted, "C3", _differ("the arguments of `do`", found, wanted))
        end = self.do.last
        self.require(isinstance(end, Yield), "C4", "`do` does not end with a yield")
        assert isinstance(end, Yield)
        wanted = [*carried, *map(_slice_of, self.results[self.carries :])]
        found = [v.type for v in end.values]
        self.require(found == wanted, "C4", _differ("what `do` yields", found, wanted))
        kept = [v.type for v in self.results[: self.carries]] == carried
        self.require(kept, "C4", "the first results are not of the types of the carried values")

    def backward(self, walk: Backward) -> None:
        from tfc.ops.backward_control import backward_scan

        backward_scan(self, walk)


def _slice_of(value: Value) -> TensorType:
    """The type of a part of a sequence."""
    return TensorType(value.tensor.dtype, value.tensor.shape[1:])


def _differ(what: str, found: list[Type], wanted: list[Type]) -> str:
    texts = [", ".join(map(str, types)) or "nothing" for types in (found, wanted)]
    return f"{what} are {texts[0]}, not {texts[1]}"
