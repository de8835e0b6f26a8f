"""PicklableLock."""

import contextlib
import copy
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from faults import at_every_line
from forked import exit_status, forked
from obscodec.kernels.compiler import COMPILING
from obscodec.runtime import Background, LockOrder, PicklableLock, free_in_forks, holding
from obscodec.runtime.lock import _locks
from together import together


def is_free(lock: PicklableLock) -> bool:
    """Whether another thread gets it."""

    def take() -> bool:
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(take).result()


def test_locks_that_are_held_together_are_free_after_an_interrupt() -> None:
    locks = [PicklableLock() for _ in range(3)]

    def held() -> list[bool]:
        return [lock.is_held() for lock in locks]

    assert holding([*locks, locks[1]], held) == [True] * 3
    for _ in at_every_line(lambda: partial(holding, locks, held), 1, more_sources=(contextlib.__file__,)):
        assert held() == [False] * 3


def test_it_keeps_other_threads_out_until_it_is_left_as_often_as_entered() -> None:
    lock = PicklableLock()
    with lock:
        with lock:
            assert not is_free(lock)
        assert not is_free(lock)
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


pytestmark = pytest.mark.needs("fork")


def in_child(is_well):
    """The exit status of a child that calls a function; True is 0."""

    def work():
        assert is_well()

    return exit_status(forked(work, seconds=20))


def held_for(lock, seconds, then=lambda: None):
    """A thread that holds a lock now, and for so long, and calls a function before it releases the lock."""
    holds = threading.Event()

    def hold():
        with lock:
            holds.set()
            time.sleep(seconds)
            then()

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(20)
    return thread


def is_free_of_lock_forks(lock):
    """Whether this thread can have a lock that it does not hold."""
    free = not lock._is_owned() and lock.acquire(timeout=5)
    if free:
        lock.release()
    return free


def test_a_fork_waits_for_the_end_of_what_a_lock_is_for():
    lock, done = PicklableLock(), []
    thread = held_for(lock, 0.3, lambda: done.append(True))
    assert in_child(lambda: done and is_free_of_lock_forks(lock)) == 0
    thread.join()
    assert is_free_of_lock_forks(lock)


def test_a_fork_waits_for_no_thread_that_waits_for_it():
    """The thread takes locks in another order than forks do."""
    first, second = PicklableLock(LockOrder.CHANGING), PicklableLock(LockOrder.STREAMS)

    def take_first():
        with first:
            pass

    thread = held_for(second, 0.2, take_first)
    assert in_child(lambda: is_free_of_lock_forks(first) and is_free_of_lock_forks(second)) == 0
    thread.join()


def test_a_fork_waits_for_a_call_in_the_background_that_takes_a_lock():
    lock, background = PicklableLock(LockOrder.FRAMES), Background(LockOrder.DECODING)

    def call():
        time.sleep(0.2)
        with lock:
            return 7

    job = background.submit(call)
    while not job.has_begun:
        time.sleep(0.001)
    assert (
        in_child(lambda: job.is_done and is_free_of_lock_forks(lock) and background.submit(lambda: True).result()) == 0
    )
    assert job.result() == 7


def test_a_fork_of_a_signal_handler_ends_though_others_wait_for_its_thread():
    own, other = PicklableLock(LockOrder.FRAMES), PicklableLock(LockOrder.CHANGING)

    def take_own():
        with own:
            pass

    statuses = []

    def fork(*_):
        statuses.append(in_child(lambda: own._is_owned() and is_free_of_lock_forks(other)))

    before = signal.signal(signal.SIGUSR1, fork)
    try:
        with own:
            thread = held_for(other, 0, take_own)  # it waits for this thread
            os.kill(os.getpid(), signal.SIGUSR1)
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert statuses == [0]
    assert is_free_of_lock_forks(own)
    assert is_free_of_lock_forks(other)


@pytest.mark.slow
def test_two_threads_fork_at_once():
    statuses, lock = [], PicklableLock()

    def fork_often():
        while len(statuses) < 20:
            with suppress(RuntimeError):  # of filelock, if torch has imported it: it refuses a fork beside another one
                statuses.append(in_child(lambda: True))

    together(fork_often, fork_often)
    assert not any(statuses)
    assert is_free_of_lock_forks(lock)


def test_a_lock_that_goes_is_forgotten():
    n = len(_locks)
    lock = PicklableLock()
    assert len(_locks) == n + 1
    del lock
    assert len(_locks) == n


@pytest.mark.parametrize("of", ["numba", "another library"])
def test_locks_of_other_libraries_are_free_too(of):
    lock = COMPILING if of == "numba" else threading.RLock()
    if of == "another library":
        free_in_forks(lock)
    thread = held_for(lock, 0.2)
    assert in_child(lambda: is_free_of_lock_forks(lock)) == 0
    thread.join()


def test_a_lock_that_is_not_reentrant_is_left_alone():
    n, lock = len(_locks), threading.Lock()
    free_in_forks(lock)
    free_in_forks(None)
    assert len(_locks) == n
    with lock:
        assert in_child(lock.locked) == 0
