"""Between Python values and the dense arrays that compiled functions take."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NoReturn, TypeAlias

import numpy as np

from .errors import InputError
from .index import TensorInfo

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"

_NUMPY_NAMES = {
    **{"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "uint16"},
    **{"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64"},
    **{"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool"},
}
_DENSE = 0x0001 | 0x0100  # numpy's flags for C order and for aligned elements
_ALIGNMENT = 64
_KIND_ORDER = "buif"  # a plain Python number may become one of a later kind


@cache
def storage_dtype(name: str) -> np.dtype[Any]:
    """The numpy type that holds a tensor's elements; bf16 as their bits."""
    return np.dtype(_NUMPY_NAMES[name])


@cache
def output_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of outputs: bfloat16 where ml_dtypes is installed, else its bits."""
    if name != "bf16":
        return storage_dtype(name)
    try:
        import ml_dtypes  # optional, and may take half a second  # pyright: ignore[reportMissingImports]
    except ImportError:
        return storage_dtype(name)
    return np.dtype(ml_dtypes.bfloat16)


def aligned_bytes(size: int) -> Array:
    """Uninitialised memory at a multiple of 64 bytes."""
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + size]


def dense_input(value: object, tensor: TensorInfo, dtype: np.dtype[Any]) -> Array:
    """`value` as a dense array of the tensor's type; copies only where it is not one already."""
    if (
        type(value) is np.ndarray
        and value.dtype is dtype
        and value.flags.num & _DENSE == _DENSE
        and value.ndim == len(tensor.dims)
    ):
        return value
    return _converted(value, tensor, dtype)


def checked_output(value: object, tensor: TensorInfo, shape: tuple[int, ...]) -> Array:
    """A caller's array for an output, which has to be exactly right."""
    if not isinstance(value, np.ndarray):
        _refuse_output(tensor, f"is {type(value).__name__}, expected a numpy array")
    if not _same_type(value.dtype, tensor.dtype):
        _refuse_output(tensor, f"has dtype {value.dtype}, expected {tensor.dtype}")
    if value.shape != shape:
        _refuse_output(tensor, f"has shape {value.shape}, expected {shape}")
    if value.flags.num & _DENSE != _DENSE or not value.flags.writeable:
        _refuse_output(tensor, "must be contiguous, aligned and writeable")
    return value


def _refuse_output(tensor: TensorInfo, what: str) -> NoReturn:
    raise InputError(f'the array given for output "{tensor.name}" {what}')


def _converted(value: object, tensor: TensorInfo, dtype: np.dtype[Any]) -> Array:
    array = _as_array(value, tensor, dtype)
    if not _same_type(array.dtype, tensor.dtype):
        raise InputError(
            f'input "{tensor.name}" has dtype {array.dtype}, expected {tensor.dtype} '
            f"({output_dtype(tensor.dtype)})"
        )
    if array.ndim != len(tensor.dims):
        raise InputError(
            f'input "{tensor.name}" has shape {array.shape}, expected {len(tensor.dims)} '
            f"dimensions: {tensor.dtype}[{', '.join(map(str, tensor.dims))}]"
        )
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return np.require(array, requirements=["C", "A"])


def _same_type(dtype: np.dtype[Any], name: str) -> bool:
    expected = storage_dtype(name)
    return dtype.newbyteorder("=") == expected or (name == "bf16" and dtype.name == "bfloat16")


def _as_array(value: object, tensor: TensorInfo, dtype: np.dtype[Any]) -> Array:
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    try:
        if hasattr(value, "__dlpack__"):
            return _from_dlpack(value)
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
        return _from_numbers(value, dtype)
    except (TypeError, ValueError, OverflowError, BufferError, RuntimeError) as error:
        raise InputError(
            f'input "{tensor.name}" cannot be read as {tensor.dtype} '
            f"from {type(value).__name__}: {error}"
        ) from error


def _from_numbers(value: object, dtype: np.dtype[Any]) -> Array:
    """Numbers and nested lists of them, which have no type of their own: the tensor's is taken."""
    natural = np.asarray(value)
    empty = natural.size == 0
    if not empty and natural.dtype.kind not in _KIND_ORDER:
        raise TypeError("only numbers and nested lists of numbers, all of one shape, are taken")
    if not empty and _KIND_ORDER.index(natural.dtype.kind) > _KIND_ORDER.index(dtype.kind):
        raise TypeError(f"numbers of type {natural.dtype} would lose their value")
    return np.asarray(value, dtype=dtype)


class _Tensor(ctypes.Structure):
    """The start of DLTensor (DLPack 0.8 and 1.0)."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
    ]


class _Capsule:
    """An exporter that hands on a capsule made before."""

    def __init__(self, capsule: object, device: tuple[int, int]) -> None:
        self._capsule = capsule
        self._device = device

    def __dlpack__(self, **_: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


def _from_dlpack(value: Any) -> Array:
    """numpy knows no bfloat16: a capsule of that type is relabelled as unsigned, the same bits."""
    kind, number = value.__dlpack_device__()
    if kind != 1:
        raise BufferError(f"it is not in the CPU's memory (DLPack device {kind}:{number})")
    capsule = value.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    if (tensor.type_code, tensor.type_bits) == (4, 16):
        tensor.type_code = 1
    return np.from_dlpack(_Capsule(capsule, (1, 0)))  # type: ignore[arg-type]
