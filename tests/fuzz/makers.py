"""The makers of ops: which there are, how often each comes, and the choice of the next op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.graphs import Graph, Made
from tfc.ir.core import OPS, Effect

Maker = Callable[[Graph, str], Made]


@dataclass
class Family:
    """Ops that one maker makes; `weight` is how often, against the others."""

    maker: Maker
    names: tuple[str, ...]
    weight: float


FAMILIES: list[Family] = []
MADE: dict[str, Family] = {}


@dataclass
class Register:
    """Registers the maker of some ops."""

    names: tuple[str, ...]
    weight: float = field(default=1.0)

    def __call__(self, maker: Maker) -> Maker:
        family = Family(maker, self.names, self.weight)
        FAMILIES.append(family)
        MADE.update(dict.fromkeys(self.names, family))
        return maker


def makes(*names: str, weight: float = 1.0) -> Register:
    return Register(names, weight)


GRADIENTS = {"gradients", "conv_input_gradient", "conv_weight_gradient", "max_pool_gradient"}
LOOPS = {"while", "scan", "no_op"}
NOT_DRAWN = {"return", "yield", "fusion", "launch", "constant", *GRADIENTS, *LOOPS}
"""What graphs get otherwise, what only passes make, what graphs with state draw (`stateful`)."""


def draw_op(graph: Graph) -> None:
    """Adds an op; tries again where the one that was drawn finds no operands."""
    import tests.fuzz.makers_idioms
    import tests.fuzz.makers_math
    import tests.fuzz.makers_shape
    import tests.fuzz.makers_windows  # noqa: F401

    for _ in range(20):
        weights = [f.weight for f in FAMILIES]
        (family,) = graph.random.choices(FAMILIES, weights)
        made = family.maker(graph, graph.pick(family.names))
        if made is not None:
            return


def forgotten() -> set[str]:
    """Graph ops that no maker makes."""
    import tests.fuzz.makers_idioms
    import tests.fuzz.makers_math
    import tests.fuzz.makers_shape
    import tests.fuzz.makers_windows  # noqa: F401
    import tfc.ops  # noqa: F401

    graph_ops = {
        name
        for name, kind in OPS.items()
        if kind.level != "tile"
        and kind.effects is Effect.NONE
        and kind.__module__ not in ("tfc.ops.dataflow", "tfc.ops.partitions")
    }
    return graph_ops - set(MADE) - NOT_DRAWN
