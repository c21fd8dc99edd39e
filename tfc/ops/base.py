"""What the graph ops share: bases of their classes, broadcasting, axes, dtype checks, entry checks.

An op that cannot prove at compile time that two dimensions agree (different symbols) assumes it in
`infer` through `same` or `at_most`; `entry_checks` tells what was assumed, for whoever checks it at
the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from tfc.ir.core import Op, Value, operand, result
from tfc.ir.errors import TfcError
from tfc.ir.expr import ZERO, Call, Dim, Expr, as_expr, is_nonnegative, normal
from tfc.ir.types import (
    BOOL,
    DTYPES,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    INTEGERS,
    DType,
    Layout,
    TensorType,
    Type,
)

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.ir.core import Function
    from tfc.ops.backward import Backward
    from tfc.ops.calculus import Calculus
    from tfc.tile.nest import Nest

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = "tuple[Dim, ...]"

ANY: tuple[DType, ...] = tuple(DTYPES.values())
SIGNED: tuple[DType, ...] = (*FLOATS, I8, I16, I32, I64)
NUMERIC: tuple[DType, ...] = (*FLOATS, *INTEGERS)
BOOLS: tuple[DType, ...] = (BOOL,)
INDICES: tuple[DType, ...] = (I32, I64)


@dataclass(frozen=True)
class EntryCheck:
    """What must hold of two dimensions when the function is called.

    `relation` is "==" or "<=".
    """

    lhs: Dim
    relation: str
    rhs: Dim
    message: str

    def holds(self, symbols: Mapping[str, int]) -> bool:
        a, b = as_expr(self.lhs).evaluate(symbols), as_expr(self.rhs).evaluate(symbols)
        return a == b if self.relation == "==" else a <= b

    def __str__(self) -> str:
        return f"{self.lhs} {self.relation} {self.rhs}: {self.message}"


def written_checks(function: Function) -> list[EntryCheck]:
    """What the pass `entry-checks` wrote down, in attributes of the function.

    Raises TfcError where the attributes are not of that form.
    """
    sides: Any = function.attributes.get("check_sides", ())
    texts: Any = function.attributes.get("check_texts", ())
    fits = (
        isinstance(sides, tuple)
        and isinstance(texts, tuple)
        and all(isinstance(s, int | Expr) and not isinstance(s, bool) for s in sides)
        and all(isinstance(text, str) and text[:2] in ("==", "<=") for text in texts)
        and len(sides) == 2 * len(texts)
    )
    if not fits:
        raise TfcError(
            f"@{function.name}: check_sides and check_texts do not fit each other",
            hint='each text begins with "==" or "<=" and has two sides, which are dimensions',
        )
    return [
        EntryCheck(sides[2 * i], text[:2], sides[2 * i + 1], text[2:].strip())
        for i, text in enumerate(texts)
    ]


class GraphOp(Op):
    """An op of the graph level. The numpy `reference` is its meaning.

    `exact`: the reference's bits are the same on every machine, so that it may fold constants.
    `commutative`: the first two operands may change places. `may_fail`: on some data it is an
    error. `hero`: the kind of kernel that is built around the op by its `lower`; empty for one that
    is evaluated inside of others by its `pull`, or not at all. `differentiable`: its results change
    smoothly with some operand, so that it has a `gradient`; where it is false, no gradient passes
    through the op. `gradient_needs` says what must happen to an op first that has none as it is.
    """

    exact: ClassVar[bool] = False
    differentiable: ClassVar[bool] = True
    gradient_needs: ClassVar[str] = ""
    commutative: ClassVar[bool] = False
    hero: ClassVar[str] = ""
    may_fail: ClassVar[bool] = False

    def reference(self, *arrays: Any, **_: Any) -> Any:
        """The result, or a tuple of the results, for the operands' arrays (None where absent).

        It may read attributes and types, in which every dimension is an int when this is called.
        """
        raise NotImplementedError(f"{self.name} has no reference")

    # ---- derivatives

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """The gradients by the operands, made of graph ops, for those by the results.

        None stands for zeros, in both lists. An operand that stands twice gets a gradient for each
        place. Source: arXiv 1603.04467, section 4.1.
        """
        hint = "give its class a `gradient`, or say that it is not `differentiable`"
        hint = self.gradient_needs or hint
        raise self.error("the op has no gradient", hint)

    def backward(self, walk: Backward) -> None:
        """Adds to the gradients of what it uses, outer values of regions too."""
        gradients = self.gradient(walk.builder, [walk.of(v) for v in self.results])
        for value, gradient in zip(self.operands, gradients, strict=True):
            if value is not None and gradient is not None:
                walk.add(value, gradient)

    # ---- what must hold of dimensions

    def same(self, a: Dim, b: Dim, constraint: str, message: str) -> Dim:
        """The simpler of two dimensions that must be equal; an entry check if unproved."""
        a, b = normal(a), normal(b)
        if a == b:
            return a
        if isinstance(a, int) and isinstance(b, int):
            raise self.error(f"{constraint}: {message}: {a} and {b} differ")
        self._assume(EntryCheck(a, "==", b, f"{self.name}: {constraint}: {message}"))
        return min(a, b, key=lambda d: (isinstance(d, Expr), len(str(d)), str(d)))

    def same_shape(self, a: Shape, b: Shape, constraint: str, message: str) -> Shape:
        """Each dimension as in `same`."""
        self.require(
            len(a) == len(b), constraint, f"{message}: the ranks {len(a)} and {len(b)} differ"
        )
        return tuple(self.same(m, n, constraint, message) for m, n in zip(a, b, strict=True))

    def at_most(self, a: Dim, b: Dim, constraint: str, message: str) -> None:
        """Requires a <= b; what cannot be told now is an entry check."""
        a, b = normal(a), normal(b)
        if isinstance(a, int) and isinstance(b, int):
            self.require(a <= b, constraint, f"{message}: {a} is more than {b}")
        elif not is_at_most(as_expr(a), as_expr(b)):
            self._assume(EntryCheck(a, "<=", b, f"{self.name}: {constraint}: {message}"))

    def _assume(self, check: EntryCheck) -> None:
        assumed: list[EntryCheck] | None = vars(self).get("_assumed")
        if assumed is not None and check not in assumed:
            assumed.append(check)

    def entry_checks(self) -> list[EntryCheck]:
        """What `infer` assumed of symbolic dimensions."""
        if self.explicit_types:
            return []
        found: list[EntryCheck] = []
        vars(self)["_assumed"] = found
        self.infer()
        del vars(self)["_assumed"]
        return found

    # ---- checks that raise

    def check_dtype(
        self,
        value: Value,
        allowed: Sequence[DType],
        constraint: str = "C1",
        role: str = "the operand",
    ) -> DType:
        """The element type of an operand, which must be one of the allowed ones."""
        dtype = value.tensor.dtype
        self.require(
            dtype in allowed,
            constraint,
            f"the element type of {role} is {dtype}",
            f"{self.name} takes {', '.join(map(str, allowed))}",
        )
        return dtype

    def check_same_dtype(self, values: Iterable[Value], constraint: str = "C1") -> DType:
        """The one element type that all the operands have."""
        found = list(dict.fromkeys(v.tensor.dtype for v in values))
        self.require(
            len(found) == 1,
            constraint,
            f"the operands differ in element type: {', '.join(map(str, found))}",
            "insert a `cast`; no op casts by itself",
        )
        return found[0]

    def check_axis(self, axis: int, rank: int, constraint: str, name: str = "axis") -> int:
        """An axis, which counts from the front: 0 <= axis < rank."""
        hint = f"axes count from the front: write {axis + rank}" if -rank <= axis < 0 else ""
        self.require(0 <= axis < rank, constraint, f"{name} {axis} is no axis of rank {rank}", hint)
        return axis

    def check_axes(
        self, axes: Sequence[int], rank: int, constraint: str, name: str = "axes"
    ) -> tuple[int, ...]:
        """Axes, which must be valid, ascending and distinct."""
        for axis in axes:
            self.check_axis(axis, rank, constraint, name)
        ascending = all(a < b for a, b in pairwise(axes))
        self.require(ascending, constraint, f"{name} {tuple(axes)} do not ascend")
        return tuple(axes)

    def check_rank(self, value: Value, rank: int, constraint: str, role: str) -> TensorType:
        """The type of an operand, which must have this rank."""
        found = value.tensor
        self.require(found.rank == rank, constraint, f"{role} has rank {found.rank}, not {rank}")
        return found

    # ---- broadcasting

    def broadcast(self, shapes: Sequence[Shape], constraint: str) -> Shape:
        """The common shape of operands aligned at the last axis; only a static 1 is stretched."""
        rank = max((len(s) for s in shapes), default=0)
        return tuple(self._broadcast_axis(shapes, i - rank, constraint) for i in range(rank))

    def _broadcast_axis(self, shapes: Sequence[Shape], axis: int, constraint: str) -> Dim:
        dims = [s[axis] for s in shapes if len(s) >= -axis and s[axis] != 1]
        if not dims:
            return 1
        chosen = dims[0]
        for dim in dims[1:]:
            text = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
            chosen = self.same(chosen, dim, constraint, f"{text} do not broadcast")
        return chosen


def is_at_most(a: Expr, b: Expr) -> bool:
    """Whether a <= b is proved for all dimensions."""
    if is_nonnegative(b - a):
        return True
    lower, upper = _single_call(a, "min"), _single_call(b, "max")
    if lower and any(is_at_most(e, b) for e in (lower.lhs, lower.rhs)):
        return True
    if upper and any(is_at_most(a, e) for e in (upper.lhs, upper.rhs)):
        return True
    highest, lowest = _single_call(a, "max"), _single_call(b, "min")
    if highest:
        return all(is_at_most(e, b) for e in (highest.lhs, highest.rhs))
    return bool(lowest) and all(is_at_most(a, e) for e in (lowest.lhs, lowest.rhs))


def _single_call(e: Expr, op: str) -> Call | None:
    if len(e.terms) != 1:
        return None
    ((monomial, factor),) = e.terms.items()
    atom = monomial[0] if len(monomial) == 1 and factor == 1 else None
    return atom if isinstance(atom, Call) and atom.op == op else None


def broadcast_index(index: Sequence[Expr], shape: Shape) -> list[Expr]:
    """The index into an operand of a shape that broadcasts to the result's index."""
    own = index[len(index) - len(shape) :]
    return [ZERO if n == 1 else as_expr(i) for i, n in zip(own, shape, strict=True)]


