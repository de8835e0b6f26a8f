"""The one place for threads: one function over disjoint ranges, in a pool that all stores share."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache

from obscodec.arguments import as_option

MAX_THREADS = 8


def default_threads() -> int:
    """How many threads a store uses if it is not told: half of the processors that this process may use, at most 8.

    The others are busy: the threads of torch spin for some milliseconds after each operation that they shared.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(max(1, usable // 2), MAX_THREADS)


def as_threads(threads: int | None) -> int:
    """How many threads a store uses that is told ``threads``.

    Raises:
        DTypeError: that is no number.
        ShapeError: it is less than 1.
    """
    given = as_option("threads", threads)
    return default_threads() if given is None else given


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="obscodec")


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but none of its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def over_ranges(work: Callable[[int, int], None], n: int, threads: int) -> None:
    """Call ``work(start, stop)`` for ranges that cover ``0..n``, one range for each thread.

    The calling thread takes the first range. All ranges have ended when this returns or raises.
    """
    threads = max(1, min(threads, n))
    bounds = [n * i // threads for i in range(threads + 1)]
    futures: list[Future[None]] = []
    try:
        for i in range(1, threads):
            futures.append(_pool().submit(work, bounds[i], bounds[i + 1]))
        work(bounds[0], bounds[1])
    finally:
        _wait_for(futures)
    for future in futures:
        future.result()


def _wait_for(futures: list[Future[None]]) -> None:
    """Wait until all have ended, also if an exception comes meanwhile, such as that of a signal handler."""
    try:
        wait(futures)
    except BaseException:
        wait(futures)
        raise
