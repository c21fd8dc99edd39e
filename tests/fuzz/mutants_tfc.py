"""Mutants of texts: of every op's example, of a module with every form, and of lowered modules."""

from __future__ import annotations

import re
import textwrap
from functools import cache
from pathlib import Path
from random import Random

import tfc.ops
import tfc.tile.ops
from tests.farm import Outcome
from tests.fuzz.mutants import check_module, compile_here
from tests.fuzz.mutations import mutate_bytes, mutate_text
from tfc.ir.core import OPS
from tfc.ir.errors import TfcError

assert tfc.ops and tfc.tile.ops

ROOT = Path(__file__).resolve().parents[2]
LOWERED = (
    *("matmul", "softmax", "layer_norm", "conv", "max_pool", "gelu", "concat", "cumsum", "gather"),
    *("attention", "reduce_sum", "argmax", "pad", "transpose", "where", "one_hot", "trilu"),
)
"""Ops whose examples are mutated as groups and as kernels too."""


@cache
def graphs() -> list[tuple[str, str]]:
    """Where each text of the graph level is from, and the text."""
    files = sorted((*ROOT.glob("examples/*/*.tfc"), ROOT / "tests/text/round_trip.tfc"))
    found = [(name, text) for name in sorted(OPS) if (text := _example(name))]
    return found + [(str(path.relative_to(ROOT)), path.read_text()) for path in files]


@cache
def lowered() -> list[tuple[str, str]]:
    """The same of groups and of kernels."""
    return [(f"{name}, {s}", text) for name in LOWERED for s, text in _lowered(_example(name))]


def _example(name: str) -> str:
    kind = OPS[name]
    found = re.search(r"```mlir\n(.*?)```", kind.__doc__ or "", re.DOTALL)
    if not found or not kind.__module__.startswith("tfc."):
        return ""
    return f"module {{\n{textwrap.dedent(found[1])}}}\n"


def _lowered(text: str) -> list[tuple[str, str]]:
    """The text after fusion, and as kernels; with known sizes and with unknown ones."""
    from tfc.passes.base import PassContext
    from tfc.passes.pipeline_text import parse_pipeline
    from tfc.passes.pipelines import KERNELS, LEVELS
    from tfc.targets import resolve
    from tfc.text.parse import parse_module
    from tfc.text.print import print_module

    found: list[tuple[str, str]] = []
    for sizes in (None, "B:2+S:5+N:1+T:3+C:4+H:5+W:6+K:3"):
        module = parse_module(text)
        pipeline = [*LEVELS[3], *KERNELS]
        if sizes:
            known = {
                str(s) for a in module.main.body.args for d in a.tensor.shape for s in _symbols(d)
            }
            bound = [part for part in sizes.split("+") if part[0] in known]
            if not bound:
                break
            pipeline.insert(0, f"bind-dims{{dims={'+'.join(bound)}}}")
        for entry in pipeline:
            (transform,) = parse_pipeline(entry)
            transform.run(module, PassContext(target=resolve("host")))
            if entry.startswith(("fusion", "schedule")) or entry == pipeline[-1]:
                found.append((entry, print_module(module)))
    return found


def _symbols(dim: object) -> list[str]:
    from tfc.ir.expr import as_expr

    return as_expr(dim).symbols()  # type: ignore[arg-type]


def make(seed: int, number: int) -> tuple[str, bytes]:
    random = Random(f"tfc {seed} {number}")
    origin, text = random.choice(graphs() if random.random() < 0.5 else lowered())
    if random.random() < 0.1:
        return origin, mutate_bytes(text.encode(), random)
    return origin, mutate_text(text, random, sorted(OPS)).encode()


def check(name: str, path: Path, number: int) -> Outcome:
    from tfc.text.parse import parse_file, parse_module
    from tfc.text.print import print_module

    compile_here()
    outcome = check_module(name, path, parse_file, Random(number))
    if outcome.verdict in ("right", "stopped", "large", "not compiled"):
        module = parse_file(path)
        printed = print_module(module)
        try:
            again = print_module(parse_module(printed, weights=module.weights))
        except TfcError as error:
            return Outcome(name, "wrong", f"its own text is refused: {error}")
        if again != printed:
            return Outcome(name, "wrong", "it is another text when printed and parsed")
    return outcome
