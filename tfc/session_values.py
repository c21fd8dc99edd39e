"""What callers of a session give and get: names of values, arrays, and the shape of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from tfc.ir.errors import TfcError
from tfc.ir.run_errors import MissingFeedError, UnknownNameError

if TYPE_CHECKING:
    from tfc.ir.core import Value
    from tfc.ir.types import DType

Array: TypeAlias = "np.ndarray[Any, Any]"
Fetches: TypeAlias = "str | Sequence[str] | Mapping[str, str]"


def fetch_names(fetches: Fetches) -> list[str]:
    """The names that are asked for, without the sigil."""
    names = [fetches] if isinstance(fetches, str) else _listed(fetches)
    for name in names:
        _check_name(name, "fetch")
    return [name.removeprefix("%") for name in names]


def checked_feeds(feeds: Any) -> Mapping[str, Any]:
    """Raises TfcError for what is no dict, and for names that are none."""
    if not isinstance(feeds, Mapping):
        text = f"feeds are a dict of values by name, not a {type(feeds).__name__}"
        raise TfcError(text, hint='as in {"x": array}')
    found = cast("Mapping[str, Any]", feeds)
    for name in found:
        _check_name(name, "feed")
    return found


def _listed(fetches: Any) -> list[Any]:
    if isinstance(fetches, Mapping):
        return list(cast("Mapping[str, Any]", fetches).values())
    return list(cast("Sequence[Any]", fetches)) if isinstance(fetches, Sequence) else [fetches]


def _check_name(name: object, what: str) -> None:
    """Raises UnknownNameError for what is no name at all."""
    if not isinstance(name, str):
        hint = "names of values are strings, alone, in a list or in a dict"
        raise UnknownNameError(f"cannot {what} {name!r}: it is a {type(name).__name__}", hint=hint)


def shaped(fetches: Fetches, outputs: Mapping[str, Array]) -> Any:
    """The values as they were asked for: one, a list, or a dict."""
    if isinstance(fetches, str):
        return outputs[fetches.removeprefix("%")]
    if isinstance(fetches, Mapping):
        return {key: outputs[name.removeprefix("%")] for key, name in fetches.items()}
    return [outputs[name.removeprefix("%")] for name in fetches]


def missing_feed(values: Sequence[Value]) -> MissingFeedError:
    """The error of values that must be fed."""
    first = values[0]
    return MissingFeedError(
        f"the input %{first.name} must be fed",
        hint=f"it is a {first.type}; what is fetched needs it",
    )


def fed_array(value: Value, given: Any) -> Array:
    """What is fed for a value as an array; Python's numbers take the value's element type."""
    kind = value.tensor
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise TfcError(f"%{value.name} is a {kind}, and is fed no array: {error}") from error
    if not isinstance(given, np.ndarray | np.generic):
        is_number = array.dtype.kind in "fiu" and kind.dtype.is_float
        if is_number or (
            np.can_cast(array.dtype, kind.dtype.numpy, "same_kind") and _holds(kind.dtype, array)
        ):
            array = array.astype(kind.dtype.numpy)
    sizes = zip(array.shape, kind.shape, strict=False)
    fits = array.ndim == kind.rank and all(n == m for n, m in sizes if isinstance(m, int))
    if not fits or array.dtype != kind.dtype.numpy:
        found = f"{array.dtype} of shape {array.shape}"
        raise TfcError(f"%{value.name} is a {kind}, and is fed {found}")
    return array


def _holds(dtype: DType, array: Array) -> bool:
    """Whether integers fit an integer type."""
    if not dtype.is_integer or array.dtype.kind not in "iu" or not array.size:
        return True
    limits = np.iinfo(dtype.numpy)
    return int(array.min()) >= limits.min and int(array.max()) <= limits.max
