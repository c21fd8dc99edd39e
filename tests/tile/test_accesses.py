"""What is proved of accesses holds: no proved access leaves its buffer when the kernel runs."""

from __future__ import annotations

import re

import pytest

from tests.fuzz.mutants_tfc import lowered
from tests.fuzz.mutations import mutate_text
from tfc.ir.core import Kernel, Module
from tfc.ir.errors import TfcError
from tfc.ir.expr import as_expr
from tfc.ir.verifier import verify
from tfc.text.parse import parse_module
from tfc.tile.accesses import accesses, check_form, is_inside
from tfc.tile.interpret import kernel_symbols, run_kernel


def kernel_of(body: str, head: str = "grid(p0 = 3)") -> Kernel:
    buffers = "%x: buffer<30xf32>, %y: buffer<30xf32, out>"
    return parse_module(f"kernel @k({buffers}) {head} {{\n{body}\n}}").kernels["k"]


def proofs(kernel: Kernel) -> list[bool]:
    return [is_inside(access) for access in accesses(kernel)]


def load(at: str, where: str = "", tile: str = "1x10") -> str:
    bounds = f", where = [{where}]" if where else ""
    return f"%0 = load(%x) {{at = ({at}){bounds}}} : tile<{tile}xf32>"


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (load("c+10*p0"), True),
        (load("c+10*p0+1"), False),
        (load("c-1"), False),
        (load("c+10*p0+1", "0, (c+10*p0), 29"), True),
        (load("c+10*p0+1", "0, (c+10*p0), 30"), False),
        (load("2*c+20*p0", "0, (2*c+20*p0), 30"), True),
        (load("2*c+20*p0", "0, (3*c+30*p0), 45"), False),  # it holds, but is not seen
        (load("mod(c+7*p0,30)"), True),
        (load("30-c"), False),
        (load("10*r+c", "0, (r+2*p0), 3", "9x10"), True),
        (load("10*r+c", "0, (r), 4", "9x10"), False),
        (load("c+29", "0, (c), 1"), True),
    ],
)
def test_bounds(text: str, inside: bool) -> None:
    assert proofs(kernel_of(text)) == [inside]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (load("floordiv(c,p0-3)"), "a divisor must be positive"),
        (load("99999999999999*c"), "too large"),
        (load("min(c-5,0)*p0"), "the factor .* may be negative"),
        ('for {index = "i0", start = -1, stop = 3} do {\nnext\n}', "may be negative"),
        (load("c", "", "9999x9999"), "the largest"),
    ],
)
def test_what_nothing_can_be_proved_about(text: str, message: str) -> None:
    with pytest.raises(TfcError, match=message):
        check_form(kernel_of(text))


def test_every_kernel_that_is_built_is_proved() -> None:
    kernels = [(n, k) for n, text in lowered() for k in parse_module(text).kernels.values()]
    assert len(kernels) > 20
    assert not [name for name, kernel in kernels if not all(proofs(kernel))]


def test_proved_accesses_of_mutants_stay_inside() -> None:
    """Where all accesses of a mutated kernel are proved, running it reaches nothing outside."""
    from random import Random

    random, ran = Random(5), 0
    texts = [text for _, text in lowered() if "kernel @" in text]
    for _ in range(1500):
        module = mutated(random.choice(texts), random)
        for kernel in module.kernels.values() if module else ():
            if all(proofs(kernel)) and small(kernel):
                run(kernel)
                ran += 1
    assert ran > 100


def mutated(text: str, random: object) -> Module | None:
    """A text with other numbers in its kernels, if it is a module that proofs are sound for."""
    try:
        module = parse_module(mutate_text(text, random))  # type: ignore[arg-type]
        verify(module)
        for kernel in module.kernels.values():
            check_form(kernel)
    except TfcError:
        return None
    return module


def small(kernel: Kernel) -> bool:
    sizes = dict.fromkeys(kernel_symbols(kernel), 3)
    extents = [as_expr(n).evaluate(sizes) for _, n in kernel.grid]
    elements = [as_expr(a.buffer.elements).evaluate(sizes) for a in kernel.body.args]
    trips = [
        as_expr(stop).constant or 3
        for op in kernel.body.walk()
        if (stop := op.attributes.get("stop")) is not None
    ]
    return all(0 <= n <= 5000 for n in elements) and all(abs(n) < 8 for n in (*extents, *trips))


def run(kernel: Kernel) -> None:
    """Runs it with symbols of 0 to 3, and indices that may be wrong."""
    import numpy as np

    for size in (0, 1, 3):
        sizes = dict.fromkeys(kernel_symbols(kernel), size)
        buffers = [
            np.ones(as_expr(a.buffer.elements).evaluate(sizes), a.buffer.dtype.numpy)
            for a in kernel.body.args
        ]
        try:
            run_kernel(kernel, buffers, sizes)
        except TfcError as error:
            assert re.search("index .* is out of range", str(error)), f"{error}\n{kernel}"
