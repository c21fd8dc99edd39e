"""Compiling in worker processes, and the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfc.backends.llvm.cache import Cache, key_of
from tfc.backends.llvm.pool import CompileError, CompilePool
from tfc.targets import resolve

V3 = resolve("x86-64-v3")


def function(name: str, body: str = "ret void") -> str:
    return f'target triple = "{V3.triple}"\ndefine void @{name}() {{\n  {body}\n}}\n'


def test_objects_come_in_order_and_the_same_each_time(tmp_path: Path) -> None:
    texts = [function(f"f{i % 3}") for i in range(5)]
    seen: list[tuple[int, int]] = []
    with CompilePool(2, Cache(tmp_path)) as pool:
        first = pool.compile(texts, V3, progress=lambda *at: seen.append(at))
        assert seen[0] == (0, 3) and seen[-1] == (3, 3)
        assert [f"f{i % 3}".encode() in code for i, code in enumerate(first)] == [True] * 5
        assert first[0] == first[3] and first[0] != first[1]
        assert pool.compile(texts, V3) == first
        assert pool.cache.hits == 3
    with CompilePool(1, Cache(None)) as pool:
        assert pool.compile(texts, V3) == first


def test_another_target_or_level_is_another_entry(tmp_path: Path) -> None:
    with CompilePool(1, Cache(tmp_path)) as pool:
        for target, level in ((V3, 3), (V3, 1), (resolve("x86-64-v2"), 3)):
            pool.compile([function("f")], target, opt_level=level)
        assert pool.cache.hits == 0


def test_a_text_that_llvm_refuses_is_an_error_and_the_pool_goes_on() -> None:
    with CompilePool(1, Cache(None)) as pool:
        with pytest.raises(CompileError, match="expected"):
            pool.compile(["nonsense"], V3)
        assert pool.compile([function("f")], V3)


def test_a_call_of_a_library_is_refused() -> None:
    text = """
declare double @llvm.sin.f64(double)
define double @f(double %x) {
  %y = call double @llvm.sin.f64(double %x)
  ret double %y
}
"""
    with CompilePool(1, Cache(None)) as pool, pytest.raises(CompileError, match="calls sin"):
        pool.compile([text], V3)


def test_a_damaged_entry_counts_as_absent(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    key = key_of("a")
    cache.put(key, b"content")
    assert cache.get(key) == b"content"
    (path,) = tmp_path.glob("??/*")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert cache.get(key) is None
    assert not path.exists()
    assert cache.get("0" * 64) is None


def test_the_cache_stays_below_its_limit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=10_000)
    for i in range(100):
        cache.put(key_of(str(i)), bytes(500))
    assert sum(p.stat().st_size for p in tmp_path.glob("??/*")) <= 11_000
    assert cache.get(key_of("99")) is not None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file" / "cache")
    cache.put(key_of("a"), b"content")
    assert cache.get(key_of("a")) is None


def test_keys_tell_parts_apart() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
