"""Streams of the simulated GPU: queues that run late, and in an order that only events bind."""

import random
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager

from obscodec_cupy.device.device import Order


class Stream:
    """A queue of work.

    Args:
        lock: held while work is done, on any stream: a kernel runs on one thread at a time.

    Attributes:
        n_queued: how much work came in since the start; also the name of the moment after it.
        n_done: how much of it was done.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self.lock = lock
        self.n_queued = 0
        self.n_done = 0
        self._work: deque[Callable[[], None]] = deque()

    def queue(self, work: Callable[[], None]) -> None:
        with self.lock:
            self._work.append(work)
            self.n_queued += 1

    def clear(self) -> None:
        with self.lock:
            self._work.clear()
            self.n_done = self.n_queued

    def run_until(self, moment: int) -> None:
        with self.lock:
            while self.n_done < moment:
                work = self._work.popleft()
                self.n_done += 1
                work()


class SimulatedMark:
    """An event that is recorded now.

    As that of CuPy, it is destroyed by its own finalizer. The garbage collector calls the finalizers of all objects of
    a cycle, so that whoever takes an event out of a cycle has a dead one: CUDA may end the process then.
    """

    def __init__(self, stream: Stream) -> None:
        self._of_event: Stream | None = stream
        self._moment = stream.n_queued

    @property
    def _stream(self) -> Stream:
        if self._of_event is None:
            raise AssertionError("an event is used that was destroyed: a segmentation fault in CUDA")
        return self._of_event

    @property
    def done(self) -> bool:
        stream = self._stream
        with stream.lock:
            return stream.n_done >= self._moment

    def synchronize(self) -> None:
        self._stream.run_until(self._moment)

    def __del__(self) -> None:
        self._of_event = None


class Streams:
    """All streams of a device, and which one is current in a thread.

    Attributes:
        eager: work is done as soon as it is queued.
    """

    def __init__(self, seed: int, *, eager: bool) -> None:
        self.eager = eager
        self._lock = threading.RLock()
        self.every = [Stream(self._lock)]
        self._in_thread = threading.local()
        self._random = random.Random(seed)

    @property
    def current(self) -> Stream:
        return getattr(self._in_thread, "current", self.every[0])

    @current.setter
    def current(self, stream: Stream) -> None:
        self._in_thread.current = stream

    def new(self) -> Stream:
        self.every.append(Stream(self._lock))
        return self.every[-1]

    def queue(self, work: Callable[[], None], stream: Stream | None = None) -> None:
        """Give work to a stream, the current one if None."""
        stream = stream or self.current
        stream.queue(work)
        if self.eager:
            stream.run_until(stream.n_queued)

    def synchronize(self) -> None:
        """Do all work of the current stream; that of others may come in between, or not."""
        with self._lock:
            target = self.current.n_queued
            while self.current.n_done < target:
                waiting = [stream for stream in self.every if stream.n_done < stream.n_queued]
                one = self._random.choice(waiting)
                one.run_until(one.n_done + 1)


class SimulatedOrder(Order):
    """An order by events."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._last: SimulatedMark | None = None

    def __enter__(self) -> None:
        if self._last is not None:
            self._streams.queue(self._last.synchronize)

    def __exit__(self, *error: object) -> None:
        self._last = SimulatedMark(self._streams.current)

    def done(self) -> SimulatedMark | None:
        return self._last
