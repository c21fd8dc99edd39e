"""ONNX operators that are compositions of others: Lp pools, crops, reversals, gates, losses."""

from __future__ import annotations

from tfc.importers.onnx_context import Context, Result
from tfc.importers.onnx_ops_elementwise import cast
from tfc.importers.onnx_ops_neural import pool_windows
from tfc.importers.onnx_registry import importer
from tfc.ir.core import Value
from tfc.ir.expr import Dim
from tfc.ir.types import I64


@importer("SwiGLU", 28)
def _(n: Context) -> Value:
    gate = n.make("silu", n.value(0), alpha=n.float("alpha", 1.0))
    n.require(n.type(0) == n.type(1), f"{n.type(0)} and {n.type(1)} differ")
    return n.make("mul", gate, n.value(1))


# ---- Lp pools


@importer("LpPool", 2, 11, 18, 22)
def _(n: Context) -> Value:
    """The sum of |x|^p over each window, to the power 1/p."""
    x = n.value(0)
    p = n.int("p", 2)
    n.require(p > 0, f"p is {p}")
    found = pool_windows(n, dilates=n.version >= 18, ceils=n.version >= 18)
    channels = x.tensor.shape[1]
    if not isinstance(channels, int) or channels == 0:
        raise n.unsupported("channels of unknown number are not supported")
    one = n.scalar(1.0, x.tensor.dtype)
    ones = n.make("full", one, shape=(channels, 1, *found.kernel))
    high = [h + o for h, o in zip(found.windows.high, found.overhang, strict=True)]
    total = n.make(
        "conv",
        _power(n, n.make("abs", x), p),
        ones,
        None,
        strides=found.windows.strides,
        low_pads=found.windows.low,
        high_pads=tuple(high),
        dilations=found.windows.dilations,
        groups=channels,
    )
    return _power(n, total, 1 / p)


def _power(n: Context, x: Value, exponent: float) -> Value:
    if exponent == 1:
        return x
    return n.make("pow", x, n.scalar(exponent, x.tensor.dtype))


@importer("GlobalLpPool", 2, 22)
def _(n: Context) -> Value:
    x = n.value(0)
    p = n.int("p", 2)
    n.require(p > 0, f"p is {p}")
    axes = tuple(range(2, x.tensor.rank))
    powers = _power(n, n.make("abs", x), p)
    return _power(n, n.make("reduce_sum", powers, axes=axes, keepdims=True), 1 / p)


# ---- crops and reversals


@importer("CenterCropPad", 18)
def _(n: Context) -> Value:
    """Cuts or pads with zeros on both sides; the larger half lies behind."""
    x = n.value(0)
    wanted = n.known_ints(1, "shape")
    axes = tuple(n.axis(axis, n.rank) for axis in n.ints("axes", tuple(range(n.rank))))
    n.require(len(wanted) == len(axes), f"{len(wanted)} sizes for {len(axes)} axes")
    n.require(len(set(axes)) == len(axes), f"axes {list(axes)} name one axis twice")
    low, high = [0] * n.rank, [0] * n.rank
    for axis, size in zip(axes, wanted, strict=True):
        known = x.tensor.shape[axis]
        if not isinstance(known, int):
            raise n.unsupported("a symbolic dimension is not supported")
        n.require(size >= 0, f"a size of {size}")
        missing = size - known
        low[axis] = missing // 2 if missing >= 0 else -(-missing // 2)
        high[axis] = missing - low[axis]
    return n.make("pad", x, None, low=tuple(low), high=tuple(high), mode="constant")


@importer("ReverseSequence", 10, 28)
def _(n: Context) -> Value:
    """The first elements of each sequence in the opposite order, as many as it is long."""
    x, lengths = n.value(0), n.value(1)
    time, batch = n.axis(n.int("time_axis", 0), n.rank), n.axis(n.int("batch_axis", 1), n.rank)
    n.require(time != batch, "time and batch are one axis")
    shape = x.tensor.shape
    places: list[Dim] = [1] * n.rank
    places[time] = shape[time]
    place = n.make("iota", shape=tuple(places), axis=time, dtype=I64)
    rows: list[Dim] = [1] * n.rank
    rows[batch] = shape[batch]
    length = n.make("reshape", cast(n, lengths, I64), shape=tuple(rows))
    turned = n.make("sub", n.make("sub", length, n.scalar(1, I64)), place)
    source = n.make("where", n.make("less", place, length), turned, place)
    return n.make("gather_elements", x, n.make("expand", source, shape=shape), axis=time)


# ---- losses


@importer("NegativeLogLikelihoodLoss", 12, 13, 22)
def _(n: Context) -> Value:
    return _loss(n, n.value(0))


@importer("SoftmaxCrossEntropyLoss", 12, 13)
def _(n: Context) -> Result:
    logarithms = n.make("log_softmax", n.value(0), axis=1)
    return [_loss(n, logarithms), logarithms]


def _loss(n: Context, logarithms: Value) -> Value:
    """What the logarithms at the targets say, weighted, over what is not ignored."""
    target = cast(n, n.value(1), I64)
    dtype = logarithms.tensor.dtype
    reduction = n.string("reduction", "mean")
    n.require(reduction in ("none", "sum", "mean"), f"reduction is {reduction!r}")
    kept: Value | None = None
    if n.has_attribute("ignore_index"):
        ignored = n.scalar(n.int("ignore_index"), I64)
        kept = n.make("not_equal", target, ignored)
        target = n.make("where", kept, target, n.scalar(0, I64))
    index = n.make("unsqueeze", target, axes=(1,))
    found = n.make("gather_elements", logarithms, index, axis=1)
    losses = n.make("neg", n.make("squeeze", found, axes=(1,)))
    weights = n.make("gather", n.value(2), target, axis=0) if n.has(2) else None
    if kept is not None:
        counts = weights if weights is not None else n.scalar(1.0, dtype)
        weights = n.make("where", kept, counts, n.scalar(0.0, dtype))
        losses = n.make("where", kept, losses, n.scalar(0.0, dtype))
    if weights is not None:
        losses = n.make("mul", losses, weights)
    return _reduced(n, losses, weights, reduction)


def _reduced(n: Context, losses: Value, weights: Value | None, reduction: str) -> Value:
    axes = tuple(range(losses.tensor.rank))
    if reduction == "none":
        return losses
    if reduction == "mean" and weights is None:
        return n.make("reduce_mean", losses, axes=axes, keepdims=False)
    total = n.make("reduce_sum", losses, axes=axes, keepdims=False)
    if reduction == "sum" or weights is None:
        return total
    return n.make("div", total, n.make("reduce_sum", weights, axes=axes, keepdims=False))
