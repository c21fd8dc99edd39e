"""Runs any part of a graph: feeds, fetches and targets (arXiv 1603.04467, sections 2 and 4.2).

    session = tfc.Session("model.tfc")
    fc7 = session.run("fc7", {"conv1": image})

Always holds: a part is taken out and compiled once for each set of feeds, fetches and targets;
extending the graph changes no part that was; the state (variables, queues) lives as long as the
session, or as the container that it shares.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tfc.ir.errors import TfcError
from tfc.ir.run_errors import (
    AlreadyFedError,
    DeadValueError,
    OutOfRangeError,
    SessionError,
    UninitializedError,
)
from tfc.runtime import errors as runtime_errors
from tfc.runtime.state import State
from tfc.runtime.state import container as named_container
from tfc.session_values import Fetches, checked_feeds, fed_array, fetch_names, missing_feed, shaped

if TYPE_CHECKING:
    from tfc.ir.core import Function, Module
    from tfc.partial_run import PartialRun
    from tfc.passes.graph.feed_fetch import Names

Array: TypeAlias = "np.ndarray[Any, Any]"
Key: TypeAlias = "tuple[Any, ...]"
EXECUTORS = ("interpreter", "compiled")


@dataclass(frozen=True)
class Part:
    """A part of the graph that was taken out; `live` names the flags of what may be dead."""

    module: Module
    live: Mapping[str, str]
    call: Any  # from inputs by name to outputs by name

    @property
    def inputs(self) -> list[str]:
        return [a.name for a in self.module.main.body.args]


class Session:
    """A graph, its state, and the parts of it that were run.

    module: a module, the path of a `.tfc` or `.onnx` file, or `.tfc` text. function: the one whose
    values are meant, where there are several. state, container: whose variables it uses; its own
    without either. executor: "compiled" (machine code for this processor) or "interpreter" (numpy);
    never another one than the one that is asked for.

    Errors are SessionErrors, which have a class each: MissingFeedError, UninitializedError,
    DeadValueError, OutOfRangeError, InnerFrameError, AlreadyFedError, NotDeclaredError.
    """

    def __init__(
        self,
        module: Module | str | Path,
        *,
        function: str = "main",
        state: State | None = None,
        container: str | None = None,
        executor: str = "compiled",
    ) -> None:
        if executor not in EXECUTORS:
            raise TfcError(f"no executor is named {executor!r}", hint=f"one of {EXECUTORS}")
        if state is not None and container is not None:
            raise TfcError("a session has a state or a named container, not both")
        self.module = _module_of(module)
        self.executor = executor
        self.container = container
        self.state = named_container(container) if container else state or State()
        self._name = _function_name(self.module, function)
        self._parts: dict[Key, Part] = {}
        self._names: Names | None = None

    @property
    def function(self) -> Function:
        return self.module.functions[self._name]

    # ---- running

    def run(
        self,
        fetches: Fetches = (),
        feeds: Mapping[str, Any] | None = None,
        targets: str | Sequence[str] = (),
    ) -> Any:
        """The values of a name, or the list or dict of those of several.

        feeds: values by the names of those that they replace, of any op. targets: ops (labels, or
        names of their values) that run for their effects.
        """
        names = fetch_names(fetches)
        waited = (targets,) if isinstance(targets, str) else tuple(targets)
        given = self.by_own_name(feeds or {})
        part = self.part(tuple(given), tuple(dict.fromkeys(names)), waited)
        outputs = self.call(part, {n: given[n] for n in part.inputs})
        return shaped(fetches, outputs)

    def by_own_name(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """What is fed by the own names of values: `x:0` and `%x` are `x`."""
        given: dict[str, Any] = {}
        for name, fed in checked_feeds(feeds).items():
            own = self.names.own_name(name)
            if own in given:
                raise AlreadyFedError(f"%{own} is fed twice in one run", hint=f"once as {name}")
            given[own] = fed
        return given

    @property
    def names(self) -> Names:
        """The names of the graph's values and ops."""
        from tfc.passes.graph.feed_fetch import Names

        if self._names is None or self._names.function is not self.function:
            self._names = Names(self.function)
        return self._names

    def part(
        self, feeds: Sequence[str], fetches: Sequence[str], targets: Sequence[str] = ()
    ) -> Part:
        """The part of the graph between feeds and fetches; made once."""
        key = (tuple(sorted(feeds)), tuple(fetches), tuple(sorted(targets)))
        return self.cached(key, lambda: self._take_out(*key))

    def cached(self, key: Key, make: Callable[[], Part]) -> Part:
        """The part of a key, made once."""
        if key not in self._parts:
            self._parts[key] = make()
        return self._parts[key]

    def _take_out(
        self, feeds: tuple[str, ...], fetches: tuple[str, ...], targets: tuple[str, ...]
    ) -> Part:
        from tfc.passes.graph.feed_fetch import restrict

        module = copy_of(self.module, self.function)
        chosen = module.main
        restrict(chosen, feeds, fetches, targets)
        return self.finish(module, feeds)

    def finish(self, module: Module, feeds: Sequence[str]) -> Part:
        """Prunes a part whose feeds and fetches are in place, and makes it ready to be called."""
        from tfc.passes.base import PassContext
        from tfc.passes.graph.feed_fetch import drop_unused_inputs
        from tfc.passes.graph.prune import prune_function
        from tfc.passes.graph.settled_merges import settle_merges

        chosen = module.main
        live = _add_live_flags(chosen)
        prune_function(chosen, PassContext())
        drop_unused_inputs(chosen, feeds)
        missing = [a for a in chosen.body.args if a.name not in feeds]
        if missing:
            raise missing_feed(missing)
        if settle_merges(chosen):
            prune_function(chosen, PassContext())
        return Part(module, live, self._callable(module))

    def _callable(self, module: Module) -> Any:
        if self.executor == "compiled":
            from tfc.session_compiled import compiled

            return compiled(module, self.state)
        return partial(_interpreted, module, self.state)

    def call(self, part: Part, given: Mapping[str, Any]) -> dict[str, Array]:
        """The outputs of a part by name; a value that is dead is an error."""
        outputs = self.call_with_flags(part, given)
        for name, flag in part.live.items():
            if not outputs.pop(flag):
                raise DeadValueError(
                    f"%{name} is dead in this run: no branch that was taken makes it",
                    hint="fetch what a `merge` makes of the branches",
                )
        return outputs

    def call_with_flags(self, part: Part, given: Mapping[str, Any]) -> dict[str, Array]:
        """The outputs of a part by name; flags tell what is dead, and zeros stand for it."""
        arrays = {a.name: fed_array(a, given[a.name]) for a in part.module.main.body.args}
        try:
            return part.call(arrays)
        except (TfcError, runtime_errors.LoaderError) as error:
            raise _session_error(error) from error

    # ---- changing

    def extend(self, text: str) -> None:
        """Adds ops to the graph; they may use the names that it has. What was run stays valid.

        `variable`, `resource` and `dim` may be declared on lines before the ops. A text with a
        `func` brings its arguments as new inputs.
        """
        from tfc.driver import clone_module
        from tfc.ir.verifier import verify
        from tfc.text.extend import extend_function

        longer = clone_module(self.module)
        extend_function(longer, longer.functions[self._name], text)
        verify(longer)
        self.module = longer

    def reset(self) -> None:
        """Forgets the values of all variables and the contents of all queues."""
        self.state.reset()

    # ---- in parts

    def partial_run_setup(
        self, fetches: Fetches, feeds: Sequence[str], targets: Sequence[str] = ()
    ) -> PartialRun:
        """Begins a run in parts: all that its parts may feed, fetch and wait for.

        What `partial_run` takes as its handle; it serves one run.
        """
        from tfc.partial_run import PartialRun

        return PartialRun(self, fetch_names(fetches), feeds, targets)

    def partial_run(
        self,
        handle: PartialRun,
        fetches: Fetches = (),
        feeds: Mapping[str, Any] | None = None,
        targets: str | Sequence[str] = (),
    ) -> Any:
        """One part of a run; what an earlier part computed is kept, and nothing runs twice."""
        waited = (targets,) if isinstance(targets, str) else tuple(targets)
        return shaped(fetches, handle.run(fetch_names(fetches), feeds or {}, waited))


