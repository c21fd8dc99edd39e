"""Arithmetic on small integer tensors whose elements are known while importing.

Shapes that the graph computes (Shape, Gather, Concat, Mul, ...) become expressions of dimensions,
so that Reshape, Expand, Slice and their like get symbolic sizes. What has no single answer for
every value of the dimensions raises `Undecided`; the node is then imported as an op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np

from tfc.importers.onnx_context import DTYPE_OF_CODE, KNOWN_ELEMENTS, Array, Context, Known
from tfc.importers.onnx_forms import (
    axes_of,
    broadcast_shapes,
    largest,
    reshape_target,
    slice_bounds,
    smallest,
    split_sizes,
)
from tfc.ir.expr import Dim, Expr, as_expr, is_nonnegative, normal
from tfc.ir.types import BOOL, DType

Evaluator: TypeAlias = "Callable[[Context, list[Known]], Known | list[Known]]"
EVALUATORS: dict[str, tuple[int, Evaluator]] = {}


class Undecided(Exception):
    """The elements are not one expression for every value of the dimensions."""


def known(*op_types: str, inputs: int = 0) -> Callable[[Evaluator], Evaluator]:
    """Registers what computes operators on known elements; `inputs` is their largest number."""

    def register(function: Evaluator) -> Evaluator:
        for op_type in op_types:
            EVALUATORS[op_type] = inputs, function
        return function

    return register


def evaluate(n: Context) -> Known | list[Known] | None:
    """The results of a node whose inputs are all known; None where it must become an op."""
    most, function = EVALUATORS.get(n.node.op_type, (0, None))
    if function is None or n.node.domain or (most and len(n.entries) > most):
        return None
    if not n.entries or n.entries[0] is None:
        return None
    given = [entry.elements() if entry else None for entry in n.entries]
    inputs = [found for found in given if found is not None]
    if len(inputs) < sum(entry is not None for entry in n.entries):
        return None
    try:
        results = function(n, inputs)
    except Undecided:
        return None
    n.check_attributes()
    return results


def make(dtype: DType, elements: Any, shape: tuple[int, ...] | None = None) -> Known:
    """Known elements in their normal form: numbers wrap as the element type does."""
    flat = [elements] if not isinstance(elements, list | np.ndarray) else list(np.ravel(elements))
    shape = np.shape(elements) if shape is None else shape
    array = np.empty(len(flat), object)
    for index, element in enumerate(flat):
        array[index] = _wrapped(element, dtype)
    return Known(dtype, array.reshape(shape))


def _wrapped(element: Any, dtype: DType) -> Any:
    if dtype.is_bool:
        return bool(element)
    value = normal(element)
    if isinstance(value, Expr):
        return value
    value %= 1 << dtype.bits
    return value - (1 << dtype.bits) if dtype.kind == "int" and value >> (dtype.bits - 1) else value


def _bounded(shape: Iterable[Dim]) -> tuple[int, ...]:
    """A shape of known and few elements."""
    sizes: list[int] = []
    for size in shape:
        if not isinstance(size, int) or size < 0:
            raise Undecided
        sizes.append(size)
    if math.prod(sizes) > KNOWN_ELEMENTS:
        raise Undecided
    return tuple(sizes)


# ---- elementwise


def elementwise(dtype: DType, function: Callable[..., Any], *inputs: Known) -> Known:
    """A function of the elements at each place, after broadcasting."""
    try:
        shape = _bounded(np.broadcast_shapes(*(k.elements.shape for k in inputs)))
    except ValueError:
        raise Undecided from None  # the op says what is wrong
    arrays = [np.broadcast_to(k.elements, shape) for k in inputs]
    values = [function(*(a[index] for a in arrays)) for index in np.ndindex(shape)]
    return make(dtype, values, shape)


def _divide(a: Dim, b: Dim) -> Dim:
    """The quotient, truncated toward zero."""
    if isinstance(a, int) and isinstance(b, int) and b:
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    if isinstance(b, int) and b > 0 and is_nonnegative(as_expr(a)):
        return normal(as_expr(a) // b)
    if isinstance(b, Expr) and isinstance(a, Expr):
        quotient = a // b
        if quotient * b == a and is_nonnegative(a) and is_nonnegative(b):
            return normal(quotient)  # exact
    raise Undecided


def _modulo(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int) and b:
        return a % b
    if isinstance(b, int) and b > 0 and is_nonnegative(as_expr(a)):
        return normal(as_expr(a) % b)
    raise Undecided


def _remainder(a: Dim, b: Dim) -> Dim:
    """The remainder with the sign of the dividend."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return int(math.copysign(abs(a) % abs(b), a))
    return _modulo(a, b)


