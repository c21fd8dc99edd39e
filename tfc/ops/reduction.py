"""Reductions over axes: sum, maximum, minimum and product, and what is made of them; arg, cumsum.

Floats are folded in at least f32 (references: f64) and rounded once. An empty reduction gives the identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tfc.ir.core import Value, attribute, operand, result
from tfc.ir.expr import Dim, product
from tfc.ir.types import BF16, BOOL, F16, F32, FLOATS, I32, I64, U32, U64, DType, TensorType, Type
from tfc.ops.activation import Relu  # noqa: F401
from tfc.ops.base import NUMERIC, Array, Composite, GraphOp, Shape, narrow, widen

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
