"""ONNX operators of neural networks: convolution, pools, normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfc.importers.onnx_context import Context, Result
from tfc.importers.onnx_ops_elementwise import cast
from tfc.importers.onnx_registry import importer
from tfc.ir.core import Value
from tfc.ir.expr import Dim
from tfc.ir.types import F32, F64, DType

# ---- windows


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows lie along the spatial axes, padding made explicit."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]


def windows(n: Context, kernel: Sequence[int], sizes: Sequence[Dim], dilates: bool) -> Windows:
    """The windows of a node over spatial axes of some sizes."""
    count = len(sizes)
    strides = _per_axis(n, "strides", count)
    dilations = _per_axis(n, "dilations", count)
    n.require(dilates or set(dilations) <= {1}, f"{n.node.op_type}-{n.version} does not dilate")
    mode = n.string("auto_pad", "NOTSET")
    pads = n.ints("pads", (0,) * (2 * count))
    n.require(len(pads) == 2 * count, f"{len(pads)} pads for {count} spatial axes")
    if mode == "NOTSET":
        return Windows(strides, dilations, pads[:count], pads[count:])
    if mode == "VALID":
        return Windows(strides, dilations, (0,) * count, (0,) * count)
    n.require(mode in ("SAME_UPPER", "SAME_LOWER"), f"auto_pad is {mode!r}")
    totals = [
        _same_padding(n, size, stride, (taps - 1) * dilation + 1)
        for size, stride, taps, dilation in zip(sizes, strides, kernel, dilations, strict=True)
    ]
    less, more = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    upper = mode == "SAME_UPPER"
    return Windows(strides, dilations, less if upper else more, more if upper else less)


def _per_axis(n: Context, name: str, count: int) -> tuple[int, ...]:
    values = n.ints(name, (1,) * count)
    n.require(len(values) == count, f"{name} has {len(values)} entries for {count} spatial axes")
    n.require(all(value > 0 for value in values), f"{name} is {list(values)}")
    return values


def _same_padding(n: Context, size: Dim, stride: int, reach: int) -> int:
    """How much padding gives ceil(size / stride) windows."""
    if isinstance(size, int):
        return max((-(-size // stride) - 1) * stride + reach - size, 0)
    if stride == 1:
        return reach - 1
    raise n.unsupported("auto_pad with a stride over a symbolic dimension is not supported")


@importer("Conv", 1, 11, 22)
def _(n: Context) -> Value:
    return convolution(n, n.value(0), n.value(1), n.optional(2))


def convolution(n: Context, x: Value, weight: Value, bias: Value | None) -> Value:
    """A convolution with the windows of a node."""
    n.require(x.tensor.rank >= 3, f"{x.tensor} has no spatial axis")
    n.require(weight.tensor.rank == x.tensor.rank, f"the weight is {weight.tensor}")
    kernel = _kernel(n, weight.tensor.shape[2:])
    found = windows(n, kernel, x.tensor.shape[2:], True)
    return n.make(
        "conv",
        x,
        weight,
        bias,
        strides=found.strides,
        low_pads=found.low,
        high_pads=found.high,
        dilations=found.dilations,
        groups=n.int("group", 1),
    )


def _kernel(n: Context, sizes: tuple[Dim, ...]) -> tuple[int, ...]:
    taps = tuple(size for size in sizes if isinstance(size, int))
    if len(taps) < len(sizes):
        raise n.unsupported("a weight with symbolic spatial sizes is not supported")
    given = n.ints("kernel_shape", taps)
    n.require(given == taps, f"kernel_shape is {list(given)}, the weight's is {list(taps)}")
    return taps


@importer("MaxPool", 1, 8, 10, 11, 12, 22)
def _(n: Context) -> Value:
    if n.version >= 8:
        n.ignore("storage_order")  # it orders the second output, the indices
    return _pool(n, "max_pool", n.version >= 10, n.version >= 10)


@importer("AveragePool", 1)
def _(n: Context) -> Value:
    return _pool(n, "average_pool", False, False)


@importer("AveragePool", 7, 10, 11, 19, 22)
def _(n: Context) -> Value:
    counts = n.flag("count_include_pad")
    return _pool(n, "average_pool", n.version >= 19, n.version >= 10, count_include_pad=counts)


def _pool(n: Context, op: str, dilates: bool, ceils: bool, **more: bool) -> Value:
    found = pool_windows(n, dilates=dilates, ceils=ceils)
    return n.make(
        op,
        n.value(0),
        kernel=found.kernel,
        strides=found.windows.strides,
        low_pads=found.windows.low,
        high_pads=found.windows.high,
        dilations=found.windows.dilations,
        overhang=found.overhang if any(found.overhang) else (),
        **more,
    )


@dataclass(frozen=True, slots=True)
class PoolWindows:
    """The windows of a pool: their sizes, how they lie, how far the last one reaches out."""

    kernel: tuple[int, ...]
    windows: Windows
    overhang: tuple[int, ...]


def pool_windows(n: Context, *, dilates: bool, ceils: bool) -> PoolWindows:
    x = n.value(0)
    n.require(x.tensor.rank >= 3, f"{x.tensor} has no spatial axis")
    sizes, kernel = x.tensor.shape[2:], n.ints("kernel_shape")
    n.require(len(kernel) == len(sizes), f"kernel_shape {list(kernel)} for {len(sizes)} axes")
    n.require(all(k > 0 for k in kernel), f"kernel_shape is {list(kernel)}")
    found = windows(n, kernel, sizes, dilates)
    rounds_up = ceils and n.flag("ceil_mode") and n.string("auto_pad", "NOTSET") == "NOTSET"
    overhang = _overhangs(n, sizes, kernel, found) if rounds_up else (0,) * len(kernel)
    return PoolWindows(kernel, found, overhang)


def _overhangs(
    n: Context, sizes: Sequence[Dim], kernel: Sequence[int], found: Windows
) -> tuple[int, ...]:
    reaches = [(k - 1) * d + 1 for k, d in zip(kernel, found.dilations, strict=True)]
    axes = zip(sizes, reaches, found.strides, found.low, found.high, strict=True)
    return tuple(_overhang(n, *axis) for axis in axes)


def _overhang(n: Context, size: Dim, reach: int, stride: int, low: int, high: int) -> int:
    """How far the last window reaches beyond the padding when the number of windows is rounded up.

    A window that would start in the high padding is left out.
    """
    if not isinstance(size, int):
        if high + stride - 1 < reach:
            return stride - 1
        raise n.unsupported("ceil_mode with so much padding over a symbolic dimension")
    room = size + low + high - reach
    n.require(room >= 0, f"a window of {reach} places is larger than the padded axis")
    count = -(-room // stride) + 1
    if (count - 1) * stride >= size + low:
        count -= 1
    if count < room // stride + 1:
        raise n.unsupported("ceil_mode with windows that lie in the padding alone")
    return max((count - 1) * stride - room, 0)


@importer("GlobalAveragePool", 1, 22)
def _(n: Context) -> Value:
    return n.make("global_average_pool", n.value(0))


@importer("GlobalMaxPool", 1, 22)
def _(n: Context) -> Value:
    return n.make("global_max_pool", n.value(0))


# ---- normalisations


@importer("BatchNormalization", 6)
def _(n: Context) -> Value:
    n.ignore("momentum", "consumed_inputs")
    n.require(n.int("spatial", 1) == 1, "spatial = 0 is not supported")
    if not n.flag("is_test"):
        raise n.unsupported("training mode is not supported")
    return _batch_norm(n)


@importer("BatchNormalization", 7, 9)
def _(n: Context) -> Value:
    n.ignore("momentum")
    if n.version < 9:
        n.require(n.int("spatial", 1) == 1, "spatial = 0 is not supported")
    return _batch_norm(n)


@importer("BatchNormalization", 14, 15)
def _(n: Context) -> Value:
    n.ignore("momentum")
    if n.flag("training_mode"):
        raise n.unsupported("training mode is not supported")
    return _batch_norm(n)


def _batch_norm(n: Context) -> Value:
    values = [n.value(i) for i in range(5)]
    dtype = values[0].tensor.dtype
    wide = _widest([value.tensor.dtype for value in values])
    found = n.make(
        "batch_norm", *(cast(n, v, wide) for v in values), epsilon=n.float("epsilon", 1e-5)
    )
    return cast(n, found, dtype)


def _widest(dtypes: list[DType]) -> DType:
    """The element type to compute in: theirs if they agree, else f32, or f64 if one is."""
    if len(set(dtypes)) == 1:
        return dtypes[0]
    return F64 if F64 in dtypes else F32


@importer("LayerNormalization", 17)
def _(n: Context) -> Result:
    n.ignore("stash_type")  # the op computes in f32 at least
    x, axis = n.value(0), n.axis(n.int("axis", -1), n.rank)
    epsilon = n.float("epsilon", 1e-5)
    y = n.make("layer_norm", x, n.value(1), n.optional(2), axis=axis, epsilon=epsilon)
    if not any(n.node.outputs[1:]):
        return y
    return [y, *_statistics(n, x, axis, epsilon)]


def _statistics(n: Context, x: Value, axis: int, epsilon: float) -> list[Value]:
    """The mean and the reciprocal of the standard deviation, in f32 as ONNX has it."""
    wide, axes = cast(n, x, F32), tuple(range(axis, x.tensor.rank))
    mean = n.make("reduce_mean", wide, axes=axes, keepdims=True)
    away = n.make("sub", wide, mean)
    variance = n.make("reduce_mean", n.make("mul", away, away), axes=axes, keepdims=True)
    shifted = n.make("add", variance, n.scalar(epsilon, F32))
    return [mean, n.make("reciprocal", n.make("sqrt", shifted))]


@importer("RMSNormalization", 23)
def _(n: Context) -> Value:
    n.ignore("stash_type")
    x, scale = n.value(0), n.value(1)
    wide = _widest([x.tensor.dtype, scale.tensor.dtype])
    y = n.make(
        "rms_norm",
        cast(n, x, wide),
        cast(n, scale, wide),
        axis=n.axis(n.int("axis", -1), n.rank),
        epsilon=n.float("epsilon", 1e-5),
    )
    return cast(n, y, scale.tensor.dtype)


@importer("InstanceNormalization", 6, 22)
def _(n: Context) -> Value:
    epsilon = n.float("epsilon", 1e-5)
    return n.make("instance_norm", n.value(0), n.value(1), n.value(2), epsilon=epsilon)


@importer("GroupNormalization", 21)
def _(n: Context) -> Value:
    n.ignore("stash_type")
    return n.make(
        "group_norm",
        n.value(0),
        n.value(1),
        n.value(2),
        groups=n.int("num_groups"),
        epsilon=n.float("epsilon", 1e-5),
    )


@importer("LRN", 1, 13)
def _(n: Context) -> Value:
    return n.make(
        "lrn",
        n.value(0),
        size=n.int("size"),
        alpha=n.float("alpha", 1e-4),
        beta=n.float("beta", 0.75),
        bias=n.float("bias", 1.0),
    )


@importer("LpNormalization", 1, 22)
def _(n: Context) -> Value:
    """x / norm along an axis, 0 where the norm is 0."""
    x, axis, p = n.value(0), n.axis(n.int("axis", -1), n.rank), n.int("p", 2)
    n.require(p in (1, 2), f"p is {p}, not 1 or 2")
    norm = n.make(f"reduce_l{p}", x, axes=(axis,), keepdims=True)
    zero = n.scalar(0.0, x.tensor.dtype)
    return n.make("where", n.make("equal", norm, zero), zero, n.make("div", x, norm))


@importer("MeanVarianceNormalization", 9, 13)
def _(n: Context) -> Value:
    """(x - mean) / (standard deviation + 1e-9), as ONNX's own function body."""
    x = n.value(0)
    axes = n.axes(n.ints("axes", (0, 2, 3)), n.rank)
    away = n.make("sub", x, n.make("reduce_mean", x, axes=axes, keepdims=True))
    variance = n.make("reduce_mean", n.make("mul", away, away), axes=axes, keepdims=True)
    deviation = n.make("sqrt", variance)
    return n.make("div", away, n.make("add", deviation, n.scalar(1e-9, x.tensor.dtype)))
