"""Checkpoints: variables and the state of resources, in one safetensors file for each step.

A file `PATH-STEP.safetensors` is whole or not there, whenever the process is killed. It holds each
variable by its name, the elements of a queue as `@NAME/COMPONENT`, and in its metadata the state of
the resources as JSON and the SHA-256 of all that, which is checked before anything is restored.

Source: arXiv 1603.04467, section 3.3.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import StateError
from .host import Context, OutputType, host_op
from .paths import inside, opened, root
from .safetensors import contents_hash, encoded, read_array, read_header, write_file
from .state import State
from .tensors import Array

FORMAT = "tfc-checkpoint-1"
SUFFIX = ".safetensors"
_HASH = "sha256"


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: arrays with the names of their element types, and JSON.

    `unassigned` are the variables that had no value, `resources` the state of each resource.
    """

    step: int
    arrays: dict[str, tuple[str, Array]]
    unassigned: list[str]
    resources: dict[str, Any]

    def metadata(self) -> dict[str, str]:
        return {
            "format": FORMAT,
            "step": str(self.step),
            "unassigned": json.dumps(self.unassigned),
            "resources": json.dumps(self.resources),
        }


# ---- taking and giving back the state


def snapshot(state: State, names: Sequence[str], step: int) -> Checkpoint:
    """Variables and resources of some names at one moment."""
    found = Checkpoint(step, {}, [], {})
    with state.lock:
        for name in names:
            if name in state.resources:
                described, arrays = state.resource(name).snapshot()
                found.resources[name] = described
                for part, array in arrays.items():
                    found.arrays[f"@{name}/{part}"] = _stored(array)
            elif state.is_assigned(name):
                found.arrays[name] = _stored(state.read(name))
            else:
                found.unassigned.append(name)
    return found


def restore(state: State, names: Sequence[str], held: Checkpoint, what: str) -> None:
    """Gives the state what a checkpoint holds, all or, where anything does not fit, nothing."""
    known = {n for n in (*held.arrays, *held.unassigned) if not n.startswith("@")}
    known.update(held.resources)
    if known != set(names):
        missing = sorted(set(names) - known) or sorted(known - set(names))
        kind = "does not hold" if set(names) - known else "also holds"
        raise StateError(f"{what} {kind} {', '.join(map(repr, missing))}")
    with state.lock:
        changes = [_change(state, name, held, what) for name in names]
        for change in changes:
            change()


def _change(state: State, name: str, held: Checkpoint, what: str) -> Callable[[], None]:
    """Checks what is held of a name, and gives what makes it the state's own."""
    if name in held.resources:
        start = f"@{name}/"
        parts = {n[len(start) :]: a for n, (_, a) in held.arrays.items() if n.startswith(start)}
        try:
            return state.resource(name).restored(held.resources[name], parts)
        except (KeyError, TypeError, AttributeError) as error:
            raise StateError(f"{what} holds another kind of resource for {name!r}") from error
    if name in held.unassigned:
        return lambda: state.forget(name)
    dtype, array = held.arrays[name]
    wanted, shape = state.type_of(name)
    if array.dtype != _bits(wanted) or array.shape != shape or _is_bf16(wanted, dtype):
        raise StateError(
            f"{what} holds {dtype}{list(array.shape)} for the variable {name!r}, "
            f"which is {wanted}{list(shape)}"
        )
    return lambda: state.write(name, array.view(wanted))


def _stored(array: Array) -> tuple[str, Array]:
    """An array with our name of its element type; bf16 as its bits."""
    if array.dtype.name == "bfloat16":
        return "bf16", array.view(np.uint16)
    kind = "bool" if array.dtype.kind == "b" else f"{array.dtype.kind}{8 * array.dtype.itemsize}"
    return kind, array


def _bits(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.uint16) if dtype.name == "bfloat16" else dtype


def _is_bf16(wanted: np.dtype[Any], dtype: str) -> bool:
    """Whether numbers of 16 bits would be taken for bf16."""
    return wanted.name == "bfloat16" and dtype not in ("bf16", "u16")


# ---- files


