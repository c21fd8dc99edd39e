"""ConvTranspose: the convolution, turned round, of an input with zeros between its elements."""

from __future__ import annotations

from collections.abc import Sequence

from tfc.importers.onnx_context import Context
from tfc.importers.onnx_registry import importer
from tfc.ir.core import Value
from tfc.ir.expr import Dim, as_expr, normal


@importer("ConvTranspose", 1, 11, 22)
def _(n: Context) -> Value:
    x, weight = n.value(0), n.value(1)
    n.require(x.tensor.rank >= 3, f"{x.tensor} has no spatial axis")
    n.require(weight.tensor.rank == x.tensor.rank, f"the weight is {weight.tensor}")
    taps = _static(n, weight.tensor.shape[2:], "a weight with symbolic spatial sizes")
    count, groups = len(taps), n.int("group", 1)
    given = n.ints("kernel_shape", taps)
    n.require(given == taps, f"kernel_shape is {list(given)}, the weight's is {list(taps)}")
    strides, dilations = (_positive(n, name, count) for name in ("strides", "dilations"))
    reaches = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    low, high = _pads(n, x.tensor.shape[2:], strides, reaches)
    # A pad of the result takes away what the whole window would reach.
    low = [reach - 1 - pad for reach, pad in zip(reaches, low, strict=True)]
    high = [reach - 1 - pad for reach, pad in zip(reaches, high, strict=True)]
    return n.make(
        "conv",
        _cropped(n, _spaced(n, x, strides), low, high),
        _turned(n, weight, groups),
        n.optional(2),
        strides=(1,) * count,
        low_pads=tuple(max(0, pad) for pad in low),
        high_pads=tuple(max(0, pad) for pad in high),
        dilations=dilations,
        groups=groups,
    )


def _static(n: Context, sizes: Sequence[Dim], what: str) -> tuple[int, ...]:
    found = tuple(size for size in sizes if isinstance(size, int))
    if len(found) < len(sizes):
        raise n.unsupported(f"{what} is not supported")
    return found


def _positive(n: Context, name: str, count: int) -> tuple[int, ...]:
    values = n.ints(name, (1,) * count)
    n.require(len(values) == count, f"{name} has {len(values)} entries for {count} spatial axes")
    n.require(all(value > 0 for value in values), f"{name} is {list(values)}")
    return values


def _pads(
    n: Context, sizes: Sequence[Dim], strides: Sequence[int], reaches: Sequence[int]
) -> tuple[list[int], list[int]]:
    """How much of the whole result is cut off at both ends of each axis; negative: added."""
    count = len(sizes)
    mode = n.string("auto_pad", "NOTSET")
    n.require(mode in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"), f"auto_pad is {mode!r}")
    extra = n.ints("output_padding", (0,) * count)
    pads = n.ints("pads", (0,) * (2 * count))
    n.require(len(extra) == count, f"output_padding has {len(extra)} entries")
    n.require(len(pads) == 2 * count, f"{len(pads)} pads for {count} spatial axes")
    if n.has_attribute("output_shape"):
        wanted = n.ints("output_shape")
        known = _static(n, sizes, "output_shape with symbolic sizes")
        n.require(len(wanted) == count, f"output_shape is {list(wanted)}")
        whole = [s * (k - 1) + r for s, k, r in zip(strides, known, reaches, strict=True)]
        totals = [w + e - o for w, e, o in zip(whole, extra, wanted, strict=True)]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):  # as many as the input has, times the stride
        totals = [r - s + e for r, s, e in zip(reaches, strides, extra, strict=True)]
    else:
        used = (0,) * (2 * count) if mode == "VALID" else pads
        return list(used[:count]), [p - e for p, e in zip(used[count:], extra, strict=True)]
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    low, high = (less, more) if mode == "SAME_UPPER" else (more, less)
    return low, [p - e for p, e in zip(high, extra, strict=True)]


def _spaced(n: Context, x: Value, strides: Sequence[int]) -> Value:
    """The operand with stride - 1 zeros between its elements."""
    if all(stride == 1 for stride in strides):
        return x
    batch, sizes = x.tensor.shape[:2], x.tensor.shape[2:]
    if any(size == 0 for size in sizes):
        raise n.unsupported("an input without elements is not supported")
    columns = [d for size in sizes for d in (size, 1)]
    split = n.make("reshape", x, shape=(*batch, *columns))
    after = (0, 0, *(k for stride in strides for k in (0, stride - 1)))
    padded = n.make("pad", split, None, low=(0,) * len(after), high=after, mode="constant")
    long = [normal(as_expr(size) * s) for size, s in zip(sizes, strides, strict=True)]
    joined = n.make("reshape", padded, shape=(*batch, *long))
    limits = [normal(as_expr(size) - (s - 1)) for size, s in zip(long, strides, strict=True)]
    rank = x.tensor.rank
    return n.make("slice", joined, starts=(0,) * rank, limits=(*batch, *limits), steps=(1,) * rank)


def _cropped(n: Context, x: Value, low: Sequence[int], high: Sequence[int]) -> Value:
    """The operand without what negative padding takes away."""
    if all(pad >= 0 for pad in (*low, *high)):
        return x
    shape = x.tensor.shape
    starts = (0, 0, *(max(0, -pad) for pad in low))
    ends = (0, 0, *(max(0, -pad) for pad in high))
    limits = tuple(normal(as_expr(size) - end) for size, end in zip(shape, ends, strict=True))
    return n.make("slice", x, starts=starts, limits=limits, steps=(1,) * len(shape))


def _turned(n: Context, weight: Value, groups: int) -> Value:
    """[C, M/g, taps...] as [M, C/g, taps...], with the taps in the opposite order."""
    channels, each, *taps = weight.tensor.shape
    n.require(groups > 0 and isinstance(channels, int), f"{groups} groups of {channels} channels")
    assert isinstance(channels, int)
    n.require(channels % groups == 0, f"{channels} channels are not {groups} groups")
    split = n.make("reshape", weight, shape=(groups, channels // groups, each, *taps))
    order = (0, 2, 1, *range(3, 3 + len(taps)))
    swapped = n.make("transpose", split, permutation=order)
    outputs = normal(as_expr(each) * groups)
    joined = n.make("reshape", swapped, shape=(outputs, channels // groups, *taps))
    steps = (1, 1, *(-1 for _ in taps))
    starts = (0, 0, *(int(str(k)) - 1 for k in taps))
    limits = (outputs, channels // groups, *(-1 for _ in taps))
    return n.make("slice", joined, starts=starts, limits=limits, steps=steps)
