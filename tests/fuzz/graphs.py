"""Random modules over all graph ops, with data to run them on: the same seed gives the same ones.

A graph grows op by op: each takes values that are there already, or new inputs and constants that
fit. The ops themselves are made by `makers_math.py`, `makers_shape.py` and `makers_windows.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from tests.fuzz import data
from tfc.interpret import evaluated_type
from tfc.ir.builder import Builder
from tfc.ir.core import Block, DimInfo, Function, Module, Op, SymbolRef, Value
from tfc.ir.expr import Dim, Expr, as_expr, normal, symbol
from tfc.ir.types import BF16, DTYPES, F16, F32, F64, FLOATS, I32, I64, DType, TensorType
from tfc.ir.weights import INLINE_BYTES, Dense, Weights
from tfc.ops.constant import Constant
from tfc.ops.control import Return

Array = np.ndarray[Any, Any]
Shape = tuple[Dim, ...]
Made = list[Value] | None

LARGEST, LARGEST_OF_FEW = 3000, 100_000  # elements of a value
WORK, WORK_OF_FEW = 100_000, 20_000_000  # multiply-adds of a product or convolution
FEW = 0.06  # of the graphs are large
LARGEST_INPUTS = 7
NAMES = ("B", "S", "T")


@dataclass(frozen=True)
class Data:
    """The inputs of one run."""

    label: str
    symbols: dict[str, int]
    inputs: dict[str, Array]


@dataclass
class Case:
    """A module whose function `main` is a random graph, and what to run it on."""

    seed: int
    module: Module
    data: list[Data]
    large: bool = False


@dataclass
class IndexRange:
    """The elements of an input are from -below to size - 1."""

    size: Dim
    below: Dim


@dataclass
class Graph:
    """The graph being made."""

    random: Random
    module: Module
    block: Block
    bindings: list[dict[str, int]]
    dtypes: list[DType]
    values: list[Value] = field(default_factory=list[Value])
    ranges: dict[str, IndexRange] = field(default_factory=dict[str, IndexRange])
    kind: str = "usual"  # of the numbers in constants
    large: bool = False

    # ---- choices

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, items: Iterable[Any]) -> Any:
        return self.random.choice(list(items))

    def some(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def dtype(self, allowed: Sequence[DType]) -> DType:
        """An element type, mostly one of those that the graph is about."""
        usual = [d for d in self.dtypes if d in allowed]
        return self.pick(usual) if usual and self.chance(0.95) else self.pick(allowed)

    def generator(self) -> np.random.Generator:
        return np.random.default_rng(self.random.getrandbits(32))

    # ---- dimensions

    def at(self, dim: Dim, binding: int = 0) -> int:
        """A dimension as a number, by one of the bindings."""
        return as_expr(dim).evaluate(self.bindings[binding])

    def size(self, most: int = 9) -> Dim:
        """A dimension: small, mostly odd, sometimes a symbol, an expression, 0 or large."""
        if self.bindings[0] and self.chance(0.35):
            chosen = symbol(self.pick(self.bindings[0]))
            if self.chance(0.12):
                return normal(self.pick([chosen + 1, chosen * 2, chosen + 3, chosen * 2 + 1]))
            return chosen
        if self.chance(0.02):
            return 0
        if self.large and self.chance(0.25):
            return self.pick([100, 128, 200, 256, 300, 777, 1000])
        if self.chance(0.08):
            return self.pick([16, 17, 31, 33, 64, 65, 130])
        return self.some(1, most)

    def shape(self, low: int = 0, high: int = 5) -> Shape:
        """A shape of `low` to `high` axes that is not too large."""
        rank = min(max(self.pick([0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5]), low), high)
        sizes = [self.size() for _ in range(rank)]
        while not self.fits(sizes):
            sizes[self.some(0, rank - 1)] = self.some(1, 3)
        return tuple(sizes)

    @property
    def work(self) -> int:
        """The multiply-adds that a product may take."""
        return WORK_OF_FEW if self.large else WORK

    def fits(self, shape: Iterable[Dim], largest: int = 0) -> bool:
        """Whether a shape has neither too many elements nor a negative size, by any binding."""
        largest = largest or (LARGEST_OF_FEW if self.large else LARGEST)
        for binding in range(len(self.bindings)):
            total = 1
            for n in shape:
                size = self.at(n, binding)
                if size < 0:
                    return False
                total *= size
            if total > largest:
                return False
        return True

    # ---- values

    def add(self, op: Op) -> list[Value]:
        """Inserts an op, rarely behind a control edge; its results are there for later ones."""
        earlier = self.block.last
        Builder(self.block).add(op)
        if earlier is not None and self.chance(0.02):
            op.add_after(earlier)
        self.values.extend(op.results)
        return list(op.results)

    def input(self, dtype: DType, shape: Shape) -> Value:
        arg = self.block.add_arg(TensorType(dtype, shape), f"x{len(self.block.args)}")
        self.values.append(arg)
        return arg

    def constant(self, array: Array) -> Value:
        """A constant: in the text, or a weight of the module where it is large."""
        kind = Dense(array).type
        if array.nbytes > INLINE_BYTES or (array.size > 8 and self.chance(0.3)):
            op = Constant(SymbolRef(self.module.weights.add(array)), kind)
        else:
            op = Constant(Dense(array), kind)
        return self.add(op)[0]

    def leaf(self, dtype: DType, shape: Shape) -> Value:
        """A new input, or a constant."""
        static = all(isinstance(n, int) for n in shape)
        full = len(self.block.args) >= LARGEST_INPUTS
        if not static or (self.chance(0.7) and not full):
            return self.input(dtype, shape)
        return self.constant(self.numbers(dtype, shape))  # type: ignore[arg-type]

    def numbers(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """The elements of a constant; often all the same."""
        generator = self.generator()
        kind = "ties" if self.chance(0.3) else self.kind
        if self.chance(0.3):
            return np.broadcast_to(data.draw(generator, dtype, (), kind), shape).copy()
        return data.draw(generator, dtype, shape, kind)

    def operand(
        self,
        allowed: Sequence[DType],
        low: int = 0,
        high: int = 5,
        where: Callable[[TensorType], bool] = lambda _: True,
    ) -> Value:
        """A value of an allowed type and rank: an old one, or a new one if none fits."""
        old = [
            v
            for v in self.values
            if v.tensor.dtype in allowed and low <= v.tensor.rank <= high and where(v.tensor)
        ]
        if old and self.chance(0.85):
            # Recent values are likelier, so that graphs get deep.
            return old[-1 - min(int(self.random.expovariate(0.5)), len(old) - 1)]
        while True:
            kind = TensorType(self.dtype(allowed), self.shape(low, high))
            if where(kind):
                return self.leaf(kind.dtype, kind.shape)

    def like(self, dtype: DType, shape: Shape) -> Value:
        """A value of this type, or of one that the call must show to be the same; old or new."""
        shape = tuple(self._as_another(n) for n in shape)
        wanted = TensorType(dtype, shape)
        old = [v for v in self.values if v.tensor == wanted]
        return self.pick(old) if old and self.chance(0.6) else self.leaf(dtype, shape)

    def _as_another(self, size: Dim) -> Dim:
        """Rarely another symbol with the same value, which other data may tell apart."""
        names = [n for n, v in self.bindings[0].items() if v == self.at(size)]
        if isinstance(size, int) or not names or not self.chance(0.05):
            return size
        return symbol(self.pick(names))

    def partner(self, x: Value, grows: bool = True) -> Value:
        """A value that broadcasts with x, whose shape the common one may exceed if it `grows`."""
        kind = x.tensor
        old = [
            v
            for v in self.values
            if v.tensor.dtype == kind.dtype and self._broadcasts(v.tensor.shape, kind.shape, grows)
        ]
        if old and self.chance(0.5):
            return self.pick(old)
        shape = list(kind.shape)
        for axis in range(len(shape)):
            if self.chance(0.2):
                shape[axis] = 1
            elif grows and shape[axis] == 1 and self.chance(0.3):
                shape[axis] = self.size(5)
        if self.chance(0.3):
            del shape[: self.some(0, len(shape))]
        elif grows and len(shape) < 5 and self.chance(0.1):
            shape.insert(0, self.some(1, 3))
        if not self.fits(self.common(kind.shape, tuple(shape))):
            shape = list(kind.shape)
        return self.leaf(kind.dtype, tuple(shape))

    def common(self, a: Shape, b: Shape) -> Shape:
        """The shape that two shapes broadcast to."""
        rank = max(len(a), len(b))
        left, right = ((1,) * (rank - len(s)) + tuple(s) for s in (a, b))
        return tuple(n if m == 1 else m for m, n in zip(left, right, strict=True))

    def _broadcasts(self, a: Shape, b: Shape, grows: bool) -> bool:
        if not grows and len(a) > len(b):
            return False
        pairs = list(zip(a[::-1], b[::-1], strict=False))
        if any(m != n and m != 1 and (n != 1 or not grows) for m, n in pairs):
            return False
        return self.fits(self.common(a, b))

    def integer_input(self, shape: Shape, size: Dim, below: Dim | None = None) -> Value:
        """An input of indices into an axis of `size`."""
        value = self.input(self.pick([I32, I64]), shape)
        self.ranges[value.name] = IndexRange(size, size if below is None else below)
        return value


# ---- whole graphs


def generate(seed: int, most_ops: int = 14, few: float = FEW) -> Case:
    """The graph of a seed, with several sets of data; of all seeds `few` give a large one."""
    from tests.fuzz.makers import draw_op

    random = Random(seed)
    module = Module(Weights(), "fuzz")
    graph = Graph(random, module, Block(), _bindings(random), _dtypes(random))
    graph.kind = random.choice(data.KINDS)
    graph.large = random.random() < few
    for name in graph.bindings[0]:
        module.dims[name] = DimInfo(random.choice(["", f"the {name}"]))
    for _ in range(random.choice([1, 2, 3, 4, 6, 8, most_ops])):
        draw_op(graph)
    _finish(graph)
    return Case(seed, module, _all_data(graph), graph.large)


def _bindings(random: Random) -> list[dict[str, int]]:
    """Values of the symbols: some, and then others, which may be 0."""
    names = NAMES[: random.choice([0, 0, 1, 2, 2, 3])]
    first = {n: random.choice([1, 2, 3, 4, 5, 6, 7, 8, 17]) for n in names}
    if len(names) > 1 and random.random() < 0.3:
        first[names[1]] = first[names[0]]
    second = {n: random.choice([0, 1, 1, 2, 3, 5, 9]) for n in names}
    return [first, second] if names else [first]


def _dtypes(random: Random) -> list[DType]:
    """The element types that a graph is mostly about."""
    floats = random.choice([[F32]] * 5 + [[F64], [F16], [BF16], [F32, F16], [*FLOATS]])
    others = random.sample(sorted(set(DTYPES.values()) - set(FLOATS), key=str), 2)
    return [*floats, *floats, *random.choice([[], [I64], others])]


def _finish(graph: Graph) -> None:
    """Returns every value that nothing uses, and some others."""
    returned = [v for v in graph.values if not v.uses and v.producer is not None]
    extra = graph.values if graph.chance(0.3) else [v for v in graph.values if v.producer]
    returned += [graph.pick(extra or graph.values) for _ in range(graph.pick([0, 0, 1, 2]))]
    if not returned:
        returned = [graph.values[-1]]
    if len(returned) > 1 and graph.chance(0.3):
        del returned[graph.some(0, len(returned) - 1)]
    graph.random.shuffle(returned)
    graph.block.append(Return(returned))
    _bind_symbols(graph)
    names = [f"y{i}" for i in range(len(returned))]
    graph.module.functions["main"] = Function("main", graph.block, names)


def _bind_symbols(graph: Graph) -> None:
    """Gives every symbol an input that tells its value."""
    told = {n for arg in graph.block.args for n in arg.tensor.shape if isinstance(n, Expr)}
    for name in graph.bindings[0]:
        if symbol(name) not in told:
            graph.input(graph.dtype(list(DTYPES.values())), (symbol(name),))


def _all_data(graph: Graph) -> list[Data]:
    runs = [(0, "usual"), (0, "edges"), (0, "ties")]
    runs += [(i, graph.pick(data.KINDS)) for i in range(1, len(graph.bindings))]
    found = [_data(graph, binding, kind) for binding, kind in runs]
    if graph.ranges and graph.chance(0.4):
        found.append(_data(graph, 0, "usual", beyond=3))
    return found


def _data(graph: Graph, binding: int, kind: str, beyond: int = 0) -> Data:
    """The inputs by a binding; indices may be `beyond` their ranges by so much."""
    symbols, generator = graph.bindings[binding], graph.generator()
    inputs: dict[str, Array] = {}
    for arg in graph.block.args:
        tensor = evaluated_type(arg.type, symbols)
        shape = tuple(int(str(n)) for n in tensor.shape)
        limits = graph.ranges.get(arg.name)
        if limits is None:
            inputs[arg.name] = data.draw(generator, tensor.dtype, shape, kind)
            continue
        size = graph.at(limits.size, binding) + beyond
        below = graph.at(limits.below, binding) + beyond
        inputs[arg.name] = data.indices(generator, tensor.dtype, shape, size, below)
    bound = ", ".join(f"{s}={n}" for s, n in symbols.items())
    label = f"{'wild ' if beyond else ''}{kind} data{' with ' if bound else ''}{bound}"
    return Data(label, dict(symbols), inputs)
