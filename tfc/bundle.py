"""Writes bundles: `write(path, BundleSpec)` makes one file of code, weights, manifest and loader.

What the bytes are depends on the spec alone. Weights are asked for one at a time and go straight to
the file. A build that fails or is killed leaves the old file, or none.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, TypeAlias

from tfc.bundle_elf import MACHINES, machine_of
from tfc.bundle_files import replaced_file
from tfc.ir.errors import TfcError
from tfc.runtime import container
from tfc.runtime.abi import ABI
from tfc.runtime.container import Extent, Member
from tfc.runtime.index import (
    DTYPES,
    MAXIMUM_NAME,
    MAXIMUM_RANK,
    FunctionInfo,
    Index,
    MemberInfo,
    SymbolInfo,
    TargetInfo,
    TensorInfo,
    decode,
    encode,
)

Buffer: TypeAlias = "bytes | bytearray | memoryview"

RUNTIME = Path(__file__).parent / "runtime"
MANIFEST_FORMAT = 1
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_ZEROS = bytes(1 << 16)

_MAIN = """\
# Runs this bundle: ./model.tfb --help
import sys

if sys.version_info < (3, 11):
    sys.exit("this bundle needs Python 3.11 or newer")
try:
    import numpy  # noqa: F401
except ImportError:
    sys.exit("this bundle needs numpy: pip install numpy")
from tfc_runtime.main import main

sys.exit(main(sys.argv[0]))
"""


@dataclass(frozen=True)
class CodeSpec:
    """A linked shared object, and the processor features (as in /proc/cpuinfo) that it needs."""

    data: bytes
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class Weight:
    """A piece of the weights: `produce` gives its bytes (anything contiguous with a buffer)."""

    offset: int
    size: int
    produce: Callable[[], object]


@dataclass(frozen=True)
class BundleSpec:
    """All that goes into a bundle.

    functions: dims as tfc's text has them (`B`, `(S+1)`), symbols in the order of the array that
        compiled code uses; the bundle shows the model's own names of the symbols.
    code: by target name; the loader prefers the target that needs most features.
    weights: pieces that do not overlap; what lies between them is zero.
    variables: state of the functions, in the order that compiled code uses; sizes are numbers.
    manifest: further entries of manifest.json (pipeline, tools, kernels, memory plan, ...).
    """

    functions: tuple[FunctionInfo, ...]
    code: Mapping[str, CodeSpec]
    weights: Sequence[Weight] = ()
    variables: tuple[TensorInfo, ...] = ()
    license: str | None = None
    manifest: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Written:
    """What was written: the manifest's hash (for `load(sha256=...)`) and the sizes."""

    sha256: str
    size: int
    members: Mapping[str, int]


def write(path: str | Path, spec: BundleSpec) -> Written:
    """Writes the bundle. Raises TfcError where names clash or the file cannot be written."""
    functions = tuple(map(_shown, spec.functions))
    _check_names("function", [f.name for f in functions])
    _check_names("variable", [v.name for v in spec.variables])
    weights = _ordered_weights(spec.weights)
    targets = sorted(spec.code.items(), key=lambda item: (-len(item[1].requires), item[0]))
    with replaced_file(Path(path), executable=True) as file:
        return _Writer(file).write(spec, functions, targets, weights)


