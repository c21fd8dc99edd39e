"""Random graphs over devices: constraints, colocations, variables, control edges; from a seed."""

from __future__ import annotations

from random import Random
from typing import Any

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Colocate, Function, Module, Op, SymbolRef, Value, Variable
from tfc.ir.types import F32, TensorType
from tfc.ir.weights import Weights
from tfc.ops.arithmetic import Add, Mul, Sub
from tfc.ops.control import Return
from tfc.ops.elementwise import Abs, Neg
from tfc.ops.linalg import MatMul
from tfc.ops.loops import NoOp
from tfc.ops.state import Assign, AssignAdd, Read
from tfc.ops.transcendental import Exp, Tanh

DEVICES = ("cpu:0", "cpu:1", "gpu:0")
CONSTRAINTS = (
    *("/device:cpu", "/device:cpu:0", "/device:cpu:1", "/device:*:0", "/device:gpu:*"),
    *("/job:localhost", "/task:0/device:cpu:*", "/replica:0/device:*:1"),
)
UNARY = (Neg, Abs, Exp, Tanh)
BINARY = (Add, Sub, Mul, MatMul)


class DeviceGraphs:
    """Builds one function of square matrices of one size, which need the same few ops."""

    def __init__(
        self,
        seed: int,
        *,
        largest: int = 40,
        constrained: float = 0.15,
        sizes: tuple[int, ...] = (4, 32, 256, 512),
    ) -> None:
        self.random = Random(seed)
        self.size = self.random.choice(sizes)
        self.kind = TensorType(F32, (self.size, self.size))
        self.module = Module(Weights())
        self.body = Block()
        self.builder = Builder(self.body)
        self.values: list[Value] = [self.body.add_arg(self.kind, n) for n in ("x", "y")]
        self.constrained = constrained
        self.count = self.random.randint(2, largest)
        self.labels = 0

    def build(self) -> Module:
        for number in range(self.random.randrange(3)):
            name = f"v{number}"
            self.module.variables[name] = Variable(name, self.kind)
            self._add(Assign(SymbolRef(name), self._value()))
        while self.body.length < self.count:
            self._add(self._op())
        # Every value that nobody uses is fetched, and every op without results is a target.
        unused = [v for op in self.body for v in op.results if not v.uses] or self.values[:1]
        end = self.builder.add(Return(unused))
        for op in [o for o in self.body if not o.terminator and not o.results]:
            end.add_after(op)
        names = [f"out{i}" for i in range(len(unused))]
        self.module.functions["main"] = Function("main", self.body, names)
        return self.module

    def _value(self) -> Value:
        return self.random.choice(self.values[-6:])

    def _op(self) -> Op:
        r = self.random
        variables = list(self.module.variables)
        if variables and r.random() < 0.15:
            name = SymbolRef(r.choice(variables))
            kind = r.randrange(3)
            if not kind:
                return Read(name, self.kind)
            return (Assign if kind == 1 else AssignAdd)(name, self._value())
        if r.random() < 0.05:
            return NoOp()
        if r.random() < 0.4:
            return r.choice(UNARY)(self._value())
        return r.choice(BINARY)(self._value(), self._value())

    def _add(self, op: Op) -> None:
        r, earlier = self.random, list(self.body)
        self.builder.add(op)
        if not op.results:
            op.label = f"l{self.labels}"
            self.labels += 1
        for value in op.results:
            value.name = f"n{len(self.values)}"
            self.values.append(value)
        if earlier and r.random() < 0.15:
            op.add_after(r.choice(earlier))
        if r.random() < self.constrained:
            op.device = r.choice(CONSTRAINTS)
        elif earlier and r.random() < 0.1:
            op.device = Colocate(r.choice(earlier))


def device_module(seed: int, **options: Any) -> Module:
    """Always the same module for a seed and the options of `DeviceGraphs`."""
    return DeviceGraphs(seed, **options).build()
