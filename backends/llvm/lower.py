"""Lowers a kernel of tile ops to the text of an LLVM module.

A kernel `k` becomes `void @k(ptr args, i64 task)` for the executor's parallel_for. `args` are
8-byte slots: the buffers, the values of `kernel_symbols(kernel)`, the call's error (ptr),
programs a task, all programs, and scratch memory (ptr; `KernelCode.scratch_bytes` for each task,
or unused). Task t runs the programs from t * grain on, in the order of the grid, the last
variable fastest.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfc.backends.llvm import errors, loops
from tfc.backends.llvm.lowering import Lowering
from tfc.ir.core import Kernel
from tfc.ir.expr import Expr, as_expr
from tfc.targets import Target
from tfc.tile.interpret import kernel_symbols
from tfc.tile.lanes import lanes_of


@dataclass(frozen=True)
class KernelCode:
    """The text of a module with one kernel; `scratch_bytes`: what each task needs."""

    symbol: str
    text: str
    scratch_bytes: int


def lower_kernel(kernel: Kernel, target: Target, symbol: str | None = None) -> KernelCode:
    """The code of a kernel for a target, under the name of the kernel or another one."""
    lo = Lowering(kernel, target, lanes_of(kernel, target))
    name = symbol or kernel.name
    return _Frame(lo, name).code()


class _Frame:
    """The functions around the body: the entry for the executor, and the loop over programs."""

    def __init__(self, lo: Lowering, name: str) -> None:
        self.lo = lo
        self.name = name
        self.symbols = kernel_symbols(lo.kernel)
        self.grid = [(n, as_expr(extent)) for n, extent in lo.kernel.grid]

    def code(self) -> KernelCode:
        lo = self.lo
        for i, arg in enumerate(lo.kernel.body.args):
            lo.pointers[arg] = f"%b{i}"
        for i, name in enumerate(self.symbols):
            lo.indices.bind(name, f"%d{i}")
        self._programs()
        entry = [*lo.writer.entry, *lo.scratch.definitions()]
        body = "\n".join([*entry, *lo.writer.scopes[0].lines])
        scratch = lo.scratch.bytes if lo.scratch.external else 0
        return KernelCode(self.name, self._module(body), scratch)

    # ---- the loop over programs

    def _programs(self) -> None:
        lo = self.lo
        first = self._decoded("%first")
        carried = [("i64", v) for v in first]
        lo.writer.loop("%first", "%last", 1, carried, self._program)
        lo.writer.do("ret void")

    def _decoded(self, linear: str) -> list[str]:
        """The grid variables of a program's number."""
        lo = self.lo
        values: list[str] = []
        for _, extent in reversed(self.grid[1:]):
            size = lo.indices.value(extent.max(1))
            values.append(lo.writer.pure(f"urem i64 {linear}, {size}"))
            linear = lo.writer.pure(f"udiv i64 {linear}, {size}")
        if self.grid:
            values.append(linear)
        return values[::-1]

    def _program(self, number: str, values: list[str]) -> list[str]:
        lo = self.lo
        for (name, extent), text in zip(self.grid, values, strict=True):
            if extent == 1:
                lo.indices.replaced[name] = as_expr(0)
            else:
                lo.indices.bind(name, text, 0, extent - 1)
        self._versions()
        following = self._next(values)
        for name, extent in self.grid:
            if extent != 1:
                lo.indices.release(name)
        return following

    def _next(self, values: list[str]) -> list[str]:
        """The grid variables of the next program: counted up, with carries."""
        writer = self.lo.writer
        out = list(values)
        carry = "true"
        for i in reversed(range(len(values))):
            up = writer.value(f"add nuw nsw i64 {values[i]}, 1")
            if i == 0:
                out[0] = writer.value(f"select i1 {carry}, i64 {up}, i64 {values[0]}")
                break
            size = self.lo.indices.value(self.grid[i][1])
            end = writer.value(f"icmp eq i64 {up}, {size}")
            wrapped = writer.value(f"select i1 {end}, i64 0, i64 {up}")
            out[i] = writer.value(f"select i1 {carry}, i64 {wrapped}, i64 {values[i]}")
            carry = writer.value(f"and i1 {carry}, {end}")
        return out

    def _versions(self) -> None:
        """The body for full programs, and that for edge programs where there can be any."""
        lo = self.lo
        if not lo.bounds.tests:
            self._body(True)
            return
        condition: str | None = None
        for test in lo.bounds.tests:
            holds = self._test(test)
            both = f"and i1 {condition}, {holds}"
            condition = holds if condition is None else lo.writer.pure(both)
        assert condition is not None
        lo.writer.branch(condition, lambda: self._body(True), lambda: self._body(False))

    def _test(self, test: Expr) -> str:
        value = self.lo.indices.value(self.lo.indices.settle(test))
        return self.lo.writer.pure(f"icmp sge i64 {value}, 0")

    def _body(self, full: bool) -> None:
        self.lo.begin_version(full=full)
        loops.block(self.lo, self.lo.kernel.body)

    # ---- the module

    def _module(self, body: str) -> str:
        lo = self.lo
        names = [f"%b{i}" for i in range(len(lo.kernel.body.args))]
        modes = [arg.buffer.mode for arg in lo.kernel.body.args]
        buffers = [
            f"ptr noalias nocapture {'readonly ' if mode == 'in' else ''}{n}"
            for n, mode in zip(names, modes, strict=True)
        ]
        dims = [f"i64 %d{i}" for i in range(len(self.symbols))]
        rest = ["ptr %error", "ptr %scratch", "i64 %first", "i64 %last"]
        inner = f"{self.name}.programs"
        declares, defines = self._library()
        parts = [
            f'target triple = "{lo.target.triple}"',
            "@tfc.zeros = private unnamed_addr constant [1024 x i8] zeroinitializer, align 64",
            *(definition for _, definition in lo.strings.values()),
            *declares,
            *defines,
            *([errors.DEFINITION] if lo.reports_errors else []),
            f"define internal void @{quoted(inner)}({', '.join([*buffers, *dims, *rest])}) #0 {{",
            f"entry:\n{body}\n}}",
            self._entry(inner, names, dims),
            "attributes #0 = { nounwind noinline }",
            "attributes #1 = { nounwind }",
        ]
        return "\n".join(parts) + "\n"

    def _library(self) -> tuple[list[str], list[str]]:
        declares = dict.fromkeys(self.lo.writer.declarations)
        if not self.lo.math:
            return list(declares), []
        from tfc.backends.llvm import vmath

        target = self.lo.target
        more, defines = vmath.emit_all(self.lo.math, fma=target.fma, avx512=target.avx512)
        declares.update(dict.fromkeys(more))
        return list(declares), list(defines)

    def _entry(self, inner: str, names: list[str], dims: list[str]) -> str:
        """The function that the executor calls: takes the slots apart."""
        lines: list[str] = []
        kinds = ["ptr"] * len(names) + ["i64"] * len(dims) + ["ptr", "i64", "i64", "ptr"]
        for i, kind in enumerate(kinds):
            lines.append(f"  %p{i} = getelementptr i64, ptr %args, i64 {i}")
            lines.append(f"  %v{i} = load {kind}, ptr %p{i}, align 8")
        n = len(names) + len(dims)
        error, grain, total, memory = (f"%v{n + i}" for i in range(4))
        scratch = self.lo.scratch.bytes if self.lo.scratch.external else 0
        arguments = [f"{k} %v{i}" for i, k in enumerate(kinds[:n])]
        arguments += [f"ptr {error}", "ptr %mine", "i64 %first", "i64 %last"]
        return "\n".join(
            [
                f"define void @{quoted(self.name)}(ptr %args, i64 %task) #1 {{",
                *lines,
                f"  %first = mul nuw nsw i64 %task, {grain}",
                f"  %next = add nuw nsw i64 %first, {grain}",
                f"  %more = icmp slt i64 %next, {total}",
                f"  %last = select i1 %more, i64 %next, i64 {total}",
                f"  %offset = mul nuw nsw i64 %task, {scratch}",
                f"  %mine = getelementptr i8, ptr {memory}, i64 %offset",
                f"  call void @{quoted(inner)}({', '.join(arguments)})",
                "  ret void",
                "}",
            ]
        )


def quoted(name: str) -> str:
    """A name as LLVM writes it after `@`."""
    if name.replace("_", "").replace(".", "").isalnum() and name.isascii():
        return name
    escaped = "".join(
        c if c.isalnum() and c.isascii() else f"\\{b:02X}" for c in name for b in c.encode()
    )
    return f'"{escaped}"'
