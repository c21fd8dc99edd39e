"""Opens a bundle and checks it: `load`, and the Bundle that it returns.

The file is taken as hostile: index, manifest and code are copied, bounded and hashed before
anything in them is used, and the copies are what is used. Weights stay in the file, mapped
read-only.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import math
import mmap
import os
import stat
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal

import numpy as np

from . import abi, container
from . import state as states
from .container import Extent, Member
from .errors import BundleError
from .function import Function, Memory
from .host import ResourceInfo, declare_resources
from .host_calls import read_records, read_resources
from .index import Index, MemberInfo, SymbolInfo, TargetInfo, TensorInfo, decode
from .native import Native, executor
from .processor import choose_target
from .state import State
from .tensors import Array, aligned_bytes, output_dtype, storage_dtype

Source = str | os.PathLike[str] | bytes | bytearray | memoryview
Check = Literal["code", "all"]

MAXIMUM_MANIFEST = 64 << 20
MAXIMUM_DEPTH = 64
_CHUNK = 16 << 20


def load(
    source: Source,
    *,
    threads: int | None = None,
    check: Check = "code",
    sha256: str | None = None,
    target: str | None = None,
    container: str | State | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Bundle:
    """Opens a bundle from its path or its bytes.

    threads: how many work at once; None takes what affinity and control group allow.
    check: "code" hashes manifest, index and code; "all" every byte of the file, weights too.
    sha256: the manifest's hash (hexadecimal), which pins all that the bundle holds.
    target: the code to use, by name; None takes the best that this processor runs.
    container: the name of the state that the bundle shares with all others opened on it in this
    process, until `reset`, or such a state; None gives it a state of its own.
    folder: where readers and checkpoints of a state of its own have their files.
    Raises BundleError where the file is damaged or does not fit, OSError where it cannot be read.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    if check not in ("code", "all"):
        raise ValueError(f'check must be "code" or "all", not {check!r}')
    archive = _Archive(_bytes_of(source))
    archive.check_structure()
    if check == "all":
        archive.check_members()
    if sha256 is not None:
        _check_pin(archive, sha256)
    state = states.container(container) if isinstance(container, str) else container
    state = State(folder) if state is None else state
    return Bundle(archive, choose_target(archive.index.targets, target), threads or 0, state)


class Bundle:
    """An open bundle. Its functions may be called from several threads at once.

    Called with arrays by position it runs the main function and returns a tuple (see Function).
    """

    def __init__(
        self, archive: _Archive, target: TargetInfo, threads: int, state: State | None = None
    ) -> None:
        self.state = State() if state is None else state
        image = archive.read(archive.index.members[target.member])
        native = Native(image)
        index = archive.index
        _check_table(native, index)
        records = [
            read_records(archive.manifest(), f) if f.host_ops else [] for f in index.functions
        ]
        resources = read_resources(archive.manifest()) if any(records) else []
        _declare(self.state, index, resources)
        memory = Memory(
            native, archive.weights(), executor(native, threads), self.state, index.variables
        )
        self._archive: _Archive | None = archive
        self._memory = memory
        self.target = target.name
        self.sha256 = archive.manifest_extent.sha256.hex()
        self.functions: Mapping[str, Function] = {
            info.name: Function(info, memory, i, records[i])
            for i, info in enumerate(index.functions)
        }
        memory.functions = self.functions
        self._main = self.functions.get("main") or next(iter(self.functions.values()))

    @property
    def main(self) -> Function:
        """The function named main, else the first."""
        return self._main

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs of the main function."""
        return self._main.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """The outputs of the main function."""
        return self._main.outputs

    @property
    def symbols(self) -> tuple[SymbolInfo, ...]:
        """The sizes that the main function learns from its inputs."""
        return self._main.symbols

    @property
    def variables(self) -> tuple[TensorInfo, ...]:
        """The variables of the functions; `state` holds their values."""
        return self._memory.variables

    @property
    def targets(self) -> tuple[TargetInfo, ...]:
        """Every target that the bundle holds code for, the best first."""
        return self._open_archive().index.targets

    @property
    def members(self) -> tuple[MemberInfo, ...]:
        """The files in the bundle."""
        return self._open_archive().index.members

    @property
    def manifest(self) -> dict[str, Any]:
        """manifest.json, parsed when first asked for."""
        return self._open_archive().manifest()

    def run(
        self, inputs: Mapping[str, object], out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Runs the main function (see Function.run)."""
        return self._main.run(inputs, out)

    def __call__(self, *inputs: object, out: tuple[Array, ...] | None = None) -> tuple[Array, ...]:
        return self._main(*inputs, out=out)

    def close(self) -> None:
        """Refuses further calls and lets go of code and weights as soon as no call uses them.

        Calls that wait in the loader end with a CancelledError. The state stays as it is.
        """
        self._memory.close()
        self._archive = None

    def __enter__(self) -> Bundle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = ", ".join(self.functions)
        return f"<tfc bundle: {names}; {self.target}>"

    def _open_archive(self) -> _Archive:
        if self._archive is None:
            raise BundleError("the bundle is closed")
        return self._archive


