"""Ctrl-C between two steps that belong together: it waits until both are done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _Deferred:
    """An interrupt that came while it was not welcome."""

    def __init__(self) -> None:
        self.depth = 0
        self.came: tuple[int, FrameType | None] | None = None

    def remember(self, number: int, frame: FrameType | None) -> None:
        self.came = number, frame


_deferred = _Deferred()  # of the main thread, the only one that Python interrupts


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold ``KeyboardInterrupt`` back until the end of the block.

    A store and the ids of what is in it change one after the other. An exception between the two would leave a buffer
    whose ids name nothing.
    """
    if threading.current_thread() is not threading.main_thread() or _deferred.depth:
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield
        return
    _deferred.came = None
    signal.signal(signal.SIGINT, _deferred.remember)
    _deferred.depth = 1
    try:
        yield
    finally:
        _deferred.depth = 0
        signal.signal(signal.SIGINT, handler)
        if _deferred.came is not None:
            handler(*_deferred.came)
