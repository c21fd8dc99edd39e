"""Draws the ops of a random function with state: arithmetic, moves, variables, queues, regions."""

from __future__ import annotations

from tests.fuzz.stateful_text import COUNT, FLAG, SEED, Kind, Text, listed, signature

UNARY = ("tanh", "sin", "neg", "abs", "relu", "sigmoid", "softsign", "identity", "exp", "sqrt")
OF_INTEGERS = ("neg", "abs", "sign", "identity", "bitwise_not")
BINARY = ("add", "sub", "mul", "maximum", "minimum")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
COMPARISONS = ("less", "less_equal", "greater", "equal", "not_equal")
UPDATES = ("scatter_update", "scatter_add", "scatter_sub", "scatter_min", "scatter_max")
MOST_DEPTH = 3
OUT_OF_RANGE = 0.04  # of the indices may be


class Writer(Text):
    """Writes one function."""

    def body(self) -> None:
        for _ in range(self.random.randint(1, 5)):
            if self.left > 0:
                self.draw()

    def draw(self) -> None:
        self.left -= 1
        choices = {
            **{self.unary: 3, self.binary: 4, self.compare: 2, self.choose: 1, self.convert: 1},
            **{self.reduce: 1, self.moved: 2, self.row: 1, self.product: 1, self.counter: 1},
            **{self.read: 4, self.assign: 4, self.change: 2, self.scatter: 2, self.barrier: 1},
            **{self.random_numbers: 1, self.through_queue: 1},
        }
        if self.depth < MOST_DEPTH:
            many = 3 if self.plan.loops else 1
            choices |= {self.branch: 3, self.loop: 2 * many, self.scan: many}
        self.random.choices(list(choices), list(choices.values()))[0]()

    # ---- values alone

    def unary(self) -> None:
        kind = self.draw_kind()
        names = UNARY if kind.is_float else OF_INTEGERS[kind.dtype == "u8" :]
        name = "logical_not" if kind.is_bool else self.random.choice(names)
        self.op(kind, f"{name}({self.any(kind)})")

    def binary(self) -> None:
        kind = self.draw_kind()
        others = [kind, kind, Kind(kind.dtype), Kind(kind.dtype, kind.dims[1:])]
        x, y = self.any(kind), self.any(self.random.choice(others))
        if self.chance(0.3):
            x, y = (y, x)
        made = self.op(kind, f"{self.random.choice(self.names_of(kind))}({x}, {y})")
        if kind.is_float and self.chance(0.5):
            self.op(kind, f"tanh({made})")  # keeps numbers small

    def names_of(self, kind: Kind) -> tuple[str, ...]:
        return LOGICAL if kind.is_bool else BINARY

    def compare(self) -> None:
        """Integers more often: where these are exact, so is what depends on them."""
        kind = COUNT if self.chance(0.6) else self.draw_kind()
        names = ("equal", "not_equal") if kind.is_bool else COMPARISONS
        text = f"{self.random.choice(names)}({self.any(kind)}, {self.any(kind)})"
        self.op(kind.of("bool"), text)

    def flag(self) -> str:
        if self.chance(0.3):
            return self.op(FLAG, f"less({self.any(COUNT)}, {self.any(COUNT)})")
        return self.any(FLAG)

    def choose(self) -> None:
        kind = self.draw_kind()
        condition = self.any(self.random.choice([FLAG, kind.of("bool")]))
        self.op(kind, f"where({condition}, {self.any(kind)}, {self.any(kind)})")

    def convert(self) -> None:
        kind = self.draw_kind()
        to = self.random.choice([k.dtype for k in self.plan.kinds])
        self.op(kind.of(to), f"cast({self.any(kind)})", f"to = {to}")

    def reduce(self) -> None:
        kind = self.draw_kind()
        if not kind.dims or kind.is_bool:
            return
        axis = self.random.randrange(len(kind.dims))
        if self.chance(0.4):
            name = "softmax" if kind.is_float and self.chance(0.6) else "cumsum"
            self.op(kind, f"{name}({self.any(kind)})", f"axis = {axis}")
            return
        name = self.random.choice(("sum", "max", "min", "mean" if kind.is_float else "sum"))
        if kind.dims[axis] == "B" and name != "sum":
            return  # of no elements
        left = Kind(kind.dtype, kind.dims[:axis] + kind.dims[axis + 1 :])
        self.op(left, f"reduce_{name}({self.any(kind)})", f"axes = [{axis}]")

    def moved(self) -> None:
        """The same elements elsewhere."""
        kind = self.draw_kind()
        rank = len(kind.dims)
        x = self.any(kind)
        if rank == 2 and self.chance(0.5):
            turned = self.op(
                Kind(kind.dtype, kind.dims[::-1]), f"transpose({x})", "permutation = [1, 0]"
            )
            flat = Kind(kind.dtype, ("1", *kind.dims[::-1]))
            if self.chance(0.3):
                self.op(flat, f"reshape({turned})", f"shape = {listed(flat.dims)}")
        elif rank == 2 and kind.dims[0].isdigit():
            rows = int(kind.dims[0]) - 1
            cut = Kind(kind.dtype, (str(rows), *kind.dims[1:]))
            attributes = f"starts = [1, 0], limits = {listed(kind.dims)}, steps = [1, 1]"
            part = self.op(cut, f"slice({x})", attributes)
            first = Kind(kind.dtype, ("1", *kind.dims[1:]))
            row = self.op(
                first, f"reshape({self.any(kind.slice)})", f"shape = {listed(first.dims)}"
            )
            parts = [part, row] if self.chance(0.5) else [row, part]
            self.op(kind, f"concat({', '.join(parts)})", "axis = 0")
        elif rank == 1:
            wide = Kind(kind.dtype, ("3", *kind.dims))
            self.op(wide, f"expand({x})", f"shape = {listed(wide.dims)}")
        else:
            self.op(kind, f"identity({x})")

    def index(self, size: str) -> str:
        """An index along an axis: in range, but for a few."""
        if not size.isdigit() or self.chance(OUT_OF_RANGE):
            return self.any(COUNT)
        return self.between(0, int(size) - 1)

    def row(self) -> None:
        kinds = [k for k in self.known() if k.dims and k.dims[0].isdigit()]
        if self.chance(0.05):
            kinds += [k for k in self.known() if k.dims]
        kind = self.random.choice(kinds)
        index = self.index(kind.dims[0])
        self.op(kind.slice, f"gather({self.any(kind)}, {index})", "axis = 0")

    def product(self) -> None:
        kinds = [k for k in self.plan.kinds if k.is_float and k.dims[1:] == ("4",)]
        if kinds:
            kind = self.random.choice(kinds)
            weights = self.any(Kind(kind.dtype, ("4", "4")))
            made = self.op(kind, f"matmul({self.any(kind)}, {weights})")
            self.op(kind, f"tanh({made})")

    def counter(self) -> None:
        one = self.number(COUNT, "1")
        self.op(COUNT, f"{self.random.choice(('add', 'minimum'))}({self.any(COUNT)}, {one})")

    # ---- state

    def effect(self, kind: Kind, text: str, attributes: str = "") -> None:
        self.scope.effects.append(self.op(kind, text, attributes, 0.4))

    def variable(self) -> tuple[str, Kind]:
        return self.random.choice(list(self.plan.variables.items()))

    def read(self) -> None:
        name, kind = self.variable()
        made = self.op(kind, f"read(@{name})", "", 0.4)
        if self.chance(0.1):
            self.scope.effects.append(made)

    def assign(self) -> None:
        name, kind = self.variable()
        self.effect(kind, f"assign(@{name}, {self.value_for(kind)})")

    def value_for(self, kind: Kind) -> str:
        if kind == SEED:
            return self.number(SEED, f"[{self.random.randint(0, 9)}, 0]")
        if kind == COUNT:  # trips are counted by such: they must stay small
            return self.op(COUNT, f"minimum({self.any(COUNT)}, {self.number(COUNT, '3')})")
        return self.any(kind)

    def change(self) -> None:
        name, kind = self.variable()
        if kind.is_bool or kind == SEED:
            return
        value = self.any(kind)
        if kind.is_float:
            value = self.op(kind, f"tanh({value})")
        self.effect(kind, f"{self.random.choice(('assign_add', 'assign_sub'))}(@{name}, {value})")

    def scatter(self) -> None:
        kinds = {n: k for n, k in self.plan.variables.items() if k.dims and k != SEED}
        if not kinds:
            return
        name, kind = self.random.choice(list(kinds.items()))
        update = "scatter_update" if kind.is_bool else self.random.choice(UPDATES)
        one = Kind(kind.dtype, ("1", *kind.dims[1:]))
        index = self.op(Kind("i64", ("1",)), f"reshape({self.index(kind.dims[0])})", "shape = [1]")
        part = self.op(one, f"reshape({self.any(kind.slice)})", f"shape = {listed(one.dims)}")
        self.effect(kind, f"{update}(@{name}, {index}, {part})")

    def barrier(self) -> None:
        if self.scope.ops:
            self.count += 1
            label = f"^b{self.count}"
            self.line(f"{label}: no_op(){self.after(1.0)}")
            self.scope.ops.append(label)

    def random_numbers(self) -> None:
        if "seed" not in self.plan.variables:
            return
        kind = self.random.choice([k for k in self.plan.kinds if k.is_float])
        attributes = f"shape = {listed(kind.dims)}, dtype = {kind.dtype}"
        draw = self.random.choice(("random_uniform", "random_normal"))
        self.effect(kind, f"{draw}(@seed)", attributes)

    def through_queue(self) -> None:
        """Puts an element in and takes one out after it, so that nothing waits for ever."""
        kind = self.plan.queue
        if kind is None:
            return
        self.count += 1
        label = f"^b{self.count}"
        self.line(f"{label}: enqueue(@q, {self.any(kind)}){self.after(0.3)}")
        self.scope.ops.append(label)
        self.scope.effects.append(label)
        if self.chance(0.7):
            name = self.name()
            self.line(f"{name} = dequeue(@q) after({label}) : {kind}")
            self.defined([name], [kind])
        if self.chance(0.3):
            name = self.name()
            self.line(f"{name} = queue_size(@q) after({label}) : {COUNT}")
            self.scope.ops.append(name)

    # ---- regions

    def some_kinds(self) -> list[Kind]:
        return [self.random.choice(self.plan.kinds) for _ in range(self.random.randint(1, 3))]

    def branch(self) -> None:
        kinds = self.some_kinds()
        names = [self.name() for _ in kinds]
        self.head(names, f"if({self.flag()})", kinds)
        empty = self.random.choice((0, 1, 2, 2, 2))  # the side that holds no ops, if any
        for side, (keyword, closing) in enumerate((("then {", ""), ("} else {", "}"))):
            self.line(keyword)
            with self.region():
                if side != empty:
                    self.body()
                self.give([self.any(t) for t in kinds])
            if closing:
                self.line(closing)
        self.defined(names, kinds)

    def loop(self) -> None:
        """A counter that goes up to a small number, and more values."""
        kinds = [COUNT, *self.some_kinds()]
        names = [self.name() for _ in kinds]
        bound = self.op(COUNT, f"minimum({self.any(COUNT)}, {self.number(COUNT, '3')})")
        initial = [self.number(COUNT, "0"), *(self.any(t) for t in kinds[1:])]
        maximum = f"maximum = {self.random.randint(0, 4)}" if self.chance(0.15) else ""
        self.head(names, f"while({', '.join(initial)})", kinds, maximum)
        inner = self.arguments(kinds)
        self.line(f"cond({signature(inner)}) {{")
        with self.region(inner):
            if self.chance(0.25):
                self.body()
            more = self.op(FLAG, f"less({inner[0][0]}, {bound})")
            if self.chance(0.2):
                more = self.op(FLAG, f"logical_and({more}, {self.flag()})")
            self.give([more])
        inner = self.arguments(kinds)
        self.line(f"}} do({signature(inner)}) {{")
        with self.region(inner):
            self.body()
            following = self.op(COUNT, f"add({inner[0][0]}, {self.number(COUNT, '1')})")
            self.give([following, *self.carried(inner[1:])])
        self.line("}")
        self.defined(names, kinds)

    def carried(self, arguments: list[tuple[str, Kind]]) -> list[str]:
        """What a loop carries on: some of it never changes, some changes places."""
        same = {t: [a for a, k in arguments if k == t] for _, t in arguments}
        return [
            self.random.choice(same[t]) if self.chance(0.25) else self.any(t) for _, t in arguments
        ]

    def few(self, kinds: list[Kind]) -> list[Kind]:
        count = self.random.choice((0, 1, 1, 2)) if kinds else 0
        return [self.random.choice(kinds) for _ in range(count)]

    def scan(self) -> None:
        carries = self.some_kinds()[: self.random.randint(0, 2)]
        ranked = [k for k in self.plan.kinds if k.dims]
        length = self.random.choice([*(k.dims[0] for k in ranked), "0", "2"])
        fitting = [k for k in ranked if k.dims[0] == length]
        some = [Kind(k.dtype, (length, *k.dims)) for k in self.plan.kinds if len(k.dims) < 2]
        sequences = self.few(fitting)
        outputs = self.few([*fitting, *some])
        if not carries and not outputs:
            outputs = some[:1]
        kinds = [*carries, *outputs]
        names = [self.name() for _ in kinds]
        operands = ", ".join(self.any(k) for k in (*carries, *sequences))
        reverse = ", reverse = true" if self.chance(0.3) else ""
        written = length if length.isdigit() else f"({length})"
        attributes = f"carries = {len(carries)}, length = {written}{reverse}"
        self.head(names, f"scan({operands})", kinds, attributes)
        inner = self.arguments([*carries, *(k.slice for k in sequences)])
        self.line(f"do({signature(inner)}) {{")
        with self.region(inner):
            self.body()
            following = self.carried(inner[: len(carries)])
            self.give([*following, *(self.any(k.slice) for k in outputs)])
        self.line("}")
        self.defined(names, kinds)