class _Writer:
    """Appends members to a file, with their headers."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._headers: list[int] = []
        self._members: list[MemberInfo] = []
        file.write(container.PREFIX)
        self._position = len(container.PREFIX)

    def write(
        self,
        spec: BundleSpec,
        functions: tuple[FunctionInfo, ...],
        targets: Sequence[tuple[str, CodeSpec]],
        weights: Sequence[Weight],
    ) -> Written:
        hosted = any(f.host_ops for f in functions)
        for name, data in _carried_files(spec.license, hosted=hosted):
            self._add(name, len(data), [data])
        infos: list[TargetInfo] = []
        for name, code in targets:
            infos.append(_target_info(name, code, len(self._members)))
            self._add(f"code/{name}.so", len(code.data), [code.data])
        if weights:
            last = weights[-1]
            self._add("weights", last.offset + last.size, _weight_chunks(weights))
        index = encode(Index(ABI, tuple(self._members), tuple(infos), functions, spec.variables))
        decode(index)  # what the loader would refuse is refused here
        self._add(container.INDEX_NAME, len(index), [index])
        manifest = _manifest(spec, functions, infos, self._members)
        self._add(container.MANIFEST_NAME, len(manifest), [manifest])
        return self._finish()

    def _add(self, name: str, size: int, chunks: Sequence[bytes] | Iterator[Buffer]) -> None:
        """Writes header and data; the header goes last, since it holds the data's checksum."""
        start = self._position
        offset = start + len(container.local_header(start, name, size, 0))
        self._file.seek(offset)
        digest, crc, written = hashlib.sha256(), 0, 0
        for chunk in chunks:
            self._file.write(chunk)
            digest.update(chunk)
            crc = zlib.crc32(chunk, crc)
            written += len(chunk)
        assert written == size, f"{name} has {written} bytes instead of {size}"
        self._file.seek(start)
        self._file.write(container.local_header(start, name, size, crc))
        self._position = offset + size
        self._file.seek(self._position)
        self._headers.append(start)
        self._members.append(MemberInfo(name, offset, size, crc, digest.digest()))

    def _finish(self) -> Written:
        index, manifest = (Extent(m.offset, m.size, m.sha256) for m in self._members[-2:])
        members = [Member(m.name, m.offset, m.size, m.crc) for m in self._members]
        end = container.directory(members, self._headers, container.trailer(index, manifest))
        self._file.write(end)
        sizes = {m.name: m.size for m in self._members}
        return Written(manifest.sha256.hex(), self._position + len(end), sizes)


def header_text() -> str:
    """tfc.h in one piece: the loader with the ABI's declarations in it."""
    loader = (RUNTIME / "tfc.h").read_text()
    declarations = (RUNTIME / "tfc_abi.h").read_text()
    line = '#include "tfc_abi.h"\n'
    assert loader.count(line) == 1, "tfc.h includes tfc_abi.h once"
    return loader.replace(line, declarations)


def _carried_files(license_text: str | None, *, hosted: bool) -> Iterator[tuple[str, bytes]]:
    """Everything but code and data: what runs the bundle, and what C programs need.

    What runs host ops (queues, readers, files) comes along only where there are any.
    """
    if license_text is not None:
        yield "LICENSE", license_text.encode()
    yield "__main__.py", _MAIN.encode()
    yield "include/example.c", (RUNTIME / "example.c").read_bytes()
    yield "include/tfc.h", header_text().encode()
    names = [path.name for path in RUNTIME.glob("*.py")] if hosted else _imported("__init__.py")
    for name in sorted({*names, *_imported("main.py")}):
        yield f"tfc_runtime/{name}", (RUNTIME / name).read_bytes()


def _imported(name: str) -> list[str]:
    """The files of the runtime that one of them imports when it is, and itself."""
    found = [name]
    for file in found:  # which grows
        text = (RUNTIME / file).read_text()
        imports = re.findall(r"^from \.(\w*) import (\(?[\w, ]*)", text, re.M)
        for module, items in imports:
            names = [module] if module else re.findall(r"\w+", items)
            paths = [f"{n}.py" for n in names if (RUNTIME / f"{n}.py").exists()]
            found += [path for path in paths if path not in found]
    return found


def _weight_chunks(weights: Sequence[Weight]) -> Iterator[Buffer]:
    position = 0
    for weight in weights:
        while position < weight.offset:
            gap = min(weight.offset - position, len(_ZEROS))
            yield _ZEROS[:gap]
            position += gap
        view = memoryview(weight.produce()).cast("B")  # type: ignore[arg-type]
        assert len(view) == weight.size, f"a weight of {weight.size} bytes gave {len(view)}"
        yield view
        position += weight.size


