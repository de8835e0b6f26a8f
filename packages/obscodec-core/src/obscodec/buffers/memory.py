"""Memory: keeps the memory of a buffer within a limit, and warns if the full buffer will not fit into the machine."""

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from obscodec.arguments import as_nbytes, check_kind, warn
from obscodec.errors import HeapFull, LimitTooLow, SpecError
from obscodec.runtime import folder_path, free_memory, is_memory_error
from obscodec.stats import BufferStats, in_units
from obscodec.stores import Store

LOOK_EVERY = 16  # steps: a block of frames, by which the memory may exceed the limit
_LEAST_STEPS = 16  # are always kept
_PART, _MOST_STEPS = 256, 1024  # one drop is a part of the steps, and takes some milliseconds at most


class Memory:
    """Frees memory when a buffer takes more than a limit, and warns once if the full buffer will not fit.

    With a folder, the oldest blocks of its stores move to files there; else the oldest steps are dropped, some at a
    time. It looks ahead after 16 steps, and whenever their number has doubled: a buffer whose codec is ``"auto"`` has
    chosen it at one of the first looks, and a game may show its larger frames later.

    Args:
        max_bytes: the most bytes, None for no limit.
        spill: a folder for the oldest blocks, which is made if it is not there; None to drop steps.
        heaps: the options ``heap`` of the fields.

    Attributes:
        capacity: for how many steps the buffer has room, once :meth:`check` was called.
        next_look: from how many steps on to call :meth:`look`, at each multiple of ``LOOK_EVERY``; 0 with a limit.

    Raises:
        DTypeError: an argument has another type.
        ShapeError: ``max_bytes`` is less than 1.
        SpecError: ``spill`` is given without ``max_bytes``, or a field lies in pinned memory.
        OSError: the folder can't be made.
    """

    def __init__(self, max_bytes: object = None, spill: object = None, heaps: Iterable[str] = ()) -> None:
        self.max_bytes = as_nbytes("max_bytes", max_bytes)
        self.folder: str | None = None
        self.capacity = 0
        self._next_forecast: float = LOOK_EVERY
        self.next_look: float = LOOK_EVERY if self.max_bytes is None else 0
        self._has_warned = False
        if spill is None:
            return
        check_kind("spill", spill, (str, os.PathLike), "a folder for the oldest blocks, such as '/tmp', or None")
        if self.max_bytes is None:
            raise SpecError("spill says where blocks go that exceed max_bytes: pass max_bytes, too")
        if "pinned" in heaps:
            raise SpecError("a GPU reads blocks in pinned memory, which can't move to a file: leave spill or heap out")
        folder = Path(cast("str | os.PathLike[str]", spill))
        try:
            folder_path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"spill must be a folder, and {str(folder)!r} can't be made: {error.strerror}"
            raise type(error)(error.errno, f"{text}; name another one") from error
        self.folder = str(folder)

    @property
    def drops_steps(self) -> bool:
        """Whether there is a limit, and the oldest steps are dropped when it is reached."""
        return self.max_bytes is not None and self.folder is None

    def check(self, capacity: int, memory_bytes: Callable[[int], int]) -> None:
        """Refuse a limit that a new buffer will exceed whatever its compressed observations take.

        Only these move to files, or are dropped with their steps: a row keeps its memory when its step is dropped.
        ``memory_bytes`` tells what so many steps take besides. Raises :class:`LimitTooLow`.
        """
        self.capacity = capacity
        if self.max_bytes is None or (least := memory_bytes(capacity)) <= self.max_bytes:
            return
        empty = memory_bytes(0)
        n_fit = max(self.max_bytes - empty, 0) * capacity // max(least - empty, 1)
        fewer = f", or make room for {n_fit:,} steps or fewer" if n_fit else ""
        raise LimitTooLow(
            f"max_bytes must be {least:,} or more for {capacity:,} steps, got {self.max_bytes:,}: uncompressed fields "
            "and ids take that much, and keep it when steps are dropped or move to files. Allow more bytes, or name a "
            f"codec for large fields{fewer}"
        )

    def look(
        self,
        n_steps: Callable[[], int],
        memory_bytes: Callable[[], int],
        stores: Collection[Store],
        stats: Callable[[], BufferStats],
        drop: Callable[[int], None],
    ) -> None:
        """Free memory until a buffer is within its limit, and forecast what the full one will take.

        The functions tell its number of steps, memory and statistics; ``drop`` drops so many steps, the oldest.

        Raises:
            HeapFull: it has no more to free.
            OSError: the disk is full or refuses.
        """
        if (limit := self.max_bytes) is not None and memory_bytes() > limit:
            for store in stores:
                store.decide()  # until then tensors take their full size
        while limit is not None and (excess := memory_bytes() - limit) > 0:
            n = n_steps()
            if self.folder is not None:
                freed = _spill(self.folder, stores, excess)
            elif (freed := min(max(n // _PART, LOOK_EVERY), _MOST_STEPS, n - _LEAST_STEPS)) > 0:
                if not self._has_warned:
                    self._has_warned = True
                    warn(
                        f"{n} of {self.capacity} steps have reached max_bytes, {limit}, with "
                        f"{memory_bytes() / n:.0f} bytes each: from now on the oldest steps are dropped. To keep "
                        "them, allow more bytes, or pass spill, a folder",
                    )
                drop(freed)
            if freed <= 0:
                raise HeapFull(
                    f"max_bytes is {limit}, and the buffer takes {memory_bytes()} for its {n} newest steps, and for "
                    "what it has not compressed yet: allow some MB more for each compressed field"
                )
        if n_steps() >= self._next_forecast:
            self._forecast(n_steps(), stats)
            self.next_look = self._next_forecast if limit is None else 0

    def stats(self, stats: BufferStats, n_steps: int, memory_bytes: int) -> BufferStats:
        """``stats`` of a buffer that has so many steps, with what follows from its limit."""
        stats = stats.projected(n_steps, self.capacity)
        if self.max_bytes is None:
            return stats
        if stats.projected_bytes is not None:
            most = max(self.max_bytes, stats.total_bytes)
            stats = replace(stats, projected_bytes=min(stats.projected_bytes, most))
        n_fit = n_steps * self.max_bytes // max(memory_bytes, 1) if self.drops_steps else None
        return replace(stats, n_steps=n_steps, steps_that_fit=n_fit)

    def _forecast(self, n_steps: int, stats: Callable[[], BufferStats]) -> None:
        """Warn if a buffer, which has so many steps now, is about to take more memory than there is."""
        self._next_forecast = 2 * n_steps if 2 * n_steps < self.capacity else math.inf
        if self.capacity <= LOOK_EVERY:
            return
        found, free = stats(), free_memory()
        if found.projected_bytes is None or free is None or found.projected_bytes - found.total_bytes <= free:
            return
        self._next_forecast = math.inf
        warn(
            f"{self.capacity} steps will take about {in_units(found.projected_bytes)}, judging by {n_steps} steps, "
            f"and the machine has {in_units(free)} free: make the buffer smaller, or pass max_bytes, with "
            "spill=folder to keep the rest on disk; stats() shows the size of each field",
        )


def _spill(folder: str, stores: Iterable[Store], nbytes: int) -> int:
    """Move blocks of so many bytes to files, of the largest store first; how many bytes are freed."""
    freed = 0
    for store in sorted(stores, key=lambda store: -store.memory_bytes):
        if freed < nbytes:
            freed += store.spill(folder, nbytes - freed)
    return freed


@contextmanager
def making_room(n_steps: Callable[[], int]) -> Iterator[None]:
    """A context that allocates arrays for so many steps, which its MemoryError names."""
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


def fit(least: float, most: float, free: int | None) -> str:
    """Whether a buffer that takes ``least`` to ``most`` bytes fits into ``free`` ones, in words; "" if nobody knows."""
    if free is None:
        return ""
    there = f"This machine has {in_units(free)} free"
    if most <= free:
        return f"{there}: the full buffer fits"
    does = "does not fit" if least > free else "may not fit"
    return f"{there}: the full buffer {does}, make it smaller, or pass max_bytes, with spill=folder"
