"""The host op `print`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .host import Context, OutputType, host_op
from .tensors import Array

MOST_ELEMENTS = 1000  # of an array that are written; more are shortened


@host_op("print")
def print_arrays(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Writes a line: the message, then each array."""
    names = attributes["dtypes"]
    texts = [_text(array, name) for array, name in zip(arrays, names, strict=True)]
    line = " ".join(text for text in (attributes["message"], *texts) if text)
    stream = sys.stderr if context.stream is None else context.stream
    stream.write(f"{line}\n")
    stream.flush()
    return []


def _text(array: Array, dtype: str) -> str:
    if dtype == "bf16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return np.array2string(array, threshold=MOST_ELEMENTS, separator=", ", floatmode="unique")
