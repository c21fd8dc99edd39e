"""When each op of primitive control flow is alive: under which sides of which predicates.

A guard is a set of literals, a predicate and the side of it; the op is alive where all hold. In a
frame guards are relative to one iteration. What has no such form (a `merge` whose operands are not
the sides of conditions) is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tfc.ir.core import Effect, Op, Value, effects_of
from tfc.ir.effects import outer_values
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.frame_order import FrameOrder, Orders
from tfc.ir.frames import Frame, is_forward

Literal: TypeAlias = "tuple[Value, int]"
Guard: TypeAlias = "frozenset[Literal] | None"
ALWAYS: frozenset[Literal] = frozenset()
NEVER: Guard = None


def refusal(op: Op, text: str, hint: str = "") -> UnsupportedError:
    """The error of primitive control flow that has no structured form."""
    error = op.error(f"no structured form: {text}", hint)
    return UnsupportedError(error.message, position=error.position, where=error.where, hint=hint)


def predicate_of(switch: Op) -> Value:
    """The predicate of a switch, without the identities before it."""
    value = switch.inputs[1]
    while value.producer is not None and value.producer.name == "identity":
        if value.producer.after:
            break
        value = value.producer.inputs[0]
    return value


def both(guards: Iterable[Guard]) -> Guard:
    """Where all guards hold."""
    found: set[Literal] = set()
    for guard in guards:
        if guard is None:
            return NEVER
        found |= guard
    if len({predicate for predicate, _ in found}) < len(found):
        return NEVER
    return frozenset(found)


class Guards:
    """The guards of the ops of a function, frame by frame, and an order of the predicates.

    A predicate stands in the order after those that it depends on, and a condition after those
    that it is nested in; branches nest in that order.
    """

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.frames = orders.frames
        self.of_op: dict[Op, Guard] = {}
        self.of_frame: dict[Frame, Guard] = {self.frames.root: ALWAYS}
        self.condition: dict[Frame, Op | None] = {}
        self.order_of: dict[Frame, FrameOrder] = {}
        self.loop_merges: dict[Frame, list[Op]] = {}
        self._before: list[tuple[Value, Value]] = []
        self._predicates: dict[Value, None] = {}
        self._visit(self.frames.root)
        self.rank = self._ranked()

    def of(self, value: Value) -> Guard:
        """When a value is alive."""
        op = value.producer
        if op is None or op not in self.of_op:
            return ALWAYS
        guard = self.of_op[op]
        if op.name == "switch":
            return both([guard, frozenset([(predicate_of(op), value.index)])])
        return guard

    # ---- the walk

    def _visit(self, frame: Frame) -> None:
        order = self.order_of[frame] = self.orders.order(frame)
        conditions = [i for i in order.items if isinstance(i, Op) and i.name == "loop_cond"]
        if len(conditions) > 1:
            raise refusal(conditions[1], f"{frame} has two conditions")
        self.condition[frame] = conditions[0] if conditions else None
        self.loop_merges[frame] = []
        for item in order.items:
            if isinstance(item, Frame):
                self._visit_inner(item)
            elif item.name == "merge" and any(map(is_forward, item.inputs)):
                self._loop_merge(item, frame)
            elif item.name == "exit":
                self.of_op[item] = self._exit(item)
            else:
                self.of_op[item] = self._guard(item)
                if item.name == "switch":
                    self._note(predicate_of(item))

    def _visit_inner(self, frame: Frame) -> None:
        enters = self.orders.enters(frame)
        guards = [self.of(op.inputs[0]) for op in enters]
        waits = [self.of_op.get(o, ALWAYS) for op in enters for o in op.after]
        self.of_frame[frame] = both([*guards, *waits])
        self._visit(frame)
        if any(guard != self.of_frame[frame] for guard in guards):
            self._check_whole(frame)

    def _check_whole(self, frame: Frame) -> None:
        """Refuses a frame part of which would run although part of what enters it is dead."""
        entered: dict[Op, Guard] = {}
        for op in self.orders.enters(frame):
            waits = [self.of_op.get(o, ALWAYS) for o in op.after]
            entered[op] = both([self.of(op.inputs[0]), *waits])
        for item in self.order_of[frame].items:
            if isinstance(item, Frame):
                makers = [v.producer for e in self.orders.enters(item) for v in e.inputs]
                ends = self.orders.exits[item]
            elif item.name == "exit":
                continue  # what it gives is known with its frame
            else:
                before = [o for inner in item.walk() for o in inner.after]
                used = [v for v in outer_values(item) if not is_forward(v)]
                makers = [*(v.producer for v in used), *before]
                ends = [item]
            found = both(entered.get(o, ALWAYS) for o in makers if o is not None)
            entered.update(dict.fromkeys(ends, found))
            for op in ends:
                self._check_entered(op, frame, found)
        for op in self.orders.exits[frame]:
            made = op.inputs[0].producer
            self._check_entered(op, frame, ALWAYS if made is None else entered.get(made, ALWAYS))
        for op in self.loop_merges[frame]:
            first, following = (
                entered.get(v.producer, ALWAYS) if v.producer is not None else ALWAYS
                for v in sorted(op.inputs, key=is_forward)
            )
            if not (first or ALWAYS) <= (following or ALWAYS):
                text = f"it is entered {self.text(first)}, but goes on {self.text(following)}"
                raise refusal(op, text, "enter values that are alive together")

    def _check_entered(self, op: Op, frame: Frame, found: Guard) -> None:
        matters = effects_of(op) is not Effect.NONE or op.name == "exit"
        if matters and found != self.of_frame[frame]:
            wanted = self.text(self.of_frame[frame])
            text = f"it runs {self.text(found)}, but {frame} is entered whole {wanted}"
            raise refusal(op, text, "enter values that are alive together")

    def _loop_merge(self, op: Op, frame: Frame) -> None:
        first = [v for v in op.inputs if not is_forward(v)]
        if len(op.inputs) != 2 or len(first) != 1:
            raise refusal(op, "a loop's merge takes one value from before and one from inside")
        begin = first[0].producer
        if begin is None or begin.name != "enter" or begin.attributes.get("constant"):
            text = f"%{first[0].name} is no `enter` of the first iteration alone"
            raise refusal(op, text, "the first operand of a loop's merge is such an `enter`")
        if op.after:
            raise refusal(op, "a loop's merge has control inputs")
        self.of_op[op] = ALWAYS
        self.loop_merges[frame].append(op)

    def _exit(self, op: Op) -> Guard:
        frame = self.frames.inputs_of(op)
        assert frame is not None
        inside = both([self.of(op.inputs[0]), *(self.of_op.get(o, ALWAYS) for o in op.after)])
        condition = self.condition[frame]
        if inside is None:
            return NEVER
        wanted = ALWAYS if condition is None else frozenset([(condition.result, 0)])
        if inside != wanted:
            text = f"%{op.inputs[0].name} is not alive exactly where the loop ends"
            raise refusal(
                op, text, "leave with the first result of a switch by the loop's condition"
            )
        return self.of_frame[frame]

    def _guard(self, op: Op) -> Guard:
        waits = [self.of_op.get(o, ALWAYS) for inner in op.walk() for o in inner.after]
        match op.name:
            case "merge":
                return both([self._merged(op), *waits])
            case "live_or_zeros":
                found = both(waits)
                self._nest(found, [self.of(op.inputs[0])])
                return found
            case _:
                for value in outer_values(op):
                    self._check_enter(op, value)
                return both([*map(self.of, outer_values(op)), *waits])

    def _check_enter(self, op: Op, value: Value) -> None:
        made = value.producer
        frame = self.frames.of_value(value)
        if made is None or made.name != "enter" or made.attributes.get("constant"):
            return
        if frame is not None and self._loops(frame):
            text = f"%{value.name} is there in the first iteration alone"
            raise refusal(op, text, "take it in with `constant = true`, or through a `merge`")

    def _loops(self, frame: Frame) -> bool:
        return any(op.name == "next_iteration" for op in frame.ops if op in self.orders.needed)

    def _merged(self, op: Op) -> Guard:
        """Where one of the operands of a merge is alive."""
        guards = [g for g in map(self.of, op.inputs) if g is not None]
        if not guards:
            return NEVER
        common = frozenset[Literal].intersection(*guards)
        try:
            self._covered([g - common for g in guards])
        except TfcError as error:
            names = ", ".join(f"%{v.name} ({self.text(self.of(v))})" for v in op.inputs)
            text = f"{error.message}: {names}"
            raise refusal(op, text, "a merge takes the two sides of a condition") from None
        self._nest(common, guards)
        return common

    def _covered(self, guards: Sequence[frozenset[Literal]]) -> None:
        """Checks that exactly one guard holds, whatever the predicates are."""
        if len(guards) == 1 and not guards[0]:
            return
        if not all(guards):
            raise TfcError("two operands may be alive at once")
        for predicate in dict.fromkeys(p for p, _ in sorted(guards[0], key=self._place)):
            sides = [[g - {(predicate, s)} for g in guards if (predicate, s) in g] for s in (0, 1)]
            if sum(map(len, sides)) < len(guards):
                continue
            if not all(sides):
                raise TfcError("no operand is alive on one side")
            for side in sides:
                self._before += [
                    (predicate, p) for g in side for p, _ in sorted(g, key=self._place)
                ]
                self._covered(side)
            return
        raise TfcError("the operands are not the sides of conditions")

    def _place(self, literal: Literal) -> tuple[int, int, int]:
        value, side = literal
        made = value.producer
        return (-1, value.index, side) if made is None else (self.orders.place[made], 0, side)

    # ---- the order of predicates

    def _note(self, predicate: Value) -> None:
        self._predicates[predicate] = None
        self._before += [(p, predicate) for p, _ in self._sorted(self.of(predicate))]

    def _nest(self, outer: Guard, guards: Iterable[Guard]) -> None:
        """Says that the conditions of `outer` stand around those that the guards have besides."""
        for guard in guards:
            if outer is None or guard is None:
                continue
            inner = [p for p, _ in self._sorted(guard - outer)]
            self._before += [(p, q) for p, _ in self._sorted(outer) for q in inner]

    def _sorted(self, guard: Guard) -> list[Literal]:
        return sorted(guard or (), key=self._place)

    def _ranked(self) -> dict[Value, int]:
        left = sorted(self._predicates, key=lambda p: self._place((p, 0)))
        found: dict[Value, int] = {}
        while left:
            blocked = {q for p, q in self._before if p not in found and p is not q}
            ready = [p for p in left if p not in blocked]
            if not ready:
                names = ", ".join(f"%{p.name}" for p in left)
                made = next(p.producer for p in left if p.producer is not None)
                raise refusal(made, f"the conditions {names} are nested in each other")
            found[ready[0]] = len(found)
            left.remove(ready[0])
        return found

    def text(self, guard: Guard) -> str:
        """A guard in words."""
        if guard is None:
            return "never alive"
        literals = [f"{'' if s else 'not '}%{p.name}" for p, s in self._sorted(guard)]
        return f"if {' and '.join(literals)}" if literals else "always alive"
