"""PicklableLock and ``locked``."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from obscodec.runtime import PicklableLock, locked


def is_free(lock: PicklableLock) -> bool:
    """Whether another thread gets it."""

    def take() -> bool:
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(take).result()


def test_it_keeps_other_threads_out_until_it_is_left_as_often_as_entered() -> None:
    lock = PicklableLock()
    with lock:
        with lock:
            assert not is_free(lock)
        assert not is_free(lock)
    assert is_free(lock)


def test_it_is_left_by_an_exception() -> None:
    lock = PicklableLock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert is_free(lock)


@pytest.mark.parametrize("rebuild", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy])
def test_a_copy_is_a_lock_of_its_own_that_nobody_holds(rebuild) -> None:
    lock = PicklableLock()
    with lock:
        other = rebuild(lock)
        assert type(other) is PicklableLock
        assert is_free(other)
        with other:
            assert not is_free(other)
    with other:
        assert is_free(lock)


class Counter:
    def __init__(self) -> None:
        self.lock = PicklableLock()
        self.n = 0

    @locked
    def add(self, n: int, *, times: int = 1) -> int:
        """Add slowly."""
        for _ in range(times):
            before = self.n
            threading.Event().wait(1e-4)
            self.n = before + n
        return self.n

    @locked
    def fail(self) -> None:
        raise KeyError("n")


def test_a_locked_method_is_done_by_one_thread_at_a_time() -> None:
    counter = Counter()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: counter.add(1, times=5), range(8)))
    assert counter.n == 40
    assert counter.add(2) == 42
    assert (Counter.add.__name__, Counter.add.__doc__) == ("add", "Add slowly.")


def test_a_locked_method_that_fails_leaves_the_lock() -> None:
    counter = Counter()
    with pytest.raises(KeyError):
        counter.fail()
    assert is_free(counter.lock)
