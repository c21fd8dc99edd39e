"""Random functions as code generation gets them: kernels, views, regions, variables.

`module_text(seed, count)` always gives the same text for a seed. All numbers are means and halved
differences, so that compiled code and interpreter agree to the bit.
"""

from __future__ import annotations

from random import Random

HEAD = """module {
  dim S = "S"
  variable @u : tensor<4xf32>
  variable @v : tensor<4xf32>
  variable @n : tensor<i64>
  kernel @next(%a: buffer<1xi64>, %b: buffer<1xi64, out>) grid(p0 = 1) {
    %t = load(%a) {at = (c)} : tile<1x1xi64>
    %one = tile_full() {value = 1} : tile<1x1xi64>
    %u = map(%t, %one) {function = "add"} : tile<1x1xi64>
    store(%b, %u) {at = (c)}
  }
  kernel @less(%a: buffer<1xi64>, %n: buffer<1xi64>, %b: buffer<1xbool, out>) grid(p0 = 1) {
    %t = load(%a) {at = (c)} : tile<1x1xi64>
    %u = load(%n) {at = (c)} : tile<1x1xi64>
    %w = map(%t, %u) {function = "less"} : tile<1x1xbool>
    store(%b, %w) {at = (c)}
  }
  kernel @below(%a: buffer<4xf32>, %n: buffer<4xf32>, %b: buffer<1xbool, out>) grid(p0 = 1) {
    %t = load(%a) {at = (c+1)} : tile<1x1xf32>
    %u = load(%n) {at = (c+2)} : tile<1x1xf32>
    %w = map(%t, %u) {function = "less"} : tile<1x1xbool>
    store(%b, %w) {at = (c)}
  }
  kernel @mean(%a: buffer<4xf32>, %x: buffer<4xf32>, %b: buffer<4xf32, out>) grid(p0 = 2) {
    %t = load(%a) {at = (2*p0+c)} : tile<1x2xf32>
    %u = load(%x) {at = (2*p0+c)} : tile<1x2xf32>
    %h = tile_full() {value = 0.5} : tile<1x2xf32>
    %s = map(%t, %u) {function = "add"} : tile<1x2xf32>
    %w = map(%s, %h) {function = "mul"} : tile<1x2xf32>
    store(%b, %w) {at = (2*p0+c)}
  }
  kernel @both(%a: buffer<4xf32>, %x: buffer<4xf32>, %b: buffer<4xf32, out>, %d: buffer<4xf32, out>)
      grid(p0 = 1) {
    %t = load(%a) {at = (c)} : tile<1x4xf32>
    %u = load(%x) {at = (c)} : tile<1x4xf32>
    %h = tile_full() {value = 0.5} : tile<1x4xf32>
    %s = map(%t, %u) {function = "sub"} : tile<1x4xf32>
    %w = map(%s, %h) {function = "mul"} : tile<1x4xf32>
    store(%b, %w) {at = (c)}
    %k = load(%x) {at = (3-c)} : tile<1x4xf32>
    store(%d, %k) {at = (c)}
  }
  kernel @rows(%a: buffer<(4*S)xf32>, %x: buffer<4xf32>, %b: buffer<(4*S)xf32, out>) grid(p0 = S) {
    %t = load(%a) {at = (4*p0+c)} : tile<1x4xf32>
    %u = load(%x) {at = (c)} : tile<1x4xf32>
    %h = tile_full() {value = 0.5} : tile<1x4xf32>
    %s = map(%t, %u) {function = "add"} : tile<1x4xf32>
    %w = map(%s, %h) {function = "mul"} : tile<1x4xf32>
    store(%b, %w) {at = (4*p0+c)}
  }
"""
ROW, ROWS, COUNT, FLAG = "tensor<4xf32>", "tensor<Sx4xf32>", "tensor<i64>", "tensor<bool>"


