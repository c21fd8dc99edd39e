"""Launches of kernels: arguments, how many tasks, the call, and its time.

Kernels are called as `void kernel(ptr arguments, i64 task)`, where the arguments are the buffers,
the symbols of `kernel_symbols`, the error, the programs a task, all programs, and the memory of
tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.backends.llvm.host_code import Body
from tfc.ir.core import Kernel, Module, Op, SymbolRef
from tfc.ir.expr import Expr
from tfc.tile.interpret import kernel_symbols

if TYPE_CHECKING:
    from tfc.backends.llvm.host_run import Run

TASKS_A_THREAD = 4  # so that threads that start late find less to do
TASKS_WITH_MEMORY = 16  # the most tasks of a kernel that needs memory for each


def kernel_symbol(name: str) -> str:
    """The name of a kernel's function."""
    return f"kernel.{name}"


def kernel_of(module: Module, launch: Op) -> Kernel:
    reference = launch.attributes["kernel"]
    assert isinstance(reference, SymbolRef)
    return module.kernels[reference.name]


def kernel_can_fail(kernel: Kernel) -> bool:
    """Whether a kernel may report an error: it checks indices."""
    return any(op.name == "wrap_index" for op in kernel.body.walk())


def argument_slots(module: Module, launch: Op) -> int:
    """How many arguments a launch passes."""
    kernel = kernel_of(module, launch)
    return len(kernel.body.args) + len(kernel_symbols(kernel)) + 4


def emit_launch(run: Run, op: Op) -> None:
    b, kernel = run.b, kernel_of(run.module, op)
    operands = [run.pointer(v) for v in op.inputs]
    buffers = [*operands, *(run.write(v) for v in op.results)]
    grain, total, tasks = _tasks(run, kernel)
    slot = 0
    for pointer in buffers:
        b.store("ptr", pointer, "%arguments", 8 * slot)
        slot += 1
    for name in kernel_symbols(kernel):
        b.store("i64", b.dim(Expr({(name,): 1})), "%arguments", 8 * slot)
        slot += 1
    memory = run.scratch_pointer(run.plan.arena)
    for kind, value in (("ptr", "%error"), ("i64", grain), ("i64", total), ("ptr", memory)):
        b.store(kind, value, "%arguments", 8 * slot)
        slot += 1
    timed = b.value(f"icmp ne ptr {run.ticks}, null")
    start = _clock(b, timed)
    _dispatch(run, kernel, tasks)
    _add_time(run, run.numbers[op], timed, start)
    if kernel_can_fail(kernel):
        run.stop_on_error(b.load("i32", "%error"))


def _tasks(run: Run, kernel: Kernel) -> tuple[str, str, str]:
    """The programs a task, all programs, and the tasks."""
    b = run.b
    if all(extent == 1 for _, extent in kernel.grid):
        return "1", "1", "1"
    total = "1"
    for _, extent in kernel.grid:
        size = b.value(f"call i64 @llvm.smax.i64(i64 {b.dim(extent)}, i64 0)")
        total = size if total == "1" else b.value(f"mul i64 {total}, {size}")
    least = int(kernel.attributes.get("grain", 1))
    if run.task_bytes.get(kernel.name, 0):
        total_up = b.value(f"add i64 {total}, {TASKS_WITH_MEMORY - 1}")
        part = b.value(f"sdiv i64 {total_up}, {TASKS_WITH_MEMORY}")
    else:
        part = b.value(f"sdiv i64 {total}, {run.shares}")
    grain = b.value(f"call i64 @llvm.smax.i64(i64 {part}, i64 {least})")
    rounded = b.value(f"add i64 {total}, {b.value(f'sub i64 {grain}, 1')}")
    return grain, total, b.value(f"sdiv i64 {rounded}, {grain}")


def _dispatch(run: Run, kernel: Kernel, tasks: str) -> None:
    """Calls one task directly, several through the executor."""
    b, function = run.b, f'@"{kernel_symbol(kernel.name)}"'
    if tasks == "1":
        b.do(f"call void {function}(ptr %arguments, i64 0)")
        return
    one, many, more, done = (b.fresh(s) for s in ("%one", "%many", "%more", "%done"))
    b.branch(b.value(f"icmp eq i64 {tasks}, 1"), one, more)
    b.label(one)
    b.do(f"call void {function}(ptr %arguments, i64 0)")
    b.jump(done)
    b.label(more)
    b.branch(b.value(f"icmp sgt i64 {tasks}, 1"), many, done)
    b.label(many)
    context, parallel_for = b.load("ptr", run.executor), b.load("ptr", run.executor, 16)
    arguments = f"ptr {context}, i64 {tasks}, ptr {function}, ptr %arguments"
    b.do(f"call void {parallel_for}({arguments})")
    b.jump(done)
    b.label(done)


def _clock(b: Body, timed: str) -> str:
    yes, no = b.fresh("%clock"), b.fresh("%start")
    since = b.slot("i64")
    b.branch(timed, yes, no)
    b.label(yes)
    b.do(f"store i64 {b.value('call i64 @tfc_ticks()')}, ptr {since}")
    b.jump(no)
    b.label(no)
    return since


def _add_time(run: Run, number: int, timed: str, since: str) -> None:
    b = run.b
    yes, no = b.fresh("%stop"), b.fresh("%next")
    b.branch(timed, yes, no)
    b.label(yes)
    now = b.value("call i64 @tfc_ticks()")
    spent = b.value(f"sub i64 {now}, {b.value(f'load i64, ptr {since}')}")
    place = b.value(f"getelementptr i64, ptr {run.ticks}, i64 {number}")
    before = b.value(f"load i64, ptr {place}")
    b.do(f"store i64 {b.value(f'add i64 {spent}, {before}')}, ptr {place}")
    b.jump(no)
    b.label(no)
