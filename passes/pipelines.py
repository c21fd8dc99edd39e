"""THE lists of passes, in the order in which they run: all that a level of optimisation is."""

from __future__ import annotations

CLEAN = (
    "constant-branches",  # first: what a branch holds is then seen by the rules
    "canonicalize",  # algebraic rules, which keep every bit
    "cse",  # after the rules, which make equal things look equal
    "dce",  # what the two left behind
)

FOLD_SCALES = (
    "canonicalize{fold-scales=true}",  # batch norms into convolutions: rounds differently
    "constant-folding",  # the weights, scaled
    "cse",
    "dce",
)

LOOPS = (
    "carried-values",  # what loops need not carry; after folding, which tells how often they run
    "loop-invariant-code-motion",  # then more is the same in all iterations
    "control-edges",  # ops without edges can share kernels
)

STRUCTURED = (
    "prune",  # first: nobody needs to look at what never runs
    "functionalize",  # from here on branches and loops are regions
    "prune",  # what has effects becomes a target of its block, now that each op has one
    "unordered-state",  # a check of what was written, before anything else rewrites it
    "gradients",  # through regions; from here on all ops have a meaning of their own
)
"""How each level begins."""

# ---- the graph, optimised and gathered to groups; what all targets share

O0 = (
    *STRUCTURED,
    "entry-checks",  # before anything else rewrites ops, which would lose what they assume
    "decompose",  # kernels are built from primitives only
    "kernel-forms",  # the few forms that kernel builders take
    "dce",  # constants that nothing uses would still be stored
    "fusion{largest=1}",  # every op a kernel of its own
)

O1 = (
    *STRUCTURED,
    "entry-checks",  # before anything else rewrites ops, which would lose what they assume
    "constant-folding",  # shapes and statistics become constants, which the rules look for
    *CLEAN,
    "decompose",  # from here on there are primitives only
    "constant-folding",  # what composites computed from constants, such as scales of batch norms
    *LOOPS,
    *CLEAN,
    "kernel-forms",  # the few forms that kernel builders take
    "fusion{largest=1}",  # every op a kernel of its own
)

O2 = (
    *STRUCTURED,
    "entry-checks",  # before anything else rewrites ops, which would lose what they assume
    "constant-folding",  # shapes and statistics become constants, which the rules look for
    *CLEAN,
    "raise-idioms",  # what exporters spell out; before decompose spells it out again, one way only
    "decompose",  # from here on there are primitives only
    "constant-folding",  # what composites computed from constants, such as scales of batch norms
    *LOOPS,
    *CLEAN,
    "kernel-forms",  # before layouts: a bias is then an op of its own
    "layout",  # before fusion: groups have one layout; while each hero is still an op
    *CLEAN,  # weights that were packed twice, reshapes around products
    "fusion",  # last on the graph: groups hide their ops from every other pass
)

O3 = (
    *STRUCTURED,
    "entry-checks",  # before anything else rewrites ops, which would lose what they assume
    "constant-folding",  # shapes and statistics become constants, which the rules look for
    *CLEAN,
    "raise-idioms",  # what exporters spell out; before decompose spells it out again, one way only
    "decompose",  # from here on there are primitives only
    "constant-folding",  # what composites computed from constants, such as scales of batch norms
    *LOOPS,
    *FOLD_SCALES,
    *CLEAN,
    "kernel-forms",  # before layouts: a bias is then an op of its own
    "layout",  # before fusion: groups have one layout; while each hero is still an op
    *CLEAN,  # weights that were packed twice, reshapes around products
    "fusion",  # last on the graph: groups hide their ops from every other pass
)

LEVELS = (O0, O1, O2, O3)

DEVICES = (
    "prune",  # first: what never runs needs no device
    "functionalize",  # a loop lies on one device, as one op
    "gradients",  # their ops are placed like others
    "constant-branches",  # a branch that is not taken weighs nothing
    "placement",  # before ops are fused and rewritten: what they say of devices is still theirs
    "partition",  # from here on each function is one device's, and is optimised by itself
)
"""Before a level, for several devices."""

GIVEN = (
    *STRUCTURED,
    "bound-accesses",  # of the kernels that are there; those made later need it not
    "check-groups",  # of the groups that are there; those made later fit
    "entry-checks",  # what ops assume, inside of groups too
    "decompose",  # kernels are built from primitives only
    "kernel-forms",  # the few forms that kernel builders take
    "fusion{largest=1}",  # what stands beside the groups becomes kernels too
)
"""Instead of a level, for a module that holds groups or kernels already."""

# ---- groups to kernels, for one target

KERNELS = (
    "schedule",  # tiles, strips and staging of each group, for the target
    "lower",  # each group becomes a kernel
    "dce",  # constants that became part of kernels
    "control-scheduling",  # an order that needs little memory, which the plan then uses
    "vectorize",  # the lanes of each kernel, by which the passes below count cycles
    "unroll",  # short loops, as soon as vectors say how short
    "parallelize",  # how many programs of a kernel are worth a thread's attention
    "memory-planning",  # last: where values lie depends on the order
)

PIPELINES: dict[str, tuple[str, ...]] = {
    "clean": CLEAN,
    "devices": DEVICES,
    "O0": O0,
    "O1": O1,
    "O2": O2,
    "O3": O3,
    "kernels": KERNELS,
}
"""What `--pass-pipeline` takes by name."""
