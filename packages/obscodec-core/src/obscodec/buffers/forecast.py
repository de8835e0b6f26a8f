"""Forecast: what a buffer will take when it is full, and a warning if the machine has less."""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from obscodec.buffers.memory_limit import LOOK_EVERY, MemoryLimit
from obscodec.errors import HeapFull
from obscodec.runtime import free_memory, is_memory_error
from obscodec.stats import BufferStats
from obscodec.stores import Store

_UNITS = (10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")


class Forecast:
    """Says what a buffer will take when it is full, and warns once if that is more than the machine has free.

    It looks after 16 steps, and whenever their number has doubled: a buffer whose codec is ``"auto"`` has chosen it at
    one of the first looks, and a game may show its larger frames later.

    Args:
        capacity: for how many steps the buffer has room.
        limit: the limit of its memory, None for none.

    Attributes:
        next_look: at how many steps to call :meth:`look` next.
    """

    def __init__(self, capacity: int, limit: MemoryLimit | None) -> None:
        self._capacity, self._limit = capacity, limit
        self.next_look: float = LOOK_EVERY if capacity > LOOK_EVERY else math.inf

    def add_to(self, stats: BufferStats, n_steps: int, stores: Iterable[Store]) -> BufferStats:
        """``stats`` of a buffer that has so many steps in these stores, with ``projected_bytes``."""
        if not n_steps or not all(store.is_decided for store in stores):
            return stats
        nbytes = stats.total_bytes + stats.growing_bytes * (self._capacity - n_steps) // n_steps
        if self._limit is not None:
            nbytes = min(nbytes, max(self._limit.max_bytes, stats.total_bytes))
        return replace(stats, projected_bytes=nbytes)

    def look(self, n_steps: int, stats: Callable[[], BufferStats]) -> None:
        """Warn if the buffer, which has ``n_steps`` now, is about to take more memory than there is."""
        self.next_look = 2 * n_steps if 2 * n_steps < self._capacity else math.inf
        found, free = stats(), free_memory()
        if found.projected_bytes is None or free is None or found.projected_bytes - found.total_bytes <= free:
            return
        self.next_look = math.inf
        warnings.warn(
            f"{self._capacity} steps will take about {in_units(found.projected_bytes)}, judging by {n_steps} steps, "
            f"and the machine has {in_units(free)} free: make the buffer smaller, or pass max_bytes, and spill, a "
            "folder, to keep on a disk what exceeds it; stats() has the size of each field",
            stacklevel=2,
        )


@contextmanager
def making_room(n_steps: Callable[[], int]) -> Iterator[None]:
    """A context that allocates the arrays of a buffer for so many steps, which the error says if there is no room.

    Raises:
        MemoryError: an allocation failed.
        HeapFull: as it is raised inside; it says what to do.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, HeapFull) or not is_memory_error(error):
            raise
        free = free_memory()
        there = "" if free is None else f", {in_units(free)} are free"
        raise MemoryError(
            f"there is not enough memory for {n_steps():,} steps{there}: make the buffer smaller, and see what "
            f"obscodec.estimate(env, steps) says; {error}"
        ) from error


def in_units(nbytes: float) -> str:
    """A number of bytes for a reader.

    Example:
        >>> in_units(28_224_000_000)
        '28.2 GB'
    """
    for size, unit in _UNITS:
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}" if nbytes < 1000 * size else f"{nbytes / size:,.0f} {unit}"
    return f"{nbytes:.0f} bytes"
