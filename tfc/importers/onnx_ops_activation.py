"""ONNX operators that activate: Relu and its kin, Softmax, Hardmax."""

from __future__ import annotations

from tfc.importers.onnx_context import Context
from tfc.importers.onnx_registry import Handler, importer
from tfc.ir.core import Value
from tfc.ir.expr import product
from tfc.ir.types import I64

PLAIN: dict[str, tuple[str, tuple[int, ...]]] = {
    "HardSwish": ("hard_swish", (14, 22)),
    "Mish": ("mish", (18, 22)),
    "Relu": ("relu", (6, 13, 14)),
    "Softsign": ("softsign", (1, 22)),
}
# operator -> op, its versions, and its float attributes with ONNX's defaults
SCALED: dict[str, tuple[str, tuple[int, ...], dict[str, float]]] = {
    "Celu": ("celu", (12, 28), {"alpha": 1.0}),
    "Elu": ("elu", (6, 22), {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", (6, 22), {"alpha": 0.2, "beta": 0.5}),
    "LeakyRelu": ("leaky_relu", (6, 16), {"alpha": 0.01}),
    "Selu": ("selu", (6, 22), {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}),
    "Shrink": ("shrink", (9,), {"bias": 0.0, "lambd": 0.5}),
    "Swish": ("silu", (24,), {"alpha": 1.0}),
    "ThresholdedRelu": ("thresholded_relu", (10, 22), {"alpha": 1.0}),
}


def _scaled(op: str, defaults: dict[str, float]) -> Handler:
    def convert(n: Context) -> Value:
        return n.make(op, n.value(0), **{name: n.float(name, v) for name, v in defaults.items()})

    return convert


for _op_type, (_op, _versions) in PLAIN.items():
    importer(_op_type, *_versions)(_scaled(_op, {}))
for _op_type, (_op, _versions, _defaults) in SCALED.items():
    importer(_op_type, *_versions)(_scaled(_op, _defaults))


@importer("Gelu", 20)
def _(n: Context) -> Value:
    return n.make("gelu", n.value(0), approximate=n.string("approximate", "none"))


@importer("PRelu", 7, 9, 16)
def _(n: Context) -> Value:
    return n.make("prelu", n.value(0), n.value(1))


@importer("PRelu", 6)
def _(n: Context) -> Value:
    """One slope, or one a channel, which is the second dimension."""
    x, slope = n.value(0), n.value(1)
    shape = (slope.tensor.elements, *[1] * max(x.tensor.rank - 2, 0))
    return n.make("prelu", x, n.make("reshape", slope, shape=shape))


# ---- along an axis


def _softmax(n: Context, x: Value, axis: int) -> Value:
    op = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}[n.node.op_type]
    return n.make(op, x, axis=axis)


def _hardmax(n: Context, x: Value, axis: int) -> Value:
    """1 at the first largest element along an axis, else 0."""
    largest = n.make("argmax", x, axis=axis, keepdims=True)
    places = n.make("iota", shape=x.tensor.shape, axis=axis, dtype=I64)
    return n.make("cast", n.make("equal", places, largest), to=x.tensor.dtype)


@importer("Softmax", 13)
@importer("LogSoftmax", 13)
def _(n: Context) -> Value:
    return _softmax(n, n.value(0), n.axis(n.int("axis", -1), n.rank))


@importer("Hardmax", 13)
def _(n: Context) -> Value:
    return _hardmax(n, n.value(0), n.axis(n.int("axis", -1), n.rank))


@importer("Softmax", 1, 11)
@importer("LogSoftmax", 1, 11)
@importer("Hardmax", 1, 11)
def _(n: Context) -> Value:
    """Before opset 13 the operand is a matrix: the dimensions from `axis` on are its rows."""
    convert = _hardmax if n.node.op_type == "Hardmax" else _softmax
    x, axis = n.value(0), n.axis(n.int("axis", 1), n.rank)
    shape = x.tensor.shape
    if all(size == 1 for size in shape[axis + 1 :]):
        return convert(n, x, axis)
    matrix = n.make("reshape", x, shape=(product(shape[:axis]), product(shape[axis:])))
    return n.make("reshape", convert(n, matrix, 1), shape=shape)
