"""Writes the body of an LLVM function as text: instructions, loops, branches, what is known where.

A scope is a loop body, a branch or a part of straight code. A loop body or branch has lines of
its own, which join its parent's when it closes; until then the parent's last block is still open:
an instruction that does not depend on the loop can be written there (`value_at`) and runs before
it. What is remembered in a scope (`put`) is forgotten when the scope closes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from typing import Any


class Scope:
    """`lines` are shared with the parent unless the scope is a branch or a loop body."""

    __slots__ = ("depth", "lines", "memo")

    def __init__(self, lines: list[str], depth: int) -> None:
        self.lines = lines
        self.memo: dict[Hashable, Any] = {}
        self.depth = depth


class Writer:
    """The text of one function."""

    def __init__(self) -> None:
        self.scopes = [Scope([], 0)]
        self.entry: list[str] = []  # allocations
        self.declarations: dict[str, None] = {}
        self.label = "entry"
        self._count = 0

    # ---- names and scopes

    def fresh(self, stem: str = "%t") -> str:
        self._count += 1
        return f"{stem}{self._count}"

    @property
    def lines(self) -> list[str]:
        return self.scopes[-1].lines

    @property
    def depth(self) -> int:
        """How many loops and branches the current place is in."""
        return self.scopes[-1].depth

    def get(self, key: Hashable) -> Any:
        """What was remembered under a key in this scope or one around it; None if nothing."""
        for scope in reversed(self.scopes):
            if key in scope.memo:
                return scope.memo[key]
        return None

    def put(self, key: Hashable, value: Any) -> Any:
        self.scopes[-1].memo[key] = value
        return value

    def _scope_at(self, depth: int) -> Scope:
        """The outermost scope of a depth."""
        return next(s for s in self.scopes if s.depth == depth)

    @contextmanager
    def forgetting(self) -> Generator[None]:
        """What is remembered inside is forgotten after."""
        self.scopes.append(Scope(self.lines, self.depth))
        try:
            yield
        finally:
            self.scopes.pop()

    # ---- instructions

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        """The name of an instruction's value."""
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def pure(self, text: str) -> str:
        """The same for an instruction without effects: written once where it stands already."""
        return self.get(text) or self.put(text, self.value(text))

    def value_at(self, depth: int, text: str) -> str:
        """The same, written at the end of the open block at an outer depth."""
        scope = self._scope_at(depth)
        if text not in scope.memo:
            name = self.fresh()
            scope.lines.append(f"  {name} = {text}")
            scope.memo[text] = name
        return scope.memo[text]

    def remembered_at(self, depth: int) -> dict[Hashable, Any]:
        return self._scope_at(depth).memo

    def declare(self, text: str) -> None:
        self.declarations["declare " + text] = None

    def call(self, result: str, function: str, *arguments: str) -> str:
        """Calls a declared function without effects; each argument is its type and its value."""
        types = ", ".join(type_of(a) for a in arguments)
        self.declare(f"{result} @{function}({types})")
        return self.pure(f"call {result} @{function}({', '.join(arguments)})")

    def allocate(self, type_text: str, align: int) -> str:
        """Memory on the stack, for the whole function."""
        name = self.fresh("%m")
        self.entry.append(f"  {name} = alloca {type_text}, align {align}")
        return name

    # ---- control

    def _open(self, label: str) -> None:
        self.scopes.append(Scope([], self.depth + 1))
        self.label = label

    def loop(
        self,
        start: str,
        stop: str,
        step: int,
        carried: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], Sequence[str]],
    ) -> list[str]:
        """A loop over i64; `carried` are types and first values, `body` gives the next ones."""
        before = self.label
        head, inside, after = self.fresh("head"), self.fresh("body"), self.fresh("exit")
        index = self.fresh("%i")
        names = [self.fresh() for _ in carried]
        self._open(inside)
        following = body(index, names)
        child = self.scopes.pop()
        lines = self.lines
        lines.append(f"  br label %{head}")
        lines.append(f"{head}:")
        step_name, latch = self.fresh("%i"), self.label
        phis = zip(names, carried, following, strict=True)
        lines.append(f"  {index} = phi i64 [ {start}, %{before} ], [ {step_name}, %{latch} ]")
        for name, (kind, first), later in phis:
            lines.append(f"  {name} = phi {kind} [ {first}, %{before} ], [ {later}, %{latch} ]")
        test = self.fresh()
        lines.append(f"  {test} = icmp slt i64 {index}, {stop}")
        lines.append(f"  br i1 {test}, label %{inside}, label %{after}")
        lines.append(f"{inside}:")
        lines.extend(child.lines)
        lines.append(f"  {step_name} = add nuw nsw i64 {index}, {step}")
        lines.append(f"  br label %{head}")
        lines.append(f"{after}:")
        self.label = after
        return names

    def branch(
        self, condition: str, then: Callable[[], None], otherwise: Callable[[], None] | None = None
    ) -> None:
        """Runs one of two parts; what they remember is forgotten."""
        yes, no, after = self.fresh("then"), self.fresh("else"), self.fresh("after")
        texts: list[list[str]] = []
        for label, part in ((yes, then), (no, otherwise)):
            self._open(label)
            if part is not None:
                part()
            texts.append([f"{label}:", *self.scopes.pop().lines, f"  br label %{after}"])
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")
        for text in texts:
            self.lines.extend(text)
        self.lines.append(f"{after}:")
        self.label = after


def type_of(argument: str) -> str:
    """The type of an argument written as `<16 x float> %v3` or `i32 4`."""
    return argument[: argument.index(">") + 1] if argument[0] == "<" else argument.split()[0]
