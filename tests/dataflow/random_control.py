"""Random programs of nested branches and loops in primitive form, with variables and control edges.

All values are f32 of rank 0. A context is a place where values are alive together: a frame, and a
side of each branch in it.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

NAME = re.compile(r"%(\w+)")
VARIABLES = ("v", "w")


@dataclass
class Context:
    """`values` are alive here; `waits` may be named in control edges; `pivot` says that it runs."""

    values: list[str]
    frame: str = ""
    pivot: str = ""
    waits: list[str] = field(default_factory=list[str])
    depth: int = 0


class Program:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0
        self.inputs = ["a", "b"]

    def text(self, *, shuffled: bool = False) -> str:
        """A module whose `main` takes `a` and `b` and gives some values."""
        constants = [self.op(f"constant {{value = dense<{n}.0>}}", "tensor<f32>") for n in range(4)]
        self.constants = constants
        root = Context([*self.inputs, *constants[:2]])
        self.statements(root, self.random.randint(3, 6))
        given = root.values[-4:]
        lines = self.shuffle() if shuffled else self.lines
        outputs = ", ".join(f"%out{i}: tensor<f32>" for i in range(len(given)))
        arguments = ", ".join(f"%{n}: tensor<f32>" for n in self.inputs)
        targets = [m[1] for m in (re.match(r"%(\w+) = assign", line) for line in lines) if m]
        after = f" after({', '.join(f'%{t}' for t in targets)})" if targets else ""
        body = "".join(f"    {line}\n" for line in lines)
        heads = "".join(f"  variable @{v} : tensor<f32>\n" for v in VARIABLES)
        end = f"    return {', '.join(f'%{v}' for v in given)}{after}\n"
        return (
            f"module {{\n{heads}  func @main({arguments}) -> ({outputs}) {{\n{body}{end}  }}\n}}\n"
        )

    # ---- lines

    def fresh(self) -> str:
        self.count += 1
        return f"x{self.count}"

    def op(self, text: str, types: str = "", after: list[str] | None = None) -> str:
        name = self.fresh()
        waits = f" after({', '.join(f'%{w}' for w in after)})" if after else ""
        self.lines.append(f"%{name} = {text}{waits}{f' : {types}' if types else ''}")
        return name

    def pick(self, context: Context) -> str:
        return self.random.choice(context.values)

    def waits(self, context: Context) -> list[str]:
        if context.waits and self.random.random() < 0.2:
            return [self.random.choice(context.waits)]
        return []

    # ---- statements

    def statements(self, context: Context, count: int) -> None:
        for _ in range(count):
            kinds = ["compute", "compute", "update", "read"]
            if context.depth < 3:
                kinds += ["branch", "branch", "loop"]
            getattr(self, self.random.choice(kinds))(context)

    def compute(self, context: Context) -> None:
        kind = self.random.choice(["add", "sub", "maximum", "minimum", "tanh", "neg", "identity"])
        both = kind in ("add", "sub", "maximum", "minimum")
        operands = [self.here(context), *([self.pick(context)] if both else [])]
        listed = ", ".join(f"%{v}" for v in operands)
        name = self.op(f"{kind}({listed})", after=self.waits(context))
        context.values.append(name)
        context.waits.append(name)

    def update(self, context: Context) -> None:
        kind = self.random.choice(["assign", "assign_add", "assign_sub"])
        name = self.op(
            f"{kind}(@{self.random.choice(VARIABLES)}, %{self.here(context)})",
            after=self.waits(context),
        )
        context.values.append(name)
        context.waits.append(name)

    def here(self, context: Context) -> str:
        """A value that is alive in this context alone, not a constant, which is everywhere."""
        return self.random.choice([v for v in context.values if v not in self.constants])

    def alive_with(self, context: Context, value: str) -> list[str]:
        """What makes a constant, which is alive always, alive in a context alone."""
        return [context.pivot] if value in self.constants and context.pivot else []

    def read(self, context: Context) -> None:
        waits = [context.pivot] if context.pivot else []
        name = self.op(f"read(@{self.random.choice(VARIABLES)})", "tensor<f32>", waits)
        context.values.append(name)
        context.waits.append(name)

    def branch(self, context: Context) -> None:
        predicate = self.op(f"greater(%{self.here(context)}, %{self.pick(context)})")
        taken = list(dict.fromkeys(self.here(context) for _ in range(self.random.randint(1, 3))))
        sides: list[list[str]] = [[], []]
        for value in taken:
            no, yes = self.fresh(), self.fresh()
            self.lines.append(f"%{no}, %{yes} = switch(%{value}, %{predicate})")
            sides[0].append(no)
            sides[1].append(yes)
        ends = [self.side(context, values) for values in sides]
        for _ in range(self.random.randint(1, 2)):
            pair = [self.random.choice(end) for end in ends]
            if self.random.random() < 0.3:
                pair.reverse()
            self.merge(context, pair)

    def side(self, context: Context, values: list[str]) -> list[str]:
        """The values that one side may give."""
        pivot = self.op(f"identity(%{values[0]})")
        inner = Context([*values], context.frame, pivot, [pivot], context.depth + 1)
        if self.random.random() < 0.7:
            inner.values.append(self.constants[1])
        if self.random.random() < 0.3:
            number = self.random.randint(0, 9)
            text = f"constant {{value = dense<{number}.0>}}"
            inner.values.append(self.op(text, "tensor<f32>", [pivot]))
        self.statements(inner, self.random.randint(0, 3))
        return [v for v in inner.values if v not in self.constants]

    def merge(self, context: Context, pair: list[str]) -> None:
        name, index = self.fresh(), self.fresh()
        listed = ", ".join(f"%{v}" for v in pair)
        self.lines.append(f"%{name}, %{index} = merge({listed}) : tensor<f32>, tensor<i32>")
        context.values.append(name)
        context.waits.append(name)
        if self.random.random() < 0.3:
            context.values.append(self.op(f"cast(%{index}) {{to = f32}}"))

    def loop(self, context: Context) -> None:
        frame = f"{context.frame}l{self.fresh()}"
        start = self.op(f"sub(%{self.here(context)}, %{self.pick(context)})")
        zero = self.op(f"sub(%{start}, %{start})")  # of the context, not everywhere
        first = [zero, *(self.pick(context) for _ in range(self.random.randint(1, 2)))]
        enters = [
            self.op(f'enter(%{v}) {{frame = "{frame}"}}', after=self.alive_with(context, v))
            for v in first
        ]
        names = [(self.fresh(), self.fresh(), self.fresh()) for _ in enters]
        for enter, (merged, index, following) in zip(enters, names, strict=True):
            operands = f"%{enter}, %{following}"
            self.lines.append(f"%{merged}, %{index} = merge({operands}) : tensor<f32>, tensor<i32>")
        taken = list(dict.fromkeys(self.here(context) for _ in range(self.random.randint(0, 2))))
        always = [self.op(f'enter(%{v}) {{frame = "{frame}", constant = true}}') for v in taken]
        head = Context([n[0] for n in names] + always, frame, names[0][0], [], context.depth + 1)
        if self.random.random() < 0.3:
            self.update(head)
        if self.random.random() < 0.2:
            self.read(head)
        last = self.constants[self.random.randint(0, 3)]
        more = self.op(f"less(%{names[0][0]}, %{last})")
        condition = self.op(f"loop_cond(%{more})")
        switched = [(self.fresh(), self.fresh()) for _ in names]
        for (merged, _, _), (done, again) in zip(names, switched, strict=True):
            self.lines.append(f"%{done}, %{again} = switch(%{merged}, %{condition})")
        pivot = self.op(f"identity(%{switched[0][1]})")
        values = [*(again for _, again in switched[1:]), pivot]
        for value in (*always, *head.values[len(names) + len(always) :]):
            values.append(self.op(f"identity(%{value})", after=[pivot]))
        if self.random.random() < 0.3:
            values.append(self.op(f"cast(%{names[1][1]}) {{to = f32}}", after=[pivot]))
        body = Context(values, frame, pivot, [pivot], context.depth + 1)
        self.statements(body, self.random.randint(1, 3))
        step = self.op(f"add(%{switched[0][1]}, %{self.constants[1]})")
        self.lines.append(f"%{names[0][2]} = next_iteration(%{step})")
        for _, _, following in names[1:]:
            chosen = self.op(f"identity(%{self.pick(body)})", after=[pivot])
            self.lines.append(f"%{following} = next_iteration(%{chosen})")
        for done, _ in switched:
            context.values.append(self.op(f"exit(%{done})"))
        context.waits.append(context.values[-1])

    # ---- another order

    def shuffle(self) -> list[str]:
        """The lines in another order in which names are still defined before they are used."""
        makers = {n: i for i, line in enumerate(self.lines) for n in _defined(line)}
        left = {i: _needed(line, makers) for i, line in enumerate(self.lines)}
        found: list[str] = []
        done: set[int] = set()
        while left:
            ready = [i for i, needs in left.items() if needs <= done]
            chosen = min(ready) if self.random.random() < 0.8 else self.random.choice(ready)
            found.append(self.lines[chosen])
            done.add(chosen)
            del left[chosen]
        return found


def _defined(line: str) -> list[str]:
    return NAME.findall(line.partition(" = ")[0])


def _needed(line: str, makers: dict[str, int]) -> set[int]:
    used = [makers[n] for n in NAME.findall(line.partition(" = ")[2]) if n in makers]
    own = makers[_defined(line)[0]]
    return {i for i in used if i < own}  # a merge names what follows
