"""Checks gradients in tests: against central differences in f64; symbols against numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfc.interpret import interpret
from tfc.ir.builder import Builder
from tfc.ir.core import OPS, Block, Function, Module, Op, Value
from tfc.ir.expr import symbol
from tfc.ir.types import TensorType, dtype_of
from tfc.ir.verifier import verify
from tfc.ir.weights import Weights
from tfc.ops.base import is_composite
from tfc.ops.control import Return
from tfc.ops.gradients import Gradients, expand_all

STEP = 1e-6


@dataclass(eq=False)
class Case:
    """An op on arrays; `symbols` are pairs of operand and axis that get a symbol in one test.

    `constant` are the operands whose gradient is not asked for.
    """

    name: str
    arrays: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    symbols: dict[tuple[int, int], str] = field(default_factory=dict[tuple[int, int], str])
    constant: tuple[int, ...] = ()
    tolerance: float = 1e-7

    def make(self, values: list[Value | None]) -> Op:
        kind = OPS[self.name]
        if kind.operand_fields[-1].variadic:
            return kind(list(values), **self.attributes)
        return kind(*values, **self.attributes)


def module_of(case: Case, symbolic: bool = False) -> tuple[Module, dict[str, np.ndarray]]:
    """A function of the op's operands, and of gradients of its results, that gives both."""
    inputs: dict[str, np.ndarray] = {}
    block = Block()
    values: list[Value | None] = []
    for i, array in enumerate(case.arrays):
        if array is None:
            values.append(None)
            continue
        dims = [
            symbol(case.symbols[i, a]) if symbolic and (i, a) in case.symbols else n
            for a, n in enumerate(array.shape)
        ]
        values.append(block.add_arg(TensorType(dtype_of(array.dtype), tuple(dims)), f"x{i}"))
        inputs[f"x{i}"] = array
    op = block.append(case.make(values))
    ys = [v for v in op.results if v.tensor.dtype.is_float]
    generator = np.random.default_rng(len(case.arrays))
    static = _seed_shapes(case, len(inputs)) if symbolic else None
    seeds: list[Value] = []
    for i, y in enumerate(ys):
        seeds.append(block.add_arg(y.tensor, f"seed{i}"))
        shape: Any = static[i] if static else y.tensor.shape
        inputs[f"seed{i}"] = np.asarray(generator.normal(size=shape)).astype(y.tensor.dtype.numpy)
    xs = [
        v
        for i, v in enumerate(values)
        if v is not None and v.tensor.dtype.is_float and i not in case.constant
    ]
    types = [v.type for v in xs]
    made = Gradients([*ys, *seeds, *xs], types=types, of=len(ys), seeded=True)
    block.append(made)
    names = [f"y{i}" for i in range(len(ys))] + [f"grad:{v.name}" for v in xs]
    block.append(Return([*ys, *made.results]))
    module = Module(Weights())
    module.functions["main"] = Function("main", block, names)
    return module, inputs


def _seed_shapes(case: Case, inputs: int) -> list[Any]:
    return [v.tensor.shape for v in module_of(case)[0].main.body.args[inputs:]]


def check(case: Case) -> None:
    """Interpreted as it is and with all composites taken apart: as central differences say."""
    module, inputs = module_of(case)
    verify(module)
    assert expand_all(module.main.body)
    verify(module)
    lines = {n: directions(module, inputs, n.removeprefix("grad:")) for n in _wanted(module)}
    assert lines, "the op has no operand with a gradient"
    for decomposed in (False, True):
        if decomposed:
            take_apart(module)
            verify(module)
        found = interpret(module, inputs)
        for name, slopes in lines.items():
            assert np.isfinite(found[name]).all(), name
            for direction, right in slopes:
                slope = float((found[name] * direction).sum())
                scale = max(1.0, float(np.abs(found[name] * direction).sum()))
                assert abs(slope - right) <= case.tolerance * scale, (name, slope, right)


def check_symbols(case: Case) -> None:
    """With symbols for sizes the numbers are the same."""
    plain, inputs = module_of(case)
    wide, _ = module_of(case, symbolic=True)
    verify(wide)
    expected = interpret(plain, inputs)
    expand_all(wide.main.body)
    verify(wide)
    for decomposed in (False, True):
        if decomposed:
            take_apart(wide)
            verify(wide)
        found = interpret(wide, inputs)
        for name in _wanted(wide):
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-12, atol=1e-12)


def _wanted(module: Module) -> list[str]:
    return [n for n in module.main.output_names if n.startswith("grad:")]


def directions(
    module: Module, inputs: dict[str, np.ndarray], name: str
) -> list[tuple[np.ndarray, float]]:
    """Random directions of an input with the slope of sum(results * seeds) along each.

    A gradient that is wrong anywhere is wrong along almost every direction.
    """
    generator, base = np.random.default_rng(len(inputs)), inputs[name]
    forward = Module(Weights())
    body = module.main.body.clone({})
    end = body.terminator
    count = sum(n.startswith("y") for n in module.main.output_names)
    end.set_operands(end.operands[:count])
    names = module.main.output_names[:count]
    forward.functions["main"] = Function("main", body, names)
    found: list[tuple[np.ndarray, float]] = []
    for _ in range(2):
        direction = np.asarray(generator.normal(size=base.shape))
        ends = [
            interpret(forward, {**inputs, name: base + sign * STEP * direction}) for sign in (1, -1)
        ]
        parts = [float(((ends[0][y] - ends[1][y]) * inputs[f"seed{y[1:]}"]).sum()) for y in names]
        found.append((direction, sum(parts) / (2 * STEP)))
    return found


def take_apart(module: Module) -> None:
    """Replaces every composite by its parts."""
    for block in [f.body for f in module.functions.values()]:
        op = next((o for o in block.walk() if is_composite(o)), None)
        while op is not None:
            decompose: Callable[[Builder], list[Value]] = op.decompose  # type: ignore[attr-defined]
            op.replace(decompose(Builder.before_op(op)))
            op = next((o for o in block.walk() if is_composite(o)), None)
