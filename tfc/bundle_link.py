"""Compiles the C part of a bundle's code and links it with generated objects, by the zig wheel.

The result depends on the inputs alone: no paths, times or build numbers get in. It imports libc
functions of a fixed list only, so a call that LLVM makes to a maths library shows when linking.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tfc.bundle_elf import problems
from tfc.ir.errors import TfcError

SUPPORT_SOURCES = ("pool.c", "support.c")
RUNTIME = Path(__file__).parent / "runtime"
EXPORT = "tfc_bundle_query"

# Each has one meaning in every version of glibc and in musl (see pool.c).
LIBC_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """memchr memcmp memcpy memmove memset strchr strlen
    clock_gettime close getpid madvise mmap munmap open read sigfillset syscall
    pthread_attr_destroy pthread_attr_init pthread_attr_setstacksize pthread_create pthread_join
    pthread_sigmask""",
    )
)

_COMPILE_FLAGS = (
    *("-c", "-O2", "-std=gnu11", "-fPIC", "-fvisibility=hidden", "-ffunction-sections"),
    *("-g0", "-fno-ident", "-fno-stack-protector", "-fomit-frame-pointer", "-ffp-contract=off"),
    *("-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
    *("-Wall", "-Wextra", "-Werror"),
)
_LINK_FLAGS = (
    *("-shared", "--gc-sections", "--strip-all", "--build-id=none", "--hash-style=gnu"),
    *("-z", "now", "-z", "relro", "-z", "noexecstack", "-z", "text", "--threads=1"),
)


class LinkError(TfcError):
    """The C compiler or the linker failed, or what it made is unfit for a bundle."""


def cache_directory(kind: str) -> Path:
    """A directory of the user's cache, made if missing: $TFC_CACHE_DIR, else XDG's, then `kind`."""
    chosen = os.environ.get("TFC_CACHE_DIR")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfc"
    directory = Path(chosen or base) / kind
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TfcError(
            f"cannot make the cache directory {directory}: {error.strerror}",
            hint="set TFC_CACHE_DIR to a directory that can be written",
        ) from error
    return directory


def compile_support(target_triple: str, out_dir: Path | None = None) -> list[Path]:
    """The objects of the pool and of the support functions for a triple like `x86_64-linux-gnu`.

    They come from the cache where they were compiled before; `out_dir` overrides where they are
    kept.
    """
    directory = out_dir or cache_directory("support")
    directory.mkdir(parents=True, exist_ok=True)
    return [_compile(RUNTIME / name, target_triple, directory) for name in SUPPORT_SOURCES]


def link(objects: Sequence[bytes | Path], out: Path | None = None) -> bytes:
    """Links objects of one target (compile_support's among them) into a checked shared object.

    Returns its bytes, and writes them to `out` if given. The objects' order is kept.
    """
    with tempfile.TemporaryDirectory(prefix="tfc-link-") as folder:
        paths = [_as_file(item, Path(folder) / f"{i}.o") for i, item in enumerate(objects)]
        script = Path(folder) / "exports"
        script.write_text(f"{{ global: {EXPORT}; local: *; }};\n")
        result = Path(folder) / "code.so"
        _zig("ld.lld", *_LINK_FLAGS, f"--version-script={script}", "-o", str(result), *paths)
        data = result.read_bytes()
    found = problems(data, EXPORT, LIBC_FUNCTIONS)
    if found:
        raise LinkError("the linked code " + "; it ".join(found))
    if out is not None:
        out.write_bytes(data)
    return data


def _as_file(item: bytes | Path, path: Path) -> str:
    if isinstance(item, Path):
        return str(item)
    path.write_bytes(item)
    return str(path)


def _compile(source: Path, triple: str, directory: Path) -> Path:
    name = f"{source.stem}-{_key(source, triple)}.o"
    result = directory / name
    if result.exists():
        return result
    with tempfile.TemporaryDirectory(prefix=".tfc-", dir=directory) as folder:
        unfinished = Path(folder) / name
        flags = (*_COMPILE_FLAGS, "-target", triple, f"-ffile-prefix-map={source.parent}=.")
        _zig("cc", *flags, str(source), "-o", str(unfinished))
        os.replace(unfinished, result)
    return result


def _key(source: Path, triple: str) -> str:
    """Of everything that an object depends on: sources, flags, target, compiler."""
    digest = hashlib.sha256()
    for part in (source.read_bytes(), (RUNTIME / "tfc_abi.h").read_bytes()):
        digest.update(len(part).to_bytes(8, "little") + part)
    digest.update(" ".join((*_COMPILE_FLAGS, triple, compiler_version())).encode())
    return digest.hexdigest()[:32]


@cache
def compiler_version() -> str:
    """The version of the zig wheel, for keys and manifests."""
    from importlib.metadata import version  # 10 ms that most commands need not pay

    return f"ziglang-{version('ziglang')}"


@cache
def zig_binary() -> str:
    import ziglang  # only needed for building bundles  # pyright: ignore[reportMissingImports]

    return str(Path(str(ziglang.__file__)).parent / "zig")


def _zig(*arguments: str) -> None:
    caches = str(cache_directory("zig"))
    environment = {**os.environ, "ZIG_LOCAL_CACHE_DIR": caches, "ZIG_GLOBAL_CACHE_DIR": caches}
    environment.pop("SOURCE_DATE_EPOCH", None)
    command = [zig_binary(), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        message = done.stderr.strip() or f"exit status {done.returncode}"
        raise LinkError(f"zig {arguments[0]} failed: {message}")
