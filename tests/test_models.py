"""Real models against ONNX Runtime, which takes minutes: `pytest -m slow tests/test_models.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfc
from tests.models import LIGHT, MINILM, inputs, model

TOLERANCE = 1e-3  # of the output's scale
SHAPES = [(b, n) for b in (1, 2, 5) for n in (7, 64, 130)]

pytestmark = pytest.mark.slow


def session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def check(bundle: tfc.Bundle, theirs: Any, feed: dict[str, Any]) -> None:
    """Every output has the name, dtype, shape and (nearly) the values of ONNX Runtime's."""
    got = bundle.run(feed)
    names = [o.name for o in theirs.get_outputs()]
    assert list(got) == names
    for name, expected in zip(names, theirs.run(None, feed), strict=True):
        assert got[name].dtype == expected.dtype
        assert got[name].shape == expected.shape
        error = np.abs(got[name].astype(np.float64) - expected).max()
        assert error <= TOLERANCE * np.abs(expected).max(), name


@pytest.mark.parametrize("target", ["host", "x86-64-v2"])
@pytest.mark.parametrize("name", LIGHT)
def test_images(name: str, target: str, tmp_path: Path) -> None:
    tfc.compile(model(name), tmp_path / "m.tfb", target=target)
    with tfc.load(tmp_path / "m.tfb") as bundle:
        check(bundle, session(model(name)), inputs(name))


@pytest.mark.parametrize("target", ["host", "x86-64-v3"])
def test_sentences_of_any_length(target: str, tmp_path: Path) -> None:
    tfc.compile(model(MINILM), tmp_path / "m.tfb", target=target)
    theirs = session(model(MINILM))
    with tfc.load(tmp_path / "m.tfb") as bundle:
        for batch, length in SHAPES:
            check(bundle, theirs, inputs(MINILM, batch, length, seed=batch * length))
        with pytest.raises(tfc.InputError, match="512"):
            bundle.run(inputs(MINILM, 1, 513))


def test_the_same_bytes_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "model.onnx").write_bytes(model("squeezenet").read_bytes())
        monkeypatch.setenv("TFC_CACHE_DIR", str(folder / "cache"))
        tfc.compile(folder / "model.onnx", folder / "m.tfb")
        written.append((folder / "m.tfb").read_bytes())
    assert written[0] == written[1]
