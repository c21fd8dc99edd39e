"""Checks a linked shared object: what it exports and imports, and that it asks for nothing unsafe.

Reads just enough of ELF64 for that: the dynamic section and its symbols (System V ABI, chapter 5).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MACHINES = {62: "x86_64", 183: "aarch64"}

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")

_PT_GNU_STACK = 0x6474E551
_SHT_DYNSYM, _SHT_DYNAMIC = 11, 6
_DT_NEEDED, _DT_TEXTREL, _DT_INIT, _DT_INIT_ARRAY = 1, 22, 12, 25
_PF_X, _PF_W = 1, 2


@dataclass(frozen=True)
class SharedObject:
    """What a loader can see of a shared object."""

    machine: int
    exports: tuple[str, ...]
    imports: tuple[str, ...]
    needed: tuple[str, ...]
    dynamic_tags: frozenset[int]
    executable_stack: bool
    writable_code: bool


def read_shared_object(data: bytes) -> SharedObject:
    """Raises ValueError where `data` is not a little-endian 64-bit ELF shared object."""
    if len(data) < _HEADER.size or data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a little-endian 64-bit ELF file")
    header = _HEADER.unpack_from(data)
    if header[1] != 3:
        raise ValueError("not an ELF shared object")
    segments = _records(data, _SEGMENT, header[5], header[10])
    sections = _records(data, _SECTION, header[6], header[12])
    exports, imports = _symbols(data, sections)
    dynamic = _dynamic(data, sections)
    return SharedObject(
        machine=header[2],
        exports=exports,
        imports=imports,
        needed=tuple(name for tag, name in dynamic if tag == _DT_NEEDED),
        dynamic_tags=frozenset(tag for tag, _ in dynamic),
        executable_stack=any(s[0] == _PT_GNU_STACK and s[1] & _PF_X for s in segments)
        or not any(s[0] == _PT_GNU_STACK for s in segments),
        writable_code=any(s[0] == 1 and s[1] & _PF_X and s[1] & _PF_W for s in segments),
    )


def machine_of(data: bytes) -> int:
    """The ELF machine number of a shared object (62: x86-64, 183: aarch64)."""
    return read_shared_object(data).machine


def problems(data: bytes, export: str, allowed_imports: frozenset[str]) -> list[str]:
    """What makes a shared object unfit for a bundle; empty when nothing does."""
    shared = read_shared_object(data)
    unknown = sorted(set(shared.imports) - allowed_imports)
    found: list[str] = []
    if shared.exports != (export,):
        found.append(f"exports {', '.join(shared.exports) or 'nothing'} instead of {export} alone")
    if unknown:
        found.append(f"imports {', '.join(unknown)}, which no libc function that we allow provides")
    if shared.needed:
        found.append(f"needs the libraries {', '.join(shared.needed)}")
    if shared.executable_stack:
        found.append("asks for an executable stack")
    if shared.writable_code:
        found.append("has a segment that is writable and executable")
    if _DT_TEXTREL in shared.dynamic_tags:
        found.append("has relocations in its code (not position-independent)")
    if shared.dynamic_tags & {_DT_INIT, _DT_INIT_ARRAY}:
        found.append("runs code when it is loaded")
    return found


def _records(data: bytes, record: struct.Struct, offset: int, count: int) -> list[tuple[int, ...]]:
    if offset + count * record.size > len(data):
        raise ValueError("a table lies outside the file")
    return [record.unpack_from(data, offset + i * record.size) for i in range(count)]


def _symbols(
    data: bytes, sections: list[tuple[int, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    exports: list[str] = []
    imports: list[str] = []
    for section in (s for s in sections if s[1] == _SHT_DYNSYM):
        strings = sections[section[6]][4]
        symbols = _records(data, _SYMBOL, section[4], section[5] // _SYMBOL.size)
        for symbol in symbols[1:]:
            (exports if symbol[3] else imports).append(_string(data, strings + symbol[0]))
    return tuple(exports), tuple(imports)


def _dynamic(data: bytes, sections: list[tuple[int, ...]]) -> list[tuple[int, str]]:
    entries: list[tuple[int, str]] = []
    for section in (s for s in sections if s[1] == _SHT_DYNAMIC):
        strings = sections[section[6]][4]
        for tag, value in _records(data, _DYNAMIC, section[4], section[5] // _DYNAMIC.size):
            entries.append((tag, _string(data, strings + value) if tag == _DT_NEEDED else ""))
    return entries


def _string(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode("ascii", "replace")
