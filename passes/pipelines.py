"""THE lists of passes, in the order in which they run: all that a level of optimisation is."""

from __future__ import annotations

CLEAN = (
    "canonicalize",  # algebraic rules; leaves what they made dead
    "cse",  # after the rules, which make equal things look equal
    "dce",
)

# ---- graph to graph

GRAPH_O0 = (
    "prune",  # first: nobody needs to look at what never runs
    "decompose",  # kernels are built from primitives only
    "dce",  # constants that nothing uses would still be stored
)

GRAPH_O1 = (
    "prune",  # first: nobody needs to look at what never runs
    "constant-folding",  # shapes and statistics become constants, which the rules look for
    *CLEAN,
    "decompose",  # the rules above know some composites; from here on there are primitives only
    "constant-folding",  # what composites computed from constants, such as scales of batch norms
    *CLEAN,
)

PIPELINES: dict[str, tuple[str, ...]] = {
    "clean": CLEAN,
    "graph-O0": GRAPH_O0,
    "graph-O1": GRAPH_O1,
}
