"""Trains a bundle of this folder on the digits beside 01_digits: `python train.py mlp.tfb`.

It only feeds batches: gradients, updates and variables are in the bundle. Of the 360 digits the
last 60 are held out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tfc

DIGITS = Path(__file__).parent.parent / "01_digits"
STEPS, BATCH, RATE, HELD_OUT = 200, 32, np.float32(0.3), 60


def main(path: str) -> None:
    images = np.load(DIGITS / "images.npy").reshape(-1, 64).astype(np.float32) / 16
    labels = np.load(DIGITS / "labels.npy").astype(np.int64)[:, None]
    bundle = tfc.load(path)
    init, train_step, predict = (bundle.functions[n] for n in ("init", "train_step", "predict"))
    init()
    generator = np.random.default_rng(0)
    for step in range(STEPS):
        chosen = generator.integers(0, len(images) - HELD_OUT, BATCH)
        (loss,) = train_step(images[chosen], labels[chosen], RATE)
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.4f}")
    (digits,) = predict(images[-HELD_OUT:])
    right = int((digits == labels[-HELD_OUT:, 0]).sum())
    print(f"{right} of {HELD_OUT} held-out digits")


if __name__ == "__main__":
    main(sys.argv[1])
