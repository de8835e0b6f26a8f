"""PicklableLock."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from obscodec.runtime import PicklableLock


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
