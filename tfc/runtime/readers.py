"""Readers: resources that give the elements in files, read ahead by a thread of their own.

The files are those that a pattern names, sorted by name, from the folder that the caller gives. A
reader's position is that behind what was taken from it; what is read ahead is no part of its state.
Source: arXiv 1603.04467, section 4.5.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias

from .errors import StateError
from .files import Columns, Records, Rows, open_npys, open_safetensors
from .filling import Ahead, Position
from .host import (
    LOOK_SECONDS,
    Context,
    OutputType,
    ResourceInfo,
    host_op,
    resource_kind,
    unlocked,
)
from .paths import check_relative, matching, root
from .state import State
from .tensors import Array, storage_dtype

LARGEST_BATCH = 1 << 24
LARGEST_ELEMENT = 1 << 30  # bytes
MOST_AHEAD = 1024

Opener: TypeAlias = Callable[[str, "tuple[str, ...]"], Rows]
"""Opens the files of one part of the data: a folder, and a file for each pattern."""


class _Last:
    """Opens files, and keeps them open until others are asked for: the next epoch may begin with
    them.
    """

    def __init__(self, opener: Opener, folder: str) -> None:
        self._opener = opener
        self._folder = folder
        self._names: tuple[str, ...] = ()
        self._rows: Rows | None = None

    def rows(self, names: tuple[str, ...]) -> Rows:
        if self._rows is None or names != self._names:
            self.close()
            self._rows, self._names = self._opener(self._folder, names), names
        return self._rows

    def close(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()


class Files:
    """The elements of all files, `epochs` times (0: without end). A position is (epoch, file,
    place).
    """

    def __init__(self, info: ResourceInfo, state: State, opener: Opener) -> None:
        self._info = info
        self._what = f"the reader {info.name!r}"
        self._folder = state.folder  # not the state, which a thread would keep alive
        self._open = opener
        self._patterns = info.texts("files")
        self._epochs = info.number("epochs", 0, 1 << 31, 1)
        self._names: list[tuple[str, ...]] | None = None
        if not self._patterns:
            raise info.error("the attribute files is missing")
        for pattern in self._patterns:
            check_relative(pattern, self._what)

    def names(self) -> list[tuple[str, ...]]:
        """The files that go together, one for each pattern."""
        if self._names is None:
            folder = root(self._folder, self._what)
            found = [matching(folder, pattern, self._what) for pattern in self._patterns]
            counts = [len(names) for names in found]
            if len(set(counts)) > 1:
                listed = " and ".join(map(str, counts))
                raise StateError(f"{self._what}: its patterns name {listed} files")
            self._names = list(zip(*found, strict=True))
        return self._names

    def chunks(self, position: Position) -> Iterator[tuple[Columns, list[Position]]]:
        epoch, file, place = position or (0, 0, 0)
        names = self.names()
        with closing(_Last(self._open, root(self._folder, self._what))) as last:
            while not self._epochs or epoch < self._epochs:
                found = file > 0 or place > 0
                while file < len(names):
                    for columns, places in last.rows(names[file]).read(place):
                        found = True
                        yield columns, [(epoch, file, behind) for behind in places]
                    file, place = file + 1, 0
                if not found:
                    raise StateError(f"{self._what}: its files hold no elements")
                epoch, file = epoch + 1, 0

    def described(self, position: Position) -> dict[str, Any]:
        return {"files": self._digest(), "at": list(position or (0, 0, 0))}

    def checked(self, described: Any) -> Position:
        at = described["at"]
        fits = len(at) == 3 and all(isinstance(n, int) and n >= 0 for n in at)
        if not fits or at[1] >= len(self.names()):
            raise StateError(f"{self._what}: the checkpoint's position {at!r} is none")
        if described["files"] != self._digest():
            raise StateError(f"{self._what}: its files are not those that the checkpoint was at")
        return tuple(at)

    def _digest(self) -> str:
        """Tells apart lists of files; not what is in them."""
        return hashlib.sha256(json.dumps(self.names()).encode()).hexdigest()


class Reader:
    """Batches of elements, up to `prefetch` of them read ahead."""

    def __init__(self, info: ResourceInfo, source: Files) -> None:
        self.info = info
        self.batch = info.number("batch", 1, LARGEST_BATCH, 1)
        self._depth = info.number("prefetch", 1, MOST_AHEAD, 2)
        self._source = source
        self._position: Position = None
        self._ahead: Ahead | None = None
        self._feeds = ""

    def read(self, context: Context) -> list[Array]:
        """The next batch, by component; OutOfRangeError where too few elements are left."""
        if self._feeds:
            raise self.info.error(f"its elements go to the queue {self._feeds!r}")
        while True:
            context.check()
            with context.state.lock:
                ahead = self._reading()
                found = ahead.take()
                if found is not None:
                    rows, self._position = found
                    return rows
            with unlocked(context.state):
                ahead.wait(LOOK_SECONDS)

    def _reading(self) -> Ahead:
        """The thread that reads ahead, which is started where there is none."""
        if self._ahead is None or not self._ahead.is_alive():
            self._ahead = Ahead(
                self._source, self._position, self.batch, self._depth, self.info.name
            )
        return self._ahead

    def feeding(self, queue: ResourceInfo) -> Files:
        """The source for a queue, which then has all elements."""
        if queue.types != self.info.types:
            raise queue.error(f"its elements are not of the types of the reader {self.info.name!r}")
        if self._feeds not in ("", queue.name):
            raise queue.error(f"the reader {self.info.name!r} feeds {self._feeds!r} already")
        self._feeds = queue.name
        return self._source

    def stop(self) -> None:
        """Ends its thread."""
        if self._ahead is not None:
            self._ahead.stop()

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Its state as JSON; no arrays."""
        return self._source.described(self._position), {}

    def restored(
        self, described: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> Callable[[], None]:
        """Checks a state, and gives what makes it the reader's own."""
        position = self._source.checked(described)

        def apply() -> None:
            self.stop()
            self._ahead, self._position = None, position

        return apply


# ---- the kinds of readers


def _checked(info: ResourceInfo, *attributes: str) -> None:
    info.only("files", "batch", "prefetch", "epochs", *attributes)
    if not info.types:
        raise info.error("the types of its elements are missing")
    for kind in info.types:
        size = math.prod(kind.shape) * storage_dtype(kind.dtype).itemsize
        if not 0 < size <= LARGEST_ELEMENT:
            raise info.error(f"an element of {size} bytes cannot be read")


@resource_kind("npy_reader")
def npy_reader(info: ResourceInfo, state: State) -> Reader:
    """The rows of arrays in `.npy` files; `files` is a pattern for each component."""
    _checked(info)
    what, kinds = f"the reader {info.name!r}", info.types
    if len(info.texts("files")) != len(kinds):
        raise info.error(f"files must be {len(kinds)} patterns, one for each component")
    return Reader(info, Files(info, state, lambda f, names: open_npys(f, names, kinds, what)))


@resource_kind("safetensors_reader")
def safetensors_reader(info: ResourceInfo, state: State) -> Reader:
    """The rows of arrays in safetensors files; `names` names the array of each component."""
    _checked(info, "names")
    what, kinds, arrays = f"the reader {info.name!r}", info.types, info.texts("names")
    _one_pattern(info)
    if len(arrays) != len(kinds):
        raise info.error(f"names must be {len(kinds)} texts, one for each component")
    return Reader(
        info,
        Files(info, state, lambda f, names: open_safetensors(f, names[0], arrays, kinds, what)),
    )


@resource_kind("tfrecord_reader")
def tfrecord_reader(info: ResourceInfo, state: State) -> Reader:
    """The records of TFRecord files, each the bytes of the components, one after another."""
    _checked(info, "format")
    what, kinds = f"the reader {info.name!r}", info.types
    _one_pattern(info)
    if info.attributes.get("format", "raw") != "raw":
        raise info.error(
            f'the format {info.attributes["format"]!r} is not supported: only "raw" is, the '
            "elements' bytes; write records of tf.train.Example as such"
        )
    return Reader(info, Files(info, state, lambda f, names: Records(f, names[0], kinds, what)))


def _one_pattern(info: ResourceInfo) -> None:
    if len(info.texts("files")) != 1:
        raise info.error("files must be one pattern")


@host_op("read_batch")
def read_batch(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """The next elements, stacked."""
    reader = context.state.resource(attributes["resource"])
    assert isinstance(reader, Reader), "the compiler checked the kind"
    return reader.read(context)
