"""Compiles a model to a bundle: the whole way, and every stop on it.

The graph is optimised once for all targets; from the schedule on, each target has kernels of its
own over the same weights. Kernels compile in parallel and are cached by content.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfc.ir.core import Block, Function, Module, Op, SymbolRef, Value
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.types import TensorType, Type

if TYPE_CHECKING:
    from tfc.bundle import BundleSpec, Weight
    from tfc.passes.base import Pass
    from tfc.runtime.index import FunctionInfo, TensorInfo
    from tfc.targets import Target

ALIGNMENT = 64
EMIT = ("graph", "tile", "llvm", "triton", "asm", "obj", "bundle")
EMIT_GPU = ("graph", "tile", "triton", "asm")
Progress = Callable[[str, int, int], None]


@dataclass
class Summary:
    """What was written, its size in bytes, and the seconds of each step."""

    path: Path
    size: int = 0
    weights: int = 0
    code: dict[str, int] = field(default_factory=dict[str, int])
    kernels: int = 0
    seconds: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Options:
    """What a compilation was asked for."""

    targets: tuple[str, ...] = ("host",)
    opt_level: int = 3
    dims: Mapping[str, str] = field(default_factory=dict[str, str])
    strict: bool = False
    devices: tuple[str, ...] = ()
    compress: str = ""
    cost: str = ""
    feeds: tuple[str, ...] = ()
    fetches: tuple[str, ...] = ()


def compile(
    source: str | Path | Module,
    output: str | Path,
    *,
    target: str | Sequence[str] = "host",
    opt_level: int = 3,
    dims: Mapping[str, int | str] | None = None,
    emit: str = "bundle",
    strict: bool = False,
    devices: Sequence[str] = (),
    compress: str = "",
    cost: str | Path = "",
    feeds: Sequence[str] = (),
    fetches: Sequence[str] = (),
    progress: Progress | None = None,
) -> Summary:
    """Compiles a `.tfc` or `.onnx` file or a module to a file.

    target: named levels of processors (`tfc.targets`); several go into one bundle. dims: a size or
    bounds ("1..512") for symbolic dimensions, by the model's own name or the symbol. emit: where to
    stop; for `graph` and `tile` the constants go to a safetensors file beside the output. strict:
    refuse reads and writes of one variable that no data or control edge orders. devices: names such
    as "cpu:0" over which the ops are spread, each a thread of its own at the call; compress: "bf16"
    sends 32-bit floats between them as 16; cost: a profile of `tfc bench --profile-out` by which
    they are spread. feeds, fetches: values of the main function, any of its body, that become its
    inputs and its results; the rest goes (the pass `feed-fetch`).

    Raises TfcError for a mistake in the source or the options, UnsupportedError for what cannot be
    compiled.
    """
    if opt_level not in range(4):
        raise TfcError(f"optimisation level {opt_level}", hint="0, 1, 2 or 3")
    if emit not in EMIT:
        raise TfcError(f"cannot emit {emit!r}", hint=f"one of {', '.join(EMIT)}")
    names = (target,) if isinstance(target, str) else tuple(target)
    sizes = {k: str(v) for k, v in (dims or {}).items()}
    spread = tuple(devices), compress, str(cost)
    part = tuple(feeds), tuple(fetches)
    options = Options(names, opt_level, sizes, strict, *spread, *part)
    return _Compilation(source, Path(output), options, progress or _silent).run(emit)


def check_devices(options: Options) -> None:
    """Refuses devices that no bundle has code for, and options that need devices."""
    from tfc.ir.devices import parse_devices

    devices = parse_devices(options.devices)
    wrong = [d for d in devices if d.kind != "cpu"]
    if wrong:
        raise UnsupportedError(
            f"cannot compile for {wrong[0]}: bundles hold no code for GPUs yet",
            hint="`--emit graph` shows what would run where",
        )
    if len({(d.job, d.replica, d.task) for d in devices}) > 1:
        raise UnsupportedError(
            "cannot compile for devices of several machines: a bundle has channels in one process",
            hint="`--emit graph` shows what would run where",
        )
    if (options.compress or options.cost) and not devices:
        raise TfcError("there is nothing to spread", hint="name devices, such as cpu:0,cpu:1")


def _silent(step: str, done: int, total: int) -> None:
    """Shows nothing."""


def load_module(source: str | Path | Module) -> Module:
    """The module of a source, by the ending of its name."""
    if isinstance(source, Module):
        return clone_module(source)
    path = Path(source)
    importlib.import_module("tfc.ops")  # registers the ops of the graph
    importlib.import_module("tfc.tile.ops")  # and those of kernels
    if path.suffix == ".onnx":
        from tfc.importers.onnx import import_onnx

        return import_onnx(path)
    if path.suffix == ".tfc":
        from tfc.text.parse import parse_file

        return parse_file(path)
    raise TfcError(
        f"cannot compile a {path.suffix or 'file without a suffix'}",
        where=str(path),
        hint="give a .tfc or .onnx file",
    )


class _Compilation:
    def __init__(
        self, source: str | Path | Module, output: Path, options: Options, progress: Progress
    ) -> None:
        from tfc.targets import resolve

        self.source, self.output, self.options = source, output, options
        self.progress = progress
        self.targets = [resolve(name) for name in options.targets]
        self.gpu = any(t.gpu is not None for t in self.targets)
        self.summary = Summary(output)
        self._since = time.perf_counter()

    def _step(self, name: str) -> None:
        """Books the time since the last call."""
        now = time.perf_counter()
        self.summary.seconds[name] = self.summary.seconds.get(name, 0) + now - self._since
        self._since = now

    def run(self, emit: str) -> Summary:
        self._check_emit(emit)
        module = load_module(self.source)
        self._step("import")
        self._optimise(module)
        self._step("graph passes")
        if emit == "graph":
            return self._write_text(module)
        kernels = {t.name: self._to_kernels(module, t) for t in self.targets}
        self._step("kernels")
        first = kernels[self.targets[0].name]
        if emit == "tile":
            return self._write_text(first)
        if self.gpu:
            return self._write_gpu_code(first, emit)
        if emit in ("llvm", "asm"):
            return self._write_code(first, emit)
        weights = _Weights(first)
        code = {t.name: self._objects(kernels[t.name], weights, t) for t in self.targets}
        self._step("machine code")
        if emit == "obj":
            return self._write_object(code[self.targets[0].name], self.targets[0])
        return self._write_bundle(first, weights, code)

    def _check_emit(self, emit: str) -> None:
        names = ", ".join(t.name for t in self.targets)
        if self.gpu and (len(self.targets) > 1 or emit not in EMIT_GPU):
            raise UnsupportedError(
                f"cannot emit {emit!r} for {names}: bundles hold no code for GPUs yet",
                hint=f"one GPU, and one of {', '.join(EMIT_GPU)}",
            )
        if emit != "graph":
            check_devices(self.options)
        if emit == "triton" and not self.gpu:
            raise TfcError(f"Triton code is for GPUs, not for {names}", hint="--target sm_90, say")

    # ---- passes

    def _run(self, passes: Sequence[Pass], module: Module, target: Target | None) -> None:
        from tfc.passes.base import PassContext
        from tfc.passes.manager import PassManager
        from tfc.passes.reproducer import Reproducer
        from tfc.report.modules import weight_files

        source = self.source
        files = [] if isinstance(source, Module) else weight_files(Path(source), module)
        reproducer = Reproducer(self.output.with_suffix(".reproducer.tfc"), files)
        context = PassContext(target=target, strict=self.options.strict)
        PassManager(passes, reproducer=reproducer).run(module, context)

    def _optimise(self, module: Module) -> None:
        """The graph passes; in a module that holds groups or kernels, those stay as they are."""
        from tfc.passes.graph.bind_dims import BindDims
        from tfc.passes.graph.feed_fetch import FeedFetch
        from tfc.passes.pipeline_text import parse_pipeline
        from tfc.passes.pipelines import GIVEN, LEVELS

        passes: list[Pass] = []
        if self.options.feeds or self.options.fetches:
            passes.append(FeedFetch(self.options.feeds, self.options.fetches))
        if self.options.dims:
            passes.append(BindDims(tuple(f"{k}:{v}" for k, v in self.options.dims.items())))
        passes += self._device_passes()
        lowered = any(op.name in ("fusion", "launch") for op in module.walk())
        pipeline = GIVEN if lowered else LEVELS[self.options.opt_level]
        self._run([*passes, *(p for e in pipeline for p in parse_pipeline(e))], module, None)

    def _device_passes(self) -> list[Pass]:
        """What spreads a module over several devices, if it is to be."""
        from tfc.passes.graph.partition import Partition
        from tfc.passes.graph.placement import Placement
        from tfc.passes.pipeline_text import parse_pipeline
        from tfc.passes.pipelines import DEVICES

        options = self.options
        if not options.devices:
            return []
        chosen: dict[str, Pass] = {
            "placement": Placement(options.devices, options.cost),
            "partition": Partition(options.compress),
        }
        return [chosen.get(p.name, p) for e in DEVICES for p in parse_pipeline(e)]

    def _device_names(self) -> list[str]:
        """Those passes as text, without the path of the profile."""
        from tfc.passes.graph.placement import Placement

        named = [
            replace(p, cost="") if isinstance(p, Placement) else p for p in self._device_passes()
        ]
        return list(map(str, named))

    def _to_kernels(self, module: Module, target: Target) -> Module:
        from tfc.passes.pipeline_text import parse_pipeline
        from tfc.passes.pipelines import KERNELS

        copy = clone_module(module)
        self._run([p for e in KERNELS for p in parse_pipeline(e)], copy, target)
        return copy

    # ---- code

    def _objects(self, module: Module, weights: _Weights, target: Target) -> list[bytes]:
        """The objects of all kernels and of the functions."""
        from tfc.backends.llvm.compile import compile_many

        texts = _texts(module, weights.offsets(module), target)
        self._step("code generation")
        self.summary.kernels = len(module.kernels)
        return compile_many(
            texts, target, self.options.opt_level, lambda i, n: self.progress("compile", i, n)
        )

    def _write_code(self, module: Module, emit: str) -> Summary:
        from tfc.backends.llvm.compile import emit_asm

        target = self.targets[0]
        texts = _texts(module, _Weights(module).offsets(module), target)
        if emit == "asm":
            texts = [emit_asm(text, target, opt_level=self.options.opt_level) for text in texts]
        return self._write("\n".join(texts).encode())

    def _write_gpu_code(self, module: Module, emit: str) -> Summary:
        """Triton source, or what it compiles to, of all kernels."""
        from tfc.backends.triton.compile import compile_kernel
        from tfc.backends.triton.printer import print_module

        self.summary.kernels = len(module.kernels)
        if emit == "triton":
            return self._write(print_module(module).encode())
        gpu = self.targets[0].gpu
        assert gpu is not None and emit == "asm"
        texts: list[str] = []
        for number, kernel in enumerate(module.kernels.values()):
            self.progress("compile", number, len(module.kernels))
            texts.append(compile_kernel(kernel, gpu.arch).ptx)
        self._step("machine code")
        return self._write("\n".join(texts).encode())

    def _write_text(self, module: Module) -> Summary:
        from tfc.report.modules import save_module

        save_module(module, self.output)
        self.summary.size = self.output.stat().st_size
        return self.summary

    def _write_object(self, objects: list[bytes], target: Target) -> Summary:
        """One shared object, as it lies in a bundle."""
        return self._write(_link(objects, target))

    def _write(self, data: bytes) -> Summary:
        from tfc.bundle_files import replaced_file

        with replaced_file(self.output, executable=False) as file:
            file.write(data)
        self.summary.size = len(data)
        return self.summary

    # ---- bundle

    def _write_bundle(
        self, module: Module, weights: _Weights, code: Mapping[str, list[bytes]]
    ) -> Summary:
        from tfc.bundle import BundleSpec, CodeSpec, write

        linked: dict[str, CodeSpec] = {}
        for target in self.targets:
            data = _link(code[target.name], target)
            linked[target.name] = CodeSpec(data, target.requirements)
            self.summary.code[target.name] = len(data)
        self._step("link")
        spec = BundleSpec(
            tuple(function_info(module, f) for f in module.functions.values()),
            linked,
            weights.pieces(),
            _variables(module),
            manifest=self._manifest(module),
        )
        written = write(self.output, spec)
        self._step("write")
        self.summary.size = written.size
        self.summary.weights = weights.size
        return self.summary

    def _manifest(self, module: Module) -> dict[str, Any]:
        from tfc.passes.pipelines import KERNELS, LEVELS

        entries: dict[str, Any] = {
            "pipeline": [*self._device_names(), *LEVELS[self.options.opt_level], *KERNELS],
            "opt_level": self.options.opt_level,
            "dims": dict(self.options.dims),
            "tools": tool_versions(),
            "host_ops": _host_ops(module),
            "resources": _resources(module),
            "functions_detail": {f.name: _detail(module, f) for f in module.functions.values()},
        }
        if isinstance(self.source, str | Path):
            entries["source_sha256"] = _hash_of(Path(self.source))
        return entries


def _link(objects: list[bytes], target: Target) -> bytes:
    from tfc.bundle_link import compile_support, link

    support = compile_support(target.triple.replace("-unknown-", "-"))  # as zig writes it
    return link([*objects, *support])


def _texts(module: Module, constants: Mapping[Op, int], target: Target) -> list[str]:
    """The LLVM text of each kernel, and last that of the functions."""
    from tfc.backends.llvm.host import emit_host
    from tfc.backends.llvm.host_launch import kernel_symbol
    from tfc.backends.llvm.lower import lower_kernel
    from tfc.passes.graph.memory_planning import plan_memory

    texts: list[str] = []
    scratch: dict[str, int] = {}
    for kernel in module.kernels.values():
        code = lower_kernel(kernel, target, kernel_symbol(kernel.name))
        scratch[kernel.name] = code.scratch_bytes
        texts.append(code.text)
    texts = [re.sub("^define void @", "define hidden void @", text, flags=re.M) for text in texts]
    plans = {f.name: plan_memory(module, f) for f in module.functions.values()}
    return [*texts, emit_host(module, plans, constants, scratch, target.triple)]


def _detail(module: Module, function: Function) -> dict[str, Any]:
    """The launches of a function in order, with the user's nodes that each computes, and the memory
    plan.
    """
    launches: list[dict[str, Any]] = []
    for op in function.body.walk():
        if op.name == "launch":
            kernel = module.kernels[op.attributes["kernel"].name]
            launches.append(
                {
                    "kernel": kernel.name,
                    "nodes": list(op.location.nodes),
                    "grid": [str(n) for _, n in kernel.grid],
                    "offset": [str(o) for o in op.attributes.get("offset", ())],
                    "operands": [str(v.type) for v in op.inputs if not _is_constant(v)],
                    "results": [str(v.type) for v in op.results],
                }
            )
    return {"arena": str(function.attributes.get("arena", 0)), "launches": launches}


def _variables(module: Module) -> tuple[TensorInfo, ...]:
    """The variables as the loader knows them."""
    return tuple(_tensor_info(v.name, v.type) for v in module.variables.values())


def _resources(module: Module) -> list[dict[str, Any]]:
    from tfc.ops.stateful import resource_infos

    return [info.record() for info in resource_infos(module)]


def _host_ops(module: Module) -> list[dict[str, Any]]:
    """What the loader runs for the calls of each function, by their numbers."""
    from tfc.backends.llvm.host_state import host_calls
    from tfc.ops.stateful import HostOp

    records: list[dict[str, Any]] = []
    for function in module.functions.values():
        for number, op in enumerate(host_calls(function)):
            assert isinstance(op, HostOp)
            kind, attributes = op.host_call()
            inputs, outputs = (
                [[v.tensor.dtype.name, v.tensor.rank] for v in values]
                for values in (op.inputs, op.results)
            )
            records.append(
                {
                    "function": function.name,
                    "number": number,
                    "op": kind,
                    "attributes": attributes,
                    "inputs": inputs,
                    "outputs": outputs,
                    "node": ", ".join(op.location.nodes),
                }
            )
    return records


def _is_constant(value: Value) -> bool:
    return value.producer is not None and value.producer.name == "constant"


def function_info(module: Module, function: Function) -> FunctionInfo:
    """The signature of a function as the loader knows it."""
    from tfc.backends.llvm.host import function_symbols
    from tfc.backends.llvm.host_state import host_calls, uses_variables
    from tfc.runtime.index import FunctionInfo, SymbolInfo

    symbols: list[SymbolInfo] = []
    for name in function_symbols(module, function):
        info = module.dims.get(name)
        model_name = (info.model_name if info else "") or name
        low = info.smallest if info and info.smallest is not None else 0
        symbols.append(SymbolInfo(model_name, name, low, info.largest if info else None))
    returned = function.body.terminator.inputs
    return FunctionInfo(
        function.name,
        tuple(_tensor_info(a.name, a.type) for a in function.body.args),
        tuple(
            _tensor_info(n, v.type) for n, v in zip(function.output_names, returned, strict=True)
        ),
        tuple(symbols),
        len(host_calls(function)),
        uses_variables(module, function),
    )


def _tensor_info(name: str, kind: Type) -> TensorInfo:
    """A tensor as the loader knows it."""
    from tfc.runtime.index import TensorInfo

    assert isinstance(kind, TensorType)
    dims = tuple(d if isinstance(d, int) else str(d) for d in kind.shape)
    return TensorInfo(name, kind.dtype.name, dims)


class _Weights:
    """The constants of a module's functions laid out in one file, each content once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.size = 0
        self._places: dict[Any, tuple[int, Op]] = {}
        for function in module.functions.values():
            for op in function.body.walk():
                if op.name == "constant":
                    self._place(op)

    def _key(self, op: Op) -> Any:
        return op.attributes["value"], str(op.result.type)

    def _place(self, op: Op) -> None:
        key = self._key(op)
        if key not in self._places:
            offset = -(-self.size // ALIGNMENT) * ALIGNMENT
            self._places[key] = offset, op
            self.size = offset + int(str(op.result.tensor.bytes))

    def offsets(self, module: Module) -> dict[Op, int]:
        """Where each constant of a module lies: this one, or one for another target."""
        return {
            op: self._places[self._key(op)][0]
            for f in module.functions.values()
            for op in f.body.walk()
            if op.name == "constant"
        }

    def pieces(self) -> list[Weight]:
        """The pieces of the file, each made when it is written."""
        from tfc.bundle import Weight

        return [
            Weight(offset, int(str(op.result.tensor.bytes)), self._producer(op))
            for offset, op in self._places.values()
            if op.result.tensor.bytes != 0
        ]

    def _producer(self, op: Op) -> Callable[[], object]:
        def produce() -> object:
            import numpy as np

            value = op.attributes["value"]
            array = (
                self.module.weights.array(value.name)
                if isinstance(value, SymbolRef)
                else value.array
            )
            layout = op.result.tensor.layout
            packed = layout.pack(array) if layout else np.ascontiguousarray(array)
            return packed.reshape(-1).view(np.uint8).data

        return produce


def clone_module(module: Module) -> Module:
    """A copy of a module; the weights are shared."""
    copy = Module(module.weights, module.name)
    copy.variables, copy.dims = dict(module.variables), dict(module.dims)
    copy.resources, copy.attributes = dict(module.resources), dict(module.attributes)
    for name, f in module.functions.items():
        body: Block = f.body.clone({})
        copy.functions[name] = Function(
            f.name, body, list(f.output_names), dict(f.attributes), f.location
        )
    for name, k in module.kernels.items():
        cloned = type(k)(k.name, k.body.clone({}), list(k.grid), dict(k.attributes), k.location)
        copy.kernels[name] = cloned
    return copy


def tool_versions() -> dict[str, str]:
    """The versions of what has a say in the bytes of a bundle."""
    from importlib.metadata import version

    return {name: version(name) for name in ("tfc", "llvmlite", "ziglang")}


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


__all__ = [
    "BundleSpec",
    "Options",
    "Summary",
    "TensorType",
    "clone_module",
    "compile",
    "load_module",
]
