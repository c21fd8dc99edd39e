"""tfc_abi.h for ctypes, and the errors of compiled functions as sentences."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from .errors import InputError, LoaderError, RunError, StateError
from .index import FunctionInfo, TensorInfo

ABI = 2

_DIMENSION, _MINIMUM, _MAXIMUM, _MULTIPLE, _RELATION, _SIZE = range(1, 7)
_INDEX, _DATA_SIZE, _TRIP_COUNT, _VALUE, _UNINITIALIZED, HOST_ERROR = range(16, 22)


class Error(ctypes.Structure):
    """tfc_error"""

    _fields_ = [
        ("code", ctypes.c_int32),
        ("where", ctypes.c_int32),
        ("axis", ctypes.c_int64),
        ("actual", ctypes.c_int64),
        ("expected", ctypes.c_int64),
        ("node", ctypes.c_char_p),
    ]


class Call(ctypes.Structure):
    """tfc_call"""

    _fields_ = [
        ("symbols", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("executor", ctypes.c_void_p),
        ("kernel_ticks", ctypes.c_void_p),
        ("variables", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
    ]


class Variable(ctypes.Structure):
    """tfc_variable"""

    _fields_ = [("data", ctypes.c_void_p), ("assigned", ctypes.c_void_p)]


HOST_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class Host(ctypes.Structure):
    """tfc_host"""

    _fields_ = [("self", ctypes.c_void_p), ("call", HOST_CALL)]


BIND = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
PREPARE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
POOL = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int32)
CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Function(ctypes.Structure):
    """tfc_function"""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("input_count", ctypes.c_int32),
        ("output_count", ctypes.c_int32),
        ("symbol_count", ctypes.c_int32),
        ("kernel_count", ctypes.c_int32),
        ("input_dim_count", ctypes.c_int32),
        ("output_dim_count", ctypes.c_int32),
        ("host_count", ctypes.c_int32),
        ("stateful", ctypes.c_int32),
        ("bind", BIND),
        ("prepare", PREPARE),
        ("run", ctypes.c_void_p),
    ]


class VariableInfo(ctypes.Structure):
    """tfc_variable_info"""

    _fields_ = [("name", ctypes.c_char_p), ("bytes", ctypes.c_int64)]


class Code(ctypes.Structure):
    """tfc_code"""

    _fields_ = [
        ("abi", ctypes.c_uint32),
        ("function_count", ctypes.c_uint32),
        ("functions", ctypes.POINTER(Function)),
        ("variable_count", ctypes.c_uint64),
        ("variables", ctypes.POINTER(VariableInfo)),
        ("pool", POOL),
        ("pool_stop", ctypes.c_void_p),
        ("call", CALL),
    ]


def error_from(
    error: Error,
    function: FunctionInfo,
    shapes: list[tuple[int, ...]],
    variables: Sequence[TensorInfo] = (),
) -> LoaderError:
    """The exception for a code that bind, prepare or run returned."""
    node = (error.node or b"").decode("utf-8", "replace")
    if error.code in (_DIMENSION, _MINIMUM, _MAXIMUM, _MULTIPLE):
        return _dimension_error(error, function, shapes)
    if error.code in (_RELATION, _SIZE):
        return InputError(_shape_sentence(error, node))
    start = f"{node}: " if node else ""
    if error.code == _UNINITIALIZED:
        known = 0 <= error.where < len(variables)
        name = variables[error.where].name if known else f"number {error.where}"
        return StateError(f"{start}the variable {name!r} is not initialized: assign it first")
    return RunError(start + _run_sentence(error))


def _dimension_error(
    error: Error, function: FunctionInfo, shapes: list[tuple[int, ...]]
) -> InputError:
    rule = {
        _DIMENSION: "",
        _MINIMUM: "at least ",
        _MAXIMUM: "at most ",
        _MULTIPLE: "a multiple of ",
    }
    if not 0 <= error.where < len(function.inputs):
        return InputError(f"a dimension is {error.actual}, expected {error.expected}")
    tensor = function.inputs[error.where]
    dim = tensor.dims[error.axis] if 0 <= error.axis < len(tensor.dims) else ""
    symbol = f" ({dim})" if isinstance(dim, str) and dim else ""
    return InputError(
        f'input "{tensor.name}": dimension {error.axis}{symbol} is {error.actual}, expected '
        f"{rule[error.code]}{error.expected}; it takes {tensor.dtype}"
        f"[{', '.join(map(str, tensor.dims))}] and got shape {shapes[error.where]}"
    )


def _shape_sentence(error: Error, node: str) -> str:
    if error.code == _SIZE:
        return f"{node or 'a tensor'}: a size of {error.actual} is not possible"
    return f"the inputs' shapes do not fit: {node} ({error.actual} against {error.expected})"


def _run_sentence(error: Error) -> str:
    actual, expected = error.actual, error.expected
    if error.code == _INDEX:
        along = f" along axis {error.axis}" if error.axis >= 0 else ""
        return f"index {actual}{along} is out of range; it must lie in 0..{expected - 1}"
    if error.code == _DATA_SIZE:
        return f"a size computed from data is {actual}, the limit is {expected}"
    if error.code == _TRIP_COUNT:
        return f"a loop would run {actual} times, the limit is {expected}"
    if error.code == _VALUE:
        return f"the value {actual} is not allowed"
    return f"stopped with error {error.code} ({actual}, {expected})"