class _Archive:
    """The bytes of a bundle and the index that describes them."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        index, manifest = self._trailer()
        self.manifest_extent = manifest
        self._index_bytes = self._checked(index, "index.bin")
        self._manifest_bytes = self._checked(manifest, "manifest.json")
        self._index_extent = index
        try:
            self.index = decode(self._index_bytes)
        except (ValueError, UnicodeDecodeError) as error:
            raise BundleError(f"the bundle's index.bin is damaged: {error}") from error
        _check_index(self.index, len(data))
        self._manifest: dict[str, Any] | None = None

    def _trailer(self) -> tuple[Extent, Extent]:
        tail = bytes(self._data[-container.TRAILER_SIZE :])
        if not tail.startswith(container.TRAILER_START):
            raise BundleError(
                "this is no tfc bundle, or its end is missing: the trailer was not found"
            )
        try:
            return container.parse_trailer(tail)
        except (ValueError, IndexError) as error:
            raise BundleError("the bundle's trailer is damaged") from error

    def _checked(self, extent: Extent, name: str) -> bytes:
        """A copy of index or manifest, whose hash is right."""
        if extent.size > MAXIMUM_MANIFEST or extent.offset + extent.size > len(self._data):
            raise BundleError(f"the bundle's trailer is damaged: {name} would lie outside the file")
        copy = bytes(self._data[extent.offset : extent.offset + extent.size])
        if hashlib.sha256(copy).digest() != extent.sha256:
            raise BundleError(
                f"the bundle's {name} is damaged: its SHA-256 differs from the trailer's"
            )
        return copy

    def check_structure(self) -> None:
        """Compares headers, padding and directory with what they must be."""
        members = [Member(m.name, m.offset, m.size, m.crc) for m in self.index.members]
        for name, extent, copy in (
            (container.INDEX_NAME, self._index_extent, self._index_bytes),
            (container.MANIFEST_NAME, self.manifest_extent, self._manifest_bytes),
        ):
            members.append(Member(name, extent.offset, extent.size, binascii.crc32(copy)))
        self._expect(0, container.PREFIX, "first line")
        position, headers = len(container.PREFIX), list[int]()
        for member in members:
            header = container.local_header(position, member.name, member.size, member.crc)
            headers.append(position)
            position += len(header)
            if member.offset != position:
                raise BundleError(f"the bundle is damaged: {member.name} is not where it must be")
            self._expect(headers[-1], header, f"zip header of {member.name}")
            position += member.size
        trailer = container.trailer(self._index_extent, self.manifest_extent)
        end = container.directory(members, headers, trailer)
        self._expect(position, end, "zip directory")
        if position + len(end) != len(self._data):
            raise BundleError("the bundle is damaged: bytes were added to it")

    def _expect(self, position: int, expected: bytes, what: str) -> None:
        if bytes(self._data[position : position + len(expected)]) != expected:
            raise BundleError(f"the bundle is damaged: its {what} is not what it must be")

    def check_members(self) -> None:
        """Hashes every member, and compares the manifest with the index."""
        for member in self.index.members:
            digest = hashlib.sha256()
            for start in range(0, member.size, _CHUNK):
                stop = min(start + _CHUNK, member.size)
                digest.update(self._data[member.offset + start : member.offset + stop])
            self._require_hash(member, digest.digest())
        described = self.manifest().get("members")
        held = {m.name: {"size": m.size, "sha256": m.sha256.hex()} for m in self.index.members}
        held[container.INDEX_NAME] = {
            "size": self._index_extent.size,
            "sha256": self._index_extent.sha256.hex(),
        }
        if described != held:
            raise BundleError("the bundle's manifest.json does not describe its members")

    def index_hash(self) -> str:
        return self._index_extent.sha256.hex()

    def read(self, member: MemberInfo) -> bytes:
        """A copy of a member whose hash is right."""
        copy = bytes(self._data[member.offset : member.offset + member.size])
        self._require_hash(member, hashlib.sha256(copy).digest())
        return copy

    def _require_hash(self, member: MemberInfo, digest: bytes) -> None:
        if digest != member.sha256:
            raise BundleError(
                f"the bundle's {member.name} is damaged: its SHA-256 differs from the index's"
            )

    def weights(self) -> Array:
        """The weights in place, or a copy where the bundle's bytes are not aligned in memory."""
        for member in self.index.members:
            if member.name == "weights":
                held = self._data[member.offset : member.offset + member.size]
                mapped = np.frombuffer(held, np.uint8)
                return mapped if mapped.ctypes.data % 64 == 0 else _aligned_copy(mapped)
        return _aligned_copy(np.empty(0, np.uint8))

    def manifest(self) -> dict[str, Any]:
        if self._manifest is None:
            self._manifest = _parse_manifest(self._manifest_bytes)
        return self._manifest


