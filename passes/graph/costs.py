"""How long an op takes on a device, and what crosses between two: estimated, or from a profile.

An estimate is the larger of arithmetic over the device's rate and of bytes over that of its memory.
A profile is what `tfc bench --profile-out` writes: seconds by the names of the user's nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from tfc.ir.core import Module, Op, Value
from tfc.ir.devices import Device
from tfc.ir.errors import TfcError
from tfc.ir.expr import Dim
from tfc.ir.types import TensorType, Type
from tfc.ops.base import View, is_composite
from tfc.ops.constant import Constant
from tfc.passes.graph.arena import nominal
from tfc.passes.graph.liveness import outer_values
from tfc.targets import Target, speed

TRIPS = 10  # of a loop, as far as a guess goes
HEAVY = 12  # operations of a function such as exp
COMPOSITE = 8  # operations an element of an op that is made of others
_HEAVY = ("exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "tan", "pow", "gelu", "silu")


def elements(value: Value) -> int:
    """How many elements a value has, symbols at their usual size."""
    return _sizes(value.type)[0]


def bytes_of(value: Value) -> int:
    return _sizes(value.type)[1]


@lru_cache(maxsize=4096)
def _sizes(kind: Type) -> tuple[int, int]:
    """The elements and the bytes of a type."""
    if not isinstance(kind, TensorType):
        return 0, 0
    return prod(map(nominal, kind.shape)), nominal(kind.bytes)


def flops(op: Op) -> float:
    """Arithmetic operations, roughly; those of a loop for a guessed number of trips."""
    if isinstance(op, View | Constant) or op.terminator:
        return 0.0
    if op.regions:
        return _of_regions(op)
    out = max((elements(v) for v in op.results), default=0)
    most = max((elements(v) for v in (*op.results, *op.inputs)), default=0)
    if op.name in ("matmul", "gemm"):
        depth = op.inputs[0].tensor.shape[-1:]
        return 2.0 * out * _product(depth)
    if "conv" in op.name and len(op.inputs) > 1:
        kernel = op.inputs[1].tensor.shape[1:]  # channels of a group and window
        return 2.0 * out * _product(kernel)
    if op.name == "attention":
        return 4.0 * elements(op.inputs[0]) * _product(op.inputs[1].tensor.shape[-2:-1])
    if op.name in _HEAVY:
        return float(HEAVY * most)
    return float((COMPOSITE if is_composite(op) else 1) * most)


def _product(dims: Iterable[Dim]) -> int:
    return prod(map(nominal, dims))


def _of_regions(op: Op) -> float:
    parts = [sum(flops(o) for o in block) for block in op.regions]
    if op.name == "if":
        return max(parts)
    if op.name in ("while", "scan"):
        length: Dim = op.attributes.get("length", TRIPS)
        return sum(parts) * nominal(length)
    return sum(parts)


def moved(op: Op) -> int:
    """Bytes that an op reads and writes."""
    if isinstance(op, View | Constant) or op.terminator:
        return 0
    return sum(map(bytes_of, (*op.results, *outer_values(op))))


@dataclass(frozen=True)
class Costs:
    """Seconds of ops on kinds of devices.

    `measured` holds seconds by node, of devices of the kind `kind`; others are scaled by what the
    estimates say. `shares` counts the ops that carry a node's name, which share its seconds.
    """

    target: Target | None = None
    measured: dict[str, float] = field(default_factory=dict[str, float])
    kind: str = "cpu"
    shares: dict[str, int] = field(default_factory=dict[str, int])

    def seconds(self, op: Op, device: Device) -> float:
        kind = device.kind or "cpu"
        estimate = self.estimate(op, kind)
        known = [n for n in op.location.nodes if n in self.measured]
        if not known or isinstance(op, Constant):
            return estimate
        found = sum(self.measured[n] / self.shares.get(n, 1) for n in known)
        scale = 1.0 if kind == self.kind else estimate / max(self.estimate(op, self.kind), 1e-12)
        return found * scale

    def estimate(self, op: Op, kind: str) -> float:
        if isinstance(op, View | Constant):
            return 0.0
        rates = speed(kind, self.target)
        return rates.launch + max(flops(op) / rates.flops, moved(op) / rates.memory)


def read_costs(path: str, module: Module, target: Target | None) -> Costs:
    """Costs from a profile, or estimates where the path is empty; TfcError for another file."""
    if not path:
        return Costs(target)
    try:
        found: Any = json.loads(Path(path).read_text())
        measured = {str(n): float(s) for n, s in found["nodes"].items()}
        kind = str(found["kind"])
    except OSError as error:
        raise TfcError(f"cannot read the profile: {error.strerror}", where=path) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "`tfc bench --profile-out` writes them"
        raise TfcError("this is no profile of nodes", where=path, hint=hint) from error
    if any(not 0 <= s < float("inf") for s in measured.values()):
        raise TfcError("the profile has times that are no numbers of seconds", where=path)
    shares: dict[str, int] = {}
    for op in module.walk():
        for node in () if isinstance(op, Constant | View) else op.location.nodes:
            shares[node] = shares.get(node, 0) + 1
    return Costs(target, measured, kind, shares)
