"""What each target is: its name, what LLVM calls it, its registers and caches, what it needs.

Decisions depend on these figures only, never on the machine that compiles; `host` stands for the
best named level that this machine's processor runs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache

from tfc.ir.devices import Device
from tfc.ir.errors import TfcError


@dataclass(frozen=True)
class Gpu:
    """What a kernel for a GPU has room for.

    `processors` run programs side by side; `shared_bytes` is the memory that one program may share
    between its threads, `registers` what a thread has.
    """

    arch: str
    processors: int
    shared_bytes: int
    registers: int = 255


@dataclass(frozen=True)
class Target:
    """A level of processors, or a GPU: `gpu` says what matters, and vectors are a warp's.

    `features` are LLVM's, beyond those of `cpu`. `requirements` are the names in /proc/cpuinfo
    that a processor must show. Cache sizes are bytes a core, those usual for the level.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    fma: bool
    masked_bytes: tuple[int, ...]  # sizes of elements that masked loads and stores take
    half_conversions: bool  # instructions between f16 and f32
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    requirements: tuple[str, ...]
    elf_machine: int = 62
    gpu: Gpu | None = None

    @property
    def avx512(self) -> bool:
        return self.vector_bytes == 64

    @property
    def vnni(self) -> bool:
        return "avx512vnni" in self.features

    def lanes(self, element_bytes: int) -> int:
        """How many elements of a size a vector register holds."""
        return max(1, self.vector_bytes // element_bytes)

    def __str__(self) -> str:
        return self.name


_V2 = ("cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")
_V3 = (*_V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_KIB, _MIB = 1 << 10, 1 << 20

_X86_V2 = Target(
    name="x86-64-v2",
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v2",
    features="",
    vector_bytes=16,
    vector_registers=16,
    fma=False,
    masked_bytes=(),
    half_conversions=False,
    l1_bytes=32 * _KIB,
    l2_bytes=256 * _KIB,
    l3_bytes=8 * _MIB,
    requirements=_V2,
)
_X86_V3 = replace(
    _X86_V2,
    name="x86-64-v3",
    cpu="x86-64-v3",
    vector_bytes=32,
    fma=True,
    masked_bytes=(4, 8),
    half_conversions=True,
    l2_bytes=512 * _KIB,
    l3_bytes=16 * _MIB,
    requirements=_V3,
)
_X86_V4 = replace(
    _X86_V3,
    name="x86-64-v4",
    cpu="x86-64-v4",
    features="-prefer-256-bit",  # else LLVM splits 512-bit registers
    vector_bytes=64,
    vector_registers=32,
    masked_bytes=(1, 2, 4, 8),
    l1_bytes=48 * _KIB,
    l2_bytes=1280 * _KIB,
    l3_bytes=32 * _MIB,
    requirements=_V4,
)
_X86_V4_VNNI = replace(
    _X86_V4,
    name="x86-64-v4+vnni",
    features="-prefer-256-bit,+avx512vnni",
    requirements=(*_V4, "avx512_vnni"),
)
_AARCH64 = Target(
    name="aarch64",
    triple="aarch64-unknown-linux-gnu",
    cpu="generic",
    features="+neon",
    vector_bytes=16,
    vector_registers=32,
    fma=True,
    masked_bytes=(),
    half_conversions=True,
    l1_bytes=64 * _KIB,
    l2_bytes=512 * _KIB,
    l3_bytes=8 * _MIB,
    requirements=(),  # every 64-bit Arm processor that runs Linux has Advanced SIMD
    elf_machine=183,
)
TARGETS: dict[str, Target] = {
    t.name: t for t in (_X86_V2, _X86_V3, _X86_V4, _X86_V4_VNNI, _AARCH64)
}
"""By name; of one family, later ones need more."""


def _gpu(arch: str, processors: int, shared_bytes: int, l2_bytes: int) -> Target:
    return Target(
        name=arch,
        triple="nvptx64-nvidia-cuda",
        cpu=arch,
        features="",
        vector_bytes=128,
        vector_registers=255,
        fma=True,
        masked_bytes=(1, 2, 4, 8),
        half_conversions=True,
        l1_bytes=shared_bytes,
        l2_bytes=l2_bytes // processors,
        l3_bytes=l2_bytes,
        requirements=(),
        elf_machine=190,
        gpu=Gpu(arch, processors, shared_bytes),
    )


GPU_TARGETS: dict[str, Target] = {
    "sm_80": _gpu("sm_80", 108, 163 * _KIB, 40 * _MIB),
    "sm_90": _gpu("sm_90", 132, 227 * _KIB, 50 * _MIB),
    "sm_100": _gpu("sm_100", 148, 227 * _KIB, 126 * _MIB),
}
"""NVIDIA's, by the name of the architecture; the figures are those of A100, H100 and B200."""


def resolve(name: str) -> Target:
    """The target of a name; `host` is the best level that this machine's processor runs."""
    if name == "host":
        return _host()
    known = TARGETS | GPU_TARGETS
    if name not in known:
        names = ", ".join(("host", *known))
        raise TfcError(f"no target is named {name!r}", hint=f"the targets are {names}")
    return known[name]


def runs_here(target: Target) -> bool:
    """Whether this machine's processor runs a target's code."""
    machine = os.uname().machine
    family = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}.get(machine)
    return family == target.elf_machine and _features().issuperset(target.requirements)


def _host() -> Target:
    fitting = [t for t in TARGETS.values() if runs_here(t)]
    if not fitting:
        raise TfcError(
            f"this machine ({os.uname().machine}) runs none of the targets",
            hint=f"name one to compile for: {', '.join(TARGETS)}",
        )
    return fitting[-1]


def _features() -> frozenset[str]:
    """The names in the first `flags` (x86) or `Features` (Arm) line of /proc/cpuinfo."""
    with open("/proc/cpuinfo", "rb") as lines:
        for line in lines:
            label, _, names = line.partition(b":")
            if label.strip() in (b"flags", b"Features"):
                return frozenset(names.decode("ascii", "replace").split())
    return frozenset()


# ---- what a device is good for, roughly: placement compares these


@dataclass(frozen=True)
class Speed:
    """Rates of a device: floating-point operations and bytes of memory a second, seconds an op."""

    flops: float
    memory: float
    launch: float


@dataclass(frozen=True)
class Link:
    """What lies between two devices: bytes a second, and the seconds until the first arrives."""

    bandwidth: float
    latency: float

    def seconds(self, size: int) -> float:
        return self.latency + size / self.bandwidth


_CLOCK = 3e9  # of a usual server core under vector load
_GPU_CLOCK = 1.6e9
_GPU_LANES = 128  # f32 units of a multiprocessor
SPEED_TARGETS = {"cpu": "x86-64-v3", "gpu": "sm_80"}  # where no target is given
DEVICE_KINDS = tuple(SPEED_TARGETS)
SAME_PROCESS = Link(10e9, 10e-6)  # a copy, and waking a thread
SAME_MACHINE = Link(12e9, 20e-6)  # PCIe of the third generation with 16 lanes
NETWORK = Link(1.25e9, 100e-6)  # Ethernet of 10 Gbit/s


@lru_cache(maxsize=64)
def speed(kind: str, target: Target | None = None) -> Speed:
    """The rates of a kind of device; those of `target` where it is of that kind."""
    own = target is not None and ("gpu" if target.gpu else "cpu") == kind
    found = target if target is not None and own else resolve(SPEED_TARGETS[kind])
    if found.gpu is not None:
        return Speed(found.gpu.processors * _GPU_LANES * 2 * _GPU_CLOCK, 1.5e12, 5e-6)
    return Speed(found.lanes(4) * (2 if found.fma else 1) * 2 * _CLOCK, 13e9, 0.5e-6)


def link(a: Device, b: Device) -> Link:
    """What lies between two devices that differ."""
    if (a.job, a.replica, a.task) != (b.job, b.replica, b.task):
        return NETWORK
    return SAME_PROCESS if a.kind == b.kind == "cpu" else SAME_MACHINE
