"""Run-time errors of kernels: the first one is written to the call's error, and the kernel goes on.

An index out of range becomes 0, so that no access leaves its buffer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfc.backends.llvm import memory, places, scratch, tiles, walks
from tfc.backends.llvm.registers import Register
from tfc.ir.expr import Dim
from tfc.ir.types import I64
from tfc.tile import ops as t

if TYPE_CHECKING:
    from tfc.backends.llvm.lowering import Lowering
    from tfc.backends.llvm.places import Coordinate

ERROR_INDEX = 16
"""TFC_ERROR_INDEX of tfc_abi.h."""

DEFINITION = f"""\
%tfc.error = type {{ i32, i32, i64, i64, i64, ptr }}
define internal void @tfc.index_error(ptr %error, i64 %index, i64 %size, ptr %node)
    cold noinline nounwind {{
  %swap = cmpxchg ptr %error, i32 0, i32 {ERROR_INDEX} seq_cst seq_cst
  %first = extractvalue {{ i32, i1 }} %swap, 1
  br i1 %first, label %report, label %done
report:
  %where = getelementptr %tfc.error, ptr %error, i64 0, i32 1
  store i32 -1, ptr %where
  %axis = getelementptr %tfc.error, ptr %error, i64 0, i32 2
  store i64 -1, ptr %axis
  %actual = getelementptr %tfc.error, ptr %error, i64 0, i32 3
  store i64 %index, ptr %actual
  %expected = getelementptr %tfc.error, ptr %error, i64 0, i32 4
  store i64 %size, ptr %expected
  %name = getelementptr %tfc.error, ptr %error, i64 0, i32 5
  store ptr %node, ptr %name
  br label %done
done:
  ret void
}}"""


def wrap_index(lo: Lowering, op: t.WrapIndex) -> None:
    """Computes and checks a tile of indices now, and keeps it."""
    shape = op.x.tile.shape
    lane, _ = walks.natural_lane(lo, walks.survey(lo, op.x), shape)
    found = walks.prepare(lo, op.x, lane, whole=False)
    layout = lo.layout_of(op.output)
    if lane == layout and len(lo.coordinates(op.output, layout)) <= tiles.KEPT:
        registers: list[Register] = []
        for at in lo.coordinates(op.output, layout):
            registers.append(_checked(lo, op, lo.vector(op.x, at, layout), at, layout))
        lo.pin(op.output, layout, registers)
        return
    place = scratch.place_for(lo, op.output)
    p = walks.plan(lo, found, shape, lane, 8.0)
    walks.free_lines(lo, found, p, lane)

    def visit(rows: list[Dim], cols: list[Dim]) -> None:
        for at in ((r, c) for r in rows for c in cols):
            r = _checked(lo, op, lo.vector(op.x, at, lane), at, lane)
            memory.write(lo, place, r, at, lane)

    walks.walk(lo, shape, lane, p, visit)
    lo.ready.add(op.output)


def _checked(
    lo: Lowering, op: t.WrapIndex, r: Register, at: Coordinate, lane: int | None
) -> Register:
    """Indices counted from the start, 0 where they are out of range or out of bounds."""
    vector = lane is not None
    writer, kind = lo.writer, lo.vectors.type(I64, vector)
    size = lo.indices.value(lo.indices.settle(op.size))
    sizes = lo.vectors.splat_text(size, "i64") if vector else size
    zero = lo.vectors.constant(0, I64, vector)
    negative = writer.pure(f"icmp slt {kind} {r.text}, {zero}")
    moved = writer.pure(f"add {kind} {r.text}, {sizes}")
    index = lo.vectors.select(negative, kind, moved, r.text, vector)
    good = writer.pure(f"icmp ult {kind} {index}, {sizes}")
    counted = places.inside(lo, lo.bounds.of(op), op.x.tile.shape, at, lane)
    truth = lo.vectors.type_text("i1", vector)
    wrong = writer.pure(f"xor {truth} {good}, {lo.vectors.fill('true', 'i1', vector)}")
    if counted is not None:
        wrong = writer.pure(f"and {truth} {wrong}, {counted}")
        good = writer.pure(f"and {truth} {good}, {counted}")
    _report(lo, op, r, wrong, size, vector)
    return Register(lo.vectors.select(good, kind, index, zero, vector), I64, vector)


def _report(
    lo: Lowering, op: t.WrapIndex, r: Register, wrong: str, size: str, vector: bool
) -> None:
    """Calls the error function with the first index that is wrong."""
    node = lo.node_name(op)

    def call() -> None:
        index = r.text
        if vector:
            bits = f"i{lo.lanes}"
            mask = lo.writer.pure(f"bitcast <{lo.lanes} x i1> {wrong} to {bits}")
            lane = lo.writer.call(bits, f"llvm.cttz.{bits}", f"{bits} {mask}", "i1 true")
            if lo.lanes != 64:
                widen = "zext" if lo.lanes < 64 else "trunc"
                lane = lo.writer.pure(f"{widen} {bits} {lane} to i64")
            kind = lo.vectors.type(I64, True)
            index = lo.writer.pure(f"extractelement {kind} {r.text}, i64 {lane}")
        arguments = f"ptr %error, i64 {index}, i64 {size}, ptr {node}"
        lo.writer.do(f"call void @tfc.index_error({arguments})")

    lo.writer.branch(lo.vectors.any(wrong) if vector else wrong, call)


def node_text(op: t.WrapIndex, lo: Lowering) -> str:
    """The user's own names of the nodes that an op came from."""
    location = op.location if op.location.nodes else lo.kernel.location
    return op.node or ", ".join(location.nodes)