# ---- sources


def _module_of(source: Module | str | Path) -> Module:
    importlib.import_module("tfc.ops")  # registers the ops of the graph
    from tfc.driver import load_module
    from tfc.ir.verifier import verify

    if isinstance(source, str) and ("{" in source or "\n" in source):
        from tfc.text.parse import parse_module

        module = parse_module(source)
    else:
        module = load_module(source)
    verify(module)
    return module


def _function_name(module: Module, name: str) -> str:
    from tfc.interpret import find_function

    return find_function(module, name).name


def copy_of(module: Module, function: Function) -> Module:
    """A module of the same variables and resources that holds a copy of one function alone."""
    from tfc.ir.core import Function, Module

    copy = Module(module.weights, module.name)
    copy.variables, copy.dims = dict(module.variables), dict(module.dims)
    copy.resources, copy.attributes = dict(module.resources), dict(module.attributes)
    body = function.body.clone({})
    copy.functions[function.name] = Function(
        function.name, body, list(function.output_names), dict(function.attributes)
    )
    return copy


def _interpreted(module: Module, state: State, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Runs a part in the interpreter: alone on its state, unless it may wait for others."""
    from tfc.interpret import interpret
    from tfc.ir.core import Effect

    if any(op.effects & Effect.BLOCKING for op in module.main.body.walk()):
        return interpret(module, inputs, state=state)
    with state.lock:
        return interpret(module, inputs, state=state)


def _add_live_flags(function: Function) -> dict[str, str]:
    """Makes what may be dead zeros and a flag; the names of the flags by those of the outputs."""
    from tfc.ir.frames import has_primitive_control, is_everywhere
    from tfc.ops.dataflow import LiveOrZeros

    if not has_primitive_control(function):
        return {}
    end, flags = function.body.terminator, dict[str, str]()
    values, names = list(end.inputs), list(function.output_names)
    for index, (name, value) in enumerate(zip(function.output_names, end.inputs, strict=True)):
        if value.producer is None or is_everywhere(value.producer):
            continue
        settled = LiveOrZeros(value)
        settled.location = value.producer.location
        function.body.insert(settled, end)
        values[index] = settled.output
        flags[name] = f"{name}:live"
        names.append(flags[name])
        values.append(settled.live)
    end.set_operands(values)
    function.output_names = names
    return flags


# ---- errors


def _session_error(error: Exception) -> Exception:
    """The error of a run as a SessionError where there is a class for it."""
    if isinstance(error, SessionError):
        return error
    cause = error.__cause__ if isinstance(error, TfcError) else error
    position = error.position if isinstance(error, TfcError) else None
    text = error.message if isinstance(error, TfcError) else str(error)
    if isinstance(cause, runtime_errors.OutOfRangeError):
        return OutOfRangeError(text, position=position)
    if isinstance(cause, runtime_errors.StateError):
        return UninitializedError(text, position=position)
    return error if isinstance(error, TfcError) else TfcError(text)


__all__ = ["EXECUTORS", "Part", "Session", "SessionError", "State"]
