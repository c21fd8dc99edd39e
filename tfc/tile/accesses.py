"""Whether a kernel's accesses stay inside of their buffers, by proof.

The kernels that the builders make do; a kernel that was written by hand may not. All symbols count
from 0, so an access is in bounds where the least value of its position is not negative and the
largest is below the number of elements, over the ranges of grid, loops, rows and columns. What its
own bounds leave out need not be in the buffer: each bound lo <= e < hi may give one variable of `e`
another range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice, product

from tfc.ir.core import Block, Kernel, Op, Value
from tfc.ir.errors import TfcError
from tfc.ir.expr import ZERO, Call, Dim, Expr, as_expr, extreme, is_nonnegative, simplify, symbol
from tfc.ir.types import TileType
from tfc.tile import ops as t

Ranges = dict[str, tuple[Expr, Expr]]
MAX_CHOICES = 64  # ways to use the bounds of one access that are tried
LARGEST_NUMBER = 1 << 40  # in an expression: beyond every memory
LARGEST_TILE = 1 << 20  # elements


@dataclass(frozen=True)
class Access:
    """A load or store, the ranges of the variables around it, and the loops."""

    op: t.Load | t.Store
    ranges: Ranges = field(hash=False)
    loops: tuple[t.For, ...] = ()

    @property
    def elements(self) -> Expr:
        return as_expr(self.op.buffer.buffer.elements)


def accesses(kernel: Kernel) -> Iterator[Access]:
    """Every load and store, with the ranges of the variables around it."""
    grid = {name: (ZERO, as_expr(extent) - 1) for name, extent in kernel.grid}
    yield from _accesses(kernel.body, grid, ())


def _accesses(block: Block, ranges: Ranges, loops: tuple[t.For, ...]) -> Iterator[Access]:
    for op in block:
        if isinstance(op, t.For):
            inside = {**ranges, op.index: _loop_range(op)}
            yield from _accesses(op.do, inside, (*loops, op))
        elif isinstance(op, t.Load | t.Store):
            rows, cols = (op.output if isinstance(op, t.Load) else op.value).tile.shape
            own: Ranges = {
                t.ROW: (ZERO, as_expr(rows - 1)),
                t.COLUMN: (ZERO, as_expr(cols - 1)),
            }
            yield Access(op, {**ranges, **own}, loops)


def _loop_range(op: t.For) -> tuple[Expr, Expr]:
    start, stop = as_expr(op.start), as_expr(op.stop)
    span = (stop - start).constant
    if span is not None:
        return start, start + max(0, -(-span // op.step) - 1) * op.step
    if ((stop - start) % op.step).constant == 0:
        return start, stop - op.step
    return start, stop - 1


def _cuts(loop: t.For) -> list[tuple[Expr, Expr, Expr]]:
    """What max in the start and min in the stop of a loop say of its variable."""
    lows = _parts(as_expr(loop.start), "max")
    highs = [h for part in _parts(as_expr(loop.stop), "min") for h in _parts(part, "max")]
    if len(lows) * len(highs) == 1 or not is_nonnegative(as_expr(loop.start)):
        return []
    # Since the variable is not negative, it is below max(h, 0) only if it is below h.
    return [(a, symbol(loop.index), h) for a in lows for h in highs if h.terms and a.terms]


def _parts(e: Expr, function: str) -> list[Expr]:
    """The operands of a call, and of the same calls in it; the expression itself if it is none."""
    match list(e.terms.items()):
        case [((Call() as call,), 1)] if call.op == function:
            return [*_parts(call.lhs, function), *_parts(call.rhs, function)]
        case _:
            return [e]


def is_inside(access: Access) -> bool:
    """Whether an access is proved to stay inside of its buffer."""
    found = _position(access)
    if found is None:
        return False
    at, ranges = found
    bounds: list[tuple[object, ...]] = [*t.bounds(access.op.where)]
    for loop in access.loops:
        bounds += _cuts(loop)
    ways = [_ways(bound, access.ranges) for bound in bounds]
    low = high = False
    for chosen in islice(product(*ways), MAX_CHOICES):
        position, known = _chosen(at, ranges, [c for c in chosen if c is not None])
        low = low or is_nonnegative(extreme(position, known, False))
        high = high or is_nonnegative(extreme(access.elements - 1 - position, known, False))
        if low and high:
            return True
    return False


def _position(access: Access) -> tuple[Expr, Ranges] | None:
    """The position with a variable for each index tile; None where one may be anything."""
    op, at, ranges = access.op, as_expr(access.op.at), dict(access.ranges)
    if isinstance(op, t.Load):
        for number, (index, stride) in enumerate(zip(op.indices, op.strides, strict=True)):
            size = _index_size(index)
            if size is None:
                return None
            name = f"w{number}"
            ranges[name] = (ZERO, as_expr(size) - 1)
            at = at + symbol(name) * stride
    return at, ranges


def _index_size(value: Value) -> Expr | None:
    """A number that an index tile stays below."""
    op = value.producer
    while isinstance(op, t.Stage | t.Transpose):
        op = op.x.producer
    return as_expr(op.size) if isinstance(op, t.WrapIndex) else None


@dataclass(frozen=True)
class Choice:
    """`factor` times a variable is `value` plus a new variable of the range `span`."""

    name: str
    factor: int
    value: Expr
    span: tuple[Expr, Expr]


def _ways(bound: tuple[object, ...], ranges: Ranges) -> list[Choice | None]:
    """How a bound may be used: for a variable that its expression is linear in, or not."""
    low, e, high = (as_expr(x) for x in bound)  # type: ignore[arg-type]
    found: list[Choice | None] = []
    for monomial, factor in e.terms.items():
        if len(monomial) != 1 or factor < 1 or monomial[0] not in ranges:
            continue
        name = monomial[0]
        if sum(name in Expr({m: 1}).symbols() for m in e.terms) == 1:
            rest = e - factor * symbol(name)
            found.append(Choice(name, factor, low - rest, (ZERO, high - low - 1)))
    return [*found, None]


def _chosen(at: Expr, ranges: Ranges, chosen: list[Choice]) -> tuple[Expr, Ranges]:
    """The position by the variables that bounds give, and all ranges."""
    known = dict(ranges)
    for number, choice in enumerate(chosen):
        fresh = f"v{number}"
        found = _replaced(at, choice, choice.value + symbol(fresh))
        if found is not None:
            at, known[fresh] = found, choice.span
    return simplify(at, known), known


def _replaced(at: Expr, choice: Choice, value: Expr) -> Expr | None:
    """The position with a value for `factor` times the variable; None where it is not linear."""
    if choice.factor == 1:
        return at.substitute({choice.name: value})
    total = ZERO
    for monomial, factor in at.terms.items():
        term = Expr({monomial: factor})
        if choice.name not in term.symbols():
            total = total + term
            continue
        others = tuple(a for a in monomial if a != choice.name)
        if len(others) != len(monomial) - 1 or factor % choice.factor:
            return None
        if any(choice.name in Expr({(a,): 1}).symbols() for a in others):
            return None
        total = total + Expr({others: factor // choice.factor}) * value
    return total


# ---- what the proofs rest on


def check_form(kernel: Kernel) -> None:
    """Raises TfcError unless the expressions of a kernel are of the form that proofs are sound for.

    Loops start at 0 or above, divisors are not negative, numbers stay far from overflowing, and of
    the factors of a product none is negative.
    """
    ranges: Ranges = {name: (ZERO, as_expr(n) - 1) for name, n in kernel.grid}
    for name, extent in kernel.grid:
        _check_expression(as_expr(extent), {}, kernel, f"the extent of {name}")
    _check_block(kernel.body, ranges, kernel)


def _check_block(block: Block, ranges: Ranges, kernel: Kernel) -> None:
    for op in block:
        rows = {t.ROW: (ZERO, as_expr(LARGEST_TILE)), t.COLUMN: (ZERO, as_expr(LARGEST_TILE))}
        for name, dim in _expressions(op):
            _check_expression(as_expr(dim), {**ranges, **rows}, kernel, f"{op.name}: {name}")
        for value in op.results:
            if (
                isinstance(value.type, TileType)
                and value.tile.rows * value.tile.cols > LARGEST_TILE
            ):
                raise op.error(
                    f"a tile of {LARGEST_TILE} elements is the largest, not {value.type}"
                )
        if isinstance(op, t.For):
            if not is_nonnegative(as_expr(op.start), ranges):
                raise op.error(f"the loop starts at {op.start}, which may be negative")
            _check_block(op.do, {**ranges, op.index: _loop_range(op)}, kernel)


def _expressions(op: Op) -> Iterator[tuple[str, Dim]]:
    for name, field_ in op.attribute_fields.items():
        value = op.attributes.get(name, ())
        if field_.kind == "dim" and value != ():
            yield name, value
        elif field_.kind == "dims":
            yield from ((name, dim) for dim in value)


def _check_expression(e: Expr, ranges: Ranges, kernel: Kernel, what: str) -> None:
    for monomial, factor in e.terms.items():
        if abs(factor) > LARGEST_NUMBER:
            raise _unfit(kernel, what, e, f"the number {factor} is too large")
        for atom in monomial:
            if isinstance(atom, Call):
                _check_call(atom, ranges, kernel, what)
                if len(monomial) > 1 and not is_nonnegative(Expr({(atom,): 1}), ranges):
                    raise _unfit(kernel, what, e, f"the factor {atom} may be negative")


def _check_call(call: Call, ranges: Ranges, kernel: Kernel, what: str) -> None:
    for e in (call.lhs, call.rhs):
        _check_expression(e, ranges, kernel, what)
    if call.op in ("floordiv", "mod"):
        constant = call.rhs.constant
        fits = is_nonnegative(call.rhs, ranges) if constant is None else constant > 0
        if not fits:
            raise _unfit(kernel, what, call.rhs, "a divisor must be positive")


def _unfit(kernel: Kernel, what: str, e: Expr, why: str) -> TfcError:
    return TfcError(f"@{kernel.name}: {what}: {why} in {e}", where=str(kernel.location))
