"""Mutants of bundles: damaged bytes, and an index or manifest that is damaged but hashed anew.

With `check="all"` a damaged bundle is refused, or what it computes is right; with the default check
weights may be wrong, but nothing crashes. A forged index is the work of someone who could as well
have written other code, so such a bundle is opened, but run only where its index says what it said.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.farm import Outcome
from tests.fuzz.mutations import mutate_bytes
from tests.runtime import forge

Array = np.ndarray[Any, Any]

STATIC = """
module {
  func @main(%x: tensor<3x8xf32>, %i: tensor<4xi64>) -> (%y: tensor<3x4xf32>, %z: tensor<4x8xf32>) {
    %w = constant {value = dense<WEIGHTS>} : tensor<8x4xf32>
    %m = matmul(%x, %w) : tensor<3x4xf32>
    %y = softmax(%m) {axis = 1} : tensor<3x4xf32>
    %z = gather(%x, %i) {axis = 0} : tensor<4x8xf32>
    return %y, %z
  }
}
"""
SYMBOLIC = """
module {
  dim B = "batch" in 1..64
  dim S = "sequence"
  func @main(%x: tensor<BxSx4xf32>) -> (%y: tensor<Bx4xf32>, %z: tensor<BxSx4xf32>) {
    %t = constant {value = dense<WEIGHTS>} : tensor<8x4xf32>
    %i = constant {value = dense<[7, 0, 3]>} : tensor<3xi64>
    %r = gather(%t, %i) {axis = 0} : tensor<3x4xf32>
    %s = reduce_sum(%r) {axes = [0], keepdims = true} : tensor<1x4xf32>
    %e = exp(%x) : tensor<BxSx4xf32>
    %z = mul(%e, %s) : tensor<BxSx4xf32>
    %y = reduce_max(%z) {axes = [1], keepdims = false} : tensor<Bx4xf32>
    return %y, %z
  }
  func @other(%x: tensor<Sxi32>) -> (%y: tensor<(2*S)xi32>) {
    %y = concat(%x, %x) {axis = 0} : tensor<(2*S)xi32>
    return %y
  }
}
"""


def _inputs() -> dict[str, dict[str, Array]]:
    generator = np.random.default_rng(0)
    return {
        "static": {
            "x": generator.normal(size=(3, 8)).astype(np.float32),
            "i": np.array([2, -1, 0, 1]),
        },
        "symbolic": {"x": generator.normal(size=(2, 5, 4)).astype(np.float32)},
    }


INPUTS = _inputs()


@cache
def seeds() -> dict[str, tuple[bytes, dict[str, Array]]]:
    """The bytes of each bundle, and its outputs."""
    from tfc.driver import compile as compile_model
    from tfc.runtime import load

    numbers = np.random.default_rng(1).normal(size=(8, 4)).round(3).tolist()
    found: dict[str, tuple[bytes, dict[str, Array]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("static", STATIC), ("symbolic", SYMBOLIC)):
            path = Path(folder) / f"{name}.tfc"
            path.write_text(text.replace("WEIGHTS", str(numbers)))
            bundle = path.with_suffix(".tfb")
            targets = ["host", "x86-64-v2"] if name == "symbolic" else ["host"]
            compile_model(path, bundle, target=targets)
            data = bundle.read_bytes()
            found[name] = data, load(data, threads=1).run(INPUTS[name])
    return found


def make(seed: int, number: int) -> tuple[str, bytes]:
    random = Random(f"tfb {seed} {number}")
    name = random.choice(sorted(seeds()))
    data = seeds()[name][0]
    match random.randrange(4):
        case 0:
            index = mutate_bytes(forge.index_bytes(data), random)
            return f"{name}, index", forge.with_index(data, index)
        case 1:
            _, extent = forge.extents(data)
            manifest = data[extent.offset : extent.offset + extent.size]
            return f"{name}, manifest", forge.with_manifest(data, mutate_bytes(manifest, random))
        case 2:  # near the end, where the directory is
            start = max(0, len(data) - 4096)
            return f"{name}, end", data[:start] + mutate_bytes(data[start:], random)
        case _:
            return f"{name}, bytes", mutate_bytes(data, random)


def check(name: str, path: Path, number: int) -> Outcome:
    from tfc.runtime import BundleError

    origin = name.partition("(")[2].rstrip(")")
    kind, place = origin.split(", ")
    whole, outputs = seeds()[kind]
    data = path.read_bytes()
    trusted = place != "index" or forge.index_bytes(data) == forge.index_bytes(whole)
    source = data if number % 2 else path
    try:
        found = _run(source, INPUTS[kind], trusted, check="all")
    except BundleError as error:
        if not str(error):
            return Outcome(name, "error", "an error without a message")
        _try(source, INPUTS[kind], trusted)
        return Outcome(name, "refused", str(error))
    _try(source, INPUTS[kind], trusted)
    if found is None:
        return Outcome(name, "opened")
    for key, array in outputs.items():
        if not np.array_equal(found[key], array):
            return Outcome(name, "wrong", f"{key} differs")
    return Outcome(name, "right")


def _run(source: Any, inputs: dict[str, Array], trusted: bool, **options: Any) -> Any:
    """The outputs; nothing where the bundle is opened only."""
    from tfc.runtime import load

    with load(source, threads=1, **options) as bundle:
        assert repr(bundle) and isinstance(bundle.manifest, dict)
        return bundle.run(inputs) if trusted else None


def _try(source: Any, inputs: dict[str, Array], trusted: bool) -> None:
    """With the default check it runs or is refused; what it computes may be wrong."""
    from contextlib import suppress

    from tfc.runtime import LoaderError

    with suppress(LoaderError):
        _run(source, inputs, trusted)
