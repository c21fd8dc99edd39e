"""Schedules: how a kernel is tiled, one class for each kind, printed as `rows=8,cols=48`.

A schedule is an attribute of a group in the graph IR, put there by the pass `schedule`; it can be
edited by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Self

from tfc.ir.errors import TfcError

LARGEST = 1 << 16  # of any number in a schedule: more would be no tile


class Misfit(TfcError):
    """A schedule, written by hand perhaps, by which the kernel cannot be built."""


def check_fit(holds: bool, text: str) -> None:
    """Raises Misfit unless a schedule fits what it is for."""
    if not holds:
        raise Misfit(text)


@dataclass(frozen=True)
class Schedule:
    """The base: prints and parses as comma-separated `name=value`.

    Numbers are at least 1, except those that are named in `MAY_BE_ZERO`.
    """

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return ",".join(
            f"{f.name.replace('_', '-')}={int(getattr(self, f.name))}" for f in fields(self)
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        known = {f.name.replace("_", "-"): f for f in fields(cls)}
        values: dict[str, int | bool] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            if name not in known or not value.isdigit():
                raise TfcError(
                    f"schedule {text!r}: {part!r} is wrong",
                    hint=f"give {', '.join(known)} as numbers",
                )
            number = int(value[:9])  # longer ones are too large anyway
            field = known[name]
            low = 0 if field.type == "bool" or field.name in cls.MAY_BE_ZERO else 1
            if not low <= number <= LARGEST:
                message = f"schedule {text!r}: {name} is {value}"
                raise TfcError(message, hint=f"it may be {low} to {LARGEST}")
            values[known[name].name] = bool(number) if known[name].type == "bool" else number
        return cls(**values)


@dataclass(frozen=True)
class MapSchedule(Schedule):
    """Tiles of an elementwise kernel over the last two runs of its axes."""

    rows: int = 1
    cols: int = 64


@dataclass(frozen=True)
class RowSchedule(Schedule):
    """A reduction along the columns: `rows` at a time; `cols` of a row at a time, all if 0.

    `stage` keeps costly rows that are used twice in scratch.
    """

    MAY_BE_ZERO = ("cols",)
    rows: int = 1
    cols: int = 0
    stage: bool = True


@dataclass(frozen=True)
class ColumnSchedule(Schedule):
    """A reduction whose innermost axis is kept: `cols` of that axis, `rows` of the reduced ones."""

    rows: int = 8
    cols: int = 16


@dataclass(frozen=True)
class ContractionSchedule(Schedule):
    """Register tiles of `rows` x `cols`, `depth` of the inner axis a step.

    `strip`: rows of a program, walked a tile at a time (0: one tile a program); `stage_output`
    stages the accumulators before a heavy epilogue; `stage_rhs` transposes a panel of the right
    operand to scratch.
    """

    MAY_BE_ZERO = ("strip",)
    rows: int = 8
    cols: int = 48
    depth: int = 8
    strip: int = 0
    stage_output: bool = False
    stage_rhs: bool = False


@dataclass(frozen=True)
class ConvolutionSchedule(Schedule):
    """Register tiles of `pixels` of an output row x `channels`."""

    pixels: int = 14
    channels: int = 32
    stage_output: bool = False


@dataclass(frozen=True)
class WindowSchedule(Schedule):
    """A reduction over windows: `rows` x `cols` of the output's last two runs."""

    rows: int = 8
    cols: int = 16


@dataclass(frozen=True)
class AttentionSchedule(Schedule):
    """`queries` lie along the lanes; `keys` of a block, `rest` of the blocks of those left over.

    With a rest of 0 the last block is a part of one.
    """

    MAY_BE_ZERO: ClassVar[tuple[str, ...]] = ("rest",)

    queries: int = 32
    keys: int = 128
    rest: int = 0
