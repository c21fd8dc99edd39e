"""layout: how tensors lie in memory: channels in blocks for convolutions, packed weights."""

from __future__ import annotations

from dataclasses import dataclass

from tfc.ir.builder import Builder
from tfc.ir.core import Effect, Function, Module, Op, Value
from tfc.ir.effects import outer_values
from tfc.ir.expr import Dim, as_expr, normal, product
from tfc.ir.types import F32, Layout, TensorType
from tfc.ops.base import Elementwise
from tfc.ops.constant import Constant
from tfc.ops.convolution import Conv, Pool
from tfc.ops.indexing import Indexing
from tfc.ops.linalg import MatMul
from tfc.ops.reduction import ArgReduction, PrimitiveReduction
from tfc.ops.shape import Concat
from tfc.ops.view import Reshape
from tfc.passes.base import Pass, PassContext, register

BLOCK = 16  # fits every vector width of every target, so that all share the weights
CHANNELS = Layout("aBcd16b")
WEIGHT = Layout("ABcd16b16a")  # of a convolution over blocked channels
WEIGHT_OF_FEW = Layout("Acdb16a")  # over a plain operand
DEPTHWISE = Layout("Abcd16a")
FEW_CHANNELS = 8  # up to so many, the operand is read as it is


@register("layout")
@dataclass(frozen=True)
class LayoutPass(Pass):
    """Gives tensors layouts; their meaning stays that of the plain type.

    Convolutions over two axes of f32 write channels in blocks of 16, elementwise ops and pools keep
    the layout of what they read, everything else reads any layout and writes plain. Weights that
    are constants are packed when the bundle is written: `constant` with a layout. Grouped 1x1
    convolutions whose groups are no whole blocks become matrix products. If most of the work is in
    convolutions that do not fit blocks, all stays plain. In regions tensors lie plain too; only
    weights of matrix products are packed there.

    Before:
    ```mlir
    func @main(%x: tensor<Sx64xf32>) -> (%y: tensor<Sx2xf32>) {
      %w = constant {value = dense<1.0>} : tensor<64x2xf32>
      %y = matmul(%x, %w) : tensor<Sx2xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<Sx64xf32>) -> (%y: tensor<Sx2xf32>) {
      %w = constant {value = dense<1.0>} : tensor<64x2xf32, Ba16b>
      %y = matmul(%x, %w) : tensor<Sx2xf32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        return any([_Layouts(f, context).run() for f in module.functions.values()])


class _Layouts:
    def __init__(self, function: Function, context: PassContext) -> None:
        self.function = function
        self.context = context
        self.changed = False

    def run(self) -> bool:
        convolutions = [op for op in self.function.body if isinstance(op, Conv)]
        for op in convolutions:
            if not fits_blocks(op) and is_pointwise(op) and self.context.allow("conv-to-matmul"):
                _as_product(op)
                self.changed = True
        convolutions = [op for op in self.function.body if isinstance(op, Conv)]
        work = [_work(op) for op in convolutions]
        fitting = sum(w for op, w in zip(convolutions, work, strict=True) if fits_blocks(op))
        products = sum(
            _product_work(op)
            for op in self.function.body
            if isinstance(op, MatMul) and _is_image(op)
        )
        if convolutions and 2 * fitting >= sum(work) + products:
            self._block()
            self._return_plain()
            self._read_plain()
        elif convolutions:
            self._remark_plain(convolutions)
        for op in self.function.body.walk():
            if isinstance(op, MatMul):
                self._pack_product(op)
        return self.changed

    def _remark_plain(self, convolutions: list[Conv]) -> None:
        for op in convolutions:
            why = misfit(op) or "most of the work is in others that fit no blocks of channels"
            self.context.remark("stays-plain", op, why)

    def _block(self) -> None:
        for op in self.function.body:
            if isinstance(op, Conv):
                self._block_convolution(op)
            elif isinstance(op, Elementwise | Pool) or _joins_blocks(op):
                self._keep_layout(op)

    def _return_plain(self) -> None:
        """What leaves the function, is stored, or is read by a region, lies plain."""
        for op in self.function.body:
            if not op.regions and not op.terminator and op.effects is Effect.NONE:
                continue
            plain: dict[Value, Value] = {}
            for value in outer_values(op):
                if value.tensor.layout is not None:
                    plain[value] = Builder.before_op(op).value(Reshape(value, value.tensor.shape))
                    plain[value].name = value.name
            for reader in op.walk() if plain else ():
                for index, value in enumerate(reader.operands):
                    if value in plain:
                        reader.set_operand(index, plain[value])

    def _read_plain(self) -> None:
        """What is reduced along the channels, or read at computed places, lies plain."""
        plain: dict[Value, Value] = {}
        for op in self.function.body:
            if not _needs_plain(op):
                continue
            x = op.inputs[0]
            if x not in plain:
                plain[x] = Builder.before_op(op).value(Reshape(x, x.tensor.shape))
            op.set_operand(0, plain[x])

    def _block_convolution(self, op: Conv) -> None:
        if why := misfit(op):
            self.context.remark("stays-plain", op, why)
            return
        if op.layout is not None or not self.context.allow("block-channels"):
            return
        self.changed = True
        op.set_attribute("layout", CHANNELS)
        op.result.type = TensorType(op.result.tensor.dtype, op.result.tensor.shape, CHANNELS)
        if is_depthwise(op):
            layout = DEPTHWISE
        elif op.x.tensor.layout is None:
            layout = WEIGHT_OF_FEW
        else:
            layout = WEIGHT
        self._pack(op, 1, layout)

    def _keep_layout(self, op: Op) -> None:
        result = op.results[0]
        full = [v.tensor for v in op.inputs if v.tensor.shape == result.tensor.shape]
        layouts = (
            {t.layout for t in full}
            if isinstance(op, Elementwise)
            else {op.inputs[0].tensor.layout}
        )
        if layouts == {CHANNELS} and result.tensor.layout is None:
            self.changed = True
            result.type = TensorType(result.tensor.dtype, result.tensor.shape, CHANNELS)
            if isinstance(op, Concat):
                op.set_attribute("layout", CHANNELS)

    def _pack_product(self, op: MatMul) -> None:
        """Packs a constant right operand in panels of 16 columns."""
        rank = op.b.tensor.rank
        if rank not in (2, 3) or op.b.tensor.shape[-2] == 0 or op.b.tensor.shape[-1] == 0:
            return
        if _constant(op.b) is None:
            return
        if op.b.tensor.layout is None and self.context.allow("pack-weights"):
            self._pack(op, 1, Layout("Ba16b" if rank == 2 else "aCb16c"))

    def _pack(self, op: Op, index: int, layout: Layout) -> None:
        value = op.operands[index]
        assert value is not None
        source = _constant(value)
        assert source is not None
        kind = TensorType(value.tensor.dtype, value.tensor.shape, layout)
        made = Builder.before_op(op).add(Constant(source.value, kind))
        made.result.name = value.name
        made.location = source.location
        op.set_operand(index, made.result)
        if not value.uses:
            source.erase()
        self.changed = True


def fits_blocks(op: Conv) -> bool:
    """Whether a direct convolution into channels in blocks of 16 computes it well."""
    return not misfit(op)


def misfit(op: Conv) -> str:
    """Why a convolution does not fit blocks of channels, in words; empty if it does."""
    x, weight = op.x.tensor, op.weight.tensor
    outputs, each, channels = weight.shape[0], weight.shape[1], x.shape[1]
    if x.rank != 4 or x.dtype != F32:
        return f"it is over {x.rank - 2} axes of {x.dtype}; blocks are for two axes of f32"
    if _constant(op.weight) is None:
        return "its weight is no constant that could be packed"
    if op.bias is not None:
        return "its bias is no op of its own"
    if not (isinstance(outputs, int) and isinstance(each, int) and isinstance(channels, int)):
        return "its channels are not constant"
    if op.groups == 1:
        return "" if outputs >= 8 and each > 0 else "its channels fill too little of a block"
    if is_depthwise(op) or (each % BLOCK == 0 and outputs // op.groups % BLOCK == 0):
        return ""
    return f"its groups of channels are no whole blocks of {BLOCK}"


def is_depthwise(op: Conv) -> bool:
    weight = op.weight.tensor
    return op.groups > 1 and weight.shape[1] == 1 and weight.shape[0] == op.groups


def is_pointwise(op: Conv) -> bool:
    """Whether it is a product of matrices at every pixel: 1x1, without stride and padding."""
    return (
        op.x.tensor.rank >= 3
        and op.bias is None
        and all(
            (w.taps, w.stride, w.low, w.high, w.overhang) == (1, 1, 0, 0, 0) for w in op.windows
        )
    )


def _as_product(op: Conv) -> None:
    """weight [g, O/g, C/g] times x [N, g, C/g, pixels]."""
    b = Builder.before_op(op)
    x, weight, groups = op.x.tensor, op.weight.tensor, op.groups
    outputs, each = weight.shape[0], weight.shape[1]
    pixels = product(list(x.shape[2:]))
    rows: Dim = normal(as_expr(outputs) // groups)
    lhs = b.value(Reshape(op.weight, (groups, rows, each)))
    rhs = b.value(Reshape(op.x, (x.shape[0], groups, each, pixels)))
    made: Value = b.value(MatMul(lhs, rhs))
    op.replace([b.value(Reshape(made, op.result.tensor.shape))])


def _is_image(op: MatMul) -> bool:
    """Whether a product came from a 1x1 convolution."""
    producer = op.b.producer
    return isinstance(producer, Reshape) and producer.x.tensor.rank >= 3 and op.b.tensor.rank == 4


def _needs_plain(op: Op) -> bool:
    """Whether an op cannot read the blocks of its first operand: they are padded."""
    layout = op.inputs[0].tensor.layout if op.inputs else None
    if layout is None:
        return False
    if isinstance(op, PrimitiveReduction | ArgReduction):
        return not set(layout.blocks).isdisjoint(op.folding().axes)
    return isinstance(op, Indexing)


def _joins_blocks(op: Op) -> bool:
    if not isinstance(op, Concat) or op.axis != 1:
        return False
    return all(
        p.tensor.layout == CHANNELS
        and isinstance(p.tensor.shape[1], int)
        and p.tensor.shape[1] % BLOCK == 0
        for p in op.parts
    )


def _constant(value: Value) -> Constant | None:
    return value.producer if isinstance(value.producer, Constant) else None


def _work(op: Conv) -> int:
    total = as_expr(product(list(op.result.tensor.shape))) * product(
        list(op.weight.tensor.shape[1:])
    )
    return total.evaluate(dict.fromkeys(total.symbols(), 64))


def _product_work(op: MatMul) -> int:
    total = as_expr(product(list(op.result.tensor.shape))) * op.a.tensor.shape[-1]
    return total.evaluate(dict.fromkeys(total.symbols(), 64))
