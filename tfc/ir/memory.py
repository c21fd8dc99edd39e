"""Where the values of a function lie in memory: what planning finds out, and code follows.

Most results have one place. A value that a loop carries, and what becomes one (`yield`, results of
`if`), may lie in one of several: whoever writes it takes the first that no value in `avoid` lies in
at that moment. So nothing is ever copied from one iteration to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from tfc.ir.core import Op, Value
from tfc.ir.expr import Dim


@dataclass(frozen=True)
class Output:
    """The caller's memory of an output, by its number."""

    number: int


@dataclass(frozen=True)
class Slice:
    """The part that an iteration of a `scan` fills in one of its results, by its number."""

    scan: Op
    number: int


@dataclass(frozen=True)
class Held:
    """The memory of a variable, by its name."""

    name: str


Target: TypeAlias = "Output | Slice | Held"


@dataclass(frozen=True)
class Room:
    """The places that a result may be written to: `target` first, then offsets in the arena."""

    offsets: tuple[Dim, ...] = ()
    target: Target | None = None
    avoid: tuple[Value, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether there is one place only."""
        return len(self.offsets) + (self.target is not None) == 1


@dataclass
class MemoryPlan:
    """The bytes of the arena, and the room of each value that is written.

    Those are results of launches and host ops, outputs of `scan`, and values that are copied: those
    of `read` and slices that outlive what they show. The others show memory of other values.
    """

    arena: Dim = 0
    rooms: dict[Value, Room] = field(default_factory=dict[Value, Room])
