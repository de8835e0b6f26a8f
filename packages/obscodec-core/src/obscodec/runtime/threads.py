"""Threads: one function over disjoint ranges, in threads that all stores share."""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import pairwise

from obscodec.arguments import as_option
from obscodec.runtime.background import Background, Job

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
def _helpers() -> list[Background]:
    return [Background() for _ in range(MAX_THREADS)]


def over_ranges(work: Callable[[int, int], None], n: int, threads: int) -> None:
    """Call ``work(start, stop)`` for ranges that cover ``0..n``, one for each thread, the calling thread included.

    The caller takes the ranges that no thread has begun when it is done with its own. All calls have ended when this
    returns or raises. An exception from a signal handler leaves out the ranges that nobody has begun.
    """
    threads = max(1, min(threads, n))
    bounds = [n * i // threads for i in range(threads + 1)]
    ranges = [*pairwise(bounds)]
    errors: list[Exception] = []
    jobs = [Job(partial(_work_off, work, ranges, errors)) for _ in range(threads - 1)]
    try:
        try:
            with suppress(RuntimeError):  # the system has no thread left
                for helper, job in zip(_helpers(), jobs, strict=False):
                    helper.put(job)
            _work_off(work, ranges, errors)
        finally:
            ranges.clear()
            _wait(jobs)
    except BaseException:  # from a signal handler, maybe while calls still run
        ranges.clear()
        _wait(jobs)
        raise
    if errors:
        raise errors[0]


def _work_off(work: Callable[[int, int], None], ranges: list[tuple[int, int]], errors: list[Exception]) -> None:
    """Work on one range after the other, until there is none."""
    while True:
        try:
            start, stop = ranges.pop()
        except IndexError:
            return
        try:
            work(start, stop)
        except Exception as error:
            errors.append(error)


def _wait(jobs: list[Job[None]]) -> None:
    """Wait until no thread works on a range; a job that begins later finds none."""
    for job in jobs:
        if job.has_begun:
            job.wait()
