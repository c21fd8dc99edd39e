"""Trains a bundle of examples/08_training in children that are killed at random moments.

python -m tests.resume_training BUNDLE FOLDER SEED KILLS prints what the children came to, as JSON:
the steps of the checkpoints that they left, and losses and variables, bit by bit, of theirs and of
a process that nobody interrupts. FOLDER holds the digits. The processes know the loader only.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tfc.runtime import load

STEPS_OF_CHECKPOINT = 5
MORE = 7  # steps that follow the last checkpoint of a child that was killed
RECORD = struct.Struct("<q4s")  # a step and its loss

Tell = Callable[[int, bytes], object]


def train(bundle: str, folder: Path, steps: int, tell: Tell) -> dict[str, str]:
    """Goes on from the newest checkpoint until so many steps are done; the variables at the end.

    Calls `tell` with the number and the loss of each step.
    """
    opened = load(bundle, folder=folder, threads=1)
    start, train_step, save = (opened.functions[n] for n in ("start", "train_step", "save"))
    (step,) = start()
    while step < steps:
        loss, step = train_step()
        tell(int(step), loss.tobytes())
        if step % STEPS_OF_CHECKPOINT == 0:
            save()
    return {n: "" if a is None else a.tobytes().hex() for n, a in opened.state.variables.items()}


def killed(bundle: str, folder: Path, steps: int, seconds: float) -> list[tuple[int, bytes]]:
    """Trains in a child that is killed so long after so many steps; the losses that it told."""
    told, tells = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(told)
            train(bundle, folder, 1 << 30, lambda *what: os.write(tells, RECORD.pack(*what)))
        finally:
            os._exit(3)  # it has failed
    os.close(tells)
    found = b"".join(os.read(told, RECORD.size) for _ in range(steps))
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(told, "rb") as rest:
        found += rest.read()
    assert os.WIFSIGNALED(status), "the child ended by itself"
    return list(RECORD.iter_unpack(found))


def newest(folder: Path) -> int:
    """The step of the newest checkpoint, 0 where there is none."""
    names = [p.stem for p in folder.glob("*.safetensors")]
    return max((int(name.rpartition("-")[2]) for name in names), default=0)


def without_checkpoints(folder: Path, other: Path) -> Path:
    """A copy of the files that a bundle begins with."""
    ignored = shutil.ignore_patterns("*.safetensors*")
    return Path(shutil.copytree(folder, other, ignore=ignored))


def main(bundle: str, folder: Path, seed: int, kills: int) -> None:
    choose = random.Random(seed)
    steps, losses = [newest(folder)], dict[int, set[bytes]]()

    def tell(step: int, loss: bytes) -> None:
        losses.setdefault(step, set()).add(loss)

    for _ in range(kills):
        begun = choose.choice((0, choose.randint(1, 30), choose.randint(1, 30)))  # 0: it starts
        seconds = choose.choice((0.001, 0.01, 0.05)) * choose.random()
        for record in killed(bundle, folder, begun, seconds):
            tell(*record)
        steps.append(newest(folder))
    last = max(steps[-1] + MORE, *losses)
    resumed = train(bundle, folder, last, tell)
    once = dict[int, bytes]()
    whole = train(bundle, without_checkpoints(folder, folder / "whole"), last, once.__setitem__)
    print(
        json.dumps(
            {
                "steps": steps,
                "resumed": resumed,
                "whole": whole,
                "losses": {step: sorted(b.hex() for b in found) for step, found in losses.items()},
                "once": {step: [loss.hex()] for step, loss in once.items()},
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
