"""MemoryLimit: keeps the memory of a buffer within a limit."""

import os
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Self, cast

from obscodec.arguments import as_nbytes, check_kind
from obscodec.errors import HeapFull, ShapeError, SpecError
from obscodec.stores import Store

LOOK_EVERY = 16  # steps: a block of frames, by which the memory may exceed the limit
LEAST_STEPS = 16  # are always kept
_PART, _MOST_STEPS = 256, 1024  # one drop is a part of the steps, and takes some milliseconds at most


class LimitTooLow(ShapeError):
    """A buffer would take more than its ``max_bytes`` whatever its observations are."""


class MemoryLimit:
    """Frees memory when a buffer takes more than a limit.

    With a folder, the oldest blocks of its stores go to files there; else the oldest steps go, some at a time.

    Args:
        max_bytes: the most bytes.
        folder: of the files, None to drop steps.
    """

    def __init__(self, max_bytes: int, folder: str | None = None) -> None:
        self.max_bytes = max_bytes
        self.folder = folder
        self._has_warned = False

    @classmethod
    def of(cls, max_bytes: object, spill: object, heaps: Iterable[str]) -> Self | None:
        """A limit for the arguments of a buffer, None if ``max_bytes`` is; a folder that is not there is made.

        ``heaps`` are the options ``heap`` of its fields.

        Raises:
            DTypeError: an argument has another type.
            ShapeError: ``max_bytes`` is less than 1.
            SpecError: ``spill`` is given without ``max_bytes``, or a field lies in pinned memory.
            OSError: the folder can't be made.
        """
        limit = as_nbytes("max_bytes", max_bytes)
        if spill is None:
            return None if limit is None else cls(limit)
        check_kind("spill", spill, (str, os.PathLike), "a folder for the oldest blocks, such as '/tmp', or None")
        if limit is None:
            raise SpecError("spill says where blocks go that exceed max_bytes: pass max_bytes, too")
        if "pinned" in heaps:
            raise SpecError("a GPU reads blocks in pinned memory, which can't move to a file: leave spill or heap out")
        folder = Path(cast("str | os.PathLike[str]", spill))
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"spill must be a folder, and {str(folder)!r} can't be made: {error.strerror}"
            raise type(error)(error.errno, f"{text}; name another one") from error
        return cls(limit, str(folder))

    def check(self, capacity: int, memory_bytes: Callable[[int], int]) -> None:
        """Refuse a limit that a new buffer will exceed whatever its compressed observations take.

        Only these move to files, or go with their steps: a row keeps its memory when its step goes.

        Args:
            capacity: how many steps it has room for.
            memory_bytes: tells what so many steps take besides compressed observations.

        Raises:
            LimitTooLow: the limit is too low.
        """
        if (least := memory_bytes(capacity)) <= self.max_bytes:
            return
        empty = memory_bytes(0)
        n_fit = max(self.max_bytes - empty, 0) * capacity // max(least - empty, 1)
        raise LimitTooLow(
            f"max_bytes must be {least} or more, got {self.max_bytes}: so much do {capacity} steps take in "
            "uncompressed fields and ids, which neither move to files nor go with their steps. Allow more bytes, name "
            f"a codec for large fields, or make room for {n_fit} steps or fewer"
        )

    def decide(self, memory_bytes: int, stores: Iterable[Store]) -> None:
        """Have stores choose their codecs if a buffer exceeds the limit: until then tensors take their full size."""
        if memory_bytes > self.max_bytes:
            for store in stores:
                store.decide()

    def keep(
        self,
        capacity: int,
        memory_bytes: Callable[[], int],
        stores: Collection[Store],
        n_steps: Callable[[], int],
        drop: Callable[[int], None],
    ) -> None:
        """Free memory until a buffer is within the limit.

        Args:
            capacity: how many steps it has room for.
            memory_bytes: tells its memory.
            stores: its stores.
            n_steps: tells how many steps it has.
            drop: drops so many of them, the oldest.

        Raises:
            HeapFull: it has no more to free.
            OSError: the disk is full or refuses.
        """
        self.decide(memory_bytes(), stores)
        while (excess := memory_bytes() - self.max_bytes) > 0:
            if self.folder is not None:
                freed = self._spill(stores, excess)
            else:
                freed = min(max(n_steps() // _PART, LOOK_EVERY), _MOST_STEPS, n_steps() - LEAST_STEPS)
                if freed > 0:
                    self.warn(n_steps(), capacity, memory_bytes())
                    drop(freed)
            if freed <= 0:
                raise self.full(n_steps(), memory_bytes())

    def full(self, n_steps: int, memory_bytes: int) -> HeapFull:
        """The error that says that so many steps can't go, though they exceed the limit."""
        return HeapFull(
            f"max_bytes is {self.max_bytes}, and the buffer takes {memory_bytes} for its {n_steps} newest steps, and "
            "for what it has not compressed yet: allow some MB more for each compressed field"
        )

    def warn(self, n_steps: int, capacity: int, memory_bytes: int) -> None:
        """Say once that from now on the oldest steps go."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{n_steps} of {capacity} steps have reached max_bytes, {self.max_bytes}, with "
                f"{memory_bytes / n_steps:.0f} bytes each: from now on the oldest go. Allow more bytes, or pass "
                "spill, a folder, to keep all",
                stacklevel=2,
            )

    def steps_that_fit(self, n_steps: int, memory_bytes: int) -> int | None:
        """How many steps fit in memory, if each takes what ``n_steps`` take on average; None if the others spill."""
        if self.folder is not None:
            return None
        return n_steps * self.max_bytes // max(memory_bytes, 1)

    def _spill(self, stores: Iterable[Store], excess: int) -> int:
        freed = 0
        for store in sorted(stores, key=lambda store: -store.memory_bytes):
            if freed < excess:
                freed += store.spill(self.folder or "", excess - freed)
        return freed
