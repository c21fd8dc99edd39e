"""What must hold of a mutated module: it is refused clearly, or compiled code means what it means.

The meaning is that of the interpreter, on inputs drawn from the mutant's number, which calls of
`mutants_runs.py` are given. What takes too
much to interpret is compiled only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.farm import Outcome
from tests.fuzz import data
from tests.fuzz.mutants_runs import TooLarge, check_calls, functions_of, spelt
from tests.fuzz.tolerance import decomposed
from tfc.interpret import Run, bind_symbols
from tfc.ir.core import Function, Module, Op
from tfc.ir.errors import TfcError, UnsupportedError
from tfc.ir.expr import Expr, as_expr
from tfc.ir.types import TensorType, dtype_of
from tfc.ir.verifier import verify
from tfc.passes.base import PassContext
from tfc.passes.tile.bound_accesses import BoundAccesses

Array = np.ndarray[Any, Any]

LARGEST = 300_000  # elements of a value that is interpreted
MOST_WORK = 20_000_000  # multiply-adds of an op that is interpreted
MOST_PROGRAMS = 300  # of a kernel that is interpreted


# ---- compiling in this process, which costs less than starting others


@cache
def compile_here() -> None:
    """Makes the driver compile kernels in this process; where LLVM crashes, the mutant does."""
    from tfc.backends.llvm import compile as compiler

    known: dict[tuple[str, str, int], bytes] = {}

    def compile_many(
        texts: Sequence[str], target: Any, opt_level: int = 3, progress: Any = None
    ) -> list[bytes]:
        del progress
        objects: list[bytes] = []
        for text in texts:
            key = text, target.name, opt_level
            if key not in known:
                known[key] = compiler.compile_kernel_text(text, target, opt_level=opt_level)
            objects.append(known[key])
        return objects

    compiler.compile_many = compile_many


# ---- inputs


def draw_inputs(module: Module, function: Function, random: Random) -> dict[str, Array]:
    """Arrays for a function, of sizes that its dimensions allow as far as it can be told."""
    sizes = _draw_sizes(module, function, random)
    generator = np.random.default_rng(random.randrange(2**32))
    kind = random.choice(data.KINDS)
    if any(op.name == "attention" for op in module.walk()) and kind == "edges":
        kind = "usual"  # its kernel scales the queries first, which may overflow
    inputs: dict[str, Array] = {}
    for arg in function.body.args:
        shape = tuple(max(0, as_expr(d).evaluate(sizes)) for d in arg.tensor.shape)
        if math.prod(shape) > LARGEST:
            raise TooLarge(f"an input of shape {shape}")
        if arg.tensor.dtype.is_integer and random.random() < 0.7:  # it may be an index
            inputs[arg.name] = data.indices(generator, arg.tensor.dtype, shape, 2, 0)
        else:
            inputs[arg.name] = data.draw(generator, arg.tensor.dtype, shape, kind)
    return inputs


def _draw_sizes(module: Module, function: Function, random: Random) -> dict[str, int]:
    names = {s for a in function.body.args for d in a.tensor.shape for s in as_expr(d).symbols()}
    sizes: dict[str, int] = {}
    for name in sorted(names):
        info = module.dims.get(name)
        low = max(0, info.smallest or 0) if info else 0
        high = info.largest if info and info.largest is not None else max(low, 6)
        sizes[name] = min(max(low, random.choice((1, 2, 3, 3, 4, 5))), high)
    return sizes


def check_size(module: Module, function: Function, inputs: Mapping[str, Array]) -> None:
    """Raises TooLarge where interpreting would take long."""
    sizes = _sizes_of(function, inputs)
    for op in function.body.walk():
        shapes = [_shape(v.type, sizes) for v in (*op.inputs, *op.results)]
        if any(math.prod(shape) > LARGEST for shape in shapes) or _work(op, shapes) > MOST_WORK:
            raise TooLarge(f"{op.name} of {shapes}")
    for kernel in module.kernels.values():
        extents = (as_expr(n) for _, n in kernel.grid)
        programs = math.prod(max(0, e.evaluate(_all(e, sizes))) for e in extents)
        if programs * _trips(kernel.body, sizes) > MOST_PROGRAMS:
            raise TooLarge(f"{programs} programs")


def _check_size(module: Module, function: Function, inputs: Mapping[str, Array]) -> None:
    """The same of composites, spelt out too."""
    check_size(module, function, inputs)
    if not module.kernels:
        whole, _ = decomposed(spelt(module))
        check_size(whole, whole.functions[function.name], inputs)


def _trips(block: Any, sizes: Mapping[str, int]) -> int:
    """How many iterations the loops of a kernel make, about."""
    total = 1
    for op in block:
        for inner in op.regions:
            span = as_expr(op.attributes["stop"]) - op.attributes.get("start", 0)
            step = max(1, op.attributes.get("step", 1))
            total += max(0, span.evaluate(_all(span, sizes))) // step * _trips(inner, sizes)
    return total


def _all(e: Expr, sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: sizes.get(name, 0) for name in e.symbols()}


def _sizes_of(function: Function, inputs: Mapping[str, Array]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for arg in function.body.args:
        for dim, size in zip(arg.tensor.shape, inputs[arg.name].shape, strict=True):
            if isinstance(dim, Expr):
                sizes.setdefault(str(dim), size)
    return sizes


def _shape(kind: Any, sizes: Mapping[str, int]) -> tuple[int, ...]:
    if not isinstance(kind, TensorType):
        return ()
    return tuple(max(0, e.evaluate(_all(e, sizes))) for e in map(as_expr, kind.shape))


def _work(op: Op, shapes: list[tuple[int, ...]]) -> int:
    """About how much an op multiplies."""
    if op.name in ("matmul", "gemm", "attention"):
        return math.prod(shapes[-1]) * max(shapes[0], default=1)
    if op.name == "conv":
        return math.prod(shapes[-1]) * math.prod(shapes[1][1:])
    if op.name in ("max_pool", "average_pool"):
        return math.prod(shapes[-1]) * math.prod(op.attributes["kernel"])
    return 0


# ---- comparing


def difference(
    module: Module, function: Function, inputs: Mapping[str, Array], wanted: Any, found: Any
) -> str:
    """Where outputs of kernels are wrong, in words; empty where they are right."""
    others = [_Moved.outputs(module, function, inputs, seed) for seed in range(12)]
    texts = ((n, loosely(a, found[n], [o[n] for o in others])) for n, a in wanted.items())
    return next((f"{name}{text}" for name, text in texts if text), "")


class _Moved(Run):
    """A run of kernels whose results show what is open.

    The memory that they write holds other numbers before, and the inputs are moved a little.
    """

    def fresh(self, kind: TensorType) -> Array:
        return np.full_like(super().fresh(kind), 1)

    @classmethod
    def outputs(
        cls, module: Module, function: Function, inputs: Mapping[str, Array], seed: int
    ) -> dict[str, Array]:
        generator = np.random.default_rng(seed)
        arrays = [_moved(inputs[arg.name], generator, seed) for arg in function.body.args]
        run = cls(module, bind_symbols(module, function, arrays))
        run.values.update(zip(function.body.args, arrays, strict=True))
        with np.errstate(all="ignore"):
            return dict(zip(function.output_names, run.block(function.body), strict=True))


def _moved(array: Array, generator: np.random.Generator, seed: int) -> Array:
    """Floats, each about as far away as their type can tell; for seed 0 as they are."""
    if seed == 0 or not dtype_of(array.dtype).is_float:
        return array
    step = generator.uniform(-1, 1, array.shape) * (1e-2 if array.dtype.itemsize == 2 else 1e-6)
    return np.asarray(array.astype(np.float64) * (1 + step)).astype(array.dtype)


def loosely(wanted: Array, found: Array, others: Sequence[Array]) -> str:
    """For results of kernels, which the interpreter computes with other roundings.

    What differs in other runs much is ill-conditioned, or nobody wrote it: there anything may lie.
    """
    if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
        return f" is {found.dtype}{found.shape}, not {wanted.dtype}{wanted.shape}"
    if not dtype_of(wanted.dtype).is_float:
        same = np.asarray(wanted == found)
        for other in others:
            same |= wanted != other
        return "" if same.all() else " differs"
    wide = [a.astype(np.float64) for a in (wanted, *others)]
    scale = float(np.abs(wide[0][np.isfinite(wide[0])]).max(initial=0.0))
    rough = 1e-2 if wanted.dtype.itemsize == 2 else 1e-4
    with np.errstate(all="ignore"):
        spread = np.max([np.abs(a - wide[0]) for a in wide], 0)
        limit = rough * np.abs(wide[0]) + rough * scale + 20 * spread
        same = _alike(wide[0], found.astype(np.float64), limit)
        for a in wide[1:]:
            same |= ~_alike(a, wide[0], 10 * rough * np.abs(wide[0]))
    return "" if same.all() else f" has {int((~same).sum())} wrong elements"


def _alike(a: Array, b: Array, limit: Array) -> Array:
    return np.asarray((np.abs(a - b) <= limit) | (a == b) | (np.isnan(a) & np.isnan(b)))


# ---- one mutant


Reader = Callable[[Path], Module]


def check_module(name: str, path: Path, read: Reader, random: Random) -> Outcome:
    """A mutated model in a file: refused, or compiled code and interpreter agree."""
    try:
        module = read(path)
        verify(module)
        BoundAccesses().run(module, PassContext())
    except UnsupportedError as error:
        return _clear(name, "unsupported", error)
    except TfcError as error:
        return _clear(name, "refused", error)
    level = random.choice((0, 3))
    try:
        bundle = path.with_suffix(".tfb")
        _compile(path, bundle, level)
    except TfcError as error:
        return _clear(name, "not compiled", error)
    return _check_runs(name, module, bundle, random)


def _clear(name: str, verdict: str, error: TfcError) -> Outcome:
    """An error is clear if it says something, and is not one of ours."""
    message = str(error)
    if not message.strip() or error.exit_code not in (2, 3):
        return Outcome(name, "error", f"{type(error).__name__}: {message}")
    return Outcome(name, verdict, message)


def _compile(path: Path, bundle: Path, level: int) -> None:
    from tfc.driver import compile as compile_model

    compile_model(path, bundle, opt_level=level)


def _check_runs(name: str, module: Module, bundle: Path, random: Random) -> Outcome:
    """Makes two rows of calls: of the module's functions, each row on a new state."""
    from tfc.runtime import load

    with load(bundle, threads=1, check="all") as loaded:
        verdicts = [_check_row(module, loaded, random) for _ in range(2)]
    wrong = [message for verdict, message in verdicts if verdict == "wrong"]
    return Outcome(name, "wrong", wrong[0]) if wrong else Outcome(name, *verdicts[0])


