"""Writes the functions of a module as LLVM IR text: symbols, sizes, and what runs.

The structs are those of `tfc/runtime/tfc_abi.h`. This file writes the table and the parts `bind`
and `prepare` of each function; `host_run` writes the third, `run`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfc.backends.llvm.host_code import Body, Text
from tfc.backends.llvm.host_launch import TASKS_WITH_MEMORY, kernel_of, kernel_symbol
from tfc.backends.llvm.host_run import Run
from tfc.backends.llvm.host_state import host_calls, uses_variables
from tfc.ir.core import Function, Module, Op, Variable
from tfc.ir.errors import UnsupportedError
from tfc.ir.expr import Expr, as_expr
from tfc.ir.memory import MemoryPlan
from tfc.ir.types import TensorType

ERROR_DIMENSION, ERROR_MINIMUM, ERROR_MAXIMUM, ERROR_RELATION, ERROR_SIZE = 1, 2, 3, 5, 6
LARGEST_ARENA = float(1 << 46)


def function_symbols(module: Module, function: Function) -> list[str]:
    """The symbols that a function binds from its inputs, in order of appearance."""
    found: dict[str, None] = {}
    for arg in function.body.args:
        for dim in arg.tensor.shape:
            found.update(dict.fromkeys(as_expr(dim).symbols()))
    return list(found)


def emit_host(
    module: Module,
    plans: Mapping[str, MemoryPlan],
    constants: Mapping[Op, int],
    scratch: Mapping[str, int],
    triple: str,
) -> str:
    """The text of all functions.

    `plans` says where values lie, by the name of the function, `constants` gives the offset of each
    constant in the weights, `scratch` the bytes that a task of a kernel needs, by the name of the
    kernel.
    """
    text = Text()
    rows = [
        _Host(module, f, plans[f.name], constants, scratch, text).emit()
        for f in module.functions.values()
    ]
    kernels = {
        str(o.attributes["kernel"])
        for f in module.functions.values()
        for o in f.body.walk()
        if o.name == "launch"
    }
    variables = [
        f"{{ ptr, i64 }} {{ ptr {text.string(v.name)}, i64 {variable_bytes(v)} }}"
        for v in module.variables.values()
    ]
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
        f"@tfc_variables = hidden constant [{len(variables)} x {{ ptr, i64 }}] "
        f"[{', '.join(variables)}]",
        f"@tfc_variable_count = hidden constant i32 {len(variables)}",
    )
    return "\n".join([*head, *text.globals, *table, *text.functions]) + "\n"


_ROW = "{ ptr, i32, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr }"


class _Host:
    """One function of the module."""

    def __init__(
        self,
        module: Module,
        function: Function,
        plan: MemoryPlan,
        constants: Mapping[Op, int],
        scratch: Mapping[str, int],
        text: Text,
    ) -> None:
        self.module, self.function, self.plan, self.text = module, function, plan, text
        self.constants, self.scratch = constants, scratch
        self.symbols = function_symbols(module, function)
        self.launches = [op for op in function.body.walk() if op.name == "launch"]
        largest = max((scratch.get(kernel_of(module, o).name, 0) for o in self.launches), default=0)
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
            len(host_calls(self.function)),
            int(uses_variables(self.module, self.function)),
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
        b.load_symbols(self.symbols, "%symbols")
        arena = as_expr(self.plan.arena)
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

    # ---- run

    def _run(self, b: Body) -> None:
        Run(self.module, self.function, self.plan, self.constants, self.scratch, self.text, b).emit(
            self.symbols, self.launches
        )


def variable_bytes(variable: Variable) -> int:
    """The bytes of a variable, whose dimensions are numbers."""
    assert isinstance(variable.type, TensorType)
    size = variable.type.bytes
    if not isinstance(size, int):
        raise UnsupportedError(
            f"the variable @{variable.name} is a {variable.type}",
            hint="the dimensions of a variable must be numbers",
        )
    return size


def _escaped(name: str) -> str:
    return "".join(
        c if c.isalnum() or c in "._$-" else f"\\{ord(c):02X}"
        for c in name.encode().decode("latin-1")
    )
