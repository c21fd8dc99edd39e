"""Frames: where the ops of primitive control flow run (arXiv 1603.04467, section 4.4).

`enter` takes a value into the frame of its name, `exit` one out of it. A frame is known by its name
and by the frame around it, and runs once for each iteration of that. Always holds of what
`frames_of` gives: all that an op uses and waits for lives in one frame; an op that uses nothing,
waits for nothing and has no effect (a constant) is the same in every frame, so it has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tfc.ir.core import Block, Effect, Function, Op, Value
from tfc.ir.errors import TfcError, UnsupportedError

PRIMITIVE = (
    "switch",
    "merge",
    "enter",
    "exit",
    "next_iteration",
    "loop_cond",
    "live_or_zeros",
)


@dataclass(eq=False)
class Frame:
    """The body of a function (no name), or what the `enter`s of a name open inside of another.

    `ops` are those whose results live here, in order, without the frames inside.
    """

    name: str = ""
    parent: Frame | None = None
    inner: dict[str, Frame] = field(default_factory=dict[str, "Frame"])
    ops: list[Op] = field(default_factory=list[Op])

    @property
    def enters(self) -> list[Op]:
        return [op for op in self.ops if op.name == "enter"]

    def child(self, name: str) -> Frame:
        if name not in self.inner:
            self.inner[name] = Frame(name, self)
        return self.inner[name]

    def walk(self) -> Iterator[Frame]:
        """This frame and those inside, outermost first."""
        yield self
        for inner in self.inner.values():
            yield from inner.walk()

    def __str__(self) -> str:
        if self.parent is None:
            return "the function"
        return f"the frame {self.name!r}"


@dataclass(eq=False)
class Frames:
    """The frames of a block; `of` tells that of each op, in which its results live."""

    root: Frame
    of: dict[Op, Frame | None]

    def of_value(self, value: Value) -> Frame | None:
        """Where a value lives; None for one that is the same in every frame."""
        return self.root if value.producer is None else self.of.get(value.producer, self.root)

    def inputs_of(self, op: Op) -> Frame | None:
        """Where an op takes its operands from."""
        found = self.of[op]
        if op.name == "enter":
            assert found is not None
            return found.parent
        if op.name == "exit":
            return self.of_value(op.inputs[0])
        return found


def has_primitive_control(function: Function) -> bool:
    """Whether the body holds `switch`, `merge` and the like."""
    return any(op.name in PRIMITIVE for op in function.body)


def refuse_cycles(function: Function, what: str) -> None:
    """Raises UnsupportedError for a function whose loops are cycles of primitive ops."""
    for op in function.body:
        if op.name == "next_iteration":
            error = op.error(f"{what} is not for loops of primitive ops")
            raise UnsupportedError(
                error.message,
                position=error.position,
                where=error.where,
                hint="the pass `functionalize` makes a `while` of the loop",
            )


def is_forward(value: Value) -> bool:
    """Whether an operand of a `merge` is what the next iteration brings."""
    return value.producer is not None and value.producer.name == "next_iteration"


def is_everywhere(op: Op) -> bool:
    """Whether an op gives the same in every frame: it uses nothing, and nothing orders it."""
    plain = not op.operands and not op.after and not op.regions and not op.terminator
    return plain and bool(op.results) and op.effects is Effect.NONE


def frames_of(body: Block) -> Frames:
    """The frames of a function's body.

    Raises TfcError where an op uses values of two frames, where a loop closes across frames, and
    where the function returns a value of a frame.
    """
    root = Frame()
    frames = Frames(root, {})
    left = list(body)
    while left:
        later = [op for op in left if not _settle(op, frames)]
        if len(later) == len(left):  # an `enter` that nothing tells more of is one of the function
            enter = next(op for op in later if _is_undecided(op, frames))
            frames.of[enter] = root.child(_name(enter))
        left = [op for op in later if op not in frames.of]
    for op in body:
        found = frames.of[op]
        if found is not None:
            found.ops.append(op)
    for op in body:
        if op.name == "merge":
            _check_merge(op, frames)
    _part_loops(root, frames, {op: number for number, op in enumerate(body)})
    return frames


# ---- two loops of one name


def _part_loops(frame: Frame, frames: Frames, place: dict[Op, int]) -> None:
    """Two loops of one name that no value connects are two frames."""
    for inner in list(frame.inner.values()):
        parts = _connected([op for f in inner.walk() for op in f.ops], place)
        if len(parts) > 1:
            frame.inner = {k: f for k, f in frame.inner.items() if f is not inner}
            for number, part in enumerate(parts):
                frame.inner[f"{inner.name}#{number}"] = _part_of(inner, frame, part, frames)
    for inner in frame.inner.values():
        _part_loops(inner, frames, place)


def _connected(ops: list[Op], place: dict[Op, int]) -> list[set[Op]]:
    """The loops of a frame: parts between which no value and no control edge goes."""
    held, leader = set(ops), {op: op for op in ops}

    def find(op: Op) -> Op:
        while leader[op] is not op:
            leader[op] = op = leader[leader[op]]
        return op

    for op in ops:
        forward = [v.producer for v in op.inputs if is_forward(v)]
        for other in (*_makers(op), *forward):
            if other in held:
                leader[find(op)] = find(other)
    parts: dict[Op, set[Op]] = {}
    for op in sorted(ops, key=place.__getitem__):
        parts.setdefault(find(op), set()).add(op)
    loops = [p for p in parts.values() if any(op.name == "next_iteration" for op in p)]
    for part in parts.values():
        if loops and part not in loops:
            loops[0] |= part  # what no loop is connected with runs in each iteration of the first
    return loops or [held]


def _part_of(frame: Frame, parent: Frame, ops: set[Op], frames: Frames) -> Frame:
    """A frame with some of the ops of another one, and of those inside it."""
    part = Frame(frame.name, parent, ops=[op for op in frame.ops if op in ops])
    frames.of.update(dict.fromkeys(part.ops, part))
    for key, inner in frame.inner.items():
        held = _part_of(inner, part, ops, frames)
        if held.ops:
            part.inner[key] = held
    return part


def _settle(op: Op, frames: Frames) -> bool:
    """Finds the frame of an op, unless too little is known yet; whether it did."""
    if is_everywhere(op):
        frames.of[op] = None
        return True
    if any(made not in frames.of for made in _makers(op)):
        return False
    common = _common(op, frames)
    if op.name == "enter" and common is None and _made_everywhere(op):
        known = [f for f in frames.root.walk() if f.name == _name(op) and f.parent is not None]
        if len(known) > 1:
            hint = "enter a value of the frame around it"
            raise op.error(f"there are {len(known)} frames of the name {_name(op)!r}", hint)
        if known:
            frames.of[op] = known[0]
        return bool(known)
    frames.of[op] = _frame(op, common or frames.root)
    return True


def _is_undecided(op: Op, frames: Frames) -> bool:
    return op.name == "enter" and all(made in frames.of for made in _makers(op))


def _made_everywhere(op: Op) -> bool:
    made = op.inputs[0].producer
    return made is not None and is_everywhere(made)


def _makers(op: Op) -> Iterator[Op]:
    """The ops around an op that it uses or runs after, besides what the next iteration brings."""
    for inner in op.walk():
        for value in inner.inputs:
            made = value.producer
            if made is not None and not _within(value, op) and not is_forward(value):
                yield made
        yield from (o for o in inner.after if inner is op)


def _name(enter: Op) -> str:
    return str(enter.attributes.get("frame", ""))


def _frame(op: Op, common: Frame) -> Frame:
    if op.name == "enter":
        return common.child(_name(op))
    if op.name == "exit":
        if common.parent is None:
            raise op.error("its operand is in no frame", "`exit` leaves what `enter` entered")
        return common.parent
    if op.name in ("next_iteration", "loop_cond") and common.parent is None:
        raise op.error("it is in no frame", "a loop begins with `enter`")
    return common


def _common(op: Op, frames: Frames) -> Frame | None:
    """The one frame of what an op uses and runs after."""
    found: Frame | None = None
    for other, what in _needs(op, frames):
        if other is None:
            continue
        if found is not None and other is not found:
            raise op.error(
                f"{what} is in {other}, but the others are in {found}",
                "take it in with `enter`, or out with `exit`",
            )
        found = other
    return found


def _needs(op: Op, frames: Frames) -> Iterator[tuple[Frame | None, str]]:
    """The frames of operands, of what the regions use of outside, and of what it runs after."""
    for inner in op.walk():
        for value in inner.inputs:
            known = value.producer is None or value.producer in frames.of
            if known and not _within(value, op):
                yield frames.of_value(value), f"%{value.name}"
    if not op.terminator:
        for earlier in op.after:
            yield frames.of[earlier], _named(earlier)


def _within(value: Value, op: Op) -> bool:
    """Whether a value belongs to a region of an op."""
    place = value.owner.parent if isinstance(value.owner, Op) else value.owner
    while isinstance(place, Block):
        owner = place.parent
        if owner is op:
            return True
        place = owner.parent if isinstance(owner, Op) else None
    return False


def _named(op: Op) -> str:
    name = op.results[0].name if op.results else ""
    return f"%{name}" if name else f"^{op.label}" if op.label else op.name


def _check_merge(op: Op, frames: Frames) -> None:
    own = frames.of[op]
    forward = [v for v in op.inputs if is_forward(v)]
    for value in op.inputs:
        found = frames.of_value(value)
        if found is not None and found is not own:
            raise op.error(
                f"%{value.name} is in {found}, but the merge in {own or frames.root}",
                "what the next iteration brings is of the frame of the merge",
            )
    if forward and len(forward) == len(op.inputs):
        raise op.error("all operands are next iterations, so it never begins")


def check_frames(function: Function) -> None:
    """What the verifier asks of a function with frames."""
    frames = frames_of(function.body)
    for value in function.body.terminator.inputs:
        frame = frames.of_value(value)
        if frame is not None and frame.parent is not None:
            raise function.body.terminator.error(
                f"%{value.name} lives in {frame}, where it has a value for each iteration",
                "return what `exit` takes out of the frame",
            )


__all__ = [
    "PRIMITIVE",
    "Frame",
    "Frames",
    "TfcError",
    "check_frames",
    "frames_of",
    "has_primitive_control",
    "is_everywhere",
    "is_forward",
]