def _aligned_copy(values: Array) -> Array:
    copy = aligned_bytes(values.size)
    copy[:] = values
    return copy


def _bytes_of(source: Source) -> memoryview:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(source).toreadonly().cast("B")
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BundleError(f"{os.fspath(source)} is not a file")
        if status.st_size == 0:
            raise BundleError(f"{os.fspath(source)} is empty")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)


def _check_index(index: Index, file_size: int) -> None:
    """What `decode` cannot know: extents inside the file, names that occur once."""
    if index.abi != abi.ABI:
        raise BundleError(f"the bundle is for ABI {index.abi}; this loader knows ABI {abi.ABI}")
    if not index.functions:
        raise BundleError("the bundle's index.bin is damaged: it has no function")
    for member in index.members:
        if member.offset + member.size > file_size:
            raise BundleError(f"the bundle is damaged: {member.name} would lie outside the file")
    groups = [index.members, index.functions, index.targets, index.variables]
    groups += [part for f in index.functions for part in (f.inputs, f.outputs)]
    for group in groups:
        names = [item.name for item in group]
        if len(set(names)) != len(names):
            raise BundleError("the bundle's index.bin is damaged: a name occurs twice")


def _check_table(native: Native, index: Index) -> None:
    """The code's table of functions has to be what the index says."""
    held = [
        (
            *(f.name, f.input_count, f.output_count, f.symbol_count),
            *(f.input_dim_count, f.output_dim_count, f.host_count, f.stateful),
        )
        for f in native.functions
    ]
    expected = [
        (
            *(f.name.encode(), len(f.inputs), len(f.outputs), len(f.symbols)),
            *(sum(len(t.dims) for t in tensors) for tensors in (f.inputs, f.outputs)),
            *(f.host_ops, int(f.stateful)),
        )
        for f in index.functions
    ]
    sizes = [(v.name.encode(), _variable_bytes(v)) for v in index.variables]
    if held != expected or sizes != native.variables:
        raise BundleError("the bundle's code and index.bin describe different functions")


def _static_shape(variable: TensorInfo) -> tuple[int, ...]:
    """A variable's sizes, which `decode` found to be numbers."""
    return tuple(d for d in variable.dims if isinstance(d, int))


def _variable_bytes(variable: TensorInfo) -> int:
    return math.prod(_static_shape(variable)) * storage_dtype(variable.dtype).itemsize


def _declare(state: State, index: Index, resources: Sequence[ResourceInfo]) -> None:
    """Makes room for variables and resources in a state, which may know them already."""
    for variable in index.variables:
        state.declare(variable.name, output_dtype(variable.dtype), _static_shape(variable))
    declare_resources(state, resources)


def _check_pin(archive: _Archive, sha256: str) -> None:
    held = archive.manifest_extent.sha256.hex()
    if held != sha256.lower():
        raise BundleError(f"the bundle's manifest has SHA-256 {held}, not the {sha256} asked for")
    described = archive.manifest().get("members")
    entry = described.get(container.INDEX_NAME) if isinstance(described, dict) else None
    if not isinstance(entry, dict) or entry.get("sha256") != archive.index_hash():
        raise BundleError("the bundle's index.bin is not the one that its manifest describes")


def _parse_manifest(text: bytes) -> dict[str, Any]:
    """JSON of a depth that the parser's recursion cannot trip over."""
    depth, deepest = 0, 0
    for byte in text.translate(None, _NOT_BRACKETS):
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
    if deepest > MAXIMUM_DEPTH:
        raise BundleError("the bundle's manifest.json is nested too deeply")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"the bundle's manifest.json is damaged: {error}") from error
    if not isinstance(manifest, dict):
        raise BundleError("the bundle's manifest.json is damaged: it is not an object")
    return manifest


_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
