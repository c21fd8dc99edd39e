"""What an object file needs from elsewhere: reads the symbol table of ELF64."""

from __future__ import annotations

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2


def undefined_symbols(data: bytes) -> list[str]:
    """The names that a relocatable object uses and does not define."""
    header = _HEADER.unpack_from(data)
    assert data[:6] == b"\x7fELF\x02\x01", "not a little-endian 64-bit ELF file"
    sections = [_SECTION.unpack_from(data, header[6] + i * header[11]) for i in range(header[12])]
    found: list[str] = []
    for section in sections:
        if section[1] != _SYMBOL_TABLE:
            continue
        names = sections[section[6]][4]
        for i in range(1, section[5] // _SYMBOL.size):
            symbol = _SYMBOL.unpack_from(data, section[4] + i * _SYMBOL.size)
            if symbol[3] == 0:
                start = names + symbol[0]
                found.append(data[start : data.index(b"\0", start)].decode("ascii", "replace"))
    return sorted(found)
