"""One run in parts: what was fed and computed is kept from part to part, and nothing runs twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Op, Value
from tfc.ir.effects import is_pure, outer_values
from tfc.ir.frames import is_everywhere
from tfc.ir.run_errors import AlreadyFedError, DeadValueError, NotDeclaredError, SessionError
from tfc.ops.constant import constant
from tfc.ops.dataflow import Switch
from tfc.ops.view import Identity
from tfc.session_values import checked_feeds, fed_array, missing_feed

if TYPE_CHECKING:
    from tfc.ir.core import Function
    from tfc.session import Array, Part, Session


TRUE = np.array(True)


class PartialRun:
    """The state of a run in parts: the values that are known, and the ops that have run.

    A part is a function of the values that are known already; its results are what it was asked
    for, and what later parts will use of what it computes.
    """

    def __init__(
        self, session: Session, fetches: Sequence[str], feeds: Sequence[str], targets: Sequence[str]
    ) -> None:
        from tfc.passes.graph.feed_fetch import Names

        self.session = session
        self.module, self.function = session.module, session.function
        self.names = Names(self.function)
        self.fetches = {n: self.names.outer_value(n, "fetch") for n in fetches}
        self.feeds = {n.removeprefix("%"): self.names.outer_value(n, "feed") for n in feeds}
        self.targets = {n: self.names.op(n) for n in targets}
        self.known: dict[Value, Array] = {}  # zeros for what is dead
        self.dead: set[Value] = set()
        self.done: dict[Op, None] = {}
        self.not_run: set[Op] = set()  # of those: dead ones, which later ones run after

    def run(
        self, fetches: Sequence[str], feeds: Mapping[str, Any], targets: Sequence[str]
    ) -> dict[str, Array]:
        """The values that are asked for, by name."""
        given = {self._declared(n, self.feeds): v for n, v in checked_feeds(feeds).items()}
        asked = {n: self._declared(n, self.fetches) for n in fetches}
        self._check(list(asked.values()), list(given), targets)
        fed = {self.feeds[n]: v for n, v in given.items()}
        self.known.update({value: fed_array(value, given) for value, given in fed.items()})
        wanted = {n: self.fetches[own] for n, own in asked.items()}
        waited = [self.targets[n] for n in targets]
        try:
            self._advance(list(wanted.values()), waited)
        except Exception:
            for value in fed:
                del self.known[value]
            raise
        for name, value in wanted.items():
            if value in self.dead:
                raise DeadValueError(f"%{name} is dead in this run")
        return {name: self.known[value] for name, value in wanted.items()}

    def _declared(self, name: str, declared: Mapping[str, Value]) -> str:
        """The name by which the setup names a value: `x:0` and `%x` are `x`."""
        plain = name.removeprefix("%")
        if plain in declared:
            return plain
        try:
            value = self.names.value(plain)
        except SessionError:
            return plain  # what is not there was not declared
        return next((own for own, v in declared.items() if v is value), plain)

    def _check(self, fetches: Sequence[str], feeds: Sequence[str], targets: Sequence[str]) -> None:
        for what, names, declared in (
            ("fetched", fetches, self.fetches),
            ("fed", feeds, self.feeds),
            ("a target", targets, self.targets),
        ):
            for name in names:
                if name not in declared:
                    hint = f"it names {', '.join(declared) or 'none'}"
                    text = f"%{name} is {what}, but the setup of this partial run does not say so"
                    raise NotDeclaredError(text, hint=hint)
        for name in feeds:
            if self.feeds[name] in self.known:
                raise AlreadyFedError(f"%{name} was fed in an earlier part of this run")

    # ---- one part

    def _advance(self, wanted: Sequence[Value], targets: Sequence[Op]) -> None:
        """Runs what is asked for needs and has not run."""
        missing = [v for v in wanted if v not in self.known]
        ops, used = self._needed(missing, targets)
        later, _ = self._needed(list(self.fetches.values()), list(self.targets.values()))
        ops, used = self._with_whole_frames(ops, used, later)
        unfed = [
            v for v in used if v not in self.known and (v.producer is None or v.producer not in ops)
        ]
        if unfed:
            raise missing_feed(unfed)
        kept = self._kept(ops, later, missing)
        flags = [o for o in ops if any(u in later and u not in ops for u in o.control_users)]
        if ops or missing:
            self._call(ops, used, kept, flags)
        self.done.update(dict.fromkeys(o for o in ops if not is_everywhere(o)))

    def _needed(
        self, values: Sequence[Value], targets: Sequence[Op]
    ) -> tuple[dict[Op, None], dict[Value, None]]:
        """The ops that must run, and the values that they and the caller use."""
        stops = set(self.known) | set(self.feeds.values())
        ops, used = dict[Op, None](), dict.fromkeys(values)
        pending = [*targets, *(v.producer for v in values if v not in stops)]
        while pending:
            op = pending.pop()
            if op is None or op in ops or op in self.done:
                continue
            ops[op] = None
            operands = outer_values(op)
            used.update(dict.fromkeys(operands))
            pending.extend(v.producer for v in operands if v not in stops)
            pending.extend(o for inner in op.walk() for o in inner.after)
        return ops, used

    def _with_whole_frames(
        self, ops: dict[Op, None], used: dict[Value, None], later: dict[Op, None]
    ) -> tuple[dict[Op, None], dict[Value, None]]:
        """A loop runs once: with all that later parts will need of it."""
        frames = self.names.frames
        if frames is None:
            return ops, used
        touched = {f for o in ops if (f := frames.of[o]) is not None and f.parent is not None}
        inside = [
            o for o in later if o not in ops and touched & {frames.of[o], frames.inputs_of(o)}
        ]
        if not inside:
            return ops, used
        more, values = self._needed([], inside)
        return self._with_whole_frames({**ops, **more}, {**used, **values}, later)

    def _kept(
        self, ops: dict[Op, None], later: dict[Op, None], wanted: Sequence[Value]
    ) -> list[Value]:
        """The values of this part that the caller or later parts use."""
        used = [v for o in later if o not in ops for v in outer_values(o)]
        used = [v for v in used if v.producer is None or not is_everywhere(v.producer)]
        used += [*wanted, *self.fetches.values()]
        made = [v for v in used if v.producer in ops and v not in self.known]
        return list(dict.fromkeys(made))

    def _call(
        self,
        ops: dict[Op, None],
        used: dict[Value, None],
        kept: Sequence[Value],
        flags: Sequence[Op],
    ) -> None:
        """Runs ops; keeps the values of `kept`, and whether the ops of `flags` ran."""
        if self.names.frames is None:
            flags = ()
        given = {f"in.{n}": v for n, v in enumerate(used) if v in self.known}
        dead = [v for v in given.values() if v in self.dead]
        key = self.function, *map(tuple, (given.values(), dead, kept, flags, ops, self.done))
        key = *key, tuple(op for op in self.done if op in self.not_run)
        part = self.session.cached(key, lambda: self._part(ops, given, kept, flags))
        outputs = self.session.call_with_flags(part, {n: self.known[given[n]] for n in part.inputs})
        for number, what in enumerate([*kept, *flags]):
            name = f"out.{number}"
            dead = name in part.live and not outputs[part.live[name]]
            if isinstance(what, Op):
                self.not_run.update([what] if dead else ())
                continue
            self.known[what] = outputs[name]
            self.dead.update([what] if dead else ())

    def _part(
        self,
        ops: dict[Op, None],
        given: Mapping[str, Value],
        kept: Sequence[Value],
        flags: Sequence[Op],
    ) -> Part:
        """The part of the graph from what is known to what is kept."""
        from tfc.session import copy_of

        module = copy_of(self.module, self.function)
        copy = _Copy(self.function, module.main)
        for name, value in given.items():
            copy.feed(name, value, dead=value in self.dead)
        for op in self.done:
            copy.leave_out(op, dead=op in self.not_run)
        ran = [copy.flag(op) for op in flags]
        copy.end([*map(copy.value, kept), *ran], [o for o in ops if not is_pure(o)])
        return self.session.finish(module, list(given))


class _Copy:
    """A copy of a function that becomes one part: what is known, and what has run, is cut off."""

    def __init__(self, function: Function, copy: Function) -> None:
        self.function = copy
        self.body = copy.body
        self.ops = dict(zip(function.body, copy.body, strict=True))
        self.builder = Builder(self.body, self.body.first)
        end = self.body.terminator
        end.set_operands(())
        for op in list(end.after):
            end.remove_after(op)

    def value(self, value: Value) -> Value:
        """What stands for a value of the function."""
        if isinstance(value.owner, Op):
            return self.ops[value.owner].results[value.index]
        return self.body.args[value.index]

    def feed(self, name: str, value: Value, dead: bool) -> None:
        """Makes a value an argument; one that was dead is dead again."""
        old = self.value(value)
        argument = self.body.add_arg(value.type, name)
        old.replace_uses(self.dead(argument) if dead else argument)

    def dead(self, value: Value) -> Value:
        """A value that is dead."""
        return self.builder.add(Switch(value, constant(self.builder, TRUE))).on_false

    def leave_out(self, op: Op, dead: bool) -> None:
        """Nothing waits any more for an op that has run; what ran after a dead one is dead."""
        users = list(self.ops[op].control_users)
        for user in users:
            user.remove_after(self.ops[op])
        if dead and users:
            made = self.builder.add(Identity(self.dead(constant(self.builder, TRUE))))
            for user in users:
                user.add_after(made)

    def flag(self, op: Op) -> Value:
        """A value that is dead where an op is."""
        builder = Builder(self.body, self.body.terminator)
        made = builder.add(Identity(constant(builder, TRUE)))
        made.add_after(self.ops[op])
        return made.result

    def end(self, values: Sequence[Value], targets: Sequence[Op]) -> None:
        """What the part gives, and what it runs."""
        end = self.body.terminator
        end.set_operands(values)
        self.function.output_names = [f"out.{n}" for n in range(len(values))]
        for op in targets:
            end.add_after(self.ops[op])
