"""Numbers in the text, which come back bit by bit: `-1`, `0.1`, `-0.0`, `0x1.8p3`, `inf`, `nan`.

A NaN other than the usual one shows its bits: `nan(0x7ff8000000000001)`.
"""

from __future__ import annotations

import re
import struct

_NUMBER = re.compile(
    r"(?P<nan>nan(?:\((?P<bits>0x[0-9a-fA-F]{1,16})\))?)|(?P<infinity>-?inf)"
    r"|(?P<hex>-?0x[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?p[-+]?\d+)"
    r"|(?P<float>-?\d+(?:\.\d*(?:[eE][-+]?\d+)?|[eE][-+]?\d+))|(?P<int>-?\d+)"
    r"|(?P<bool>true|false)",
    re.ASCII,
)
_USUAL_NAN = 0x7FF8 << 48


def read_number(text: str) -> float | int | bool | None:
    """The number (f64, 64 bits) that a text is, or None; ValueError where it is out of range."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    match match.lastgroup:
        case "bool":
            return text == "true"
        case "int":
            return _integer(text)
        case "nan":
            return _nan(int(match["bits"], 16) if match["bits"] else _USUAL_NAN, text)
        case "infinity":
            return float(text)
        case _:
            return _finite(text)


def nan_bits(text: str) -> int | None:
    """The bits of `nan(0x...)`, or None where the text is something else."""
    match = _NUMBER.fullmatch(text)
    return int(match["bits"], 16) if match is not None and match["bits"] else None


def _integer(text: str) -> int:
    value = int(text) if len(text) <= 20 else 2**64
    if not -(2**63) <= value < 2**64:
        raise ValueError(f"{text[:20]} does not fit 64 bits")
    return value


def _finite(text: str) -> float:
    try:
        value = float.fromhex(text) if "0x" in text else float(text)
    except OverflowError:
        value = float("inf")
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is out of range; infinity is written inf")
    return value


def _nan(bits: int, text: str) -> float:
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    if value == value:
        raise ValueError(f"{text} is no NaN of 64 bits")
    return value


def float_text(value: float) -> str:
    """The shortest text of an f64 that reads back the same, bit by bit."""
    if value == value:
        return repr(float(value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return "nan" if bits == _USUAL_NAN else f"nan(0x{bits:016x})"
