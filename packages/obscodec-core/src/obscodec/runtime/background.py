"""Background: a thread that works for all stores of a process."""

import _thread
import atexit
import ctypes
import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, cast

from obscodec.runtime.lock import LockOrder, PicklableLock

T = TypeVar("T")
_CHECK_S = 0.05
_MOST_END_S = 10.0
_ENDING = "Python is about to exit"


class Job(Generic[T]):
    """A call in the background; ``error`` is what it raised."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.has_begun = False
        self.is_done = False
        self.error: BaseException | None = None
        self._process = os.getpid()
        self._work: Callable[[], T] | None = work
        self._result: T | None = None
        self._running = _thread.allocate_lock()
        self._running.acquire()

    @property
    def is_here(self) -> bool:
        """Whether this process makes the call. A forked one does not, and begins anew."""
        return self._process == os.getpid()

    @property
    def is_under_way(self) -> bool:
        """Whether this process makes the call, and it has not ended."""
        return not self.is_done and self.is_here

    def run(self) -> None:
        """Make the call, once."""
        self.has_begun = True
        work = self._work
        assert work is not None
        try:
            self._result = work()
        except BaseException as error:
            self.error = error
        self._finish()

    def give_up(self, error: BaseException) -> None:
        """Raise ``error`` for all who wait for the call, which will not be made."""
        self.error = error
        self._finish()

    def _finish(self) -> None:
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
        if self.error is not None:
            raise self.error
        return cast("T", self._result)


class Background:
    """A thread that makes one call after the other. The process is not forked in the middle of a call.

    A forked process has a thread of its own; a job of the process before it will never be done there. The lock that
    delays forks has its place in the ``order`` before all locks that calls take; with None, forks do not wait for
    calls, which take long and hold locks for what must not be cut.

    Not by ``concurrent.futures``: an exception from a signal handler while a ``ThreadPoolExecutor`` takes a call can
    leave one of its locks taken, and the next call would wait for ever. No lock here is taken in Python.
    """

    def __init__(self, order: LockOrder | None = LockOrder.BACKGROUND) -> None:
        self._working = nullcontext() if order is None else PicklableLock(order)
        self._starting = PicklableLock()
        self._jobs: SimpleQueue[Job[object]] | None = None
        self._process = 0  # which has the thread
        self._thread = 0
        self._running = _thread.allocate_lock()  # taken as long as the thread runs
        self._has_ended = False
        atexit.register(self._end)

    def submit(self, work: Callable[[], T]) -> Job[T]:
        """Call ``work`` soon.

        Raises:
            RuntimeError: the system has no thread left, Python is about to exit, or this is called in the background.
        """
        job = Job(work)
        self.put(job)
        return job

    def finish(self) -> None:
        """Wait until all calls so far have ended."""
        if self._jobs is not None and self._process == os.getpid():
            self.submit(lambda: None).wait()

    def put(self, job: Job[T]) -> None:
        """Run a job soon, as :meth:`submit`."""
        if self._has_ended:
            raise RuntimeError(_ENDING)
        if self._thread == _thread.get_ident() and self._process == os.getpid():
            raise RuntimeError("a call in the background can't wait for another one")
        if self._jobs is None or self._process != os.getpid():
            with self._starting:
                self._start()
        assert self._jobs is not None
        self._jobs.put(cast("Job[object]", job))

    def _start(self) -> None:
        """Start the thread, unless another one has just done so."""
        if self._jobs is None or self._process != os.getpid():
            jobs: SimpleQueue[Job[object]] = SimpleQueue()
            running = _thread.allocate_lock()
            running.acquire()
            self._thread = _thread.start_new_thread(self._run, (jobs, running))
            self._jobs, self._process, self._running = jobs, os.getpid(), running

    def _run(self, jobs: SimpleQueue[Job[object]], running: _thread.LockType) -> None:
        try:
            while True:
                job = jobs.get()
                with self._working:
                    job.run()
                del job  # which may hold much memory
        finally:
            running.release()

    def _end(self) -> None:
        """End the thread as Python exits: a call that runs raises SystemExit at its next line, others do not begin.

        Before Python 3.14, a thread that returned from a kernel after the exit would abort the process. Nothing is
        raised while LLVM may call Python: it would go on without what it had asked for, and crash.
        """
        self._has_ended = True
        if self._jobs is not None and self._process == os.getpid():
            with suppress(Empty):
                while True:
                    self._jobs.get_nowait().give_up(RuntimeError(_ENDING))
            until = time.monotonic() + _MOST_END_S
            while _is_in_llvm(self._thread) and time.monotonic() < until:
                time.sleep(0.001)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(SystemExit))
            self._jobs.put(Job(_thread.exit))  # wakes it
            self._running.acquire(timeout=_MOST_END_S)


def _is_in_llvm(thread: int) -> bool:
    """Whether a thread is in a call of LLVM, by the frames of its Python code."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("llvmlite."):
            return True
        frame = frame.f_back
    return False
