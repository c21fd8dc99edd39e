"""Schedules for GPUs: those of CPUs, with the warps of a program and stages of its loops."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.tile.nests.schedule import (
    AttentionSchedule,
    ColumnSchedule,
    ContractionSchedule,
    MapSchedule,
    RowSchedule,
    Schedule,
    WindowSchedule,
)


@dataclass(frozen=True)
class Launch(Schedule):
    """`warps` of 32 threads run a program; loads of a loop run `stages` iterations ahead."""

    warps: int = 4
    stages: int = 1


@dataclass(frozen=True)
class GpuMap(Launch, MapSchedule):
    """An elementwise kernel: a program is one tile."""


@dataclass(frozen=True)
class GpuRows(Launch, RowSchedule):
    """A reduction along the columns."""


@dataclass(frozen=True)
class GpuColumns(Launch, ColumnSchedule):
    """A reduction along the rows."""


@dataclass(frozen=True)
class GpuContraction(Launch, ContractionSchedule):
    """A contraction: a program is one tile of the output."""


@dataclass(frozen=True)
class GpuWindows(Launch, WindowSchedule):
    """A fold over windows."""


@dataclass(frozen=True)
class GpuAttention(Launch, AttentionSchedule):
    """Attention: `queries` of a program, `keys` a step of the loop."""


@dataclass(frozen=True)
class ImplicitProduct(Launch):
    """A convolution as a product of matrices.

    `pixels` of an image by `channels`, `depth` input channels a step.
    """

    pixels: int = 128
    channels: int = 64
    depth: int = 32
