"""Random graphs that mean something: every op is valid, and much of it is what rules look for.

`random_module(seed)` always gives the same module for a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Function, Location, Module, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import Dim, as_expr, normal, symbol
from tfc.ir.types import BOOL, F16, F32, F64, I8, I32, I64, U8, DType, TensorType
from tfc.ir.weights import Dense, Weights
from tfc.ops import (
    activation,
    arithmetic,
    cast,
    constant,
    control,
    convolution,
    elementwise,
    linalg,
    logic,
    normalization,
    piecewise,
    reduction,
    reduction_composite,
    shape,
    softmax,
    transcendental,
    view,
)

S, T = symbol("S"), symbol("T")
DTYPES = (F32, F32, F32, F64, F16, I32, I64, I8, U8, BOOL)
SIZES: tuple[Dim, ...] = (1, 1, 2, 3, 4, 0, S, S, T)
UNARY = (
    *(elementwise.Neg, elementwise.Abs, elementwise.Floor, elementwise.Ceil, elementwise.Sqrt),
    *(piecewise.Relu, transcendental.Tanh, transcendental.Sigmoid, elementwise.Sign),
    *(logic.LogicalNot, logic.BitwiseNot, activation.Gelu, activation.Silu, elementwise.Round),
)
BINARY = (
    *(arithmetic.Add, arithmetic.Add, arithmetic.Sub, arithmetic.Mul, arithmetic.Mul),
    *(arithmetic.Div, arithmetic.Maximum, arithmetic.Minimum, arithmetic.Pow, arithmetic.Mod),
    *(logic.LogicalAnd, logic.LogicalOr, logic.BitwiseAnd, logic.Less, logic.Equal),
)
REDUCTIONS = (
    *(
        reduction.ReduceSum,
        reduction.ReduceMax,
        reduction.ReduceMin,
        reduction_composite.ReduceMean,
    ),
)
NUMBERS = (0.0, -0.0, 1.0, 2.0, -1.0, 0.5, 3.0, 0.1)


class Graphs:
    """Adds random ops to one function."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.module = Module(Weights())
        self.body = Block()
        self.builder = Builder(self.body)
        self.values: list[Value] = []
        self.makers: list[Callable[[], Any]] = [
            *(self.unary, self.unary, self.binary, self.binary, self.binary, self.with_constant),
            *(self.with_constant, self.cast, self.where, self.reshape, self.transpose, self.slice),
            *(self.expand, self.concat, self.split, self.pad, self.reduce, self.matmul, self.conv),
            *(self.softmax, self.shape_of, self.branch, self.squeeze, self.batch_norm, self.repeat),
        ]

    def pick(self, items: Any) -> Any:
        return self.random.choice(list(items))

    def build(self, inputs: int, ops: int) -> Module:
        for number in range(inputs):
            dims = tuple(self.pick(SIZES) for _ in range(self.random.randrange(4)))
            kind = TensorType(self.pick(DTYPES), dims)
            self.values.append(self.body.add_arg(kind, f"x{number}"))
        # Symbols need an input that binds them.
        self.values.append(self.body.add_arg(TensorType(F32, (S, T)), "bound"))
        for number in range(ops):
            self.builder.location = Location((f"node{number}",))
            try:
                self.values += self.pick(self.makers)() or []
            except TfcError:
                continue  # these operands do not fit this op
        self._finish()
        return self.module

    def _finish(self) -> None:
        chosen = [self.pick(self.values[-8:]) for _ in range(3)]
        self.body.append(control.Return(list(dict.fromkeys(chosen))))
        names = [f"y{i}" for i in range(len(self.body.terminator.inputs))]
        self.module.functions["main"] = Function("main", self.body, names)

    def any(self, wanted: Callable[[TensorType], bool] = lambda t: True) -> Value:
        """A recent value of a kind."""
        fitting = [v for v in self.values[-12:] if wanted(v.tensor)]
        if not fitting:
            raise TfcError("nothing fits")
        return self.pick(fitting)

    def add(self, op: Op) -> list[Value]:
        if self.random.random() < 0.05 and self.values[-1].producer is not None:
            op.add_after(self.values[-1].producer)
        return self.builder.add(op).results

    def constant(self, dtype: DType, dims: tuple[int, ...] = ()) -> Value:
        number = self.pick(NUMBERS)
        array = np.full(dims, abs(number) if dtype.kind == "uint" else number).astype(dtype.numpy)
        if self.random.random() < 0.3 and array.size:
            array = (np.arange(array.size).reshape(dims) % 5).astype(dtype.numpy)
        dense = Dense(array)
        return self.builder.value(constant.Constant(dense, dense.type))

    # ---- makers

    def unary(self) -> list[Value]:
        return self.add(self.pick(UNARY)(self.any()))

    def binary(self) -> list[Value]:
        x = self.any()
        y = self.any(lambda t: t.dtype == x.tensor.dtype)
        return self.add(self.pick(BINARY)(x, y))

    def with_constant(self) -> list[Value]:
        x = self.any()
        known = x.tensor.shape and isinstance(x.tensor.shape[-1], int) and self.pick((0, 1))
        y = self.constant(x.tensor.dtype, x.tensor.shape[-1:] if known else ())
        pair = (x, y) if self.random.random() < 0.7 else (y, x)
        return self.add(self.pick(BINARY)(*pair))

    def cast(self) -> list[Value]:
        return self.add(cast.Cast(self.any(), to=self.pick(DTYPES)))

    def where(self) -> list[Value]:
        x = self.any()
        y = self.any(lambda t: t.dtype == x.tensor.dtype)
        bools = [v for v in self.values if v.tensor.dtype is BOOL]
        condition = self.pick(bools) if bools else self.constant(BOOL)
        return self.add(elementwise.Where(condition, x, y))

    def reshape(self) -> list[Value]:
        x = self.any()
        dims = x.tensor.shape
        cut = self.random.randrange(len(dims) + 1)
        total: Dim = 1
        for n in dims[:cut]:
            total = normal(as_expr(total) * n)
        return self.add(view.Reshape(x, self.pick(((total, *dims[cut:]), (*dims, 1), (1, *dims)))))

    def squeeze(self) -> list[Value]:
        x = self.any()
        if self.pick((0, 1)):
            return self.add(view.Unsqueeze(x, (self.random.randrange(x.tensor.rank + 1),)))
        return self.add(view.Squeeze(x, tuple(a for a, n in enumerate(x.tensor.shape) if n == 1)))

    def transpose(self) -> list[Value]:
        x = self.any()
        order = list(range(x.tensor.rank))
        self.random.shuffle(order)
        return self.add(view.Transpose(x, tuple(order)))

    def slice(self) -> list[Value]:
        x = self.any()
        bounds = [self._bounds(n) for n in x.tensor.shape]
        return self.add(view.Slice(x, *(tuple(b[i] for b in bounds) for i in range(3))))

    def _bounds(self, size: Dim) -> tuple[Dim, Dim, int]:
        if not isinstance(size, int) or not size or self.pick((0, 1)):
            return 0, size, self.pick((1, 1, 2))
        start = self.random.randrange(size)
        if self.random.random() < 0.2:
            return start, self.random.randrange(-1, start + 1), -1
        return start, self.random.randrange(start, size + 1), self.pick((1, 1, 2, 3))

    def expand(self) -> list[Value]:
        x = self.any()
        dims = tuple(self.pick((n, 3, S)) if n == 1 else n for n in x.tensor.shape)
        return self.add(view.Expand(x, self.pick((dims, dims, (2, *dims)))))

    def concat(self) -> list[Value]:
        x = self.any(lambda t: t.rank > 0)
        parts = [x, *(v for v in self.values[-8:] if v.type == x.type)]
        return self.add(shape.Concat(parts[:3], axis=self.random.randrange(x.tensor.rank)))

    def split(self) -> list[Value]:
        x = self.any(lambda t: t.rank > 0 and isinstance(t.shape[0], int))
        size = x.tensor.shape[0]
        cut = self.random.randrange(int(as_expr(size).evaluate({})) + 1)
        return self.add(shape.Split(x, 0, (cut, normal(as_expr(size) - cut))))

    def pad(self) -> list[Value]:
        x = self.any()
        amounts = [tuple(self.pick((0, 0, 1)) for _ in x.tensor.shape) for _ in range(2)]
        return self.add(shape.Pad(x, None, *amounts))

    def reduce(self) -> list[Value]:
        x = self.any()
        axes = tuple(a for a in range(x.tensor.rank) if self.pick((0, 1)))
        return self.add(self.pick(REDUCTIONS)(x, axes, keepdims=self.pick((True, False))))

    def matmul(self) -> list[Value]:
        a = self.any(lambda t: t.rank > 0 and isinstance(t.shape[-1], int) and not t.dtype.is_bool)
        inner = int(as_expr(a.tensor.shape[-1]).evaluate({}))
        return self.add(linalg.MatMul(a, self.constant(a.tensor.dtype, (inner, 3))))

    def conv(self) -> list[Value]:
        """A convolution, scaled and shifted, as batch norms leave it."""
        x = self.any(lambda t: t.dtype is F32)
        image = self.builder.value(view.Reshape(x, (1, 1, x.tensor.elements)))
        padded = self.builder.value(shape.Pad(image, None, (0, 0, 1), (0, 0, 1)))
        kernel = self.constant(F32, (2, 1, 2))
        y = self.builder.value(convolution.Conv(padded, kernel))
        scale = self.constant(F32, self.pick(((), (2, 1), (1, 2, 1))))
        scaled = self.builder.value(arithmetic.Mul(y, scale))
        return self.add(arithmetic.Add(scaled, self.constant(F32, (2, 1))))

    def batch_norm(self) -> list[Value]:
        x = self.any(lambda t: t.dtype is F32 and t.rank >= 2 and isinstance(t.shape[1], int))
        channels = (int(as_expr(x.tensor.shape[1]).evaluate({})),)
        vectors = [self.constant(F32, channels) for _ in range(4)]
        return self.add(normalization.BatchNorm(x, *vectors))

    def softmax(self) -> list[Value]:
        x = self.any(lambda t: t.rank > 0)
        return self.add(softmax.Softmax(x, axis=x.tensor.rank - 1))

    def shape_of(self) -> list[Value]:
        x = self.any()
        start = self.random.randrange(x.tensor.rank + 1)
        return self.add(constant.ShapeOf(x, start, x.tensor.rank))

    def branch(self) -> list[Value]:
        x = self.any()
        condition = self.constant(BOOL) if self.pick((0, 1)) else self.any(lambda t: t == SCALAR)
        blocks: list[Block] = []
        for _ in range(2):
            block = Block()
            inner = Builder(block, location=self.builder.location)
            y = inner.value(view.Identity(x)) if self.pick((0, 1)) else x
            inner.add(control.Yield([y]))
            blocks.append(block)
        return self.add(control.If(condition, [x.type], *blocks))

    def repeat(self) -> list[Value]:
        """A copy of an earlier op, for cse to find."""
        op = self.any().producer
        if op is None or op.regions:
            raise TfcError("nothing to repeat")
        return self.add(op.clone({}))


SCALAR = TensorType(BOOL, ())


def random_module(seed: int, *, inputs: int = 3, ops: int = 14) -> Module:
    """A module with one function, `main`."""
    return Graphs(seed).build(inputs, ops)
