"""Writes the functions of a module as LLVM IR text: symbols, sizes, and the launches in order.

The structs are those of `tfc/runtime/tfc_abi.h`. A function's ops are constants (in the bundle's
weights), views (the same memory), launches and the return; a launch writes to the caller's output
where its result is returned, else to its place in the arena. Kernels are called as
`void kernel(ptr arguments, i64 task)`, where the arguments are the buffers, the symbols of
`kernel_symbols`, the error, the programs a task, and all programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfc.backends.llvm.host_code import Body, Text
from tfc.ir.core import Function, Kernel, Module, Op, SymbolRef, Value
from tfc.ir.errors import UnsupportedError
from tfc.ir.expr import Dim, Expr, as_expr
from tfc.tile.interpret import kernel_symbols

ERROR_DIMENSION, ERROR_MINIMUM, ERROR_MAXIMUM, ERROR_RELATION, ERROR_SIZE = 1, 2, 3, 5, 6
LARGEST_ARENA = float(1 << 46)
TASKS_A_THREAD = 4  # so that threads that start late find less to do
TASKS_WITH_MEMORY = 16  # the most tasks of a kernel that needs memory for each


@dataclass(frozen=True)
class Place:
    """Where a value lies: in the weights, an input, an output, or the arena."""

    base: str  # "weights", "input", "output" or "scratch"
    offset: Dim  # bytes, or the number of the input or output


def function_symbols(module: Module, function: Function) -> list[str]:
    """The symbols that a function binds from its inputs, in order of appearance."""
    found: dict[str, None] = {}
    for arg in function.body.args:
        for dim in arg.tensor.shape:
            found.update(dict.fromkeys(as_expr(dim).symbols()))
    return list(found)


def emit_host(
    module: Module, constants: Mapping[Op, int], scratch: Mapping[str, int], triple: str
) -> str:
    """The text of all functions.

    `constants` gives the offset of each constant in the weights, `scratch` the bytes that a task of
    a kernel needs, by the name of the kernel.
    """
    text = Text()
    rows = [_Host(module, f, constants, scratch, text).emit() for f in module.functions.values()]
    kernels = {
        str(o.attributes["kernel"])
        for f in module.functions.values()
        for o in f.body
        if o.name == "launch"
    }
    head = [
        f'target triple = "{triple}"',
        "declare i64 @tfc_ticks()",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        "declare i64 @llvm.smax.i64(i64, i64)",
        "declare i64 @llvm.smin.i64(i64, i64)",
        *(
            f'declare hidden void @"{kernel_symbol(name)}"(ptr, i64)'
            for name in sorted(k[1:] for k in kernels)
        ),
    ]
    table = (
        f"@tfc_functions = hidden constant [{len(rows)} x {_ROW}] [" + ", ".join(rows) + "]",
        f"@tfc_function_count = hidden constant i32 {len(rows)}",
    )
    return "\n".join([*head, *text.globals, *table, *text.functions]) + "\n"


_ROW = "{ ptr, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr }"


def kernel_symbol(name: str) -> str:
    """The name of a kernel's function."""
    return f"kernel.{name}"


