"""Readers: formats of files, order, batches, queues that they fill, damaged and hostile files."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tfc.runtime.crc32c import crc32c, masked_crc32c, masked_rows
from tfc.runtime.errors import OutOfRangeError, RunError, StateError
from tfc.runtime.host import Context, OutputType, ResourceInfo, declare_resources
from tfc.runtime.state import State
from tfc.runtime.tensors import storage_dtype

PAIR = (OutputType("f32", (2,)), OutputType("i64", ()))


def state_of(folder: Path | None, *infos: ResourceInfo) -> State:
    state = State(folder)
    declare_resources(state, infos)
    return state


def reader(kind: str, files: Any, types: tuple[OutputType, ...] = PAIR, **more: Any) -> Any:
    return ResourceInfo("r", kind, types, {"files": files, **more})


def batches(state: State) -> list[list[np.ndarray]]:
    """All that a reader gives."""
    found: list[list[np.ndarray]] = []
    while True:
        try:
            found.append(state.resource("r").read(Context(state)))
        except OutOfRangeError:
            return found


def record(data: bytes) -> bytes:
    length = len(data).to_bytes(8, "little")
    checks = [masked_crc32c(part).to_bytes(4, "little") for part in (length, data)]
    return length + checks[0] + data + checks[1]


def write_all(folder: Path) -> dict[str, ResourceInfo]:
    """Ten elements, in two files of each format."""
    x = np.arange(20, dtype=np.float32).reshape(10, 2)
    y = np.arange(100, 110)
    for number, rows in enumerate((slice(0, 7), slice(7, 10))):
        np.save(folder / f"x-{number}.npy", x[rows])
        np.save(folder / f"y-{number}.npy", y[rows])
        arrays = {"label": y[rows], "image": x[rows], "other": np.zeros(3)}
        safetensors.numpy.save_file(arrays, folder / f"d-{number}.safetensors")
        data = b"".join(record(x[i].tobytes() + y[i].tobytes()) for i in range(10)[rows])
        (folder / f"d-{number}.tfrecord").write_bytes(data)
    return {
        "npy": reader("npy_reader", ["x-*.npy", "y-*.npy"]),
        "safetensors": reader("safetensors_reader", "d-*.safetensors", names=["image", "label"]),
        "tfrecord": reader("tfrecord_reader", "d-*.tfrecord"),
    }


FORMATS = ["npy", "safetensors", "tfrecord"]


def with_attributes(info: ResourceInfo, **more: Any) -> ResourceInfo:
    return ResourceInfo(info.name, info.kind, info.types, {**info.attributes, **more})


@pytest.mark.parametrize("name", FORMATS)
def test_elements_come_in_the_order_of_files_and_rows(name: str, tmp_path: Path) -> None:
    info = with_attributes(write_all(tmp_path)[name], batch=4, epochs=2)
    found = batches(state_of(tmp_path, info))
    assert [b[0].shape for b in found] == [(4, 2)] * 5
    numbers = np.concatenate([b[1] for b in found])
    assert numbers.tolist() == [100 + i % 10 for i in range(20)]
    for x, y in found:
        assert (x.dtype, y.dtype) == (np.float32, np.int64)
        np.testing.assert_array_equal(x[:, 0], 2.0 * (y - 100))


def test_an_incomplete_last_batch_is_left_out(tmp_path: Path) -> None:
    state = state_of(tmp_path, with_attributes(write_all(tmp_path)["npy"], batch=3))
    assert len(batches(state)) == 3
    with pytest.raises(OutOfRangeError, match="'r' is at its end"):
        state.resource("r").read(Context(state))


def test_without_end(tmp_path: Path) -> None:
    state = state_of(tmp_path, with_attributes(write_all(tmp_path)["npy"], batch=7, epochs=0))
    for turn in range(30):
        _, y = state.resource("r").read(Context(state))
        assert y.tolist() == [100 + i % 10 for i in range(turn * 7, turn * 7 + 7)]
    state.reset()


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i8", "u16", "i32", "u64", "bool"])
def test_element_types(dtype: str, tmp_path: Path) -> None:
    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bf16" else storage_dtype(dtype)
    x = np.arange(6).reshape(3, 2).astype(kind)
    np.save(tmp_path / "x.npy", x)
    info = reader("npy_reader", "x.npy", (OutputType(dtype, (2,)),), batch=3)
    ((found,),) = batches(state_of(tmp_path, info))
    assert found.tobytes() == x.tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_the_state_goes_on_behind_what_was_taken(name: str, tmp_path: Path) -> None:
    info = with_attributes(write_all(tmp_path)[name], batch=3, epochs=2, prefetch=3)
    state = state_of(tmp_path, info)
    for _ in range(2):
        state.resource("r").read(Context(state))
    described, _ = state.resource("r").snapshot()
    expected = batches(state)
    other = state_of(tmp_path, info)
    other.resource("r").read(Context(other))
    other.resource("r").restored(json.loads(json.dumps(described)), {})()
    for a, b in zip(batches(other), expected, strict=True):
        np.testing.assert_array_equal(a[1], b[1])


def test_a_state_at_other_files_is_refused(tmp_path: Path) -> None:
    state = state_of(tmp_path, write_all(tmp_path)["npy"])
    described, _ = state.resource("r").snapshot()
    np.save(tmp_path / "x-2.npy", np.zeros((1, 2), np.float32))
    np.save(tmp_path / "y-2.npy", np.zeros(1, np.int64))
    other = state_of(tmp_path, write_all(tmp_path)["npy"])
    with pytest.raises(StateError, match="its files are not those"):
        other.resource("r").restored(described, {})
    with pytest.raises(StateError, match="position"):
        other.resource("r").restored({**described, "at": [0, 99, 0]}, {})


# ---- a queue that a reader fills


def filled_queue(folder: Path, kind: str = "random_shuffle_queue", **more: Any) -> State:
    infos = write_all(folder)
    options = {"seed": 3, "min_after_dequeue": 6} if kind == "random_shuffle_queue" else {}
    attributes = {"capacity": 8, "reader": "r", **options}
    queue = ResourceInfo("q", kind, PAIR, attributes)
    return state_of(folder, with_attributes(infos["npy"], epochs=3, **more), queue)


def taken(state: State, count: int) -> list[int]:
    _, numbers = state.resource("q").dequeue(Context(state), count)
    return numbers.tolist()


def test_a_reader_fills_a_queue_until_its_end(tmp_path: Path) -> None:
    state = filled_queue(tmp_path)
    numbers = [n for _ in range(15) for n in taken(state, 2)]
    assert sorted(numbers) == sorted(list(range(100, 110)) * 3)
    assert numbers != sorted(numbers)
    with pytest.raises(OutOfRangeError):
        taken(state, 1)
    with pytest.raises(StateError, match="go to the queue 'q'"):
        state.resource("r").read(Context(state))


@pytest.mark.parametrize("kind", ["fifo_queue", "random_shuffle_queue"])
@pytest.mark.parametrize("at", [0, 1, 7, 14])
def test_a_queue_and_its_reader_go_on_together(kind: str, at: int, tmp_path: Path) -> None:
    state = filled_queue(tmp_path, kind)
    before = [n for _ in range(at) for n in taken(state, 2)]
    time.sleep(0.01 * (at % 3))
    described, arrays = state.resource("q").snapshot()
    after = [n for _ in range(15 - at) for n in taken(state, 2)]
    assert sorted(before + after) == sorted(list(range(100, 110)) * 3)

    other = filled_queue(tmp_path, kind)
    taken(other, 3)
    other.resource("q").restored(json.loads(json.dumps(described)), arrays)()
    assert [n for _ in range(15 - at) for n in taken(other, 2)] == after
    with pytest.raises(OutOfRangeError):
        taken(other, 1)


def test_a_damaged_file_fails_the_queue_after_what_came_before(tmp_path: Path) -> None:
    state = filled_queue(tmp_path, "fifo_queue")
    np.save(tmp_path / "y-1.npy", np.zeros(2, np.int64))
    assert len(taken(state, 7)) == 7
    with pytest.raises(StateError, match=r"'y-1\.npy' has 2 rows"):
        taken(state, 1)


def test_threads_end_when_nobody_needs_them(tmp_path: Path) -> None:
    def ours() -> int:
        names = [t.name for t in threading.enumerate()]
        return sum(name in ("fills q", "reads r") for name in names)

    before = ours()
    state = filled_queue(tmp_path)
    taken(state, 1)
    infos = write_all(tmp_path)
    other = state_of(tmp_path, with_attributes(infos["npy"], epochs=0))
    other.resource("r").read(Context(other))
    assert ours() > before
    del state, other
    end = time.monotonic() + 10
    while ours() > before and time.monotonic() < end:
        gc.collect()
        time.sleep(0.05)
    assert ours() <= before


# ---- what is refused


@pytest.mark.parametrize(
    ("kind", "files", "more", "message"),
    [
        ("npy_reader", ["../x.npy", "y"], {}, "not below the folder"),
        ("npy_reader", ["/etc/passwd", "y"], {}, "not below the folder"),
        ("npy_reader", ["a/../../x.npy", "y"], {}, "not below the folder"),
        ("npy_reader", "x-*.npy", {}, "2 patterns"),
        ("npy_reader", [], {}, "2 patterns"),
        ("safetensors_reader", "d", {}, "names must be 2"),
        ("tfrecord_reader", "d", {"format": "example"}, "tf.train.Example"),
        ("npy_reader", ["x", "y"], {"batch": 0}, "batch is 0"),
        ("npy_reader", ["x", "y"], {"shuffle": True}, "no attribute shuffle"),
    ],
)
def test_a_wrong_declaration_is_an_error(
    kind: str, files: Any, more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(StateError, match=message):
        state_of(tmp_path, reader(kind, files, **more)).resource("r")


def read_error(state: State) -> str:
    with pytest.raises(RunError) as caught:
        state.resource("r").read(Context(state))
    return str(caught.value)


def test_no_folder_and_no_files(tmp_path: Path) -> None:
    info = write_all(tmp_path)["npy"]
    assert "needs a folder" in read_error(state_of(None, info))
    assert "no file is named" in read_error(state_of(tmp_path, reader("npy_reader", ["z*", "y*"])))
    (tmp_path / "y-1.npy").unlink()
    assert "name 2 and 1 files" in read_error(state_of(tmp_path, info))


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    np.save(tmp_path / "x.npy", np.zeros((2, 2), np.float32))
    os.symlink(tmp_path / "x.npy", inner / "x.npy")
    info = reader("npy_reader", "x.npy", PAIR[:1])
    assert "leads out of the folder" in read_error(state_of(inner, info))


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    text = header.encode()
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text + data


def shaped(descr: str = "'<f4'", shape: str = "(2, 2)", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no .npy file"),
        (b"\x93NUMPY\x09\x00" + bytes(20), "no .npy file"),
        (npy(shaped())[:30], "header would have"),
        (npy(shaped(), bytes(15)), "too short"),
        (npy(shaped(shape="(2, 3)"), bytes(24)), r"f32\[2, 3\], not f32\[any number, 2\]"),
        (npy(shaped(descr="'<f8'"), bytes(32)), r"f64\[2, 2\]"),
        (npy(shaped(descr="'>f4'"), bytes(16)), "'>f4', which is not supported"),
        (npy(shaped(descr="'|O'"), bytes(16)), "which is not supported"),
        (npy(shaped(descr="[('a', '<f4')]"), bytes(16)), "which is not supported"),
        (npy(shaped(order="True"), bytes(16)), "Fortran"),
        (npy(shaped(shape="(4611686018427387904, 2)"), bytes(16)), "is no size"),
        (npy(shaped(shape="(1152921504606846976, 2)"), bytes(16)), "too short"),
        (npy(shaped(shape="(-2, 2)"), bytes(16)), "is no size"),
        (npy(shaped(shape="(True, 2)"), bytes(16)), "is no size"),
        (npy(shaped(shape="2"), bytes(16)), "header is not as it must be"),
        (npy("__import__('os')"), "header is not as it must be"),
        (npy("(" * 3000), "header is not as it must be"),
        (npy("{}"), "header is not as it must be"),
        (npy("\xff"), "header is not as it must be"),
    ],
)
def test_damaged_npy_files(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    state = state_of(tmp_path, reader("npy_reader", "x.npy", PAIR[:1]))
    with pytest.raises(RunError, match=message):
        state.resource("r").read(Context(state))


def tensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(begin: int = 0, end: int = 16, dtype: str = "F32", shape: Any = (2, 2)) -> Any:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1234", "it has 4 bytes"),
        (tensors({}, length=1 << 62), "header would have"),
        (tensors(b"{"), "header is not as it must be"),
        (tensors(b"[" * 100_000), "header is not as it must be"),
        (tensors([1]), "header is not as it must be"),
        (tensors(entry(dtype="C64"), bytes(16)), "header is not as it must be"),
        (tensors(entry(end=17), bytes(17)), "17 bytes and needs 16"),
        (tensors(entry(shape=[-2, -2]), bytes(16)), "is no size"),
        (tensors(entry(shape=[1.5, 2]), bytes(16)), "is no size"),
        (tensors(entry(shape=[1 << 61, 1 << 61]), bytes(16)), "needs"),
        (tensors(entry(4, 20), bytes(20)), "not where it must be"),
        (tensors(entry(), bytes(15)), "15 bytes of elements, not 16"),
        (tensors(entry(), bytes(17)), "17 bytes of elements, not 16"),
        (tensors(entry(shape=[4]), bytes(16)), r"f32\[4\], not"),
        (tensors({}), "holds no array 'a'"),
    ],
)
def test_damaged_safetensors_files(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(data)
    info = reader("safetensors_reader", "x", PAIR[:1], names="a")
    state = state_of(tmp_path, info)
    with pytest.raises(RunError, match=message):
        state.resource("r").read(Context(state))


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


GOOD = record(bytes(16))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOOD[:11], "check of its length"),
        (flipped(GOOD, 0), "check of its length"),
        (flipped(GOOD, 9), "check of its length"),
        (flipped(GOOD, 12), "check of its data"),
        (flipped(GOOD, 29), "check of its data"),
        (GOOD[:31], "ends too early"),
        (record(bytes(15)), "15 bytes, an element has 16"),
        (record(b""), "0 bytes, an element has 16"),
    ],
)
def test_damaged_records(data: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(GOOD + data)
    state = state_of(tmp_path, reader("tfrecord_reader", "x"))
    state.resource("r").read(Context(state))
    with pytest.raises(StateError, match=f"byte 32.*{message}"):
        state.resource("r").read(Context(state))


def test_an_endless_reader_of_nothing_is_an_error(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((0, 2), np.float32))
    info = reader("npy_reader", "x.npy", PAIR[:1], epochs=0)
    assert "hold no elements" in read_error(state_of(tmp_path, info))


def test_checksums_of_rfc_3720() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


def test_checksums_of_long_data_are_those_of_a_byte_at_a_time() -> None:
    table = [0] * 256
    for i in range(256):
        value = i
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table[i] = value
    data = np.random.default_rng(0).bytes(70_001)
    for size in (0, 1, 4095, 4096, 4097, 70_001):
        value = 0xFFFFFFFF
        for byte in data[:size]:
            value = table[(value ^ byte) & 0xFF] ^ value >> 8
        assert crc32c(data[:size]) == value ^ 0xFFFFFFFF


@pytest.mark.parametrize("shape", [(1, 9), (3, 5000), (64, 9), (100, 1), (64, 0), (0, 8)])
def test_checksums_of_rows(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    assert masked_rows(rows).tolist() == [masked_crc32c(row.tobytes()) for row in rows]


@pytest.mark.parametrize("bad", [0, 1, 63, 64, 199])
def test_what_comes_before_a_damaged_record_is_given(bad: int, tmp_path: Path) -> None:
    data = b"".join(record(bytes([i]) * 16) for i in range(200))
    (tmp_path / "x").write_bytes(flipped(data, bad * 32 + 20))
    state = state_of(tmp_path, reader("tfrecord_reader", "x", (OutputType("u8", (16,)),)))
    for number in range(bad):
        (found,) = state.resource("r").read(Context(state))
        assert found.tolist() == [[number] * 16]
    with pytest.raises(StateError, match=f"byte {bad * 32} is damaged"):
        state.resource("r").read(Context(state))
