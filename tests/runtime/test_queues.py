"""Queues: their order, what blocks, close and cancel, many threads, state in a checkpoint."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tfc.runtime.errors import CancelledError, OutOfRangeError, RunError, StateError
from tfc.runtime.host import Context, OutputType, ResourceInfo, declare_resources
from tfc.runtime.queues import Queue
from tfc.runtime.state import State

SOON = 10.0  # seconds in which what does not wait for ever is done


def queue(kind: str = "fifo_queue", **attributes: Any) -> tuple[Queue, State]:
    """A queue of i64 scalars."""
    info = ResourceInfo("q", kind, (OutputType("i64", ()),), {"capacity": 8, **attributes})
    state = State()
    declare_resources(state, [info])
    return state.resource("q"), state


def shuffled(**attributes: Any) -> tuple[Queue, State]:
    return queue("random_shuffle_queue", **{"seed": 1, "min_after_dequeue": 3, **attributes})


def put(q: Queue, state: State, *numbers: int) -> None:
    q.enqueue(Context(state), (np.array(numbers, np.int64),))


def get(q: Queue, state: State, count: int = 1, at_most: bool = False) -> list[int]:
    return q.dequeue(Context(state), count, at_most)[0].tolist()


class Task(threading.Thread):
    """A call in a thread of its own; `result` waits for what it gives or raises."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self._found: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._found = self._call()
        except BaseException as error:
            self._error = error

    @property
    def waits(self) -> bool:
        time.sleep(0.1)
        return self.is_alive()

    def result(self) -> Any:
        self.join(SOON)
        assert not self.is_alive(), "it waits for ever"
        if self._error is not None:
            raise self._error
        return self._found


# ---- order


def test_first_in_first_out() -> None:
    q, state = queue()
    put(q, state, 1, 2, 3)
    assert q.size() == 3
    assert get(q, state) == [1] and get(q, state, 2) == [2, 3]


@pytest.mark.parametrize("make", [queue, shuffled])
def test_what_was_taken_stays_when_others_come(make: Callable[..., tuple[Queue, State]]) -> None:
    q, state = make(capacity=20)
    numbers = np.arange(12)
    q.enqueue(Context(state), (numbers,))
    numbers[:] = -1
    first = q.dequeue(Context(state), 6)[0]
    before = first.tolist()
    for start in (100, 200, 300):
        put(q, state, *range(start, start + 6))
        get(q, state, 6)
    assert first.tolist() == before and -1 not in before


def test_a_shuffle_queue_gives_each_once_in_the_order_of_its_seed() -> None:
    orders: list[list[int]] = []
    for seed in (1, 1, 2):
        q, state = shuffled(capacity=40, seed=seed)
        put(q, state, *range(40))
        q.close(False)
        orders.append(get(q, state, 40))
        assert sorted(orders[-1]) == list(range(40)) and orders[-1] != list(range(40))
    assert orders[0] == orders[1] != orders[2]


@pytest.mark.parametrize("parts", [[1] * 40, [40], [7, 13, 2, 18], [3] * 10 + [10]])
def test_the_order_does_not_depend_on_when_elements_come(parts: list[int]) -> None:
    """One by one as there is room, or all at once: the pool that is drawn from is the same."""
    q, state = shuffled(capacity=40)
    put(q, state, *range(40))
    q.close(False)
    expected = get(q, state, 40)

    q, state = shuffled(capacity=5)

    def produce() -> None:
        for n in range(40):
            put(q, state, n)
        q.close(False)

    task = Task(produce)
    found = [n for part in parts for n in get(q, state, part)]
    task.result()
    assert found == expected


# ---- what waits


def test_taking_waits_for_elements_and_putting_for_room() -> None:
    q, state = queue(capacity=2)
    taker = Task(lambda: get(q, state, 2))
    put(q, state, 1)
    assert taker.waits
    put(q, state, 2)
    assert taker.result() == [1, 2]
    put(q, state, 3, 4)
    putter = Task(lambda: put(q, state, 5))
    assert putter.waits
    assert get(q, state) == [3]
    putter.result()
    assert get(q, state, 2) == [4, 5]


def test_a_shuffle_queue_keeps_its_reserve_until_it_is_closed() -> None:
    q, state = shuffled()
    put(q, state, 1, 2, 3)
    taker = Task(lambda: get(q, state))
    assert taker.waits
    put(q, state, 4)
    assert taker.result()[0] in (1, 2, 3, 4)
    q.close(False)
    assert len(get(q, state, 3)) == 3


def test_more_than_the_capacity_can_be_taken_at_once() -> None:
    for (q, state), left in ((queue(capacity=2), 2), (shuffled(capacity=4), 3)):
        taker = Task(lambda q=q, state=state: get(q, state, 10))
        put(q, state, *range(10 + left))
        assert len(taker.result()) == 10 and q.size() == left


