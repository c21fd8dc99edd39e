"""An example, or several, of each op that has a gradient: operands in f64 where it is smooth."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ops.derivatives import Case
from tfc.ir.types import F64


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([*shape, seed]).normal(size=shape)


def inside(low: float, high: float, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([*shape, seed]).uniform(low, high, shape)


def apart(*shape: int) -> np.ndarray:
    """Numbers no two of which are close."""
    count = int(np.prod(shape))
    return (np.random.default_rng(count).permutation(count) / 4 - 1.1).reshape(shape)


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def unary(name: str, x: np.ndarray | None = None, **attributes: Any) -> Case:
    array = normal(2, 3) if x is None else x
    return Case(name, [array], attributes, {(0, 0): "S"})


def binary(name: str, x: np.ndarray, y: np.ndarray) -> Case:
    return Case(name, [x, y], {}, {(0, 0): "S"})


def _elementwise() -> list[Case]:
    a, b = normal(4, 3), inside(0.5, 2, 3, seed=1)
    cases = [
        *(binary(n, a, b) for n in ("add", "sub", "mul", "div", "mod", "fmod")),
        *(Case(n, [normal(2, 1, 3), normal(4, 1)]) for n in ("add", "sub", "mul")),
        binary("pow", inside(0.5, 2, 4, 3), b),
        Case("pow", [np.array([-2.0, -1.5, 0.0, 3.0]), np.array(3.0)], constant=(1,)),
        *(binary(n, a, normal(3, seed=2)) for n in ("maximum", "minimum")),
        Case("add", [normal(3), np.array(2.0)]),
        *(unary(n) for n in ("neg", "abs", "exp", "expm1", "erf", "sin", "cos", "tan", "atan")),
        *(unary(n) for n in ("sinh", "cosh", "asinh", "tanh", "sigmoid", "softplus")),
        *(unary(n, inside(0.5, 3, 2, 3)) for n in ("sqrt", "rsqrt", "reciprocal", "log", "log1p")),
        *(unary(n, inside(-0.9, 0.9, 2, 3)) for n in ("asin", "acos", "atanh")),
        unary("acosh", inside(1.2, 3, 2, 3)),
        Case("cast", [normal(2, 3)], {"to": F64}),
        Case("cast", [normal(2, 3)], {"to": F64}, {(0, 1): "S"}),
        Case("where", [np.array([True, False, True]), normal(2, 3), normal(1, seed=1)]),
    ]
    names = ("relu", "leaky_relu", "hard_sigmoid", "hard_swish", "thresholded_relu", "shrink")
    smooth = ("elu", "selu", "celu", "gelu", "silu", "mish", "softsign")
    cases += [unary(n, normal(3, 4)) for n in (*names, *smooth)]
    cases += [
        unary("gelu", normal(3, 4), approximate="tanh"),
        unary("celu", normal(3, 4), alpha=2.0),
    ]
    cases += [Case("prelu", [normal(2, 3), normal(3, seed=1)], {}, {(0, 0): "S"})]
    cases += [
        Case("clip", [normal(3, 4), np.array(-0.5), np.array(0.4)], {}, {(0, 0): "S"}),
        Case("clip", [normal(3, 4), None, np.array(0.4)]),
        Case("clip", [normal(3, 4), np.array(0.4), None]),
        Case("clip", [normal(3, 4), np.array(0.4), np.array(-0.4)]),
    ]
    return cases


def _views() -> list[Case]:
    x = normal(4, 6)
    s = {(0, 0): "S"}
    return [
        Case("full", [np.array(2.0)], {"shape": (2, 3)}),
        Case("range", [np.array(1.5), np.array(0.5)], {"size": 4, "dtype": F64}),
        Case("reshape", [x], {"shape": (2, 12)}),
        Case("transpose", [normal(2, 3, 4)], {"permutation": (2, 0, 1)}, s),
        Case("slice", [x], {"starts": (1, 0), "limits": (3, 6), "steps": (1, 1)}),
        Case("slice", [x], {"starts": (0, 1), "limits": (4, 6), "steps": (3, 2)}),
        Case("slice", [x], {"starts": (3, 4), "limits": (-1, 0), "steps": (-1, -3)}),
        Case("expand", [normal(4, 1)], {"shape": (2, 4, 3)}),
        Case("tile", [normal(2, 3)], {"repeats": (2, 3)}, s),
        Case("identity", [x], {}, s),
        Case("optimization_barrier", [x], {}, s),
        Case("squeeze", [normal(1, 3, 1)], {"axes": (0, 2)}, {(0, 1): "S"}),
        Case("unsqueeze", [normal(3)], {"axes": (0, 2)}, s),
        Case("flatten", [normal(2, 3, 4)], {"axis": 2}, s),
        Case("concat", [normal(2, 3), normal(2, 1), normal(2, 2)], {"axis": 1}, {(1, 1): "S"}),
        Case("split", [x], {"axis": 1, "sizes": (1, 3, 2)}, s),
        Case("pad", [x, None], {"low": (1, 0), "high": (0, 2)}, s),
        Case("pad", [x, np.array(0.5)], {"low": (2, -1), "high": (-1, 2)}),
        *(
            Case("pad", [normal(4, 5), None], {"low": (1, 2), "high": (2, 0), "mode": m}, s)
            for m in ("reflect", "edge", "wrap")
        ),
        Case("depth_to_space", [normal(1, 8, 2, 1)], {"block": 2}, {(0, 2): "H"}),
        Case("depth_to_space", [normal(1, 8, 2, 1)], {"block": 2, "mode": "CRD"}),
        Case("space_to_depth", [normal(1, 2, 4, 2)], {"block": 2}),
        Case("trilu", [normal(3, 4)], {"k": 1}, s),
        Case("one_hot", [ints(0, 2, -1), normal(2)], {"depth": 3, "axis": 1}),
    ]


def _reductions() -> list[Case]:
    s = {(0, 0): "S"}
    cases: list[Case] = []
    for axes, keepdims in (((1,), False), ((0, 2), True), ((), False)):
        more = {"axes": axes, "keepdims": keepdims}
        names = ("reduce_sum", "reduce_prod", "reduce_mean", "reduce_l1", "reduce_l2")
        cases += [Case(n, [normal(2, 3, 2)], more, s) for n in names]
        cases += [Case("reduce_sum_square", [normal(2, 3, 2)], more, s)]
        cases += [Case("reduce_log_sum", [inside(0.5, 2, 2, 3, 2)], more, s)]
        cases += [Case("reduce_log_sum_exp", [normal(2, 3, 2)], more, s)]
        cases += [Case(n, [apart(2, 3, 2)], more, s) for n in ("reduce_max", "reduce_min")]
    zeros = np.array([[1.0, 0.0, 3.0], [0.0, 0.0, 2.0], [2.0, 3.0, 4.0]])
    cases.append(Case("reduce_prod", [zeros], {"axes": (1,)}))
    for exclusive in (False, True):
        for reverse in (False, True):
            more = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
            cases.append(Case("cumsum", [normal(2, 4)], more, s))
    cases += [Case(n, [normal(3, 4)], {"axis": a}, s) for n in _SOFTMAX for a in (0, 1)]
    return cases


_SOFTMAX = ("softmax", "log_softmax")


def _products() -> list[Case]:
    s = {(0, 0): "S"}
    return [
        Case("matmul", [normal(3, 4), normal(4, 2)], {}, s),
        Case("matmul", [normal(2, 3, 4), normal(4, 2)], {}, {(0, 0): "B", (0, 1): "S"}),
        Case("matmul", [normal(2, 3, 4), normal(2, 4, 2)], {}, {(0, 0): "B", (1, 0): "B"}),
        Case("matmul", [normal(2, 1, 3, 4), normal(3, 4, 2)]),
        Case("matmul", [normal(3, 4), normal(2, 4, 2)]),
        Case("matmul", [normal(4), normal(4, 2)]),
        Case("matmul", [normal(2, 3, 4), normal(4)]),
        Case("matmul", [normal(4), normal(4, seed=1)]),
        Case("matmul", [normal(4), normal(2, 4, 3)]),
        Case("gemm", [normal(4, 3), normal(2, 4), normal(2)], _GEMM),
        Case("gemm", [normal(3, 4), normal(4, 2), None], {}, s),
        Case("attention", [normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 2), None], _SCALE, s),
        Case("attention", [normal(3, 4), normal(5, 4), normal(5, 2), normal(1, 5)], _SCALE),
    ]


_GEMM = {"trans_a": True, "trans_b": True, "alpha": 0.5, "beta": 2.0}
_SCALE = {"scale": 0.7}


def _windows() -> list[Case]:
    x, s = normal(2, 4, 5, 6), {(0, 0): "N", (0, 2): "H"}
    uneven = {"strides": (2, 3), "low_pads": (1, 0), "high_pads": (0, 2), "dilations": (1, 2)}
    pooled = {"kernel": (3, 2), "strides": (2, 1), "low_pads": (1, 0), "high_pads": (1, 1)}
    more = {**pooled, "dilations": (1, 2), "overhang": (1, 0)}
    cases = [
        Case("conv", [x, normal(3, 4, 3, 2), normal(3)], uneven, s),
        Case("conv", [x, normal(6, 2, 1, 3), None], {"groups": 2, "strides": (2, 1)}, s),
        Case("conv", [x, normal(4, 1, 3, 3), None], {"groups": 4}, s),
        Case("conv", [normal(1, 2, 7), normal(3, 2, 3), None], {"strides": (2,)}, {(0, 2): "H"}),
        Case("conv", [normal(1, 1, 3, 3, 4), normal(2, 1, 2, 2, 2), None]),
        Case("average_pool", [x], pooled, s),
        Case("average_pool", [x], {**more, "count_include_pad": True}, s),
        Case("average_pool", [x], more, s),
        Case("global_average_pool", [x], {}, {(0, 0): "N", (0, 2): "H"}),
        Case("global_max_pool", [apart(2, 2, 3, 2)], {}, {(0, 0): "N", (0, 2): "H"}),
    ]
    small = apart(1, 2, 5, 4)
    where = {(0, 0): "N", (0, 2): "H"}
    cases += [Case("max_pool", [small], a, where) for a in (pooled, more, {"kernel": (2, 2)})]
    y = normal(2, 3, 2, 2)
    lists = {"strides": (2, 3), "low_pads": (1, 0), "high_pads": (0, 2)}
    cases += [
        Case("conv_input_gradient", [y, normal(3, 2, 3, 3)], {**lists, "size": (4, 5)}),
        Case("conv_weight_gradient", [normal(2, 2, 4, 5), y], {**lists, "kernel": (3, 3)}),
        Case(
            "max_pool_gradient",
            [apart(1, 1, 3, 3), _pooled(apart(1, 1, 3, 3)), normal(1, 1, 2, 2)],
            {"kernel": (2, 2)},
            constant=(0, 1),
        ),
    ]
    return cases


def _pooled(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.sliding_window_view(x, (2, 2), (2, 3)).max((4, 5))


def _indexing() -> list[Case]:
    s = {(0, 1): "S"}
    cases = [
        Case("gather", [normal(4, 3), ints([0, 2, -1], [2, 2, 1])], {"axis": 0}, s),
        Case("gather", [normal(2, 4, 3), ints(3, 0, 3)], {"axis": 1}, {(0, 0): "S"}),
        Case("gather", [normal(2, 4), np.array(1)], {"axis": 1}),
        Case("gather_elements", [normal(3, 4), ints([0, 2], [2, 2])], {"axis": 0}),
        Case("gather_elements", [normal(3, 4), ints([0, -1], [3, 3])], {"axis": 1}),
        Case("gather_nd", [normal(3, 4, 2), ints([0, 1], [2, 3], [0, 1])], {}, {(0, 2): "S"}),
        Case("gather_nd", [normal(2, 4, 3), ints([[1], [3]], [[0], [0]])], {"batch_dims": 1}),
    ]
    for r in ("none", "add", "mul", "max", "min"):
        again = ints([1], [3], [0]) if r == "none" else ints([1], [3], [1])
        x, u = (
            (apart(4, 3), apart(3, 3) + 0.1)
            if r in ("max", "min")
            else (normal(4, 3), normal(3, 3))
        )
        cases.append(
            Case("scatter_nd", [x, again, u], {"reduction": r}, {(0, 1): "S", (2, 1): "S"})
        )
        flat = ints([1, 0, 2], [3, 3, 1]) if r == "none" else ints([1, 0, 2], [1, 3, 1])
        cases.append(Case("scatter_elements", [x, flat, u[:2]], {"reduction": r}))
    return cases


def _normalisations() -> list[Case]:
    x, s = normal(2, 4, 3), {(0, 0): "N"}
    channels = [normal(4, seed=i) for i in range(3)]
    spread = inside(0.5, 2, 4, seed=9)
    return [
        Case("batch_norm", [x, *channels, spread], {"epsilon": 1e-3}, s),
        Case("layer_norm", [x, normal(3), normal(3, seed=1)], {"axis": 2}, s),
        Case("layer_norm", [x, normal(4, 3), None], {"axis": 1}, s),
        Case("rms_norm", [x, normal(3)], {"axis": 2}, s),
        Case("rms_norm", [x, None], {"axis": 1}),
        Case("instance_norm", [x, *channels[:2]], {}, s),
        Case("group_norm", [x, *channels[:2]], {"groups": 2}, s),
        Case("lrn", [normal(2, 5, 3)], {"size": 3, "alpha": 0.5}, s),
    ]


CASES = [
    *_elementwise(),
    *_views(),
    *_reductions(),
    *_products(),
    *_windows(),
    *_indexing(),
    *_normalisations(),
]
ELSEWHERE = {
    "if": "tests/ops/test_gradients_control.py",
    "scan": "tests/ops/test_gradients_control.py",
    "while": "tests/ops/test_gradients_control.py",
    "read": "tests/ops/test_gradients_control.py",
    "assign": "tests/ops/test_gradients_control.py",
    "assign_add": "tests/ops/test_gradients_control.py",
    "assign_sub": "tests/ops/test_gradients_control.py",
}
"""Ops whose gradients are tested in another file, by module text."""
