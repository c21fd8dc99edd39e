"""Names of devices: parsing, printing, constraints and how they merge."""

from __future__ import annotations

import pytest

from tfc.ir.devices import Device, is_device, parse_device, parse_devices
from tfc.ir.errors import TfcError

FULL = "/job:worker/replica:0/task:17/device:gpu:3"


@pytest.mark.parametrize(
    "text", [FULL, "/job:ps", "/task:3", "/device:gpu", "/device:*:1", "/replica:2/device:cpu:0"]
)
def test_prints_as_it_was_read(text: str) -> None:
    assert str(parse_device(text)) == text


def test_parts() -> None:
    assert parse_device(FULL) == Device("worker", 0, 17, "gpu", 3)
    assert parse_device("cpu:1") == Device(kind="cpu", number=1)
    assert parse_device("/job:*/device:gpu:*") == parse_device("gpu")


@pytest.mark.parametrize(
    "text", ["", "/", "/device:", "/device:GPU:0", "/task:x", "/device:cpu:0/job:a", "cpu 0"]
)
def test_mistakes(text: str) -> None:
    assert not is_device(text)
    with pytest.raises(TfcError, match="no device is written"):
        parse_device(text)


def test_fits() -> None:
    device = parse_device(FULL)
    for text in (FULL, "/device:*", "/device:gpu", "/device:*:3", "/job:worker", "/task:17"):
        assert parse_device(text).fits(device)
    for text in ("/device:cpu", "/device:gpu:2", "/job:ps", "/task:1", "/replica:1"):
        assert not parse_device(text).fits(device)


def test_merging() -> None:
    job, gpu, cpu = map(parse_device, ("/job:worker", "/device:gpu", "/task:1/device:cpu:0"))
    assert str(job.merged(gpu)) == "/job:worker/device:gpu"
    assert job.merged(gpu) == gpu.merged(job)
    assert gpu.clash(cpu) == ["kind"] and not job.clash(cpu)
    with pytest.raises(AssertionError):
        gpu.merged(cpu)


def test_lists_are_completed() -> None:
    (a, b) = parse_devices(("cpu", "/job:ps/task:2/device:gpu:1"))
    assert str(a) == "/job:localhost/replica:0/task:0/device:cpu:0" and a.is_full
    assert str(b) == "/job:ps/replica:0/task:2/device:gpu:1" and b.short == "gpu:1"
    with pytest.raises(TfcError, match="twice"):
        parse_devices(("cpu", "cpu:0"))
    with pytest.raises(TfcError, match="what kind"):
        parse_devices(("/job:a",))
