"""A process that compiles: takes LLVM texts on its input, gives objects on its output.

Messages are a length of 8 bytes and JSON: {"target", "opt_level", "text"}. Answers are a length,
then a byte (0: an object, 1: an error's text) and the content. See `pool`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import BinaryIO

from tfc.backends.llvm.compile import compile_kernel_text
from tfc.targets import resolve


def read_message(stream: BinaryIO) -> bytes | None:
    """The next message; None at the end."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    body = stream.read(size)
    return body if len(body) == size else None


def write_message(stream: BinaryIO, body: bytes) -> None:
    stream.write(len(body).to_bytes(8, "little"))
    stream.write(body)
    stream.flush()


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints gets between the answers
    while (message := read_message(sys.stdin.buffer)) is not None:
        task = json.loads(message)
        try:
            made = compile_kernel_text(
                task["text"], resolve(task["target"]), opt_level=task["opt_level"]
            )
            write_message(answers, b"\0" + made)
        except (RuntimeError, AssertionError) as error:
            write_message(answers, b"\1" + str(error).encode())
