"""Random numbers from a variable that holds their state, so that it is saved with the others.

The variable is a `tensor<2xu64>`: a seed, and how many blocks of four words were drawn so far.
Block n is Philox4x32-10 of the counter n (words 0 and 1; 2 and 3 are 0) and the seed as key; an op
takes as many whole blocks as it needs. So the numbers depend on the seed and the order of the ops,
and compiled code draws the same as the interpreter.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tfc.ir.core import Effect, Module, Value, attribute, result
from tfc.ir.expr import Dim, as_expr, ceildiv, normal, product
from tfc.ir.types import BF16, F16, F32, F64, FLOATS, I64, INTEGERS, U64, DType, TensorType, Type
from tfc.ops.base import Array, Composite, narrow, static
from tfc.ops.calculus import Calculus
from tfc.ops.compose import cast, size_scalar
from tfc.ops.constant import Iota, constant, scalar
from tfc.ops.shape import Concat
from tfc.ops.state import Assign, Read
from tfc.ops.stateful import VariableOp
from tfc.runtime.philox import LOW, MULTIPLIERS, ROUNDS, WEYL, blocks

if TYPE_CHECKING:
    from tfc.ir.builder import Builder
    from tfc.runtime.state import State

STATE = TensorType(U64, (2,))
PRECISION = {F64: 53, F32: 24, F16: 11, BF16: 8}
"""The bits of a number from 0 to 1, which are as many as its type holds exactly."""


class RandomOp(VariableOp, Composite):
    """Draws a tensor of a shape; the state moves on by the blocks of four words that it takes."""

    effects = Effect.READ | Effect.WRITE
    differentiable = False
    shape: tuple[Dim, ...]
    dtype: DType

    def infer(self) -> list[Type]:
        self.check()
        return [TensorType(self.dtype, self.shape)]

    def check(self) -> None:
        """Checks the constraints from C2 on."""

    def verify_in(self, module: Module) -> None:
        held = self.declared(module)
        self.require(held.type == STATE, "C1", f"@{held.name} is a {held.type}, not a {STATE}")

    @property
    def per_block(self) -> int:
        """The numbers that a block gives."""
        return 2 if self.dtype == F64 else 4

    @property
    def size(self) -> Dim:
        return normal(product(list(self.shape)))

    @property
    def count(self) -> Dim:
        """The blocks that it takes."""
        return normal(ceildiv(as_expr(self.size), self.per_block))

    # ---- in numpy

    def run(self, state: State) -> Array:
        (count,), (size,) = static((self.count,)), static((self.size,))
        held = state.read(self.variable.name)
        seed, drawn = int(held[0]), int(held[1])
        held[1] = (drawn + count) & 0xFFFFFFFFFFFFFFFF
        state.write(self.variable.name, held)
        words = blocks(seed, drawn, count).astype(np.uint64)
        found = self.numbers([words[:, i] for i in range(4)])
        return np.stack(found, 1).reshape(-1)[:size].reshape(static(self.shape))

    def numbers(self, words: list[Array]) -> list[Array]:
        """The numbers of all blocks, by their place in a block; from the four words, as u64."""
        raise NotImplementedError(f"{self.name} has no numbers")

    # ---- by other ops

    def decompose(self, b: Builder) -> list[Value]:
        """Each element is made by itself, from its whole block, so that all is one kernel."""
        do = Calculus(b)
        seed, drawn = self._moved_on(do)
        index = b.value(Iota((self.size,), 0, U64))
        block = do("shift_right", index, self.per_block.bit_length() - 1)
        place = do("bitwise_and", index, self.per_block - 1)
        words = philox(do, do("add", block, drawn), seed)
        return [do.reshape(self.composed(do, words, place), self.shape)]

    def composed(self, do: Calculus, words: list[Value], place: Value) -> Value:
        """The number at a place of a block, all of u64; made of ops."""
        raise NotImplementedError(f"{self.name} is not composed")

    def _moved_on(self, do: Calculus) -> tuple[Value, Value]:
        """The seed, and the blocks drawn before (vectors of one); moves the state on.

        They come from the new state, so that nothing is drawn before that is written.
        """
        b = do.builder
        old = b.add(Read(self.variable, STATE))
        for op in self.after:
            old.add_after(op)
        count = do.reshape(size_scalar(b, (self.count,), U64), (1,))
        moved = b.value(Concat([constant(b, np.zeros(1, np.uint64)), count], 0))
        state = b.value(Assign(self.variable, do("add", old.result, moved)))
        return do.slice(state, 0, 0, 1), do("sub", do.slice(state, 0, 1, 2), count)


def philox(do: Calculus, counter: Value, seed: Value) -> list[Value]:
    """The words of blocks, as u64, for their counters and a seed (each u64)."""
    low, shift = (scalar(do.builder, n, U64) for n in (LOW, 32))
    keys = do("bitwise_and", seed, low), do("shift_right", seed, shift)
    zero = scalar(do.builder, 0, U64)
    words = [do("bitwise_and", counter, low), do("shift_right", counter, shift), zero, zero]
    for number in range(ROUNDS):
        x0, x1, x2, x3 = words
        first, second = (
            do("bitwise_and", do("add", key, scalar(do.builder, number * w & LOW, U64)), low)
            for key, w in zip(keys, WEYL, strict=True)
        )
        p0, p1 = do("mul", x0, MULTIPLIERS[0]), do("mul", x2, MULTIPLIERS[1])
        mixed = do("bitwise_xor", do("shift_right", p1, shift), x1)
        other = do("bitwise_xor", do("shift_right", p0, shift), x3)
        words = [
            *(do("bitwise_xor", mixed, first), do("bitwise_and", p1, low)),
            *(do("bitwise_xor", other, second), do("bitwise_and", p0, low)),
        ]
    return words


# ---- numbers from 0 to 1


def _units(words: list[Array], dtype: DType, add: int = 0) -> list[Array]:
    """Whole numbers below 2^PRECISION, plus `add`, over 2^PRECISION; in f64, which is exact."""
    bits = PRECISION[dtype]
    if dtype == F64:
        words = [words[1] << np.uint64(32) | words[0], words[3] << np.uint64(32) | words[2]]
    shift = np.uint64((64 if dtype == F64 else 32) - bits)
    return [((w >> shift) + np.uint64(add)).astype(np.float64) * 2.0**-bits for w in words]


def _composed_unit(do: Calculus, word: Value, dtype: DType, add: int = 0) -> Value:
    """As `_units`, in f64 or f32, for a word of 64 bits (f64) or 32."""
    shift = (64 if dtype == F64 else 32) - PRECISION[dtype]
    whole = do("shift_right", word, shift)
    whole = do("add", whole, add) if add else whole
    wide = F64 if dtype == F64 else F32
    return do("mul", cast(do.builder, whole, wide), 2.0 ** -PRECISION[dtype])


def _joined(do: Calculus, words: list[Value]) -> list[Value]:
    """Words of 64 bits from pairs of 32, the low one first."""
    pairs = zip(words[::2], words[1::2], strict=True)
    return [do("bitwise_or", do("shift_left", high, 32), low) for low, high in pairs]


def _chosen(do: Calculus, choices: list[Value], place: Value) -> Value:
    """The choice whose number the place is; the last one where it is none."""
    found = choices[-1]
    for number, choice in reversed(list(enumerate(choices[:-1]))):
        found = do.where(do("equal", place, number), choice, found)
    return found


class RandomUniform(RandomOp, name="random_uniform"):
    """Floats from 0, inclusive, to 1: multiples of 2^-24 (f64: 2^-53, f16: 2^-11, bf16: 2^-8).

    C1: the variable is a tensor<2xu64>, the state.
    C2: `dtype` is a float.

    ```mlir
    variable @state : tensor<2xu64>
    func @main() -> (%y: tensor<3x5xf32>) {
      %seed = constant {value = dense<[7, 0]>} : tensor<2xu64>
      %s = assign(@state, %seed) : tensor<2xu64>
      %y = random_uniform(@state) {shape = [3, 5], dtype = f32} after(%s) : tensor<3x5xf32>
      return %y
    }
    ```
    """

    variable: Any = attribute("symbol")
    shape: tuple[Dim, ...] = attribute("dims")
    dtype: DType = attribute("dtype")
    output: Value = result()

    def check(self) -> None:
        self.require(self.dtype in FLOATS, "C2", f"{self.dtype} is no float")

    def numbers(self, words: list[Array]) -> list[Array]:
        return [narrow(u, self.dtype.numpy) for u in _units(words, self.dtype)]

    def composed(self, do: Calculus, words: list[Value], place: Value) -> Value:
        held = _joined(do, words) if self.dtype == F64 else words
        unit = _composed_unit(do, _chosen(do, held, place), self.dtype)
        return cast(do.builder, unit, self.dtype)


class RandomNormal(RandomOp, name="random_normal"):
    """Floats of the normal distribution of mean 0 and deviation 1, by the method of Box and Muller.

    Two numbers u, v from 0 to 1 (u not 0) give sqrt(-2 log u) times cos and sin of 2 pi v, in f64
    for f64 and in f32 for the others, each step rounded.

    C1: the variable is a tensor<2xu64>, the state.
    C2: `dtype` is a float.

    ```mlir
    variable @state : tensor<2xu64>
    func @main() -> (%y: tensor<3x5xf32>) {
      %seed = constant {value = dense<[7, 0]>} : tensor<2xu64>
      %s = assign(@state, %seed) : tensor<2xu64>
      %y = random_normal(@state) {shape = [3, 5], dtype = f32} after(%s) : tensor<3x5xf32>
      return %y
    }
    ```
    """

    variable: Any = attribute("symbol")
    shape: tuple[Dim, ...] = attribute("dims")
    dtype: DType = attribute("dtype")
    output: Value = result()

    def check(self) -> None:
        self.require(self.dtype in FLOATS, "C2", f"{self.dtype} is no float")

    @property
    def wide(self) -> DType:
        """The element type that it computes in."""
        return F64 if self.dtype == F64 else F32

    def numbers(self, words: list[Array]) -> list[Array]:
        kind = self.wide.numpy
        drawn, angles = (_units(words, self.wide, add) for add in (1, 0))
        found: list[Array] = []
        for u, v in zip(drawn[::2], angles[1::2], strict=True):
            radius = np.sqrt(narrow(np.log(u), kind) * kind.type(-2.0))
            angle = narrow(v, kind) * kind.type(2 * math.pi)
            turned = (narrow(f(angle.astype(np.float64)), kind) for f in (np.cos, np.sin))
            found += [narrow(radius * t, self.dtype.numpy) for t in turned]
        return found

    def composed(self, do: Calculus, words: list[Value], place: Value) -> Value:
        if self.wide == F64:
            first, second = _joined(do, words)
        else:
            pair = do("shift_right", place, 1)
            first, second = (_chosen(do, words[i::2], pair) for i in (0, 1))
        u = _composed_unit(do, first, self.wide, add=1)
        radius = do("sqrt", do("mul", do("log", u), -2.0))
        angle = do("mul", _composed_unit(do, second, self.wide), 2 * math.pi)
        turned = [do(name, angle) for name in ("cos", "sin")]
        chosen = _chosen(do, turned, do("bitwise_and", place, 1))
        return cast(do.builder, do("mul", radius, chosen), self.dtype)


class RandomIntegers(RandomOp, name="random_integers"):
    """Whole numbers from `low` to `high`, which is left out.

    Each is the upper half of a word of 32 bits times the range; so some are more frequent than
    others by at most the range / 2^32.

    C1: the variable is a tensor<2xu64>, the state.
    C2: `dtype` is an integer type, which holds `low` and `high` - 1.
    C3: low < high <= low + 2^32.

    ```mlir
    variable @state : tensor<2xu64>
    func @main() -> (%y: tensor<3x5xi32>) {
      %seed = constant {value = dense<[7, 0]>} : tensor<2xu64>
      %s = assign(@state, %seed) : tensor<2xu64>
      %y = random_integers(@state) {shape = [3, 5], dtype = i32, low = -2, high = 10} after(%s)
        : tensor<3x5xi32>
      return %y
    }
    ```
    """

    variable: Any = attribute("symbol")
    shape: tuple[Dim, ...] = attribute("dims")
    dtype: DType = attribute("dtype")
    low: int = attribute("int")
    high: int = attribute("int")
    output: Value = result()

    def check(self) -> None:
        self.require(self.dtype in INTEGERS, "C2", f"{self.dtype} is no integer type")
        kind = np.iinfo(self.dtype.numpy)
        fits = kind.min <= self.low and self.high - 1 <= min(int(kind.max), (1 << 63) - 1)
        self.require(fits, "C2", f"{self.dtype} does not hold {self.low} to {self.high - 1}")
        ordered = 0 < self.high - self.low <= 1 << 32
        self.require(ordered, "C3", f"{self.low} to {self.high} is no range of up to 2^32 numbers")

    def numbers(self, words: list[Array]) -> list[Array]:
        span = np.uint64(self.high - self.low)
        upper = [((w * span) >> np.uint64(32)).astype(np.int64) for w in words]
        return [(x + np.int64(self.low)).astype(self.dtype.numpy) for x in upper]

    def composed(self, do: Calculus, words: list[Value], place: Value) -> Value:
        scaled = do("mul", _chosen(do, words, place), self.high - self.low)
        moved = do("add", cast(do.builder, do("shift_right", scaled, 32), I64), self.low)
        return cast(do.builder, moved, self.dtype)