def is_less(a: Dim, b: Dim) -> bool:
    if is_nonnegative(as_expr(b) - a - 1):
        return True
    if is_nonnegative(as_expr(a) - b):
        return False
    raise Undecided


def is_equal(a: Dim, b: Dim) -> bool:
    if a == b:
        return True
    difference = as_expr(a) - b
    if is_nonnegative(difference - 1) or is_nonnegative(-difference - 1):
        return False
    raise Undecided


def _negate(a: bool) -> bool:
    return not a


def _minus(a: Dim) -> Dim:
    return -as_expr(a)


def _choose(condition: bool, a: Dim, b: Dim) -> Dim:
    return a if condition else b


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": lambda a, b: as_expr(a) + b,
    "Sub": lambda a, b: as_expr(a) - b,
    "Mul": lambda a, b: as_expr(a) * as_expr(b),
    "Div": _divide,
    "Max": largest,
    "Min": smallest,
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "Less": is_less,
    "LessOrEqual": lambda a, b: not is_less(b, a),
    "Greater": lambda a, b: is_less(b, a),
    "GreaterOrEqual": lambda a, b: not is_less(a, b),
    "Equal": is_equal,
}
LOGIC: dict[str, Callable[[Any, Any], bool]] = {
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "Xor": lambda a, b: a != b,
}


@known(*ARITHMETIC)
def _(n: Context, inputs: list[Known]) -> Known:
    if n.node.op_type not in ("Max", "Min"):
        _exactly(inputs, 2)
    _same_types(inputs)
    _broadcast_as_numpy(n)
    if inputs[0].dtype.is_bool:
        raise Undecided
    total = inputs[0]
    for other in inputs[1:]:
        total = elementwise(total.dtype, ARITHMETIC[n.node.op_type], total, other)
    return total