def test_who_came_first_is_served_first() -> None:
    q, state = queue()
    first = Task(lambda: get(q, state, 3))
    assert first.waits
    second = Task(lambda: get(q, state))
    put(q, state, 1, 2)
    assert first.waits and second.waits
    put(q, state, 3, 4)
    assert first.result() == [1, 2, 3] and second.result() == [4]


def test_a_call_that_waits_does_not_hold_the_lock_of_the_state() -> None:
    q, state = queue()
    state.declare("v", np.dtype(np.int64), ())

    def call() -> tuple[list[int], int]:
        with state.lock, state.lock:
            found = get(q, state)
            state.write("v", np.array(7))
            time.sleep(0.1)
            return found, int(state.read("v"))

    taker = Task(call)
    assert taker.waits
    with state.lock:
        put(q, state, 1)
        assert taker.waits, "it takes nothing out while another call holds the lock"
        assert q.size() == 1
    time.sleep(0.05)
    state.write("v", np.array(8))
    assert taker.result() == ([1], 7)
    assert state.read("v") == 8


# ---- close and cancel


def test_a_closed_queue_gives_what_is_left_and_then_ends() -> None:
    q, state = queue()
    put(q, state, 10, 20, 30)
    q.close(False)
    with pytest.raises(CancelledError, match="'q' is closed"):
        put(q, state, 40)
    with pytest.raises(OutOfRangeError, match="3 elements left, 4 were asked for"):
        get(q, state, 4)
    assert get(q, state, 2) == [10, 20]
    assert get(q, state, 5, at_most=True) == [30]
    for at_most in (False, True):
        with pytest.raises(OutOfRangeError):
            get(q, state, 1, at_most)
    with pytest.raises(CancelledError, match="already closed"):
        q.close(False)
    q.close(True)


def test_close_ends_what_waits_for_elements() -> None:
    q, state = queue()
    put(q, state, 1)
    first, second = Task(lambda: get(q, state, 2)), Task(lambda: get(q, state, 3))
    assert first.waits and second.waits
    q.close(False)
    for task in (first, second):
        with pytest.raises(OutOfRangeError):
            task.result()
    assert get(q, state) == [1]


def test_close_lets_in_what_waits_for_room() -> None:
    q, state = queue(capacity=1)
    putter = Task(lambda: put(q, state, 1, 2, 3))
    assert putter.waits
    q.close(False)
    assert get(q, state, 3) == [1, 2, 3]
    putter.result()
    with pytest.raises(OutOfRangeError):
        get(q, state)


def test_close_may_cancel_what_waits_for_room() -> None:
    q, state = queue(capacity=2)
    putter = Task(lambda: put(q, state, 1, 2, 3))
    assert putter.waits
    q.close(True)
    with pytest.raises(CancelledError, match="2 of 3 elements are in it"):
        putter.result()
    assert get(q, state, 2) == [1, 2]


def test_a_call_can_be_cancelled_while_it_waits() -> None:
    q, state = queue(capacity=1)
    context = Context(state)
    taker = Task(lambda: q.dequeue(context, 1))
    assert taker.waits
    context.cancelled.set()
    with pytest.raises(CancelledError, match="the call was cancelled"):
        taker.result()
    put(q, state, 1)
    assert get(q, state) == [1]


def test_reset_ends_what_waits() -> None:
    q, state = queue()
    taker = Task(lambda: get(q, state))
    assert taker.waits
    state.reset()
    with pytest.raises(OutOfRangeError):
        taker.result()
    assert state.resource("q") is not q


# ---- many threads


@contextmanager
def within(seconds: float) -> Iterator[None]:
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


