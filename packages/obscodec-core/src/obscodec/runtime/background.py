"""Background: a thread that works for all stores of a process."""

import _thread
import os
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar, cast

from obscodec.runtime.lock import LockOrder, PicklableLock

T = TypeVar("T")
_CHECK_S = 0.05


class Job(Generic[T]):
    """A call in the background."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.has_begun = False
        self.is_done = False
        self._work: Callable[[], T] | None = work
        self._result: T | None = None
        self._error: BaseException | None = None
        self._running = _thread.allocate_lock()
        self._running.acquire()

    def run(self) -> None:
        """Make the call, once."""
        self.has_begun = True
        work = self._work
        assert work is not None
        try:
            self._result = work()
        except BaseException as error:
            self._error = error
        self._work = None
        self.is_done = True
        self._running.release()

    def wait(self) -> None:
        """Wait until the call has ended. An exception from a signal handler ends the waiting alone."""
        while not self.is_done:
            if self._running.acquire(timeout=_CHECK_S):
                self._running.release()

    def result(self) -> T:
        """What the call returned, as soon as it has ended; or the exception that it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


class Background:
    """A thread that makes one call after the other. The process is not forked in the middle of a call.

    A forked process has a thread of its own; a job of the process before it will never be done there. The lock that
    delays forks has its place in the ``order`` before all locks that calls take.

    Not by ``concurrent.futures``: an exception from a signal handler while a ``ThreadPoolExecutor`` takes a call can
    leave one of its locks taken, and the next call would wait for ever. This class has no lock in Python.
    """

    def __init__(self, order: LockOrder = LockOrder.BACKGROUND) -> None:
        self._working = PicklableLock(order)
        self._jobs: SimpleQueue[Job[object]] | None = None
        self._process = 0  # which has the thread

    def submit(self, work: Callable[[], T]) -> Job[T]:
        """Call ``work`` soon; RuntimeError if the system has no thread left, or Python is about to exit."""
        job = Job(work)
        self.put(job)
        return job

    def finish(self) -> None:
        """Wait until all calls so far have ended."""
        if self._jobs is not None and self._process == os.getpid():
            self.submit(lambda: None).wait()

    def put(self, job: Job[T]) -> None:
        """Run a job soon, as :meth:`submit`."""
        if self._jobs is None or self._process != os.getpid():
            jobs: SimpleQueue[Job[object]] = SimpleQueue()
            _thread.start_new_thread(self._run, (jobs,))
            self._jobs, self._process = jobs, os.getpid()
        self._jobs.put(cast("Job[object]", job))

    def _run(self, jobs: SimpleQueue[Job[object]]) -> None:
        while True:
            job = jobs.get()
            with self._working:
                job.run()
            del job  # which may hold much memory
