"""Compiles texts in worker processes, several at a time, through the cache.

The workers are plain child processes: nothing of the caller's main module runs in them, LLVM's
process-wide options stay out of the caller, and a crash of LLVM becomes an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from types import TracebackType
from typing import BinaryIO, Self, cast

from tfc.backends.llvm.cache import Cache, key_of
from tfc.backends.llvm.worker import read_message, write_message
from tfc.targets import Target

_START = "from tfc.backends.llvm.worker import main; main()"


class CompileError(Exception):
    """LLVM refused or crashed: a mistake of ours, never of the user."""


class _Worker:
    """One child process."""

    def __init__(self) -> None:
        path = f"import sys; sys.path[:] = {[p or os.getcwd() for p in sys.path]!r}; "
        self._process = subprocess.Popen(
            [sys.executable, "-c", path + _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def compile(self, message: bytes) -> bytes:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            write_message(cast(BinaryIO, self._process.stdin), message)
            answer = read_message(cast(BinaryIO, self._process.stdout))
        except BrokenPipeError:
            answer = None
        if answer is None:
            raise CompileError(f"LLVM stopped with status {self._process.wait()}")
        if answer[:1] != b"\0":
            raise CompileError(answer[1:].decode())
        return answer[1:]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


class CompilePool:
    """Worker processes, which start when first needed and stay until the pool closes."""

    def __init__(self, workers: int | None = None, cache: Cache | None = None) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self.cache = cache if cache is not None else Cache.default()
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            for worker in self._idle:
                worker.close()
            self._idle.clear()

    def compile(
        self,
        texts: Sequence[str],
        target: Target,
        *,
        opt_level: int = 3,
        progress: Callable[[int, int], None] | None = None,
    ) -> list[bytes]:
        """The object of each text, in order; equal texts are compiled once.

        `progress(done, all)` is called from the calling thread. Raises CompileError.
        """
        keys = [_key(text, target, opt_level) for text in texts]
        made = {key: self.cache.get(key) for key in dict.fromkeys(keys)}
        missing = {k: t for k, t in zip(keys, texts, strict=True) if made[k] is None}
        done = len(made) - len(missing)
        report = progress or _no_report
        report(done, len(made))
        # The longest first, so that none of them is left alone at the end.
        order = sorted(missing, key=lambda key: (-len(missing[key]), key))
        with ThreadPoolExecutor(max(1, min(self.workers, len(order)))) as threads:
            messages = [_message(missing[key], target, opt_level) for key in order]
            for key, code in zip(order, threads.map(self._compile, messages), strict=True):
                self.cache.put(key, code)
                made[key] = code
                done += 1
                report(done, len(made))
        return [code for key in keys if (code := made[key]) is not None]

    def _compile(self, message: bytes) -> bytes:
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        worker = worker or _Worker()
        try:
            return worker.compile(message)
        finally:
            if worker.alive:
                with self._lock:
                    self._idle.append(worker)
            else:
                worker.close()


def _no_report(done: int, count: int) -> None:
    """For a caller that does not ask."""


def _message(text: str, target: Target, opt_level: int) -> bytes:
    return json.dumps({"text": text, "target": target.name, "opt_level": opt_level}).encode()


def _key(text: str, target: Target, opt_level: int) -> str:
    """llvmlite pins LLVM; its version is read without loading it."""
    return key_of(text, repr(target), str(opt_level), f"llvmlite {version('llvmlite')}")
