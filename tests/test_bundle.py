"""The bundle's writer: what the file looks like, that its bytes are fixed, that it is whole."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import forge, stand_in
from tfc import bundle_files
from tfc.bundle import CodeSpec, FunctionInfo, SymbolInfo, TensorInfo, Weight, header_text, write
from tfc.ir.errors import TfcError
from tfc.runtime import container, load

ROOT = Path(__file__).parents[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.tfb"


# ---- the file ----


def test_it_is_an_executable_zip_with_aligned_members(path: Path) -> None:
    written = write(path, stand_in.spec())
    assert path.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert path.stat().st_mode & stat.S_IXUSR
    assert path.stat().st_size == written.size
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert {i.compress_type for i in archive.infolist()} == {zipfile.ZIP_STORED}
    assert written.members == {i.filename: i.file_size for i in archive.infolist()}
    assert names[-2:] == ["index.bin", "manifest.json"]
    assert {"LICENSE", "__main__.py", "include/tfc.h", "include/example.c", "weights"} < set(names)
    assert all(m.offset % 4096 == 0 for m in forge.read_index(path.read_bytes()).members)


def test_what_it_says_is_what_the_manifest_hashes_to(path: Path) -> None:
    written = write(path, stand_in.spec())
    with load(path, sha256=written.sha256, check="all") as bundle:
        assert bundle.sha256 == written.sha256


def test_what_the_runtime_carries_is_small(path: Path) -> None:
    sizes = write(path, stand_in.spec()).members
    carried = sum(s for n, s in sizes.items() if n.startswith(("tfc_runtime/", "include/")))
    assert carried < 180_000


def test_weights_lie_where_they_were_asked_for(path: Path) -> None:
    pieces = [Weight(100, 3, lambda: b"abc"), Weight(0, 2, lambda: np.array([7, 8], np.uint8))]
    write(path, stand_in.spec(weights=[*pieces, Weight(50, 0, lambda: b"")]))
    with zipfile.ZipFile(path) as archive:
        assert archive.read("weights") == bytes([7, 8]) + bytes(98) + b"abc"


def test_weights_are_asked_for_one_at_a_time(path: Path) -> None:
    size = 8 << 20
    pieces = [Weight(i * size, size, lambda i=i: np.full(size, i, np.uint8)) for i in range(8)]
    write(path, stand_in.spec())
    tracemalloc.start()
    write(path, stand_in.spec(weights=pieces))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.5 * size


def test_no_weights_and_no_licence(path: Path) -> None:
    write(path, stand_in.spec(weights=(), license=None))
    with zipfile.ZipFile(path) as archive:
        assert not {"weights", "LICENSE"} & set(archive.namelist())
    load(path, check="all")


def test_dims_show_the_models_names(path: Path) -> None:
    function = FunctionInfo(
        "main",
        (TensorInfo("x", "f32", ("B", 4)), *stand_in.MAIN.inputs[1:]),
        (TensorInfo("sum", "f32", ("(2*B+Bx)", 4)), TensorInfo("row", "f32", (4,))),
        (SymbolInfo("batch_size", "B", 1, 7),),
    )
    write(path, stand_in.spec(functions=(function, stand_in.TURN)))
    with load(path) as bundle:
        assert bundle.inputs[0].dims == ("batch_size", 4)
        assert bundle.outputs[0].dims == ("(2*batch_size+Bx)", 4)


# ---- fixed bytes ----


def test_the_same_spec_gives_the_same_bytes(path: Path, tmp_path: Path) -> None:
    write(path, stand_in.spec())
    script = (
        "import sys; from tests.runtime import stand_in; from tfc.bundle import write\n"
        "write(sys.argv[1], stand_in.spec())"
    )
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(ROOT),
            "TFC_CACHE_DIR": str(folder / "cache"),
        }
        other = folder / "other.tfb"
        subprocess.run(
            [sys.executable, "-c", script, str(other)], check=True, env=environment, cwd=folder
        )
        assert other.read_bytes() == path.read_bytes()


def test_no_paths_of_the_build_machine(path: Path) -> None:
    write(path, stand_in.spec())
    data = path.read_bytes()
    for place in {str(ROOT), str(Path.home()), str(path.parent), sys.prefix}:
        assert place.encode() not in data or place == "/"


def test_the_order_of_targets_in_the_spec_does_not_matter(path: Path) -> None:
    code = stand_in.code()
    items = [("a", CodeSpec(code)), ("b", CodeSpec(code, ("x",))), ("c", CodeSpec(code, ("y",)))]
    write(path, stand_in.spec(code=dict(items)))
    first = path.read_bytes()
    write(path, stand_in.spec(code=dict(reversed(items))))
    assert path.read_bytes() == first
    assert [t.name for t in forge.read_index(first).targets] == ["b", "c", "a"]


# ---- large files ----


def test_zip64(tmp_path: Path) -> None:
    """A sparse file with a member of 5 GiB: Python's zipfile finds what lies behind it."""
    size, path = 5 << 30, tmp_path / "large.zip"
    large = container.local_header(len(container.PREFIX), "weights", size, 0)
    first = container.Member("weights", len(container.PREFIX) + len(large), size, 0)
    second_header = first.offset + size
    import zlib

    content = b"found"
    small = container.local_header(second_header, "small", len(content), zlib.crc32(content))
    second = container.Member(
        "small", second_header + len(small), len(content), zlib.crc32(content)
    )
    end = container.directory([first, second], [len(container.PREFIX), second_header], b"end")
    with path.open("wb") as file:
        file.write(container.PREFIX + large)
        file.seek(second_header)
        file.write(small + content + end)
    with zipfile.ZipFile(path) as archive:
        assert archive.getinfo("weights").file_size == size
        assert archive.read("small") == content
    assert first.offset % 4096 == second.offset % 4096 == 0


