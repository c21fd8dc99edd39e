"""lower: turns each group into a kernel and a launch of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from tfc.ir.core import Block, Kernel, Module, Op, SymbolRef
from tfc.ir.effects import FAN, blocks_of
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ops.control import Fusion, Launch
from tfc.ops.loops import NoOp
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.lower.schedule import hero, reductions
from tfc.tile.nests.elementwise import elementwise
from tfc.tile.nests.reduction import reduction
from tfc.tile.nests.schedule import (
    AttentionSchedule,
    ColumnSchedule,
    ContractionSchedule,
    ConvolutionSchedule,
    MapSchedule,
    Misfit,
    RowSchedule,
    Schedule,
    WindowSchedule,
)
from tfc.tile.nests.schedule_gpu import (
    GpuAttention,
    GpuColumns,
    GpuContraction,
    GpuMap,
    GpuRows,
    GpuWindows,
    ImplicitProduct,
)
from tfc.tile.nests.schedule_gpu import (
    Launch as GpuLaunch,
)

SCHEDULES: dict[str, tuple[type[Schedule], ...]] = {
    "map": (MapSchedule, GpuMap),
    "concat": (MapSchedule, GpuMap),
    "scan": (MapSchedule, GpuMap),
    "reduction": (RowSchedule, ColumnSchedule, GpuRows, GpuColumns),
    "contraction": (ContractionSchedule, GpuContraction),
    "convolution": (ConvolutionSchedule, WindowSchedule, ImplicitProduct, GpuWindows),
    "pool": (WindowSchedule, GpuWindows),
    "attention": (AttentionSchedule, GpuAttention),
}


@register("lower", promises="tile")
@dataclass(frozen=True)
class Lower(Pass):
    """Builds the kernel of each `fusion` by its schedule; equal kernels are built once.

    What stands beside them stays, in regions too: control flow, reads and writes of variables,
    views, constants. A `no_op` goes: its control edges become edges of what it stood between.

    Before:
    ```mlir
    func @main(%x: tensor<64xf32>) -> (%y: tensor<64xf32>) {
      %y = fusion(%x) {kind = "map", schedule = "rows=1,cols=64"} : tensor<64xf32>
          do(%u: tensor<64xf32>) {
        %t = exp(%u) : tensor<64xf32>
        yield %t
      }
      return %y
    }
    ```
    After:
    ```mlir
    kernel @map_0(%x0: buffer<64xf32>, %y0: buffer<64xf32, out>) grid(p0 = 1) {
      %0 = load(%x0) {at = (c+64*p0)} : tile<1x64xf32>
      %1 = map(%0) {function = "exp"} : tile<1x64xf32>
      store(%y0, %1) {at = (c+64*p0)}
    }
    func @main(%x: tensor<64xf32>) -> (%y: tensor<64xf32>) {
      %y = launch(%x) {kernel = @map_0} : tensor<64xf32>
      return %y
    }
    ```
    """

    def run(self, module: Module, context: PassContext) -> bool:
        lowering = _Lowering(module)
        changed = False
        for function in module.functions.values():
            for block in list(blocks_of(function.body)):
                for op in block:
                    changed |= _lower(op, lowering, context)
        return changed


def _lower(op: Op, lowering: _Lowering, context: PassContext) -> bool:
    if isinstance(op, Fusion):
        if context.allow("lower"):
            lowering.replace(op)
            return True
    elif isinstance(op, NoOp):
        if context.allow("lower-no-op"):
            dissolve(op)
            return True
    elif op.level == "graph":
        raise UnsupportedError(f"{op.name} cannot be compiled yet", where=str(op.location))
    return False


def dissolve(op: NoOp) -> None:
    """Lets what runs after a `no_op` run after what that runs after.

    Where these are many, they are put in a row, in which they stand in the text anyway: then the
    last of them is enough.
    """
    before = _in_order(op)
    if len(before) * len(op.control_users) > FAN * (len(before) + len(op.control_users)):
        for first, second in pairwise(before):
            second.add_after(first)
        for earlier in before[:-1]:
            op.remove_after(earlier)
    op.erase()


def _in_order(op: NoOp) -> list[Op]:
    """What an op runs after, in the order of the text; outer blocks come first."""
    wanted = set(op.after)
    found: list[Op] = []
    block: Block | None = op.parent
    while block is not None:
        found = [*(o for o in block if o in wanted), *found]
        owner = block.parent
        block = owner.parent if isinstance(owner, Op) else None
    return found


@dataclass
class _Lowering:
    module: Module
    known: dict[str, str] = field(default_factory=dict[str, str])  # text of a kernel -> its name
    count: dict[str, int] = field(default_factory=dict[str, int])

    def replace(self, op: Fusion) -> None:
        from tfc.text.print import print_kernel

        kernel = build(op, "kernel")
        text = print_kernel(kernel)
        name = self.known.get(text)
        if name is None:
            name = self._name(op.kind)
            self.known[text] = name
            kernel.name = name
            kernel.location = op.location
            self.module.kernels[name] = kernel
        launch = Launch(op.inputs, kernel=SymbolRef(name), types=[v.tensor for v in op.results])
        assert op.parent is not None
        op.parent.insert(launch, op)
        launch.take_place(op)

    def _name(self, kind: str) -> str:
        while True:
            number = self.count.get(kind, 0)
            self.count[kind] = number + 1
            if f"{kind}_{number}" not in self.module.kernels:
                return f"{kind}_{number}"


def build(op: Fusion, name: str) -> Kernel:
    """The kernel of a group with its schedule; on a GPU it says how it wants to be launched."""
    schedule = _schedule(op)
    try:
        kernel = _built(op, name, schedule)
    except Misfit as error:
        raise op.error(f"the schedule {op.schedule!r} does not fit: {error}") from error
    if isinstance(schedule, GpuLaunch):
        kernel.attributes |= {"warps": schedule.warps, "stages": schedule.stages}
    return kernel


def _built(op: Fusion, name: str, schedule: Schedule) -> Kernel:
    if op.kind == "map":
        assert isinstance(schedule, MapSchedule)
        return elementwise(name, op.do, schedule)
    if op.kind == "reduction":
        assert isinstance(schedule, RowSchedule | ColumnSchedule)
        return reduction(name, op.do, reductions(op), schedule)
    return hero(op).lower(name, op.do, schedule)  # type: ignore[attr-defined]


def _schedule(op: Fusion) -> Schedule:
    if not op.schedule:
        raise op.error("the group has no schedule", "run the pass `schedule` before `lower`")
    problem: TfcError | None = None
    names = {part.partition("=")[0] for part in op.schedule.split(",")}
    for cls in SCHEDULES[op.kind]:
        try:
            schedule = cls.parse(op.schedule)
        except TfcError as error:
            problem = error
            continue
        if names == {part.partition("=")[0] for part in str(schedule).split(",")}:
            return schedule
    raise op.error(f"the schedule {op.schedule!r} does not fit a {op.kind}") from problem
