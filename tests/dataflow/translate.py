"""Graphs of the cases, which name TensorFlow's ops, as `.tfc` text; the names of values stay.

A variable is no value here, so an op that uses one gets a `read` of its own, which runs when the op
could: after the same control inputs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

Node: TypeAlias = "dict[str, Any]"
Case: TypeAlias = "dict[str, Any]"


def _read(name: str) -> list[Case]:
    return json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))["cases"]


CASES = _read("cases.json")
MORE_CASES = _read("more_cases.json")
"""Of the same kind; the answers were derived by hand."""
DTYPES = {"float32": "f32", "int32": "i32", "bool": "bool", "int64": "i64", "float64": "f64"}
SAME = {
    "Identity": "identity", "Add": "add", "Mul": "mul", "Sub": "sub", "Neg": "neg", "Relu": "relu",
    "RealDiv": "div", "FloorDiv": "div", "FloorMod": "mod", "Exit": "exit",
    "NextIteration": "next_iteration", "LoopCond": "loop_cond", "StopGradient": "stop_gradient",
    "Maximum": "maximum", "Minimum": "minimum", "Pow": "pow", "Sqrt": "sqrt", "Exp": "exp",
    "Log": "log", "Abs": "abs", "Tanh": "tanh", "Sigmoid": "sigmoid", "Floor": "floor",
    "Sign": "sign", "LogicalNot": "logical_not", "LogicalAnd": "logical_and",
    "LogicalOr": "logical_or", "Sin": "sin", "Cos": "cos", "Reciprocal": "reciprocal",
}  # fmt: skip
COMPARISONS = {
    "Less": "less", "Greater": "greater", "Equal": "equal", "NotEqual": "not_equal",
    "LessEqual": "less_equal", "GreaterEqual": "greater_equal",
}  # fmt: skip
REDUCTIONS = {
    "Sum": "reduce_sum", "Max": "reduce_max", "Min": "reduce_min", "Mean": "reduce_mean",
    "Prod": "reduce_prod",
}  # fmt: skip
UPDATES = {"Assign": "assign", "AssignAdd": "assign_add", "AssignSub": "assign_sub"}
NO_RESULT = ("NoOp", "QueueEnqueue", "QueueEnqueueMany", "QueueClose")
KIND_OF_OP = {
    **SAME, **COMPARISONS, **UPDATES, "Switch": "switch", "Merge": "merge", "MatMul": "matmul",
    "RandomUniform": "random_uniform", "Reshape": "reshape", "Cast": "cast", "Square": "mul",
    "Fill": "full", "Const": "constant", "Enter": "enter", "Transpose": "transpose",
    "ConcatV2": "concat", "GatherV2": "gather", "Slice": "slice", "SelectV2": "where", **REDUCTIONS,
}  # fmt: skip
"""The name here of TensorFlow's op, for counting."""


def value(name: str) -> str:
    """`%name`, quoted where it must be."""
    return f"%{name}" if re.fullmatch(r"\w+", name) else f'%"{name}"'


def translate(case: Case) -> str:
    """The text of a module whose `main` is the graph; it returns nothing."""
    return _Translation(case["graph"]).text()