@pytest.mark.slow
def test_a_bundle_over_4_gib(path: Path) -> None:
    size = (4 << 30) + 4096
    zeros = np.zeros(size, np.uint8)
    pieces = [Weight(0, 16, lambda: stand_in.BIAS), Weight(4096, size, lambda: zeros)]
    write(path, stand_in.spec(weights=pieces))
    with load(path, check="all") as bundle:
        values = stand_in.inputs()
        np.testing.assert_array_equal(bundle.run(values)["sum"], stand_in.expected_sum(values))


# ---- mistakes ----


def renamed(name: str) -> FunctionInfo:
    x, y, pick = stand_in.MAIN.inputs
    return FunctionInfo("main", (TensorInfo(name, "f32", x.dims), y, pick), stand_in.MAIN.outputs)


def test_names_that_a_bundle_cannot_hold(path: Path) -> None:
    for name, message in (("y", "occurs twice"), ("a\0b", "cannot hold"), ("x" * 5000, "cannot")):
        with pytest.raises(TfcError, match=message):
            write(path, stand_in.spec(functions=(renamed(name), stand_in.TURN)))
    assert not path.exists()


def test_types_that_a_bundle_cannot_hold(path: Path) -> None:
    odd = FunctionInfo("main", (TensorInfo("x", "i4", ()),), ())
    with pytest.raises(TfcError, match="has type i4"):
        write(path, stand_in.spec(functions=(odd,)))


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(TfcError, match="is a directory"):
        write(tmp_path / "folder", stand_in.spec())
    with pytest.raises(TfcError, match="No such file or directory"):
        write(tmp_path / "none" / "model.tfb", stand_in.spec())
    (tmp_path / "file").write_text("")
    with pytest.raises(TfcError, match="Not a directory"):
        write(tmp_path / "file" / "model.tfb", stand_in.spec())


# ---- whole or not at all ----


class Stopped(Exception):
    pass


def stop() -> bytes:
    raise Stopped


BREAKS = Weight(8192, 16, stop)


@pytest.fixture(params=["unnamed", "named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With and without O_TMPFILE."""
    if request.param == "named":
        monkeypatch.setattr(bundle_files.os, "O_TMPFILE", 0o100000000, raising=True)
        real = os.open

        def refuse(path: object, flags: int, *rest: object, **options: object) -> int:
            if flags & 0o100000000:
                raise OSError(95, "Operation not supported")
            return real(path, flags, *rest, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(bundle_files.os, "open", refuse)
    return request.param


@pytest.mark.usefixtures("way")
def test_a_failed_build_leaves_the_old_file_or_none(path: Path) -> None:
    with pytest.raises(Stopped):
        write(path, stand_in.spec(weights=(BREAKS,)))
    assert list(path.parent.iterdir()) == []
    path.write_bytes(b"old")
    with pytest.raises(Stopped):
        write(path, stand_in.spec(weights=(BREAKS,)))
    assert list(path.parent.iterdir()) == [path] and path.read_bytes() == b"old"
    write(path, stand_in.spec())
    assert list(path.parent.iterdir()) == [path]
    load(path, check="all")


KILLED = """
import os, sys, time
from tests.runtime import stand_in
from tfc import bundle_files
from tfc.bundle import Weight, write
if sys.argv[2] == "named":
    bundle_files._new_file = lambda temporary: temporary.open("xb+")
def wait():
    print("writing", flush=True)
    time.sleep(60)
write(sys.argv[1], stand_in.spec(weights=(Weight(0, 16, wait),)))
"""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        *(("unnamed", n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL)),
        *(("named", n) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_a_killed_build_leaves_the_old_file(path: Path, name: str, number: int) -> None:
    path.write_bytes(b"old")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None and process.stdout.readline() == b"writing\n"
    process.send_signal(number)
    process.wait(timeout=20)
    assert list(path.parent.iterdir()) == [path] and path.read_bytes() == b"old"


def test_a_reader_of_the_old_file_keeps_it(path: Path) -> None:
    write(path, stand_in.spec())
    with load(path) as bundle:
        write(path, stand_in.spec(weights=(Weight(0, 16, lambda: stand_in.BIAS * 2),)))
        values = stand_in.inputs()
        np.testing.assert_array_equal(bundle.run(values)["sum"], stand_in.expected_sum(values))


def test_the_permissions_follow_the_umask(path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(path, stand_in.spec())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


def test_signal_handlers_are_as_before(path: Path) -> None:
    def own(*_: object) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        write(path, stand_in.spec())
        assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


# ---- the header ----


def test_the_header_stands_alone() -> None:
    text = header_text()
    assert re.findall(r'^#include "(.*)"', text, re.MULTILINE) == []
    assert text.count("typedef struct tfc_call") == 1


def test_writing_is_quick(path: Path) -> None:
    spec = stand_in.spec()
    write(path, spec)
    start = time.process_time()
    write(path, spec)
    assert time.process_time() - start < 0.5
