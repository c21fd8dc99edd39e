"""Random modules, valid as text though not always in meaning: they show what printing must keep.

Ops come from the registry with random operands, attributes of their kinds and types, so a new op is
covered as soon as it exists.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import numpy as np

from tfc.ir.core import (
    OPS,
    Block,
    Colocate,
    DimInfo,
    Function,
    Kernel,
    Location,
    Module,
    Op,
    SymbolRef,
    Value,
    Variable,
)
from tfc.ir.expr import Dim, apply, as_expr, normal, symbol
from tfc.ir.types import DTYPES, BufferType, Layout, TensorType, TileType, Type
from tfc.ir.weights import Dense, Weights

NAMES = ["", "", "x", "x", "y", "x_1", "7", "a/b:0", "a,b", 'say "hi"', "back\\slash", "é", "%"]
NAMES += ["two\nlines", ":", "a b"]
TEXTS = ["", "plain", 'quo"te', "back\\", "new\nline", "tab\t", "ünï", "{}[]()<>=,", "\u2028"]
TEXTS += ["// no comment", 'dense<"']
SYMBOLS = ["B", "S", "T1", "Len_2"]
LAYOUTS = {1: ["a"], 2: ["ba", "Ab16a"], 3: ["abc", "aBc8b"], 4: ["aBcd16b", "ABcd4a16b"]}


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, items: Any) -> Any:
        return self.random.choice(list(items))

    # ---- attributes and types

    def dim(self, depth: int = 2) -> Dim:
        kind = self.random.randrange(3 if depth else 2)
        if kind == 0:
            return self.random.choice([0, 1, 2, 3, 7, 64, 2**15])
        if kind == 1:
            return symbol(self.pick(SYMBOLS))
        a, b = as_expr(self.dim(depth - 1)), as_expr(self.dim(depth - 1))
        match self.random.randrange(4):
            case 0:
                return normal(a + b)
            case 1:
                return normal(a * self.random.randrange(-4, 5) + b)
            case 2:
                return normal(a * b) if len(str(a)) + len(str(b)) < 40 else normal(a)
            case _:
                name = self.pick(["floordiv", "ceildiv", "mod", "min", "max"])
                return normal(apply(name, a, b if b != 0 else 3))

    def size(self) -> Dim:
        """A dimension of a type: not a negative integer."""
        dim = self.dim()
        return abs(dim) if isinstance(dim, int) else dim

    def float(self) -> float:
        special = [0.0, -0.0, 1.0, 0.1, 1e-300, 5e-324, 1e300, float("inf"), float("-inf")]
        if self.chance(0.5):
            return self.pick(special)
        (value,) = struct.unpack("<d", struct.pack("<Q", self.random.getrandbits(64)))
        return value

    def array(self, shape: tuple[int, ...] | None = None, dtype: Any = None) -> np.ndarray:
        dtype = dtype or self.pick(DTYPES.values())
        if shape is None:
            shape = tuple(self.random.randrange(4) for _ in range(self.random.randrange(4)))
            shape = (80,) if self.chance(0.1) else shape
        size = int(np.prod(shape, dtype=int))
        if dtype.is_bool:
            raw = bytes(self.random.randrange(2) for _ in range(size))
        elif self.chance(0.3):
            raw = self.random.randbytes(dtype.bytes) * size
        elif self.chance(0.5):
            raw = np.array([self.random.randrange(100) for _ in range(size)]).astype(dtype.numpy)
            raw = raw.tobytes()
        else:
            raw = self.random.randbytes(dtype.bytes * size)
        return np.frombuffer(raw, dtype.numpy).reshape(shape)

    def attribute(self, kind: str, depth: int = 2) -> Any:
        some = range(self.random.randrange(4))
        match kind:
            case "int":
                return self.random.choice([0, 1, -1, 2**63 - 1, -(2**63), 12])
            case "float":
                return self.float()
            case "bool":
                return self.chance(0.5)
            case "str":
                return self.pick(TEXTS)
            case "dtype":
                return self.pick(DTYPES.values())
            case "dim":
                return self.dim()
            case "symbol":
                return SymbolRef(self.pick(NAMES) or "w")
            case "ints" | "floats" | "strs" | "dims":
                return tuple(self.attribute(kind[:-1]) for _ in some)
            case _:
                return self.anything(depth)

    def anything(self, depth: int) -> Any:
        kinds = ["int", "float", "bool", "str", "dtype", "dim", "symbol", "dense", "layout", "list"]
        match self.pick(kinds if depth else kinds[:-1]):
            case "dense":
                return Dense(self.array())
            case "layout":
                return Layout(self.pick(self.pick(LAYOUTS.values())))
            case "list":
                return tuple(self.anything(depth - 1) for _ in range(self.random.randrange(3)))
            case kind:
                return self.attribute(kind)

    def tensor(self) -> TensorType:
        shape = tuple(self.size() for _ in range(self.random.randrange(5)))
        layout = self.chance(0.2) and LAYOUTS.get(len(shape))
        tag = Layout(self.pick(layout)) if layout else None
        return TensorType(self.pick(DTYPES.values()), shape, tag)

    def tile(self) -> TileType:
        sizes = [self.random.randrange(1, 99) for _ in range(2)]
        return TileType(self.pick(DTYPES.values()), *sizes)

    # ---- ops

    def op(self, cls: type[Op], visible: list[Value], level: str, depth: int) -> Op:
        """An op of a class, whose operands are visible values."""
        operands: list[Value | None] = []
        for field in cls.operand_fields:
            count = self.random.randrange(4) if field.variadic else 1
            for _ in range(count if visible else 0):
                absent = not field.required and not field.variadic and self.chance(0.5)
                operands.append(None if absent else self.pick(visible))
        if any(f.variadic for f in cls.operand_fields):
            operands = [v for v in operands if v is not None]
        attributes = {
            name: self.attribute(f.kind)
            for name, f in cls.attribute_fields.items()
            if f.required or self.chance(0.5)
        }
        regions = [self.region(visible, level, depth - 1) for _ in cls.region_fields]
        kind = self.tensor if level == "graph" else self.tile
        many = any(f.variadic for f in cls.result_fields)
        count = self.random.randrange(4) if many else len(cls.result_fields)
        types: list[Type] = [kind() for _ in range(0 if cls.terminator else count)]
        self.fit_dense(attributes, types)
        nodes = tuple(self.pick(TEXTS) for _ in range(self.random.randrange(3)))
        op = cls.build(operands, attributes, types, regions, Location(nodes))
        for value in op.results:
            value.name = self.pick(NAMES)
        if not op.results and self.chance(0.2):
            op.label = self.pick(NAMES)
        return op

    def fit_dense(self, attributes: dict[str, Any], types: list[Type]) -> None:
        """Sometimes gives a constant the type of its op, so that the text leaves its own out."""
        for value in attributes.values():
            if isinstance(value, Dense) and types and self.chance(0.7):
                types[:] = [value.type]

    def region(self, visible: list[Value], level: str, depth: int) -> Block:
        kind = self.tensor if level == "graph" else self.tile
        block = Block()
        for _ in range(self.random.randrange(3)):
            block.add_arg(kind(), self.pick(NAMES))
        self.fill(block, [*visible, *block.args], level, depth, self.random.randrange(4))
        return block

    def fill(self, block: Block, visible: list[Value], level: str, depth: int, count: int) -> None:
        classes = [
            c
            for c in OPS.values()
            if c.level in (level, "any") and not c.terminator and (depth or not c.region_fields)
        ]
        earlier: list[Op] = []
        for _ in range(count):
            op = block.append(self.op(self.pick(classes), visible, level, depth))
            visible = [*visible, *op.results]
            for other in self.random.sample(earlier, min(len(earlier), 1)):
                if self.chance(0.3):
                    op.add_after(other)
            if self.chance(0.2):
                op.device = self.pick(["/device:cpu:0", "/job:*/task:1", 'odd"'])
            elif earlier and self.chance(0.1):
                op.device = Colocate(self.pick(earlier))
            earlier.append(op)
        ends = [c for c in OPS.values() if c.terminator and c.name != "return"]
        if isinstance(block.parent, Function):
            ends = [OPS["return"]]
        if not isinstance(block.parent, Kernel):
            block.append(self.op(self.pick(ends), visible, level, depth))

    # ---- modules

    def module(self, ops: int = 12, only: type[Op] | None = None) -> Module:
        """A module with a function and a kernel; with `only`, they hold one op of that class."""
        module = Module(Weights(self.pick(["", "w.safetensors"])), self.pick(NAMES))
        for name in SYMBOLS:
            bounds = self.pick([(None, None), (1, None), (None, 9), (0, 2**40)])
            module.dims[name] = DimInfo(self.pick(TEXTS), *bounds)
        if self.chance(0.5):
            module.attributes = {"pass": self.anything(2)}
            module.variables["v w"] = Variable("v w", self.tensor())
        self.function(module, ops, only)
        self.kernel(module, ops, only)
        return module

    def function(self, module: Module, ops: int, only: type[Op] | None) -> None:
        body = Block([self.tensor() for _ in range(3)], ["x", "12", "a/b:0"])
        function = Function("main", body, [], location=Location(("f",)))
        if only is None:
            self.fill(body, body.args, "graph", 2, ops)
        elif only.level != "tile":
            body.append(self.op(only, body.args, "graph", 2))
        if only is not None and only.name != "return":
            body.append(self.op(OPS["return"], body.args, "graph", 0))
        assert body.last is not None
        function.output_names = [f"out {i}" for i in range(len(body.last.operands))]
        module.functions["main"] = function

    def kernel(self, module: Module, ops: int, only: type[Op] | None) -> None:
        modes = ["in", "inout", "out"]
        body = Block([BufferType(DTYPES["f32"], self.size(), m) for m in modes], ["a", "b", "c"])
        kernel = Kernel("k 1", body, [("p0", self.dim()), ("p1", 3)], {"schedule": (1, "x")})
        if only is None:
            self.fill(body, body.args, "tile", 2, ops)
        elif only.level != "graph":
            body.append(self.op(only, body.args, "tile", 2))
        module.kernels["k 1"] = kernel