def _check_row(module: Module, bundle: Any, random: Random) -> tuple[str, str]:
    inputs: dict[str, dict[str, Array]] = {}
    try:
        for name in functions_of(module):
            function = module.functions[name]
            inputs[name] = draw_inputs(module, function, random)
            _check_size(module, function, inputs[name])
        if not module.kernels:
            return check_calls(module, bundle, inputs)
    except TooLarge as error:
        return "large", str(error)
    verdicts = [_check_run(module, module.functions[n], bundle, a) for n, a in inputs.items()]
    return next((v for v in verdicts if v[0] == "wrong"), verdicts[0])


def _check_run(
    module: Module, function: Function, bundle: Any, inputs: Mapping[str, Array]
) -> tuple[str, str]:
    """Of a function with kernels."""
    from tfc.interpret import interpret
    from tfc.runtime.errors import InputError, RunError

    stopped = ""
    wanted: dict[str, Array] = {}
    try:
        wanted = interpret(module, inputs, function.name)
    except TfcError as error:
        stopped = str(error)
    try:
        found = bundle.functions[function.name].run(inputs)
    except (InputError, RunError) as error:
        same = bool(stopped)
        return ("stopped", stopped) if same else ("wrong", f"it stops: {error}")
    if stopped:
        return "wrong", f"it does not stop, but: {stopped}"
    text = difference(module, function, inputs, wanted, found)
    return ("wrong", text) if text else ("right", "")
