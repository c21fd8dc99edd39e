"""Makes the constants of an imported function: at its top, once, and only where one is used."""

from __future__ import annotations

import numpy as np

from tfc.importers.onnx_context import Array, Entry, Known
from tfc.importers.onnx_tensor import Tensor
from tfc.ir.core import OPS, Block, Location, Op, SymbolRef, Value
from tfc.ir.expr import Dim
from tfc.ir.types import I64
from tfc.ir.weights import INLINE_BYTES, Dense, Weights


class Constants:
    """The constants at the top of a block, and the names of all its values.

    Tensors of a few KiB become dense attributes, larger ones weights that stay in the mapped file;
    known sizes become `dim_value` ops.
    """

    def __init__(self, weights: Weights, body: Block) -> None:
        self.weights = weights
        self.body = body
        self._last: Op | None = None
        self._names: dict[str, int] = {}

    def fresh_name(self, name: str) -> str:
        """The name, with a number if a value has it already."""
        chosen = name
        while chosen in self._names:
            self._names[name] += 1
            chosen = f"{name}_{self._names[name]}"
        self._names[chosen] = 0
        return chosen

    def materialize(self, entry: Entry) -> Value:
        """The value of the IR for an entry: constants and dimensions are made at the top, once."""
        if entry.value is None:
            if entry.tensor is not None:
                entry.value = self._tensor_constant(entry.tensor, entry)
            else:
                assert entry.known is not None, "a missing entry has no value"
                entry.value = self._known_value(entry.known, entry.location)
            if entry.name:
                entry.value.name = self.fresh_name(entry.name)
        return entry.value

    def _tensor_constant(self, tensor: Tensor, entry: Entry) -> Value:
        if tensor.raw_bytes <= INLINE_BYTES:
            return self.constant(tensor.array(), entry.location)
        kind = entry.type
        name = entry.name or "weight"
        while name in self.weights:
            name += "_"
        self.weights.define(name, kind, lambda: _aligned(tensor.array()))
        return self._at_top(OPS["constant"](SymbolRef(name), kind), entry.location)

    def constant(self, array: Array, location: Location) -> Value:
        """A small constant at the top of the function."""
        dense = Dense(array)
        return self._at_top(OPS["constant"](dense, dense.type), location)

    def _known_value(self, known: Known, location: Location) -> Value:
        if known.is_constant:
            return self.constant(known.array(), location)
        sizes = [self._dim_vector(dim, location) for dim in known.elements.flat]
        value = sizes[0]
        if len(sizes) > 1:
            value = self._at_top(OPS["concat"](sizes, axis=0), location)
        if value.tensor.shape != known.type.shape:
            value = self._at_top(OPS["reshape"](value, known.type.shape), location)
        if known.dtype != I64:
            value = self._at_top(OPS["cast"](value, known.dtype), location)
        return value

    def _dim_vector(self, dim: Dim, location: Location) -> Value:
        """A dimension as a vector of one element."""
        if isinstance(dim, int):
            return self.constant(np.array([dim], np.int64), location)
        scalar = self._at_top(OPS["dim_value"](dim), location)
        return self._at_top(OPS["reshape"](scalar, (1,)), location)

    def _at_top(self, op: Op, location: Location) -> Value:
        """Insert an op before everything but its like, where all that follows can use it."""
        before = self._last.next if self._last else self.body.first
        op.location = location
        self.body.insert(op, before)
        self._last = op
        return op.result


def _aligned(array: Array) -> Array:
    """The array itself where the file aligns it to its elements, else a copy."""
    return np.require(array, requirements="A")
