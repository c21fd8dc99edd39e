"""Trains a bundle of this folder on digits: `python train.py mlp.tfb run`, and again to go on.

Gradients, updates, variables, the queue that shuffles the digits and the checkpoints are in the
bundle, whose files lie in the folder `run`. Of the 360 digits beside 01_digits the last 60 are held
out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import tfc

DIGITS = Path(__file__).parent.parent / "01_digits"
STEPS_OF_CHECKPOINT, HELD_OUT = 20, 60


def main(bundle: str, folder: Path, steps: int) -> None:
    images, labels = (np.load(DIGITS / f"{name}.npy") for name in ("images", "labels"))
    folder.mkdir(exist_ok=True)
    np.save(folder / "images.npy", images[:-HELD_OUT])
    np.save(folder / "labels.npy", labels[:-HELD_OUT])
    functions = tfc.load(bundle, folder=folder).functions
    names = ("start", "train_step", "save", "predict")
    start, train_step, save, predict = (functions[name] for name in names)
    (step,) = start()
    if step:
        print(f"goes on from step {step}")
    while step < steps:
        loss, step = train_step()
        if step % STEPS_OF_CHECKPOINT == 0:
            save()
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.4f}")
    (digits,) = predict(images[-HELD_OUT:])
    right = int((digits == labels[-HELD_OUT:]).sum())
    print(f"{right} of {HELD_OUT} held-out digits")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains a bundle on digits.")
    parser.add_argument("bundle")
    parser.add_argument("folder", type=Path, help="of digits and checkpoints")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    main(options.bundle, options.folder, options.steps)
