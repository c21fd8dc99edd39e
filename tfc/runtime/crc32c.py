"""CRC-32C (Castagnoli), which guards the records of TFRecord files (RFC 3720, appendix B.4)."""

from __future__ import annotations

import numpy as np

from .tensors import Array

_POLYNOMIAL = 0x82F63B78  # its bits reversed
_LANES = 64  # parts of a long text that are worked on side by side
_SHORT = 4096  # below this many bytes one byte at a time is quicker
_MASK_DELTA = 0xA282EAD8


def _table() -> list[int]:
    values = list(range(256))
    for _ in range(8):
        values = [v >> 1 ^ (_POLYNOMIAL if v & 1 else 0) for v in values]
    return values


_BYTES = _table()


def crc32c(data: bytes) -> int:
    """The checksum of some bytes."""
    return _advanced(0xFFFFFFFF, data) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord stores it, so that a checksum of data with checksums still tells."""
    value = crc32c(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def masked_rows(rows: Array) -> Array:
    """That of each row of a matrix of bytes; of many rows side by side."""
    if len(rows) < _LANES:
        return np.array([masked_crc32c(row.tobytes()) for row in rows], np.uint32)
    registers = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    table = np.array(_BYTES, np.uint32)
    for column in np.ascontiguousarray(rows.T):
        registers = table[(registers ^ column) & 0xFF] ^ registers >> np.uint32(8)
    values = ~registers
    turned = values >> np.uint32(15) | values << np.uint32(17)
    return (turned.astype(np.uint64) + np.uint64(_MASK_DELTA)).astype(np.uint32)


def _advanced(value: int, data: bytes) -> int:
    """The register after some bytes."""
    if len(data) < _SHORT:
        table = _BYTES
        for byte in data:
            value = table[(value ^ byte) & 0xFF] ^ value >> 8
        return value
    part = len(data) // _LANES
    parts = np.frombuffer(data, np.uint8, part * _LANES).reshape(_LANES, part)
    registers = np.zeros(_LANES, np.uint32)
    table = np.array(_BYTES, np.uint32)
    for column in np.ascontiguousarray(parts.T):
        registers = table[(registers ^ column) & 0xFF] ^ registers >> np.uint32(8)
    shift = _zeros(part)
    for register in registers.tolist():
        value = _product(shift, value) ^ register
    return _advanced(value, data[part * _LANES :])


def _product(matrix: list[int], value: int) -> int:
    """A matrix over bits, by its columns, times a vector."""
    found = 0
    for column in matrix:
        if value & 1:
            found ^= column
        value >>= 1
    return found


def _zeros(count: int) -> list[int]:
    """What that many bytes of zeros do to the register, as a matrix."""
    power = [_advanced(1 << bit, b"\0") for bit in range(32)]
    found = [1 << bit for bit in range(32)]
    while count:
        if count & 1:
            found = [_product(power, column) for column in found]
        power = [_product(power, column) for column in power]
        count >>= 1
    return found
