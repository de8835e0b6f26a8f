"""Streams of the simulated GPU: queues that run late, and in an order that only events bind."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from obscodec_cupy.device import Order


class Stream:
    """A queue of work.

    Attributes:
        n_queued: how much work came in since the start; also the name of the moment after it.
        n_done: how much of it was done.
    """

    def __init__(self) -> None:
        self.n_queued = 0
        self.n_done = 0
        self._work: deque[Callable[[], None]] = deque()

    def queue(self, work: Callable[[], None]) -> None:
        self._work.append(work)
        self.n_queued += 1

    def run_until(self, moment: int) -> None:
        while self.n_done < moment:
            work = self._work.popleft()
            self.n_done += 1
            work()

    def wait_for(self, other: Stream) -> None:
        """An event: go on when all that ``other`` has queued by now is done."""
        moment = other.n_queued
        self.queue(lambda: other.run_until(moment))


class Streams:
    """All streams of a device, and which one is current.

    Attributes:
        eager: work is done as soon as it is queued.
    """

    def __init__(self, seed: int, *, eager: bool) -> None:
        self.eager = eager
        self.every = [Stream()]
        self.current = self.every[0]
        self._random = random.Random(seed)

    def new(self) -> Stream:
        self.every.append(Stream())
        return self.every[-1]

    def queue(self, work: Callable[[], None]) -> None:
        self.current.queue(work)
        if self.eager:
            self.synchronize()

    def synchronize(self) -> None:
        """Do all work of the current stream; that of others may come in between, or not."""
        target = self.current.n_queued
        while self.current.n_done < target:
            waiting = [stream for stream in self.every if stream.n_done < stream.n_queued]
            one = self._random.choice(waiting)
            one.run_until(one.n_done + 1)


class SimulatedOrder(Order):
    """An order by events."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._last: Stream | None = None

    def __enter__(self) -> None:
        current = self._streams.current
        if self._last is not None and self._last is not current:
            current.wait_for(self._last)

    def __exit__(self, *error: object) -> None:
        self._last = self._streams.current
