"""The data model of every level: values, ops, blocks, functions, kernels, modules.

Always holds: each value knows its uses and each op its control users, so that a rewrite costs what
it touches; the ops of a block form a doubly linked list; an op's attributes hold only what differs
from the default. Everything that changes operands goes through `set_operand`, `replace_uses` or
`erase`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast, dataclass_transform

from tfc.ir.errors import SourcePosition, TfcError
from tfc.ir.expr import Dim
from tfc.ir.fields import (
    Attribute,
    AttributeField,
    Field,
    OperandField,
    RegionField,
    ResultField,
    TypeField,
    attribute,
    operand,
    optional,
    region,
    result,
    result_type,
    variadic,
)
from tfc.ir.fields import SymbolRef as SymbolRef
from tfc.ir.types import BufferType, TensorType, TileType, Type

if TYPE_CHECKING:
    from tfc.ir.weights import Weights


class Effect(Flag):
    """What running an op does besides computing its results."""

    NONE = 0
    READ = auto()  # reads a resource (variable, buffer)
    WRITE = auto()  # writes one
    RANDOM = auto()  # gives other results each time
    BLOCKING = auto()  # may wait


@dataclass(frozen=True)
class Location:
    """Where an op came from: nodes of the user's model; `position` is its place in a text."""

    nodes: tuple[str, ...] = ()
    position: SourcePosition | None = None

    def fused(self, *others: Location) -> Location:
        nodes = dict.fromkeys(n for loc in (self, *others) for n in loc.nodes)
        return Location(tuple(nodes), self.position)

    def __str__(self) -> str:
        return ", ".join(self.nodes) or str(self.position or "")


UNKNOWN = Location()


@dataclass(frozen=True)
class Colocate:
    """A device constraint `on(colocate(%v))`: where the op that makes a value runs."""

    op: Op

    def __hash__(self) -> int:
        return id(self.op)


class Value:
    """A result of an op or an argument of a block; `uses` are pairs of op and operand number."""

    __slots__ = ("index", "name", "owner", "type", "uses")

    def __init__(self, type: Type, owner: Op | Block, index: int, name: str = "") -> None:
        self.type = type
        self.owner = owner
        self.index = index
        self.name = name
        self.uses: dict[tuple[Op, int], None] = {}

    @property
    def producer(self) -> Op | None:
        """The op that makes this value; None for an argument of a block."""
        return self.owner if isinstance(self.owner, Op) else None

    @property
    def users(self) -> list[Op]:
        """The ops that use this value, each once, in order of first use."""
        return list(dict.fromkeys(op for op, _ in self.uses))

    @property
    def tensor(self) -> TensorType:
        """Its type, which must be a tensor's."""
        if not isinstance(self.type, TensorType):
            raise self._is_no("tensor")
        return self.type

    @property
    def tile(self) -> TileType:
        """Its type, which must be a tile's."""
        if not isinstance(self.type, TileType):
            raise self._is_no("tile")
        return self.type

    @property
    def buffer(self) -> BufferType:
        """Its type, which must be a buffer's."""
        if not isinstance(self.type, BufferType):
            raise self._is_no("buffer")
        return self.type

    def _is_no(self, kind: str) -> TfcError:
        name = f"%{self.name}" if self.name else "the value"
        return TfcError(f"{name} is a {self.type}, where a {kind} is needed")

    def replace_uses(self, new: Value) -> None:
        """Makes every user use `new` instead."""
        for op, index in list(self.uses):
            op.set_operand(index, new)

    def __repr__(self) -> str:
        return f"%{self.name or id(self)}: {self.type}"


OPS: dict[str, type[Op]] = {}
"""The op registry, the one mutable state of the package: name -> class."""


