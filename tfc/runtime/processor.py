"""Which of a bundle's targets this machine's processor can run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from .errors import BundleError
from .index import TargetInfo

_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}  # ELF's numbers
_FAMILIES = {62: "x86-64", 183: "aarch64"}


def choose_target(targets: Sequence[TargetInfo], wanted: str | None = None) -> TargetInfo:
    """The first target that fits (or the wanted one). Raises BundleError with the reasons."""
    candidates = [t for t in targets if wanted is None or t.name == wanted]
    if wanted is not None and not candidates:
        held = ", ".join(t.name for t in targets)
        raise BundleError(f"the bundle holds no code for {wanted!r}; it has {held or 'none'}")
    reasons: list[str] = []
    for target in candidates:
        reason = _reason_against(target)
        if reason is None:
            return target
        reasons.append(f"{target.name} {reason}")
    raise BundleError("no code of the bundle runs on this processor: " + "; ".join(reasons))


def _reason_against(target: TargetInfo) -> str | None:
    name = os.uname().machine
    if _MACHINES.get(name) != target.machine:
        family = _FAMILIES.get(target.machine, f"ELF machine {target.machine}")
        return f"is for {family} and this is {name}"
    missing = [f for f in target.requires if f not in processor_features()]
    return f"needs {', '.join(missing)}" if missing else None


@cache
def processor_features() -> frozenset[str]:
    """The names in the first `flags` (x86) or `Features` (Arm) line of /proc/cpuinfo."""
    try:
        with open("/proc/cpuinfo", "rb") as lines:
            for line in lines:
                label, _, names = line.partition(b":")
                if label.strip() in (b"flags", b"Features"):
                    return frozenset(names.decode("ascii", "replace").split())
    except OSError as error:
        raise BundleError(f"cannot read the processor's features: {error}") from error
    return frozenset()