def _ordered_weights(weights: Sequence[Weight]) -> list[Weight]:
    ordered = sorted((w for w in weights if w.size), key=lambda w: w.offset)
    for first, second in pairwise(ordered):
        assert first.offset + first.size <= second.offset, f"weights overlap at {second.offset}"
    assert not ordered or ordered[0].offset >= 0, "a weight has a negative offset"
    return ordered


def _target_info(name: str, code: CodeSpec, member: int) -> TargetInfo:
    machine = machine_of(code.data)
    if machine not in MACHINES:
        raise TfcError(f"target {name} is for ELF machine {machine}, which no loader knows")
    return TargetInfo(name, member, machine, code.requires)


def _shown(function: FunctionInfo) -> FunctionInfo:
    """The signature with the model's own names in place of symbols."""
    names = {s.symbol: s.name for s in function.symbols}
    for kind, tensors in (("input", function.inputs), ("output", function.outputs)):
        _check_names(f"{kind} of {function.name}", [t.name for t in tensors])
    inputs = tuple(_shown_tensor(t, names) for t in function.inputs)
    outputs = tuple(_shown_tensor(t, names) for t in function.outputs)
    return replace(function, inputs=inputs, outputs=outputs)


def _shown_tensor(tensor: TensorInfo, names: Mapping[str, str]) -> TensorInfo:
    if tensor.dtype not in DTYPES:
        raise TfcError(f"tensor {tensor.name} has type {tensor.dtype}, which a bundle cannot hold")
    if len(tensor.dims) > MAXIMUM_RANK:
        raise TfcError(f"tensor {tensor.name} has more than {MAXIMUM_RANK} dimensions")
    dims = tuple(d if isinstance(d, int) else _renamed(d, names) for d in tensor.dims)
    return TensorInfo(tensor.name, tensor.dtype, dims)


def _renamed(expression: str, names: Mapping[str, str]) -> str:
    return _IDENTIFIER.sub(lambda match: names.get(match[0], match[0]), expression)


def _check_names(kind: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise TfcError(f"the {kind} {name!r} occurs twice; a bundle needs different names")
        if "\0" in name or len(name.encode()) > MAXIMUM_NAME:
            raise TfcError(f"the {kind} {name[:40]!r} has a name that a bundle cannot hold")


def _manifest(
    spec: BundleSpec,
    functions: Sequence[FunctionInfo],
    targets: Sequence[TargetInfo],
    members: Sequence[MemberInfo],
) -> bytes:
    own: dict[str, object] = {
        "format": MANIFEST_FORMAT,
        "abi": ABI,
        "functions": [_function_entry(f) for f in functions],
        "variables": [_tensor_entry(v) for v in spec.variables],
        "targets": [
            {"name": t.name, "machine": MACHINES[t.machine], "requires": list(t.requires)}
            for t in targets
        ],
        "members": {m.name: {"size": m.size, "sha256": m.sha256.hex()} for m in members},
    }
    clash = own.keys() & spec.manifest.keys()
    assert not clash, f"the manifest's own entries {sorted(clash)} cannot be overridden"
    text = json.dumps({**own, **spec.manifest}, indent=1, sort_keys=True, ensure_ascii=False)
    return text.encode() + b"\n"


def _tensor_entry(info: TensorInfo) -> dict[str, object]:
    return {"name": info.name, "dtype": info.dtype, "dims": list(info.dims)}


def _function_entry(function: FunctionInfo) -> dict[str, object]:
    return {
        "name": function.name,
        "inputs": [_tensor_entry(t) for t in function.inputs],
        "outputs": [_tensor_entry(t) for t in function.outputs],
        "stateful": function.stateful,
        "symbols": [
            {"name": s.name, "symbol": s.symbol, "minimum": s.minimum, "maximum": s.maximum}
            for s in function.symbols
        ],
    }


__all__ = [
    "BundleSpec",
    "CodeSpec",
    "FunctionInfo",
    "SymbolInfo",
    "TensorInfo",
    "Weight",
    "Written",
    "header_text",
    "write",
]
