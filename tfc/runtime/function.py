"""Calls compiled functions: binds shapes to symbols, keeps what a shape needs, runs.

What depends on the shapes alone (symbols, output shapes, scratch size, argument blocks) is made
when a combination of shapes is first seen and used again, so that a repeated call is quick.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from . import abi
from .errors import BundleError, InputError, RunError
from .host import Context
from .host_calls import HostCalls, HostRecord
from .index import FunctionInfo, TensorInfo
from .native import Native, executor
from .state import State
from .tensors import (
    Array,
    aligned_bytes,
    checked_output,
    dense_input,
    output_dtype,
    storage_dtype,
)

_KEPT_SHAPES = 256


class Memory:
    """What the functions of a bundle share: code, weights, executor, state, scratch for reuse."""

    def __init__(
        self,
        native: Native,
        weights: Array,
        executor: int,
        state: State,
        variables: tuple[TensorInfo, ...] = (),
    ) -> None:
        self.native: Native | None = native
        self.weights: Array | None = weights
        self.weights_address: int = weights.ctypes.data
        self.executor = executor
        self.state = state
        self.variables = variables
        self.functions: Mapping[str, Function] = {}
        self.cancelled = threading.Event()
        rows = [abi.Variable(*state.addresses(v.name)) for v in variables]
        self._table = (abi.Variable * max(1, len(rows)))(*rows)
        self.table_address = ctypes.addressof(self._table)
        self._scratch: list[Scratch] = []

    def executor_in(self, context: Context | None) -> int:
        """The executor of a call: a partition of another call keeps to its own thread."""
        if context is None or context.channels is None or self.native is None:
            return self.executor
        return executor(self.native, 1)

    def take_scratch(self, size: int) -> Scratch:
        """Memory of at least `size` bytes that nobody else uses until `give_back`."""
        try:
            held = self._scratch.pop()
        except IndexError:
            return Scratch(size)
        return held if held.size >= size else Scratch(size)

    def give_back(self, scratch: Scratch) -> None:
        if self.native is not None:
            self._scratch.append(scratch)

    def call(self, name: str, arrays: Sequence[Array], context: Context) -> list[Array]:
        """Runs a function for a host op of another one; bf16 is its bits."""
        function = self.functions[name]
        results = function._run(list(arrays), None, 0, context)
        types = [storage_dtype(t.dtype) for t in function.outputs]
        return [a.view(dtype) for a, dtype in zip(results, types, strict=True)]

    def close(self) -> None:
        self.cancelled.set()
        self.native = None
        self.weights = None
        self._scratch.clear()


class Scratch:
    """Memory for one run at a time, aligned to 64 bytes."""

    def __init__(self, size: int) -> None:
        self._bytes = aligned_bytes(size)
        self.size = size
        self.address: int = self._bytes.ctypes.data


class _Frame:
    """The argument block of one call in flight; the fields that change are set for each call."""

    def __init__(
        self,
        function: FunctionInfo,
        symbols: ctypes.Array[ctypes.c_int64],
        memory: Memory,
        host: HostCalls | None,
    ) -> None:
        self.inputs = (ctypes.c_void_p * max(1, len(function.inputs)))()
        self.outputs = (ctypes.c_void_p * max(1, len(function.outputs)))()
        self.error = abi.Error()
        self.call = abi.Call()
        self.call.symbols = ctypes.addressof(symbols)
        self.call.inputs = ctypes.addressof(self.inputs)
        self.call.outputs = ctypes.addressof(self.outputs)
        self.call.variables = memory.table_address
        self.host = host
        if host is not None:
            self.call.host = host.address
        self.call_address = ctypes.addressof(self.call)
        self.error_address = ctypes.addressof(self.error)


class _Plan:
    """A binding of the symbols, and frames for calls with it."""

    def __init__(
        self,
        symbols: ctypes.Array[ctypes.c_int64],
        output_shapes: list[tuple[int, ...]],
        scratch_bytes: int,
    ) -> None:
        self.symbols = symbols
        self.output_shapes = output_shapes
        self.scratch_bytes = scratch_bytes
        self.frames: list[_Frame] = []


class Function:
    """A function of a bundle; may be called from several threads at once.

    Calls of functions that use variables run one after another where they share the state.
    """

    def __init__(
        self,
        info: FunctionInfo,
        memory: Memory,
        number: int,
        host_records: Sequence[HostRecord] = (),
    ) -> None:
        self.info = info
        self._host_records = host_records
        self.name = info.name
        self.inputs = info.inputs
        self.outputs = info.outputs
        self.symbols = info.symbols
        self._memory = memory
        self._number = number
        self._input_dtypes = [storage_dtype(t.dtype) for t in info.inputs]
        self._plans: dict[tuple[tuple[int, ...], ...], _Plan] = {}

    def run(
        self,
        inputs: Mapping[str, object],
        out: Mapping[str, Array] | None = None,
        *,
        channels: object = None,
    ) -> dict[str, Array]:
        """Runs with inputs by name and returns outputs by name.

        An input is a numpy array, anything that exports DLPack or the array interface, or numbers
        in nested lists; its dtype has to be the tensor's. `out` holds arrays for some or all
        outputs. `channels` is where calls that run at the same time meet, for ops that send or
        receive. An exception that an op raises in the loader comes through as it is.
        """
        values = self._by_name(inputs)
        given = None
        if out is not None:
            given = self._outputs_by_name(out)
        context = None if channels is None else Context(self._memory.state, channels)
        results = self._run(values, given, 0, context)
        return {t.name: result for t, result in zip(self.outputs, results, strict=True)}

    def __call__(
        self, *inputs: object, out: Sequence[Array | None] | None = None
    ) -> tuple[Array, ...]:
        """Runs with inputs by position and returns all outputs, one or many, as a tuple."""
        if len(inputs) != len(self.inputs):
            raise InputError(
                f"{self.name} takes {len(self.inputs)} inputs and got {len(inputs)}: "
                + self.signature()
            )
        if out is not None and len(out) != len(self.outputs):
            raise InputError(f"{self.name} has {len(self.outputs)} outputs, out has {len(out)}")
        return tuple(self._run(list(inputs), out, 0))

    def profile(self, inputs: Mapping[str, object]) -> tuple[dict[str, Array], Array]:
        """Runs as `run` does; also the nanoseconds of each kernel, in the manifest's order."""
        count = self._native().functions[self._number].kernel_count
        ticks = np.zeros(count, np.uint64)
        results = self._run(self._by_name(inputs), None, ticks.ctypes.data)
        return {t.name: result for t, result in zip(self.outputs, results, strict=True)}, ticks

    def scratch_bytes(self, *shapes: tuple[int, ...]) -> int:
        """The memory that a run with inputs of these shapes needs besides inputs and outputs."""
        return self._plan(self._native(), [tuple(shape) for shape in shapes]).scratch_bytes

    def signature(self) -> str:
        """The function with its inputs and outputs, for a person."""
        inputs, outputs = (", ".join(map(str, ts)) for ts in (self.inputs, self.outputs))
        return f"{self.name}({inputs}) -> ({outputs})"

    def _native(self) -> Native:
        native = self._memory.native
        if native is None:
            raise BundleError("the bundle is closed")
        return native

    def _by_name(self, inputs: Mapping[str, object]) -> list[object]:
        try:
            values = [inputs[t.name] for t in self.inputs]
        except KeyError as error:
            raise InputError(f'input "{error.args[0]}" is missing; {self.signature()}') from None
        if len(inputs) != len(values):
            known = {t.name for t in self.inputs}
            unknown = next(name for name in inputs if name not in known)
            raise InputError(f'there is no input "{unknown}"; {self.signature()}')
        return values

    def _outputs_by_name(self, out: Mapping[str, Array]) -> list[Array | None]:
        known = {t.name for t in self.outputs}
        for name in out:
            if name not in known:
                raise InputError(f'there is no output "{name}"; {self.signature()}')
        return [out.get(t.name) for t in self.outputs]

    def _run(
        self,
        values: list[object],
        out: Sequence[Array | None] | None,
        ticks: int,
        context: Context | None = None,
    ) -> list[Array]:
        memory = self._memory
        native, weights = self._native(), memory.weights
        assert weights is not None, "an open bundle has weights"
        arrays = list(map(dense_input, values, self.inputs, self._input_dtypes))
        plan = self._plan(native, [a.shape for a in arrays])
        if out is None:
            results = self._results(plan)
        else:
            results = self._given_results(plan, out)
            arrays = [_apart(a, results) for a in arrays]
        frame = self._frame(plan)
        frame.inputs[: len(arrays)] = [a.ctypes.data for a in arrays]
        frame.outputs[: len(results)] = [r.ctypes.data for r in results]
        scratch = self._take_scratch(plan)
        call = frame.call
        call.weights, call.scratch = memory.weights_address, scratch.address
        call.executor, call.kernel_ticks = memory.executor_in(context), ticks or None
        function = native.addresses[self._number]
        if frame.host is not None:
            frame.host.context = self._context(context)
        if self.info.stateful:
            with memory.state.lock:
                code = native.call(function, frame.call_address, frame.error_address)
        else:
            code = native.call(function, frame.call_address, frame.error_address)
        if code:
            raise self._error(code, frame, [a.shape for a in arrays])
        memory.give_back(scratch)
        plan.frames.append(frame)
        return results

    def _context(self, around: Context | None) -> Context:
        """That of a call, which may be part of another one."""
        memory = self._memory
        if around is None:
            return Context(memory.state, None, memory.cancelled, None, memory.call)
        return replace(around, state=memory.state, call=memory.call)

    def _frame(self, plan: _Plan) -> _Frame:
        try:
            return plan.frames.pop()
        except IndexError:
            host = HostCalls(self._host_records) if self._host_records else None
            return _Frame(self.info, plan.symbols, self._memory, host)

    def _error(self, code: int, frame: _Frame, shapes: list[tuple[int, ...]]) -> BaseException:
        if code == abi.HOST_ERROR and frame.host is not None and frame.host.error is not None:
            return frame.host.error  # nobody uses a frame again in which something went wrong
        return abi.error_from(frame.error, self.info, shapes, self._memory.variables)

    @cached_property
    def _output_dtypes(self) -> list[np.dtype[Any]]:
        return [output_dtype(t.dtype) for t in self.outputs]

    def _results(self, plan: _Plan) -> list[Array]:
        try:
            return list(map(np.empty, plan.output_shapes, self._output_dtypes))
        except (MemoryError, ValueError) as error:
            raise RunError(f"no memory for the outputs of {self.name}: {error}") from error

    def _take_scratch(self, plan: _Plan) -> Scratch:
        try:
            return self._memory.take_scratch(plan.scratch_bytes)
        except (MemoryError, ValueError) as error:
            raise RunError(f"{self.name} needs {plan.scratch_bytes} bytes of scratch") from error

    def _given_results(self, plan: _Plan, out: Sequence[Array | None]) -> list[Array]:
        chosen = [
            np.empty(shape, output_dtype(tensor.dtype))
            if given is None
            else checked_output(given, tensor, shape)
            for given, tensor, shape in zip(out, self.outputs, plan.output_shapes, strict=True)
        ]
        for i, a in enumerate(chosen):
            for b in chosen[:i]:
                if np.may_share_memory(a, b):
                    raise InputError(f"the arrays given for outputs of {self.name} overlap")
        return chosen

    def _plan(self, native: Native, shapes: list[tuple[int, ...]]) -> _Plan:
        key = tuple(shapes)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._bind(native, shapes)
            if len(self._plans) >= _KEPT_SHAPES:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def _bind(self, native: Native, shapes: list[tuple[int, ...]]) -> _Plan:
        function = native.functions[self._number]
        sizes = [size for shape in shapes for size in shape]
        dims = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
        symbols = (ctypes.c_int64 * max(1, len(self.symbols)))()
        error = abi.Error()
        if function.bind(
            ctypes.addressof(dims), ctypes.addressof(symbols), ctypes.addressof(error)
        ):
            raise abi.error_from(error, self.info, shapes)
        rank = sum(len(t.dims) for t in self.outputs)
        output_dims, scratch = (ctypes.c_int64 * max(1, rank))(), ctypes.c_int64()
        addresses = [ctypes.addressof(x) for x in (symbols, output_dims, scratch, error)]
        if function.prepare(*addresses):
            raise abi.error_from(error, self.info, shapes)
        return _Plan(symbols, self._output_shapes(list(output_dims)), scratch.value)

    def _output_shapes(self, dims: Sequence[int]) -> list[tuple[int, ...]]:
        shapes: list[tuple[int, ...]] = []
        start = 0
        for tensor in self.outputs:
            shapes.append(tuple(dims[start : start + len(tensor.dims)]))
            start += len(tensor.dims)
        return shapes


def _apart(array: Array, results: Sequence[Array]) -> Array:
    """The array, or a copy where it may overlap an output."""
    if any(np.may_share_memory(array, result) for result in results):
        return array.copy()
    return array
