"""The lock of a call: held by its threads together, and let go of while one of them waits."""

from __future__ import annotations

import threading
import time

from tfc.runtime.locks import CallLock

SOON = 10.0


def test_a_caller_that_waits_lets_others_in_and_holds_the_lock_as_before() -> None:
    lock, log = CallLock(), list[str]()

    def other() -> None:
        with lock:
            log.append("other")

    with lock, lock:
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.05)
        assert not log
        with lock.suspended():
            thread.join(SOON)
        assert log == ["other"]
        again = threading.Thread(target=other)
        again.start()
        time.sleep(0.05)
        assert log == ["other"]
    again.join(SOON)
    assert log == ["other", "other"]
    with lock.suspended():  # nothing is held, nothing happens
        other()


def test_threads_of_one_call_wait_while_others_hold_the_lock_for_moments() -> None:
    lock, others, stop = CallLock(), list[int](), threading.Event()
    errors: list[BaseException] = []

    def part(number: int, caller: object) -> None:
        try:
            with lock.acting_for(caller):
                for turn in range(200):
                    with lock:
                        pass
                    if turn % (3 + number) == 0:
                        with lock.suspended():
                            time.sleep(0.0002)
        except BaseException as error:
            errors.append(error)

    def other() -> None:
        while not stop.is_set():
            with lock:
                others.append(1)
            time.sleep(0.0005)

    outsider = threading.Thread(target=other, daemon=True)
    with lock:
        outsider.start()
        with lock.lent() as caller:
            threads = [threading.Thread(target=part, args=(n, caller)) for n in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SOON)
                assert not thread.is_alive()
        assert not errors
        count = len(others)
        time.sleep(0.05)
        assert len(others) == count, "the call holds the lock again"
    stop.set()
    outsider.join(SOON)
    assert count > 0