# ---- kinds of ops


class Composite(GraphOp):
    """An op that is made of others; the pass `decompose` replaces it by them."""

    def decompose(self, b: Builder) -> list[Value]:
        """The values that replace the results, made of other ops at the builder's place."""
        raise NotImplementedError(f"{self.name} does not decompose")

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """Those of the ops that it is made of, which are made once more; CSE merges them."""
        from tfc.ops.backward import through

        return through(self, self.decompose, b, gradients)


def is_composite(op: Op | type[Op]) -> bool:
    """Whether an op, or a class of them, decomposes."""
    kind = op if isinstance(op, type) else type(op)
    return issubclass(kind, Composite)


class Elementwise(GraphOp):
    """An op that computes each element from those at its place in the operands, which broadcast.

    `function` is the name of the tile function of one element, `dtypes` the admitted element types.
    """

    function: ClassVar[str] = ""
    dtypes: ClassVar[tuple[DType, ...]] = NUMERIC

    def __init_subclass__(cls, name: str = "") -> None:
        super().__init_subclass__(name=name)
        if name and not cls.function and not is_composite(cls):
            cls.function = name

    def infer(self) -> list[Type]:
        dtype = self.check_same_dtype(self.inputs)
        self.check_dtype(self.inputs[0], self.dtypes)
        return [self.broadcast_type(self.result_dtype(dtype))]

    def result_dtype(self, dtype: DType) -> DType:
        """The element type of the result for that of the operands."""
        return dtype

    def slopes(self, do: Calculus, g: Value) -> list[Value | None]:
        """The gradients by the operands for that by the result, each of the result's shape."""
        raise self.error("the op has no gradient", "give its class `slopes`")

    def gradient(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """The slopes, summed over the axes along which an operand is stretched."""
        return self.summed_slopes(b, gradients)

    def summed_slopes(self, b: Builder, gradients: list[Value | None]) -> list[Value | None]:
        """As `gradient`, for a composite whose `slopes` are better than those of its parts."""
        from tfc.ops.calculus import Calculus

        (g,) = gradients
        if g is None:
            return [None] * len(self.operands)
        do = Calculus(b)
        pairs = zip(self.slopes(do, g), self.operands, strict=True)
        return [s and do.sum_to(s, v.tensor.shape) if v is not None else None for s, v in pairs]

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        """The tile of the result at an index, inside of a kernel."""
        tiles = [nest.pull(v, broadcast_index(index, v.tensor.shape)) for v in self.inputs]
        return nest.map(self.function, *tiles)

    def broadcast_type(self, dtype: DType, constraint: str = "C2") -> TensorType:
        """The type of the result: the common shape, in the layout of the operands that have it."""
        types = [v.tensor for v in self.inputs]
        shape = self.broadcast([t.shape for t in types], constraint)
        return TensorType(dtype, shape, common_layout(types, shape))


def common_layout(types: Sequence[TensorType], shape: Shape) -> Layout | None:
    """The layout that all operands of the full shape have; plain where they differ."""
    found = list(dict.fromkeys(t.layout for t in types if t.shape == shape))
    return found[0] if len(found) == 1 else None


class Unary(Elementwise):
    """An elementwise op of one operand."""

    x: Value = operand()
    output: Value = result()


class Binary(Elementwise):
    """An elementwise op of two operands of the same element type."""

    x: Value = operand()
    y: Value = operand()
    output: Value = result()


class Comparison(Binary):
    """A binary elementwise op with a bool result."""

    exact = True
    differentiable = False

    def result_dtype(self, dtype: DType) -> DType:
        return BOOL


class View(GraphOp):
    """An op that only renames the places of the elements of its operand."""

    exact = True
    x: Value = operand()
    output: Value = result()

    def source(self, index: list[Expr]) -> list[Expr]:
        """The index of the operand that is read at an index of the result."""
        raise NotImplementedError(f"{self.name} has no index map")

    def target(self, index: list[Expr]) -> list[Expr] | None:
        """The index of the result that shows an index of the operand; None where none does."""
        return None

    def pull(self, nest: Nest, index: list[Expr], number: int) -> Value:
        """The tile of the result at an index, inside of a kernel."""
        return nest.pull(self.x, self.source(index))


# ---- numbers of references


def static(dims: Shape) -> tuple[int, ...]:
    """Dimensions that are all ints, as they are inside a reference."""
    found = tuple(d for d in dims if isinstance(d, int))
    assert len(found) == len(dims), f"{dims} has symbols: bind them first"
    return found


def widen(array: Array) -> Array:
    """Floats as float64, in which references compute before they round once; others as they are."""
    return array.astype(np.float64) if is_float_array(array) else array


def is_float_array(array: Array) -> bool:
    """Whether the elements are floats; bf16 is none of numpy's own."""
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def narrow(array: Any, dtype: np.dtype[Any]) -> Array:
    """An array as another element type; float64 is rounded once, to nearest even."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(dtype)


__all__ = [
    "ANY", "BOOL", "BOOLS", "FLOATS", "INDICES", "INTEGERS", "NUMERIC", "SIGNED",
    "Array", "Binary", "Comparison", "Composite", "Elementwise", "EntryCheck", "GraphOp", "Shape",
    "TfcError", "Unary", "View", "broadcast_index", "common_layout", "is_at_most", "is_composite",
    "is_float_array", "narrow", "static", "widen", "written_checks",
]  # fmt: skip
