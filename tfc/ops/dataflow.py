"""Control flow as plain ops: switch and merge, and the frames of loops.

They run in the body of a function, by tagged frames (arXiv 1603.04467, section 4.4); the pass
`functionalize` raises them to `if` and `while`. A value may be dead; so is what an op gives that
uses a dead value or runs after a dead op, except `merge`.
"""

from __future__ import annotations

from tfc.ir.core import Function, Value, attribute, operand, result, variadic
from tfc.ir.types import BOOL, I32, TensorType, Type
from tfc.ops.base import GraphOp


class PrimitiveControl(GraphOp):
    """An op of primitive control flow, which has no meaning apart from the function around it.

    `placed`: the number of the constraint that it stands in the body of a function.
    """

    gradient_needs = "raise it to `if` and `while` first, by the pass `functionalize`"
    placed = "C1"

    def verify(self) -> None:
        owner = self.parent.parent if self.parent else None
        text = "it stands in a region, not in the body of a function"
        self.require(isinstance(owner, Function), self.placed, text, "regions hold `if`, `while`")


class Switch(PrimitiveControl, name="switch"):
    """Sends a value one way: the first result lives where the predicate is false, else the second.

    The other result is dead.

    C1: it stands in the body of a function.
    C2: the predicate is a bool of rank 0.

    Source: arXiv 1603.04467, section 4.4.

    ```mlir
    func @main(%x: tensor<Sxf32>, %p: tensor<bool>) -> (%y: tensor<Sxf32>) {
      %f, %t = switch(%x, %p) : tensor<Sxf32>, tensor<Sxf32>
      %n = neg(%f) : tensor<Sxf32>
      %e = exp(%t) : tensor<Sxf32>
      %y, %index = merge(%n, %e) : tensor<Sxf32>, tensor<i32>
      return %y
    }
    ```
    """

    data: Value = operand()
    predicate: Value = operand()
    on_false: Value = result()
    on_true: Value = result()

    def infer(self) -> list[Type]:
        self.check_rank(self.predicate, 0, "C2", "the predicate")
        self.check_dtype(self.predicate, (BOOL,), "C2", "the predicate")
        return [self.data.type, self.data.type]


class Merge(PrimitiveControl, name="merge"):
    """The operand that is alive, and its number; dead only where all operands are.

    An operand may be a later `next_iteration`, the one place where values form a cycle: in the
    first iteration of its frame the merge takes one of the others, from then on that one. Two live
    operands at once are an error.

    C1: it stands in the body of a function.
    C2: the operands have one type; there is at least one.

    Source: arXiv 1603.04467, section 4.4.

    ```mlir
    func @main(%x: tensor<Sxf32>, %p: tensor<bool>) -> (%y: tensor<Sxf32>, %i: tensor<i32>) {
      %f, %t = switch(%x, %p) : tensor<Sxf32>, tensor<Sxf32>
      %e = exp(%t) : tensor<Sxf32>
      %y, %i = merge(%f, %e) : tensor<Sxf32>, tensor<i32>
      return %y, %i
    }
    ```
    """

    values: list[Value] = variadic()
    output: Value = result()
    index: Value = result()

    def infer(self) -> list[Type]:
        types = list(dict.fromkeys(v.type for v in self.inputs))
        self.require(bool(types), "C2", "it has no operands")
        text = f"the operands are of the types {', '.join(map(str, types))}"
        self.require(len(types) == 1, "C2", text)
        return [types[0], TensorType(I32, ())]


class Enter(PrimitiveControl, name="enter"):
    """Takes a value into a frame, which runs once in each iteration of the frame around it.

    The value is there in the first iteration; with `constant`, in every one.
    `parallel_iterations` is how many iterations may be under way at once; it changes no result.

    C1: it stands in the body of a function.
    C2: `parallel_iterations` is at least 1.
    C3: the frame has a name.

    Source: arXiv 1603.04467, section 4.4.

    ```mlir
    func @main(%n: tensor<i64>, %x: tensor<Sxf32>) -> (%y: tensor<Sxf32>) {
      %one = constant {value = dense<1>} : tensor<i64>
      %zero = constant {value = dense<0>} : tensor<i64>
      %last = enter(%n) {frame = "loop", constant = true} : tensor<i64>
      %i = enter(%zero) {frame = "loop"} : tensor<i64>
      %a = enter(%x) {frame = "loop"} : tensor<Sxf32>
      %im, %in = merge(%i, %ix) : tensor<i64>, tensor<i32>
      %am, %an = merge(%a, %ax) : tensor<Sxf32>, tensor<i32>
      %more = less(%im, %last) : tensor<bool>
      %c = loop_cond(%more) : tensor<bool>
      %id, %ib = switch(%im, %c) : tensor<i64>, tensor<i64>
      %ad, %ab = switch(%am, %c) : tensor<Sxf32>, tensor<Sxf32>
      %next = add(%ib, %one) : tensor<i64>
      %b = tanh(%ab) : tensor<Sxf32>
      %ix = next_iteration(%next) : tensor<i64>
      %ax = next_iteration(%b) : tensor<Sxf32>
      %y = exit(%ad) : tensor<Sxf32>
      return %y
    }
    ```
    """

    data: Value = operand()
    frame: str = attribute("str")
    constant: bool = attribute("bool", default=False)
    parallel_iterations: int = attribute("int", default=10)
    output: Value = result()

    def infer(self) -> list[Type]:
        text = f"parallel_iterations is {self.parallel_iterations}"
        self.require(self.parallel_iterations >= 1, "C2", text)
        self.require(bool(self.frame), "C3", "the frame has no name")
        return [self.data.type]


