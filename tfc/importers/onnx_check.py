"""Checks that a model's graphs are well formed: each name defined once, and before it is used.

Names of nodes need not be unique, only those of values. A graph inside a node sees the values that
are defined before that node, and may hide them. Source: https://onnx.ai/onnx/repo-docs/IR.html
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfc.importers.onnx_model import Function, Graph, Model, Node, Reference
from tfc.ir.errors import TfcError


def check_model(model: Model) -> None:
    if not model.opset_imports:
        raise model.error("the model does not say which opset it uses (opset_import)")
    file = model.file.location
    _check_graph(model.graph, (), file)
    for node in model.graph.nodes:
        _check_no_references(node, file)
    for function in model.functions.values():
        _check_function(function, file)


def _check_graph(graph: Graph, outer: tuple[set[str], ...], file: str) -> None:
    defined: set[str] = set()
    for value in graph.inputs:
        _define(value.name, "graph input", defined, file)
    for name in (*graph.initializers, *graph.sparse_initializers):
        if not name:
            raise TfcError("an initializer has no name", where=file)
        defined.add(name)
    _check_nodes(graph.nodes, defined, outer, file)
    if not graph.outputs:
        raise TfcError(f"graph {graph.name!r} has no outputs", where=file)
    outputs = [value.name for value in graph.outputs]
    _check_outputs(outputs, f"graph {graph.name!r}", (*outer, defined), file)


def _check_function(function: Function, file: str) -> None:
    defined: set[str] = set()
    for name in function.inputs:
        _define(name, f"input of {function.label}", defined, file)
    _check_nodes(function.nodes, defined, (), file)
    _check_outputs(function.outputs, function.label, (defined,), file)


def _define(name: str, what: str, defined: set[str], file: str) -> None:
    if not name:
        raise TfcError(f"{what} without a name", where=file)
    if name in defined:
        raise TfcError(f"value {name!r} is defined twice, the second time as {what}", where=file)
    defined.add(name)


def _check_outputs(
    outputs: Sequence[str], what: str, scopes: tuple[set[str], ...], file: str
) -> None:
    for place, name in enumerate(outputs):
        if not any(name in scope for scope in scopes):
            raise TfcError(f"output {name!r} of {what} is never defined", where=file)
        if name in outputs[:place]:
            raise TfcError(f"output {name!r} of {what} is named twice", where=file)


def _check_nodes(
    nodes: Sequence[Node], defined: set[str], outer: tuple[set[str], ...], file: str
) -> None:
    scopes = (*outer, defined)
    for node in nodes:
        for name in node.inputs:
            if name and not any(name in scope for scope in scopes):
                raise _undefined(name, node, nodes, file)
        for graph in node.graphs:
            _check_capture(graph, node, nodes, scopes, file)
        for name in node.outputs:
            if name:
                _define(name, f"output of {node.label}", defined, file)


def _check_capture(
    graph: Graph, node: Node, nodes: Sequence[Node], scopes: tuple[set[str], ...], file: str
) -> None:
    """Check a graph inside a node; what it lacks, the outer graph may make too late."""
    for name in free_names(graph):
        missing = not any(name in scope for scope in scopes)
        if missing and any(name in other.outputs for other in nodes):
            raise _undefined(name, node, nodes, file)
    _check_graph(graph, scopes, file)


def free_names(graph: Graph) -> list[str]:
    """The outer values that a graph uses, in order of their first use."""
    found: dict[str, None] = {}
    own = {value.name for value in graph.inputs} | set(graph.initializers)
    for node in graph.nodes:
        used = [*node.inputs, *(name for inner in node.graphs for name in free_names(inner))]
        found.update((name, None) for name in used if name and name not in own)
        own.update(node.outputs)
    found.update((value.name, None) for value in graph.outputs if value.name not in own)
    return list(found)


def _undefined(name: str, node: Node, nodes: Sequence[Node], file: str) -> TfcError:
    """Say why a value is not there: nothing makes it, a later node does, or a cycle."""
    producers = {output: other for other in nodes for output in other.outputs if output}
    producer = producers.get(name)
    what = f"{node.label} uses value {name!r}"
    if producer is None:
        return TfcError(f"{what}, which nothing defines", where=file)
    cycle = _path(producer, node, producers)
    if cycle:
        shown = " <- ".join(n.label for n in (node, *cycle[:6]))
        more = f" <- ... ({len(cycle)} nodes)" if len(cycle) > 6 else ""
        return TfcError(f"the graph has a cycle: {shown}{more}", where=file)
    return TfcError(
        f"{what} before {producer.label} defines it",
        where=file,
        hint="nodes must come in topological order",
    )


def _path(start: Node, goal: Node, producers: dict[str, Node]) -> list[Node]:
    """The nodes from one to another along what they use, or nothing."""
    came_from: dict[int, Node | None] = {start.index: None}
    queue = [start]
    while queue:
        node = queue.pop()
        if node is goal:
            return _walk_back(node, came_from)
        for name in _used(node):
            producer = producers.get(name)
            if producer is not None and producer.index not in came_from:
                came_from[producer.index] = node
                queue.append(producer)
    return []


def _walk_back(node: Node, came_from: dict[int, Node | None]) -> list[Node]:
    path = [node]
    while (before := came_from[path[-1].index]) is not None:
        path.append(before)
    return path[::-1]


def _used(node: Node) -> Iterable[str]:
    yield from node.inputs
    for graph in node.graphs:
        yield from free_names(graph)


def _check_no_references(node: Node, file: str) -> None:
    for attribute in node.attributes.values():
        if isinstance(attribute.value, Reference):
            raise TfcError(
                f"{node.label}: attribute {attribute.name!r} refers to an attribute of a function, "
                "but stands in none",
                where=file,
            )
    for graph in node.graphs:
        for inner in graph.nodes:
            _check_no_references(inner, file)
