"""ONNX operators that contract: MatMul and Gemm."""

from __future__ import annotations

from tfc.importers.onnx_context import Context
from tfc.importers.onnx_registry import importer
from tfc.ir.core import Value


@importer("MatMul", 1, 9, 13)
def _(n: Context) -> Value:
    return n.make("matmul", n.value(0), n.value(1))


@importer("Gemm", 6, 7, 9, 11, 13)
def _(n: Context) -> Value:
    if n.version < 7:
        n.flag("broadcast")  # C broadcasts as later: its rank is 2 at most
    return n.make(
        "gemm",
        n.value(0),
        n.value(1),
        n.optional(2) if n.version >= 11 else n.value(2),
        alpha=n.float("alpha", 1.0),
        beta=n.float("beta", 1.0),
        trans_a=n.flag("transA"),
        trans_b=n.flag("transB"),
    )