class _Through(PrimitiveControl):
    """Gives its operand on."""

    data: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        return [self.data.type]


class Exit(_Through, name="exit"):
    """Takes a value out of its frame, from the iteration in which it is alive.

    C1: it stands in the body of a function.

    Source: arXiv 1603.04467, section 4.4.

    ```mlir
    func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
      %half = constant {value = dense<0.5>} : tensor<f32>
      %a = enter(%x) {frame = "halve"} : tensor<f32>
      %m, %i = merge(%a, %n) : tensor<f32>, tensor<i32>
      %more = greater(%m, %half) : tensor<bool>
      %c = loop_cond(%more) : tensor<bool>
      %done, %go = switch(%m, %c) : tensor<f32>, tensor<f32>
      %h = mul(%go, %half) : tensor<f32>
      %n = next_iteration(%h) : tensor<f32>
      %y = exit(%done) : tensor<f32>
      return %y
    }
    ```
    """


class NextIteration(_Through, name="next_iteration"):
    """Gives a value to the next iteration of its frame, where a `merge` takes it.

    A dead value begins no iteration.

    C1: it stands in the body of a function.
    C2: only `merge` uses it.

    Source: arXiv 1603.04467, section 4.4.

    ```mlir
    func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
      %half = constant {value = dense<0.5>} : tensor<f32>
      %a = enter(%x) {frame = "halve"} : tensor<f32>
      %m, %i = merge(%a, %n) : tensor<f32>, tensor<i32>
      %more = greater(%m, %half) : tensor<bool>
      %c = loop_cond(%more) : tensor<bool>
      %done, %go = switch(%m, %c) : tensor<f32>, tensor<f32>
      %h = mul(%go, %half) : tensor<f32>
      %n = next_iteration(%h) : tensor<f32>
      %y = exit(%done) : tensor<f32>
      return %y
    }
    ```
    """

    def verify(self) -> None:
        super().verify()
        others = [u.name for u in self.output.users if not isinstance(u, Merge)]
        self.require(not others, "C2", f"`{others[0] if others else ''}` uses it")


class LoopCond(PrimitiveControl, name="loop_cond"):
    """The condition of the loop that a frame holds: where it is false the loop ends.

    C1: it stands in the body of a function.
    C2: the condition is a bool of rank 0.

    Source: arXiv 1603.04467, section 4.4.

    ```mlir
    func @main(%x: tensor<f32>) -> (%y: tensor<f32>) {
      %half = constant {value = dense<0.5>} : tensor<f32>
      %a = enter(%x) {frame = "halve"} : tensor<f32>
      %m, %i = merge(%a, %n) : tensor<f32>, tensor<i32>
      %more = greater(%m, %half) : tensor<bool>
      %c = loop_cond(%more) : tensor<bool>
      %done, %go = switch(%m, %c) : tensor<f32>, tensor<f32>
      %h = mul(%go, %half) : tensor<f32>
      %n = next_iteration(%h) : tensor<f32>
      %y = exit(%done) : tensor<f32>
      return %y
    }
    ```
    """

    condition: Value = operand()
    output: Value = result()

    def infer(self) -> list[Type]:
        self.check_rank(self.condition, 0, "C2", "the condition")
        self.check_dtype(self.condition, (BOOL,), "C2", "the condition")
        return [self.condition.type]


class LiveOrZeros(PrimitiveControl, name="live_or_zeros"):
    """A value where it is alive, else zeros; and whether it is. Dead only by what it runs after.

    C1: it stands in the body of a function.

    ```mlir
    func @main(%x: tensor<Sxf32>, %p: tensor<bool>) -> (%y: tensor<Sxf32>, %l: tensor<bool>) {
      %f, %t = switch(%x, %p) : tensor<Sxf32>, tensor<Sxf32>
      %e = exp(%t) : tensor<Sxf32>
      %y, %l = live_or_zeros(%e) : tensor<Sxf32>, tensor<bool>
      return %y, %l
    }
    ```
    """

    data: Value = operand()
    output: Value = result()
    live: Value = result()

    def infer(self) -> list[Type]:
        return [self.data.type, TensorType(BOOL, ())]
