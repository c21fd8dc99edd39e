"""tfc.h: the loader for C, driven through ctypes, and the example built by every compiler there is.

The header is compiled with the zig wheel and linked as a shared object, so that these tests need no
compiler on the machine; those that build programs are skipped without one.
"""

from __future__ import annotations

import ctypes
import random
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime import forge, stand_in
from tests.runtime.test_damage import DATA, edited, flipped, regions
from tfc.bundle import CodeSpec, header_text
from tfc.bundle_link import RUNTIME, zig_binary
from tfc.runtime import load
from tfc.runtime.container import TRAILER_SIZE
from tfc.runtime.index import Index

DAMAGED, TARGET, ARGUMENT, PIN, SYSTEM = 65, 66, 67, 68, 64
COMPILERS = [c for c in ("gcc", "clang", "g++", "clang++", "cc") if shutil.which(c)]


class Status(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int32), ("message", ctypes.c_char * 508)]


class Options(ctypes.Structure):
    _fields_ = [
        ("threads", ctypes.c_int32),
        ("check_all", ctypes.c_int32),
        ("target", ctypes.c_char_p),
        ("sha256", ctypes.c_char_p),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("dim_names", ctypes.POINTER(ctypes.c_char_p)),
    ]


class Signature(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("input_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
        ("symbol_count", ctypes.c_int32),
        ("kernel_count", ctypes.c_int32),
        ("input_dim_count", ctypes.c_int32),
        ("output_dim_count", ctypes.c_int32),
        ("inputs", ctypes.POINTER(Tensor)),
        ("outputs", ctypes.POINTER(Tensor)),
        ("symbols", ctypes.c_void_p),
        ("bundle", ctypes.c_void_p),
        ("function", ctypes.c_void_p),
    ]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ctypes.CDLL]:
    folder = tmp_path_factory.mktemp("capi")
    source = folder / "capi.c"
    source.write_text('#define TFC_IMPLEMENTATION\n#include "tfc.h"\n')
    (folder / "tfc.h").write_text(header_text())
    flags = ["-c", "-O1", "-fPIC", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    target = ["-target", f"{stand_in.MACHINE}-linux-gnu"]
    subprocess.run(
        [zig_binary(), "cc", *flags, *target, str(source), "-o", str(folder / "capi.o")], check=True
    )
    shared = str(folder / "capi.so")
    subprocess.run(
        [zig_binary(), "ld.lld", "-shared", str(folder / "capi.o"), "-o", shared], check=True
    )
    loaded = ctypes.CDLL(shared)
    loaded.tfc_find_function.restype = ctypes.POINTER(Signature)
    loaded.tfc_function_at.restype = ctypes.POINTER(Signature)
    loaded.tfc_target.restype = ctypes.c_char_p
    yield loaded


class CBundle:
    """A bundle opened from memory by the C loader."""

    def __init__(self, library: ctypes.CDLL, data: bytes, **options: Any) -> None:
        self._library, self._data = library, data
        self._handle, status = ctypes.c_void_p(), Status()
        choice = Options(options.get("threads", 2), options.get("check_all", 0))
        choice.target, choice.sha256 = options.get("target"), options.get("sha256")
        pointer = ctypes.c_char_p(data)
        self.code = library.tfc_open_memory(
            pointer,
            ctypes.c_size_t(len(data)),
            ctypes.byref(choice),
            ctypes.byref(self._handle),
            ctypes.byref(status),
        )
        self.message = status.message.decode()
        assert self.code == status.code
        assert (self.code == 0) == bool(self._handle)

    def close(self) -> None:
        self._library.tfc_close(self._handle)

    def function(self, name: str) -> Signature:
        return self._library.tfc_find_function(self._handle, name.encode()).contents

    def target(self) -> str:
        return self._library.tfc_target(self._handle).decode()

    def run(self, name: str, arrays: list[np.ndarray], executor: Any = None) -> list[np.ndarray]:
        """The outputs; raises RuntimeError with the message on any error."""
        library, function, status = self._library, self.function(name), Status()
        sizes = [size for array in arrays for size in array.shape]
        assert len(sizes) == function.input_dim_count
        dims = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        symbols = (ctypes.c_int64 * max(1, function.symbol_count))()
        output_dims = (ctypes.c_int64 * max(1, function.output_dim_count))()
        scratch_bytes, at, by = ctypes.c_int64(), ctypes.byref(function), ctypes.byref(status)
        if library.tfc_bind(at, dims, symbols, by):
            raise RuntimeError(status.message.decode())
        if library.tfc_prepare(at, symbols, output_dims, ctypes.byref(scratch_bytes), by):
            raise RuntimeError(status.message.decode())
        outputs = self._outputs(function, list(output_dims))
        scratch = np.zeros(scratch_bytes.value + 64, np.uint8)
        start = scratch.ctypes.data + -scratch.ctypes.data % 64
        code = library.tfc_run(
            *(at, symbols, addresses(arrays), addresses(outputs)),
            *(ctypes.c_void_p(start), executor, by),
        )
        if code:
            raise RuntimeError(status.message.decode())
        return outputs

    def _outputs(self, function: Signature, dims: list[int]) -> list[np.ndarray]:
        outputs: list[np.ndarray] = []
        for i in range(function.output_count):
            tensor = function.outputs[i]
            shape, dims = dims[: tensor.rank], dims[tensor.rank :]
            outputs.append(np.zeros(shape, np.float32 if tensor.dtype == 1 else np.uint16))
        return outputs


def addresses(arrays: list[np.ndarray]) -> Any:
    return (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))