@known("Mod", inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    _same_types(_exactly(inputs, 2))
    function = _remainder if n.flag("fmod") else _modulo
    return elementwise(inputs[0].dtype, function, *inputs)


@known(*COMPARISONS, inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    _same_types(_exactly(inputs, 2))
    _broadcast_as_numpy(n)
    return elementwise(BOOL, COMPARISONS[n.node.op_type], *inputs)


@known(*LOGIC, inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    if any(not k.dtype.is_bool for k in _exactly(inputs, 2)):
        raise Undecided
    _broadcast_as_numpy(n)
    return elementwise(BOOL, LOGIC[n.node.op_type], *inputs)


@known("Not", inputs=1)
def _(n: Context, inputs: list[Known]) -> Known:
    if not inputs[0].dtype.is_bool:
        raise Undecided
    return elementwise(BOOL, _negate, inputs[0])


@known("Neg", inputs=1)
def _(n: Context, inputs: list[Known]) -> Known:
    if inputs[0].dtype.kind != "int":
        raise Undecided
    return elementwise(inputs[0].dtype, _minus, inputs[0])


@known("Where", inputs=3)
def _(n: Context, inputs: list[Known]) -> Known:
    condition, x, y = _exactly(inputs, 3)
    if not condition.dtype.is_bool:
        raise Undecided
    _same_types([x, y])
    return elementwise(x.dtype, _choose, condition, x, y)


@known("Cast", inputs=1)
def _(n: Context, inputs: list[Known]) -> Known:
    target = DTYPE_OF_CODE.get(n.int("to"))
    if target is None or target.is_float or (target.is_bool and not inputs[0].is_constant):
        raise Undecided
    return make(target, inputs[0].elements)


def _same_types(inputs: list[Known]) -> None:
    """Leave it to the op to refuse what ONNX does not allow."""
    if len({k.dtype for k in inputs}) != 1:
        raise Undecided


def _broadcast_as_numpy(n: Context) -> None:
    """Leave it to the op to place operands as operators did before opset 7."""
    if n.node.attributes:
        raise Undecided


def _exactly(inputs: list[Known], count: int) -> list[Known]:
    if len(inputs) != count:
        raise Undecided
    return inputs


# ---- moving elements


@known("Identity", inputs=1)
def _(n: Context, inputs: list[Known]) -> Known:
    return inputs[0]


@known("Gather", inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    data, indices = _exactly(inputs, 2)
    axis = n.axis(n.int("axis", 0), data.elements.ndim)
    size = data.elements.shape[axis]
    places = [i for i in indices.elements.flat if isinstance(i, int) and -size <= i < size]
    if len(places) != indices.elements.size:
        raise Undecided
    rest = (*data.elements.shape[:axis], *indices.elements.shape, *data.elements.shape[axis + 1 :])
    _bounded(rest)
    index = np.array(places, np.int64).reshape(indices.elements.shape)
    return Known(data.dtype, _array(np.take(data.elements, index, axis)))


@known("Concat")
def _(n: Context, inputs: list[Known]) -> Known:
    _same_types(inputs[:2])
    axis = n.axis(n.int("axis"), inputs[0].elements.ndim)
    try:
        joined = np.concatenate([k.elements for k in inputs], axis)
    except ValueError:
        raise Undecided from None
    _bounded(joined.shape)
    return Known(inputs[0].dtype, joined)


@known("Unsqueeze", inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    elements = inputs[0].elements
    axes = axes_of(n, 13)
    if axes is None:
        raise Undecided
    return Known(inputs[0].dtype, np.expand_dims(elements, n.axes(axes, elements.ndim + len(axes))))


@known("Squeeze", inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    elements = inputs[0].elements
    axes = axes_of(n, 13)
    chosen = n.axes(axes, elements.ndim) if axes else None  # none named: all of size 1
    if chosen is not None and any(elements.shape[axis] != 1 for axis in chosen):
        raise Undecided
    return Known(inputs[0].dtype, _array(np.squeeze(elements, chosen)))


@known("Reshape", inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    if n.version < 5:
        raise Undecided
    elements = inputs[0].elements
    zero = n.version >= 14 and n.flag("allowzero")
    target = reshape_target(n, elements.shape, n.known(1, "shape"), zero)
    shape = _bounded(target)
    if math.prod(shape) != elements.size:
        raise Undecided
    return Known(inputs[0].dtype, elements.reshape(shape))


@known("Transpose", inputs=1)
def _(n: Context, inputs: list[Known]) -> Known:
    elements = inputs[0].elements
    order = n.ints("perm", tuple(range(elements.ndim))[::-1])
    if sorted(order) != list(range(elements.ndim)):
        raise Undecided
    return Known(inputs[0].dtype, elements.transpose(order))


@known("Slice", inputs=5)
def _(n: Context, inputs: list[Known]) -> Known:
    elements = inputs[0].elements
    bounds = slice_bounds(n, elements.shape)
    ends = zip(bounds.starts, bounds.limits, bounds.steps, strict=True)
    places: list[list[int]] = []
    for start, limit, step in ends:
        if isinstance(start, Expr) or isinstance(limit, Expr):
            raise Undecided
        places.append(list(range(start, limit, step)))
    return Known(inputs[0].dtype, elements[np.ix_(*places)] if places else elements)


@known("Split", inputs=2)
def _(n: Context, inputs: list[Known]) -> list[Known]:
    elements = inputs[0].elements
    axis = n.axis(n.int("axis", 0), elements.ndim)
    sizes = _bounded(split_sizes(n, elements.shape[axis]))
    if sum(sizes) != elements.shape[axis]:
        raise Undecided
    parts = np.split(elements, np.cumsum(sizes)[:-1], axis)
    return [Known(inputs[0].dtype, part) for part in parts]


@known("Expand", inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    elements = inputs[0].elements
    shape = _bounded(broadcast_shapes(elements.shape, n.known(1, "shape")))
    try:
        return Known(inputs[0].dtype, np.broadcast_to(elements, shape))
    except ValueError:
        raise Undecided from None


@known("Tile", inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    elements = inputs[0].elements
    repeats = n.known(1, "repeats")
    if len(repeats) != elements.ndim:
        raise Undecided
    times = [k for k in repeats if isinstance(k, int) and k >= 0]
    if len(times) != len(repeats):
        raise Undecided
    _bounded(k * size for k, size in zip(times, elements.shape, strict=True))
    return Known(inputs[0].dtype, np.tile(elements, times))


def _array(result: Any) -> Array:
    """numpy gives the bare element where the result has rank 0."""
    if isinstance(result, np.ndarray):
        return result
    array = np.empty((), object)
    array[()] = result
    return array


# ---- making and folding


@known("ConstantOfShape", inputs=1)
def _(n: Context, inputs: list[Known]) -> Known:
    shape = _bounded(inputs[0].elements.reshape(-1))
    value = n.tensor("value")
    dtype = DTYPE_OF_CODE.get(value.dtype) if value else None
    if value is None or dtype is None or dtype.is_float or value.elements != 1:
        raise Undecided
    return make(dtype, [value.array().reshape(-1)[0].item()] * math.prod(shape), shape)


@known("Range", inputs=3)
def _(n: Context, inputs: list[Known]) -> Known:
    start, limit, step = _exactly(inputs, 3)
    if not all(k.is_constant and k.elements.size == 1 for k in inputs):
        raise Undecided
    _same_types(inputs)
    first, end, stride = (k.elements.item() for k in (start, limit, step))
    if not stride or -((first - end) // stride) > KNOWN_ELEMENTS:
        raise Undecided
    numbers = list(range(first, end, stride))
    return make(start.dtype, numbers, (len(numbers),))


FOLDS: dict[str, tuple[int | None, Callable[[Any, Any], Any]]] = {
    "ReduceProd": (1, ARITHMETIC["Mul"]),
    "ReduceSum": (0, ARITHMETIC["Add"]),
    "ReduceMax": (None, largest),
    "ReduceMin": (None, smallest),
}


@known(*FOLDS, inputs=2)
def _(n: Context, inputs: list[Known]) -> Known:
    elements = inputs[0].elements
    if inputs[0].dtype.is_bool:
        raise Undecided
    since = 13 if n.node.op_type == "ReduceSum" else 18
    axes, none = axes_of(n, since), n.version >= since and n.flag("noop_with_empty_axes")
    keep = n.flag("keepdims", True)
    if not axes and none:
        return inputs[0]
    folded = n.axes(axes, elements.ndim) if axes else tuple(range(elements.ndim))
    start, function = FOLDS[n.node.op_type]
    kept = [axis for axis in range(elements.ndim) if axis not in folded]
    shape = tuple(elements.shape[axis] for axis in kept)
    rows = elements.transpose(*kept, *folded).reshape(math.prod(shape), -1)
    if not rows.size:
        raise Undecided
    totals = [_fold(row, start, function) for row in rows]
    full = tuple(1 if axis in folded else size for axis, size in enumerate(elements.shape))
    return make(inputs[0].dtype, totals, full if keep else shape)


def _fold(row: Array, start: int | None, function: Callable[[Any, Any], Any]) -> Any:
    items = list(row)
    total = items[0] if start is None else function(start, items[0])
    for item in items[1:]:
        total = function(total, item)
    return total
