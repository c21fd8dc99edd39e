"""index.bin: all that a loader needs to know of a bundle, in a fixed binary form.

Little-endian: a header of counts, then one table after another without gaps (members, targets,
functions, tensors, symbols, dimensions, features), then the strings, each ended by a zero. A record
refers to a string by its offset there. The tensors of a function (inputs, then outputs) follow each
other in the order of the functions, and after all of those come the variables; symbols, dimensions
and features stand in the order of their owners.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = b"tfcI"
VERSION = 2
NO_MAXIMUM = 2**63 - 1
MAXIMUM_SIZE = 64 << 20
MAXIMUM_NAME = 4096
MAXIMUM_RANK = 32
MAXIMUM_HOST_OPS = 1 << 16
MAXIMUM_ELEMENTS = 1 << 40  # of a variable

DTYPES = ("f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool")

_HEADER = struct.Struct("<4s11I")  # the last number is that of the variables
_MEMBER = struct.Struct("<QQ32sII")
_TARGET = struct.Struct("<4I")
_FUNCTION = struct.Struct("<6I")
_TENSOR = struct.Struct("<4I")
_SYMBOL = struct.Struct("<IIqq")
_DIMENSION = struct.Struct("<qII")
_FEATURE = struct.Struct("<I")
_TABLES = (_MEMBER, _TARGET, _FUNCTION, _TENSOR, _SYMBOL, _DIMENSION, _FEATURE)
_LIMITS = (1024, 64, 4096, 1 << 16, 1 << 16, 1 << 20, 1 << 14)


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: `dims` holds sizes, and symbols or expressions as text."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.dims))}]"


@dataclass(frozen=True)
class SymbolInfo:
    """A size known at the call: its name in the model, its symbol in tfc's text, its range."""

    name: str
    symbol: str
    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True)
class FunctionInfo:
    """The signature of a function.

    `host_ops` is the number of ops in it that the loader runs; `stateful` says that it reads or
    writes variables.
    """

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    symbols: tuple[SymbolInfo, ...] = ()
    host_ops: int = 0
    stateful: bool = False


@dataclass(frozen=True)
class TargetInfo:
    """Code for one kind of processor: its member's number, ELF machine and needed features."""

    name: str
    member: int
    machine: int
    requires: tuple[str, ...]


@dataclass(frozen=True)
class MemberInfo:
    """A member of the archive, with the hash of its bytes."""

    name: str
    offset: int
    size: int
    crc: int
    sha256: bytes


@dataclass(frozen=True)
class Index:
    """What index.bin holds; members are in the order of the file."""

    abi: int
    members: tuple[MemberInfo, ...]
    targets: tuple[TargetInfo, ...]
    functions: tuple[FunctionInfo, ...]
    variables: tuple[TensorInfo, ...] = ()


class _Strings:
    """Collects strings, each once, and gives their offsets."""

    def __init__(self) -> None:
        self._offsets: dict[str, int] = {}
        self.data = bytearray()

    def add(self, text: str) -> int:
        if text not in self._offsets:
            self._offsets[text] = len(self.data)
            self.data += text.encode() + b"\0"
        return self._offsets[text]


def encode(index: Index) -> bytes:
    """The bytes of index.bin, which `decode` turns back into an equal index."""
    strings = _Strings()
    add = strings.add
    tensors = [t for f in index.functions for t in (*f.inputs, *f.outputs)]
    tensors += index.variables
    rows: list[list[tuple[object, ...]]] = [
        [(m.offset, m.size, m.sha256, m.crc, add(m.name)) for m in index.members],
        [(add(t.name), t.member, t.machine, len(t.requires)) for t in index.targets],
        [
            (
                *(add(f.name), len(f.inputs), len(f.outputs), len(f.symbols)),
                *(f.host_ops, int(f.stateful)),
            )
            for f in index.functions
        ],
        [(add(t.name), DTYPES.index(t.dtype), len(t.dims), 0) for t in tensors],
        [
            (add(s.name), add(s.symbol), s.minimum, NO_MAXIMUM if s.maximum is None else s.maximum)
            for f in index.functions
            for s in f.symbols
        ],
        [
            (-1, add(d), 0) if isinstance(d, str) else (d, add(""), 0)
            for t in tensors
            for d in t.dims
        ],
        [(add(feature),) for t in index.targets for feature in t.requires],
    ]
    counts = [len(table) for table in rows]
    header = _HEADER.pack(
        MAGIC, VERSION, index.abi, *counts, len(strings.data), len(index.variables)
    )
    tables = [
        record.pack(*row) for record, table in zip(_TABLES, rows, strict=True) for row in table
    ]
    return b"".join((header, *tables, strings.data))


def decode(data: bytes) -> Index:
    """Raises ValueError, saying what is wrong, on anything that `encode` would not make."""
    return _Decoder(data).index()


