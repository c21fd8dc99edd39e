"""erf and tanh in f32 from tables that AVX-512 looks up in registers: 12 cycles instead of 17.

g(t) = erf(t) / t or tanh(t) / t is smooth over the whole range, so small arguments need no case of
their own. The range is cut into 16 or 32 intervals. In each, with f = t - c,
g(t) = c0 + f (c1 + f (c2 + ... + f c5)), where the centre c is a place near the middle at which g
is a number of f32 to 31 bits, so that x c0 + x f (...) rounds little more than once. The
polynomials are minimax (Remez) in the error relative to g.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tfc.backends.llvm.vmath_body import Body
from tfc.backends.llvm.vmath_value import Value

Columns = tuple[tuple[float, ...], ...]


def _table(*columns: str) -> Columns:
    """Numbers of f32 from their bits: the centres, then c0 to c5, each for all intervals."""
    return tuple(struct.unpack(f">{len(c.split())}f", bytes.fromhex(c)) for c in columns)


ERF = _table(
    "3d86bc66 3e86bcaf 3f06bcb4 3f4a1aea 3f86bcca 3fa86bf7 3fca1b26 3febca1e "
    "4006bc97 40179456 40286bc5 4039436b 404a1b0c 405af26c 406bc9d0 407a1ba6 ",
    "3f903974 3f8d2aa5 3f842296 3f6e9735 3f51fbaa 3f3658bf 3f1dfd7a 3f09b1f2 "
    "3ef27e38 3ed80086 3ec28586 3eb0dd73 3ea221b9 3e95a960 3e8af8da 3e8303f1 ",
    "bd4a2f73 be427e89 beac20a5 bed40d0c bed9bc7a bec76d67 bea9e0a4 be8af605 "
    "be5fd7e5 be349d34 be1367ad bdf4363b bdcd5512 bdaefbd5 bd96e247 bd861a09 ",
    "bebf1498 bea98905 be5dcf85 bda4b3e1 3d00a07c 3dc51a6d 3def5932 3de01b8b "
    "3db92d6b 3d900db6 3d5b83a6 3d27aae2 3d01d3d7 3ccc853d 3ca3ce38 3c894270 ",
    "3cf200f1 3ddfef09 3e2e090c 3e28cc04 3de8c081 3d52ea25 3b9270c4 bca171d6 "
    "bcd6fd6f bcc29773 bc980bb7 bc5ffc61 bc22b908 bbee7713 bbb1bc37 bb8c7876 ",
    "3de37a2a 3db08d06 3cd39309 bd017b9b bd713d2e bd5e9eda bd0a1b4a bc5a4d1a "
    "ba417083 3b8d7aab 3ba4cbcf 3b871ae9 3b44ced7 3b096d2a 3ac0b22d 3a8e1d28 ",
    "bc2c7b51 bd17db80 bd4af721 bd0b56a3 bbed69d3 3c4512a4 3c8cc456 3c52b293 "
    "3bcffff4 3ae68ba7 b9ae8212 ba65101e ba4faad2 ba16b40d b9cd5e64 b991a415 ",
)
"""2^-27.4."""

TANH = _table(
    "3d9696e6 3e9696c4 3f169691 3f61e1bb 3f9696a9 3fbc3c61 3fe1e1f0 4003c3d0 "
    "40169699 40296970 403c3c0d 404f0f02 4061e06a 4074b479 4083c39d 408d2d37 "
    "409696b3 409ffffd 40a96986 40b2d2db 40bc3c4d 40c5a514 40cf0f41 40d8788d "
    "40e1e1d7 40eb4b4d 40f4b4b2 40fe1e41 4103c3b9 4108786f 410d2d27 4111e1c9 ",
    "3f7f8a25 3f78dd6d 3f660ec7 3f4d4c24 3f33cf77 3f1c9e1e 3f08cd34 3ef0b772 "
    "3ed5b33e 3ebf7d4d 3ead1cd3 3e9dc3f1 3e90d231 3e85c7c7 3e788e14 3e6809c0 "
    "3e599055 3e4cc80e 3e416977 3e373ca2 3e2e13ba 3e25ca79 3e1e40d2 3e175f90 "
    "3e11110a 3e0b438d 3e05e85c 3e00f2a6 3df8af9d 3df01c4f 3de81b58 3de09eb4 ",
    "bd47eb99 be3b9647 be9b0654 beaf9bd4 bea7a547 be92a7bb be75d8e1 be4a7966 "
    "be262f8d be08fd25 bde3b603 bdbf25b1 bda22460 bd8aeef2 bd70666c bd51d59a "
    "bd38a4e4 bd23ad2d bd120e1b bd031e2d bcecb380 bcd6b7dd bcc3a549 bcb30238 "
    "bca467cc bc97846a bc8c1649 bc81e6f8 bc719496 bc613505 bc527188 bc451618 ",
    "bea876b0 be8a245b be07ffac bc3fbf41 3d6380b6 3da0253a 3d9d79a3 3d87f88d "
    "3d5dc984 3d308b7a 3d0b7be1 3cdcbe27 3cafcef9 3c8d4327 3c6550fe 3c3c1043 "
    "3c1bcf2f 3c02588c 3bdc14a0 3bbb6049 3ba0c86b 3b8af6fa 3b71ca50 3b53a4f2 "
    "3b3a4c74 3b24d627 3b128bbb 3b02dbe6 3aeaac3c 3ad33958 3abecd36 3aaced03 ",
    "3d1ee230 3e070ecd 3e239669 3ddd1daf 3d409083 3c0b9e6a bc0e7878 bc616f0c "
    "bc5ceccd bc3b2da5 bc1531db bbe79da4 bbb21c06 bb88e9a8 bb538926 bb24af93 "
    "bb016735 bacd6167 baa49e68 ba853f33 ba59bdc3 ba338140 ba15361d b9fa04a8 "
    "b9d2fdee b9b34377 b99944e5 b983ce9a b963f15d b9461905 b92cfcd1 b917b93d ",
    "3e039fb5 3d960698 bca41aaf bd62a742 bd321f90 bcb897cf bc087e3a bab4cc14 "
    "3aa9830b 3b01a1cf 3af728dc 3acca219 3aa049fe 3a730ac9 3a37bcfc 3a0a0d46 "
    "39cf5af2 399e9a3b 3972a3ab 393cd6e1 391302e0 38e8ff8d 38b8d16d 3894d07b "
    "386f4d37 3841923f 381d40cd 3807cd6a 37e0c8cd 37c15c36 379adbea 3788e76d ",
    "bcbf223f bd89d243 bd42b949 bb4207df 3c6b9e73 3c4cd2c7 3be116e3 3b4064e6 "
    "3a781956 38e59ff2 b93b220c b97ab146 b966ba74 b9392ee0 b90eeae9 b8d4cfb0 "
    "b89d13e5 b869e6d9 b82c77e8 b800e8a8 b7c16123 b794c21b b76010b1 b72cf592 "
    "b706f572 b6d2a3d0 b6a16fff b685e67a b65cf408 b63ba534 b60a9dc4 b5f6913e ",
)
"""2^-26.2."""


@dataclass(frozen=True)
class Intervals:
    per_unit: float
    """Intervals in a length of 1; the first and the last are half as long."""
    end: float
    columns: Columns


ERF_INTERVALS = Intervals(3.8, 4.0, ERF)
TANH_INTERVALS = Intervals(3.4, 9.02, TANH)


def erf_by_table(b: Body, x: Value) -> Value:
    return _by_table(b, x, ERF_INTERVALS)


def tanh_by_table(b: Body, x: Value) -> Value:
    return _by_table(b, x, TANH_INTERVALS)


def _by_table(b: Body, x: Value, intervals: Intervals) -> Value:
    """x g(|x|), x held at the end of the table."""
    t = b.at_most(abs(x), intervals.end)
    index = b.fma(t, intervals.per_unit, 1.5 * 2.0**23).bits()  # the lowest bits count
    centre, constant, *coefficients = (_looked_up(b, index, c) for c in intervals.columns)
    f = t - centre
    slope = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        slope = b.fma(f, slope, coefficient)
    bounded = b.copysign(t, x)
    return b.fma(bounded, constant, bounded * (f * slope))


def _looked_up(b: Body, index: Value, column: tuple[float, ...]) -> Value:
    """The column's number for each lane, by the lowest 4 or 5 bits of the index."""
    halves = [b.register_literal(column[i : i + 16]) for i in range(0, len(column), 16)]
    if len(halves) == 1:
        return b.avx512_call("f32", "permvar.sf", halves[0], index)
    return b.avx512_call("f32", "vpermi2var.ps", halves[0], index, halves[1])