@pytest.mark.parametrize("kind", ["fifo_queue", "random_shuffle_queue"])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_and_nothing_comes_twice(kind: str, seed: int) -> None:
    """8 producers and 8 consumers; all that was put in comes out, that of each in its order."""
    options = {"seed": seed, "min_after_dequeue": 4} if kind == "random_shuffle_queue" else {}
    q, state = queue(kind, capacity=7, **options)
    each = 100

    def produce(number: int) -> None:
        choose = random.Random(seed * 100 + number)
        todo = list(range(number * each, number * each + each))
        while todo:
            count = choose.randint(1, 5)
            put(q, state, *todo[:count])
            del todo[:count]

    def consume(number: int) -> list[int]:
        choose = random.Random(seed * 100 + 50 + number)
        found: list[int] = []
        while True:
            try:
                found += get(q, state, choose.randint(1, 9), at_most=True)
            except OutOfRangeError:
                return found

    with within(30):
        consumers = [Task(lambda i=i: consume(i)) for i in range(8)]
        producers = [Task(lambda i=i: produce(i)) for i in range(8)]
        for task in producers:
            task.join(30)
            task.result()
        q.close(False)
        found = [task.result() for task in consumers]
    assert sorted(n for part in found for n in part) == list(range(8 * each))
    if kind == "fifo_queue":
        for part in found:
            for number in range(8):
                own = [n for n in part if n // each == number]
                assert own == sorted(own)


@pytest.mark.parametrize("seed", range(24))
def test_close_and_cancel_at_any_moment(seed: int) -> None:
    """What is reported as put in is taken out or left; nobody waits for ever."""
    choose = random.Random(seed)
    q, state = (queue if seed % 2 else shuffled)(capacity=5)
    contexts = [Context(state) for _ in range(16)]
    lock = threading.Lock()
    put_in: list[int] = []
    unsure: list[int] = []
    taken: list[int] = []

    def produce(number: int) -> None:
        own = random.Random(seed * 100 + number)
        for start in range(number * 1000, number * 1000 + 1000, 4):
            numbers = list(range(start, start + own.randint(1, 4)))
            try:
                q.enqueue(contexts[number], (np.array(numbers),))
            except CancelledError:
                with lock:
                    unsure.extend(numbers)
                return
            with lock:
                put_in.extend(numbers)

    def consume(number: int) -> None:
        own = random.Random(seed * 100 + number)
        while True:
            try:
                found = q.dequeue(contexts[number], own.randint(1, 4), own.random() < 0.5)
            except (OutOfRangeError, CancelledError):
                return
            with lock:
                taken.extend(found[0].tolist())

    tasks = [Task(lambda i=i: (produce if i < 8 else consume)(i)) for i in range(16)]
    time.sleep(choose.random() * 0.05)
    for context in choose.sample(contexts, choose.randint(0, 8)):
        context.cancelled.set()
    time.sleep(choose.random() * 0.05)
    q.close(choose.random() < 0.5)
    time.sleep(choose.random() * 0.02)
    q.close(True)
    for task in tasks:
        task.result()
    left = get(q, state, q.size()) if q.size() else []
    assert len(set(taken + left)) == len(taken) + len(left), "an element came twice"
    assert set(put_in) <= set(taken + left), "an element was lost"
    assert set(taken + left) <= set(put_in + unsure)


# ---- checkpoints


def copied(q: Queue) -> tuple[Mapping[str, Any], Mapping[str, np.ndarray]]:
    described, arrays = q.snapshot()
    return described, {name: array.copy() for name, array in arrays.items()}


@pytest.mark.parametrize("make", [queue, shuffled])
def test_the_state_goes_on_where_it_was(make: Callable[..., tuple[Queue, State]]) -> None:
    q, state = make(capacity=50)
    put(q, state, *range(30))
    get(q, state, 11)
    held = copied(q)
    put(q, state, 30, 31)
    expected = get(q, state, 15)

    other, state = make(capacity=50)
    put(other, state, 99)
    other.restored(*held)()
    put(other, state, 30, 31)
    assert get(other, state, 15) == expected


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    q, state = queue()
    put(q, state, 1)
    described, arrays = copied(q)
    wrong = [
        ({**described, "count": 2}, arrays),
        (described, {"0": arrays["0"].astype(np.int32)}),
        (described, {}),
        ({**described, "drawn": -1}, arrays),
    ]
    for held in wrong:
        with pytest.raises(StateError, match="'q'"):
            q.restored(*held)
    assert get(q, state) == [1]


def test_a_closed_queue_stays_closed() -> None:
    q, state = queue()
    put(q, state, 1)
    q.close(False)
    other, state = queue()
    other.restored(*copied(q))()
    assert get(other, state) == [1]
    with pytest.raises(OutOfRangeError):
        get(other, state)


# ---- declarations


@pytest.mark.parametrize(
    ("kind", "attributes", "message"),
    [
        ("fifo_queue", {"capacity": 0}, "capacity is 0"),
        ("fifo_queue", {"capacity": True}, "capacity is True"),
        ("fifo_queue", {"capacity": 4, "seed": 1}, "no attribute seed"),
        ("random_shuffle_queue", {"capacity": 4}, "seed is missing"),
        ("random_shuffle_queue", {"capacity": 4, "seed": 1, "min_after_dequeue": 4}, "from 0 to 3"),
        ("fifo_queue", {"capacity": 4, "reader": "r"}, "no resource 'r'"),
        ("priority_queue", {"capacity": 4}, "no kind is named 'priority_queue'"),
    ],
)
def test_a_wrong_declaration_is_an_error(
    kind: str, attributes: dict[str, Any], message: str
) -> None:
    state = State()
    declare_resources(state, [ResourceInfo("q", kind, (OutputType("i64", ()),), attributes)])
    with pytest.raises(RunError, match=message):
        state.resource("q")


def test_a_container_refuses_another_declaration() -> None:
    _, state = queue()
    info = ResourceInfo("q", "fifo_queue", (OutputType("i64", ()),), {"capacity": 9})
    with pytest.raises(StateError, match="declared otherwise"):
        declare_resources(state, [info])
