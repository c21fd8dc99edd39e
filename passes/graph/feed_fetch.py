"""feed-fetch: the part of a function between the values that are fed and those asked for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tfc.ir.core import Block, Function, Module, Op, Value
from tfc.ir.effects import ancestor_in
from tfc.ir.frames import Frame, Frames, frames_of, has_primitive_control
from tfc.ir.run_errors import InnerFrameError, UnknownNameError
from tfc.ops.dataflow import Enter
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph.prune import prune_function


@register("feed-fetch")
@dataclass(frozen=True)
class FeedFetch(Pass):
    """`feed-fetch{feeds=conv1,fetches=fc7}` makes `%conv1` an input and `%fc7` the result.

    Any value of the body may be fed or fetched, the second result of `%m` as `m:1` too; `targets`
    (values, or labels of ops) run for their effects. What they do not need goes, inputs too;
    without `fetches` and `targets` the results stay. `function` is the one that changes.
    This is section 4.2 of the TensorFlow white paper (arXiv 1603.04467).

    Before, with {feeds=a,fetches=b}:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = exp(%x) : tensor<4xf32>
      %b = neg(%a) : tensor<4xf32>
      %y = abs(%b) : tensor<4xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%a: tensor<4xf32>) -> (%b: tensor<4xf32>) {
      %b = neg(%a) : tensor<4xf32>
      return %b
    }
    ```
    """

    feeds: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    function: str = "main"

    def run(self, module: Module, context: PassContext) -> bool:
        if not (self.feeds or self.fetches or self.targets) or not context.allow("feed-fetch"):
            return False
        chosen = module.main if self.function == "main" else module.functions.get(self.function)
        if chosen is None:
            known = ", ".join(module.functions)
            raise UnknownNameError(f"there is no function @{self.function}", hint=f"it has {known}")
        restrict(chosen, self.feeds, self.fetches, self.targets)
        prune_function(chosen, context)
        drop_unused_inputs(chosen, self.feeds)
        return True


# ---- names


class Names:
    """Finds values and ops of a function's body by name."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.values: dict[str, Value] = {}
        self.labels: dict[str, Op] = {}
        self.inside: dict[str, Op] = {}  # names of values in regions, and the op that holds them
        for value in function.body.args:
            self.values.setdefault(value.name, value)
        for op in function.body:
            self.add(op)
        ends = function.body.terminator.operands
        for name, end in zip(function.output_names, ends, strict=True):
            if end is not None:
                self.values.setdefault(name, end)
        self._frames: Frames | None = None

    def add(self, op: Op) -> None:
        """Makes what an op defines known; of two things of one name the first counts."""
        for value in op.results:
            if value.name:
                self.values.setdefault(value.name, value)
        if op.label:
            self.labels.setdefault(op.label, op)
        for block in op.regions:
            args = [a for b in _blocks(block) for a in b.args]
            for value in (*args, *(v for inner in block.walk() for v in inner.results)):
                self.inside.setdefault(value.name, op)

    def value(self, name: str, what: str = "fetch") -> Value:
        """The value `%name`, or result k of the op that makes it as `name:k`."""
        plain = name.removeprefix("%")
        if plain in self.values:
            return self.values[plain]
        base, colon, number = plain.rpartition(":")
        first = self.values.get(base) if colon else None
        results = first.producer.results if first is not None and first.producer else [first]
        if first is not None and number.isdecimal() and int(number) < len(results):
            return results[int(number)] or first
        raise self._unknown(plain, what)

    def own_name(self, name: str) -> str:
        """The name of a fed value itself, where it has one that is its alone."""
        value = self.value(name, "feed")
        own = self.values.get(value.name) is value
        return value.name if own else name.removeprefix("%")

    def outer_value(self, name: str, what: str) -> Value:
        """A value that has one value in a run: none of a frame."""
        value = self.value(name, what)
        frame = self.frames.of_value(value) if self.frames is not None else None
        if frame is not None and frame.parent is not None:
            raise InnerFrameError(
                f"cannot {what} %{name}: it lives in {frame} and has a value for each iteration",
                hint=f"{what} what `exit` takes out of the frame",
            )
        return value

    @property
    def frames(self) -> Frames | None:
        """The frames of the function; None where it has none."""
        if self._frames is None and has_primitive_control(self.function):
            self._frames = frames_of(self.function.body)
        return self._frames

    def op(self, name: str) -> Op:
        """The op of a label, or the one that makes a value; for a target."""
        plain = name.removeprefix("^")
        if plain in self.labels:
            return self.labels[plain]
        made = self.value(name, "run").producer
        if made is None:
            raise UnknownNameError(
                f"%{name} is an input of @{self.function.name}, which cannot be a target"
            )
        return made

    def changed(self) -> None:
        """Says that ops were added."""
        self._frames = None

    def _unknown(self, name: str, what: str) -> UnknownNameError | InnerFrameError:
        if name in self.inside:
            return InnerFrameError(
                f"cannot {what} %{name}: it lives in a region of `{self.inside[name].name}`",
                hint=f"{what} a result of `{self.inside[name].name}`",
            )
        if name in self.labels:
            hint = "it can be a target" if what == "fetch" else "feed what others use"
            raise UnknownNameError(
                f"cannot {what} {name!r}: it is the label of an op without results", hint=hint
            )
        import difflib

        known = [*self.values, *self.labels]
        close = difflib.get_close_matches(name, known, 3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"it has {', '.join(known[:10])}"
        return UnknownNameError(f"@{self.function.name} has no {name!r} to {what}", hint=hint)


def _blocks(block: Block) -> list[Block]:
    inner = [b for op in block for region in op.regions for b in _blocks(region)]
    return [block, *inner]


# ---- what changes


def restrict(
    function: Function,
    feeds: Sequence[str],
    fetches: Sequence[str],
    targets: Sequence[str],
    *,
    done: Collection[str] = (),
) -> None:
    """Makes the fed values inputs and the fetched ones the results of a function.

    Nothing goes, except control edges from the ops of `done` (labels and names of values), which
    have run. A fed value keeps its name; a fetched one gives its name to the result.

    Raises UnknownNameError and InnerFrameError.
    """
    names = Names(function)
    fed = {name: names.outer_value(name, "feed") for name in feeds}
    fetched = [(name.removeprefix("%"), names.outer_value(name, "fetch")) for name in fetches]
    waited = [names.op(name) for name in targets]
    finished = [names.op(name) for name in done]
    end = function.body.terminator
    if fetches or targets:
        function.output_names = [name for name, _ in fetched]
        end.set_operands(value for _, value in fetched)
        for op in list(end.after):
            end.remove_after(op)
        for op in waited:
            end.add_after(op)
    for name, value in fed.items():
        if value.producer is not None:
            argument = function.body.add_arg(value.type, name.removeprefix("%"))
            if names.frames is not None and names.frames.of[value.producer] is None:
                _take_into_frames(value, argument, names.frames)
            value.replace_uses(argument)
            if not value.name or value.name == argument.name:
                value.name = f"{argument.name}.made"
    for op in finished:
        for user in list(op.control_users):
            user.remove_after(op)


def _take_into_frames(value: Value, argument: Value, frames: Frames) -> None:
    """Enters an argument into the frames in which it replaces a constant."""
    body = argument.owner
    assert isinstance(body, Block)
    entered: dict[Frame, Value] = {frames.root: argument}

    def inside(frame: Frame) -> Value:
        if frame not in entered:
            assert frame.parent is not None
            op = Enter(inside(frame.parent), frame=frame.name, constant=True)
            after = entered[frame.parent].producer
            body.insert(op, after.next if after is not None else body.first)
            entered[frame] = op.result
        return entered[frame]

    for user, index in list(value.uses):
        around = ancestor_in(body, user)
        frame = frames.inputs_of(around) if around is not None else None
        if frame is not None and frame is not frames.root:
            user.set_operand(index, inside(frame))


def drop_unused_inputs(function: Function, kept: Collection[str]) -> None:
    """Removes the inputs that nothing uses, besides those that are named."""
    body = function.body
    body.args = [a for a in body.args if a.uses or a.name in kept]
    for index, value in enumerate(body.args):
        value.index = index
