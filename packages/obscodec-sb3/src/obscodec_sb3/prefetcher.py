"""Prefetcher: batches that are decoded in the background, ahead of the call that asks for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from obscodec.arrays import DeferredRead

_MAX_AHEAD = 2


class Prefetcher:
    """Decodes the next batch in the background, one for each of the last two kinds of batches."""

    def __init__(self) -> None:
        self._started: dict[Hashable, DeferredRead] = {}

    def next(self, kind: Hashable, draw: Callable[[], DeferredRead]) -> DeferredRead:
        """The read that the last call for this kind has started, or a new one; starts the read for the next call."""
        deferred = self._started.pop(kind, None) or draw()
        following = self._started[kind] = draw()
        following.start()
        while len(self._started) > _MAX_AHEAD:
            del self._started[next(iter(self._started))]
        return deferred

    def clear(self) -> None:
        """Forget the reads that were started."""
        self._started.clear()

    def __reduce__(self) -> tuple[type[Prefetcher], tuple[()]]:
        return Prefetcher, ()
