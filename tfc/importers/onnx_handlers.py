"""Loads every module that registers importers of ONNX operators."""

from __future__ import annotations

from importlib import import_module

MODULES = (
    "activation",
    "composed",
    "control",
    "einsum",
    "elementwise",
    "linalg",
    "neural",
    "quantized",
    "reduction",
    "shape",
    "tensor",
    "transposed",
)


def register() -> None:
    """Fill the tables: of the graph ops, then of their importers."""
    import_module("tfc.ops")
    for name in MODULES:
        import_module(f"tfc.importers.onnx_ops_{name}")
