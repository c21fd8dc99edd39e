"""ONNX operators that reduce along axes."""

from __future__ import annotations

from tfc.importers.onnx_context import Context
from tfc.importers.onnx_forms import axes_of
from tfc.importers.onnx_registry import Handler, importer
from tfc.ir.core import Value

# operator -> op, the version that made the axes an input, all versions
REDUCTIONS: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "ReduceL1": ("reduce_l1", 18, (1, 11, 13, 18)),
    "ReduceL2": ("reduce_l2", 18, (1, 11, 13, 18)),
    "ReduceLogSum": ("reduce_log_sum", 18, (1, 11, 13, 18, 28)),
    "ReduceLogSumExp": ("reduce_log_sum_exp", 18, (1, 11, 13, 18, 28)),
    "ReduceMax": ("reduce_max", 18, (1, 11, 12, 13, 18, 20)),
    "ReduceMean": ("reduce_mean", 18, (1, 11, 13, 18)),
    "ReduceMin": ("reduce_min", 18, (1, 11, 12, 13, 18, 20)),
    "ReduceProd": ("reduce_prod", 18, (1, 11, 13, 18)),
    "ReduceSum": ("reduce_sum", 13, (1, 11, 13)),
    "ReduceSumSquare": ("reduce_sum_square", 18, (1, 11, 13, 18)),
}


def _reduction(op: str, since: int) -> Handler:
    def convert(n: Context) -> Value:
        axes = axes_of(n, since)
        # With no axes all are reduced, unless the node says that none is.
        none = n.version >= since and n.flag("noop_with_empty_axes")
        chosen = axes if axes or none else tuple(range(n.rank))
        return n.make(
            op, n.value(0), axes=n.axes(chosen or (), n.rank), keepdims=n.flag("keepdims", True)
        )

    return convert


for _op_type, (_op, _since, _versions) in REDUCTIONS.items():
    importer(_op_type, *_versions)(_reduction(_op, _since))


@importer("ArgMax", 1, 11, 12, 13)
@importer("ArgMin", 1, 11, 12, 13)
def _(n: Context) -> Value:
    return n.make(
        n.node.op_type.lower(),
        n.value(0),
        axis=n.axis(n.int("axis", 0), n.rank),
        keepdims=n.flag("keepdims", True),
        select_last=n.version >= 12 and n.flag("select_last_index"),
    )


@importer("CumSum", 11, 14)
def _(n: Context) -> Value:
    axes = n.known_ints(1, "axis")
    n.require(len(axes) == 1, f"{len(axes)} axes, not one")
    return n.make(
        "cumsum",
        n.value(0),
        axis=n.axis(axes[0], n.rank),
        exclusive=n.flag("exclusive"),
        reverse=n.flag("reverse"),
    )
