"""Constants: small ones as dense attributes, large ones by reference into mapped files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfc.ir.errors import TfcError
from tfc.ir.types import TensorType, dtype_of

if TYPE_CHECKING:
    import numpy as np

INLINE_BYTES = 4096  # constants up to this size stand in the text


class Dense:
    """An array as an attribute, compared by type and bits."""

    __slots__ = ("_key", "array")

    def __init__(self, array: np.ndarray) -> None:
        import numpy as np

        self.array = np.ascontiguousarray(array).reshape(np.shape(array))
        self.array.flags.writeable = False
        self._key: tuple[Any, ...] | None = None

    def _identity(self) -> tuple[Any, ...]:
        if self._key is None:
            self._key = (
                self.array.dtype.str,
                self.array.dtype.name,
                self.array.shape,
                self.array.tobytes(),
            )
        return self._key

    @property
    def type(self) -> TensorType:
        return TensorType(dtype_of(self.array.dtype), tuple(int(n) for n in self.array.shape))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dense) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        shown = self.array.tolist() if self.array.size <= 8 else "..."
        return f"dense<{shown}> : {self.type}"


@dataclass(frozen=True)
class Weight:
    """One constant by reference: its type, and how to get at its elements (mapped, not copied)."""

    type: TensorType
    load: Callable[[], np.ndarray]


class Weights:
    """The constants of a module by name. `file` is the safetensors file that the text names."""

    def __init__(self, file: str = "") -> None:
        self.file = file
        self._entries: dict[str, Weight] = {}
        self._by_content: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def type(self, name: str) -> TensorType:
        return self._find(name).type

    def array(self, name: str) -> np.ndarray:
        """The elements, read-only where they are mapped."""
        return self._find(name).load()

    def _find(self, name: str) -> Weight:
        if name not in self._entries:
            held = f"{self.file!r} holds" if self.file else "the module holds"
            raise TfcError(f"no weight @{name}: {held} {len(self)} others")
        return self._entries[name]

    def define(self, name: str, type: TensorType, load: Callable[[], np.ndarray]) -> None:
        """Adds a constant by reference."""
        self._entries[name] = Weight(type, load)

    def add(self, array: np.ndarray, name: str = "") -> str:
        """Adds an array of our own; the same content gives the same name."""
        import numpy as np

        content = np.ascontiguousarray(array)
        kind = TensorType(dtype_of(content.dtype), tuple(int(n) for n in np.shape(array)))
        key = hashlib.sha256(f"{kind}".encode() + content.tobytes()).hexdigest()
        if key in self._by_content:
            return self._by_content[key]
        chosen = self._fresh(name or f"w_{key[:12]}")
        content = content.reshape(np.shape(array))
        content.flags.writeable = False
        self.define(chosen, kind, lambda: content)
        self._by_content[key] = chosen
        return chosen

    def _fresh(self, name: str) -> str:
        chosen, count = name, 0
        while chosen in self._entries:
            count += 1
            chosen = f"{name}_{count}"
        return chosen


def open_safetensors(path: Path, file: str) -> Weights:
    """The weights of a safetensors file, mapped; every offset is checked first."""
    import json
    import mmap

    import numpy as np

    from tfc.ir.types import DTYPES

    names = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "BOOL": "bool"}
    names |= {f"{k}{n}": f"{k.lower()}{n}" for k in "IU" for n in (8, 16, 32, 64)}
    try:
        with open(path, "rb") as handle:
            size = path.stat().st_size
            data = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
        length = int.from_bytes(data[:8], "little")
        if size < 8 or length > min(size - 8, 100 << 20):
            raise ValueError("the header is longer than the file")
        header: dict[str, Any] = json.loads(bytes(data[8 : 8 + length]))
        weights = Weights(file)
        body = 8 + length
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            dtype = DTYPES[names[entry["dtype"]]]
            shape = tuple(int(n) for n in entry["shape"])
            begin, end = (int(n) for n in entry["data_offsets"])
            count = 1
            for n in shape:
                count *= n
            if not 0 <= begin <= end <= size - body or min(shape, default=0) < 0:
                raise ValueError(f"{name!r} lies outside of the file")
            if count * dtype.bytes != end - begin:
                raise ValueError(
                    f"{name!r} has {end - begin} bytes, its shape needs {count * dtype.bytes}"
                )

            def load(
                offset: int = body + begin, n: int = count, d: Any = dtype, s: Any = shape
            ) -> np.ndarray:
                if not n:
                    return np.zeros(s, d.numpy)
                raw = np.frombuffer(data, np.uint8, n * d.bytes, offset)
                aligned = raw if offset % d.bytes == 0 else raw.copy()
                return aligned.view(d.numpy).reshape(s)

            weights.define(name, TensorType(dtype, shape), load)
    except OSError as error:
        raise TfcError(f"cannot read the weights: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TfcError(f"not a safetensors file: {error}", where=str(path)) from error
    return weights