def main_inputs(rows: int = 3, pick: int = 1) -> list[np.ndarray]:
    return [np.asarray(value) for value in stand_in.inputs(rows, pick).values()]


@pytest.fixture
def bundle(library: ctypes.CDLL) -> Iterator[CBundle]:
    bundle = CBundle(library, DATA)
    assert bundle.code == 0, bundle.message
    yield bundle
    bundle.close()


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_it_computes_what_the_python_loader_does(bundle: CBundle, rows: int) -> None:
    outputs = bundle.run("main", main_inputs(rows, rows - 1))
    values = stand_in.inputs(rows)
    np.testing.assert_array_equal(outputs[0], stand_in.expected_sum(values))
    np.testing.assert_array_equal(outputs[1], outputs[0][-1])
    (turned,) = bundle.run("turn", [np.arange(5, dtype=np.uint16)])
    np.testing.assert_array_equal(turned, [4, 3, 2, 1, 0])


def test_the_signature(bundle: CBundle) -> None:
    main = bundle.function("main")
    x = main.inputs[0]
    assert (x.name, x.dtype, x.rank, x.dims[0], x.dims[1]) == (b"x", 1, 2, -1, 4)
    assert (x.dim_names[0], x.dim_names[1]) == (b"batch_size", b"")
    assert (main.input_dim_count, main.output_dim_count, main.kernel_count) == (4, 3, 2)
    assert main.inputs[2].name == b"pick" and main.outputs[1].name == b"row"
    assert bundle.target() == "baseline"


def test_errors_name_the_input_or_the_node(bundle: CBundle) -> None:
    x, y, pick = main_inputs()
    for arrays, message in (
        ([x, y[:2].copy(), pick], 'input "y": dimension 0 (batch_size) is 2, expected 3'),
        ([x[:, :3].copy(), y, pick], 'input "x": dimension 1 () is 3, expected 4'),
        ([x[:0], y[:0], pick], "is 0, expected at least 1"),
        (
            [x, y, np.asarray(9)],
            "model.onnx:/gather: index 9 along axis 0 is out of range; it must lie in 0..2",
        ),
    ):
        with pytest.raises(RuntimeError) as caught:
            bundle.run("main", arrays)
        assert message in str(caught.value)


EXECUTE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, EXECUTE, ctypes.c_void_p)


