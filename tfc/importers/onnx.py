"""Imports an ONNX model as a module of graph ops.

`import_onnx` is the entry. Names are the model's own. What the graph computes from shapes is
tracked as expressions of dimensions (`onnx_known`), so it leaves no op behind. Nodes that cannot
be imported are collected, and one error names all of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tfc.importers import onnx_handlers
from tfc.importers.onnx_constants import Constants
from tfc.importers.onnx_context import (
    Context,
    Entry,
    Known,
    One,
    Result,
    dtype_of_code,
)
from tfc.importers.onnx_known import evaluate
from tfc.importers.onnx_model import (
    Attribute,
    Function,
    Graph,
    Model,
    Node,
    Reference,
    ValueInfo,
)
from tfc.importers.onnx_registry import (
    NEWEST_OPSET,
    OLDEST_OPSET,
    Registered,
    find_handler,
    nearest_names,
)
from tfc.importers.onnx_symbols import Symbols
from tfc.importers.onnx_tensor import Tensor
from tfc.importers.onnx_wire import read_model
from tfc.ir import core
from tfc.ir.builder import Builder
from tfc.ir.core import OPS, Block, Location, Module, Value
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.expr import Dim
from tfc.ir.types import TensorType
from tfc.ir.weights import Weights

MAX_CALL_DEPTH = 32  # of functions that call functions
MAX_INLINED_NODES = 200_000  # of all calls of functions together
MAX_BYTES = 1 << 46  # of one tensor


def import_onnx(path: str | os.PathLike[str], *, dims: Mapping[str, int] | None = None) -> Module:
    """The module of an ONNX file, with the function `main`.

    `dims` fixes symbolic dimensions by the model's own names. Weights stay in the mapped file.
    TfcError: the file or the model is wrong. UnsupportedError: it needs what tfc does not have; the
    message lists every such node.
    """
    return Importer(read_model(path), dims or {}).run()


@dataclass(slots=True)
class Scope:
    """The names that a node sees, and the function that it stands in, if any."""

    entries: dict[str, Entry]
    opsets: Mapping[str, int]
    outer: Scope | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    call: str = ""  # the names of the calls that lead here
    depth: int = 0

    def find(self, name: str) -> Entry | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.entries:
                return scope.entries[name]
            scope = scope.outer
        return None


@dataclass(frozen=True, slots=True)
class Problem:
    """A node (or value) that cannot be imported, and why; `unsupported`: it is legal ONNX."""

    what: str
    why: str
    unsupported: bool

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


class Importer:
    """Builds the module of one model."""

    def __init__(self, model: Model, dims: Mapping[str, int]) -> None:
        self.model = model
        self.file = model.path.name
        self.module = Module(Weights(), model.path.stem)
        self.problems: list[Problem] = []
        self.symbols = Symbols(_dimension_names(model.graph), dims)
        self.module.dims.update(self.symbols.infos)
        self.body = Block()
        self.builder = Builder(self.body)
        self.constants = Constants(self.module.weights, self.body)
        self._inlined = 0
        onnx_handlers.register()

    # ---- the model

    def run(self) -> Module:
        graph = self.model.graph
        self._check_opset(self.model.opset_imports)
        for name in graph.sparse_initializers:
            self._problem(f"initializer {name!r}", "sparse tensors are not supported")
        scope = Scope({}, self.model.opset_imports)
        for value in graph.feeds:
            scope.entries[value.name] = self._input(value)
        self._add_initializers(graph, scope)
        self.import_nodes(graph.nodes, scope)
        outputs = [scope.entries[value.name] for value in graph.outputs]
        self._check_outputs(graph, outputs)
        self._raise_problems()
        values = [self.constants.materialize(entry) for entry in outputs]
        self.body.append(OPS["return"](values))
        names = [value.name for value in graph.outputs]
        self.module.functions["main"] = core.Function("main", self.body, names)
        return self.module

    def _check_opset(self, opsets: Mapping[str, int]) -> None:
        opset = opsets.get("", NEWEST_OPSET)
        if not OLDEST_OPSET <= opset <= NEWEST_OPSET:
            known = f"{OLDEST_OPSET} to {NEWEST_OPSET}"
            where = self.model.file.location
            raise UnsupportedError(f"opset {opset} is not supported, only {known}", where=where)

    def _input(self, value: ValueInfo) -> Entry:
        """The argument of the function for an input; missing where its type is beyond us."""
        what = f"input {value.name!r}"
        if value.kind != "tensor":
            self._problem(what, f"type {value.kind or 'none'} is not supported, only tensors are")
            return Entry()
        if value.dims is None:
            self._problem(what, "a tensor of unknown rank is not supported")
            return Entry()
        try:
            dtype = dtype_of_code(value.dtype)
        except UnsupportedError as error:
            self._problem(what, error.message)
            return Entry()
        dims = [self._dim(dim, value.name, axis) for axis, dim in enumerate(value.dims)]
        type = TensorType(dtype, tuple(dims))
        self._check_size(type, value.name)
        return Entry(self.body.add_arg(type, self.constants.fresh_name(value.name)))

    def _dim(self, dim: int | str | None, name: str, axis: int) -> Dim:
        if isinstance(dim, int):
            return dim
        return self.symbols[dim if dim is not None else _unnamed(name, axis)]

    def _add_initializers(self, graph: Graph, scope: Scope) -> None:
        location = self.location("")
        for name, tensor in graph.initializers.items():
            scope.entries[name] = self.tensor_entry(tensor, name, location)

    def tensor_entry(self, tensor: Tensor, name: str, location: Location) -> Entry:
        """An entry for a tensor of the file; a missing one where its type is beyond us."""
        try:
            dtype_of_code(tensor.dtype)
        except UnsupportedError as error:
            self._problem(f"tensor {name!r}", error.message)
            return Entry()
        return Entry(tensor=tensor, name=name, location=location)

    def _check_outputs(self, graph: Graph, outputs: Sequence[Entry]) -> None:
        for value, entry in zip(graph.outputs, outputs, strict=True):
            if entry.is_missing or value.kind != "tensor" or not value.dtype:
                continue
            declared, found = dtype_of_code(value.dtype), entry.type
            if found.dtype != declared:
                what = f"output {value.name!r} is declared as {declared}, but is {found}"
                raise TfcError(what, where=self.model.file.location)

    # ---- nodes

    def import_nodes(self, nodes: Sequence[Node], scope: Scope) -> None:
        for node in nodes:
            with self.builder.at(self.location(scope.call + _node_name(node))):
                results = self._results(node, scope)
            for name, result in zip(node.outputs, results, strict=False):
                if name:
                    scope.entries[name] = self._bound(name, result, scope)

    def _results(self, node: Node, scope: Scope) -> Sequence[One]:
        """What the outputs of a node are; missing entries and a problem where it is beyond us."""
        missing = [Entry() for _ in node.outputs]
        function = self.model.functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._call(function, node, scope)
        handler = self._handler(node, scope)
        inputs = [scope.find(name) if name else None for name in node.inputs]
        if handler is None or any(entry and entry.is_missing for entry in inputs):
            return missing
        context = Context(self, node, scope, inputs, handler.version, self.builder)
        try:
            return _import_node(handler, context)
        except TfcError as error:
            # "gelu takes f32, ...": an element type that ONNX may allow, but our op does not.
            unsupported = isinstance(error, UnsupportedError) or " takes " in error.hint
            hint = f" ({error.hint})" if error.hint else ""
            self._node_problem(node, scope, error.message + hint, unsupported)
            return missing

    def _handler(self, node: Node, scope: Scope) -> Registered | None:
        opset = scope.opsets.get(node.domain)
        if opset is None:
            domain = node.domain or "ai.onnx"
            why = f"the model does not import the operators of domain {domain!r}"
            self._node_problem(node, scope, why, unsupported=False)
            return None
        handler = find_handler(node.domain, node.op_type, opset)
        if handler is None:
            near = nearest_names(node.domain, node.op_type)
            hint = f"; there is {' and '.join(near)}" if near else ""
            self._node_problem(node, scope, f"the operator is not supported{hint}", True)
            for graph in node.graphs:
                self._list_unknown(graph.nodes, scope)
        return handler

    def _list_unknown(self, nodes: Sequence[Node], scope: Scope) -> None:
        """Name the operators that nothing imports in a graph that is not imported itself."""
        inner = Scope({}, scope.opsets, scope, call=scope.call)
        for node in nodes:
            if (node.domain, node.op_type, node.overload) not in self.model.functions:
                self._handler(node, inner)

    def _bound(self, name: str, result: One, scope: Scope) -> Entry:
        if isinstance(result, Entry):
            if result.tensor is not None and not result.name:
                result.name, result.location = scope.call + name, self.builder.location
            return result
        if isinstance(result, Known):
            return Entry(known=result, name=scope.call + name, location=self.builder.location)
        if not result.name:
            result.name = self.constants.fresh_name(scope.call + name)
        self._check_size(result.tensor, name)
        return Entry(result)

    def _check_size(self, type: TensorType, name: str) -> None:
        """Refuse what no memory holds, so that sizes stay far from overflowing 64 bits."""
        least = math.prod(size for size in type.shape if isinstance(size, int) and size)
        if least * type.dtype.bytes > MAX_BYTES:
            what = f"value {name!r} is a {type}, more than any memory holds"
            raise TfcError(what, where=self.model.file.location)

    # ---- graphs inside nodes

    def import_graph(self, graph: Graph, outer: Scope) -> list[Entry]:
        """Import a graph without inputs of its own at the present place; its outputs."""
        for value in graph.inputs:
            raise TfcError(f"graph {graph.name!r} has input {value.name!r}, but none is given")
        scope = Scope(
            {}, outer.opsets, outer, outer.attributes, f"{outer.call}{graph.name}/", outer.depth
        )
        self._add_initializers(graph, scope)
        self.import_nodes(graph.nodes, scope)
        found = [scope.find(value.name) for value in graph.outputs]
        return [entry if entry is not None else Entry() for entry in found]

    def import_branch(self, graph: Graph, outer: Scope, block: Block) -> list[Value]:
        """Import a graph into a block of its own."""
        before = len(self.problems)
        with self.builder.inside(block):
            entries = self.import_graph(graph, outer)
            # What is wrong in a branch may be legal, as long as the branch is never taken.
            found = (replace(problem, unsupported=True) for problem in self.problems[before:])
            self.problems[before:] = found
            if any(entry.is_missing for entry in entries):
                inner = len(self.problems) - before
                raise UnsupportedError(f"a branch holds {inner} nodes that are not supported")
            return [self.constants.materialize(entry) for entry in entries]

    # ---- functions of the model

    def _call(self, function: Function, node: Node, scope: Scope) -> Sequence[Entry]:
        """Import the body of a function in place of a node that calls it."""
        self._check_call(function, node, scope)
        given = [scope.find(name) if name else None for name in node.inputs]
        names = zip(function.inputs, given, strict=False)
        inner = Scope(
            {name: entry for name, entry in names if entry is not None},
            function.opset_imports,
            attributes={**function.defaults, **_resolved(node, scope)},
            call=f"{scope.call}{_node_name(node)}/",
            depth=scope.depth + 1,
        )
        self.import_nodes(function.nodes, inner)
        absent = [name for name in function.outputs if name not in inner.entries]
        if absent:
            what = f"output {absent[0]!r} of {function.label} is an input that is left out"
            raise TfcError(what, where=f"{self.model.file.location}: {node.label}")
        return [inner.entries[name] for name in function.outputs]

    def _check_call(self, function: Function, node: Node, scope: Scope) -> None:
        where = f"{self.model.file.location}: {node.label}"
        if scope.depth >= MAX_CALL_DEPTH:
            raise TfcError(f"functions call each other deeper than {MAX_CALL_DEPTH}", where=where)
        self._inlined += len(function.nodes)
        if self._inlined > MAX_INLINED_NODES:
            raise TfcError(f"functions expand to more than {MAX_INLINED_NODES} nodes", where=where)
        if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
            raise TfcError(f"more inputs or outputs than {function.label} has", where=where)
        known = {*function.attributes, *function.defaults}
        unknown = [name for name in node.attributes if name not in known]
        if unknown:
            raise TfcError(f"{function.label} has no attribute {unknown[0]!r}", where=where)
        self._check_opset(function.opset_imports)

    # ---- locations and problems

    def location(self, node: str) -> Location:
        return Location((f"{self.file}:{node}" if node else self.file,))

    def _problem(self, what: str, why: str) -> None:
        self.problems.append(Problem(what, why, True))

    def _node_problem(self, node: Node, scope: Scope, why: str, unsupported: bool) -> None:
        opset = scope.opsets.get(node.domain, "?")
        entries = [scope.find(name) if name else None for name in node.inputs]
        types = ", ".join("_" if entry is None else str(entry) for entry in entries)
        inside = f" in {scope.call.rstrip('/')}" if scope.call else ""
        what = f"{node.label}{inside}, opset {opset}, of ({types})"
        self.problems.append(Problem(what, why, unsupported))

    def _raise_problems(self) -> None:
        where = self.model.file.location
        wrong = [problem for problem in self.problems if not problem.unsupported]
        if wrong:
            raise TfcError("\n".join(map(str, wrong)), where=where)
        if self.problems:
            count = len(self.problems)
            lines = "\n".join(f"  {problem}" for problem in self.problems)
            head = f"{count} part{'s' * (count > 1)} of the model not supported"
            raise UnsupportedError(f"{head}:\n{lines}", where=where)


def _import_node(handler: Registered, context: Context) -> list[One]:
    """The results of a node: known elements where possible, else ops."""
    known = evaluate(context)
    results = _as_list(handler.handler(context) if known is None else known)
    if known is None:
        context.check_used()
    needed = max((i + 1 for i, name in enumerate(context.node.outputs) if name), default=0)
    if needed > len(results):
        raise context.unsupported(f"output {len(results)} is used, which tfc does not compute")
    return results


def _as_list(results: Result) -> list[One]:
    return [results] if isinstance(results, One) else list(results)


def _node_name(node: Node) -> str:
    return node.name or f"{node.op_type}_{node.index}"


def _dimension_names(graph: Graph) -> Iterator[str]:
    """The names of the symbolic dimensions of the inputs; unnamed ones are named by their place."""
    for value in graph.feeds:
        for axis, dim in enumerate(value.dims or ()):
            if not isinstance(dim, int):
                yield dim if dim is not None else _unnamed(value.name, axis)


def _unnamed(name: str, axis: int) -> str:
    return f"{name}_dim_{axis}"


def _resolved(node: Node, scope: Scope) -> dict[str, Attribute]:
    """The attributes of a node, references to those of the function that it stands in replaced."""
    found: dict[str, Attribute] = {}
    for name, attribute in node.attributes.items():
        if not isinstance(attribute.value, Reference):
            found[name] = attribute
        elif attribute.value.name in scope.attributes:
            found[name] = scope.attributes[attribute.value.name]
    return found
