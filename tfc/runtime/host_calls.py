"""Runs the host ops of a compiled function: what `tfc_host.call` means in this loader."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from . import abi
from .errors import BundleError, RunError
from .host import Context, OutputType, ResourceInfo, host_function
from .index import DTYPES, MAXIMUM_RANK, FunctionInfo
from .tensors import Array, storage_dtype


@dataclass(frozen=True)
class HostRecord:
    """A host op of a function: kind, attributes, and types and ranks of operands and results."""

    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    node: str


def read_records(manifest: Mapping[str, Any], function: FunctionInfo) -> list[HostRecord]:
    """The host ops of a function by number, from manifest.json; else a BundleError."""
    entries = manifest.get("host_ops")
    held = entries if isinstance(entries, list) else []
    mine = [e for e in held if isinstance(e, dict) and e.get("function") == function.name]
    if [e.get("number") for e in mine] != list(range(function.host_ops)):
        raise _damaged(f"does not describe the {function.host_ops} host ops of {function.name}")
    return [_record(entry) for entry in mine]


def read_resources(manifest: Mapping[str, Any]) -> list[ResourceInfo]:
    """The queues and readers that a bundle declares."""
    try:
        return [ResourceInfo.of_record(entry) for entry in manifest.get("resources", [])]
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(f"describes a resource that cannot be: {error}") from error


def _record(entry: Mapping[str, Any]) -> HostRecord:
    kind, attributes, node = entry.get("op"), entry.get("attributes"), entry.get("node")
    if not isinstance(kind, str) or not isinstance(attributes, dict) or not isinstance(node, str):
        raise _damaged("describes a host op that cannot be")
    return HostRecord(
        kind, attributes, _types(entry.get("inputs")), _types(entry.get("outputs")), node
    )


def _types(entries: Any) -> tuple[tuple[str, int], ...]:
    """Pairs of a type of elements and a rank."""
    if not isinstance(entries, list) or not all(map(_is_type, entries)):
        raise _damaged("describes a host op of no possible types")
    return tuple((dtype, rank) for dtype, rank in entries)


def _is_type(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    dtype, rank = entry
    return dtype in DTYPES and type(rank) is int and 0 <= rank <= MAXIMUM_RANK


def _damaged(what: str) -> BundleError:
    return BundleError(f"the bundle's manifest.json is damaged: it {what}")


class HostCalls:
    """The host ops of one call at a time, in its `context`; `error` is what one of them raised."""

    def __init__(self, records: Sequence[HostRecord]) -> None:
        self._ops = [_HostOp(record) for record in records]
        self._callback = abi.HOST_CALL(self._call)
        self._host = abi.Host(None, self._callback)
        self.address = ctypes.addressof(self._host)
        self.context: Context | None = None
        self.error: BaseException | None = None

    def _call(self, _: Any, number: int, dims: Any, inputs: Any, outputs: Any, error: Any) -> int:
        """`tfc_host.call`, from compiled code: nothing may be raised through it."""
        try:
            assert self.context is not None, "a call has a context"
            self._ops[number].run(self.context, dims, inputs, outputs)
        except BaseException as caught:
            self.error = caught
            return abi.HOST_ERROR
        return 0


class _HostOp:
    """A host op with the views of its operands and results, which most calls find where they were.

    A view is of use during a call only, and is taken again where address or sizes are the same.
    """

    def __init__(self, record: HostRecord) -> None:
        self._record = record
        self._operands = len(record.inputs)
        self._results = len(record.outputs)
        self._sizes = sum(rank for _, rank in (*record.inputs, *record.outputs))
        self._key: object = None
        self._given: list[Array] = []
        self._types: list[OutputType] = []
        self._places: list[Array] = []

    def run(self, context: Context, dims: Any, inputs: Any, outputs: Any) -> None:
        """Runs it on memory of compiled code."""
        sizes, operands = dims[: self._sizes], inputs[: self._operands]
        places = outputs[: self._results]
        if self._key != (sizes, operands, places):
            self._bind(sizes, operands, places)
        function = host_function(self._record.kind)
        results = function(context, self._record.attributes, self._given, self._types)
        for i, (place, result) in enumerate(zip(self._places, results, strict=True)):
            if (result.dtype, result.shape) != (place.dtype, place.shape):
                raise self._wrong(result, self._types[i])
            place[...] = result

    def _bind(self, sizes: list[int], operands: list[int], places: list[int]) -> None:
        rest = iter(sizes)
        kinds = [
            OutputType(dtype, tuple(islice(rest, rank)))
            for dtype, rank in (*self._record.inputs, *self._record.outputs)
        ]
        views = [
            _view(address, *kind, writeable=i >= self._operands)
            for i, (address, kind) in enumerate(zip((*operands, *places), kinds, strict=True))
        ]
        self._given, self._places = views[: self._operands], views[self._operands :]
        self._types = kinds[self._operands :]
        self._key = (sizes, operands, places)

    def _wrong(self, result: Array, kind: OutputType) -> RunError:
        found, wanted = (f"{a.dtype}{list(a.shape)}" for a in (result, kind))
        return RunError(f"{self._record.kind} gave {found}, not {wanted}")


def _view(address: int, dtype: str, shape: tuple[int, ...], *, writeable: bool) -> Array:
    """An array over memory of compiled code, which is valid during the host op only."""
    kind = storage_dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if not size:
        return np.empty(shape, kind)
    memory = memoryview((ctypes.c_uint8 * size).from_address(address))
    array = np.frombuffer(memory, kind).reshape(shape)
    array.flags.writeable = writeable
    return array
