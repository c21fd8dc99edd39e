"""The text of a random function with state: what is in scope, control edges, values of a type.

Ops are drawn by `stateful_ops.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

Dims = tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """A tensor type; a dimension is a number or the name of a symbol."""

    dtype: str
    dims: Dims = ()

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{d}x' for d in self.dims)}{self.dtype}>"

    @property
    def is_static(self) -> bool:
        return all(d.isdigit() for d in self.dims)

    @property
    def is_float(self) -> bool:
        return self.dtype in ("f16", "bf16", "f32", "f64")

    @property
    def is_bool(self) -> bool:
        return self.dtype == "bool"

    @property
    def slice(self) -> Kind:
        """What one index along axis 0 has."""
        return Kind(self.dtype, self.dims[1:])

    def of(self, dtype: str) -> Kind:
        return Kind(dtype, self.dims)


def listed(dims: Dims) -> str:
    """Dimensions as an attribute."""
    return f"[{', '.join(d if d.isdigit() else f'({d})' for d in dims)}]"


COUNT, FLAG, SEED = Kind("i64"), Kind("bool"), Kind("u64", ("2",))


@dataclass
class Plan:
    """What the functions of a module share. There is an input of each kind."""

    inputs: dict[str, Kind]
    variables: dict[str, Kind]
    queue: Kind | None
    loops: bool  # are to be many

    @property
    def kinds(self) -> list[Kind]:
        return [k for k in self.inputs.values() if k not in (COUNT, FLAG)]


@dataclass
class Scope:
    """What may be used at a place: values by kind, and ops to wait for, inner ones last."""

    values: dict[Kind, list[str]] = field(default_factory=dict[Kind, "list[str]"])
    ops: list[str] = field(default_factory=list[str])
    effects: list[str] = field(default_factory=list[str])  # of this block alone

    def inner(self) -> Scope:
        return Scope({t: list(names) for t, names in self.values.items()}, list(self.ops))


class Text:
    """Lines of one function."""

    def __init__(self, random: Random, plan: Plan, size: int) -> None:
        self.random = random
        self.plan = plan
        self.left = size  # of ops that are to be drawn
        self.lines: list[str] = []
        self.count = 0
        self.indent = 2
        self.depth = 0
        self.scope = Scope({k: [f"%{n}"] for n, k in plan.inputs.items()})

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def line(self, text: str) -> None:
        self.lines.append("  " * self.indent + text)

    def name(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def after(self, chance: float = 0.2) -> str:
        """Random control edges."""
        if not self.scope.ops or not self.chance(chance):
            return ""
        count = self.random.randint(1, 3)
        names = dict.fromkeys(self.random.choice(self.scope.ops) for _ in range(count))
        return f" after({', '.join(names)})"

    # ---- values

    def op(self, kind: Kind, text: str, attributes: str = "", chance: float = 0.2) -> str:
        """Writes an op of one result."""
        name = self.name()
        written = f" {{{attributes}}}" if attributes else ""
        self.line(f"{name} = {text}{written}{self.after(chance)} : {kind}")
        self.made(name, kind)
        self.scope.ops.append(name)
        return name

    def made(self, name: str, kind: Kind) -> None:
        self.scope.values.setdefault(kind, []).append(name)

    def any(self, kind: Kind) -> str:
        """A value of a kind: mostly a late one; made where there is none."""
        known = self.scope.values.get(kind, [])
        if known and (not kind.is_static or self.chance(0.9)):
            return known[-1 - min(int(self.random.expovariate(0.4)), len(known) - 1)]
        if kind.is_static:
            return self.constant(kind)
        found = next(k for k in self.scope.values if k.dims == kind.dims and self.scope.values[k])
        return self.op(kind, f"cast({self.any(found)})", f"to = {kind.dtype}", 0)

    def constant(self, kind: Kind) -> str:
        if kind.is_bool:
            drawn = self.random.choice(("true", "false"))
        elif kind.is_float:
            drawn = str(self.random.choice((0.0, 0.5, 1.0, -0.25, 2.0, -0.0, 3.0)))
        else:
            drawn = str(self.random.randint(0, 3))
        return self.number(kind, drawn)

    def number(self, kind: Kind, written: str) -> str:
        return self.op(kind, "constant", f"value = dense<{written}>", 0)

    def between(self, low: int, high: int) -> str:
        """A count that is in a range."""
        value = self.op(COUNT, f"maximum({self.any(COUNT)}, {self.number(COUNT, str(low))})")
        return self.op(COUNT, f"minimum({value}, {self.number(COUNT, str(high))})")

    def known(self) -> list[Kind]:
        """The kinds of values that are there, in the order in which they came."""
        return [k for k, names in self.scope.values.items() if names]

    def draw_kind(self) -> Kind:
        """A kind: mostly one that the module is about."""
        return self.random.choice(self.plan.kinds if self.chance(0.8) else self.known())

    # ---- regions

    @contextmanager
    def region(self, arguments: Sequence[tuple[str, Kind]] = ()) -> Iterator[None]:
        outer, self.scope = self.scope, self.scope.inner()
        for name, kind in arguments:
            self.made(name, kind)
        self.indent += 1
        self.depth += 1
        yield
        self.indent -= 1
        self.depth -= 1
        self.scope = outer

    def give(self, values: list[str], end: str = "yield") -> None:
        """Ends a block; most of its effects become needed."""
        needed = [e for e in self.scope.effects if self.chance(0.8)]
        after = f" after({', '.join(needed)})" if needed else ""
        self.line(f"{end} {', '.join(values)}{after}")

    def head(
        self, names: list[str], text: str, kinds: Sequence[Kind], attributes: str = ""
    ) -> None:
        """The first line of an op with regions."""
        written = f" {{{attributes}}}" if attributes else ""
        types = ", ".join(map(str, kinds))
        self.line(f"{', '.join(names)} = {text}{written}{self.after(0.3)} : {types}")

    def defined(self, names: list[str], kinds: Sequence[Kind]) -> None:
        """Ends an op with regions."""
        for name, kind in zip(names, kinds, strict=True):
            self.made(name, kind)
        self.scope.ops.append(names[0])
        self.scope.effects.append(names[0])

    def arguments(self, kinds: Sequence[Kind]) -> list[tuple[str, Kind]]:
        return [(self.name(), t) for t in kinds]


def signature(arguments: Sequence[tuple[str, Kind]]) -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in arguments)
