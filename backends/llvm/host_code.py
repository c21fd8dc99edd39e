"""The instructions of functions that call kernels, as LLVM text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfc.ir.expr import Call, Dim, Expr, as_expr


class Text:
    """Globals and functions of the module, and its strings, each once."""

    def __init__(self) -> None:
        self.globals: list[str] = []
        self.functions: list[str] = []
        self._strings: dict[str, str] = {}

    def string(self, text: str) -> str:
        if not text:
            return "null"
        if text not in self._strings:
            name = f"@s{len(self._strings)}"
            data = text.encode() + b"\0"
            escaped = "".join(
                chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data
            )
            self.globals.append(f'{name} = private constant [{len(data)} x i8] c"{escaped}"')
            self._strings[text] = name
        return self._strings[text]


class Body:
    """The instructions of one LLVM function. What is `known` was computed where it still holds."""

    def __init__(self) -> None:
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.known: dict[Expr, str] = {}
        self.count = 0

    def fresh(self, stem: str = "%t") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def value(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name.removeprefix('%')}:")

    def field(self, base: str, offset: int) -> str:
        return self.value(f"getelementptr i8, ptr {base}, i64 {offset}") if offset else base

    def load(self, kind: str, base: str, offset: int = 0) -> str:
        return self.value(f"load {kind}, ptr {self.field(base, offset)}")

    def store(self, kind: str, value: str, base: str, offset: int = 0) -> None:
        place = self.field(base, offset)
        self.do(f"store {kind} {value}, ptr {place}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        self.do(f"br i1 {condition}, label {then}, label {otherwise}")

    def jump(self, target: str) -> None:
        self.do(f"br label {target}")

    def slot(self, kind: str) -> str:
        """Memory of the function's own for one value."""
        name = self.fresh("%slot")
        self.entry.append(f"  {name} = alloca {kind}")
        return name

    def copy(self, target: str, source: str, size: str) -> None:
        """Copies bytes between places that are apart, or the same."""
        copied = f"ptr {target}, ptr {source}, i64 {size}, i1 false"
        self.do(f"call void @llvm.memcpy.p0.p0.i64({copied})")

    # ---- expressions of dimensions

    def load_symbols(self, names: Sequence[str], base: str) -> None:
        for i, name in enumerate(names):
            self.known[Expr({(name,): 1})] = self.load("i64", base, 8 * i)

    def dim(self, dim: Dim) -> str:
        """An expression in i64; symbols must be known."""
        e = as_expr(dim)
        value = e.constant
        if value is not None:
            return str(value)
        if e not in self.known:
            self.known[e] = self._sum(e)
        return self.known[e]

    def _sum(self, e: Expr) -> str:
        total = ""
        for monomial, factor in e.terms.items():
            part = str(factor)
            for number, atom in enumerate(monomial):
                value = self._atom(atom)
                first = number == 0 and factor == 1
                part = value if first else self.value(f"mul i64 {part}, {value}")
            total = self.value(f"add i64 {total}, {part}") if total else part
        return total

    def _atom(self, atom: str) -> str:
        if not isinstance(atom, Call):
            return self.known[Expr({(atom,): 1})]
        a, b = self.dim(atom.lhs), self.dim(atom.rhs)
        if atom.op in ("min", "max"):
            return self.value(f"call i64 @llvm.s{atom.op}.i64(i64 {a}, i64 {b})")
        zero = self.value(f"icmp eq i64 {b}, 0")
        safe = self.value(f"select i1 {zero}, i64 1, i64 {b}")
        quotient, rest = self.value(f"sdiv i64 {a}, {safe}"), self.value(f"srem i64 {a}, {safe}")
        below = self.value(f"icmp slt i64 {rest}, 0")
        if atom.op == "floordiv":
            lower = self.value(f"sub i64 {quotient}, 1")
            return self.value(f"select i1 {below}, i64 {lower}, i64 {quotient}")
        raised = self.value(f"add i64 {rest}, {safe}")
        return self.value(f"select i1 {below}, i64 {raised}, i64 {rest}")

    def float_dim(self, e: Expr) -> str:
        """A bound of the magnitude of an expression in double, which does not overflow."""
        total = "0.0"
        for monomial, factor in e.terms.items():
            part = f"{abs(float(factor)):e}"
            for atom in monomial:
                if isinstance(atom, Call):
                    value = self.float_dim(
                        atom.lhs if atom.op in ("floordiv", "min") else atom.lhs + atom.rhs
                    )
                else:
                    value = self.value(f"sitofp i64 {self._atom(atom)} to double")
                part = self.value(f"fmul double {part}, {value}")
            total = self.value(f"fadd double {total}, {part}")
        return total

    def refuse_unless(self, condition: str, code: int, fields: Mapping[str, str]) -> None:
        """Fills the error and returns its code unless a condition holds."""
        bad, good = self.fresh("%bad"), self.fresh("%good")
        self.do(f"br i1 {condition}, label {good}, label {bad}")
        self.label(bad)
        self.store("i32", str(code), "%error")
        self.store("i32", fields.get("where", "-1"), "%error", 4)
        for name, offset in (("axis", 8), ("actual", 16), ("expected", 24)):
            self.store("i64", fields.get(name, "0"), "%error", offset)
        self.store("ptr", fields.get("node", "null"), "%error", 32)
        self.do(f"ret i32 {code}")
        self.label(good)

    def text(self, signature: str) -> str:
        return "\n".join(
            [f"define internal i32 {signature} {{", "entry:", *self.entry, *self.lines, "}"]
        )
