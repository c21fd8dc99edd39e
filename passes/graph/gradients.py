"""gradients: extends a function by the gradients of some of its values by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfc.ir.builder import Builder
from tfc.ir.core import Function, Module, Value, Variable
from tfc.ir.errors import TfcError
from tfc.ir.types import TensorType
from tfc.ops.backward import is_float
from tfc.ops.dataflow import PrimitiveControl
from tfc.ops.gradients import Gradients as GradientsOp
from tfc.ops.gradients import expand, expand_all
from tfc.passes.base import Pass, PassContext, changes, find_pass, register
from tfc.passes.graph.recompute import recompute


@register("gradients")
@dataclass(frozen=True)
class Gradients(Pass):
    """Adds the gradients of the values `of`, in sum, by the values `wrt`, to a function.

    They become outputs, each named as its value behind `grad:`. `@v` among `wrt` is a variable: the
    gradient by what the function reads of it. With `into` the function stays as it is, and a new
    one of that name returns `of` and the gradients. Without `of` the ops `gradients` of all
    functions are expanded. `recompute` computes cheap values again where they are used backward,
    instead of keeping them; see the pass `recompute`.

    As in `gradients{of=%loss,wrt=[%w1,@b1],into=train_step}`. Source: arXiv 1603.04467, section
    4.1.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<f32>, %g: tensor<4xf32>) {
      %s = exp(%x) : tensor<4xf32>
      %y = reduce_sum(%s) {axes = [0]} : tensor<f32>
      %g = gradients(%y, %x) : tensor<4xf32>
      return %y, %g
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<f32>, %g: tensor<4xf32>) {
      %s = exp(%x) : tensor<4xf32>
      %y = reduce_sum(%s) {axes = [0]} : tensor<f32>
      %0 = constant {value = dense<1.0>} : tensor<f32>
      %1 = reshape(%0) {shape = [1]} : tensor<1xf32>
      %2 = expand(%1) {shape = [4]} : tensor<4xf32>
      %g = mul(%2, %s) : tensor<4xf32>
      return %y, %g
    }
    ```
    """

    of: tuple[str, ...] = ()
    wrt: tuple[str, ...] = ()
    into: str = ""
    function: str = "main"
    recompute: bool = False

    def run(self, module: Module, context: PassContext) -> bool:
        if self.of:
            add_gradients(module, self.of, self.wrt, function=self.function, into=self.into)
        elif self.wrt or self.into:
            raise TfcError(
                "gradients{}: the option `of` is missing", hint="write of=%loss, or no option"
            )
        functions = list(module.functions.values())
        return changes([bool(self.of), *(self._expand(f, context) for f in functions)])

    def _expand(self, function: Function, context: PassContext) -> bool:
        body = function.body
        made = [op for op in body.walk() if isinstance(op, GradientsOp)]
        extended = bool(self.of) and function.name == (self.into or self.function)
        again = any(op.recompute for op in made) or (self.recompute and bool(made or extended))
        changed = expand_all(body)
        return changes([changed, again and recompute(body, context) > 0])


def gradients(
    module: Module,
    ys: str | Sequence[str],
    xs: str | Sequence[str],
    *,
    function: str = "main",
    grad_ys: Sequence[str] | None = None,
    into: str = "",
) -> list[str]:
    """Extends a function by the gradients of ys, in sum, by xs; the names of the new outputs.

    ys and xs are names of values (`loss`, or `%loss`); `@w` among xs is a variable: the gradient by
    what is read of it. `grad_ys` names the gradients of ys, which are ones where it is left out.
    `into` leaves the function as it is and makes a new one that returns ys and the gradients.

    Raises TfcError where a name is not there, where a value is no float, and where an op on the way
    has no gradient. Source: arXiv 1603.04467, section 4.1.
    """
    wanted = [ys] if isinstance(ys, str) else list(ys)
    by = [xs] if isinstance(xs, str) else list(xs)
    return add_gradients(module, wanted, by, function=function, grad_ys=grad_ys, into=into)


def add_gradients(
    module: Module,
    ys: Sequence[str],
    xs: Sequence[str],
    *,
    function: str,
    grad_ys: Sequence[str] | None = None,
    into: str = "",
) -> list[str]:
    """As `gradients`, of names in lists."""
    if function != "main" and function not in module.functions:
        raise TfcError(f"the module has no function @{function}")
    chosen = module.main if function == "main" else module.functions[function]
    if any(isinstance(op, PrimitiveControl) for op in chosen.body.walk()):
        find_pass("functionalize")().run(module, PassContext())
    if into and into != chosen.name:
        chosen = _copied(module, chosen, into)
    try:
        return _extended(module, chosen, ys, xs, grad_ys, keep=not into)
    except TfcError:
        if into:
            module.functions.pop(into, None)
        raise


def _copied(module: Module, function: Function, name: str) -> Function:
    if name in module.functions:
        raise TfcError(f"the module has a function @{name} already", hint="choose another `into`")
    body = function.body.clone({})
    made = Function(name, body, list(function.output_names), dict(function.attributes))
    module.functions[name] = made
    return made


def _extended(
    module: Module,
    function: Function,
    ys: Sequence[str],
    xs: Sequence[str],
    grad_ys: Sequence[str] | None,
    *,
    keep: bool,
) -> list[str]:
    known = named_values(function)
    of = [_value(function, known, name) for name in ys]
    seeds = [_value(function, known, name) for name in grad_ys or ()]
    if grad_ys is not None and len(seeds) != len(of):
        raise TfcError(f"{len(of)} values and {len(seeds)} gradients of theirs")
    plain = [_value(function, known, name) for name in xs if not name.startswith("@")]
    held = [_variable(module, name) for name in xs if name.startswith("@")]
    end = function.body.terminator
    op = GradientsOp(
        [*of, *seeds, *plain],
        of=len(of),
        seeded=bool(seeds),
        variables=tuple(v.name for v in held),
        types=[*(v.tensor for v in plain), *(v.type for v in held)],
    )
    Builder(function.body, end).add(op)
    op.verify()
    found = dict(zip([n for n in xs if not n.startswith("@")], op.results, strict=False))
    found |= dict(zip([n for n in xs if n.startswith("@")], op.results[len(plain) :], strict=True))
    names = _new_names(function, xs, [] if not keep else function.output_names, ys)
    for name, x in zip(names, xs, strict=True):
        found[x].name = name
    outputs = list(end.operands) if keep else of
    titles = list(function.output_names) if keep else [_plain_name(y) for y in ys]
    function.output_names = [*titles, *names]
    end.set_operands([*outputs, *(found[x] for x in xs)])
    expand(op)
    return names


def named_values(function: Function) -> dict[str, Value]:
    """The values of a function's body by name, and its outputs by theirs."""
    ends = function.body.terminator.operands
    found = {name: v for name, v in zip(function.output_names, ends, strict=True) if v is not None}
    for op in function.body:
        found |= {v.name: v for v in op.results if v.name}
    return found | {v.name: v for v in function.body.args}


def _plain_name(name: str) -> str:
    return name.removeprefix("%").strip('"')


def _value(function: Function, known: dict[str, Value], name: str) -> Value:
    value = known.get(_plain_name(name))
    if value is None:
        import difflib

        close = difflib.get_close_matches(_plain_name(name), known, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else ""
        raise TfcError(f"@{function.name} has no value {_plain_name(name)!r}", hint=hint)
    if not is_float(value):
        raise TfcError(f"%{_plain_name(name)} is a {value.type}: only floats have gradients")
    return value


def _variable(module: Module, name: str) -> Variable:
    held = module.variables.get(name.removeprefix("@"))
    if held is None:
        known = ", ".join(f"@{n}" for n in module.variables) or "none"
        raise TfcError(f"the module has no variable {name}", hint=f"it has {known}")
    if not isinstance(held.type, TensorType) or not held.type.dtype.is_float:
        raise TfcError(f"the variable {name} is a {held.type}: only floats have gradients")
    return held


def _new_names(
    function: Function, xs: Sequence[str], outputs: Sequence[str], ys: Sequence[str]
) -> list[str]:
    """`grad:x`, with a number behind where that is taken."""
    taken = {*outputs, *ys, *named_values(function)}
    names: list[str] = []
    for x in xs:
        base = f"grad:{_plain_name(x).removeprefix('@')}"
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        names.append(name)
    return names