class Executor(ctypes.Structure):
    _fields_ = [
        ("self", ctypes.c_void_p),
        ("threads", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("parallel_for", PARALLEL_FOR),
        ("begin", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
    ]


def test_a_callers_executor_may_run_indices_backwards(bundle: CBundle) -> None:
    seen: list[int] = []

    def backwards(_: Any, n: int, fn: Any, argument: Any) -> None:
        for index in reversed(range(n)):
            seen.append(index)
            fn(argument, index)

    executor = Executor(None, 1, 0, PARALLEL_FOR(backwards), None, None)
    outputs = bundle.run("main", main_inputs(), ctypes.byref(executor))
    np.testing.assert_array_equal(outputs[0], stand_in.expected_sum(stand_in.inputs()))
    assert seen == [2, 1, 0]


def test_several_bundles_close_in_any_order(library: ctypes.CDLL) -> None:
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        bundles = [CBundle(library, DATA) for _ in range(3)]
        for number in order:
            bundles[number].run("main", main_inputs(200))
            bundles[number].close()
    assert "tfc-code" not in Path("/proc/self/maps").read_text() or load_is_open()


def load_is_open() -> bool:
    """The Python loader keeps the first bundle's code: its threads may live in it."""
    from tfc.runtime import native

    return native._pool._owner is not None


# ---- damage ----


def opened(library: ctypes.CDLL, data: bytes, **options: Any) -> tuple[int, str]:
    bundle = CBundle(library, data, **options)
    bundle.close()
    return bundle.code, bundle.message


@pytest.mark.parametrize("cut", [1, TRAILER_SIZE, 5000, len(DATA) // 2, len(DATA) - 1])
def test_cut_at_the_end(library: ctypes.CDLL, cut: int) -> None:
    code, message = opened(library, DATA[: len(DATA) - cut])
    assert code == DAMAGED and "end is missing" in message


def test_flips_in_members_are_found(library: ctypes.CDLL) -> None:
    for name, position in regions():
        if not name.startswith("header of "):
            code, message = opened(library, flipped(DATA, position), check_all=1)
            assert code == DAMAGED and name in message
    code, message = opened(library, flipped(DATA, code_offset()))
    assert code == DAMAGED and "code/baseline.so is damaged" in message


def code_offset() -> int:
    return next(m.offset for m in forge.read_index(DATA).members if m.name.startswith("code/"))


def test_flips_in_index_manifest_and_trailer_are_found(library: ctypes.CDLL) -> None:
    index, manifest = forge.extents(DATA)
    for extent in (index, manifest):
        for position in range(extent.offset, extent.offset + extent.size, 97):
            assert opened(library, flipped(DATA, position))[0] == DAMAGED
    for position in range(len(DATA) - TRAILER_SIZE, len(DATA)):
        for bit in range(8):
            assert opened(library, flipped(DATA, position, bit))[0] == DAMAGED


def test_forged_trailers(library: ctypes.CDLL) -> None:
    index, manifest = forge.extents(DATA)
    for changes in ({"offset": 2**64 - 1}, {"size": 2**64 - 1}, {"offset": len(DATA)}, {"size": 0}):
        wrong = forge.moved(index, **changes)
        assert opened(library, forge.with_trailer(DATA, wrong, manifest))[0] == DAMAGED
        assert opened(library, forge.with_trailer(DATA, index, wrong))[0] == DAMAGED


def test_random_index_bytes(library: ctypes.CDLL) -> None:
    """Hashes fit, so that the index is read: it is refused, or the signature stays readable."""
    chance, original = random.Random(5), forge.index_bytes(DATA)
    refusals = 0
    for _ in range(500):
        damaged = bytearray(original)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 127, 255))
        code, _ = opened(library, forge.with_index(DATA, bytes(damaged)))
        refusals += code != 0
    assert refusals > 100


def test_forged_indices_are_refused(library: ctypes.CDLL) -> None:
    def without_functions(index: Index) -> Index:
        return Index(index.abi, index.members, index.targets, ())

    def fewer(index: Index) -> Index:
        return Index(index.abi, index.members, index.targets, index.functions[:1])

    for change in (without_functions, fewer):
        assert opened(library, edited(change))[0] == DAMAGED


# ---- options ----


def test_targets(library: ctypes.CDLL) -> None:
    code = stand_in.code()
    data = stand_in.written(
        stand_in.spec(code={"plain": CodeSpec(code), "fancy": CodeSpec(code, ("nothing", "has"))})
    )
    bundle = CBundle(library, data)
    assert bundle.target() == "plain"
    bundle.close()
    status, message = opened(library, data, target=b"fancy")
    assert status == TARGET and "fancy needs nothing, has" in message
    status, message = opened(library, data, target=b"best")
    assert status == TARGET and "holds no code for best" in message
    feature = min(features())
    bundle = CBundle(
        library,
        stand_in.written(
            stand_in.spec(code={"a": CodeSpec(code), "b": CodeSpec(code, (feature,))})
        ),
    )
    assert bundle.target() == "b"
    bundle.close()


def features() -> frozenset[str]:
    from tfc.runtime.processor import processor_features

    return processor_features()


def test_the_pin(library: ctypes.CDLL) -> None:
    pin = load(DATA).sha256
    assert opened(library, DATA, sha256=pin.encode())[0] == 0
    assert opened(library, DATA, sha256=b"0" * 64)[0] == PIN
    assert opened(library, DATA, sha256=b"xyz")[0] == ARGUMENT

    def renamed(index: Index) -> Index:
        from dataclasses import replace

        main, turn = index.functions
        inputs = (replace(main.inputs[0], name="other"), *main.inputs[1:])
        return replace(index, functions=(replace(main, inputs=inputs), turn))

    forged = edited(renamed)
    assert opened(library, forged)[0] == 0
    assert opened(library, forged, sha256=pin.encode())[0] == PIN


def test_opening_files(library: ctypes.CDLL, tmp_path: Path) -> None:
    path, status, handle = tmp_path / "model.tfb", Status(), ctypes.c_void_p()
    path.write_bytes(DATA)
    at = (ctypes.byref(handle), ctypes.byref(status))
    assert library.tfc_open(str(path).encode(), None, *at) == 0
    library.tfc_close(handle)
    assert library.tfc_open(b"/no/such/file", None, *at) == SYSTEM
    assert b"cannot open /no/such/file: No such file" in status.message
    assert library.tfc_open(str(tmp_path).encode(), None, *at) == DAMAGED
    assert library.tfc_open(b"/dev/zero", None, *at) == DAMAGED
    assert library.tfc_open(b"/no/such/file", None, ctypes.byref(handle), None) == SYSTEM


# ---- programs ----


@cache
def example_folder(base: Path) -> Path:
    """What unzipping a bundle's include/ gives, and the bundle."""
    folder = base / "example"
    folder.mkdir()
    (folder / "tfc.h").write_text(header_text())
    shutil.copy(RUNTIME / "example.c", folder)
    shutil.copy(RUNTIME.parents[1] / "examples" / "c" / "own_memory.c", folder)
    (folder / "model.tfb").write_bytes(DATA)
    return folder


def build(folder: Path, compiler: str, source: str = "example.c") -> Path:
    program = folder / f"{source}-{compiler}"
    language = ["-x", "c++", "-std=c++11"] if compiler.endswith("++") else ["-std=c99"]
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    libraries = ["-ldl", "-lpthread"]
    command = [compiler, *language, *warnings, "-O2", source, "-o", str(program), *libraries]
    subprocess.run(command, check=True, cwd=folder)
    return program


@pytest.mark.skipif(not COMPILERS, reason="no C compiler on this machine")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_example_builds_and_runs(
    compiler: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = example_folder(tmp_path_factory.getbasetemp())
    program = build(folder, compiler)
    done = subprocess.run([program, "model.tfb", "3"], cwd=folder, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "sum: f32[3, 4] 0.5 -0.98 2.04 8.06 0.58 -0.9 2.12 8.14 ...",
        "row: f32[4] 0.5 -0.98 2.04 8.06",
    ]
    failed = subprocess.run([program, "example.c"], cwd=folder, capture_output=True, text=True)
    assert failed.returncode == 1 and "this is no tfc bundle" in failed.stderr


@pytest.mark.skipif(not COMPILERS, reason="no C compiler on this machine")
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_example_with_memory_of_its_own(
    compiler: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = example_folder(tmp_path_factory.getbasetemp())
    program = build(folder, compiler, "own_memory.c")
    done = subprocess.run([program, "model.tfb"], cwd=folder, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (
        "main ran in an arena of 576 bytes, with 1 loops\n",
        "",
    )


QEMU, SYSROOT = shutil.which("qemu-aarch64"), Path("/usr/aarch64-linux-gnu")


@pytest.mark.slow
@pytest.mark.skipif(not QEMU or not SYSROOT.exists(), reason="needs qemu-user, libc6-arm64-cross")
def test_the_example_on_aarch64(tmp_path: Path) -> None:
    """Linking a program with zig takes 12 s the first time."""
    assert QEMU is not None
    for source in ("example.c", "tfc.h", "tfc_abi.h"):
        shutil.copy(RUNTIME / source, tmp_path)
    program, path = tmp_path / "example", tmp_path / "model.tfb"
    command = [zig_binary(), "cc", "-target", "aarch64-linux-gnu.2.31", "-O1", "example.c"]
    subprocess.run([*command, "-o", str(program)], check=True, cwd=tmp_path)
    code = {m: CodeSpec(stand_in.code(m)) for m in ("aarch64", "x86_64")}
    path.write_bytes(stand_in.written(stand_in.spec(code=code)))
    run = [QEMU, "-L", str(SYSROOT), str(program), str(path), "900"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0].startswith("sum: f32[900, 4] 0.5 -0.98 2.04 8.06")


@pytest.mark.skipif(
    not COMPILERS or not shutil.which("valgrind"), reason="needs a C compiler and valgrind"
)
@pytest.mark.parametrize("source", ["example.c", "own_memory.c"])
def test_valgrind_finds_nothing(source: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = example_folder(tmp_path_factory.getbasetemp())
    program = build(folder, COMPILERS[0], source)
    check = ["valgrind", "-q", "--leak-check=full", "--show-leak-kinds=all", "--error-exitcode=9"]
    done = subprocess.run(
        [*check, program, "model.tfb"], cwd=folder, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
