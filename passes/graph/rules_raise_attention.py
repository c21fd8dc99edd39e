"""The rule of `raise-idioms` for attention that is spelled as matmul, softmax, matmul."""

from __future__ import annotations

from dataclasses import dataclass, field

from tfc.ir.core import Op, Value
from tfc.ir.rewriting import Pattern, Rewriter, pattern
from tfc.ops.arithmetic import Add
from tfc.ops.attention import Attention
from tfc.ops.linalg import MatMul
from tfc.ops.softmax import Softmax
from tfc.ops.view import Transpose
from tfc.passes.graph.idioms import become, either_way, may_become_one, producer, product_of


@dataclass
class Scores:
    """scale * query x key + mask, where `permutation` of the key gives [..., S, D]."""

    query: Value
    key: Value
    permutation: tuple[int, ...]
    scale: float
    mask: Value | None = None
    parts: list[Op] = field(default_factory=list[Op])


def scores_of(value: Value) -> Scores | None:
    """A value as scores; a mask must not stretch them."""
    add = producer(value, Add)
    for product, mask in either_way(add) if add else ():
        found = _product(product) if product.type == value.type else None
        if add and found:
            found.mask = mask
            found.parts.append(add)
            return found
    return _product(value)


def _product(value: Value) -> Scores | None:
    """A value as scale * query x key."""
    outer = product_of(value)
    inner = outer.single()
    matmul = producer(inner, MatMul)
    if inner is None or matmul is None or inner.type != value.type:
        return None
    if matmul.a.tensor.rank < 2 or matmul.b.tensor.rank < 2:
        return None
    query, factor, parts = _unscaled(matmul.a)
    rank = matmul.b.tensor.rank
    last_two_swapped = (*range(rank - 2), rank - 1, rank - 2)
    found = Scores(query, matmul.b, last_two_swapped, outer.scale * factor)
    found.parts = [*outer.parts, matmul, *parts]
    _unwrap_key(found)
    return found


def _unscaled(value: Value) -> tuple[Value, float, list[Op]]:
    """x and c of a value that is c * x for this one user; else the value and 1."""
    found = product_of(value)
    x = found.single()
    if x is None or x.type != value.type or len(value.uses) != 1:
        return value, 1.0, []
    return x, found.scale, found.parts


def _unwrap_key(found: Scores) -> None:
    """Takes transposes off the key, which others may use too, and a factor around them."""
    transposes: list[Op] = []
    alone = True
    while True:
        transpose = producer(found.key, Transpose)
        key, factor, parts = _unscaled(found.key)
        if transpose is not None:
            alone = alone and len(found.key.uses) == 1
            transposes.append(transpose)
            found.permutation = tuple(transpose.permutation[a] for a in found.permutation)
            found.key = transpose.x
        elif alone and key is not found.key:
            found.key, found.scale = key, found.scale * factor
            found.parts += [*transposes, *parts]
        else:
            return


@pattern("raise-attention", MatMul)
def raise_attention(op: MatMul, rewriter: Rewriter) -> bool:
    """softmax(scale * q x transposed(k) + mask) x v -> attention(q, k, v, mask).

    Transposes of the key, its own layout's too, become one, or none where they cancel.
    """
    softmax = producer(op.a, Softmax)
    if softmax is None or softmax.axis != softmax.x.tensor.rank - 1 or op.b.tensor.rank < 2:
        return False
    found = scores_of(softmax.x)
    if found is None or not may_become_one(op, [softmax, *found.parts]):
        return False
    key, transpose = _key(found)
    new = Attention(found.query, key, op.b, found.mask, scale=found.scale)
    if new.result.type != op.result.type:
        new.erase()
        if transpose:
            transpose.erase()
        return False
    if transpose:
        rewriter.add(transpose)
    become(op, [softmax, *found.parts], new, rewriter)
    return True


def _key(found: Scores) -> tuple[Value, Transpose | None]:
    """The key as [..., S, D], and the transpose that makes it so, if one must."""
    if found.permutation == tuple(range(len(found.permutation))):
        return found.key, None
    transpose = Transpose(found.key, found.permutation)
    return transpose.result, transpose


RULES: tuple[Pattern, ...] = (raise_attention,)
