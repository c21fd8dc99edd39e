"""What rules ask of values: is it a constant, are all its elements the same."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfc.ir.core import Value
from tfc.ir.weights import Dense
from tfc.ops.base import Array
from tfc.ops.constant import Constant


def inline_array(value: Value | None) -> Array | None:
    """The elements of a constant that stands in the text; None for weights and all else."""
    if value is not None and isinstance(value.owner, Constant):
        held = value.owner.value
        return held.array if isinstance(held, Dense) else None
    return None


def splat(value: Value | None) -> Any:
    """The element that all of an inline constant's are, bit for bit, as a numpy scalar, or None."""
    array = inline_array(value)
    if array is None or not array.size:
        return None
    flat = array.reshape(-1)
    first = flat[:1].tobytes()
    return flat[0] if flat.tobytes() == first * flat.size else None


def is_splat(value: Value | None, number: float) -> bool:
    """Whether all elements are this number; 0.0 is not -0.0, and nothing is NaN."""
    found = splat(value)
    if found is None or found != number:  # NaN differs from all
        return False
    return number != 0 or bool(np.signbit(_number(found)) == np.signbit(number))


def _number(scalar: Any) -> float:
    return float(scalar)


def is_power_of_two(value: Value | None) -> float | None:
    """The number that all elements are, if it is a power of two whose inverse is normal too."""
    found = splat(value)
    if found is None:
        return None
    number = float(found)
    mantissa, _ = np.frexp(number)
    tiny = float(np.finfo(np.float32).tiny) if found.dtype.itemsize == 4 else 2.0**-14
    usable = np.isfinite(number) and abs(mantissa) == 0.5 and tiny < abs(number) < 1 / tiny
    return number if usable else None