class Writer:
    """Writes one function; `scope` holds the names of what may be used, by type."""

    def __init__(self, random: Random, name: str) -> None:
        self.random, self.name, self.count = random, name, 0
        self.lines: list[str] = []
        self.scope: dict[str, list[str]] = {ROW: ["%x", "%y"], ROWS: ["%q"], COUNT: ["%k"]}

    def text(self) -> str:
        args = f"%x: {ROW}, %y: {ROW}, %q: {ROWS}, %k: {COUNT}"
        self.ops(3, 6)
        kinds = [self.random.choice((ROW, ROW, ROWS, COUNT)) for _ in range(3)]
        values = [self.pick(kind) for kind in kinds]
        outputs = ", ".join(f"%o{i}: {kind}" for i, kind in enumerate(kinds))
        body = "\n".join(self.lines)
        end = f"    return {', '.join(values)}\n  }}\n"
        return f"  func @{self.name}({args}) -> ({outputs}) {{\n{body}\n{end}"

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def pick(self, kind: str) -> str:
        """A value of a type, late ones more often."""
        held = self.scope[kind]
        return held[max(self.random.randrange(len(held)), self.random.randrange(len(held)))]

    def add(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def make(self, kind: str, text: str) -> str:
        name = self.fresh()
        self.add(f"{name} = {text} : {kind}")
        self.scope[kind].append(name)
        return name

    def flag(self) -> str:
        name = self.fresh()
        kernel, kind = self.random.choice((("below", ROW), ("less", COUNT)))
        operands = f"{self.pick(kind)}, {self.pick(kind)}"
        self.add(f"{name} = launch({operands}) {{kernel = @{kernel}}} : {FLAG}")
        return name

    def ops(self, depth: int, most: int) -> None:
        plain = [self.mean, self.mean, self.both, self.rows, self.read, self.assign, self.view]
        plain += [self.constant, self.count_up]
        regions = [self.branch, self.loop, self.walk]
        for _ in range(self.random.randint(1, most)):
            if depth and self.random.random() < 0.4:
                self.random.choice(regions)(depth - 1)
            else:
                self.random.choice(plain)()

    def mean(self) -> None:
        self.make(ROW, f"launch({self.pick(ROW)}, {self.pick(ROW)}) {{kernel = @mean}}")

    def rows(self) -> None:
        self.make(ROWS, f"launch({self.pick(ROWS)}, {self.pick(ROW)}) {{kernel = @rows}}")

    def count_up(self) -> None:
        self.make(COUNT, f"launch({self.pick(COUNT)}) {{kernel = @next}}")

    def both(self) -> None:
        a, b = self.fresh(), self.fresh()
        operands = f"{self.pick(ROW)}, {self.pick(ROW)}"
        self.add(f"{a}, {b} = launch({operands}) {{kernel = @both}} : {ROW}, {ROW}")
        self.scope[ROW] += [a, b]

    def constant(self) -> None:
        number = self.random.choice((0.0, 1.0, -2.5))
        self.make(ROW, f"constant {{value = dense<{number}>}}")

    def view(self) -> None:
        name = self.fresh()
        square = "tensor<2x2xf32>"
        self.add(f"{name} = reshape({self.pick(ROW)}) {{shape = [2, 2]}} : {square}")
        self.make(ROW, f"reshape({name}) {{shape = [4]}}")

    def read(self) -> None:
        kind, name = self.random.choice(((ROW, "u"), (ROW, "v"), (COUNT, "n")))
        self.make(kind, f"read(@{name})")

    def assign(self) -> None:
        kind, name = self.random.choice(((ROW, "u"), (ROW, "v"), (COUNT, "n")))
        self.make(kind, f"assign(@{name}, {self.pick(kind)})")

    # ---- regions

    def region(self, head: str, args: list[tuple[str, str]], depth: int, kinds: list[str]) -> None:
        """A region whose scope ends with it; it yields values of some types."""
        held = {kind: list(names) for kind, names in self.scope.items()}
        self.add(head)
        for name, kind in args:
            self.scope[kind].append(name)
        self.ops(depth, 4)
        self.add(f"yield {', '.join(self.pick(kind) for kind in kinds)}")
        self.scope = held

    def results(self, kinds: list[str]) -> str:
        names = [self.fresh() for _ in kinds]
        for name, kind in zip(names, kinds, strict=True):
            self.scope[kind].append(name)
        return ", ".join(names)

    def kinds(self) -> list[str]:
        return [
            self.random.choice((ROW, ROW, ROWS, COUNT)) for _ in range(self.random.randint(1, 3))
        ]

    def branch(self, depth: int) -> None:
        kinds, start = self.kinds(), len(self.lines)
        flag = self.flag()
        start = len(self.lines)
        self.region("then {", [], depth, kinds)
        self.region("} else {", [], depth, kinds)
        self.add("}")
        head = f"    {self.results(kinds)} = if({flag}) : {', '.join(kinds)}"
        self.lines.insert(start, head)

    def loop(self, depth: int) -> None:
        """Counts to a small number; what it carries besides may change places."""
        kinds = [COUNT, *self.kinds()]
        limit, zero = self.fresh(), self.fresh()
        turns = self.random.randrange(5)
        self.add(f"{limit} = constant {{value = dense<{turns}>}} : {COUNT}")
        self.add(f"{zero} = constant {{value = dense<0>}} : {COUNT}")
        first = [zero, *map(self.pick, kinds[1:])]
        start = len(self.lines)
        args = [(self.fresh(), kind) for kind in kinds]
        listed = ", ".join(f"{name}: {kind}" for name, kind in args)
        self.add(f"cond({listed}) {{")
        held = {kind: list(names) for kind, names in self.scope.items()}
        if self.random.random() < 0.3:
            self.mean()
        self.scope = held
        flag, counter = self.fresh(), args[0][0]
        self.add(f"{flag} = launch({counter}, {limit}) {{kernel = @less}} : {FLAG}")
        self.add(f"yield {flag}")
        body = [(self.fresh(), kind) for kind in kinds]
        listed = ", ".join(f"{name}: {kind}" for name, kind in body)
        self.region(f"}} do({listed}) {{", body, depth, kinds[1:])
        following = self.fresh()
        end = self.lines.pop().replace("yield ", f"yield {following}, ")
        self.add(f"{following} = launch({body[0][0]}) {{kernel = @next}} : {COUNT}")
        self.lines.append(end)
        self.add("}")
        results = self.results(kinds)
        self.lines.insert(start, f"    {results} = while({', '.join(first)}) : {', '.join(kinds)}")

    def walk(self, depth: int) -> None:
        carried = [self.random.choice((ROW, COUNT)) for _ in range(self.random.randint(0, 2))]
        count = self.random.randint(0, 2)
        parts = self.random.randint(0, 2)
        if not carried and not parts:
            carried = [ROW]
        operands = [*map(self.pick, carried), *(self.pick(ROWS) for _ in range(count))]
        start = len(self.lines)
        args = [(self.fresh(), kind) for kind in (*carried, *[ROW] * count)]
        listed = ", ".join(f"{name}: {kind}" for name, kind in args)
        self.region(f"do({listed}) {{", args, depth, [*carried, *[ROW] * parts])
        self.add("}")
        kinds = [*carried, *[ROWS] * parts]
        reverse = ", reverse = true" if self.random.random() < 0.5 else ""
        self.lines.insert(
            start,
            f"    {self.results(kinds)} = scan({', '.join(operands)}) "
            f"{{carries = {len(carried)}, length = (S){reverse}}} : {', '.join(kinds)}",
        )


def module_text(seed: int, count: int) -> str:
    """A module of functions `f0`, `f1`, ... over the variables u, v and n."""
    random = Random(seed)
    return HEAD + "".join(Writer(random, f"f{i}").text() for i in range(count)) + "}\n"