class _Decoder:
    """Reads the tables of an index whose every count and reference it checks first."""

    def __init__(self, data: bytes) -> None:
        if not _HEADER.size <= len(data) <= MAXIMUM_SIZE:
            raise ValueError(f"its size is {len(data)} bytes")
        magic, version, self.abi, *counts, string_bytes, variables = _HEADER.unpack_from(data)
        if magic != MAGIC or version != VERSION:
            raise ValueError(f"it does not start like an index of version {VERSION}")
        for count, limit in zip(counts, _LIMITS, strict=True):
            if count > limit:
                raise ValueError(f"a table of {count} records exceeds the limit of {limit}")
        if variables > counts[3]:
            raise ValueError(f"it has fewer tensors than variables ({variables})")
        self._variable_count = variables
        sizes = [count * record.size for count, record in zip(counts, _TABLES, strict=True)]
        if _HEADER.size + sum(sizes) + string_bytes != len(data):
            raise ValueError("its counts do not add up to its size")
        self._strings = data[len(data) - string_bytes :]
        if self._strings[-1:] not in (b"", b"\0"):
            raise ValueError("its last string has no end")
        self._tables: list[Iterator[tuple[int, ...]]] = []
        start = _HEADER.size
        for record, size in zip(_TABLES, sizes, strict=True):
            self._tables.append(record.iter_unpack(data[start : start + size]))
            start += size

    def index(self) -> Index:
        members, targets, functions, *_ = self._tables
        decoded_members = tuple(self._member(row) for row in members)
        index = Index(
            self.abi,
            decoded_members,
            tuple(self._target(row, len(decoded_members)) for row in targets),
            tuple(self._function(row) for row in functions),
            tuple(self._variable() for _ in range(self._variable_count)),
        )
        if any(next(table, None) is not None for table in self._tables):
            raise ValueError("it holds records that nothing refers to")
        return index

    def _member(self, row: tuple[int, ...]) -> MemberInfo:
        offset, size, sha256, crc, name = row
        return MemberInfo(self._string(name), offset, size, crc, bytes(sha256))  # type: ignore[arg-type]

    def _target(self, row: tuple[int, ...], member_count: int) -> TargetInfo:
        name, member, machine, features = row
        if member >= member_count:
            raise ValueError(f"target {self._string(name)!r} refers to a member that is not there")
        requires = tuple(self._string(self._next(6)[0]) for _ in range(features))
        return TargetInfo(self._string(name), member, machine, requires)

    def _function(self, row: tuple[int, ...]) -> FunctionInfo:
        name, inputs, outputs, symbols, host_ops, stateful = row
        if host_ops > MAXIMUM_HOST_OPS or stateful > 1:
            raise ValueError(f"function {self._string(name)!r} has {host_ops} host ops")
        return FunctionInfo(
            self._string(name),
            tuple(self._tensor() for _ in range(inputs)),
            tuple(self._tensor() for _ in range(outputs)),
            tuple(self._symbol() for _ in range(symbols)),
            host_ops,
            bool(stateful),
        )

    def _variable(self) -> TensorInfo:
        """A variable, whose sizes are known and which fits in memory."""
        variable = self._tensor()
        size = math.prod(d if isinstance(d, int) else -1 for d in variable.dims)
        if any(isinstance(d, str) for d in variable.dims) or size > MAXIMUM_ELEMENTS:
            raise ValueError(f"variable {variable.name!r} has no possible size")
        return variable

    def _tensor(self) -> TensorInfo:
        name, dtype, rank, reserved = self._next(3)
        if dtype >= len(DTYPES) or rank > MAXIMUM_RANK or reserved:
            raise ValueError(f"tensor {self._string(name)!r} has no possible type")
        dims = tuple(self._dimension() for _ in range(rank))
        return TensorInfo(self._string(name), DTYPES[dtype], dims)

    def _dimension(self) -> int | str:
        size, text, reserved = self._next(5)
        if size < -1 or reserved or (size == -1) != bool(self._string(text)):
            raise ValueError("a dimension is neither a size nor a symbol")
        return self._string(text) if size == -1 else size

    def _symbol(self) -> SymbolInfo:
        name, symbol, minimum, maximum = self._next(4)
        if not 0 <= minimum <= maximum:
            raise ValueError(f"symbol {self._string(name)!r} has an empty range")
        bound = None if maximum == NO_MAXIMUM else maximum
        return SymbolInfo(self._string(name), self._string(symbol), minimum, bound)

    def _next(self, table: int) -> tuple[int, ...]:
        row = next(self._tables[table], None)
        if row is None:
            raise ValueError("it holds fewer records than it refers to")
        return row

    def _string(self, offset: int) -> str:
        end = self._strings.find(b"\0", offset, offset + MAXIMUM_NAME + 1)
        if end < 0:
            raise ValueError("it refers to a string that is not there or too long")
        return self._strings[offset:end].decode()
