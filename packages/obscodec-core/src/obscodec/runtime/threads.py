"""Threads: one function over disjoint ranges, in a pool that all stores share."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache

from obscodec.arguments import as_option

MAX_THREADS = 8


def as_threads(threads: int | None) -> int:
    """``threads``, checked as by ``as_option``; for None half of the processors that this process may use, at most 8.

    The other half is busy: torch's threads spin for some milliseconds after each operation that they share.
    """
    given = as_option("threads", threads)
    if given is not None:
        return given
    return min(max(1, n_processors() // 2), MAX_THREADS)


def n_processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="obscodec")


if hasattr(os, "register_at_fork"):  # a forked process inherits the pool without its threads
    os.register_at_fork(after_in_child=_pool.cache_clear)


def over_ranges(work: Callable[[int, int], None], n: int, threads: int) -> None:
    """Call ``work(start, stop)`` for ranges that cover ``0..n``, one for each thread, the calling thread included.

    All calls have ended when this returns or raises.
    """
    threads = max(1, min(threads, n))
    bounds = [n * i // threads for i in range(threads + 1)]
    futures: list[Future[None]] = []
    try:
        for i in range(1, threads):
            futures.append(_pool().submit(work, bounds[i], bounds[i + 1]))
        work(bounds[0], bounds[1])
    finally:
        try:
            wait(futures)
        except BaseException:  # from a signal handler, while calls still run
            wait(futures)
            raise
    for future in futures:
        future.result()
