"""How many lanes the vectors of a kernel have: all its vectors have as many.

Of the wider element types a vector is several registers, of the narrower ones a part of one: what
is right for the usual element type of a kernel costs the others little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.ir.core import Kernel
from tfc.ir.errors import TfcError
from tfc.ir.expr import Call, as_expr
from tfc.ir.types import BOOL, TileType
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.targets import Target

ATTRIBUTE = "lanes"
MOST = 64  # what a vector register holds of the smallest element type
SHORTEST_RUN = 4  # elements of a block that are worth vectors of their own


def lanes_of(kernel: Kernel, target: Target) -> int:
    """The lanes that the kernel's attribute says, but no more than fit the target.

    Raises TfcError if the attribute is no power of two from 2 to 64.
    """
    natural = natural_lanes(kernel, target)
    lanes = kernel.attributes.get(ATTRIBUTE, natural)
    if not isinstance(lanes, int) or not 2 <= lanes <= MOST or lanes & (lanes - 1):
        raise TfcError(
            f"kernel @{kernel.name}: {ATTRIBUTE} = {lanes}", hint=f"a power of two from 2 to {MOST}"
        )
    return min(lanes, natural)  # a text may have been made for a target of wider registers


def natural_lanes(kernel: Kernel, target: Target) -> int:
    """As many as a register holds of the widest element type below 8 bytes that the kernel has.

    But no more than neighbours stay neighbours in memory, nor more than the widest tile needs.
    """
    sizes: set[int] = set()
    extent = 1
    for op in kernel.body.walk():
        for tile in (v.type for v in (*op.inputs, *op.results)):
            if isinstance(tile, TileType):
                extent = max(extent, tile.rows, tile.cols)
                if tile.dtype != BOOL:
                    sizes.add(tile.dtype.bytes)
    narrow = [s for s in sizes if s < 8]
    widest = max(narrow, default=8 if sizes else 1)
    natural = min(target.lanes(widest), _run_length(kernel))
    return max(2, min(natural, 1 << (extent - 1).bit_length()))


def _run_length(kernel: Kernel) -> int:
    """How many neighbours stay neighbours in all blocked layouts that the kernel walks."""
    length = MOST
    for op in kernel.body.walk():
        if isinstance(op, t.Load | t.Store):
            for atom in as_expr(op.at).atoms():
                if isinstance(atom, Call) and _cuts_lanes(atom):
                    block = atom.rhs.constant or 1
                    power = block & -block
                    length = min(length, power) if power >= SHORTEST_RUN else length
    return length


def _cuts_lanes(atom: Call) -> bool:
    """Whether a quotient or remainder depends on where in the tile an element is."""
    inside = {t.ROW, t.COLUMN}
    return atom.op in ("floordiv", "mod") and not inside.isdisjoint(atom.lhs.symbols())
