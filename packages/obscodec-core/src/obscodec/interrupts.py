"""Ctrl-C between two steps that belong together: it waits until both are done."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager, nullcontext
from types import FrameType


class _Deferral:
    """Holds ``KeyboardInterrupt`` back from ``__enter__`` to ``__exit__``, in the main thread."""

    def __init__(self) -> None:
        self.depth = 0
        self._came: tuple[int, FrameType | None] | None = None
        self._handler: signal._HANDLER = None

    def __enter__(self) -> None:
        self._handler, self._came = signal.getsignal(signal.SIGINT), None
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._remember)
        self.depth = 1

    def __exit__(self, *_: object) -> None:
        self.depth = 0
        if callable(self._handler):
            signal.signal(signal.SIGINT, self._handler)
            if self._came is not None:
                self._handler(*self._came)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._came = number, frame


_deferral = _Deferral()  # of the main thread, the only one that Python interrupts
_nothing = nullcontext()


def uninterrupted() -> AbstractContextManager[None]:
    """Hold ``KeyboardInterrupt`` back until the end of the block.

    A store and the ids of what is in it change one after the other. An exception between the two would leave a buffer
    whose ids name nothing.
    """
    if threading.get_ident() != threading.main_thread().ident or _deferral.depth:
        return _nothing
    return _deferral
