"""Linking a bundle's code: what it may import and export, the cache, the support functions."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import stand_in
from tfc import bundle_link
from tfc.bundle_elf import MACHINES, machine_of, read_shared_object
from tfc.bundle_link import LinkError, cache_directory, compile_support, link, zig_binary
from tfc.ir.errors import TfcError

TRIPLE = f"{stand_in.MACHINE}-linux-gnu"


def compiled(folder: Path, source: str, triple: str = TRIPLE) -> bytes:
    text, result = folder / "source.c", folder / "source.o"
    text.write_text('#include "tfc_abi.h"\n' + source)
    flags = ("-fno-builtin", "-Wno-everything")
    command = [zig_binary(), "cc", "-c", "-O1", "-fPIC", *flags, "-target", triple]
    subprocess.run([*command, f"-I{bundle_link.RUNTIME}", str(text), "-o", str(result)], check=True)
    return result.read_bytes()


STATELESS = (
    "const tfc_variable_info tfc_variables[] = {{0, 0}}; const int32_t tfc_variable_count = 0;\n"
)
EMPTY = (
    "const tfc_function tfc_functions[] = {{0}}; const int32_t tfc_function_count = 0;\n"
    + STATELESS
)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_one_export_and_libc_imports_alone(machine: str) -> None:
    shared = read_shared_object(stand_in.code(machine))
    assert MACHINES[shared.machine] == machine
    assert shared.exports == ("tfc_bundle_query",)
    assert set(shared.imports) <= bundle_link.LIBC_FUNCTIONS
    assert shared.needed == ()
    assert not shared.executable_stack and not shared.writable_code


def test_a_call_to_the_maths_library_is_refused(tmp_path: Path) -> None:
    code = with_use(tmp_path, "float expf(float);", "expf(1.0f)")
    with pytest.raises(LinkError, match="imports expf"):
        link([code, *compile_support(TRIPLE)])


def with_use(folder: Path, declaration: str, use: str) -> bytes:
    """Code whose only function uses something."""
    return compiled(
        folder,
        f"{declaration}\n"
        f"static int32_t run(const tfc_call *call, tfc_error *e) {{ return (int32_t)({use}); }}\n"
        'const tfc_function tfc_functions[] = {{"f", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, run}};\n'
        f"const int32_t tfc_function_count = 1;\n{STATELESS}",
    )


def test_what_is_missing_is_named() -> None:
    with pytest.raises(LinkError, match="'tfc_bundle_query' failed: symbol not defined"):
        link([stand_in_object("const int tfc_nothing = 1;")])
    with pytest.raises(LinkError, match=r"zig ld\.lld failed"):
        link([b"not an object"])


def stand_in_object(source: str) -> bytes:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        return compiled(Path(folder), source)


def test_objects_without_the_support_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="imports tfc_pool"):
        link([compiled(tmp_path, EMPTY), compile_support(TRIPLE)[1]])


def test_linking_gives_the_same_bytes(tmp_path: Path) -> None:
    objects = [compiled(tmp_path, EMPTY), *compile_support(TRIPLE)]
    moved = tmp_path / "elsewhere.o"
    moved.write_bytes(objects[0])  # type: ignore[arg-type]
    assert link(objects, tmp_path / "a.so") == link([moved, *objects[1:]])
    assert (tmp_path / "a.so").read_bytes() == link(objects)


def test_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFC_CACHE_DIR", str(tmp_path / "cache"))
    assert cache_directory("kernels") == tmp_path / "cache" / "kernels"
    first = compile_support(TRIPLE)
    times = [p.stat().st_mtime_ns for p in first]
    assert compile_support(TRIPLE) == first
    assert [p.stat().st_mtime_ns for p in first] == times
    assert all(p.parent == tmp_path / "cache" / "support" for p in first)
    monkeypatch.delenv("TFC_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory("kernels") == tmp_path / "xdg" / "tfc" / "kernels"


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TFC_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(TfcError, match="cannot make the cache directory") as caught:
        cache_directory("kernels")
    assert "TFC_CACHE_DIR" in caught.value.hint


def test_what_is_no_shared_object() -> None:
    for data in (b"", b"\x7fELF", bytes(100), stand_in.code()[:70]):
        with pytest.raises(ValueError):
            machine_of(data)


# ---- conversions of 16-bit floats ----


@pytest.fixture(scope="module")
def conversions(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """support.c's conversions under names that a test can call, with plain integers for halves."""
    folder = tmp_path_factory.mktemp("conversions")
    source = """
        typedef _Float16 half; typedef __bf16 brain;
        half __truncsfhf2(float); half __truncdfhf2(double); brain __truncsfbf2(float);
        float __extendhfsf2(half);
        typedef union { half h; brain b; uint16_t u; } bits;
        void to_half(const float *x, uint16_t *y, int64_t n) {
          for (int64_t i = 0; i < n; i++) y[i] = ((bits){.h = __truncsfhf2(x[i])}).u;
        }
        void double_to_half(const double *x, uint16_t *y, int64_t n) {
          for (int64_t i = 0; i < n; i++) y[i] = ((bits){.h = __truncdfhf2(x[i])}).u;
        }
        void to_brain(const float *x, uint16_t *y, int64_t n) {
          for (int64_t i = 0; i < n; i++) y[i] = ((bits){.b = __truncsfbf2(x[i])}).u;
        }
        void from_half(const uint16_t *x, float *y, int64_t n) {
          for (int64_t i = 0; i < n; i++) y[i] = __extendhfsf2(((bits){.u = x[i]}).h);
        }
    """
    paths = [folder / "conversions.o", *compile_support(TRIPLE)]
    paths[0].write_bytes(compiled(folder, EMPTY + source))
    shared = folder / "conversions.so"
    objects = [str(p) for p in paths]
    subprocess.run([zig_binary(), "ld.lld", "-shared", *objects, "-o", str(shared)], check=True)
    return ctypes.CDLL(str(shared))


