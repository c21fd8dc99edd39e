"""Names of devices, and constraints on where an op runs (arXiv 1603.04467, section 3.2).

A full name is `/job:worker/replica:0/task:17/device:gpu:3`. A constraint leaves parts out, or
writes `*` for them; it fits every device that agrees in the parts that it names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from tfc.ir.errors import TfcError

DEVICE = re.compile(
    r"(?:/job:(?P<job>\w+|\*))?(?:/replica:(?P<replica>\d+|\*))?(?:/task:(?P<task>\d+|\*))?"
    r"(?:/device:(?P<kind>[a-z]\w*|\*)(?::(?P<number>\d+|\*))?)?",
    re.ASCII,
)
"""The text of a device or of a constraint; the empty text is none."""

HINT = "such as `/job:worker/task:0/device:cpu:0`, or a part of it; `*` fits any"
_SHORT = re.compile(r"[a-z]\w*(?::(?:\d+|\*))?", re.ASCII)


def is_device(text: str) -> bool:
    """Whether a text names a device, or is a constraint."""
    return bool(text) and DEVICE.fullmatch(text) is not None


@dataclass(frozen=True, order=True)
class Device:
    """A device, or a constraint: None is a part that may be anything."""

    job: str | None = None
    replica: int | None = None
    task: int | None = None
    kind: str | None = None
    number: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether it names one device."""
        return None not in self.parts.values()

    @property
    def parts(self) -> dict[str, str | int | None]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def short(self) -> str:
        """The kind and number alone: `cpu:0`."""
        return f"{self.kind or '*'}:{'*' if self.number is None else self.number}"

    def fits(self, device: Device) -> bool:
        """Whether a device meets this constraint."""
        found = device.parts
        return all(want in (None, found[name]) for name, want in self.parts.items())

    def clash(self, other: Device) -> list[str]:
        """The parts in which both say different things, so that no device meets both."""
        theirs = other.parts
        return [
            name
            for name, own in self.parts.items()
            if own is not None and theirs[name] is not None and own != theirs[name]
        ]

    def merged(self, other: Device) -> Device:
        """What meets both constraints, which do not clash."""
        assert not self.clash(other), f"{self} and {other} clash"
        theirs = other.parts
        found = {n: theirs[n] if own is None else own for n, own in self.parts.items()}
        return replace(self, **found)

    def completed(self) -> Device:
        """The device that a name without job, replica, task or number means on one machine."""
        return Device(
            self.job or "localhost", self.replica or 0, self.task or 0, self.kind, self.number or 0
        )

    def __str__(self) -> str:
        named = [("job", self.job), ("replica", self.replica), ("task", self.task)]
        text = "".join(f"/{name}:{part}" for name, part in named if part is not None)
        if self.kind is not None or self.number is not None:
            text += f"/device:{self.kind or '*'}"
            text += "" if self.number is None else f":{self.number}"
        return text or "/device:*"


ANY_DEVICE = Device()


def parse_device(text: str) -> Device:
    """A device or a constraint from its text; `cpu:0` is short for `/device:cpu:0`.

    Raises TfcError for a text of another form.
    """
    whole = f"/device:{text}" if _SHORT.fullmatch(text) else text
    found = DEVICE.fullmatch(whole) if whole else None
    if found is None:
        raise TfcError(f"no device is written {text!r}", hint=HINT)
    known = {n: t for n, t in found.groupdict().items() if t not in (None, "*")}
    numbers = {n: int(t) for n, t in known.items() if n in ("replica", "task", "number")}
    return Device(job=known.get("job"), kind=known.get("kind"), **numbers)


def parse_devices(texts: tuple[str, ...]) -> tuple[Device, ...]:
    """The devices of a list, each completed; TfcError where one is given twice or has no kind."""
    devices: list[Device] = []
    for text in texts:
        device = parse_device(text)
        if device.kind is None:
            raise TfcError(f"{text!r} does not say what kind of device", hint="such as `cpu:0`")
        if device.completed() in devices:
            raise TfcError(f"the device {text!r} is given twice")
        devices.append(device.completed())
    return tuple(devices)