class _Host:
    """One function of the module."""

    def __init__(
        self,
        module: Module,
        function: Function,
        constants: Mapping[Op, int],
        scratch: Mapping[str, int],
        text: Text,
    ) -> None:
        self.module, self.function, self.constants, self.text = module, function, constants, text
        self.scratch = scratch
        self.symbols = function_symbols(module, function)
        self.launches = [op for op in function.body if op.name == "launch"]
        largest = max((self._task_bytes(op) for op in self.launches), default=0)
        self.task_memory = largest * TASKS_WITH_MEMORY

    def emit(self) -> str:
        """Writes the three parts; gives the row of the table."""
        name = self.function.name
        outputs = self.function.body.terminator.inputs
        counts = (
            len(self.function.body.args),
            len(outputs),
            len(self.symbols),
            len(self.launches),
            sum(a.tensor.rank for a in self.function.body.args),
            sum(v.tensor.rank for v in outputs),
        )
        parts: list[str] = []
        for part, write, signature in (
            ("bind", self._bind, "(ptr %dims, ptr %symbols, ptr %error)"),
            ("prepare", self._prepare, "(ptr %symbols, ptr %dims, ptr %scratch, ptr %error)"),
            ("run", self._run, "(ptr %call, ptr %error)"),
        ):
            symbol = f'@"{part}.{_escaped(name)}"'
            body = Body()
            write(body)
            self.text.functions.append(body.text(symbol + signature))
            parts.append(f"ptr {symbol}")
        numbers = ", ".join(f"i32 {n}" for n in counts)
        return f"{_ROW} {{ ptr {self.text.string(name)}, {numbers}, {', '.join(parts)} }}"

    @property
    def _arena(self) -> Dim:
        """The bytes of the arena; behind it lies the memory of tasks."""
        return self.function.attributes.get("arena", 0)

    # ---- bind

    def _bind(self, b: Body) -> None:
        number = 0
        later: list[tuple[int, int, Expr, str]] = []
        for where, arg in enumerate(self.function.body.args):
            for axis, dim in enumerate(arg.tensor.shape):
                actual = b.load("i64", "%dims", 8 * number)
                number += 1
                e = as_expr(dim)
                if e not in b.known and len(e.terms) == 1 and e.symbols() == [str(e)]:
                    b.known[e] = actual
                    self._check_range(b, str(e), where, axis, actual)
                else:
                    later.append((where, axis, e, actual))
        for where, axis, e, actual in later:
            expected = b.dim(e)
            same = b.value(f"icmp eq i64 {actual}, {expected}")
            fields = {
                "where": str(where),
                "axis": str(axis),
                "actual": actual,
                "expected": expected,
            }
            b.refuse_unless(same, ERROR_DIMENSION, fields)
        self._check_relations(b)
        for i, name in enumerate(self.symbols):
            b.store("i64", b.known[Expr({(name,): 1})], "%symbols", 8 * i)
        b.do("ret i32 0")

    def _check_range(self, b: Body, name: str, where: int, axis: int, actual: str) -> None:
        info = self.module.dims.get(name)
        if info is None:
            return
        fields = {"where": str(where), "axis": str(axis), "actual": actual}
        if info.smallest is not None:
            good = b.value(f"icmp sge i64 {actual}, {info.smallest}")
            b.refuse_unless(good, ERROR_MINIMUM, {**fields, "expected": str(info.smallest)})
        if info.largest is not None:
            good = b.value(f"icmp sle i64 {actual}, {info.largest}")
            b.refuse_unless(good, ERROR_MAXIMUM, {**fields, "expected": str(info.largest)})

    def _check_relations(self, b: Body) -> None:
        """What ops assumed of dimensions: the attribute that `entry-checks` wrote."""
        sides = self.function.attributes.get("check_sides", ())
        texts = self.function.attributes.get("check_texts", ())
        for i, text in enumerate(texts):
            lhs, rhs = b.dim(sides[2 * i]), b.dim(sides[2 * i + 1])
            good = b.value(f"icmp {'sle' if text.startswith('<=') else 'eq'} i64 {lhs}, {rhs}")
            node = self.text.string(text[2:].strip())
            b.refuse_unless(good, ERROR_RELATION, {"actual": lhs, "expected": rhs, "node": node})

    # ---- prepare

    def _prepare(self, b: Body) -> None:
        self._load_symbols(b, "%symbols")
        arena = as_expr(self._arena)
        small = b.value(f"fcmp ole double {b.float_dim(arena)}, {LARGEST_ARENA:e}")
        b.refuse_unless(small, ERROR_SIZE, {})
        number = 0
        for value in self.function.body.terminator.inputs:
            for dim in value.tensor.shape:
                size = b.dim(dim)
                good = b.value(f"icmp sge i64 {size}, 0")
                b.refuse_unless(good, ERROR_SIZE, {"actual": size})
                b.store("i64", size, "%dims", 8 * number)
                number += 1
        b.store("i64", b.dim(arena + self.task_memory), "%scratch")
        b.do("ret i32 0")

    def _load_symbols(self, b: Body, base: str) -> None:
        for i, name in enumerate(self.symbols):
            b.known[Expr({(name,): 1})] = b.load("i64", base, 8 * i)

    # ---- run

    def _run(self, b: Body) -> None:
        symbols = b.load("ptr", "%call")
        self._load_symbols(b, symbols)
        b.store("i32", "0", "%error")
        self.bases = {
            "input": b.load("ptr", "%call", 8),
            "output": b.load("ptr", "%call", 16),
            "weights": b.load("ptr", "%call", 24),
            "scratch": b.load("ptr", "%call", 32),
        }
        executor = b.load("ptr", "%call", 40)
        self.executor = executor
        self.ticks = b.load("ptr", "%call", 48)
        threads = b.load("i32", executor, 8)
        self.shares = b.value(f"mul i64 {b.value(f'zext i32 {threads} to i64')}, {TASKS_A_THREAD}")
        places, copies = self._places()
        largest = max((self._slots(op) for op in self.launches), default=1)
        b.entry.append(f"  %arguments = alloca [{largest} x i64], align 16")
        pointers: dict[Place, str] = {}
        for number, op in enumerate(self.launches):
            self._launch(b, number, op, places, pointers)
        for place, output, value in copies:
            source, target = self._pointer(b, place, pointers), self._pointer(b, output, pointers)
            size = b.dim(value.tensor.bytes)
            copied = f"ptr {target}, ptr {source}, i64 {size}, i1 false"
            b.do(f"call void @llvm.memcpy.p0.p0.i64({copied})")
        b.do("ret i32 0")

    def _kernel(self, op: Op) -> Kernel:
        reference = op.attributes["kernel"]
        assert isinstance(reference, SymbolRef)
        return self.module.kernels[reference.name]

    def _task_bytes(self, op: Op) -> int:
        return self.scratch.get(self._kernel(op).name, 0)

    def _slots(self, op: Op) -> int:
        kernel = self._kernel(op)
        return len(kernel.body.args) + len(kernel_symbols(kernel)) + 4

    def _places(self) -> tuple[dict[Value, Place], list[tuple[Place, Place, Value]]]:
        """Where each value lies, and what must be copied to an output at the end."""
        places: dict[Value, Place] = {}
        for i, arg in enumerate(self.function.body.args):
            places[arg] = Place("input", i)
        direct = self._direct_outputs()
        for op in self.function.body:
            if op.name == "constant":
                places[op.result] = Place("weights", self.constants[op])
            elif op.name == "launch":
                offsets = op.attributes.get("offset", (-1,) * len(op.results))
                for value, offset in zip(op.results, offsets, strict=True):
                    places[value] = Place("scratch", 0 if offset == -1 else offset)
                    if value in direct:
                        places[value] = Place("output", direct[value])
            elif op.name == "reshape":
                places[op.result] = places[op.inputs[0]]
            elif not op.terminator:
                raise UnsupportedError(
                    f"{op.name} cannot be compiled yet",
                    where=str(op.location) or f"@{self.function.name}",
                )
        copies: list[tuple[Place, Place, Value]] = []
        for i, value in enumerate(self.function.body.terminator.inputs):
            if places[value] != Place("output", i):
                copies.append((places[value], Place("output", i), value))
        return places, copies

    def _direct_outputs(self) -> dict[Value, int]:
        """The launch results that are written to the caller's memory, and to which output."""
        found: dict[Value, int] = {}
        for i, value in enumerate(self.function.body.terminator.inputs):
            root = value
            while root.producer is not None and root.producer.name == "reshape":
                root = root.producer.inputs[0]
            if root.producer is not None and root.producer.name == "launch" and root not in found:
                found[root] = i
        return found

    def _pointer(self, b: Body, place: Place, known: dict[Place, str]) -> str:
        if place not in known:
            base = self.bases[place.base]
            if place.base in ("input", "output"):
                known[place] = b.load("ptr", base, 8 * int(str(place.offset)))
            else:
                known[place] = b.value(f"getelementptr i8, ptr {base}, i64 {b.dim(place.offset)}")
        return known[place]

    def _launch(
        self, b: Body, number: int, op: Op, places: dict[Value, Place], known: dict[Place, str]
    ) -> None:
        kernel = self._kernel(op)
        buffers = [self._pointer(b, places[v], known) for v in (*op.inputs, *op.results)]
        total = "1"
        for _, extent in kernel.grid:
            size = b.value(f"call i64 @llvm.smax.i64(i64 {b.dim(extent)}, i64 0)")
            total = size if total == "1" else b.value(f"mul i64 {total}, {size}")
        least = int(kernel.attributes.get("grain", 1))
        shares = self.shares
        if self._task_bytes(op):
            shares = str(TASKS_WITH_MEMORY)
            total_up = b.value(f"add i64 {total}, {TASKS_WITH_MEMORY - 1}")
            part = b.value(f"sdiv i64 {total_up}, {shares}")
        else:
            part = b.value(f"sdiv i64 {total}, {shares}")
        grain = b.value(f"call i64 @llvm.smax.i64(i64 {part}, i64 {least})")
        rounded = b.value(f"add i64 {total}, {b.value(f'sub i64 {grain}, 1')}")
        tasks = b.value(f"sdiv i64 {rounded}, {grain}")
        slot = 0
        for pointer in buffers:
            b.store("ptr", pointer, "%arguments", 8 * slot)
            slot += 1
        for name in kernel_symbols(kernel):
            b.store("i64", b.dim(Expr({(name,): 1})), "%arguments", 8 * slot)
            slot += 1
        memory = self._pointer(b, Place("scratch", self._arena), known)
        for kind, value in (("ptr", "%error"), ("i64", grain), ("i64", total), ("ptr", memory)):
            b.store(kind, value, "%arguments", 8 * slot)
            slot += 1
        self._dispatch(b, number, kernel, tasks)

    def _dispatch(self, b: Body, number: int, kernel: Kernel, tasks: str) -> None:
        """Calls one task directly, several through the executor; adds up the time if asked to."""
        timed = b.value(f"icmp ne ptr {self.ticks}, null")
        start = self._clock(b, timed)
        function = f'@"{kernel_symbol(kernel.name)}"'
        one, many, more, done = (b.fresh(s) for s in ("%one", "%many", "%more", "%done"))
        b.do(f"br i1 {b.value(f'icmp eq i64 {tasks}, 1')}, label {one}, label {more}")
        b.label(one)
        b.do(f"call void {function}(ptr %arguments, i64 0)")
        b.do(f"br label {done}")
        b.label(more)
        b.do(f"br i1 {b.value(f'icmp sgt i64 {tasks}, 1')}, label {many}, label {done}")
        b.label(many)
        context, run = b.load("ptr", self.executor), b.load("ptr", self.executor, 16)
        b.do(f"call void {run}(ptr {context}, i64 {tasks}, ptr {function}, ptr %arguments)")
        b.do(f"br label {done}")
        b.label(done)
        self._add_time(b, number, timed, start)
        if kernel_can_fail(kernel):
            code = b.load("i32", "%error")
            bad, good = b.fresh("%bad"), b.fresh("%good")
            b.do(f"br i1 {b.value(f'icmp eq i32 {code}, 0')}, label {good}, label {bad}")
            b.label(bad)
            b.do(f"ret i32 {code}")
            b.label(good)

    def _clock(self, b: Body, timed: str) -> str:
        yes, no = b.fresh("%clock"), b.fresh("%start")
        slot = b.fresh("%since")
        b.entry.append(f"  {slot} = alloca i64")
        b.do(f"br i1 {timed}, label {yes}, label {no}")
        b.label(yes)
        b.do(f"store i64 {b.value('call i64 @tfc_ticks()')}, ptr {slot}")
        b.do(f"br label {no}")
        b.label(no)
        return slot

    def _add_time(self, b: Body, number: int, timed: str, start: str) -> None:
        yes, no = b.fresh("%stop"), b.fresh("%next")
        b.do(f"br i1 {timed}, label {yes}, label {no}")
        b.label(yes)
        now = b.value("call i64 @tfc_ticks()")
        spent = b.value(f"sub i64 {now}, {b.value(f'load i64, ptr {start}')}")
        place = b.value(f"getelementptr i64, ptr {self.ticks}, i64 {number}")
        before = b.value(f"load i64, ptr {place}")
        b.do(f"store i64 {b.value(f'add i64 {spent}, {before}')}, ptr {place}")
        b.do(f"br label {no}")
        b.label(no)


def kernel_can_fail(kernel: Kernel) -> bool:
    """Whether a kernel may report an error: it checks indices."""
    return any(op.name == "wrap_index" for op in kernel.body.walk())


def _escaped(name: str) -> str:
    return "".join(
        c if c.isalnum() or c in "._$-" else f"\\{ord(c):02X}"
        for c in name.encode().decode("latin-1")
    )
