"""partition: cuts functions into one function a device, with send and recv on the cut edges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from tfc.ir.builder import Builder
from tfc.ir.core import Block, Function, Module, Op, SymbolRef, Value
from tfc.ir.devices import Device
from tfc.ir.errors import TfcError
from tfc.ir.types import BF16, BOOL, F32, TensorType
from tfc.ir.weights import Dense
from tfc.ops.cast import Cast
from tfc.ops.constant import Constant
from tfc.ops.control import Return
from tfc.ops.partitions import PartitionedCall, Recv, Send
from tfc.passes.base import Pass, PassContext, register
from tfc.passes.graph.cut import Cut, cut, names_devices, without_devices
from tfc.passes.graph.device_groups import is_free, is_partitioned
from tfc.passes.graph.prune import prune_function


@register("partition")
@dataclass(frozen=True)
class Partition(Pass):
    """Cuts each function whose ops lie on several devices into one function a device.

    Edges between devices become a `send` right after what makes the tensor and a `recv` right
    before its first user, one for each tensor and device (arXiv 1603.04467, section 3.2.2); control
    edges become those of a bool, where no tensor comes that way anyhow. All keep the order of the
    text, so that no two functions wait for each other. Constants go wherever they are used, inputs
    to all parts; what nothing needs is pruned. The function itself becomes a `partitioned_call`.
    `compress=bf16` sends 32-bit floats as bf16, rounded to nearest even (section 5.5). An op with
    regions lies on one device.

    Before:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %a = exp(%x) on("/job:localhost/replica:0/task:0/device:cpu:1") : tensor<4xf32>
      %b = abs(%x) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<4xf32>
      %c = add(%a, %b) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<4xf32>
      %y = mul(%a, %c) on("/job:localhost/replica:0/task:0/device:cpu:0") : tensor<4xf32>
      return %y
    }
    ```
    After:
    ```mlir
    func @main(%x: tensor<4xf32>) -> (%y: tensor<4xf32>) {
      %y = partitioned_call(%x) {parts = [@"main/cpu:1", @"main/cpu:0"]} : tensor<4xf32>
      return %y
    }
    func @"main/cpu:1"(%x: tensor<4xf32>)
        {device = "/job:localhost/replica:0/task:0/device:cpu:1"} {
      %a = exp(%x) : tensor<4xf32>
      ^0: send(%a) {key = "a to cpu:0"}
      return after(^0)
    }
    func @"main/cpu:0"(%x: tensor<4xf32>) -> (%y: tensor<4xf32>)
        {device = "/job:localhost/replica:0/task:0/device:cpu:0"} {
      %b = abs(%x) : tensor<4xf32>
      %a = recv {key = "a to cpu:0"} : tensor<4xf32>
      %c = add(%a, %b) : tensor<4xf32>
      %y = mul(%a, %c) : tensor<4xf32>
      return %y
    }
    ```
    """

    compress: str = ""

    def run(self, module: Module, context: PassContext) -> bool:
        if self.compress not in ("", "bf16"):
            raise TfcError(f"cannot compress as {self.compress!r}", hint="bf16, or nothing")
        changed = False
        for function in list(module.functions.values()):
            if is_partitioned(function) or not names_devices(function):
                continue
            changed |= prune_function(function, context)  # a send would need what nothing else does
            found = cut(module, function)
            if not context.allow("partition"):
                break
            changed = True
            if len(found.devices) < 2:
                without_devices(function)
                continue
            _Partitioning(module, function, found, self.compress == "bf16").run(context)
        return changed


@dataclass
class _Part:
    """The function of one device while it is built: copies of values and ops, what ends it."""

    device: Device
    function: Function
    values: dict[Value, Value] = field(default_factory=dict[Value, Value])
    ops: dict[Op, Op] = field(default_factory=dict[Op, Op])
    targets: list[Op] = field(default_factory=list[Op])
    token: Value | None = None  # what control edges send

    @property
    def builder(self) -> Builder:
        return Builder(self.function.body)


class _Partitioning:
    """Builds the functions of all devices in one walk over the text."""

    def __init__(self, module: Module, function: Function, found: Cut, compress: bool) -> None:
        self.module, self.function, self.cut = module, function, found
        self.compress = compress
        self.keys: dict[str, int] = {}
        self.sent = 0
        self.parts = {d: self._part(d) for d in found.devices}

    def _part(self, device: Device) -> _Part:
        args = self.function.body.args
        body = Block([a.type for a in args], [a.name for a in args])
        name = f"{self.function.name}/{self.cut.names[device]}"
        if name in self.module.functions:
            raise TfcError(f"the module has a function @{name} already")
        function = Function(name, body, [], {"device": str(device)}, self.function.location)
        return _Part(device, function, dict(zip(args, body.args, strict=True)))

    def run(self, context: PassContext) -> None:
        for op, device in self.cut.home.items():
            self._op(op, self.parts[device])
        for op in self.function.body.terminator.after:
            if not is_free(op):
                part = self.parts[self.cut.home[op]]
                part.targets.append(part.ops[op])
        returned = {d: self._finish(part) for d, part in self.parts.items()}
        self._call(returned)
        context.report(f"@{self.function.name} partitions", len(self.parts))
        context.report(f"@{self.function.name} tensors sent", self.sent)

    def _op(self, op: Op, part: _Part) -> None:
        """Copies an op to its part, after the recvs that it needs, before the sends of it."""
        for value in self.cut.values_of[op]:
            if is_constant_of(value) and value not in part.values:
                self._copy_constant(cast(Op, value.producer), part)
        for arrival in self.cut.arrivals.get(op, ()):
            self._receive(arrival, part)
        copy = op.clone(part.values, part.ops)
        for inner in copy.walk():
            inner.device = None
        part.function.body.append(copy)
        for value, device in self.cut.leaving.get(op, ()):
            self._send(op, value, part, self.parts[device])

    def _copy_constant(self, op: Op, part: _Part) -> None:
        part.function.body.append(op.clone(part.values, part.ops))

    # ---- edges

    def _key(self, op: Op, value: Value | None, device: Device) -> str:
        """The name of a tensor on its way, which no other of this function has."""
        name = op.label if value is None and not op.results else ""
        name = name or (value or op.results[0]).name if op.results else name
        text = f"{name or op.name} to {self.cut.names[device]}"
        text = f"after {text}" if value is None else text
        number = self.keys[text] = self.keys.get(text, 0) + 1
        return text if number == 1 else f"{text} #{number}"

    def _send(self, op: Op, value: Value | None, part: _Part, to: _Part) -> None:
        b = part.builder
        b.location = op.location
        key = self._key(op, value, to.device)
        self.cut.keys[op, value, to.device] = key
        if value is None:
            part.token = part.token or b.value(Constant(*_token()))
            sent = Send(part.token, key)
            sent.add_after(part.ops[op])
        elif self._is_compressed(value):
            sent = Send(b.value(Cast(part.values[value], BF16)), key)
        else:
            sent = Send(part.values[value], key)
        part.targets.append(b.add(sent))
        self.sent += 1

    def _receive(self, arrival: tuple[Op, Value | None], part: _Part) -> None:
        op, value = arrival
        b = part.builder
        b.location = op.location
        key = self.cut.keys[op, value, part.device]
        if value is None:
            part.ops[op] = b.add(Recv(key, TensorType(BOOL, ())))
            return
        kind = value.tensor
        narrow = self._is_compressed(value)
        got = b.add(Recv(key, TensorType(BF16, kind.shape, kind.layout) if narrow else kind))
        found = b.value(Cast(got.result, F32)) if narrow else got.result
        found.name = value.name
        part.values[value] = found
        part.ops.setdefault(op, got)

    def _is_compressed(self, value: Value) -> bool:
        return self.compress and value.tensor.dtype == F32

    # ---- ends

    def _finish(self, part: _Part) -> list[Value]:
        """Ends a part; the values of the function that it returns."""
        values = [
            v
            for v in dict.fromkeys(self.function.body.terminator.inputs)
            if v.producer is not None and self.cut.home.get(v.producer) == part.device
        ]
        names = dict(
            zip(self.function.body.terminator.inputs, self.function.output_names, strict=True)
        )
        part.function.output_names = [names[v] for v in values]
        end = part.builder.add(Return([part.values[v] for v in values]))
        for op in dict.fromkeys(part.targets):
            end.add_after(op)
        return values

    def _call(self, returned: dict[Device, list[Value]]) -> None:
        """The function's own body: the call, and what is returned of constants and inputs."""
        functions = [part.function for part in self.parts.values()]
        old = self.function.body
        body = Block([a.type for a in old.args], [a.name for a in old.args])
        mapping = dict(zip(old.args, body.args, strict=True))
        b = Builder(body)
        flat = [v for values in returned.values() for v in values]
        parts = tuple(SymbolRef(f.name) for f in functions)
        call = b.add(PartitionedCall(list(body.args), parts, [v.type for v in flat]))
        for value, result in zip(flat, call.results, strict=True):
            result.name = value.name
            mapping[value] = result
        for value in old.terminator.inputs:
            if value not in mapping:
                assert value.producer is not None and is_free(value.producer)
                body.append(value.producer.clone(mapping))
        end = b.add(Return([mapping[v] for v in old.terminator.inputs]))
        if not call.results:
            call.label = "parts"
            end.add_after(call)
        self.function.body = body
        body.parent = self.function
        _insert_after(self.module, self.function, functions)


def is_constant_of(value: Value) -> bool:
    """Whether a value is of a constant that each part has for itself."""
    return value.producer is not None and is_free(value.producer)


def _token() -> tuple[Any, TensorType]:
    dense = Dense(np.array(True))
    return dense, dense.type


def _insert_after(module: Module, function: Function, added: list[Function]) -> None:
    """Puts functions behind another one in the order of the module."""
    kept = list(module.functions.values())
    module.functions.clear()
    for f in kept:
        module.functions[f.name] = f
        if f is function:
            module.functions.update((new.name, new) for new in added)
