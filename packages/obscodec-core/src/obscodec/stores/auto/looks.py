"""Looks: when an AutoStore looks again at how its tensors are stored, in the background."""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from weakref import WeakMethod, ref

from obscodec.frames import FrameLog
from obscodec.runtime import Background, Job

_FACTOR = 2.0  # a codec whose frames are so many times larger or smaller than it promised is looked at again
_LATER = 1.25  # times as many frames as at the last look
LOOKER = Background(None)  # not that of moves, for which a caller may wait with a lock that a look needs
_log = logging.getLogger("obscodec")


class Looks:
    """Has an AutoStore look again whenever twice as many frames were encoded, or they take other bytes than before.

    There are no looks where there can be no other thread. A forked process begins anew.

    Args:
        look: the method of the store that looks again; it takes how many bytes each of the newest frames has.
        n: how many frames the first choice was made on, or more.
        frame_bytes: how many bytes each was to take.
    """

    def __init__(self, look: Callable[[float], None], log: FrameLog, n: int, frame_bytes: float) -> None:
        self._look, self._log = WeakMethod(look), ref(log)
        self._window, self._next = n, 2 * n
        self._expected = frame_bytes
        self._n_looked = 0
        self._since = 0, 0  # what was encoded when the window began
        self._job: Job[None] | None = None
        log.watch(self._note)

    def _note(self) -> None:
        """Look again if that is due; called with the lock of the log, by whoever stores frames."""
        log, job = self._log(), self._job
        if log is None or (job is not None and job.is_under_way):
            return
        (n, nbytes), (n_before, nbytes_before) = log.encoded, self._since
        is_due = n >= self._next
        if not is_due and n - n_before < self._window:
            return
        frame_bytes = (nbytes - nbytes_before) / max(1, n - n_before)
        drifts = not self._expected / _FACTOR <= frame_bytes <= self._expected * _FACTOR
        self._since = n, nbytes
        if not is_due and not (drifts and n >= _LATER * self._n_looked):
            return
        while self._next <= n:
            self._next *= 2
        self._n_looked, self._expected = n, frame_bytes
        with suppress(RuntimeError, MemoryError):  # there can be no other thread
            self._job = LOOKER.submit(partial(_look, self._look, frame_bytes))


def _look(known: WeakMethod[Callable[[float], None]], frame_bytes: float) -> None:
    if (look := known()) is not None:
        try:
            look(frame_bytes)
        except MemoryError:
            pass  # another time
        except Exception:
            _log.exception("obscodec could not look again at how observations are stored, and goes on as before")
