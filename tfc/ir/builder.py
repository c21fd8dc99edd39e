"""Makes ops at a place in a block, each with the current location."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from tfc.ir.core import UNKNOWN, Block, Location, Op, Value

OpT = TypeVar("OpT", bound=Op)


class Builder:
    """Inserts ops at the end of a block, or before an op of it."""

    def __init__(
        self, block: Block, before: Op | None = None, location: Location = UNKNOWN
    ) -> None:
        self.block = block
        self.before = before
        self.location = location

    @staticmethod
    def before_op(op: Op) -> Builder:
        """A builder that inserts before an op, with its location."""
        assert op.parent is not None
        return Builder(op.parent, op, op.location)

    def add(self, op: OpT) -> OpT:
        """Inserts an op and gives it back."""
        if op.location is UNKNOWN:
            op.location = self.location
        self.block.insert(op, self.before)
        return op

    def value(self, op: Op) -> Value:
        """Inserts an op and gives its single result."""
        return self.add(op).result

    @contextmanager
    def at(self, location: Location) -> Generator[None]:
        """Ops made inside carry this location."""
        saved, self.location = self.location, location
        try:
            yield
        finally:
            self.location = saved

    @contextmanager
    def inside(self, block: Block) -> Generator[None]:
        """Ops made inside go to the end of another block."""
        saved = self.block, self.before
        self.block, self.before = block, None
        try:
            yield
        finally:
            self.block, self.before = saved