def convert(function: object, x: np.ndarray, dtype: type) -> np.ndarray:
    y = np.zeros(x.shape, dtype)
    function(  # type: ignore[operator]
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(x.size)
    )
    return y


def interesting_floats() -> np.ndarray:
    random = np.random.default_rng(1).integers(0, 2**32, 200_000, np.uint32)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = halves[np.isfinite(halves)]
    steps = np.nextafter(finite, np.float32(np.inf))
    between = (np.sort(finite)[1:] + np.sort(finite)[:-1]) / 2
    return np.concatenate([random.view(np.float32), halves, steps, between, -between])


def test_every_half_becomes_its_float(conversions: ctypes.CDLL) -> None:
    halves = np.arange(65536, dtype=np.uint16)
    floats = convert(conversions.from_half, halves, np.float32)
    np.testing.assert_array_equal(floats, halves.view(np.float16).astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats_become_the_nearest_half(conversions: ctypes.CDLL) -> None:
    x = interesting_floats()
    halves = convert(conversions.to_half, x, np.uint16)
    expected = x.astype(np.float16)
    np.testing.assert_array_equal(halves.view(np.float16), expected)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(halves[number], expected.view(np.uint16)[number])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_doubles_become_the_nearest_half_in_one_step(conversions: ctypes.CDLL) -> None:
    x = interesting_floats().astype(np.float64)
    x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf), [5e-324, -5e-324]])
    halves = convert(conversions.double_to_half, x, np.uint16)
    np.testing.assert_array_equal(halves.view(np.float16), x.astype(np.float16))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_floats_become_the_nearest_bfloat16(conversions: ctypes.CDLL) -> None:
    import ml_dtypes

    random = np.random.default_rng(2).integers(0, 2**32, 300_000, np.uint32)
    edges = (np.arange(65536, dtype=np.uint32) << 16)[:, None] + [0, 0x7FFF, 0x8000, 0x8001]
    x = np.concatenate([random, edges.ravel().astype(np.uint32)]).view(np.float32)
    brains = convert(conversions.to_brain, x, np.uint16)
    expected = x.astype(ml_dtypes.bfloat16).view(np.uint16)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(brains[number], expected[number])
    assert np.isnan((brains[~number].astype(np.uint32) << 16).view(np.float32)).all()