@dataclass_transform(
    field_specifiers=(operand, optional, variadic, attribute, region, result, result_type)
)
class Op:
    """An operation. A subclass declares fields (operands, attributes, ...) and registers itself.

    class MatMul(Op, name="matmul"):
        a: Value = operand()
        b: Value = operand()
        output: Value = result()

        def infer(self) -> list[Type]: ...
    """

    name: ClassVar[str] = ""
    level: ClassVar[str] = "graph"  # "graph", "tile" or "any"
    effects: ClassVar[Effect] = Effect.NONE
    terminator: ClassVar[bool] = False
    isolated: ClassVar[bool] = False  # its regions use no values from around it
    fields: ClassVar[tuple[Field, ...]] = ()
    operand_fields: ClassVar[tuple[OperandField, ...]] = ()
    attribute_fields: ClassVar[dict[str, AttributeField]] = {}
    region_fields: ClassVar[tuple[RegionField, ...]] = ()
    result_fields: ClassVar[tuple[ResultField, ...]] = ()
    explicit_types: ClassVar[bool] = False
    own_symbols: ClassVar[tuple[str, ...]] = ()
    """Symbols that its attributes may use besides those in scope, such as the axes of a tile."""

    def __init_subclass__(cls, name: str = "") -> None:
        if not name:
            return
        own = [f for k in reversed(cls.__mro__) for f in vars(k).values() if isinstance(f, Field)]
        cls.name = name
        cls.fields = tuple(own)
        cls.operand_fields = tuple(f for f in own if isinstance(f, OperandField))
        cls.attribute_fields = {f.name: f for f in own if isinstance(f, AttributeField)}
        cls.region_fields = tuple(f for f in own if isinstance(f, RegionField))
        cls.result_fields = tuple(f for f in own if isinstance(f, ResultField))
        cls.explicit_types = any(isinstance(f, TypeField) for f in own)
        for number, f in enumerate(cls.operand_fields):
            f.position = number
            assert not f.variadic or f is cls.operand_fields[-1], (
                "only the last operand may be variadic"
            )
        for number, f in enumerate(cls.result_fields):
            f.position = number
        for number, f in enumerate(cls.region_fields):
            f.position = number
        assert name not in OPS or OPS[name].__qualname__ == cls.__qualname__, f"op {name} exists"
        OPS[name] = cls

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Binds arguments to fields in order, then infers the types of the results."""
        values = self._bind(args, kwargs)
        operands: list[Value | None] = []
        for f in self.operand_fields:
            if f.variadic:
                operands.extend(values.get(f.name) or ())
            else:
                operands.append(values.get(f.name))
        attributes = {n: values[n] for n in self.attribute_fields if n in values}
        regions: list[Block] = [values.get(f.name) or Block() for f in self.region_fields]
        types: list[Type] | None = None
        if self.explicit_types:
            given = values[next(f.name for f in self.fields if isinstance(f, TypeField))]
            types = list(given) if isinstance(given, list | tuple) else [given]
        self._setup(operands, attributes, regions)
        try:
            self._make_results(self.infer() if types is None else types)
        except TfcError:
            self.set_operands(())  # an op that is not made uses nothing
            raise

    @classmethod
    def _bind(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        named = [f for f in cls.fields if not isinstance(f, ResultField)]
        assert len(args) <= len(named), f"{cls.__name__} takes {len(named)} fields"
        values = {f.name: a for f, a in zip(named, args, strict=False)}
        for keyword, value in kwargs.items():
            key = keyword.rstrip("_")
            assert any(f.name == key for f in named), f"{cls.__name__} has no field {key}"
            values[key] = value
        for f in named:
            if f.required and values.get(f.name) is None:
                raise TypeError(f"{cls.__name__} needs {f.name}")
        return values

    @classmethod
    def build(
        cls,
        operands: list[Value | None],
        attributes: dict[str, Attribute],
        types: list[Type],
        regions: list[Block] | None = None,
        location: Location = UNKNOWN,
    ) -> Op:
        """Makes an op from its parts without inference: for parser and cloning."""
        op = cls.__new__(cls)
        op._setup(operands, attributes, regions or [])
        op._make_results(types)
        op.location = location
        return op

    def _setup(
        self, operands: list[Value | None], attributes: dict[str, Attribute], regions: list[Block]
    ) -> None:
        missing = sum(1 for f in self.operand_fields if not f.variadic) - len(operands)
        self.operands: list[Value | None] = operands + [None] * missing
        self.attributes: dict[str, Attribute] = {}
        self.regions: list[Block] = regions
        self.results: list[Value] = []
        self.after: list[Op] = []
        self.control_users: dict[Op, None] = {}
        self._device: str | Colocate | None = None
        self.colocated: dict[Op, None] = {}  # the ops that run where this one does
        self.label: str = ""
        self.location: Location = UNKNOWN
        self.parent: Block | None = None
        self.previous: Op | None = None
        self.next: Op | None = None
        for name, value in attributes.items():
            self.set_attribute(name, value)
        for index, value in enumerate(self.operands):
            if value is not None:
                value.uses[self, index] = None
        for block in regions:
            block.parent = self

    def _make_results(self, types: list[Type]) -> None:
        self.results = [Value(t, self, i) for i, t in enumerate(types)]

    # ---- what a subclass says

    def infer(self) -> list[Type]:
        """The types of the results, from operands and attributes.

        Raises TfcError on a broken constraint.
        """
        raise NotImplementedError(f"{self.name} does not infer types")

    def verify(self) -> None:
        """Checks what `infer` does not; raises TfcError through `require`."""

    def verify_in(self, module: Module) -> None:
        """Checks what it says of other parts of the module: variables, resources."""

    def resources(self) -> tuple[str, ...]:
        """The names of the variables and resources of the module that it reads or writes."""
        if self.effects is Effect.NONE:
            return ()
        return tuple(v.name for v in self.attributes.values() if isinstance(v, SymbolRef))

    def binds(self) -> list[str]:
        """Symbols that it makes: the variable of a loop for its regions, a size found in data."""
        return []

    def require(self, condition: bool, constraint: str, message: str, hint: str = "") -> None:
        """Raises a TfcError that cites a numbered constraint of the op's docstring ("C1")."""
        if not condition:
            raise self.error(f"{constraint}: {message}", hint)

    def error(self, message: str, hint: str = "") -> TfcError:
        where = str(self.location) if self.location.nodes else ""
        text = f"{self.name}: {message}"
        if self.location.position and self.location.nodes:
            text = f"{text} (node {where})"
        return TfcError(text, position=self.location.position, where=where, hint=hint)

    # ---- reading

    @property
    def device(self) -> str | Colocate | None:
        """Where it runs, or a constraint on that; None: anywhere."""
        return self._device

    @device.setter
    def device(self, device: str | Colocate | None) -> None:
        if isinstance(self._device, Colocate):
            self._device.op.colocated.pop(self, None)
        self._device = device
        if isinstance(device, Colocate):
            device.op.colocated[self] = None

    @property
    def result(self) -> Value:
        """The single result."""
        assert len(self.results) == 1, f"{self.name} has {len(self.results)} results"
        return self.results[0]

    @property
    def inputs(self) -> list[Value]:
        """The operands that are present."""
        return [v for v in self.operands if v is not None]

    def walk(self) -> Iterator[Op]:
        """This op and the ops of its regions, in order."""
        yield self
        for block in self.regions:
            yield from block.walk()

    # ---- changing

    def set_operand(self, index: int, value: Value | None) -> None:
        old = self.operands[index]
        if old is not None:
            del old.uses[self, index]
        self.operands[index] = value
        if value is not None:
            value.uses[self, index] = None

    def set_operands(self, values: Iterable[Value | None]) -> None:
        """Replaces all operands; their number may change."""
        for index, old in enumerate(self.operands):
            if old is not None:
                del old.uses[self, index]
        self.operands = list(values)
        for index, value in enumerate(self.operands):
            if value is not None:
                value.uses[self, index] = None

    def set_attribute(self, name: str, value: Attribute) -> None:
        """Sets an attribute; a default is dropped, so that equal ops look equal."""
        f = self.attribute_fields.get(name)
        if f is not None and not f.required and f.is_default(value):
            self.attributes.pop(name, None)
        else:
            self.attributes[name] = value

    def add_after(self, op: Op) -> None:
        """Adds a control dependency: this op runs after `op`."""
        if self not in op.control_users:
            self.after.append(op)
            op.control_users[self] = None

    def remove_after(self, op: Op) -> None:
        self.after.remove(op)
        del op.control_users[self]

    def replace(self, values: list[Value]) -> None:
        """Replaces the results by `values`, control edges too, and erases this op."""
        for old, new in zip(self.results, values, strict=True):
            if not new.name:
                new.name = old.name
            old.replace_uses(new)
        makers = [v.producer for v in values if v.producer is not None]
        for user in list(self.control_users):
            user.remove_after(self)
            for op in (*makers, *self.after):
                user.add_after(op)
        for op in [o for o in self.colocated if makers and o is not makers[0]]:
            op.device = Colocate(makers[0])
        self.erase()

    def take_place(self, old: Op) -> None:
        """Stands in for `old`, which is erased: its results, location, device and control edges."""
        self.location, self.label = old.location, old.label
        self.device = old.device
        for op in old.after:
            self.add_after(op)
        old.replace(self.results)

    def detach(self) -> None:
        """Takes this op out of its block, keeping operands and uses."""
        block = self.parent
        assert block is not None, "the op is in no block"
        if self.previous:
            self.previous.next = self.next
        else:
            block.first = self.next
        if self.next:
            self.next.previous = self.previous
        else:
            block.last = self.previous
        block.length -= 1
        self.parent = self.previous = self.next = None

    def erase(self) -> None:
        """Removes this op, which nothing may use any more.

        Its control users inherit its dependencies.
        """
        assert not any(v.uses for v in self.results), f"{self.name} is still used"
        for user in list(self.control_users):
            user.remove_after(self)
            for op in self.after:
                user.add_after(op)
        for op in list(self.colocated):
            op.device = self.device
        self.device = None
        for op in list(self.after):
            self.remove_after(op)
        for block in self.regions:
            block.clear()
        self.set_operands(())
        if self.parent is not None:
            self.detach()

    def clone(self, mapping: dict[Value, Value], operations: dict[Op, Op] | None = None) -> Op:
        """A copy outside of any block whose operands are mapped; regions are cloned too."""
        known = operations if operations is not None else {}
        operands = [mapping.get(v, v) if v is not None else None for v in self.operands]
        blocks: list[Block] = []
        copy = type(self).build(
            operands, dict(self.attributes), [v.type for v in self.results], None, self.location
        )
        for block in self.regions:
            blocks.append(block.clone(mapping, known))
        copy.regions = blocks
        for block in blocks:
            block.parent = copy
        copy.device, copy.label = self.device, self.label
        if isinstance(self.device, Colocate):
            copy.device = Colocate(known.get(self.device.op, self.device.op))
        for old, new in zip(self.results, copy.results, strict=True):
            new.name = old.name
            mapping[old] = new
        known[self] = copy
        for op in self.after:
            copy.add_after(known.get(op, op))
        return copy

    def __repr__(self) -> str:
        return f"<{self.name} {', '.join(map(repr, self.results))}>"


