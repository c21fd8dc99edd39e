"""Compiles printed kernels to GPU code: no GPU, no torch, no driver; the same bytes for the same
source.

Triton is called with an explicit target, without line information (which would hold paths) and
without fusing multiplications and additions that the kernel keeps apart. What ptxas says of
registers and spills is kept.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfc.backends.triton.modules import triton_module
from tfc.ir.errors import TfcError

if TYPE_CHECKING:
    from tfc.backends.triton.source import Source
    from tfc.ir.core import Kernel

ALIGNMENT = 16  # bytes; what buffers must be aligned to
_LOCK = threading.Lock()  # Triton's options and its log are those of the process


@dataclass(frozen=True)
class Compiled:
    """GPU code of one kernel and what it takes to run.

    `registers` are those of a thread; `spills` the bytes that a thread stores to memory and loads
    from there for want of registers; `stack` the bytes of its frame; `shared` the bytes of a
    program's shared memory. The arguments of the launch are those of `source`, then Triton's two
    scratch pointers, which are null.
    """

    source: Source
    arch: str
    cubin: bytes
    ptx: str
    warps: int
    registers: int
    spills: int
    stack: int
    shared: int

    @property
    def load_widths(self) -> dict[str, int]:
        """How many loads from global memory there are of each width in bits, copies to shared
        memory too.
        """
        widths: Counter[int] = Counter()
        for vector, bits in re.findall(
            r"ld\.global\S*?(?:\.v(\d))?\.[bfus](\d+) ", re.sub(r"L1::\w+\.", "", self.ptx)
        ):
            widths[int(vector or 1) * int(bits)] += 1
        for size in re.findall(
            r"cp\.async\.c[ag]\.shared\.global\S* \[[^]]*\], \[[^]]*\], (\S+?)[,;]", self.ptx
        ):
            widths[8 * int(size, 0)] += 1
        return {str(bits): n for bits, n in sorted(widths.items(), reverse=True)}

    @property
    def tensor_cores(self) -> tuple[str, ...]:
        """The matrix instructions that the code uses."""
        return tuple(sorted(set(re.findall(r"\b(w?g?mma[.\w]*)", self.ptx)) - {"wgmma"}))


def compile_kernel(
    kernel: Kernel,
    arch: str = "sm_90",
    *,
    warps: int | None = None,
    stages: int | None = None,
    precision: str = "",
    wide: bool = False,
) -> Compiled:
    """The GPU code of a kernel; warps and stages are the kernel's own where they are not given.

    Raises UnsupportedError for what Triton does not have.
    """
    from tfc.backends.triton.printer import print_kernel

    source = print_kernel(kernel, precision=precision, wide=wide)
    return compile_source(source, arch, warps=warps, stages=stages)


def compile_source(
    source: Source, arch: str = "sm_90", *, warps: int | None = None, stages: int | None = None
) -> Compiled:
    """The GPU code of a printed kernel."""
    warps, stages = warps or source.warps, stages or source.stages
    options = {
        "num_warps": warps,
        "num_stages": stages,
        "enable_fp_fusion": False,  # a * b + c is rounded twice unless the kernel says fma
        "enable_reflect_ftz": False,  # libdevice keeps subnormal numbers
    }
    with _LOCK:
        made, log = _compiled(source, arch, options)
    return Compiled(
        source=source,
        arch=arch,
        cubin=made.asm["cubin"],
        ptx=made.asm["ptx"],
        warps=made.metadata.num_warps,
        registers=_figure(r"Used (\d+) registers", log),
        spills=_figure(r"(\d+) bytes spill stores", log) + _figure(r"(\d+) bytes spill loads", log),
        stack=_figure(r"(\d+) bytes stack frame", log),
        shared=made.metadata.shared,
    )


def _figure(pattern: str, log: str) -> int:
    found = re.findall(pattern, log)
    assert found, f"ptxas did not say {pattern!r}: {log!r}"
    return max(map(int, found))


def _compiled(source: Source, arch: str, options: dict[str, Any]) -> tuple[Any, str]:
    """What Triton makes of a source, and what ptxas said."""
    triton = triton_module()
    function = _function(source)
    pointers = [i for i, a in enumerate(source.arguments) if a.type.startswith("*")]
    ast = triton_module("triton.compiler").ASTSource(
        fn=function,
        signature={a.name: a.type for a in source.arguments},
        attrs={(i,): [["tt.divisibility", ALIGNMENT]] for i in pointers},
    )
    gpu = triton_module("triton.backends.compiler").GPUTarget("cuda", capability(arch), 32)
    log = io.StringIO()
    with _options(), contextlib.redirect_stdout(log):
        try:
            made = triton.compile(ast, target=gpu, options=options)
        except triton.CompilationError as error:
            raise AssertionError(
                f"Triton refuses what we printed: {error}\n{source.text}"
            ) from error
    return made, log.getvalue()


def _function(source: Source) -> Any:
    """The kernel as a function that Triton compiles; Triton reads its text through `linecache`."""
    file = f"<{source.name}.triton.py>"
    text = source.text
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"__name__": "kernel"}
    exec(compile(text, file, "exec"), names)
    return names[source.name]


@contextlib.contextmanager
def _options() -> Generator[None]:
    """Triton's own settings: nothing is read from a cache or from the environment, nothing is left
    behind.
    """
    knobs = triton_module("triton.knobs")
    with (
        tempfile.TemporaryDirectory(prefix="tfc-triton-") as folder,
        knobs.cache.scope(),
        knobs.compilation.scope(),
        knobs.nvidia.scope(),
    ):
        knobs.cache.dir = folder
        knobs.compilation.always_compile = True
        knobs.compilation.disable_line_info = True
        knobs.nvidia.dump_ptxas_log = True
        yield


def capability(arch: str) -> int:
    """90 for "sm_90"."""
    found = re.fullmatch(r"sm_(\d+)", arch)
    if found is None:
        raise TfcError(f"no GPU is named {arch!r}", hint="sm_80, sm_90 or sm_100, say")
    return int(found[1])