def save(folder: str, path: str, held: Checkpoint, keep: int) -> None:
    """Writes a checkpoint, then removes those of the smallest steps but `keep`."""
    full = inside(folder, f"{path}-{held.step}{SUFFIX}", "save")
    metadata = held.metadata()
    metadata[_HASH] = contents_hash(held.arrays, metadata)
    try:
        os.makedirs(os.path.dirname(full), exist_ok=True)
        write_file(full, encoded(held.arrays, metadata))
        for step in sorted(_steps(folder, path))[:-keep]:
            if step != held.step:
                os.unlink(inside(folder, f"{path}-{step}{SUFFIX}", "save"))
        _remove_partial(folder, path)
    except OSError as error:
        raise StateError(f"cannot save {path!r}: {error.strerror}") from error


def newest(folder: str, path: str) -> tuple[Checkpoint, str] | None:
    """The whole checkpoint of the largest step, and its name; None where there is none at all.

    StateError where all that there are are damaged; of others it warns.
    """
    damage: StateError | None = None
    for step in sorted(_steps(folder, path), reverse=True):
        name = f"{path}-{step}{SUFFIX}"
        try:
            return load(folder, name), name
        except StateError as error:
            warnings.warn(f"{error}; an earlier checkpoint is looked for", stacklevel=2)
            damage = damage or error
    if damage is not None:
        raise damage
    return None


def load(folder: str, name: str) -> Checkpoint:
    """A checkpoint whose hash is right."""
    what = f"the checkpoint {name!r}"
    descriptor, size = opened(folder, name, "restore")
    try:
        header = read_header(descriptor, size, what)
        arrays = {
            n: (e.dtype, read_array(descriptor, header, n, what)) for n, e in header.entries.items()
        }
    finally:
        os.close(descriptor)
    metadata = dict(header.metadata)
    given = metadata.pop(_HASH, "")
    if metadata.get("format") != FORMAT:
        raise StateError(f"{what} is no checkpoint of this format ({FORMAT})")
    if contents_hash(arrays, metadata) != given:
        raise StateError(f"{what} is damaged: its SHA-256 is not the one that it says")
    try:
        unassigned, resources = (json.loads(metadata[k]) for k in ("unassigned", "resources"))
        return Checkpoint(int(metadata["step"]), arrays, list(unassigned), dict(resources))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise StateError(f"{what} is damaged: its metadata is not as it must be") from error


def _steps(folder: str, path: str) -> list[int]:
    """The steps of which there are files."""
    return [int(m[1]) for m in _files(folder, path, rf"-(-?[0-9]{{1,19}}){re.escape(SUFFIX)}")]


def _remove_partial(folder: str, path: str) -> None:
    """Removes what processes that were killed left of their files."""
    for match in _files(folder, path, rf"-[0-9-]{{1,20}}{re.escape(SUFFIX)}\.partial"):
        os.unlink(os.path.join(_folder_of(folder, path), match[0]))


def _files(folder: str, path: str, ending: str) -> list[re.Match[str]]:
    pattern = re.compile(re.escape(os.path.basename(path)) + ending)
    try:
        names = os.listdir(_folder_of(folder, path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StateError(f"cannot look for {path!r}: {error.strerror}") from error
    return [match for name in names if (match := pattern.fullmatch(name))]


def _folder_of(folder: str, path: str) -> str:
    return os.path.dirname(inside(folder, f"{path}-0{SUFFIX}", "the checkpoint"))


# ---- host ops


@host_op("save")
def save_op(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Writes a checkpoint of the step that the operand says."""
    held = snapshot(context.state, attributes["of"], int(arrays[0]))
    folder = root(context.state.folder, "save")
    save(folder, attributes["path"], held, attributes["keep"])
    return []


@host_op("restore")
def restore_op(
    context: Context,
    attributes: Mapping[str, Any],
    arrays: Sequence[Array],
    types: Sequence[OutputType],
) -> list[Array]:
    """Restores the newest whole checkpoint and gives its step; `otherwise` where there is none."""
    path = attributes["path"]
    found = newest(root(context.state.folder, "restore"), path)
    if found is None:
        if attributes["otherwise"] is None:
            raise StateError(f"there is no checkpoint {path!r}")
        return [np.array(attributes["otherwise"], np.int64)]
    held, name = found
    restore(context.state, attributes["of"], held, f"the checkpoint {name!r}")
    return [np.array(held.step, np.int64)]