def effects_of(op: Op) -> Effect:
    """The effects of an op and of all that it holds."""
    if not op.regions:
        return op.effects
    found = Effect.NONE
    for inner in op.walk():
        found |= inner.effects
    return found


def resources_of(op: Op) -> tuple[str, ...]:
    """The names of the variables and resources that an op, or what it holds, reads or writes."""
    if not op.regions:
        return op.resources()
    return tuple(dict.fromkeys(name for inner in op.walk() for name in inner.resources()))


class Block:
    """A straight sequence of ops with arguments: a body of a function or kernel, or a region."""

    __slots__ = ("args", "first", "last", "length", "parent")

    def __init__(self, types: Iterable[Type] = (), names: Iterable[str] = ()) -> None:
        self.args: list[Value] = []
        self.first: Op | None = None
        self.last: Op | None = None
        self.length = 0
        self.parent: Op | Function | Kernel | None = None
        given = list(names)
        for i, t in enumerate(types):
            self.add_arg(t, given[i] if i < len(given) else "")

    def add_arg(self, type: Type, name: str = "") -> Value:
        value = Value(type, self, len(self.args), name)
        self.args.append(value)
        return value

    def __iter__(self) -> Iterator[Op]:
        """The ops in order; the current one may be erased while iterating."""
        op = self.first
        while op is not None:
            following = op.next
            yield op
            op = following

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True

    def walk(self) -> Iterator[Op]:
        for op in self:
            yield from op.walk()

    @property
    def terminator(self) -> Op:
        assert self.last is not None and self.last.terminator, "the block has no terminator"
        return self.last

    def append(self, op: Op) -> Op:
        return self.insert(op, None)

    def insert(self, op: Op, before: Op | None) -> Op:
        """Inserts a detached op before another one of this block, or at the end."""
        assert op.parent is None, "the op is in a block already"
        assert before is None or before.parent is self, "the place is in another block"
        previous = before.previous if before else self.last
        op.parent, op.previous, op.next = self, previous, before
        if previous:
            previous.next = op
        else:
            self.first = op
        if before:
            before.previous = op
        else:
            self.last = op
        self.length += 1
        return op

    def clear(self) -> None:
        """Erases every op."""
        op = self.last
        while op is not None:
            before = op.previous
            for value in op.results:
                for user, index in list(value.uses):
                    user.set_operand(index, None)
            op.erase()
            op = before

    def clone(self, mapping: dict[Value, Value], operations: dict[Op, Op] | None = None) -> Block:
        copy = Block([a.type for a in self.args], [a.name for a in self.args])
        mapping.update(zip(self.args, copy.args, strict=True))
        known: dict[Op, Op] = operations if operations is not None else {}
        for op in self:
            copy.append(op.clone(mapping, known))
        for op in self:
            if op.name == "merge":  # the one op whose operands may stand after it
                for index, value in enumerate(op.operands):
                    known[op].set_operand(index, mapping.get(value, value) if value else None)
        return copy


