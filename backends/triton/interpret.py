"""Runs a printed kernel over numpy arrays in Triton's interpreter, on a machine without a GPU and
without torch.

The interpreter differs from a GPU in places; they are mended here: it has no libdevice (computed by
the reference functions of tiles), reduces by helper functions an element at a time (numpy does it),
and rounds f32 to bf16 toward zero. Not for several threads at a time: Triton's interpreter has
global state.
"""

from __future__ import annotations

import linecache
import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tfc.backends.triton.modules import triton_module
from tfc.ir.core import Kernel
from tfc.ir.expr import as_expr
from tfc.ir.types import BF16
from tfc.tile.reference import apply_function, cast_array, reduce_array

if TYPE_CHECKING:
    from tfc.backends.triton.source import Source

Array: TypeAlias = "np.ndarray[Any, Any]"
_LOCK = threading.Lock()
LIBDEVICE = {"rint": "round"}
"""Functions that libdevice calls otherwise than tiles."""


class Tensor:
    """What Triton's launcher wants of a tensor, around a numpy array."""

    def __init__(self, array: Array, name: str) -> None:
        self.array = array
        self.dtype = name

    device = "cpu"

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def new_empty(self, *_: object, **__: object) -> Tensor:
        return Tensor(self.array, self.dtype)

    def set_(self, storage: Tensor, *_: object) -> None:
        self.array = storage.array

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def copy_(self, other: Tensor) -> None:
        """The host's array is the device's: nothing is to be copied back."""
        assert other.array is self.array


def run_kernel(
    kernel: Kernel,
    buffers: Sequence[Array],
    symbols: Mapping[str, int],
    *,
    precision: str = "",
    wide: bool = False,
) -> None:
    """Prints a kernel and runs every program; writes the output buffers, which are flat arrays."""
    from tfc.backends.triton.printer import print_kernel

    for arg, array in zip(kernel.body.args, buffers, strict=True):
        elements = as_expr(arg.buffer.elements).evaluate(symbols)
        assert array.shape == (elements,), f"{arg.name} has shape {array.shape}, not ({elements},)"
        assert array.dtype == arg.buffer.dtype.numpy, f"{arg.name} holds {array.dtype}"
    run_source(print_kernel(kernel, precision=precision, wide=wide), buffers, symbols)


def run_source(source: Source, buffers: Sequence[Array], symbols: Mapping[str, int]) -> None:
    """Runs a printed kernel. Raises TfcError where an index is out of range."""
    grid = source.programs(symbols)
    if 0 in grid:
        return
    errors = np.zeros(2 * len(source.sites), np.int64)
    given = [*buffers, *([errors] if source.sites else [])]
    tensors = iter(given)
    values: list[Any] = []
    for argument in source.arguments:
        if argument.type.startswith("*"):
            values.append(Tensor(next(tensors), argument.type[1:]))
        else:
            values.append(symbols[argument.name])
    with _LOCK, np.errstate(all="ignore"):
        _function(source)[grid](*values)
    source.check([int(e) for e in errors], symbols)


def _function(source: Source) -> Any:
    """The kernel as a function that Triton's interpreter runs; its helpers are plain functions."""
    interpreter = triton_module("triton.runtime.interpreter")
    _mend()
    file = f"<{source.name}.triton.py>"
    linecache.cache[file] = (len(source.body), None, source.body.splitlines(keepends=True), file)
    names: dict[str, Any] = {
        "triton": SimpleNamespace(jit=_plain),
        "tl": triton_module("triton.language"),
        "libdevice": _libdevice(),
    }
    exec(compile(source.body, file, "exec"), names)
    interpreter.InterpretedFunction.rewritten_fn.clear()
    return interpreter.InterpretedFunction(names[source.name])


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _libdevice() -> SimpleNamespace:
    from tfc.backends.triton.functions import LIBDEVICE as NAMES

    return SimpleNamespace(**{n: _computed(n) for n in (*NAMES, "rint", "fmod", "pow")})


def _computed(name: str) -> Callable[..., Any]:
    """A function of libdevice on the interpreter's tensors."""
    tl = triton_module("triton.language")
    interpreter = triton_module("triton.runtime.interpreter")

    def call(*given: Any) -> Any:
        operands = [interpreter.interpreter_semantic.to_tensor(x) for x in given]
        arrays = [np.asarray(x.handle.data) for x in operands]
        array = apply_function(LIBDEVICE.get(name, name), *arrays)
        kind = operands[0].dtype
        shape = [int(n) for n in np.broadcast_shapes(*(_shape(x) for x in operands))]
        return tl.tensor(
            interpreter.TensorHandle(array, kind), tl.block_type(kind, shape) if shape else kind
        )

    return call


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(int(getattr(n, "value", n)) for n in x.shape)


_mended = False


def _mend() -> None:
    """Replaces, once, what the interpreter does otherwise than a GPU."""
    global _mended
    if _mended:
        return
    tl = triton_module("triton.language")
    interpreter = triton_module("triton.runtime.interpreter")
    InterpreterBuilder, ReduceOps = interpreter.InterpreterBuilder, interpreter.ReduceOps
    TensorHandle = interpreter.TensorHandle
    plain_cast = InterpreterBuilder.cast_impl

    def cast(builder: Any, source: Any, kind: Any) -> Any:
        if kind.scalar == tl.bfloat16:
            rounded = cast_array(_array(source), BF16)
            return TensorHandle(rounded.view(np.uint16), tl.bfloat16)
        return plain_cast(builder, source, kind)

    def dot(_: Any, a: Any, b: Any, d: Any, *__: object) -> Any:
        product = _array(a).astype(d.data.dtype) @ _array(b).astype(d.data.dtype)
        return TensorHandle(product + d.data, d.dtype.scalar)

    def _array(handle: Any) -> Array:
        data = np.asarray(handle.data)
        return data.view(BF16.numpy) if handle.dtype.scalar == tl.bfloat16 else data

    def reduce(ops: Any, inputs: Any) -> Any:
        name = ops.combine_fn.__name__.removesuffix("_of")
        (x,) = inputs
        array = reduce_array(name, np.asarray(x.handle.data), ops.axis)
        return [ops.to_tensor(array if ops.keep_dims else array.squeeze(ops.axis), x.dtype)]

    def splat(_: Any, kind: Any, x: Any) -> Any:
        return TensorHandle(np.full(kind.shape, x.data, x.data.dtype), x.dtype.scalar)

    InterpreterBuilder.cast_impl = cast
    InterpreterBuilder.create_splat = splat
    InterpreterBuilder.create_dot = dot
    ReduceOps.generic_reduce = reduce
    _mended = True