class _Translation:
    def __init__(self, graph: list[Node]) -> None:
        self.nodes = {n["name"]: n for n in graph}
        self.order = _sorted(graph)
        self.types: dict[str, tuple[str, list[int]]] = {}
        self.heads: list[str] = []
        self.arguments: list[str] = []
        self.lines: list[str] = []

    def text(self) -> str:
        for node in self.order:
            self.node(node)
        body = "\n".join(f"    {line}" for line in [*self.lines, "return"])
        heads = "".join(f"  {head}\n" for head in self.heads)
        function = f"  func @main({', '.join(self.arguments)}) {{\n{body}\n  }}\n"
        return f"module {{\n{heads}{function}}}\n"

    def type(self, name: str) -> str:
        dtype, shape = self.types[name]
        return _type(dtype, shape)

    def node(self, node: Node) -> None:
        name, op, attributes = node["name"], node["op"], node["attr"]
        kind = attributes.get("dtype", "float32")
        match op:
            case "Placeholder":
                self.types[name] = kind, attributes["shape"]
                self.arguments.append(f"{value(name)}: {self.type(name)}")
            case "Variable":
                self.types[name] = kind, attributes["shape"]
                self.heads.append(f"variable @{name} : {self.type(name)}")
            case "FIFOQueue":
                types = [
                    _type(t, s)
                    for t, s in zip(
                        attributes["component_types"], attributes["shapes"], strict=True
                    )
                ]
                self.types[name] = attributes["component_types"][0], attributes["shapes"][0]
                head = f'kind = "fifo_queue", capacity = {attributes["capacity"]}'
                self.heads.append(f"resource @{name} : {', '.join(types)} {{{head}}}")
            case "Const":
                self.types[name] = kind, _shape(attributes["value"])
                text = f"constant {{value = dense<{json.dumps(attributes['value'])}>}}"
                self.lines.append(f"{value(name)} = {text}{self.ending(node, self.type(name))}")
            case _:
                self.op(node)

    def op(self, node: Node) -> None:
        name, op, attributes = node["name"], node["op"], node["attr"]
        if op in NO_RESULT:
            self.lines.append(f"^{name}: {self.effect(node)}{self.ending(node)}")
            return
        inputs = [self.input(node, i) for i in range(len(node["in"]))]
        first = self.types[node["in"][0].partition(":")[0]] if node["in"] else ("float32", [])
        self.types[name] = first
        names = value(name)
        match op:
            case "Identity" if self.is_variable(node["in"][0]):
                text = f"read({inputs[0]})"
            case _ if op in SAME:
                text = f"{SAME[op]}({', '.join(inputs)})"
                shapes = [self.types[i.partition(":")[0]][1] for i in node["in"]]
                self.types[name] = first[0], max(shapes, key=len)
            case _ if op in UPDATES:
                text = f"{UPDATES[op]}({', '.join(inputs)})"
            case _ if op in COMPARISONS:
                text = f"{COMPARISONS[op]}({', '.join(inputs)})"
                self.types[name] = "bool", first[1]
            case "Square":
                text = f"mul({inputs[0]}, {inputs[0]})"
            case "MatMul":
                if attributes.get("transpose_b"):
                    turned = value(f"{name}.b")
                    self.lines.append(f"{turned} = transpose({inputs[1]}) {{permutation = [1, 0]}}")
                    inputs[1] = turned
                text = f"matmul({', '.join(inputs)})"
                self.types[name] = first[0], [first[1][0], self.types[node["in"][1]][1][1]]
            case _ if op in REDUCTIONS:
                axes = self.constant(node["in"][1])
                text = f"{REDUCTIONS[op]}({inputs[0]}) {{axes = {axes}}}"
                kept = [n for i, n in enumerate(first[1]) if i not in axes]
                self.types[name] = first[0], kept
            case "Transpose":
                order = self.constant(node["in"][1])
                text = f"transpose({inputs[0]}) {{permutation = {order}}}"
                self.types[name] = first[0], [first[1][i] for i in order]
            case "ConcatV2":
                axis = self.constant(node["in"][-1])
                text = f"concat({', '.join(inputs[:-1])}) {{axis = {axis}}}"
                shape = list(first[1])
                shape[axis] = sum(self.types[_base(i)][1][axis] for i in node["in"][:-1])
                self.types[name] = first[0], shape
            case "GatherV2":
                axis = self.constant(node["in"][2])
                text = f"gather({inputs[0]}, {inputs[1]}) {{axis = {axis}}}"
                taken = self.types[_base(node["in"][1])][1]
                self.types[name] = first[0], [*first[1][:axis], *taken, *first[1][axis + 1 :]]
            case "Slice":
                begin, size = self.constant(node["in"][1]), self.constant(node["in"][2])
                ends = [b + n for b, n in zip(begin, size, strict=True)]
                bounds = f"starts = {begin}, limits = {ends}, steps = {[1] * len(begin)}"
                text = f"slice({inputs[0]}) {{{bounds}}}"
                self.types[name] = first[0], size
            case "BroadcastTo":
                shape = self.constant(node["in"][1])
                text = f"expand({inputs[0]}) {{shape = {shape}}}"
                self.types[name] = first[0], shape
            case "SelectV2":
                text = f"where({', '.join(inputs)})"
                kinds = [self.types[_base(i)] for i in node["in"]]
                self.types[name] = kinds[1][0], max((k[1] for k in kinds), key=len)
            case "Reshape" | "Fill":
                shaped = 1 if op == "Reshape" else 0
                shape = self.constant(node["in"][shaped])
                name_of_op = "reshape" if op == "Reshape" else "full"
                text = f"{name_of_op}({inputs[1 - shaped]}) {{shape = {shape}}}"
                self.types[name] = self.types[node["in"][1 - shaped]][0], shape
            case "Cast":
                text = f"cast({inputs[0]}) {{to = {DTYPES[attributes['DstT']]}}}"
                self.types[name] = attributes["DstT"], first[1]
            case "RandomUniform":
                shape = self.constant(node["in"][0])
                self.types[name] = attributes["dtype"], shape
                self.heads.append(f"variable @{name}.state : tensor<2xu64>")
                text = f"random_uniform(@{name}.state) {{shape = {shape}, dtype = f32}}"
            case "Switch":
                names = f"{value(name)}, {value(f'{name}:1')}"
                text = f"switch({', '.join(inputs)})"
            case "Merge":
                names = f"{value(name)}, {value(f'{name}:1')}"
                text = f"merge({', '.join(inputs)})"
                typed = f"{self.type(name)}, tensor<i32>"
                self.lines.append(f"{names} = {text}{self.ending(node, typed)}")
                return
            case "Enter":
                constant = ", constant = true" if attributes["is_constant"] else ""
                window = attributes["parallel_iterations"]
                head = f'frame = "{attributes["frame_name"]}"{constant}'
                text = f"enter({inputs[0]}) {{{head}, parallel_iterations = {window}}}"
            case "QueueDequeue":
                text, typed = f"dequeue({inputs[0]})", self.type(name)
                self.lines.append(f"{names} = {text}{self.ending(node, typed)}")
                return
            case "QueueDequeueMany":
                count = self.constant(node["in"][1])
                self.types[name] = first[0], [count, *first[1]]
                text = f"dequeue_many({inputs[0]}) {{count = {count}}}"
                self.lines.append(f"{names} = {text}{self.ending(node, self.type(name))}")
                return
            case "QueueSize":
                self.types[name] = "int32", []
                text = f"queue_size({inputs[0]})"
            case _:
                raise AssertionError(f"{op} has no translation")
        typed = self.type(name) if text.startswith("read(") else ""
        self.lines.append(f"{names} = {text}{self.ending(node, typed)}")

    def effect(self, node: Node) -> str:
        inputs = [self.input(node, i) for i in range(len(node["in"]))]
        name = {
            "NoOp": "no_op",
            "QueueEnqueue": "enqueue",
            "QueueEnqueueMany": "enqueue_many",
            "QueueClose": "queue_close",
        }[node["op"]]
        return f"{name}({', '.join(inputs)})"

    def is_variable(self, name: str) -> bool:
        return self.nodes.get(name, {"op": ""})["op"] == "Variable"

    def input(self, node: Node, index: int) -> str:
        given = node["in"][index]
        if self.nodes.get(given, {"op": ""})["op"] == "FIFOQueue":
            return f"@{given}"
        if not self.is_variable(given):
            return value(given)
        if node["op"] == "Identity" or (node["op"] in UPDATES and index == 0):
            return f"@{given}"
        read = value(f"{node['name']}.{given}")
        self.lines.append(f"{read} = read(@{given}){self.ending(node, self.type(given))}")
        return read

    def constant(self, name: str) -> Any:
        return self.nodes[name]["attr"]["value"]

    def ending(self, node: Node, typed: str = "") -> str:
        waits = [
            f"^{c}" if self.nodes[c]["op"] in NO_RESULT else value(c)
            for c in node["ctrl"]
            if self.nodes[c]["op"] not in ("Placeholder", "Variable")
        ]
        after = f" after({', '.join(waits)})" if waits else ""
        device = node["attr"].get("device")
        where = f' on("/device:{device.lower()}")' if device else ""
        return f"{after}{where}{f' : {typed}' if typed else ''}"


def _type(dtype: str, shape: list[int]) -> str:
    return f"tensor<{'x'.join([*map(str, shape), DTYPES[dtype]])}>"


def _base(name: str) -> str:
    """The node of `n:1`."""
    return name.partition(":")[0]


def _shape(given: Any) -> list[int]:
    return [len(given), *_shape(given[0])] if isinstance(given, list) else []


def _sorted(graph: list[Node]) -> list[Node]:
    """In the order given, but each node after what it uses, loops aside."""
    nodes = {n["name"]: n for n in graph}
    found: dict[str, Node] = {}

    def visit(node: Node) -> None:
        if node["name"] in found:
            return
        for name in [*(i.partition(":")[0] for i in node["in"]), *node["ctrl"]]:
            if not (node["op"] == "Merge" and nodes[name]["op"] == "NextIteration"):
                visit(nodes[name])
        found[node["name"]] = node

    for node in graph:
        visit(node)
    return list(found.values())
