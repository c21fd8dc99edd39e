"""A small bundle with hand-written code, for tests of writer and loaders."""

from __future__ import annotations

import platform
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tfc.bundle import BundleSpec, CodeSpec, FunctionInfo, SymbolInfo, TensorInfo, Weight, write
from tfc.bundle_link import RUNTIME, compile_support, link, zig_binary

BIAS = np.array([0.5, -1.0, 2.0, 8.0], np.float32)
MACHINE = {"x86_64": "x86_64", "aarch64": "aarch64"}[platform.machine()]

MAIN = FunctionInfo(
    "main",
    (
        TensorInfo("x", "f32", ("B", 4)),
        TensorInfo("y", "f32", ("B", 4)),
        TensorInfo("pick", "i64", ()),
    ),
    (TensorInfo("sum", "f32", ("B", 4)), TensorInfo("row", "f32", (4,))),
    (SymbolInfo("batch_size", "B", 1, 1000),),
)
MEMORY = TensorInfo("memory", "f32", (2, 3))
TURN = FunctionInfo(
    "turn",
    (TensorInfo("v", "bf16", ("N",)),),
    (TensorInfo("w", "bf16", ("N",)),),
    (SymbolInfo("N", "N"),),
)


@cache
def code(machine: str = MACHINE, source: str = "stand_in.c") -> bytes:
    """A C file of this folder in place of generated code, linked with the support objects."""
    triple = f"{machine}-linux-gnu"
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "generated.o"
        compile_c(Path(__file__).with_name(source), result, triple)
        return link([result.read_bytes(), *compile_support(triple)])


def compile_c(source: Path, result: Path, triple: str) -> None:
    flags = ("-c", "-O2", "-fPIC", "-fvisibility=hidden", "-g0", "-Wall", "-Werror")
    command = [zig_binary(), "cc", *flags, "-target", triple, f"-I{RUNTIME}"]
    subprocess.run([*command, str(source), "-o", str(result)], check=True)


def spec(**changes: Any) -> BundleSpec:
    """The stand-in's spec, with 64 KiB of weights of which the code uses the first four."""
    tail = np.arange(1 << 14, dtype=np.int32)
    fields: dict[str, Any] = {
        "functions": (MAIN, TURN),
        "code": {"baseline": CodeSpec(code())},
        "weights": (
            Weight(0, BIAS.nbytes, lambda: BIAS),
            Weight(4096, tail.nbytes, lambda: tail),
        ),
        "variables": (MEMORY,),
        "license": "Use it as you like.\n",
        "manifest": {"tools": {"tfc": "0.1.0"}},
    }
    return BundleSpec(**{**fields, **changes})


@cache
def bundle_bytes() -> bytes:
    return written(spec())


def written(made: BundleSpec) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tfb"
        write(path, made)
        return path.read_bytes()


def inputs(rows: int = 3, pick: int = 1) -> dict[str, Any]:
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    return {"x": x, "y": x * 10, "pick": np.int64(pick)}


def expected_sum(values: dict[str, Any]) -> np.ndarray:
    return values["x"] + values["y"] + BIAS
