"""Compiles LLVM text to objects: position-independent, the same bytes for the same text and target.

LLVM's machine scheduler stays on: it keeps the accumulators of a register tile in registers where
the order of the text would spill (convolution 14x32: 70 % of the peak without it, 97 % with it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tfc.backends.llvm.objects import undefined_symbols

if TYPE_CHECKING:
    from tfc.targets import Target

ALLOWED_SYMBOLS = frozenset(("memcpy", "memmove", "memset"))
"""What an object may need from libc."""
OWN_SYMBOLS = ("tfc_", "kernel.", "_GLOBAL_OFFSET_TABLE_")
"""How names begin that other objects of the bundle define (support, kernels) or the linker."""


@cache
def prepare() -> Any:
    """LLVM, ready to compile for every target. llvmlite is imported here: it takes 50 ms."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def _machine(target: Target, opt_level: int, *, jit: bool = False) -> Any:
    llvm = prepare()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=opt_level,
        reloc="pic",
        codemodel="small",
        jit=jit,
    )


def _optimised(text: str, target: Target, opt_level: int) -> tuple[Any, Any]:
    """The module after LLVM's passes, and the machine that can emit it."""
    llvm = prepare()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = _machine(target, opt_level)
    options = llvm.create_pipeline_tuning_options(opt_level)
    if opt_level == 0:  # instruction selection stops at some operations on constants
        constants = llvm.create_new_module_pass_manager()
        constants.add_sccp_pass()
        constants.run(module, llvm.create_pass_builder(machine, options))
    # Vectors and unrolling are chosen by the lowering.
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def compile_kernel_text(text: str, target: Target, *, opt_level: int = 3) -> bytes:
    """An object file of a module's text, which needs nothing beyond libc's memory functions."""
    module, machine = _optimised(text, target, opt_level)
    data = machine.emit_object(module)
    _check_symbols(data)
    return data


def _check_symbols(data: bytes) -> None:
    """Functions that LLVM calls by itself (of libm, of a compiler's library) must not come in."""
    foreign = [
        name
        for name in undefined_symbols(data)
        if name not in ALLOWED_SYMBOLS and not name.startswith(OWN_SYMBOLS)
    ]
    assert not foreign, f"generated code calls {', '.join(foreign)}"


def emit_asm(text: str, target: Target, *, opt_level: int = 3) -> str:
    """The same as assembly."""
    module, machine = _optimised(text, target, opt_level)
    return machine.emit_assembly(module)


def optimise_text(text: str, target: Target, *, opt_level: int = 3) -> str:
    """The LLVM text after LLVM's passes."""
    module, _ = _optimised(text, target, opt_level)
    return str(module)


def compile_many(
    texts: Sequence[str],
    target: Target,
    opt_level: int = 3,
    progress: Callable[[int, int], None] | None = None,
) -> list[bytes]:
    """The objects of texts, compiled on all cores, or found in the cache; `progress(done, all)`."""
    from tfc.backends.llvm.pool import CompilePool

    with CompilePool() as pool:
        return pool.compile(texts, target, opt_level=opt_level, progress=progress)
