"""Runs kernels in this process: for tests and measurements, never in a bundle."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tfc.backends.llvm.compile import compile_kernel_text, prepare
from tfc.backends.llvm.lower import KernelCode, lower_kernel
from tfc.ir.core import Kernel
from tfc.ir.expr import as_expr
from tfc.targets import Target, resolve
from tfc.tile.interpret import kernel_symbols

Array: TypeAlias = "np.ndarray[Any, Any]"


class ErrorRecord(ctypes.Structure):
    """tfc_error of tfc_abi.h."""

    _fields_ = (
        ("code", ctypes.c_int32),
        ("where", ctypes.c_int32),
        ("axis", ctypes.c_int64),
        ("actual", ctypes.c_int64),
        ("expected", ctypes.c_int64),
        ("node", ctypes.c_char_p),
    )


class LoadedCode:
    """An object in memory: the addresses of its functions, as long as this lives."""

    def __init__(self, code: bytes) -> None:
        llvm = prepare()
        target = llvm.Target.from_default_triple()
        empty = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(empty, target.create_target_machine(jit=True))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        found = self._engine.get_function_address(symbol)
        assert found, f"the object has no function {symbol}"
        return found


class RunnableKernel:
    """A compiled kernel: called with flat arrays and the values of symbols."""

    def __init__(self, kernel: Kernel, code: KernelCode, loaded: LoadedCode) -> None:
        self.kernel = kernel
        self.code = code
        self._loaded = loaded
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
        self._function = kind(loaded.address(code.symbol))
        self._symbols = kernel_symbols(kernel)

    def prepare(
        self, arrays: Sequence[Array], symbols: Mapping[str, int], grain: int | None = None
    ) -> PreparedCall:
        total = 1
        for _, extent in self.kernel.grid:
            total *= max(0, as_expr(extent).evaluate(symbols))
        return PreparedCall(
            self, arrays, [symbols[n] for n in self._symbols], total, grain or total
        )

    def __call__(
        self, arrays: Sequence[Array], symbols: Mapping[str, int], grain: int | None = None
    ) -> None:
        """Runs all programs; raises IndexError where the kernel reports one."""
        call = self.prepare(arrays, symbols, grain)
        call.run()
        if call.error.code:
            raise IndexError(f"index {call.error.actual} of an axis of {call.error.expected}")


class PreparedCall:
    """The arguments of a kernel, ready to run again and again."""

    def __init__(
        self,
        kernel: RunnableKernel,
        arrays: Sequence[Array],
        symbols: Sequence[int],
        total: int,
        grain: int,
    ) -> None:
        self.error = ErrorRecord()
        self._kernel = kernel
        self._arrays = list(arrays)
        self.tasks = -(-total // max(1, grain))
        self._scratch = np.zeros(kernel.code.scratch_bytes * max(1, self.tasks) + 64, np.uint8)
        scratch = -(-self._scratch.ctypes.data // 64) * 64
        slots = [a.ctypes.data for a in arrays] + list(symbols)
        slots += [ctypes.addressof(self.error), grain, total, scratch]
        self._slots = np.array(slots, np.int64)
        self._address = self._slots.ctypes.data

    def run(self) -> None:
        for task in range(self.tasks):
            self._kernel._function(self._address, task)


def jit_kernels(
    kernels: Sequence[Kernel], target: str | Target = "host", opt_level: int = 3
) -> list[RunnableKernel]:
    """Compiles kernels, which may share a name."""
    level = resolve(target) if isinstance(target, str) else target
    codes = [lower_kernel(k, level, f"{k.name}_{i}") for i, k in enumerate(kernels)]
    return [
        RunnableKernel(k, c, LoadedCode(compile_kernel_text(c.text, level, opt_level=opt_level)))
        for k, c in zip(kernels, codes, strict=True)
    ]


def jit_kernel(
    kernel: Kernel, target: str | Target = "host", opt_level: int = 3
) -> Callable[[Sequence[Array], Mapping[str, int]], None]:
    """A kernel as a function of flat arrays and symbols."""
    return jit_kernels([kernel], target, opt_level)[0]
