"""The thread pool: every index once, whoever calls and from wherever, also in a forked child."""

from __future__ import annotations

import os
import re
import threading
import time
from functools import cache
from typing import Any

import pytest

import tfc.runtime
from tests.runtime import stand_in
from tfc.bundle import CodeSpec, FunctionInfo, TensorInfo

PARALLEL = len(os.sched_getaffinity(0)) > 1


def scalar(name: str) -> TensorInfo:
    return TensorInfo(name, "i64", ())


@cache
def bundle_bytes() -> bytes:
    counts = (scalar("n"), scalar("loops"))
    signatures = (
        *(("total", counts), ("nested", counts), ("meet", ())),
        *(("overhead", counts), ("guarded", counts)),
    )
    functions = tuple(FunctionInfo(name, ins, (scalar("out"),)) for name, ins in signatures)
    code = {"baseline": CodeSpec(stand_in.code(source="pool_check.c"))}
    return stand_in.written(stand_in.spec(functions=functions, code=code, variables=()))


def call(bundle: tfc.runtime.Bundle, name: str, *arguments: int) -> int:
    (result,) = bundle.functions[name](*arguments)
    return int(result)


@pytest.mark.parametrize("threads", [1, 2, 3, 16, None])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 1000])
def test_each_index_runs_once(threads: int | None, n: int) -> None:
    with tfc.runtime.load(bundle_bytes(), threads=threads) as bundle:
        assert call(bundle, "total", n, 200) == 200 * n * (n + 1) // 2


def test_a_loop_inside_a_loop_runs_too() -> None:
    with tfc.runtime.load(bundle_bytes(), threads=3) as bundle:
        assert call(bundle, "nested", 50, 40) == 40 * 50 * 51 // 2


@pytest.mark.skipif(not PARALLEL, reason="one processor only")
def test_two_threads_are_inside_one_loop() -> None:
    with tfc.runtime.load(bundle_bytes(), threads=2) as bundle:
        assert call(bundle, "meet") == 2


def test_one_thread_stays_alone() -> None:
    with tfc.runtime.load(bundle_bytes(), threads=1) as bundle:
        before = threading.active_count(), len(os.listdir("/proc/self/task"))
        assert call(bundle, "total", 100, 10) == 10 * 5050
        assert before == (threading.active_count(), len(os.listdir("/proc/self/task")))


def test_callers_at_the_same_time() -> None:
    with tfc.runtime.load(bundle_bytes(), threads=4) as bundle:
        wrong: list[int] = []

        def repeat() -> None:
            for _ in range(20):
                if call(bundle, "total", 100, 100) != 100 * 5050:
                    wrong.append(1)

        callers = [threading.Thread(target=repeat) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert not wrong


def test_a_forked_child_starts_its_own_workers() -> None:
    with tfc.runtime.load(bundle_bytes(), threads=2) as bundle:
        assert call(bundle, "total", 100, 10) == 10 * 5050
        assert in_child(lambda: call(bundle, "total", 100, 1000)) == 1000 * 5050
        if PARALLEL:
            assert in_child(lambda: call(bundle, "meet")) == 2
        assert call(bundle, "total", 100, 10) == 10 * 5050


def test_a_fork_amid_loops_of_other_threads() -> None:
    with tfc.runtime.load(bundle_bytes(), threads=2) as bundle:
        stop = threading.Event()

        def keep_busy() -> None:
            while not stop.is_set():
                call(bundle, "total", 64, 100)

        busy = threading.Thread(target=keep_busy)
        busy.start()
        try:
            for _ in range(10):
                assert in_child(lambda: call(bundle, "total", 100, 10)) == 10 * 5050
        finally:
            stop.set()
            busy.join()


def in_child(compute: Any) -> int:
    """What `compute` returns in a forked child; fails where the child hangs or dies."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(send, str(compute()).encode())
        finally:
            os._exit(0)
    os.close(send)
    try:
        return int(read_within(receive, seconds=20))
    finally:
        os.close(receive)
        os.kill(child, 9)
        os.waitpid(child, 0)


def read_within(descriptor: int, seconds: float) -> bytes:
    import select

    ready, _, _ = select.select([descriptor], [], [], seconds)
    assert ready, "the child hangs"
    return os.read(descriptor, 100)


@pytest.mark.parametrize("threads", [1, 4])
def test_one_error_of_many_programs_is_reported(threads: int) -> None:
    with tfc.runtime.load(bundle_bytes(), threads=threads) as bundle:
        for _ in range(100):
            with pytest.raises(tfc.runtime.RunError) as caught:
                call(bundle, "guarded", 1000, 10)
            said = re.fullmatch(
                r"the node: index (\d+) along axis 2 is out of range; it must lie in 0\.\.9",
                str(caught.value),
            )
            assert said and 10 <= int(said[1]) < 1000
            assert call(bundle, "guarded", 1000, 1000) == 0


def test_idle_workers_sleep() -> None:
    with tfc.runtime.load(bundle_bytes(), threads=4) as bundle:
        call(bundle, "total", 1000, 100)
        time.sleep(0.01)
        before = time.process_time()
        time.sleep(0.1)
        assert time.process_time() - before < 0.02


def test_bundles_share_the_threads() -> None:
    with (
        tfc.runtime.load(bundle_bytes(), threads=3) as first,
        tfc.runtime.load(bundle_bytes(), threads=3) as second,
    ):
        call(first, "total", 1000, 10)
        before = len(os.listdir("/proc/self/task"))
        call(second, "total", 1000, 10)
        assert len(os.listdir("/proc/self/task")) == before


def test_threads_outlive_the_bundle_that_started_them() -> None:
    tfc.runtime.load(bundle_bytes(), threads=2).close()
    with tfc.runtime.load(bundle_bytes(), threads=2) as bundle:
        assert call(bundle, "total", 100, 100) == 100 * 5050


@pytest.mark.skipif(not PARALLEL, reason="one processor only")
def test_joining_two_threads_costs_microseconds_at_most() -> None:
    """0.4 us on the machine where it was written; the bound leaves room for a busy one."""
    with tfc.runtime.load(bundle_bytes(), threads=2) as bundle:
        assert call(bundle, "overhead", 2, 200) < 2000


def test_the_default_is_the_affinity() -> None:
    """One allowed processor means one thread: in a child, since affinity changes stay."""

    def count_in_child() -> int:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        script = (
            "import sys, os, tfc.runtime\n"
            "b = tfc.runtime.load(sys.stdin.buffer.read())\n"
            "b.functions['total'](1000, 10)\n"
            "print(len(os.listdir('/proc/self/task')))"
        )
        import subprocess
        import sys

        done = subprocess.run(
            [sys.executable, "-c", script],
            input=bundle_bytes(),
            capture_output=True,
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        return int(done.stdout)

    assert in_child(count_in_child) == 1
