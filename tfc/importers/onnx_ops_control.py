"""ONNX operators that hold graphs: If."""

from __future__ import annotations

from collections.abc import Sequence

from tfc.importers.onnx_context import Context, Result
from tfc.importers.onnx_ops_elementwise import as_scalar
from tfc.importers.onnx_registry import importer
from tfc.ir.core import OPS, Block, Value


@importer("If", 1, 11, 13, 16, 19, 21, 23, 24, 25)
def _(n: Context) -> Result:
    then, otherwise = n.graph("then_branch"), n.graph("else_branch")
    known = n.elements(0)
    if known is not None and known.is_constant:
        n.require(known.elements.size == 1, "the condition has not one element")
        chosen = then if known.elements.reshape(-1)[0] else otherwise
        return n.host.import_graph(chosen, n.scope)
    condition = as_scalar(n, n.value(0))
    blocks = [Block(), Block()]
    found = [
        _branch(n, block, n.host.import_branch(graph, n.scope, block))
        for graph, block in zip((then, otherwise), blocks, strict=True)
    ]
    types = [value.type for value in found[0]]
    if types != [value.type for value in found[1]]:
        raise n.unsupported(f"its branches give {_listed(found[0])} and {_listed(found[1])}")
    return n.make_all("if", condition, types, *blocks)


def _branch(n: Context, block: Block, values: Sequence[Value]) -> Sequence[Value]:
    block.append(OPS["yield"](list(values)))
    return values


def _listed(values: Sequence[Value]) -> str:
    return ", ".join(str(value.type) for value in values)