@dataclass(eq=False)
class Function:
    """A function of tensors. Inputs are the arguments of the body; its last op is `return`.

    `output_names` are the names of the results in the signature; `attributes` carry what passes
    found out (the arena's size, for one).
    """

    name: str
    body: Block
    output_names: list[str] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    location: Location = UNKNOWN

    def __post_init__(self) -> None:
        self.body.parent = self


@dataclass(eq=False)
class Kernel:
    """A kernel over buffers: an isolated body of tile ops, run once for each point of the grid.

    The arguments of the body are the buffers. `grid` gives the name and extent of each grid
    variable, outermost first; the names are symbols in the index expressions of the body.
    """

    name: str
    body: Block
    grid: list[tuple[str, Dim]] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    location: Location = UNKNOWN

    def __post_init__(self) -> None:
        self.body.parent = self

    def buffer_type(self, index: int) -> BufferType:
        return cast(BufferType, self.body.args[index].type)


@dataclass(frozen=True)
class Variable:
    """State that the functions of a module share."""

    name: str
    type: Type


@dataclass(frozen=True)
class Resource:
    """State that is no tensor, such as a queue of elements of `types` or a reader of files.

    `attributes` hold its `kind`, and what that kind needs.
    """

    name: str
    types: tuple[Type, ...]
    attributes: dict[str, Attribute] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return str(self.attributes.get("kind", ""))


@dataclass(eq=False)
class Module:
    """Functions, kernels, variables, resources and the names of symbolic dimensions.

    `dims` maps a symbol to the model's own name of it and to its smallest and largest value (None:
    no bound). `weights` resolves the constants that are references.
    """

    weights: Weights
    name: str = ""
    functions: dict[str, Function] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    resources: dict[str, Resource] = field(default_factory=dict)
    dims: dict[str, DimInfo] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)

    def walk(self) -> Iterator[Op]:
        """Every op of every function and kernel."""
        for container in (*self.functions.values(), *self.kernels.values()):
            yield from container.body.walk()

    @property
    def main(self) -> Function:
        """The function `main`, or the only one."""
        if "main" in self.functions:
            return self.functions["main"]
        if len(self.functions) == 1:
            return next(iter(self.functions.values()))
        raise TfcError("the module has no function @main", hint="name one function `main`")


@dataclass(frozen=True)
class DimInfo:
    """What is known of a symbolic dimension."""

    model_name: str = ""
    smallest: int | None = None
    largest: int | None = None


Container: TypeAlias = "Function | Kernel"
